"""Clients that don't read: their requests end with a clear status, the router's memory stays bounded, and others keep their speed."""
import re
import threading
import time
import urllib.request

import grpc
import pytest
from bare import Bare
from client import Client, pb, pb_grpc, reason_of, request
from fake_worker import FakeWorker, model_with_context
from harness import wait_until

CLIENTS = 200
CONTEXT = 65536
VOCABULARY = 384
MIB = 1 << 20
# A small window, so that what isn't read stays in the router.
OPTIONS = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture
def scene(tmp_path):
    """A router with a model of a long context, and a worker that is never the bottleneck."""
    folder = model_with_context(tmp_path / "model", CONTEXT)
    started = []

    def start(*flags, stderr=None):
        # ASan keeps what was freed for a while; little of it, so that resident memory tells something.
        router = Bare("baton-router", *flags, model=folder, stderr=stderr, environment={"ASAN_OPTIONS": "quarantine_size_mb=4"})
        started.append(router)
        started.append(FakeWorker(router.grpc, "model", CONTEXT, VOCABULARY))
        return router

    yield start
    for thing in reversed(started):
        assert not thing.stop()


def counted(router, status):
    with urllib.request.urlopen(f"http://{router.http}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return sum(int(count) for count in re.findall(rf'^baton_router_requests_total{{[^}}]*status="{status}"}} (\d+)$', text, re.M))


def seconds_of(client, tokens):
    start = time.monotonic()
    assert len(client.generate([1, 2, 3], max_tokens=tokens, ignore_eos=True).ids) == tokens
    return time.monotonic() - start


class Watch(threading.Thread):
    """The highest resident memory."""

    def __init__(self, router):
        super().__init__(daemon=True)
        self.router, self.highest, self.done = router, 0, threading.Event()
        self.start()

    def run(self):
        while not self.done.wait(0.01):
            self.highest = max(self.highest, self.router.resident_bytes())


def test_two_hundred_clients_that_never_read(scene):
    # Whatever the tokens come in, one message each or thousands, an answer is more than that and the client's window hold.
    router = scene("--client-buffer", "48KiB", "--client-buffers", "4MiB")
    good = Client(router.grpc)
    quiet = min(seconds_of(good, 20) for _ in range(3))
    before = router.resident_bytes()
    watch = Watch(router)
    channels = [grpc.insecure_channel(router.grpc, options=OPTIONS) for _ in range(4)]
    calls = [pb_grpc.BatonStub(channels[i % 4]).Generate(request([1, 2, 3], max_tokens=CONTEXT - 10, ignore_eos=True), timeout=120)
             for i in range(CLIENTS)]
    busy, pending, deadline = [], 0, time.monotonic() + 90
    while counted(router, "slow_reader") < CLIENTS:
        assert time.monotonic() < deadline, f"{counted(router, 'slow_reader')} of {CLIENTS} were ended in 90 s"
        busy.append(seconds_of(good, 20))
        pending += counted(router, "slow_reader") < CLIENTS
    watch.done.set()
    grown = watch.highest - before
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            for _ in call:
                pass
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert reason_of(caught.value) == "slow_reader" or caught.value.details().startswith("slow_reader: ")
    # 48 KiB each is what they are bounded to; the rest is what ASan, the allocator and 200 calls hold (up to 72 MiB were seen). Unread to their
    # end, these answers are 13 million messages.
    print(f"resident +{grown / MIB:.1f} MiB; a good client: {quiet:.3f} s alone, {min(busy):.3f} .. {max(busy):.3f} s in company of {CLIENTS}, {pending} answers")
    # Whole ones that came while others were still held up. A starving request gets the first of them when the last of the others has gone.
    assert pending >= 3
    assert grown < CLIENTS * 48 * 1024 + 128 * MIB
    assert counted(router, "ok") == 3 + len(busy)
    for channel in channels:
        channel.close()
    good.close()


def test_an_answer_that_is_complete_but_not_read(scene, tmp_path):
    """Its request is over, was counted, and has no place any more; its call is broken off."""
    log = tmp_path / "log"
    router = scene("--max-requests", "1", "--client-linger", "1s", "--log-level", "debug", stderr=log.open("w"))
    channel = grpc.insecure_channel(router.grpc, options=OPTIONS)
    good = Client(router.grpc)
    call = pb_grpc.BatonStub(channel).Generate(request([1, 2, 3], max_tokens=4000, ignore_eos=True))  # more than the window, also in one message
    wait_until("the request ended", lambda: counted(router, "ok") == 1, 20)
    for _ in range(3):
        good.generate([1, 2, 3], max_tokens=1, ignore_eos=True)
    wait_until("it is broken off", lambda: "not read: broken off" in log.read_text(), 20)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "slow_reader" in caught.value.details()
    channel.close(), good.close()
