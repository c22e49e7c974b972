"""Runs cases: a case is a function of a Run, which gives it a fleet, a seed's choices, and the checks that hold for every case."""
import dataclasses
import pathlib
import random
import shutil
import time
import traceback

from asked import Call, Client, Quiet, ask_of
from fleet import Fleet, Shape, wait_until

RELEASE_SECONDS = 1.0  # the promise: everything is free again this long after a request's end
CASES = {}


@dataclasses.dataclass
class Case:
    name: str
    row: str       # of the table in docs/handoff.md, or what else is promised
    shape: Shape
    function: object
    arguments: dict
    lanes: tuple


def case(name, row, shape, /, lanes=("shm", "tcp"), **arguments):
    """Registers a function as a case; several of these on one function make several cases."""
    def register(function):
        assert name not in CASES, name
        CASES[name] = Case(name, row, shape, function, arguments, lanes)
        return function
    return register


@dataclasses.dataclass
class Result:
    case: str
    lane: str
    seed: int
    ok: bool = False
    hit: int = 0           # times that the fault happened
    outcome: str = ""
    wrong: int = 0         # tokens or hashes that differ from the quiet run's
    leaked: int = 0        # blocks
    release_ms: float = 0  # from the last request's end until everything was free
    seconds: float = 0
    logs: str = ""


