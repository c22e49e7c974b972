"""TLS on every gRPC link of a cluster: admitted and refused peers, the versions of TLS, and certificates that change under load."""
import json
import re
import socket
import subprocess
import threading
import time

import grpc
import pytest
from certificates import Authority, key_of, shown_by
from client import pb, pb_grpc
from front import Front, Reply
from harness import BUILD, LONG, SHAKESPEARE, wait_until
from tls_world import World

PROMPT = list(range(10, 80))
SHORT = dict(max_tokens=8, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One cluster with TLS and client certificates on all links, for the tests that only knock."""
    from harness import Cluster
    clusters = []

    def start(**options):
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster"), **options))
        return clusters[-1]

    yield World(tmp_path_factory.mktemp("certificates"), start)
    for cluster in clusters:
        cluster.stop()


def test_a_whole_cluster_over_tls(shared, start_cluster):
    """The same bytes as in the clear, by the command and by a client of Python's."""
    plain = start_cluster().generate(PROMPT, max_tokens=20, seed=5, temperature=1)
    secured = shared.cluster.generate(PROMPT, max_tokens=20, seed=5, temperature=1, **shared.flags())
    assert secured["text"] == plain["text"] and secured["kv_bytes"] > 0
    client = shared.client()
    assert len(client.generate(PROMPT, **SHORT).ids) == 8
    client.close()
    log = (shared.cluster.folder / "logs/router.log").read_text()
    assert "tls=1 internal_tls=1" in log


def refused(channel):
    with pytest.raises(grpc.RpcError) as caught:
        pb_grpc.BatonStub(channel).Tokenize(pb.TokenizeRequest(text="x"), timeout=20)
    channel.close()
    return caught.value


@pytest.mark.parametrize("which", ["no certificate", "another CA's certificate", "a server that another CA signed", "in the clear"])
def test_a_stranger_is_refused_by_every_server(shared, tmp_path, which):
    """The router's listener for clients, that of registrations, and those of both workers."""
    other = Authority(tmp_path / "other")
    cert, key = other.issue("client", "DNS:baton.test")
    cluster = shared.cluster
    servers = [(cluster.grpc, shared.public)] + [(address, shared.internal) for address in (shared.registry, cluster.processes["prefill-0"]["address"], cluster.processes["decode-0"]["address"])]
    for address, authority in servers:
        own = authority.issue("knocking", "DNS:baton.test")
        channel = {
            "no certificate": lambda: shared.channel(address, authority.cert),
            "another CA's certificate": lambda: shared.channel(address, authority.cert, cert, key),
            "a server that another CA signed": lambda: shared.channel(address, other.cert, *own),
            "in the clear": lambda: grpc.insecure_channel(address),
        }[which]()
        assert refused(channel).code() == grpc.StatusCode.UNAVAILABLE, (address, which)
    assert shared.cluster.generate(PROMPT, max_tokens=3, **shared.flags())["text"]


def test_a_member_of_another_name_is_refused(shared):
    """Signed by the cluster's CA, with another name."""
    cert, key = shared.internal.issue("else", "DNS:grafana.test")
    for address in (shared.registry, shared.cluster.processes["prefill-0"]["address"], shared.cluster.processes["decode-0"]["address"]):
        credentials = grpc.ssl_channel_credentials(shared.internal.cert.read_bytes(), key.read_bytes(), cert.read_bytes())
        error = refused(grpc.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", "baton.test")]))
        assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
        assert dict(error.trailing_metadata())["baton-reason"] == "wrong_peer"


def test_registrations_are_not_taken_where_clients_are(shared):
    channel = shared.channel(cert=shared.client_cert, key=shared.client_key)
    register = channel.unary_unary("/baton.worker.v1.Registry/RegisterWorker")
    with pytest.raises(grpc.RpcError) as caught:
        register(b"", timeout=20)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    channel.close()


def test_metrics_say_when_certificates_end(shared):
    """Two days from now, of all processes; the router's for clients, too."""
    for name, links in (("router", ["tls", "internal-tls"]), ("prefill-0", ["internal-tls"]), ("decode-0", ["internal-tls"])):
        seen = {key: value for key, value in shared.cluster.metrics(name).items() if key.startswith("baton_tls_certificate_expiry_timestamp_seconds")}
        assert set(seen) == {f'baton_tls_certificate_expiry_timestamp_seconds{{for="{link}"}}' for link in links}
        assert all(1.9 < (value - time.time()) / 86400 < 2.1 for value in seen.values()), seen


def run(program, *flags):
    return subprocess.run([BUILD / "bin" / program, *flags, "--model", SHAKESPEARE], capture_output=True, text=True, timeout=60)


ROUTER, UP, WORKER = ["baton-router"], ["baton", "up"], ["baton-prefill", "--name", "a", "--router", "127.0.0.1:1"]


@pytest.mark.parametrize("flags,told,programs", [
    (["--tls-cert", "CERT"], "--tls-cert is given without --tls-key: both or neither", [ROUTER, UP]),
    (["--tls-client-ca", "CA"], "--tls-cert and --tls-key are needed", [ROUTER, UP]),
    (["--internal-tls-cert", "CERT", "--internal-tls-key", "KEY", "--internal-tls-ca", "CA"], "--registry-listen is missing", [ROUTER]),
    (["--api-keys", "CA", "--listen", "0.0.0.0:0"], "any process that reaches 0.0.0.0:0 may register as a worker", [ROUTER]),
    (["--api-keys", "CA", "--registry-listen", "baton.example:1"], "or accept that with --insecure-registry", [ROUTER]),
    (["--internal-tls-name", "x"], "--internal-tls-ca is missing", [ROUTER, UP, WORKER]),
    (["--internal-tls-ca", "CA"], "--internal-tls-cert and --internal-tls-key are needed", [ROUTER, UP, WORKER]),
])
def test_settings_that_say_too_little(shared, flags, told, programs):
    """Exit code 2, as all mistakes in settings."""
    files = {"CERT": shared.client_cert, "KEY": shared.client_key, "CA": shared.public.cert}
    for program in programs:
        done = run(*program, *(files.get(word, word) for word in flags))
        assert done.returncode == 2 and told in done.stderr, (program, done.stderr)


@pytest.mark.parametrize("flags", [["--insecure-registry", "--listen", "0.0.0.0:0"], ["--listen", "0.0.0.0:0", "--registry-listen", "127.0.0.1:0"],
                                   ["--registry-listen", "[::1]:0"], ["--listen", "localhost:0"]])
def test_an_open_registry_that_is_accepted_or_reached_by_this_machine_alone(shared, flags):
    """Each comes as far as the file of keys, which isn't one."""
    done = run("baton-router", "--api-keys", shared.public.cert, *flags)
    assert done.returncode == 1 and "may register as a worker" not in done.stderr and "--api-keys" in done.stderr, done.stderr


def test_mistakes_of_several_settings_are_told_together(shared):
    done = run("baton-router", "--tls-cert", "x", "--metrics-tls-key", "x", "--otlp-tls-name", "x", "--internal-tls-name", "x")
    for told in ("--tls-cert is given without --tls-key", "--metrics-tls-key is given without --metrics-tls-cert", "--internal-tls-ca is missing",
                 "--otlp-tls-name is given without --otlp-tls-ca"):
        assert told in done.stderr, done.stderr
    assert done.returncode == 2


def test_a_file_that_holds_no_key(shared):
    done = run("baton-router", "--tls-cert", shared.client_cert, "--tls-key", shared.public.cert)
    assert done.returncode == 1 and "is no readable private key in PEM" in done.stderr, done.stderr


def handshake(shared, address, authority, *arguments):
    host, cert = address, authority.issue("prober", "DNS:baton.test")
    return subprocess.run(["openssl", "s_client", "-connect", host, "-CAfile", str(authority.cert), "-cert", str(cert[0]), "-key", str(cert[1]),
                           "-alpn", "h2", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=30)


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1", "-tls1_2", "-tls1_3"])
def test_versions_of_tls(shared, version):
    """Versions before 1.2 are refused, also by a client that would take them (security level 0)."""
    old = version in ("-tls1", "-tls1_1")
    for address, authority in ((shared.cluster.grpc, shared.public), (shared.registry, shared.internal),
                               (shared.cluster.processes["prefill-0"]["address"], shared.internal)):
        done = handshake(shared, address, authority, version, "-cipher", "ALL:@SECLEVEL=0")
        if old:  # the same command with another version is served
            assert done.returncode and "Cipher is (NONE)" in done.stdout, done.stdout + done.stderr
        else:
            assert "Cipher is (NONE)" not in done.stdout and "ALPN protocol: h2" in done.stdout, done.stdout + done.stderr
            assert "Verify return code: 0 (ok)" in done.stdout, done.stdout


def test_weak_ciphers_are_refused(shared):
    for cipher in ("eNULL", "aNULL", "3DES", "RC4", "DES", "EXPORT", "MD5"):
        done = handshake(shared, shared.cluster.grpc, shared.public, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
        assert "Cipher is (NONE)" in done.stdout or "no cipher" in done.stderr or "no ciphers" in done.stderr, (cipher, done.stdout)


def test_a_handshake_that_is_never_made(shared):
    """Closed after 10 s; others are served meanwhile."""
    host, port = shared.cluster.grpc.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port))) for _ in range(5)]
    started = time.monotonic()
    assert shared.cluster.generate(PROMPT, max_tokens=3, **shared.flags())["text"]
    for connection in silent:
        connection.settimeout(30)
        assert connection.recv(1) == b""
        connection.close()
    assert 8 < time.monotonic() - started < 80


