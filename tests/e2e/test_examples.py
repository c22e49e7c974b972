"""The commands and the programs that the pages show, run as they stand there: other ports, another folder, nothing else is changed."""
import json
import re
import shlex
import socket
import subprocess
import sys

import pytest
from certificates import Authority
from client import pb
from google.protobuf import json_format
from harness import BATON, SHAKESPEARE, TOP, wait_until

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def block_of(name, word, language=""):
    """The block of a page that has `word` in it."""
    [found] = [text for kind, text in BLOCK.findall((TOP / name).read_text()) if kind == language and word in text]
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


class ByHand:
    """docs/operations/start.md's commands, started one by one."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.ports = {"50051": free_port(), "50080": free_port(), "8000": free_port()}
        lines = block_of("docs/operations/start.md", "baton status --http").splitlines()
        self.started, self.asked = lines[:3], lines[3:]

    def here(self, text):
        for shown, port in self.ports.items():
            text = text.replace(f":{shown}", f":{port}")
        return text

    def arguments(self, line):
        program, *rest = shlex.split(self.here(line))
        return [str(BATON.parent / program), *(str(SHAKESPEARE) if word == "DIR" else word for word in rest)]

    def start(self):
        for line in self.started:
            log = open(self.folder / f"{line.split()[0]}.log", "wb")
            self.processes.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *self.arguments(line)], stdout=log, stderr=log))
        status = self.arguments(self.asked[0])

        def both_up():
            assert all(process.poll() is None for process in self.processes), self.logs()
            done = subprocess.run([*status, "--json"], text=True, capture_output=True, timeout=60)
            return done.returncode == 0 and [w["state"] for w in json.loads(done.stdout)["workers"]] == ["up", "up"]
        wait_until("both workers are up", both_up, 120)

    def logs(self):
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def stop(self):
        for process in self.processes:
            process.terminate()
        assert [process.wait(60) for process in self.processes] == [0, 0, 0], self.logs()


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    cluster = ByHand(tmp_path_factory.mktemp("by-hand"))
    try:
        cluster.start()
        yield cluster
        cluster.stop()
    finally:
        for process in cluster.processes:
            process.kill()


def test_a_cluster_by_hand(by_hand):
    status, generate = [subprocess.run(by_hand.arguments(line), text=True, capture_output=True, timeout=120) for line in by_hand.asked]
    assert status.returncode == 0 and "workers 2 of 2 up" in status.stdout
    assert generate.returncode == 0 and generate.stdout.strip() and "prefill-0 -> decode-0" in generate.stderr


def answers(example, **more):
    """Its answer is drawn, and one may end at once: one of several has text. One process runs it as often as that takes: packages are slow to import."""
    program = f"""import contextlib, io
for _ in range(8):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec({example!r}, {{}})
    if shown.getvalue().strip():
        break
else:
    raise SystemExit("it prints nothing")
"""
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=300, **more)
    assert done.returncode == 0, done.stderr


def test_the_python_example(by_hand, tmp_path):
    (tmp_path / "proto").symlink_to(TOP / "proto")
    _, protoc = block_of("docs/api.md", "grpc_tools.protoc").splitlines()
    subprocess.run([sys.executable, *shlex.split(protoc)[1:]], cwd=tmp_path, check=True, timeout=60)
    example = by_hand.here(block_of("docs/api.md", "import grpc", "python"))
    answers(example, cwd=tmp_path)


@pytest.mark.parametrize("word", ["openai.OpenAI(", "ChatOpenAI("])
def test_the_examples_of_openais_interface(by_hand, word):
    example = by_hand.here(block_of("docs/api.md", word, "python"))
    answers(example)


def test_the_curl_examples(by_hand):
    models, completion, chat = [subprocess.run(["curl", "-sS", "--fail-with-body", *shlex.split(by_hand.here(line))[1:]], text=True, capture_output=True, timeout=60)
                                for line in block_of("README.md", "curl ").splitlines()]
    assert not models.returncode and json.loads(models.stdout)["data"][0]["object"] == "model", models
    assert not completion.returncode and json.loads(completion.stdout)["usage"]["completion_tokens"] > 0, completion
    frames = chat.stdout.split("\n\n")
    assert not chat.returncode and frames[-2:] == ["data: [DONE]", ""] and len(frames) > 2, chat


def test_the_grpcurl_example_asks_what_there_is():
    """grpcurl itself is not run: the method that it is told exists, and its JSON is a request of that method."""
    words = shlex.split(block_of("docs/api.md", "grpcurl"))
    request = json_format.Parse(words[words.index("-d") + 1], pb.GenerateRequest())
    assert request.text and request.sampling.max_tokens
    service, method = words[-1].split("/")
    assert method in pb.DESCRIPTOR.services_by_name["Baton"].methods_by_name and service == pb.DESCRIPTOR.services_by_name["Baton"].full_name


def test_a_cluster_with_certificates_and_keys_by_hand(tmp_path):
    """docs/operations/security.md's commands, with files as they are named there; on loopback."""
    public, internal = Authority(tmp_path / "public"), Authority(tmp_path / "internal")
    files = dict(zip(("tls.crt", "tls.key"), public.issue("router", "IP:127.0.0.1")))
    files |= dict(zip(("member.crt", "member.key"), internal.issue("member", "DNS:baton.internal")))
    made = subprocess.run([BATON, "key", "new", "--id", "ci"], text=True, capture_output=True, timeout=60).stdout
    key, line = re.fullmatch(r"key  (\S+)\nline (.*)\n", made).groups()
    files |= {"ca.crt": public.cert, "cluster-ca.crt": internal.cert, "keys": tmp_path / "keys", "my.key": tmp_path / "my.key", "DIR": SHAKESPEARE}
    files["keys"].write_text(line + "\n")
    files["my.key"].write_text(key + "\n")
    block = block_of("docs/operations/security.md", "--registry-listen").replace("\\\n", " ").replace("0.0.0.0", "127.0.0.1").replace("router.example", "127.0.0.1")
    log = tmp_path / "log"
    for attempt in range(3):  # another program may take a free port first
        ports = {port: free_port() for port in ("50051", "50052", "8000")}
        *lines, curl = re.sub("|".join(ports), lambda port: ports[port.group(0)], block).splitlines()
        *started, asked = [[str(BATON.parent / program), *(str(files.get(word, word)) for word in rest)] for program, *rest in map(shlex.split, lines)]
        for name in ("ca.crt", "my.key"):
            curl = curl.replace(name, str(files[name]))
        with open(log, "wb") as output:
            processes = [subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *words], stdout=output, stderr=output) for words in started]
        try:
            wait_until("the router has a session, or a program ends", lambda: "session is up" in log.read_text(errors="replace") or any(process.poll() is not None for process in processes), 120)
            if any(process.poll() is not None for process in processes) and attempt < 2:
                continue
            done = subprocess.run(asked, text=True, capture_output=True, timeout=120)
            models = subprocess.run(["sh", "-c", f"{curl} -s --fail-with-body"], text=True, capture_output=True, timeout=60)
            break
        finally:
            for process in processes:
                process.terminate()
            codes = [process.wait(60) for process in processes]
    assert done.returncode == 0 and done.stdout.strip(), done.stderr + log.read_text(errors="replace")
    assert models.returncode == 0 and '"object":"list"' in models.stdout, models.stdout + models.stderr
    assert codes == [0, 0]
