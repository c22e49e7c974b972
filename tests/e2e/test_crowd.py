"""Many idle and slow clients of the router's HTTP door: memory for each is bounded, and whoever comes is served. (10,000 and 1,000: tests/bench/router_crowd.py.)"""
import contextlib
import http.client
import json
import socket

import pytest
from bare import Bare
from fake_worker import FakeWorker, model_with_context
from harness import wait_until

CONTEXT, VOCABULARY = 2048, 384
IDLE, SLOW = 500, 50
KIB = 1 << 10
LIVE = b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n"
SLOW_BODY = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{"
SLOW_HEAD = b"POST /v1/completions HTTP/1.1\r\nHos"


@pytest.fixture
def scene(tmp_path):
    folder = model_with_context(tmp_path / "model", CONTEXT)
    started = []

    def start(*flags):
        # ASan keeps what was freed for a while; little of it, so that resident memory tells something.
        router = Bare("baton-router", "--http-listen", "127.0.0.1:0", *flags, model=folder,
                      environment={"ASAN_OPTIONS": "quarantine_size_mb=1:thread_local_quarantine_size_kb=16"})
        started.append(router)
        started.append(FakeWorker(router.grpc, "model", CONTEXT, VOCABULARY))
        return router

    yield start
    for thing in reversed(started):
        assert not thing.stop()


def connect(router):
    host, port = router.front.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


def ask(router):
    """One completion, on a connection of its own: its status."""
    door = http.client.HTTPConnection(router.front, timeout=30)
    try:
        door.request("POST", "/v1/completions", json.dumps({"model": "model", "prompt": [1, 2, 3], "max_tokens": 4}),
                     {"Content-Type": "application/json"})
        answer = door.getresponse()
        answer.read()
        return answer.status
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return None  # one more than those that are told
    finally:
        door.close()


def idle(router):
    client = connect(router)
    client.sendall(LIVE)
    assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
    return client


def slow(router, what):
    client = connect(router)
    client.sendall(what)
    return client


def test_a_crowd_costs_little_and_keeps_nobody_out(scene):
    router = scene()
    with contextlib.ExitStack() as crowd:
        for _ in range(50):  # what the first requests take for good
            assert ask(router) == 200
        for _ in range(50):
            idle(router).close()
        before = router.resident_bytes()
        for _ in range(IDLE):
            crowd.enter_context(idle(router))
        for i in range(SLOW):
            crowd.enter_context(slow(router, SLOW_HEAD if i % 2 else SLOW_BODY))
        assert ask(router) == 200
        each = (router.resident_bytes() - before) / (IDLE + SLOW)
        print(f"{each / KIB:.1f} KiB each")
        assert each < 8 * KIB
        for _ in range(20):
            assert ask(router) == 200


def test_who_is_idle_makes_room_for_who_asks(scene):
    router = scene("--max-connections", "40")
    with contextlib.ExitStack() as crowd:
        clients = [crowd.enter_context(idle(router)) for _ in range(40)]
        asked = slow(router, SLOW_BODY)  # told that all are taken, or in the place of an idle one
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
