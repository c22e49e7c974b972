"""Starts a cluster with `baton up`, talks to it, ends it, and insists that nothing is left."""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
BATON = BUILD / "bin/baton"
GOLDEN = TOP / "tests/golden/models"
LONG = bool(os.environ.get("BATON_LONG"))  # tests/run --long: all random cases, where a test draws fewer otherwise
SHAKESPEARE = TOP / "deploy/local/tiny-shakespeare"
SHM = "tcp" if os.environ.get("BATON_DEVICE", "").startswith("deferred") else "shm"  # a pool on a device can't be mapped

IN_TURNS = ["--placement-policy", "round-robin"]  # flags: each of two workers gets one of two requests, however late the second comes
PREFILLED_THERE = {"local-prefill-wait": "60s"}  # settings: no decode worker computes a prompt, however long the prefill workers' queues are

# The places in the code where a test makes a fault happen.
FAILPOINTS = set(re.findall(r'X\("([^"]+)"', (TOP / "common/base/failpoint_names.h").read_text()))
REPORT = re.compile(r"(ERROR: \w+Sanitizer|runtime error:|WARNING: ThreadSanitizer|assertion failed).*")


def failpoint(name, action):
    """The environment of a process in which `name` does `action` (kill, kill@3, ...)."""
    assert name in FAILPOINTS, name
    return {"BATON_FAILPOINTS": f"{name}={action}"}


def arm(path, spec):
    """Sets the failpoints of processes with BATON_FAILPOINTS=@path from now on."""
    new = path.with_suffix(".new")
    new.write_text(spec)
    new.rename(path)


def wait_until(what, condition, seconds):
    """Polls until `condition()` is true and returns what it returned. Asks less often the longer it has waited: most conditions cost the
    processes that others wait for a page of figures. A process that doesn't answer, such as one that was killed and isn't reaped, has to be
    asked again."""
    began = time.monotonic()
    while True:
        refused = None
        try:
            value = condition()
            if value:
                return value
        except (OSError, http.client.HTTPException) as error:
            refused = error
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what}" + (f" ({refused})" if refused else "")
        time.sleep(min(max(0.01, waited / 10), 0.1))


def get(cluster, path):
    with urllib.request.urlopen(f"http://{cluster.http}{path}", timeout=10) as answer:
        return answer.headers, answer.read().decode()


def trace_of(cluster, name):
    return json.loads(get(cluster, f"/trace/{name}")[1])


def ended_trace(cluster, name):
    """The trace of a request whose answer is here: the router may be about to write its end down."""
    return wait_until("it has ended", lambda: (lambda t: t if "ended_ms" in t else None)(trace_of(cluster, name)), 20)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def processes_of(folder):
    """All processes that have this folder as their run folder: everything that `baton up` started, whatever its parent is now."""
    mark = f"XDG_RUNTIME_DIR={folder}".encode()
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # it has ended meanwhile
            pass
    return found


