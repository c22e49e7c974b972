"""The frame gate: honest clients, whatever they do, and the addresses and certificates behind it. Floods: tests/conformance/attacks."""
import os
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.request

import grpc
import pytest
from bare import Bare
from certificates import Authority
from client import Client, pb, reason_of, request
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness import LONG, wait_until
from wire import (ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, Wire, call, call_headers, frame, header, message)

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
TOKENIZE, MODELS, GENERATE = "/baton.v1.Baton/Tokenize", "/baton.v1.Baton/ListModels", "/baton.v1.Baton/Generate"
MIB = 1 << 20
STREAMS = 256


def ended(router):
    """{reason: count} of the connections that the router ended."""
    with urllib.request.urlopen(f"http://{router.http}/metrics", timeout=10) as answer:
        found = re.findall(r'^baton_router_grpc_connections_ended_total\{reason="(\w+)"\} (\d+)$', answer.read().decode(), re.M)
    return {reason: int(count) for reason, count in found if int(count)}


@pytest.fixture(scope="module")
def router():
    started = Bare("baton-router", "--worker-wait", "10m", stderr=subprocess.DEVNULL)
    yield started
    assert ended(started).get("resets", 0) == 1, "of all these tests one alone floods"
    assert started.stop() == 0


@pytest.fixture
def client(router):
    opened = Client(router.grpc)
    yield opened
    opened.close()


