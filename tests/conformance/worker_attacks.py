"""Attacks of a stranger at the doors of a prefill worker (its gRPC port and its KV port), and where workers register. See attack.py."""
import functools
import json
import pathlib
import re
import socket
import struct
import tempfile
import threading
import urllib.request

import attack
import kv_lane

NAME = "prefill-0"
STEP = 256 << 10  # bytes of one read
HELLOS = 50  # over one connection


def log_of(attacker, name):
    return pathlib.Path(attacker.logs, f"{name}.log").read_text(errors="replace")


@functools.cache
def kv_port(attacker):
    return re.search(r'msg="the KV lane listens" address=(\S+)', log_of(attacker, NAME))[1]


def hello_stream(channel, method, message, timeout=30):
    """(first message or None, call) of a stream whose side here stays open. Its `done` ends it."""
    import grpc
    done = threading.Event()

    def sending():
        yield message
        done.wait()

    call = method(channel)(sending(), timeout=timeout)
    call.done_sending = done
    try:
        return next(call), call
    except (grpc.RpcError, StopIteration):
        done.set()
        return None, call


def count(attacker, sent, connections=0, ended=0):
    with attacker.lock:
        attacker.sent += sent
        attacker.connections += connections
        attacker.ended += ended


@attack.attack("worker", ends=False)
def hello_without_name(attacker):
    """Hellos that name nobody, or an earlier life: a word of the worker about itself is a failure."""
    import grpc
    from fake_worker import VERSION, wp, wp_grpc
    session, peer = (lambda channel: wp_grpc.WorkerStub(channel).Session), (lambda channel: wp_grpc.PrefillPeerStub(channel).Peer)
    with grpc.insecure_channel(attacker.workers[NAME], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        count(attacker, 0, connections=1)
        for number in range(HELLOS):
            if attacker.stop.is_set():
                raise attack.Ended
            name = NAME if number % 2 else ""
            for method, message in ((session, wp.SessionDown(hello=wp.RouterHello(incarnation=number + 1, worker=name, worker_incarnation=number))),
                                    (peer, wp.PeerDown(hello=wp.PeerHello(version=VERSION, name="decode-0", incarnation=number, worker=name, worker_incarnation=number)))):
                said, call = hello_stream(channel, method, message)
                assert said is None and call.code() == grpc.StatusCode.NOT_FOUND, (said, call.code())
                count(attacker, message.ByteSize(), ended=1)


@attack.attack("KV")
def kv_port_without_secret(attacker):
    """Noise, asks before a hello, and guessed secrets."""
    kinds = (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", kv_lane.frame(kv_lane.ASK, 1, 0, 4096), b"\0" * 80,
             b"BKVL" + struct.pack("<HHQ16sQ", kv_lane.VERSION, kv_lane.HELLO, 1, b"guess" * 3 + b"!", 0))
    for opening in kinds:
        line = attacker.connect(kv_port(attacker))
        try:
            line.send(opening)
            line.wait()
        except attack.Ended:
            if attacker.stop.is_set():
                raise


@attack.attack("KV", ends=False, quick=True)
def reader_without_subscription(attacker):
    """A worker gone bad: it is welcomed and admitted, and has no subscription. It claims all of the pool, by every handle that may be open."""
    import grpc
    from fake_worker import VERSION, wp, wp_grpc
    with urllib.request.urlopen(f"http://{attacker.metrics}/status", timeout=20) as answer:
        worker = next(worker for worker in json.load(answer)["workers"] if worker["name"] == NAME)
    told = {name: int(worker[name], 16) for name in ("model_hash", "layout_hash", "numerics_id")}
    incarnation = int(re.findall(rf"worker={NAME} .*incarnation=(\w+)", log_of(attacker, "router"))[-1], 16)  # no stranger can read it
    hello = wp.PeerHello(version=VERSION, name="decode-9", incarnation=5, worker=NAME, worker_incarnation=incarnation, **told)
    with grpc.insecure_channel(attacker.workers[NAME], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        count(attacker, 0, connections=2)
        said, call = hello_stream(channel, lambda channel: wp_grpc.PrefillPeerStub(channel).Peer, wp.PeerDown(hello=hello), timeout=600)
        assert said and said.WhichOneof("message") == "welcome", call.code()
        address = kv_lane.Address.of(said.welcome.transport_address)
        lane = kv_lane.admitted(address)
        claim = 0
        try:
            for offset in range(0, address.pool_bytes - STEP + 1, STEP):
                if attacker.stop.is_set():
                    raise attack.Ended
                refused, content = lane.ask(offset, STEP, (1 + claim // 8) << 32 | claim % 8)
                assert refused and not any(content), "a byte of the pool"
                count(attacker, kv_lane.FRAME_BYTES, ended=1)
                claim += 1
        except (kv_lane.Closed, socket.timeout):
            count(attacker, 0, ended=1)
        finally:
            lane.close()
            call.done_sending.set()
            call.cancel()


@functools.cache
def strange_credentials(logs):
    """A certificate of another CA, by a stranger that even knows the cluster's CA and its name."""
    import grpc
    from certificates import Authority
    with tempfile.TemporaryDirectory() as folder:
        cert, key = Authority(pathlib.Path(folder, "ca")).issue("stranger", "DNS:baton.internal")
        ca = next(pathlib.Path(logs).parent.glob("baton/*.tls/ca.pem")).read_bytes()
        return grpc.ssl_channel_credentials(ca, key.read_bytes(), cert.read_bytes())


@attack.attack("workers", ends=False, world="keyed")
def registration_without_certificate(attacker):
    """Where clients need keys, `baton up` makes certificates for its own processes. A registration in the clear, or with another CA's, is none."""
    import grpc
    from fake_worker import VERSION, wp, wp_grpc
    registry = re.search(r"registry=(\S+) .*internal_tls=1", log_of(attacker, "router"))[1]
    request = wp.RegisterRequest(info=wp.WorkerInfo(version=VERSION, name="stranger", role=wp.ROLE_DECODE, incarnation=7, address="127.0.0.1:1", model="m"))
    alone = ("grpc.use_local_subchannel_pool", 1)
    for channel, code in ((grpc.insecure_channel(registry, options=[alone]), "UNAVAILABLE"), (grpc.insecure_channel(attacker.grpc, options=[alone]), "UNIMPLEMENTED"),
                          (grpc.secure_channel(registry, strange_credentials(attacker.logs), options=[alone, ("grpc.ssl_target_name_override", "baton.internal")]), "UNAVAILABLE")):
        count(attacker, 0, connections=1)
        with channel:
            try:
                wp_grpc.RegistryStub(channel).RegisterWorker(request, timeout=20)
                raise AssertionError("a stranger has registered")
            except grpc.RpcError as error:
                assert error.code().name == code, error.code()
        count(attacker, request.ByteSize(), ended=1)