def test_what_generate_says(shared):
    failed = shared.cluster.command("generate", "--prompt-ids", "1,2,3", "--tls-ca", shared.internal.cert)
    assert failed.returncode == 1 and "cannot reach a router" in failed.stderr, failed.stderr
    failed = shared.cluster.command("generate", "--prompt-ids", "1,2,3", "--tls-name", "x")
    assert failed.returncode == 2 and "--tls-ca is missing" in failed.stderr, failed.stderr
    failed = shared.cluster.command("generate", "--prompt-ids", "1,2,3", "--tls-ca", "/nowhere")
    assert failed.returncode == 1 and "--tls-ca: cannot read /nowhere" in failed.stderr, failed.stderr
    done = shared.cluster.generate([1, 2, 3], max_tokens=3, tls_name="router.test", **shared.flags())
    assert done["text"] is not None


def test_ends_with_cores_threads_at_work(shared):
    """A call that fails while core makes its handshake: the process ends with core's threads, and takes nothing away from under them (in a build with sanitizers,
    which are made slow: no crash, no leak)."""
    slow = dict(shared.cluster.environment, ASAN_OPTIONS="fast_unwind_on_malloc=0:malloc_context_size=40")
    for _ in range(8 if LONG else 3):
        failed = subprocess.run([BUILD / "bin/baton", "generate", "--prompt-ids", "1,2,3", "--tls-ca", shared.public.cert], env=slow, capture_output=True, text=True, timeout=60)
        # Core logs the alert that it gets (a certificate is required), and may fail before that.
        told = re.fullmatch(r"(ts=.* mod=grpc_core .*\n)*baton generate: cannot reach a router at .*\n", failed.stderr)
        assert failed.returncode == 1 and told, failed.stderr[:4000]


