"""The byte path between two workers: it breaks, or it is not the one that was wanted."""
from runner import Shape, case

from .shapes import NORMAL, PAIR, WORKERS

LOST = "a lost lane: the others' reads are repeated once"
NO_FAST_PATH = "no fast path between a pair"
PAIR_FAILS = "the reads of a pair fail, and no others"


@case("lane_lost.reading", LOST, PAIR)
def lost_while_reading(run):
    """One pair of workers, four requests: all reads of the pairing end with it, and are made again on the next."""
    _, start = run.pair()
    run.arm(f"decode.lane_lose=fail@{run.rng.randrange(1, 4)}")
    seen = run.all_same(start() + start(), [[1] * 4])
    run.prove_hits("decode.lane_lose", 1, 1)
    return f"equal, prefills {seen}"


@case("pair_fails", PAIR_FAILS, NORMAL, lanes=("tcp",))
def pair_fails(run):
    """One pair of four is kept apart after 5 failures at most. It gets probes alone, its workers serve with others, and it is used again
    once it works."""
    fleet, told = run.fleet, len(run.fleet.log_text("router"))
    asks, pair = [run.ask(i, tokens=2, length=130) for i in range(8)], ("prefill-0", "decode-0")
    ends = run.ask(8, tokens=1, length=130)  # takes a turn of a prefill worker alone, so that all pairs have theirs

    def lines(what):
        return [line for line in fleet.log_text("router")[told:].splitlines() if what in line and all(f"={name} " in line for name in pair)]

    def lost():
        return len(lines('msg="handoff is lost"'))

    def ask_two():
        calls = [run.start(run.rng.choice(asks)) for _ in range(2)]
        run.all_same([*calls, run.start(ends)])
        return {(call.answer.timing.prefill_worker, call.answer.timing.decode_worker) for call in calls}

    run.arm("decode-0:decode.lane_lose/prefill-0=fail@*")
    for _ in range(60):
        ask_two()
        if lines('msg="reads fail between these workers'):
            break
    failures = lost()
    assert 3 <= failures <= 5, f"kept apart after {failures} failures"
    run.prove_hits("decode.lane_lose", failures)
    shown = {worker["name"]: [other["worker"] for other in worker["pairs"]] for worker in fleet.workers()}
    assert shown == {"prefill-0": ["decode-0"], "decode-0": ["prefill-0"], "prefill-1": [], "decode-1": []}, shown
    used = set().union(*(ask_two() for _ in range(15)))
    probes = len(lines('msg="these workers may be paired again"'))
    assert used >= {("prefill-0", "decode-1"), ("prefill-1", "decode-0")} and pair not in used, used
    assert lost() - failures <= probes, f"{lost() - failures} failures more with {probes} probes"
    fleet.disarm()
    run.wait("it is used again", lambda: pair in ask_two(), 30)
    run.wait("it is let in", lambda: fleet.total("router", "baton_router_pairs_kept_out") == 0)
    return f"kept apart after {failures} failures, {probes} probes, used again"


SLOW = Shape("slow-lane", prefill=1, decode=2, workers=WORKERS,
             of={"prefill-0": {"transport": "tcp"}, "decode-0": {"transport": "shm"}, "decode-1": {"transport": "auto"}})
NO_LANE = Shape("no-lane", prefill=1, decode=1, workers=WORKERS, of={"prefill-0": {"transport": "tcp"}, "decode-0": {"transport": "shm"}})


@case("lane_lower.warning", NO_FAST_PATH, SLOW, lanes=("tcp",))
def lower_lane(run):
    """One insists on shm and is refused, the other takes what it gets and says so."""
    fleet = run.fleet
    _, start = run.pair()
    calls = start() + start()
    run.all_same(calls, [[1] * 4])
    run.prove({call.answer.timing.lane for call in calls} == {"tcp"}, "another lane")
    assert {call.answer.timing.decode_worker for call in calls} == {"decode-1"}
    warnings = [line for line in fleet.log_text("decode-1").splitlines() if "level=warn" in line and "lane=tcp" in line]
    assert warnings, "the slow lane is not a warning"
    assert "does not offer the lane shm" in fleet.log_text("decode-0")
    return "a warning names the lane; one that insists on a better one is refused"


@case("refusals.pause", "workers refuse again and again", NO_LANE, lanes=("tcp",))
def refusals_pause(run):
    """Each attempt is refused at once: the pauses between them keep the bound of attempts from being used up in no time."""
    from asked import ask_of
    fleet = run.fleet
    call = run.start(ask_of(run.seed), timeout=1.2)
    run.ends(call, "DEADLINE_EXCEEDED deadline", "DEADLINE_EXCEEDED")
    tries = fleet.log_text("router").count('msg="refused"')
    before = getattr(fleet, "refused_before", 0)
    fleet.refused_before = tries
    run.prove(tries - before >= 3, f"{tries - before} refusals")
    assert tries - before <= 10, f"{tries - before} refusals in 1.2 s"
    return "paused between attempts until the deadline"