class Run:
    """One seed of one case."""

    def __init__(self, runner, result):
        self.runner, self.result = runner, result
        self.fleet, self.quiet, self.client = runner.fleet, runner.quiet, runner.client
        self.seed, self.lane = result.seed, result.lane
        self.rng = random.Random(f"{result.case} {result.lane} {result.seed}")
        self.calls, self.proven = [], 0
        self.counted = self.ended_calls()
        self.cancelled = self.fleet.figure("router", 'baton_router_requests_total{status="cancelled"}')

    # --- asking ---

    def ask(self, which=0, **size):
        """A request; its quiet answer is known from here on."""
        ask = ask_of(self.seed, which, **size)
        self.quiet.of(self.client, ask)
        return ask

    def start(self, ask, timeout=40, name=None):
        call = Call(self.client, ask, timeout, name or f"{self.result.case}/{self.seed}/{len(self.calls)}")
        self.calls.append(call)
        return call

    def pair(self, **size):
        """Two requests at once: of two workers of a role, none of which the router takes for busy, each gets one."""
        asks = [self.ask(0, **size), self.ask(1, **size)]
        return asks, lambda: [self.start(ask) for ask in asks]

    def chunk_hit(self, name, asks):
        """A chunk's number that every one of these prompts has on that worker."""
        return self.rng.randrange(min(-(-len(ask.prompt) // self.fleet.chunks[name]) for ask in asks)) + 1

    def reconnect(self):
        """The router was away: a new client doesn't wait for the old one's back-off."""
        self.client.close()
        self.client = self.runner.client = Client(self.fleet.processes["router"].address)

    # --- the fault ---

    def arm(self, *specs):
        self.fleet.arm(*specs)

    def prove(self, condition, what):
        """The fault happened, or the run is no proof of anything."""
        assert condition, f"the fault did not happen: {what}"
        self.proven = max(self.proven, 1)

    def prove_hits(self, name, least=1, most=None, seconds=5):
        self.fleet.wait_hit(name, least, seconds)
        hits = self.fleet.hits(name)
        assert most is None or len(hits) <= most, f"{name} was hit {len(hits)} times"
        self.proven += len(hits)
        return hits

    def strike(self, start, name, rounds=1):
        """Starts requests, of which the armed worker of two gets its share, and returns them once the fault has happened under them.
        rounds: how often, where that share may be too few for it."""
        for _ in range(rounds):
            self.wait("no worker counts as busy", lambda: not self.fleet.queued())
            calls = start()
            self.wait(f"{name} or all ends", lambda: self.fleet.hits(name) or all(call.ended.is_set() for call in calls), 40)
            if self.fleet.hits(name):
                return calls
            self.all_same(calls)
        raise AssertionError(f"the fault did not happen: {name} was not hit")

    def prove_dead(self, name):
        self.wait(f"{name} is dead", lambda: name in self.fleet.dead())

    def pause_at(self, name, number=1, process=None):
        """Arms a pause, and returns a function that waits for it and leaves nothing armed: the process that pauses."""
        self.arm(f"{process + ':' if process else ''}{name}=pause@{number}")

        def wait():
            hit = self.fleet.wait_hit(name)
            self.fleet.disarm()
            self.proven = max(self.proven, 1)
            return hit[4]
        return wait

    def wait(self, what, condition, seconds=10):
        return wait_until(what, condition, seconds)

    # --- what is promised ---

    def same(self, call, prefills=None):
        """It ended well, with what the quiet run answered. prefills: how many there may have been."""
        call.wait()
        ids, hashes = self.quiet.of(self.client, call.ask)
        answer = call.answer
        wrong = sum(a != b for a, b in zip(answer.ids, ids)) + sum(a != b for a, b in zip(answer.hashes, hashes))
        self.result.wrong += wrong
        assert call.code == "OK", f"{call.said}: {call.error}"
        assert not wrong and (answer.ids, answer.hashes) == (ids, hashes), f"{wrong} of {len(ids)} tokens are wrong"
        assert prefills is None or answer.timing.prefills in prefills, f"{answer.timing.prefills} prefills, not {prefills}"
        return answer

    def all_same(self, calls, prefills=None):
        """prefills: of all together, sorted, as one of these lists."""
        seen = sorted(self.same(call).timing.prefills for call in calls)
        assert prefills is None or seen in prefills, f"prefills {seen}, not one of {prefills}"
        return seen

    def ends(self, call, *said):
        call.wait()
        assert call.said in said, f"{call.said or call.code}, not {said}: {call.error}"

    def ended_calls(self):
        """Which router, and the requests that it has counted as ended, except the quiet ones."""
        router = self.fleet.processes["router"]
        return router.pid, self.fleet.total("router", "baton_router_requests_total") - self.quiet.calls

    def one_status_each(self):
        """The router has counted exactly one end for each call (where it is still the same router)."""
        router, ended = self.ended_calls()
        assert router != self.counted[0] or ended - self.counted[1] == len(self.calls), \
            f"{ended - self.counted[1]:.0f} ends of {len(self.calls)} calls"

    def settle(self, within=RELEASE_SECONDS, since=None):
        """Every request has had one status, and within that time nothing is held for them any more, anywhere."""
        for call in self.calls:
            call.wait()
            assert call.statuses == 1
        since = max([call.ended_at for call in self.calls] + [since or 0])
        while True:
            held, blocks = self.fleet.held()
            late = time.monotonic() - since
            if not held:
                break
            if late > within:
                self.result.leaked += blocks
                raise AssertionError(f"{late:.2f} s after the last end: {held}")
            time.sleep(min(max(0.005, late / 10), 0.05))
        self.result.release_ms = max(self.result.release_ms, late * 1000)


class Runner:
    def __init__(self, folder, keep):
        self.folder, self.keep = pathlib.Path(folder), pathlib.Path(keep)
        self.quiets = {False: Quiet(), True: Quiet()}  # by whether GPUs computed them
        self.quiet = self.quiets[False]
        self.fleet = self.client = None
        self.number = 0

    def open(self, shape, lane, seed):
        self.number += 1
        folder = self.folder / f"{shape.name}-{lane}-{self.number}"
        self.quiet = self.quiets[lane == "cuda"]
        self.fleet = Fleet(folder, shape, lane, random.Random(f"fleet {shape.name} {lane} {seed}"))
        self.client = Client(self.fleet.processes["router"].address)

    def close(self, abort=False):
        """Returns what was wrong about the fleet's end."""
        fleet, self.fleet = self.fleet, None
        if not fleet:
            return []
        self.client.close()
        problems = []
        if not abort:
            problems = fleet.stop()
        fleet.abort()
        shutil.rmtree(fleet.folder, ignore_errors=True)
        return problems

    def run_one(self, one, lane, seed):
        result = Result(one.name, lane, seed)
        begin = time.monotonic()
        try:
            if not self.fleet:
                self.open(one.shape, lane, seed)
            self.fleet.heal()
            run = Run(self, result)
            outcome = one.function(run, **one.arguments)
            self.fleet.disarm()
            run.settle()
            run.one_status_each()
            self.fleet.check_fds()
            assert run.proven, "nothing was proven to have happened"
            reports = self.fleet.reports()
            assert not reports, reports
            result.ok, result.hit, result.outcome = True, run.proven, outcome
        except Exception as error:  # a failed run must not hide the others
            lines = traceback.format_exc() if not isinstance(error, AssertionError) else ""
            result.outcome = (str(error) or lines).splitlines()[0][:300] if str(error) or lines else "failed"
            result.logs = self.save(result, traceback.format_exc())
            self.close(abort=True)
        result.seconds = time.monotonic() - begin
        return result

    def save(self, result, text):
        target = self.keep / f"{result.case}-{result.lane}-{result.seed}"
        shutil.rmtree(target, ignore_errors=True)
        if self.fleet:
            shutil.copytree(self.fleet.folder, target)
        target.mkdir(parents=True, exist_ok=True)
        (target / "why").write_text(text)
        return str(target)

    def run_group(self, cases, lane, seeds, report):
        """Cases of one shape: one fleet for all, unless a run fails."""
        shape = cases[0].shape
        for one in cases:
            for seed in seeds:
                result = self.run_one(one, lane, seed)
                report(result)
        if self.fleet:
            end = Result(f"(end of {shape.name})", lane, seeds[-1])
            begin = time.monotonic()
            problems = self.close_keeping(end)
            end.ok, end.seconds = not problems, time.monotonic() - begin
            end.outcome = "; ".join(problems)[:300] or "all ended with 0, no report of a sanitizer"
            end.hit = 1
            report(end)

    def close_keeping(self, result):
        if not self.fleet:
            return []
        problems = self.fleet.stop()
        if problems:
            result.logs = self.save(result, "\n".join(problems))
        self.close(abort=True)
        return problems


__all__ = ["CASES", "Run", "Runner", "Shape", "case", "wait_until"]