class Failed(Exception):
    """`baton generate` ended with an error; .text is what it said."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


class Cluster:
    def __init__(self, folder, model=SHAKESPEARE, prefill=1, decode=1, compute="f32", transport="auto", settings=None,
                 process_environment=None, flags=(), restart=False, wait=True, prefix=()):
        """model: a folder, or several, each "NAME=DIR" or DIR. settings: {"chunk-tokens": 16}, for every worker. process_environment: {"prefill-0": {"KEY": "VALUE"}}. restart: processes
        that die are started again (`wait_back`); otherwise `baton up` reports them and ends with 1. prefix: a command that becomes `baton up`, as prlimit does."""
        self.folder = folder
        self.expected_exit = 0
        self.restart = restart
        self.failpoint_log = folder / "failpoints"
        self.ready_file = folder / "ready.json"
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=str(folder), BATON_FAILPOINT_LOG=str(self.failpoint_log))
        # A worker touches its whole pool at its start: the default's 16384 tokens take half of a start's CPU time.
        self.environment.setdefault("BATON_KV_TOKENS", "4096")
        for name, value in (settings or {}).items():
            self.environment["BATON_" + name.upper().replace("-", "_")] = str(value)
        # Not pinned: other tests run on this machine at the same time.
        models = model if isinstance(model, (list, tuple)) else [model]
        command = ["setpriv", "--pdeathsig", "KILL", *prefix, BATON, "up", "--no-pin", *(word for one in models for word in ("--model", one)),
                   "--prefill", prefill, "--decode", decode, "--compute", compute, "--transport", transport, "--ready-file", self.ready_file, "--log-dir", folder / "logs", "--restart" if restart else "--no-restart", *flags]
        for process, variables in (process_environment or {}).items():
            for key, value in variables.items():
                command += ["--env", f"{process}:{key}={value}"]
        self.output = open(folder / "up.log", "wb")
        # A test that is killed takes its clusters with it (setpriv). Not by a preexec_fn: that forks this process, whose gRPC
        # threads don't bear it.
        self.up = subprocess.Popen([str(c) for c in command], env=self.environment, stdout=self.output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        self.pids = {}
        if wait:
            self.wait_ready()

    def wait_ready(self):
        wait_until("the cluster serves", lambda: self.ready_file.exists() or self.up.poll() is not None, 120)
        assert self.up.poll() is None, f"baton up ended with {self.up.returncode}:\n{self.logs()}"
        self.read_ready_file()

    def read_ready_file(self):
        ready = json.loads(self.ready_file.read_text())
        self.grpc, self.http = ready["grpc"], ready["http"]
        self.processes = {p["name"]: p for p in ready["processes"]}
        self.pids = {name: p["pid"] for name, p in self.processes.items()}

    # --- asking ---

    def command(self, *arguments, timeout=120):
        return subprocess.run([str(BATON), *map(str, arguments)], env=self.environment, text=True, capture_output=True,
                              timeout=timeout)

    def generate(self, prompt, **flags):
        """Runs `baton generate --json`; prompt is text or a list of ids; flags as max_tokens=5, ignore_eos=True."""
        arguments = ["generate", "--json"]
        for name, value in flags.items():
            name = "--" + name.replace("_", "-")
            arguments += [name] if value is True else [name, value]
        arguments += [prompt] if isinstance(prompt, str) else ["--prompt-ids", ",".join(map(str, prompt))]
        done = self.command(*arguments)
        if done.returncode:
            raise Failed(done.returncode, done.stderr)
        return json.loads(done.stdout)

    def status(self):
        """As `baton status --json` prints it, without a process for it."""
        return json.loads(get(self, "/status")[1])

    def metrics(self, name):
        """{'baton_kv_blocks{state="free"}': 3.0, ...} of one process."""
        with urllib.request.urlopen(f"http://{self.processes[name]['metrics']}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return {key: float(value) for key, value in re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.M)}

    def blocks(self, name):
        """{'free': n, 'used': n, 'pinned': n, 'landing': n} of one worker. Free: blocks without a holder, cached or not."""
        seen = self.metrics(name)
        states = {state: int(seen[f'baton_kv_blocks{{state="{state}"}}']) for state in ("free", "cached", "used", "pinned", "landing")}
        states["free"] += states.pop("cached")
        return states

    def all_blocks(self):
        return {name: self.blocks(name) for name in self.processes if name != "router" and alive(self.pids[name])}

    def total(self, process, metric, **labels):
        """Sum of a metric over its series, or over those that have these labels."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        return sum(value for key, value in self.metrics(process).items()
                   if key.split("{")[0] == metric and wanted <= set(re.findall(r'\w+="[^"]*"', key)))

    # --- breaking ---

    def kill(self, name, number=signal.SIGKILL):
        """Without restarts `baton up` is expected to report this, and to end with 1."""
        os.kill(self.pids[name], number)
        if number == signal.SIGKILL and not self.restart:
            self.expected_exit = 1

    def wait_back(self, name, seconds=30):
        """`name` was started again and is ready: returns its former description; its pid (and where it must be, address) is new."""
        before = self.processes[name]

        def back():
            self.read_ready_file()
            return self.pids[name] != before["pid"]
        wait_until(f"{name} is back", back, seconds)
        wait_until(f"{name} has a session", lambda: any(w["pid"] == self.pids[name] and w["state"] == "up" for w in
                                                        self.status()["workers"]) or name == "router", seconds)
        return before

    def failpoint_hits(self):
        """[['prefill.after_chunk', 'kill', '3', '1234', 'prefill-0'], ...]"""
        return [line.split() for line in self.failpoint_log.read_text().splitlines()] if self.failpoint_log.exists() else []

    def failpoint_go(self, name, goes=True):
        """Lets a paused point go on; with False the next one stays."""
        file = self.failpoint_log.with_name(f"{self.failpoint_log.name}.{name}.go")
        file.touch() if goes else file.unlink(missing_ok=True)

    # --- ending ---

    def stop(self, number=signal.SIGTERM):
        """Ends the cluster, and checks its exit code, and that no process and no listener is left."""
        if self.up.poll() is None:
            os.kill(self.up.pid, number)
        try:
            code = self.up.wait(60)
        finally:
            if self.up.poll() is None:
                self.up.kill()  # takes the children with it
                self.up.wait()
            self.output.close()
        left = [name for name, pid in self.pids.items() if alive(pid)]
        assert not left, f"still running: {left}\n{self.logs()}"
        if self.pids:
            host, port = self.grpc.rsplit(":", 1)
            with socket.socket() as probe:
                assert probe.connect_ex((host, int(port))) != 0 or not processes_of(self.folder), "the port is still open, and not another program's"
        assert not self.reports(), "\n".join(self.reports())
        assert code == self.expected_exit, f"baton up ended with {code}, not {self.expected_exit}\n{self.logs()}"

    def reports(self):
        """Lines of sanitizers and failed assertions in any log: a process that was started again must not hide them."""
        return [f"{path.name}: {match.group(0)}" for path in sorted((self.folder / "logs").glob("*.log"))
                for match in REPORT.finditer(path.read_text(errors="replace"))]

    def logs(self, limit=6000):
        texts = []
        for path in [self.folder / "up.log", *sorted((self.folder / "logs").glob("*.log"))]:
            if path.exists():
                texts.append(f"----- {path.name}\n{path.read_text(errors='replace')[-limit:]}")
        return "\n".join(texts)
