"""The commands and the programs that the pages show, run as they stand there: other ports, another folder, nothing else is changed."""
import json
import re
import shlex
import socket
import subprocess
import sys

import pytest
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
    """docs/operations.md's commands, started one by one."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        self.ports = {"50051": free_port(), "50080": free_port(), "8000": free_port()}
        lines = block_of("docs/operations.md", "baton-router").splitlines()
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


def test_the_python_example(by_hand, tmp_path):
    (tmp_path / "proto").symlink_to(TOP / "proto")
    _, protoc = block_of("docs/api.md", "grpc_tools.protoc").splitlines()
    subprocess.run([sys.executable, *shlex.split(protoc)[1:]], cwd=tmp_path, check=True, timeout=60)
    example = by_hand.here(block_of("docs/api.md", "import grpc", "python"))
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0 and len(done.stdout) > 10, done.stderr


@pytest.mark.parametrize("word", ["openai.OpenAI(", "ChatOpenAI("])
def test_the_examples_of_openais_interface(by_hand, word):
    example = by_hand.here(block_of("docs/api.md", word, "python"))
    done = subprocess.run([sys.executable, "-c", example], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0 and len(done.stdout) > 10, done.stderr


def test_the_curl_examples(by_hand):
    models, completion, chat = [subprocess.run(["curl", "-sS", "--fail-with-body", *shlex.split(by_hand.here(line))[1:]], text=True, capture_output=True, timeout=60)
                                for line in block_of("README.md", "curl ").splitlines()]
    assert not models.returncode and json.loads(models.stdout)["data"][0]["object"] == "model", models
    assert not completion.returncode and json.loads(completion.stdout)["choices"][0]["text"], completion
    frames = chat.stdout.split("\n\n")
    assert not chat.returncode and frames[-2:] == ["data: [DONE]", ""] and len(frames) > 5, chat


def test_the_grpcurl_example_asks_what_there_is():
    """grpcurl itself is not run: the method that it is told exists, and its JSON is a request of that method."""
    words = shlex.split(block_of("docs/api.md", "grpcurl"))
    request = json_format.Parse(words[words.index("-d") + 1], pb.GenerateRequest())
    assert request.text and request.sampling.max_tokens
    service, method = words[-1].split("/")
    assert method in pb.DESCRIPTOR.services_by_name["Baton"].methods_by_name and service == pb.DESCRIPTOR.services_by_name["Baton"].full_name
