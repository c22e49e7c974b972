"""Routers and the program that measures them (router_load), for router_cost.py and router_crowd.py. All that is started ends with the `with`, by its id."""
import contextlib
import json
import os
import pathlib
import random
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
MODEL = TOP / "deploy/local/tiny-shakespeare"
CONTEXT = 32768


def fail(sentence):
    sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {sentence}")


def wait_until(what, condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            fail(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


class Process:
    def __init__(self, options, command, log, **arguments):
        command = [*shlex.split(options.prefix), "setpriv", "--pdeathsig", "KILL", *map(str, command)]
        self.process = subprocess.Popen(command, stderr=log, **arguments)

    def resident_bytes(self):
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Load(Process):
    """tests/bench/router_load."""

    def __init__(self, options, log):
        super().__init__(options, [options.build / "bin/router_load"], log, stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        told = json.loads(line) if line else {"error": "router_load ended"}
        if "error" in told:
            fail(f"{words[0]}: {told['error']}")
        return told

    def run(self, router, rate=0, seconds=3, connections=64, tokens=1, stream=False, seed=1):
        told = self.tell("run", router.address, router.model, rate, seconds, connections, tokens, int(stream), router.pid or 0, seed)
        if told["failures"] or not told["answers"]:
            fail(f"{router.name}: {told['failures']} requests failed, {told['answers']} were answered")
        return told


class Direct:
    """A worker itself."""
    name, model, pid = "direct", "load", 0

    def __init__(self, address):
        self.address = address


class Baton(Process):
    """The router, with workers of `load`: one of prompts and one of answers, or only the latter (colocated)."""
    model = "load"

    @staticmethod
    def name_of(prefill):
        return "Baton, prefill and decode" if prefill else "Baton, colocated"

    def __init__(self, options, load, folder, log, prefill=True, flags=(), workers=1):
        self.name = self.name_of(prefill)
        model = folder / ("model-pd" if prefill else "model")
        shutil.copytree(MODEL, model, ignore=shutil.ignore_patterns("*.safetensors"))
        config = json.loads((model / "config.json").read_text())
        config["max_position_embeddings"] = CONTEXT
        (model / "config.json").write_text(json.dumps(config))
        vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
        ready, told = os.pipe()
        super().__init__(options, [options.build / "bin/baton-router", "--model", model, "--model-name", self.model, "--http-listen",
                                   "127.0.0.1:0", "--local-prefill-wait", "1s", "--max-workers", max(256, 2 * workers), "--ready-fd", told, *flags], log, pass_fds=[told])
        os.close(told)
        with os.fdopen(ready) as stream:
            line = stream.readline()
        if not line:
            fail("baton-router didn't start")
        told = json.loads(line)
        self.address, self.metrics = told["http"], told["metrics"]
        load.tell("baton-workers", told["address"], self.model, config["vocab_size"], vocabulary["Ġthe"], CONTEXT,
                  "prefill" if prefill else "colocated", workers)
        wait_until("the workers are up", lambda: self.workers_up() == workers * (1 + prefill), 30 + workers)
        wait_until("it is ready", lambda: answers(f"http://{self.address}/ready"))

    def workers_up(self):
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=20) as told:
            return sum(float(line.rsplit(" ", 1)[1]) for line in told.read().decode().splitlines() if line.startswith("baton_router_workers_up{"))


class BareProxy(Process):
    """Hands bytes on to an HTTP worker, unread: what the two hops alone cost."""
    model = "load"

    def __init__(self, options, load, log, threads=1, poll_us=0):
        self.name = f"a proxy that does nothing, {threads} thread{'s' * (threads > 1)}" + (f", polls {poll_us} us" if poll_us else "")
        port = load.tell("http-worker")["address"].rpartition(":")[2]
        super().__init__(options, [options.build / "bin/bare_proxy", port, threads, poll_us], log, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            fail("bare_proxy didn't start")


class Sglang(Process):
    """sglang-router in front of HTTP workers."""
    model = "load"

    @staticmethod
    def name_of(policy, pd):
        return f"sglang-router, {'prefill and decode' if pd else policy.replace('_', ' ')}"

    def __init__(self, options, load, log, policy, pd=False):
        self.name = self.name_of(policy, pd)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        worker = "http://" + load.tell("http-worker")["address"]
        workers = ["--worker-urls", worker]
        if pd:
            workers = ["--pd-disaggregation", "--prefill", "http://" + load.tell("http-worker quiet")["address"], "none", "--decode", worker]
        super().__init__(options, [options.sglang_router, "launch", "--host", "127.0.0.1", "--port", port, *workers, "--policy", policy,
                                   "--prometheus-port", free_port(), "--log-level", "error"], log, stdout=log)
        wait_until("sglang-router serves", lambda: answers(f"http://{self.address}/health"))


@contextlib.contextmanager
def running(*processes):
    try:
        yield
    finally:
        for process in reversed(processes):
            process.stop()


@contextlib.contextmanager
def awake():
    """Each CPU has something to do that gives way to everything else (SCHED_IDLE), so that none of them halts: a virtual one is taken
    from its core when it does, and who wakes it waits for the host."""
    spinners = [subprocess.Popen(["chrt", "-i", "0", "taskset", "-c", str(cpu), "setpriv", "--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"])
                for cpu in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def words(count, seed):
    """A text of so many bytes, of words that the model's tokenizer knows in part."""
    source = random.Random(seed)
    known = "the and of to king lord love death night what shall speak heart crown blood noble father daughter never again".split()
    text = ""
    while len(text) < count:
        text += source.choice(known) + " "
    return text[:count]
