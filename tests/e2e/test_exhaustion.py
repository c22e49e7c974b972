"""Out of file descriptors, and out of places for log lines: a refusal or a loss that is counted, never a spin, a hang or an end."""
import http.client
import os
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.request

import pytest
from bare import Bare
from client import Client, pb
from front import SETTINGS, Front
from harness import BATON, BUILD, GOLDEN, LONG, SHAKESPEARE, TOP, wait_until
from wire import DATA, END_HEADERS, HEADERS, Wire, call_headers, frame, message

FEW = ("prlimit", "--nofile=128:128")
SURPLUS = 160
ROUTER_OWN = int(re.search(r"ROUTER_OWN_DESCRIPTORS (\d+)", (TOP / "router/router_config.h").read_text())[1])


def models(client):
    return client.stub.ListModels(pb.ListModelsRequest(), timeout=20, wait_for_ready=True).models


def connect_many(address, count):
    host, port = address.rsplit(":", 1)
    return [socket.create_connection((host, int(port)), timeout=20) for _ in range(count)]


def lost_lines(http):
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        return int(re.search(r"^baton_log_lines_lost_total (\d+)$", answer.read().decode(), re.M)[1])


def closed(connection):
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_a_router_out_of_descriptors(door, tmp_path):
    """A crowd at one door has that door's share: clients inside go on, the other door lets in, nothing spins, and later all is as before."""
    with open(tmp_path / "log", "wb") as log:
        router = Bare("baton-router", prefix=FEW, stderr=log)
    assert len(os.listdir(f"/proc/{router.pid}/fd")) < ROUTER_OWN
    inside = Client(router.grpc)
    assert models(inside)
    crowd = connect_many(getattr(router, door), SURPLUS)
    if door == "grpc":  # the other one's crowd waits outside
        wait_until("most are refused", lambda: sum(map(closed, crowd)) > SURPLUS // 2, 20)
        assert not all(map(closed, crowd))
    used, start = router.cpu_seconds(), time.monotonic()
    while time.monotonic() - start < 1:
        assert models(inside)
        time.sleep(0.05)
    assert router.cpu_seconds() - used < 0.5
    assert len(os.listdir(f"/proc/{router.pid}/fd")) < 128 - 8  # those of workers are kept aside
    if door == "grpc":
        assert lost_lines(router.http) == 0
    else:
        fresh = Client(router.grpc.replace("127.0.0.1", "localhost"))  # by another name, so that it is another connection
        assert models(fresh)
        fresh.close()
    for connection in crowd:
        connection.close()
    wait_until("the door lets in", lambda: answered(router), 20)
    wait_until("metrics", lambda: urllib.request.urlopen(f"http://{router.http}/metrics", timeout=20).status == 200, 20)
    inside.close()
    assert router.stop() == 0
    warning = re.search(r"level=warn .* open_files=128 max_connections=4096 needed=(\d+) .*", (tmp_path / "log").read_text())
    assert f"raise it to {warning[1]} (ulimit -Hn" in warning[0]


@pytest.mark.parametrize("files,clients", [(128, 130)] + [(4096, 4100)] * LONG)  # the second with as many as max-connections has by default
def test_clients_of_http_keep_no_worker_out(start_cluster, connect, files, clients):
    """Clients of HTTP come and stay, as many as the share. A worker that is killed meanwhile comes back, registers and answers."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    cluster = start_cluster(model=GOLDEN / "llama", restart=True, prefix=("prlimit", f"--nofile={files}:{files}"), settings=SETTINGS)
    front = Front(cluster)
    crowd = connect_many(front.address, clients)
    for connection in crowd:
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until("most are refused", lambda: sum(map(closed, crowd)) > clients // 2, 20)
    inside = [connection for connection in crowd if not closed(connection)]
    assert inside

    def answered_by_http():
        try:
            return front.complete([1, 2, 3], max_tokens=4).status == 200  # one that is idle makes room
        except (http.client.HTTPException, OSError):
            return False

    for name in ("decode-0", "prefill-0"):
        os.kill(cluster.pids[name], signal.SIGKILL)
        cluster.wait_back(name)
        wait_until("it answers", answered_by_http, 20)
    assert connect(cluster).generate([1, 2, 3], max_tokens=4).ids, "over gRPC, too"
    assert not all(map(closed, inside)), "they are there all the time"
    for connection in crowd:
        connection.close()


def test_a_worker_out_of_descriptors(start_cluster, connect):
    """Its running requests end well, and new handoffs work when there are descriptors again."""
    cluster = start_cluster(model=GOLDEN / "llama", decode=2, transport="tcp")
    client = connect(cluster)
    prompt = dict(temperature=1, seed=5, ignore_eos=True)
    wanted = client.generate([1, 2, 3, 4], max_tokens=40, **prompt).ids
    for name in ("prefill-0", "decode-0", "decode-1"):
        subprocess.run(["prlimit", "--pid", str(cluster.pids[name]), "--nofile=64:64"], check=True)
    # First at the door of the metrics, so that both doors have a client to turn away.
    crowds = [connect_many(cluster.processes[name][door], count) for name in ("prefill-0", "decode-0", "decode-1")
              for door, count in (("metrics", 60), ("address", 100))]
    for name in ("prefill-0", "decode-0", "decode-1"):
        wait_until("no descriptor is left", lambda: len(os.listdir(f"/proc/{cluster.pids[name]}/fd")) >= 63, 20)
    for _ in range(2):
        assert client.generate([1, 2, 3, 4], max_tokens=40, **prompt).ids == wanted
    for crowd in crowds:
        for connection in crowd:
            connection.close()
    assert client.generate([1, 2, 3, 4], max_tokens=40, **prompt).ids == wanted


def test_a_worker_that_can_open_two_files():
    """It says what it misses, and ends."""
    done = subprocess.run(["prlimit", "--nofile=5:5", BUILD / "bin/baton-decode", "--name", "d", "--model", SHAKESPEARE, "--router", "127.0.0.1:1"],
                          text=True, capture_output=True, timeout=60)
    assert done.returncode == 1 and "msg=\"the worker's end can't be waited for: Too many open files\"" in done.stderr, done.stderr


def test_up_out_of_descriptors(tmp_path):
    """`baton up` can't start what it can't open: it says so, and leaves nothing."""
    done = subprocess.run(["prlimit", "--nofile=12:12", BATON, "up", "--no-pin", "--model", SHAKESPEARE, "--prefill", "8", "--decode", "8"],
                          env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)), text=True, capture_output=True, timeout=120)
    assert done.returncode == 1
    assert "Too many open files" in done.stderr or "before it was ready" in done.stderr, done.stderr


def test_a_message_of_a_gibibyte_is_cut_off():
    """Announced, and sent as far as the router lets it: its memory for what comes in is bounded, and others are answered then."""
    router = Bare("baton-router", "--receive-memory", "32MiB", stderr=subprocess.DEVNULL, environment={"ASAN_OPTIONS": "quarantine_size_mb=4"})
    client = Client(router.grpc)
    assert models(client)
    before = router.resident_bytes()
    for _ in range(3):
        wire = Wire(router.grpc)
        wire.send(frame(HEADERS, END_HEADERS, 1, call_headers("/baton.v1.Baton/Generate")) + frame(DATA, 0, 1, message(b"", length=1 << 30)))
        assert wire.push(1, 256 << 20) < 64 << 20
        wire.close()
        wait_until("others are answered", lambda: answered(router), 20)
    assert router.resident_bytes() - before < 128 << 20
    client.close()
    assert router.stop() == 0


def answered(router):
    fresh = Client(router.grpc)
    try:
        return models(fresh)
    except Exception:
        return None  # another client's call may be cut off with it
    finally:
        fresh.close()


@pytest.mark.parametrize("place", ["full", "closed", "unread"])
def test_logs_that_cannot_be_written(place):
    """Standard error is a full disk, a closed pipe, a pipe without a reader: requests are answered, lines are counted."""
    ends = os.pipe() if place != "full" else [None, os.open("/dev/full", os.O_WRONLY)]
    if place == "closed":
        os.close(ends[0])
    router = Bare("baton-router", "--log-level", "debug", stderr=ends[1])
    os.close(ends[1])
    client = Client(router.grpc)
    for _ in range(1000 if place == "unread" else 20):
        with pytest.raises(Exception, match="missing_input|neither text"):
            list(client.stub.Generate(pb.GenerateRequest(), timeout=20))
    assert lost_lines(router.http) > 0
    client.close()
    if place == "unread":
        assert b"level=debug" in os.read(ends[0], 65536)
        os.close(ends[0])
    assert router.stop() == 0
