"""Which address a worker registers, when it listens on every interface or is told to be known by another one."""
import contextlib
import subprocess

import pytest
from harness import BUILD, GOLDEN, wait_until


@contextlib.contextmanager
def one_more_decode_worker(cluster, *flags):
    """A worker that was started by hand, as on another machine."""
    log = cluster.folder / "by-hand.log"
    with open(log, "wb") as output:
        worker = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", BUILD / "bin/baton-decode", "--name", "by-hand", "--router", cluster.grpc,
                                   "--model", GOLDEN / "llama", "--compute", "f32", *flags], env=cluster.environment, stderr=output)
    try:
        yield worker
        worker.terminate()
        assert worker.wait(30) == 0, log.read_text()
        assert not seen(cluster), "it left in order, and is not shown any more"
    finally:
        worker.kill()
        worker.wait()


def seen(cluster):
    return next((w for w in cluster.status()["workers"] if w["name"] == "by-hand"), None)


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


def test_an_address_that_nobody_can_dial_is_refused():
    done = subprocess.run([BUILD / "bin/baton-decode", "--name", "w", "--router", "127.0.0.1:1", "--model", GOLDEN / "llama",
                           "--advertise", "0.0.0.0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "'0.0.0.0' is not an address to advertise" in done.stderr