def test_certificates_change_under_load(tmp_path, start_cluster):
    """Every certificate and key twice, by the same CAs, while clients ask and dial at both doors: no request fails, and new connections see
    the new one."""
    world = World(tmp_path / "certificates", start_cluster, of_clients=True, restart=True)
    stop, errors, answers, texts = threading.Event(), [], [], []
    door = Front(world.cluster, tls=world.https(world.client_cert, world.client_key))
    body = json.dumps({"prompt": PROMPT, **SHORT}).encode()

    def ask_http():
        """A new connection each, and one that stays."""
        kept = door.connect()
        while not stop.is_set():
            try:
                fresh = door.connect()
                for connection in (fresh, kept):
                    connection.request("POST", "/v1/completions", body, door.headers)
                    reply = Reply(connection.getresponse())
                    assert reply.status == 200, reply.body
                    texts.append(reply.json["choices"][0]["text"])
                fresh.close()
            except Exception as error:
                errors.append(error)
        kept.close()

    def ask():
        while not stop.is_set():
            client = world.client()
            try:
                for _ in range(3):
                    answers.append(client.generate(PROMPT, **SHORT).ids)
            except Exception as error:
                errors.append(error)
            finally:
                client.close()

    def versions(name):
        path = world.cluster.folder / f"logs/{name}.log"
        return {(m[1], int(m[2])) for m in re.finditer(r"for=(\S+) version=(\d+)", path.read_text())}

    threads = [threading.Thread(target=work) for work in (ask, ask, ask_http, ask_http)]
    for thread in threads:
        thread.start()
    try:
        for version in (2, 3):
            world.public.issue("router", "DNS:router.test,IP:127.0.0.1")
            world.internal.issue("member", "DNS:baton.test")
            wait_until("the router has both", lambda: {("tls", version), ("internal-tls", version)} <= versions("router"), 20)
            for name in ("prefill-0", "decode-0"):
                wait_until(f"{name} has it", lambda: ("internal-tls", version) in versions(name), 20)
            before = len(answers), len(texts)
            wait_until("it serves on", lambda: len(answers) > before[0] + 10 and len(texts) > before[1] + 10 or errors, 60)
            assert shown_by(door.address, "-cert", world.client_cert, "-key", world.client_key) == key_of(world.cert)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors, errors
    assert all(ids == answers[0] for ids in answers) and all(text == texts[0] for text in texts)
    # A worker that comes anew, and all that dial it, use the new ones.
    world.cluster.kill("decode-0")
    world.cluster.wait_back("decode-0")
    assert world.cluster.generate(PROMPT, max_tokens=3, **world.flags())["kv_bytes"] > 0
    leaf = shown_by(world.cluster.grpc, "-alpn", "h2", "-cert", world.client_cert, "-key", world.client_key)
    assert leaf and leaf == key_of(world.cert)


def test_files_that_cannot_be_used_change_nothing(tmp_path, start_cluster):
    world = World(tmp_path / "certificates", start_cluster)
    world.cert.write_text("no certificate")
    log = world.cluster.folder / "logs/router.log"
    wait_until("it is said", lambda: "those before stay" in log.read_text(), 20)
    assert "certificate 1 is not readable PEM" in log.read_text()
    assert world.cluster.generate(PROMPT, max_tokens=3, **world.flags())["text"]
    world.public.issue("router", "DNS:router.test,IP:127.0.0.1")
    wait_until("it is read", lambda: "for=tls version=2" in log.read_text(), 20)
    assert world.cluster.generate(PROMPT, max_tokens=3, **world.flags())["text"]
