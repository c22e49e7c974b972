"""TLS of HTTP: the public door and the listeners of figures, as openssl's s_client, the openai package and curl see them: the versions and
ciphers, the admitted clients, and other checks of a TLS scanner. Certificates that change under load: test_tls.py."""
import re
import socket
import ssl
import subprocess
import urllib.error
import urllib.request

import openai
import pytest
from certificates import key_of, s_client
from front import Front
from harness import BUILD, SHAKESPEARE, Cluster, wait_until
from keys import new_key
from tls_world import World

SHORT = dict(max_tokens=8, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One cluster with TLS and client certificates everywhere, on the listeners of figures of the router, too."""
    folder, clusters = tmp_path_factory.mktemp("certificates"), []

    def start(**options):
        clusters.append(Cluster(tmp_path_factory.mktemp("cluster"), **options))
        return clusters[-1]

    world = World(folder, start)
    figures = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", BUILD / "bin/baton-router", "--model", SHAKESPEARE, "--metrics-tls-cert", world.cert, "--metrics-tls-key", world.key,
                                "--metrics-tls-client-ca", world.public.cert], stderr=open(folder / "figures.log", "wb"))
    wait_until("it serves", lambda: re.search(r" metrics=(\S+) ", (folder / "figures.log").read_text()), 60)
    world.figures = re.search(r" metrics=(\S+) ", (folder / "figures.log").read_text())[1]
    world.door = Front(world.cluster, tls=world.https(world.client_cert, world.client_key))
    yield world
    figures.terminate()
    assert figures.wait(60) == 0
    for cluster in clusters:
        cluster.stop()


def servers(world):
    """(address, protocol) of everything that clients of HTTP reach, and of gRPC beside it."""
    return [(world.door.address, "http/1.1"), (world.figures, "http/1.1"), (world.cluster.grpc, "h2")]


def knock(world, address, protocol, *arguments, said=""):
    return s_client(address, "-CAfile", world.public.cert, "-cert", world.client_cert, "-key", world.client_key, "-alpn", protocol, *arguments, said=said)


def test_a_client_with_its_certificate(shared):
    """The openai package over https, the command over gRPC, and Prometheus' side: the same bytes, and no other way in."""
    by_http = openai.OpenAI(base_url=f"https://{shared.door.address}/v1", api_key="none", max_retries=0, http_client=openai.DefaultHttpxClient(verify=shared.https(shared.client_cert, shared.client_key)))
    whole = by_http.completions.create(model="tiny-shakespeare", prompt="ROMEO:", seed=5, temperature=1, max_tokens=12)
    streamed = "".join(c.choices[0].text for c in by_http.completions.create(model="tiny-shakespeare", prompt="ROMEO:", seed=5, temperature=1, max_tokens=12, stream=True))
    assert whole.choices[0].text == streamed == shared.cluster.generate("ROMEO:", seed=5, temperature=1, max_tokens=12, **shared.flags())["text"]
    with urllib.request.urlopen(f"https://{shared.figures}/metrics", timeout=20, context=shared.https(shared.client_cert, shared.client_key)) as answer:
        text = answer.read().decode()
    assert 'baton_tls_certificate_expiry_timestamp_seconds{for="metrics-tls"}' in text


@pytest.mark.parametrize("which", ["no certificate", "another CA's certificate", "in the clear"])
def test_a_stranger_is_refused(shared, tmp_path, which):
    from certificates import Authority
    other = Authority(tmp_path / "other")
    cert, key = other.issue("client", "DNS:client.test")
    for address, _ in servers(shared)[:2]:
        url = f"{'http' if which == 'in the clear' else 'https'}://{address}/metrics"
        context = {"no certificate": lambda: shared.https(), "another CA's certificate": lambda: shared.https(cert, key), "in the clear": lambda: None}[which]()
        with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError, OSError)) as caught:
            urllib.request.urlopen(url, timeout=20, context=context)
        assert not isinstance(caught.value, urllib.error.HTTPError), caught.value
    shared.door.complete("To be", **SHORT)


def test_a_server_of_another_ca_is_refused_by_clients(shared):
    with pytest.raises(openai.APIConnectionError):
        openai.OpenAI(base_url=f"https://{shared.door.address}/v1", api_key="none", max_retries=0, http_client=openai.DefaultHttpxClient(verify=shared.https(shared.client_cert, shared.client_key, ca=shared.internal.cert))).models.list()


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1", "-tls1_2", "-tls1_3"])
def test_versions(shared, version):
    """Versions before 1.2 are refused, also to a client that would take them (security level 0)."""
    for address, protocol in servers(shared):
        done = knock(shared, address, protocol, version, "-cipher", "ALL:@SECLEVEL=0")
        if version in ("-tls1", "-tls1_1"):
            assert done.returncode and "Cipher is (NONE)" in done.stdout, (address, done.stdout, done.stderr)
        else:
            assert "Cipher is (NONE)" not in done.stdout and f"ALPN protocol: {protocol}" in done.stdout, (address, done.stdout, done.stderr)
            assert "Verify return code: 0 (ok)" in done.stdout


