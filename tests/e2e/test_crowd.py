"""Many idle and slow clients of the router's HTTP door, in the clear and over TLS: memory for each is bounded, whoever comes is served, and who reads slowly loses
nothing. (10,000 and 1,000: tests/bench/router_crowd.py.)"""
import contextlib
import http.client
import json
import socket
import ssl

import pytest
from bare import Bare
from certificates import Authority
from fake_worker import FakeWorker
from harness import SHAKESPEARE, wait_until

CONTEXT, VOCABULARY = (json.loads((SHAKESPEARE / "config.json").read_text())[name] for name in ("max_position_embeddings", "vocab_size"))
SLOW, READERS = 50, 10
KIB = 1 << 10
# Idle ones, and what each of the idle and the slow may take: over TLS also what OpenSSL keeps of a connection.
IN_THE_CLEAR, OVER_TLS = (500, 8 * KIB), (100, 96 * KIB)
LIVE = b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n"
SLOW_BODY = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
SLOW_HEAD = b"POST /v1/completions HTTP/1.1\r\nHos"
SLOW_HANDSHAKE = b"\x16\x03\x01"
LONG = json.dumps({"model": SHAKESPEARE.name, "prompt": [1, 2, 3], "max_tokens": 2000, "stream": True}).encode()
LONG_ANSWER = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(LONG), LONG)


@pytest.fixture
def scene():
    started = []

    def start(*flags, authority=None):
        if authority:
            cert, key = authority.issue("router", "IP:127.0.0.1")
            flags = (*flags, "--tls-cert", cert, "--tls-key", key, "--registry-listen", "127.0.0.1:0")
        # ASan keeps what was freed for a while; little of it, so that resident memory tells something.
        router = Bare("baton-router", "--http-listen", "127.0.0.1:0", *flags, environment={"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=16"})
        started.append(router)
        started.append(FakeWorker(router.registry, SHAKESPEARE.name, CONTEXT, VOCABULARY))
        router.tls = ssl.create_default_context(cafile=str(authority.cert)) if authority else None
        return router

    yield start
    for thing in reversed(started):
        assert not thing.stop()


def connect(router, window=None):
    """In the clear. window: bytes that may wait unread on this side."""
    host, port = router.front.rsplit(":", 1)
    client = socket.socket()
    if window:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    client.settimeout(30)
    client.connect((host, int(port)))
    return client


def enter(router, said, window=None):
    client = connect(router, window)
    if router.tls:
        client = router.tls.wrap_socket(client, server_hostname="127.0.0.1")
    client.sendall(said)
    return client


def ask(router):
    """One completion, on a connection of its own: its status."""
    body = json.dumps({"model": SHAKESPEARE.name, "prompt": [1, 2, 3], "max_tokens": 4})
    door = http.client.HTTPSConnection(router.front, timeout=30, context=router.tls) if router.tls else http.client.HTTPConnection(router.front, timeout=30)
    try:
        door.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = door.getresponse()
        answer.read()
        return answer.status
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return None  # one more than those that are told
    finally:
        door.close()


def idle(router):
    client = enter(router, LIVE)
    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    return client


def slow(router, i):
    if router.tls and i % 3 == 2:
        client = connect(router)
        client.sendall(SLOW_HANDSHAKE)
        return client
    return enter(router, SLOW_HEAD if i % 2 else SLOW_BODY)


def read_to_the_end(reader):
    answer = b""
    while piece := reader.recv(1 << 16):
        answer += piece
    return answer


@pytest.mark.parametrize("over_tls", [False, True], ids=["in_the_clear", "over_tls"])
def test_a_crowd_costs_little_and_keeps_nobody_out(scene, tmp_path, over_tls):
    router = scene(authority=Authority(tmp_path / "ca") if over_tls else None)
    count, most = OVER_TLS if over_tls else IN_THE_CLEAR
    with contextlib.ExitStack() as crowd:
        for _ in range(50):  # what the first requests take for good
            assert ask(router) == 200
        for _ in range(50):
            idle(router).close()
        before = router.resident_bytes()
        for _ in range(count):
            crowd.enter_context(idle(router))
        for i in range(SLOW):
            crowd.enter_context(slow(router, i))
        assert ask(router) == 200
        each = (router.resident_bytes() - before) / (count + SLOW)
        print(f"{each / KIB:.1f} KiB each")
        assert each < most
        for _ in range(20):
            assert ask(router) == 200


@pytest.mark.parametrize("over_tls", [False, True], ids=["in_the_clear", "over_tls"])
def test_who_reads_slowly_gets_everything_and_holds_up_nobody(scene, tmp_path, over_tls):
    router = scene(authority=Authority(tmp_path / "ca") if over_tls else None)
    with contextlib.ExitStack() as crowd:
        for _ in range(50):
            assert ask(router) == 200
        before = router.resident_bytes()
        readers = [crowd.enter_context(enter(router, LONG_ANSWER, window=2 * KIB)) for _ in range(READERS)]
        answers = [reader.recv(16) for reader in readers]  # they are under way
        for i in range(20):
            assert ask(router) == 200
            answers[i % READERS] += readers[i % READERS].recv(512)
        each = (router.resident_bytes() - before) / READERS
        print(f"{each / KIB:.0f} KiB each")
        assert each < 1024 * KIB  # an answer is 400 at most
        for answer, reader in zip(answers, readers):
            answer += read_to_the_end(reader)
            assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"0\r\n\r\n")
            assert b"data: [DONE]" in answer and answer.count(b'"finish_reason":"length"') == 1
            assert len(answer) > 5 * KIB  # more than waits on this side, whatever tokens come together


def test_who_is_idle_makes_room_for_who_asks(scene):
    router = scene("--max-connections", "40")
    with contextlib.ExitStack() as crowd:
        clients = [crowd.enter_context(idle(router)) for _ in range(40)]
        asked = enter(router, SLOW_BODY)  # told that all are taken, or in the place of an idle one
        crowd.enter_context(asked)
        wait_until("a place was made", lambda: ask(router) == 200, 20)
        for _ in range(60):  # one after the other, each in the place of an idle one or of the one before
            assert ask(router) in (200, 503)
        wait_until("and again", lambda: ask(router) == 200, 20)

        def ended(client):
            client.setblocking(False)
            try:
                return client.recv(1) == b""
            except BlockingIOError:
                return False
        gone = sum(ended(client) for client in clients)
        assert 0 < gone < len(clients)
