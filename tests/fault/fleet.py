"""A router and workers as processes of this one, each of which can be killed, stopped, and started again with other settings and at its
old address while the others go on. Failpoints are armed in all of them at any time, through one file that they look at before each hit."""
import dataclasses
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BUILD, FAILPOINTS, GOLDEN, REPORT, wait_until  # noqa: E402

# Most cases ask again for what was answered before, and count its chunks and reads: nothing of it may be cached, but where a shape says so.
ENVIRONMENT = {"BATON_PREFIX_CACHE": "false", "UCX_MEM_MMAP_HOOK_MODE": "none", "ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
# Prompts stay with prefill workers, so that a fault there or in a handoff has requests to strike: an idle decode worker may compute one
# sooner. Where workers are several, cases name the one that fails: by this policy each of two that aren't busy gets one of two requests.
ROUTER = {"local-prefill-wait": "60s"}
BY_NAME = {"placement-policy": os.environ.get("BATON_PLACEMENT_POLICY", "least-tokens")}
STATES = ("free", "used", "pinned", "landing")
CHUNKS = (16, 32, 64, 128)
# Workers on one emulated GPU (tests/cuda/driver), with a model that it computes in milliseconds.
CUDA = {"BATON_DEVICE": "cuda:0", "BATON_CUDA_DRIVER": str(BUILD / "tests/libcuda-emulated.so"), "BATON_CUDA_EMULATED": "sms=2,late=1,memory=64"}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The parts of a fleet; cases of one shape share a fleet."""
    name: str
    prefill: int = 2
    decode: int = 2
    workers: dict = dataclasses.field(default_factory=dict, hash=False)   # settings of every worker
    router: dict = dataclasses.field(default_factory=dict, hash=False)
    of: dict = dataclasses.field(default_factory=dict, hash=False)        # {"decode-0": {"block-tokens": 16}}
    refused: tuple = ()                                                   # workers that the router must not take in

    def names(self):
        return [f"prefill-{i}" for i in range(self.prefill)] + [f"decode-{i}" for i in range(self.decode)]


class Process:
    """One life of one program. A thread reaps it at once: a zombie looks alive to UCX's peers."""

    def __init__(self, name, command, environment, log):
        self.name, self.command = name, command
        ready, told = os.pipe()
        with open(log, "ab") as output:
            self.popen = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command), "--ready-fd", str(told)], pass_fds=[told],
                                          env=environment, stdout=output, stderr=output, start_new_session=True)
        os.close(told)
        self.pid, self.ready_fd, self.address = self.popen.pid, ready, None
        self.ended = threading.Event()
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self):
        self.popen.wait()
        self.ended.set()

    def wait_ready(self, seconds=60):
        readable, _, _ = select.select([self.ready_fd], [], [], seconds)
        with os.fdopen(self.ready_fd) as stream:
            line = stream.readline() if readable else ""
        assert line, f"{self.name} is not ready (exit {self.popen.poll()})"
        told = json.loads(line)
        self.address, self.metrics = told["address"], told["metrics"]

    def signal(self, number):
        self.popen.send_signal(number)  # none to one that was reaped

    @property
    def alive(self):
        return not self.ended.is_set()