@pytest.mark.parametrize("version,spoken", [("-tls1", "TLSv1"), ("-tls1_1", "TLSv1.1")])
def test_who_knocks_does_speak_them(shared, version, spoken):
    """A server that takes nothing but such a version is spoken with: it isn't our openssl that refuses them."""
    server = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", shared.cert, "-key", shared.key, version,
                               "-cipher", "ALL:@SECLEVEL=0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next(line.split()[1] for line in server.stdout if line.startswith("ACCEPT "))
        done = knock(shared, address, "http/1.1", version, "-cipher", "ALL:@SECLEVEL=0")
        assert "Cipher is ECDHE" in done.stdout and f"Protocol  : {spoken}\n" in done.stdout, (done.stdout, done.stderr)
    finally:
        server.kill()
        server.communicate()


def test_ciphers(shared):
    """TLS 1.2 allows only ciphers with forward secrecy and authenticated encryption: each of them is tried by itself, and all others that this
    openssl knows together."""
    listed = subprocess.run(["openssl", "ciphers", "-tls1_2", "-s", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"], capture_output=True, text=True, check=True).stdout.strip().split(":")
    tried = [name for name in listed if not re.match("TLS_|.*PSK|.*SRP", name)]
    assert len(tried) > 30
    good = re.compile(r"ECDHE-(ECDSA|RSA)-(AES(128|256)-GCM-SHA(256|384)|CHACHA20-POLY1305)$")
    for address, protocol in servers(shared):
        for name in filter(good.match, tried):
            done = knock(shared, address, protocol, "-tls1_2", "-cipher", f"{name}:@SECLEVEL=0")
            assert (f"Cipher is {name}" in done.stdout) == name.startswith("ECDHE-ECDSA") or protocol == "h2", (address, name)  # the key is of EC
        done = knock(shared, address, protocol, "-tls1_2", "-cipher", ":".join(name for name in tried if not good.match(name)) + ":@SECLEVEL=0")
        assert "Cipher is (NONE)" in done.stdout and "handshake failure" in done.stderr, (address, done.stdout, done.stderr)
    for cipher in ("eNULL", "aNULL", "3DES", "RC4", "EXPORT", "MD5", "CAMELLIA"):
        done = knock(shared, shared.door.address, "http/1.1", "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
        assert "Cipher is (NONE)" in done.stdout or "no cipher" in done.stderr, cipher


def test_nothing_is_renegotiated_resumed_or_compressed(shared):
    for address, protocol in servers(shared):
        done = knock(shared, address, protocol, "-tls1_2")
        assert "Secure Renegotiation IS supported" in done.stdout and "Compression: NONE" in done.stdout, done.stdout
        done = knock(shared, address, protocol, "-tls1_2", said="R\n")
        # a server of HTTP/2 speaks first: its settings may cross the wish, and then they are what s_client complains about
        refused = "no renegotiation" in done.stderr or protocol == "h2" and "unexpected record" in done.stderr
        assert "RENEGOTIATING" in done.stdout + done.stderr and refused, (address, done.stdout[-800:], done.stderr)
        assert done.stderr.count("depth=0") == 1, (address, done.stderr)  # limit of one handshake
    for address, _ in servers(shared)[:2]:
        done = knock(shared, address, "http/1.1", "-tls1_2", "-reconnect")
        assert "New, TLSv1.2" in done.stdout and "Reused" not in done.stdout and "TLS session ticket:" not in done.stdout


def test_what_openssl_is_not_told(shared):
    """No downgrade that says so is taken (SCSV), no certificate but our own is shown, and its key is the one that the file holds."""
    for address, protocol in servers(shared):
        done = knock(shared, address, protocol, "-tls1_2", "-fallback_scsv")
        assert done.returncode and "Cipher is (NONE)" in done.stdout, (address, done.stdout, done.stderr)
        shown = knock(shared, address, protocol).stdout
        assert shown.count("BEGIN CERTIFICATE") == 1
        leaf = subprocess.run(["openssl", "x509", "-noout", "-pubkey"], input=shown, capture_output=True, text=True).stdout
        assert leaf == key_of(shared.cert)


def test_a_handshake_that_is_never_made(shared):
    host, port = shared.door.address.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port))) for _ in range(5)]
    assert shared.door.complete("To be", **SHORT).status == 200
    for connection in silent:
        connection.settimeout(30)
        assert connection.recv(1) == b""
        connection.close()


