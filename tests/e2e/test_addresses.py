"""Which address a worker registers, when it listens on every interface or is told to be known by another one."""
import contextlib
import subprocess

import pytest
from harness import BUILD, GOLDEN, wait_until


@contextlib.contextmanager
def one_more_decode_worker(cluster, *flags, name="by-hand", expected=0):
    """A worker that was started by hand, as on another machine."""
    log = cluster.folder / f"{name}.log"
    with open(log, "wb") as output:
        worker = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", BUILD / "bin/baton-decode", "--name", name, "--router", cluster.grpc,
                                   "--model", GOLDEN / "llama", "--compute", "f32", *flags], env=cluster.environment, stderr=output)
    try:
        yield worker
        worker.terminate()
        assert worker.wait(30) == expected, log.read_text()
        if expected == 0 and name not in cluster.pids:
            assert not seen(cluster, name), "it left in order, and is not shown any more"
    finally:
        worker.kill()
        worker.wait()


def seen(cluster, name="by-hand"):
    return next((w for w in cluster.status()["workers"] if w["name"] == name), None)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from harness import Cluster
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), model=GOLDEN / "llama")
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("flags,host", [(["--listen", "0.0.0.0:0", "--metrics-listen", "0.0.0.0:0"], "127.0.0.1"),
                                        (["--listen", "[::]:0"], "127.0.0.1"),
                                        (["--listen", "0.0.0.0:0", "--advertise", "127.0.0.2"], "127.0.0.2")])
def test_every_interface_has_an_address_to_dial(cluster, flags, host):
    with one_more_decode_worker(cluster, *flags):
        wait_until("it has a session", lambda: (seen(cluster) or {}).get("state") == "up", 30)
        assert seen(cluster)["address"].rsplit(":", 1)[0] == host
        assert seen(cluster)["metrics"].rsplit(":", 1)[0] == "127.0.0.1"
        # It takes its share: peers dial each other, too.
        for _ in range(3):
            answer = cluster.generate([20, 21, 22], max_tokens=3, ignore_eos=True)
            if answer["decode_worker"] == "by-hand":
                break
        assert answer["decode_worker"] == "by-hand" and answer["prefill_worker"] == "prefill-0"


def test_a_port_is_advertised_as_it_was_told(cluster):
    with one_more_decode_worker(cluster, "--listen", "127.0.0.1:0", "--advertise", "127.0.0.1:9"):
        wait_until("it is registered", lambda: seen(cluster), 30)
        assert (seen(cluster)["address"], seen(cluster)["state"]) == ("127.0.0.1:9", "down")


def test_a_worker_at_the_address_of_a_dead_one_keeps_its_session(cluster):
    """The router goes on dialling the dead one for a while; the living one tells it so, and loses nothing."""
    with one_more_decode_worker(cluster, "--listen", "127.0.0.1:0", expected=-9) as worker:
        wait_until("it has a session", lambda: (seen(cluster) or {}).get("state") == "up", 30)
        address = seen(cluster)["address"]
        worker.kill()
    with one_more_decode_worker(cluster, "--listen", address, name="heir"):
        wait_until("it has a session", lambda: (seen(cluster, "heir") or {}).get("state") == "up", 30)
        log = cluster.folder / "heir.log"
        wait_until("the router asks for the dead one", lambda: "a session for another worker" in log.read_text(), 15)
        assert seen(cluster, "heir")["state"] == "up"
        assert log.read_text().count("session is up") == 1 and "session ended" not in log.read_text()
        wait_until("the router hears so, and forgets it", lambda: seen(cluster) is None, 15)
        router = (cluster.folder / "logs/router.log").read_text()
        assert "another worker, or another life of that worker, is here" in router and "heir (decode)" not in router


def test_a_name_that_is_taken_is_refused(cluster):
    with one_more_decode_worker(cluster, name="decode-0"):
        log = cluster.folder / "decode-0.log"
        wait_until("it is told why", lambda: "the name decode-0 belongs to a live worker" in log.read_text(), 15)
        assert seen(cluster, "decode-0")["pid"] == cluster.pids["decode-0"] and seen(cluster, "decode-0")["state"] == "up"


def test_an_address_that_nobody_can_dial_is_refused():
    done = subprocess.run([BUILD / "bin/baton-decode", "--name", "w", "--router", "127.0.0.1:1", "--model", GOLDEN / "llama",
                           "--advertise", "0.0.0.0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "'0.0.0.0' is not an address to advertise" in done.stderr
