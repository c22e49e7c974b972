"""Commands that can't write their standard output report it: an answer that is missing must not look like one that is empty."""
import http.server
import subprocess
import threading

import pytest
from harness import BATON, GOLDEN, SHAKESPEARE

FULL, CLOSED = "No space left on device", "Bad file descriptor"


def run(output, *arguments, environment=None):
    """Exit code and standard error of a command with the standard output `output`: a file, or ">&-" for none."""
    command = [BATON, *map(str, arguments)]
    if output == ">&-":
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], env=environment, stderr=subprocess.PIPE, text=True, timeout=60)
    else:
        with open(output, "w") as file:
            done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def router_http():
    """The address of what answers /status as a router does."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = b'{"status":"ok"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("output,why", [("/dev/full", FULL), (">&-", CLOSED)])
@pytest.mark.parametrize("arguments", [
    ["--version"], ["--help"], ["generate", "--help"], ["tokenize", "--tokenizer", SHAKESPEARE / "tokenizer.json", "Now"],
    ["bench", "engine", "--model", GOLDEN / "llama", "--prefill", 1, "--decode", 1, "--rounds", 1, "--no-pin"]], ids=lambda a: "-".join(map(str, a[:2])))
def test_what_cannot_be_printed_is_told(output, why, arguments):
    code, error = run(output, *arguments)
    assert code == 1 and error.endswith(f": standard output: {why}\n"), error


@pytest.mark.parametrize("output,why", [("/dev/full", FULL), (">&-", CLOSED)])
def test_a_status_that_cannot_be_printed_is_told(output, why, router_http):
    assert run(output, "status", "--json", "--http", router_http) == (1, f"baton: standard output: {why}\n")


@pytest.mark.parametrize("output,why", [("/dev/full", FULL), (">&-", CLOSED)])
@pytest.mark.parametrize("flags", [[], ["--json"], ["--logit-bias", "0:100"]], ids=["text", "json", "no text"])
def test_an_answer_that_cannot_be_printed_is_told(shared_cluster, output, why, flags):
    cluster = shared_cluster()
    code, error = run(output, "generate", "--max-tokens", 8, *flags, "ROMEO:", environment=cluster.environment)
    assert code == 1 and f": standard output: {why}\n" in error, error