def test_a_prompt_of_4_mib(client):
    """All of it comes through: it is read, and too long for the model."""
    with pytest.raises(grpc.RpcError) as caught:
        list(client.stub.Generate(request("to be or " * (4 * MIB // 9)), timeout=60))
    assert reason_of(caught.value) == "context_length_exceeded", caught.value
    answer = client.stub.Tokenize(pb.TokenizeRequest(text="to be or " * (MIB // 9)), timeout=60)
    assert len(answer.ids) > MIB // 9


def test_many_open_streams():
    """256 of one connection, for a minute with --long: each is told when the router stops."""
    router = Bare("baton-router", stderr=subprocess.DEVNULL)
    client = Client(router.grpc)
    stub = health_pb2_grpc.HealthStub(client.channel)
    watches = [stub.Watch(health_pb2.HealthCheckRequest(service="baton.v1.Baton"), timeout=300) for _ in range(STREAMS)]
    assert all(next(watch).status == SERVING for watch in watches)
    if LONG:
        time.sleep(61)  # no event: the silence itself is what must be survived
    for _ in range(20):
        assert client.stub.ListModels(pb.ListModelsRequest(), timeout=20).models
    assert all(watch.is_active() for watch in watches) and ended(router) == {}
    os.kill(router.pid, signal.SIGTERM)
    assert all(next(watch).status == NOT_SERVING for watch in watches)
    client.close()
    assert router.process.wait(60) == 0


def answer_of(wire, stream):
    """Reads to the end of a stream."""
    for kind, flags, number, _ in wire.frames():
        if kind == HEADERS and flags & END_STREAM and number == stream:
            return
        if kind == SETTINGS and not flags & ACK:
            wire.send(frame(SETTINGS, ACK, 0, b""))
    raise AssertionError("the connection has ended")


def pair(wire, stream):
    """A call that is taken back at once, and one that is answered."""
    wire.send(frame(HEADERS, END_HEADERS, stream, call_headers(GENERATE)) + frame(DATA, 0, stream, message(request("a").SerializeToString())) +
              frame(RST_STREAM, 0, stream, b"\0\0\0\x08") +
              frame(HEADERS, END_HEADERS, stream + 2, call_headers(MODELS)) + frame(DATA, END_STREAM, stream + 2, message(b"")))
    answer_of(wire, stream + 2)


def test_every_second_call_is_cancelled(router, client):
    """Below gRPC, so that all of them are on the wire; and by grpcio."""
    wire = Wire(router.grpc)
    for i in range(300):
        pair(wire, 4 * i + 1)
    wire.close()
    for i in range(150):
        cancelled = client.stub.Generate(request("a"), timeout=60)
        cancelled.cancel()
        assert client.stub.ListModels(pb.ListModelsRequest(), timeout=20).models
    assert not ended(router).get("resets")


def test_a_rapid_reset_is_not_that(router, client):
    """The same without the answered calls ends, with a GOAWAY that says why; another client goes on."""
    wire = Wire(router.grpc)
    headers = call_headers(GENERATE)
    for stream in range(1, 203, 2):
        wire.send(frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
    assert wire.outcome() == "GOAWAY ENHANCE_YOUR_CALM too many calls were taken back at once"
    wire.close()
    assert client.stub.ListModels(pb.ListModelsRequest(), timeout=20).models
    wait_until("it is counted", lambda: ended(router).get("resets") == 1, 20)


def test_an_idle_connection_ends_between_calls():
    """A client notices nothing: its next call dials again."""
    router = Bare("baton-router", "--client-idle", "300ms", stderr=subprocess.DEVNULL)
    client = Client(router.grpc)
    for count in (1, 2):
        assert client.stub.ListModels(pb.ListModelsRequest(), timeout=20).models
        wait_until("its connection ends", lambda: ended(router) == {"idle": count}, 20)
    client.close()
    assert router.stop() == 0


def test_a_share_for_each_address_over_grpc():
    """127.0.0.2 holds its two connections, and is closed at once with a third; 127.0.0.1 goes on."""
    router = Bare("baton-router", "--max-connections-per-address", "2", "--proxy-addresses", "192.0.2.1", stderr=subprocess.DEVNULL)
    host, port = router.grpc.rsplit(":", 1)
    crowd = [socket.create_connection((host, int(port)), timeout=20, source_address=("127.0.0.2", 0)) for _ in range(3)]
    assert crowd[2].recv(1) == b""
    client = Client(router.grpc)
    assert client.stub.ListModels(pb.ListModelsRequest(), timeout=20).models and ended(router) == {"address_share": 1}
    for connection in crowd:
        connection.close()
    client.close()
    assert router.stop() == 0


def test_workers_are_no_clients():
    """Where workers register, an address has no share of the connections and calls, and an idle one stays."""
    router = Bare("baton-router", "--registry-listen", "127.0.0.1:0", "--max-connections-per-address", "1", "--client-idle", "300ms",
                  "--proxy-addresses", "192.0.2.1", "--max-workers", "64", stderr=subprocess.DEVNULL)
    host, port = router.registry.rsplit(":", 1)
    crowd = [wire_over(socket.create_connection((host, int(port)), timeout=20)) for _ in range(3)]
    for wire in crowd:
        assert wire.socket.recv(1), "it is let in"
    channel = grpc.insecure_channel(router.registry)
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/baton.v1.Baton/Tokenize")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    many, last = Wire(router.registry), 1201  # of 1,088 calls more than half are open, without their message
    headers = call_headers("/baton.worker.v1.Registry/RegisterWorker")
    many.send(b"".join(frame(HEADERS, END_HEADERS, stream, headers) for stream in range(1, last, 2)))
    many.send(frame(HEADERS, END_HEADERS, last, call_headers(TOKENIZE)) + frame(DATA, END_STREAM, last, message(b"")))
    statuses = {number: header(body, "grpc-status") for kind, flags, number, body in until_ended(many, last) if kind == HEADERS}
    assert statuses == {last: str(grpc.StatusCode.UNIMPLEMENTED.value[0])}, "none is refused for its address"
    many.close()
    time.sleep(1)
    assert not ended(router), "it is idle for longer than a client may be"
    for wire in crowd:
        wire.socket.close()
    channel.close()
    assert router.stop() == 0


def until_ended(wire, stream):
    """All frames to the end of a stream."""
    for kind, flags, number, body in wire.frames():
        yield kind, flags, number, body
        if number == stream and flags & END_STREAM and kind == HEADERS:
            return
    raise AssertionError("the connection has ended")


def wire_over(connection):
    wire = Wire.__new__(Wire)
    wire.socket = connection
    wire.send(PREFACE + frame(SETTINGS, 0, 0, b""))
    return wire


def test_certificates_and_addresses(tmp_path):
    """A client with a certificate is served, and its line in the access log has the address that it came from. One without, or without HTTP/2,
    is refused."""
    authority, log = Authority(tmp_path / "ca"), tmp_path / "access.log"
    cert, key = authority.issue("router", "DNS:router.test,IP:127.0.0.1")
    client_cert, client_key = authority.issue("client", "DNS:client.test")
    router = Bare("baton-router", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.cert, "--access-log", log, stderr=subprocess.DEVNULL)
    host, port = router.grpc.rsplit(":", 1)

    def knock(with_cert, protocols):
        context = ssl.create_default_context(cafile=str(authority.cert))
        if with_cert:
            context.load_cert_chain(client_cert, client_key)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context.wrap_socket(socket.create_connection((host, int(port)), timeout=20), server_hostname="router.test")

    own = knock(True, ["h2"])
    assert own.selected_alpn_protocol() == "h2"
    peer = "%s:%d" % own.getsockname()
    wire = wire_over(own)
    wire.send(call(TOKENIZE, message(pb.TokenizeRequest(text="ab").SerializeToString())))
    assert wire.outcome() == "0 None None"
    wait_until("its line", lambda: f" peer={peer} " in log.read_text(), 20)
    wire.close()
    for with_cert, protocols in ((False, ["h2"]), (True, ["http/1.1"]), (True, None)):
        try:  # the refusal comes in the handshake, or behind it
            assert wire_over(knock(with_cert, protocols)).outcome() == "closed"
        except ssl.SSLError:
            pass
    assert log.read_text().count("\n") == 1
    assert router.stop() == 0