class Fleet:
    def __init__(self, folder, shape, lane, rng, model=GOLDEN / "llama-wide", compute="f32"):
        if lane == "cuda":
            model, compute = GOLDEN / "rope-linear", "fast"
        self.folder, self.shape, self.lane, self.rng, self.model, self.compute = folder, shape, lane, rng, model, compute
        folder.mkdir(parents=True)
        self.spec, self.log = folder / "spec", folder / "hits"
        self.spec.write_text("")
        self.log.write_text("")
        self.offset = 0
        self.environment = dict(os.environ, **ENVIRONMENT, BATON_FAILPOINTS=f"@{self.spec}", BATON_FAILPOINT_LOG=str(self.log),
                                **(CUDA if lane == "cuda" else {}))
        self.processes, self.chunks, self.totals, self.fds, self.places = {}, {}, {}, {}, {}
        self.history = []  # every Process that was
        self.router = ROUTER | (BY_NAME if max(shape.prefill, shape.decode) > 1 else {}) | shape.router
        self._launch("router", self.router)
        self.processes["router"].wait_ready()
        for name in shape.names():
            self.launch(name)
        for name in shape.names():
            self.processes[name].wait_ready()
        self.wait_sessions()
        for name in shape.names():
            self.totals[name] = self.blocks(name)["free"]

    # --- processes ---

    def _new_place(self, name):
        """An address of its own. It is held, so that no connection takes the port while the process is away."""
        if name in self.places:
            self.places[name].close()
        self.places[name] = place = socket.socket()
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{place.getsockname()[1]}"

    def _launch(self, name, settings, address=None):
        program = "router" if name == "router" else name.split("-")[0]
        command = [BUILD / "bin" / f"baton-{program}", "--listen", address or self._new_place(name), "--metrics-listen", "127.0.0.1:0"]
        for key, value in {"model": self.model, **settings}.items():
            command.append(f"--{key}={value}")
        process = Process(name, command, self.environment, self.folder / f"{name}.log")
        self.processes[name] = process
        self.history.append(process)

    def launch(self, name, address=None, **settings):
        """Starts a worker; wait_ready is the caller's. settings: chunk_tokens=16, kv_faults="...": of this life alone."""
        life = {"name": name, "router": self.processes["router"].address, "compute": self.compute, "transport": self.lane,
                "chunk-tokens": self.rng.choice(CHUNKS), **self.shape.workers, **self.shape.of.get(name, {})}
        life.update({key.replace("_", "-"): value for key, value in settings.items()})
        self.chunks[name] = life["chunk-tokens"]
        self._launch(name, life, address)

    def restart(self, name, same_address=False, **settings):
        """Ends it if it lives (SIGKILL), and starts it again."""
        old = self.processes[name]
        self.kill(name)
        address = old.address if same_address else None
        if name == "router":
            self._launch(name, self.router, address)
        else:
            self.launch(name, address, **settings)
        self.processes[name].wait_ready()
        self.fds.pop(name, None)

    def kill(self, name, number=signal.SIGKILL):
        process = self.processes[name]
        process.signal(number)
        if number == signal.SIGKILL:
            assert process.ended.wait(10), f"{name} survives SIGKILL"

    def resume(self, name):
        self.processes[name].signal(signal.SIGCONT)

    def is_stopped(self, name):
        with open(f"/proc/{self.processes[name].pid}/stat") as stat:
            return stat.read().rsplit(") ", 1)[1][0] == "T"

    def dead(self):
        return [name for name, process in self.processes.items() if not process.alive]

    def heal(self):
        """Nothing armed, everything alive, every session up, and no worker or pair avoided for the faults of an earlier run."""
        self.arm()
        for name in sorted(self.dead(), key=lambda name: name != "router"):
            self.restart(name, same_address=name == "router")
        self.wait_sessions()
        avoided = [worker["name"] for worker in self.workers() if worker["breaker"] != "closed" or (worker["pairs"] and worker["role"] == "decode")]
        for name in avoided:
            self.restart(name)  # the breaker is of one incarnation
        if avoided:
            self.wait_sessions()

    def wait_sessions(self, seconds=15):
        wanted = len([name for name in self.shape.names() if self.processes[name].alive and name not in self.shape.refused])

        def up():
            return self.total("router", "baton_router_workers_up") == wanted == self.total("router", "baton_router_workers_known")
        wait_until(f"{wanted} sessions", up, seconds)

    # --- failpoints ---

    def arm(self, *specs):
        """Replaces what is armed, in all processes; hits are counted from here."""
        for spec in specs:
            name = spec.split("=")[0].split("/")[0].split(":")[-1]
            assert name in FAILPOINTS, name
        for path in self.folder.glob("hits.*.go"):
            if specs:
                path.unlink()
        new = self.folder / "spec.new"
        new.write_text("\n".join(specs))
        os.rename(new, self.spec)
        if specs:
            self.offset = self.log.stat().st_size

    def disarm(self):
        """Paused points stay paused; nothing else happens."""
        self.arm()

    def hits(self, name=None):
        """[[NAME, ACTION, N, PID, PROCESS], ...] since the last arm(...) of something."""
        with open(self.log) as log:
            log.seek(self.offset)
            rows = [line.split() for line in log.read().splitlines()]
        return [row for row in rows if name in (None, row[0])]

    def wait_hit(self, name, count=1, seconds=20):
        wait_until(f"{count} hits of {name}", lambda: len(self.hits(name)) >= count, seconds)
        return self.hits(name)[count - 1]

    def go(self, name):
        (self.folder / f"hits.{name}.go").write_text("")

    # --- figures ---

    def metrics(self, name):
        with urllib.request.urlopen(f"http://{self.processes[name].metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {key: float(value) for key, value in re.findall(r"^([a-z_0-9]+(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def total(self, process, metric):
        return sum(value for key, value in self.metrics(process).items() if key.split("{")[0] == metric)

    def figure(self, process, metric):
        """The sum of the series with these labels, whatever their other labels."""
        name, _, labels = metric.partition("{")
        wanted = set(re.findall(r'\w+="[^"]*"', labels))
        return sum(value for key, value in self.metrics(process).items()
                   if key.partition("{")[0] == name and wanted <= set(re.findall(r'\w+="[^"]*"', key)))

    def queued(self):
        """Tokens that workers have reported as queued: the router takes these for their work until they report again."""
        return sum(worker["queued_tokens"] for worker in self.workers())

    def workers(self):
        """The workers as the router sees them."""
        with urllib.request.urlopen(f"http://{self.processes['router'].metrics}/status", timeout=10) as answer:
            return json.load(answer)["workers"]

    @staticmethod
    def states(seen):
        """Blocks by state. Free: blocks without a holder, cached or not."""
        states = {state: int(seen[f'baton_kv_blocks{{state="{state}"}}']) for state in (*STATES, "cached")}
        states["free"] += states.pop("cached")
        return states

    def blocks(self, name):
        return self.states(self.metrics(name))

    def held(self):
        """Everything that is still held, as text; empty: nothing. And the number of blocks."""
        notes, count = [], 0
        for name in self.shape.names():
            if not self.processes[name].alive:
                continue
            seen = self.metrics(name)
            for state, blocks in self.states(seen).items():
                if state != "free" and blocks:
                    notes.append(f"{name} {state} {blocks}")
                    count += blocks
                elif state == "free" and name in self.totals and blocks != self.totals[name]:
                    notes.append(f"{name} free {blocks} of {self.totals[name]}")
            for metric in ("baton_num_requests_waiting", "baton_num_requests_running"):
                if seen[metric]:
                    notes.append(f"{name} {metric} {seen[metric]:.0f}")
        if self.processes["router"].alive:
            alive = self.total("router", "baton_router_requests")
            if alive:
                notes.append(f"router holds {alive:.0f} requests")
        return ", ".join(notes), count

    def check_fds(self, slack=8):
        """Open files of each life don't grow: each count is compared with that after its first case. A close may take a moment."""
        for name, process in self.processes.items():
            if not process.alive:
                continue
            now = int(self.figure(name, "process_open_fds"))
            first = self.fds.setdefault(name, (process.pid, now))
            if first[0] != process.pid:
                self.fds[name] = first = (process.pid, now)
            if now > first[1] + slack:
                wait_until(f"{name} has no more than {first[1]} + {slack} open files",
                           lambda: self.figure(name, "process_open_fds") <= first[1] + slack, 5)

    def log_text(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def reports(self):
        """Lines of sanitizers and failed assertions in any log."""
        return [f"{path.name}: {match.group(0)}" for path in sorted(self.folder.glob("*.log"))
                for match in REPORT.finditer(path.read_text(errors="replace"))]

    # --- the end ---

    def stop(self):
        """SIGTERM to all, router first as `baton up` does; each must end by itself with 0 and without a report."""
        self.arm()
        problems = []
        names = ["router"] + self.shape.names()
        for group in (names[:1], names[1:]):
            for name in group:
                self.processes[name].signal(signal.SIGCONT)
                self.processes[name].signal(signal.SIGTERM)
            for name in group:
                process = self.processes[name]
                if not process.ended.wait(40):
                    process.signal(signal.SIGKILL)
                    problems.append(f"{name} did not end within 40 s")
                elif process.popen.returncode not in (0, -signal.SIGKILL):
                    problems.append(f"{name} ended with {process.popen.returncode}")
        return problems + self.reports()

    def abort(self):
        for process in self.history:
            process.signal(signal.SIGKILL)
            process.ended.wait(10)
        for place in self.places.values():
            place.close()


