"""At the limits of the workers: what doesn't fit waits its turn, and what can't start says so and ends."""
import concurrent.futures
import queue
import re
import socket
import subprocess
import threading
import urllib.request

import grpc
import kv_lane
import pytest
from bare import Bare
from client import Client, pb, reason_of, request
from fake_worker import VERSION, wp, wp_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness import BUILD, GOLDEN, wait_until

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
WORKERS, WATCHES, PEERS = 256, 1024, 256


def test_more_requests_than_the_workers_hold_wait_their_turn(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama", settings={"max-sequences": 3})
    client = connect(cluster)
    asked = dict(temperature=1, seed=5, max_tokens=12, ignore_eos=True)
    prompts = [[1, 2, 3, 4 + i] for i in range(32)]
    answers = client.generate_all([(prompt, asked) for prompt in prompts])
    assert all(len(answer.ids) == 12 for answer in answers)
    assert all(answer.timing.prefills == 1 for answer in answers)
    assert cluster.total("router", "baton_router_retries_total") == 0


def test_requests_wait_for_blocks_and_what_never_fits_is_told_the_numbers(start_cluster, connect):
    """Pools of 512 tokens: of eight requests of 252 to 264 tokens one or two fit at a time."""
    cluster = start_cluster(model=GOLDEN / "llama", settings={"kv-tokens": 512})
    client = connect(cluster)
    asked = dict(temperature=1, seed=5, max_tokens=52, ignore_eos=True)
    answers = client.generate_all([(list(range(1, 201 + i)), asked) for i in range(8)])
    assert [len(answer.ids) for answer in answers] == [52] * 8
    assert cluster.total("router", "baton_router_requests_total") == 8
    with pytest.raises(grpc.RpcError) as caught:
        client.generate([1] * 500, max_tokens=13)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT and reason_of(caught.value) == "context_length_exceeded"
    assert caught.value.details() == "the prompt has 500 tokens and max_tokens is 13, together 513, but one request may have 512 on a decode worker"
    assert len(client.generate([1] * 500, max_tokens=12, ignore_eos=True).ids) == 12
    for name, blocks in cluster.all_blocks().items():
        assert blocks["free"] == 16, (name, blocks)


@pytest.mark.parametrize("program", ["baton-prefill", "baton-decode"])
def test_a_worker_that_cannot_listen_ends(program):
    """It is up except for the last steps: everything that it has started must go down again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = subprocess.run([BUILD / "bin" / program, "--name", "w", "--router", "127.0.0.1:1", "--model", GOLDEN / "llama",
                               "--listen", "127.0.0.1:%d" % taken.getsockname()[1]], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Address already in use" in done.stderr, done.stderr


@pytest.fixture(scope="module")
def router():
    started = Bare("baton-router", "--max-text", "1KiB", stderr=subprocess.DEVNULL)
    yield started
    assert started.stop() == 0


def test_one_worker_more_than_there_is_room_for(router):
    with grpc.insecure_channel(router.grpc) as channel:
        registry = wp_grpc.RegistryStub(channel)
        info = wp.WorkerInfo(version=VERSION, role=wp.ROLE_DECODE, address="127.0.0.1:1", model="tiny-shakespeare", block_tokens=32, block_count=1, context=1, vocab=2048)
        for i in range(WORKERS):
            info.name, info.incarnation = f"w{i}", i + 1
            registry.RegisterWorker(wp.RegisterRequest(info=info), timeout=20)
        info.name, info.incarnation = "surplus", 1000
        with pytest.raises(grpc.RpcError) as caught:
            registry.RegisterWorker(wp.RegisterRequest(info=info), timeout=20)
        assert (caught.value.code(), reason_of(caught.value)) == (EXHAUSTED, "too_many_workers")
        info.name, info.incarnation = "w7", 8
        registry.RegisterWorker(wp.RegisterRequest(info=info), timeout=20)  # admitted clients stay


def test_one_watch_more_than_there_is_room_for(router):
    channel = grpc.insecure_channel(router.grpc)
    watches = [health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=120) for _ in range(WATCHES)]
    for watch in watches:
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        next(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60))
    assert (caught.value.code(), reason_of(caught.value)) == (EXHAUSTED, "too_many_watches")
    channel.close()


def test_a_text_limit_of_the_settings(router):
    client = Client(router.grpc)
    assert client.stub.Tokenize(pb.TokenizeRequest(text="a" * 1024), timeout=20).ids
    with pytest.raises(grpc.RpcError) as caught:
        list(client.stub.Generate(request("a" * 1025), timeout=20))
    assert reason_of(caught.value) == "text_too_long" and caught.value.details() == "text may have at most 1024 bytes, got 1025"
    client.close()


def test_an_answer_that_is_too_large_is_told_with_the_sizes():
    started = Bare("baton-router", "--client-buffer", "4KiB", stderr=subprocess.DEVNULL)
    client = Client(started.grpc)
    text = "\u00fc" * 4000  # no token has two of them
    size = client.stub.Tokenize(pb.TokenizeRequest(text=text[:400]), timeout=20).ByteSize()
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Tokenize(pb.TokenizeRequest(text=text), timeout=20)
    assert size > 400 and (caught.value.code(), reason_of(caught.value)) == (EXHAUSTED, "answer_too_large")
    told = re.fullmatch(r"the answer would have (\d+) bytes, and 4096 may wait to be sent \(client-buffer\): ask for less at once", caught.value.details())
    assert told and int(told[1]) > 4096, caught.value.details()
    client.close()
    assert started.stop() == 0


def metric(program, name):
    with urllib.request.urlopen(f"http://{program.http}/metrics", timeout=10) as answer:
        return float(re.search(rf"^{name} (\S+)$", answer.read().decode(), re.M).group(1))


def and_wait(done, *messages):
    """A client sends this and then doesn't half-close."""
    yield from messages
    done.wait()


def say_nothing(channel, paths):
    """Opens a call of each of these methods, sends nothing, and returns [(status, reason)]."""
    done = threading.Event()
    calls = [channel.stream_stream(path)(and_wait(done), timeout=60) for path in paths]
    try:
        return [(call.code(), reason_of(call)) for call in calls]  # waits for its end
    finally:
        done.set()


LATE = (grpc.StatusCode.DEADLINE_EXCEEDED, "late_message")


class Registry(wp_grpc.RegistryServicer):
    """A router that only hears registrations."""

    def __init__(self):
        self.seen = queue.SimpleQueue()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        wp_grpc.add_RegistryServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def RegisterWorker(self, request, context):
        self.seen.put(request.info)
        return wp.RegisterResponse(router_incarnation=7)


def what_it_says(call):
    """(messages, status, reason) of a call that ends."""
    messages = []
    with pytest.raises(grpc.RpcError):
        for message in call:
            messages.append(message)
    return messages, call.code(), reason_of(call)


def test_a_stream_that_says_nothing():
    """Nor may it say something else first, nor mean another worker: that one learns nothing. One that has said hello is left alone."""
    registry = Registry()
    worker = Bare("baton-prefill", "--name", "prefill-0", "--router", registry.address, "--hello-timeout", "300ms", model=GOLDEN / "llama", stderr=subprocess.DEVNULL)
    info = registry.seen.get(timeout=60)
    registry.server.stop(0)
    with grpc.insecure_channel(worker.grpc) as channel:
        hello = wp.RouterHello(incarnation=7, worker="prefill-0", worker_incarnation=info.incarnation)  # as a router must mean it
        done = threading.Event()
        nothing = ([], grpc.StatusCode.NOT_FOUND, "another_worker")
        for strange in (wp.RouterHello(), wp.RouterHello(worker="prefill-0"), wp.RouterHello(worker="prefill-0", worker_incarnation=info.incarnation + 1),
                        wp.RouterHello(worker="prefill-1", worker_incarnation=info.incarnation)):
            call = wp_grpc.WorkerStub(channel).Session(and_wait(done, wp.SessionDown(hello=strange)), timeout=60)
            assert what_it_says(call) == nothing, strange
        for named, told in (({}, nothing), (dict(worker="prefill-0"), nothing), (dict(worker="prefill-0", worker_incarnation=1), nothing),
                            (dict(worker="prefill-0", worker_incarnation=info.incarnation), ([], grpc.StatusCode.FAILED_PRECONDITION, "layout_mismatch"))):
            peer = wp.PeerHello(version=info.version, name="decode-9", incarnation=5, model_hash=1, layout_hash=2, numerics_id=3, **named)
            call = wp_grpc.PrefillPeerStub(channel).Peer(and_wait(done, wp.PeerDown(hello=peer)), timeout=60)
            assert what_it_says(call) == told, named
        ours = queue.SimpleQueue()
        session = wp_grpc.WorkerStub(channel).Session(iter(ours.get, None), timeout=60)
        ours.put(wp.SessionDown(hello=hello))
        assert next(session).hello.info.name == "prefill-0"
        assert say_nothing(channel, ["/baton.worker.v1.Worker/Session", "/baton.worker.v1.PrefillPeer/Peer"]) == [LATE, LATE]
        assert metric(worker, "baton_late_hellos_total") == 2
        early = wp_grpc.WorkerStub(channel).Session(and_wait(done, wp.SessionDown(release=wp.Release(request=1, attempt=1))), timeout=60)
        assert (early.code(), reason_of(early)) == (grpc.StatusCode.FAILED_PRECONDITION, "no_hello")
        ours.put(wp.SessionDown(release=wp.Release(request=1, attempt=1)))
        assert next(session).WhichOneof("event") == "load" and session.is_active() and metric(worker, "baton_session_up") == 1
        session.cancel()
        ours.put(None)
        done.set()
    assert worker.stop() == 0


def test_calls_that_say_nothing():
    router = Bare("baton-router", "--message-timeout", "300ms", stderr=subprocess.DEVNULL)
    with grpc.insecure_channel(router.grpc) as channel:
        methods = ["/baton.worker.v1.Registry/RegisterWorker", "/baton.v1.Baton/Generate", "/baton.v1.Baton/Tokenize"]
        assert say_nothing(channel, methods) == [LATE] * 3
        assert metric(router, "baton_router_late_messages_total") == 3
    assert router.stop() == 0


def test_one_reader_more_than_a_prefill_worker_serves():
    """The one that has asked nothing for longest, and reads no handle, makes room: it dials again when it needs to."""
    registry = Registry()
    worker = Bare("baton-prefill", "--name", "prefill-0", "--router", registry.address, model=GOLDEN / "llama", stderr=subprocess.DEVNULL)
    info = registry.seen.get(timeout=60)
    registry.server.stop(0)
    done = threading.Event()
    with grpc.insecure_channel(worker.grpc) as channel:
        strangers = [wp_grpc.PrefillPeerStub(channel).Peer(and_wait(done), timeout=120) for _ in range(10)]  # they say nothing, and take no reader's place
        hello = wp.PeerHello(version=VERSION, name="reader", incarnation=1, model_hash=info.model_hash, layout_hash=info.layout_hash, numerics_id=info.numerics_id,
                             worker=info.name, worker_incarnation=info.incarnation)
        peers, welcomes = [], []
        for _ in range(PEERS):  # one after the other: the first one has asked nothing for longest
            peers.append(wp_grpc.PrefillPeerStub(channel).Peer(and_wait(done, wp.PeerDown(hello=hello)), timeout=120))
            welcomes.append(next(peers[-1]))
        assert all(welcome.WhichOneof("message") == "welcome" for welcome in welcomes)
        # A welcome opens the KV port, and no byte of the pool: that takes a subscription.
        lane = kv_lane.admitted(kv_lane.Address.of(welcomes[0].welcome.transport_address))
        for offset, grant in ((0, 0), (0, 1 << 32), (4096, 5 << 32 | 3)):
            assert lane.ask(offset, 1000, grant) == (True, bytes(1000))
        wait_until("they are counted", lambda: metric(worker, 'baton_kv_connections_refused_total{reason="grant"}') == 3, 20)
        lane.close()
        surplus = wp_grpc.PrefillPeerStub(channel).Peer(and_wait(done, wp.PeerDown(hello=hello)), timeout=60)
        assert next(surplus).WhichOneof("message") == "welcome"
        assert (peers[0].code(), reason_of(peers[0])) == (grpc.StatusCode.UNAVAILABLE, "made_room")
        assert all(peer.is_active() for peer in peers[1:]) and len(strangers) == 10
        done.set()
    assert worker.stop() == 0
