"""Many idle and slow clients of the router's HTTP door, in the clear and over TLS: memory for each is bounded, newcomers are served, and
slow readers lose nothing. (10,000 and 1,000: tests/bench/router_crowd.py.)"""
import contextlib
import http.client
import itertools
import json
import re
import socket
import ssl
import time
import urllib.request

import pytest
from bare import Bare
from certificates import Authority
from fake_worker import FakeWorker
from harness import SHAKESPEARE, wait_until

CONTEXT, VOCABULARY = (json.loads((SHAKESPEARE / "config.json").read_text())[name] for name in ("max_position_embeddings", "vocab_size"))
SLOW, READERS = 50, 10
HELD_UP_SECONDS = 60  # a request; behind a slow reader it would wait for ever
KIB = 1 << 10
# Idle ones, and what each of the idle and the slow may take: over TLS also what OpenSSL keeps of a connection.
IN_THE_CLEAR, OVER_TLS = (500, 8 * KIB), (100, 96 * KIB)
LIVE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW_BODY = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
SLOW_HEAD = b"POST /v1/completions HTTP/1.1\r\nHos"
SLOW_HANDSHAKE = b"\x16\x03\x01"
# A slow reader's socket: little waits in the system, on this side (bytes) and on the router's, which goes by the size of segments: 64 KiB
# on loopback.
WINDOW, SEGMENT = 4 * KIB, 88
TAKEN_UP = 384 * KIB  # by the system, at most, before they read
# They read a piece a turn, to the end, and beside each turn another client asks. The system takes up more the more it has delivered: first
# few bytes, so that the router keeps some.
PIECE, LATER_PIECE, FIRST_TURNS = 256, 4 * KIB, 20
# Long however its tokens come together: the echo of its prompts, of the longest token there is.
WORDS = json.loads((SHAKESPEARE / "tokenizer.json").read_text())["model"]["vocab"]
LONGEST = max((word for word in WORDS if word.isascii() and word.isalpha()), key=len)
PROMPTS, PROMPT_TOKENS, MAX_TOKENS = 48, 1500, 10
ECHO_BYTES = PROMPTS * PROMPT_TOKENS * len(LONGEST)
LONG = json.dumps({"model": SHAKESPEARE.name, "prompt": [[WORDS[LONGEST]] * PROMPT_TOKENS] * PROMPTS, "max_tokens": MAX_TOKENS, "ignore_eos": True, "stream": True,
                   "echo": True}).encode()
LONG_ANSWER = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(LONG), LONG)


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


def connect(router, narrow=False):
    """In the clear. narrow: for a slow reader."""
    host, port = router.front.rsplit(":", 1)
    client = socket.socket()
    if narrow:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
    client.settimeout(30)
    client.connect((host, int(port)))
    return client


def enter(router, said, narrow=False):
    client = connect(router, narrow)
    if router.tls:
        client = router.tls.wrap_socket(client, server_hostname="127.0.0.1")
    client.sendall(said)
    return client


def figure(router, name):
    """A value of /metrics, whatever its labels."""
    with urllib.request.urlopen(f"http://{router.http}/metrics", timeout=10) as answer:
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", answer.read().decode(), re.M))


def unsent_bytes(router):
    return figure(router, "baton_router_http_unsent_bytes")


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


def read_in_turns(readers, before_turn):
    """Their answers, a piece of each in turn."""
    answers = [bytearray() for _ in readers]
    left = list(range(len(readers)))
    for turn in itertools.count():
        if not left:
            return answers
        before_turn(turn)
        for i in list(left):
            piece = readers[i].recv(PIECE if turn < FIRST_TURNS else LATER_PIECE)
            answers[i] += piece
            if not piece:
                left.remove(i)


@pytest.mark.parametrize("over_tls", [False, True], ids=["in_the_clear", "over_tls"])
def test_a_crowd_costs_little_and_keeps_nobody_out(scene, tmp_path, over_tls):
    router = scene(authority=Authority(tmp_path / "ca") if over_tls else None)
    count, most = OVER_TLS if over_tls else IN_THE_CLEAR
    with contextlib.ExitStack() as crowd:
        for _ in range(50):  # memory that the first requests take for good
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
        quick = [crowd.enter_context(enter(router, LONG_ANSWER)) for _ in range(READERS)]
        read_in_turns(quick, lambda turn: None)  # memory for so many requests, slowly read or not
        before = router.resident_bytes()
        readers = [crowd.enter_context(enter(router, LONG_ANSWER, narrow=True)) for _ in range(READERS)]
        seen = []  # memory follows the most that waited: on a busy machine the system has taken up more of it by the end

        def waiting():
            seen.append(unsent_bytes(router))
            return seen[-1]
        wait_until("their answers wait in the router", lambda: waiting() >= READERS * (ECHO_BYTES - TAKEN_UP), 60)
        wait_until("the rest does, too", lambda: waiting() and figure(router, "baton_router_requests") == 0, 60)
        unsent, each = max(seen), (router.resident_bytes() - before) / READERS
        print(f"{each / KIB:.0f} KiB each, of it {unsent / READERS / KIB:.0f} unsent")
        assert each < 4 * ECHO_BYTES  # some copies of its answer; how many at once depends on how busy the machine is

        def ask_beside(turn):
            begin = time.monotonic()
            assert ask(router) == 200
            assert time.monotonic() - begin < HELD_UP_SECONDS
            if turn < FIRST_TURNS:
                assert unsent_bytes(router) > 0
        answers = read_in_turns(readers, ask_beside)
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"0\r\n\r\n")
            assert b"data: [DONE]" in answer and answer.count(b'"finish_reason":"length"') == PROMPTS
            assert len(answer) > ECHO_BYTES
        assert unsent <= sum(map(len, answers))
        wait_until("nothing is kept for them", lambda: unsent_bytes(router) == 0, 20)


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