def test_up_prints_a_url_and_a_curl_that_works(tmp_path, start_cluster):
    """A shell can run the commands that `baton up` prints, with TLS and a key, unchanged except the names of the files."""
    world, (key, line) = {}, new_key("ci")
    (tmp_path / "keys").write_text(line + "\n")

    def start(flags, **options):
        world["cluster"] = start_cluster(flags=[*flags, "--api-keys", tmp_path / "keys"], **options)
        return world["cluster"]
    secured = World(tmp_path / "certificates", start, of_clients=False)
    printed = (secured.cluster.folder / "up.log").read_text()
    url = re.search(r"^  OpenAI     (https://\S+/v1)$", printed, re.M)[1]
    command = re.search(r"^  (curl (?:.*\\\n)*.*)$", printed, re.M)[1].replace("FILE", str(secured.public.cert))
    assert url in command
    done = subprocess.run(["sh", "-c", command], env={"KEY": key, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and '"object":"text_completion"' in done.stdout, (command, done.stdout, done.stderr)
    refused = subprocess.run(["sh", "-c", command], env={"KEY": "x", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60)
    assert '"code":"invalid_api_key"' in refused.stdout


@pytest.mark.parametrize("program,flags,told", [
    ("baton-router", ["--metrics-tls-cert", "CERT"], "--metrics-tls-cert is given without --metrics-tls-key: both or neither"),
    ("baton-router", ["--metrics-tls-client-ca", "CA"], "--metrics-tls-cert and --metrics-tls-key are needed"),
    ("baton-prefill", ["--name", "a", "--router", "127.0.0.1:1", "--metrics-tls-cert", "CERT"], "--metrics-tls-cert is given without --metrics-tls-key: both or neither"),
])
def test_settings_that_say_too_little(shared, program, flags, told):
    files = {"CERT": shared.client_cert, "CA": shared.public.cert}
    done = subprocess.run([BUILD / "bin" / program, "--model", SHAKESPEARE, *(files.get(word, word) for word in flags)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and told in done.stderr, done.stderr


@pytest.mark.parametrize("names,asked", [("DNS:figures.test,IP:127.0.0.1", False), ("DNS:*.figures.test", True)])
def test_figures_of_a_whole_cluster_over_tls(tmp_path, start_cluster, names, asked):
    """`baton up` is told where its processes are: it asks them over TLS itself, whatever name the certificate holds, and shows it where one is asked for."""
    from certificates import Authority
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("figures", names)
    settings = {"metrics-tls-cert": cert, "metrics-tls-key": key} | ({"metrics-tls-client-ca": authority.cert} if asked else {})
    cluster = start_cluster(settings=settings)
    assert f"  HTTP       https://{cluster.http}/  (status page" in (cluster.folder / "up.log").read_text()
    shown = ["--tls-cert", cert, "--tls-key", key] if asked else []
    for name, process in cluster.processes.items():
        done = subprocess.run(["openssl", "s_client", "-connect", process["metrics"], "-CAfile", authority.cert, "-verify_return_error",
                               *(["-cert", cert, "-key", key] if asked else [])], input="GET /metrics HTTP/1.0\r\n\r\n", capture_output=True, text=True, timeout=60)
        assert "Verify return code: 0 (ok)" in done.stdout, (name, done.stdout + done.stderr)
    done = subprocess.run([BUILD / "bin/baton", "status", "--tls-ca", cert, "--tls-name", "any.figures.test" if asked else "figures.test", *shown],
                          env=cluster.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "decode-0" in done.stdout, done.stderr


def test_a_workers_figures_over_tls(tmp_path, start_cluster):
    from certificates import Authority
    authority = Authority(tmp_path / "ca")
    cert, key = authority.issue("figures", "IP:127.0.0.1")
    cluster = start_cluster(process_environment={"decode-0": {"BATON_METRICS_TLS_CERT": cert, "BATON_METRICS_TLS_KEY": key}})
    with urllib.request.urlopen(f"https://{cluster.processes['decode-0']['metrics']}/metrics", timeout=20, context=ssl.create_default_context(cafile=str(authority.cert))) as answer:
        assert 'baton_tls_certificate_expiry_timestamp_seconds{for="metrics-tls"}' in answer.read().decode()
    assert cluster.generate("To be", **SHORT)["text"]
