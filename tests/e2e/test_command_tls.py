"""The commands that ask the router's listener of figures, and its spans, over TLS: the servers that they trust, the certificates that they
show, and the sentence of each refusal."""
import http.server
import json
import re
import ssl
import subprocess
import threading
import types

import pytest
from certificates import Authority
from harness import BUILD, GOLDEN, SHAKESPEARE, wait_until
from keys import new_key
from tls_world import World

PROMPT = list(range(10, 40))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Three routers: one asks for certificates at its listener of figures, one shows one there, one speaks no TLS."""
    folder = tmp_path_factory.mktemp("certificates")
    world = types.SimpleNamespace()
    world.public, world.other = Authority(folder / "public"), Authority(folder / "other")
    world.cert, world.key = world.public.issue("router", "DNS:router.test,IP:127.0.0.1")
    elsewhere = world.public.issue("elsewhere", "DNS:elsewhere.test")
    world.client = world.public.issue("client", "DNS:client.test")
    world.strange = world.other.issue("client", "DNS:client.test")
    shown = ["--metrics-tls-cert", world.cert, "--metrics-tls-key", world.key]
    started = {"asks": [*shown, "--metrics-tls-client-ca", world.public.cert], "shows": shown, "clear": [],
               "elsewhere": ["--metrics-tls-cert", elsewhere[0], "--metrics-tls-key", elsewhere[1]]}
    routers = []
    for name, flags in started.items():
        log = folder / f"{name}.log"
        routers.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", BUILD / "bin/baton-router", "--model", SHAKESPEARE, *flags], stderr=open(log, "wb")))
        wait_until("it serves", lambda log=log: re.search(r" metrics=(\S+) ", log.read_text()), 60)
        setattr(world, name, re.search(r" metrics=(\S+) ", log.read_text())[1])
    yield world
    for router in routers:
        router.terminate()
    assert [router.wait(60) for router in routers] == [0] * len(routers)


def baton(command, address, *flags):
    """Without what it says of certificates that were made for two days."""
    more = {"trace": ["--last"], "top": ["--once", "--interval", "100ms"]}.get(command, [])
    done = subprocess.run([BUILD / "bin/baton", command, *more, "--http", address, *map(str, flags)], capture_output=True, text=True, timeout=60)
    done.stderr = re.sub(r".*certificate read, and it expires soon.*\n", "", done.stderr)
    return done


@pytest.mark.parametrize("command", ["status", "top", "trace"])
def test_commands_over_tls(shared, command):
    """With a CA, with a name, with a certificate of their own; trace finds that there was no request yet."""
    ca, pair = ["--tls-ca", shared.public.cert], ["--tls-cert", shared.client[0], "--tls-key", shared.client[1]]
    for address, flags in ((shared.shows, ca), (f"https://{shared.shows}", ca), (shared.elsewhere, [*ca, "--tls-name", "elsewhere.test"]), (shared.asks, [*ca, *pair])):
        done = baton(command, address, *flags)
        if command == "trace":
            assert done.returncode == 1 and "has had no request yet" in done.stderr, done.stderr
        else:
            assert done.returncode == 0 and "tiny-shakespeare" in done.stdout and not done.stderr, done.stdout + done.stderr


REFUSALS = [
    ("another CA", "shows", ["--tls-ca", "OTHER"], "is not one to trust: unable to get local issuer certificate (--tls-ca names the CAs that are trusted)"),
    ("the machine's CAs", "shows", ["--tls-ca", "system"], "is not one to trust"),
    ("another name", "elsewhere", ["--tls-ca", "CA"], 'does not hold the name "127.0.0.1": call it by a name that it holds, or say which with --tls-name'),
    ("no certificate", "asks", ["--tls-ca", "CA"], "wants a client's certificate: "),
    ("a stranger's certificate", "asks", ["--tls-ca", "CA", "--tls-cert", "STRANGE", "--tls-key", "STRANGE_KEY"], "does not take the certificate of --tls-cert: "),
    ("none against TLS", "shows", [], "closed the connection without an answer: if TLS is what it speaks, call it with https://"),
    ("TLS against none", "clear", ["--tls-ca", "CA"], "answers, but not in TLS: call it with http:// and without --tls-ca"),
]


@pytest.mark.parametrize("what,where,flags,told", REFUSALS, ids=[row[0] for row in REFUSALS])
def test_what_a_refusal_says(shared, what, where, flags, told):
    files = {"CA": shared.public.cert, "OTHER": shared.other.cert, "STRANGE": shared.strange[0], "STRANGE_KEY": shared.strange[1]}
    for command in ("status", "top", "trace"):
        done = baton(command, getattr(shared, where), *(files.get(word, word) for word in flags))
        lines = done.stderr.splitlines()
        assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith(f"baton {command}: ") and told in lines[0], done.stderr
        assert getattr(shared, where) in lines[0]


@pytest.mark.parametrize("command", ["status", "top"])
def test_an_address_without_figures_is_told_with_the_one_that_has(start_cluster, command):
    cluster = start_cluster()
    for address, why in ((json.loads(cluster.ready_file.read_text())["openai"], "answered 404 Not Found"), (cluster.grpc, "closed the connection without an answer")):
        done = baton(command, address)
        assert done.returncode == 1 and why in done.stderr, done.stderr
        assert done.stderr.endswith("(figures are at the address that `baton up` prints behind HTTP, --metrics-listen of baton-router)\n"), done.stderr


def test_a_servers_own_certificate_is_trusted_where_a_file_of_cas_holds_it(shared, monkeypatch):
    """And not among the machine's CAs."""
    assert baton("status", shared.shows, "--tls-ca", shared.cert).returncode == 0
    for cert, code in ((shared.public.cert, 0), (shared.cert, 1)):
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        done = baton("status", f"https://{shared.shows}")
        assert done.returncode == code and ("is not one to trust" in done.stderr) == (code == 1), done.stderr


@pytest.mark.parametrize("dates,told", [(["20200101000000Z", "20210101000000Z"], "has expired: renew it there"),
                                        (["20900101000000Z", "20910101000000Z"], "is not valid yet: look at both machines' clocks")])
def test_certificates_of_another_time(tmp_path, shared, dates, told):
    """A router would not start with them: openssl shows them."""
    cert, key = shared.public.issue_between("old", "IP:127.0.0.1", *dates)
    server = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", cert, "-key", key, "-www"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    line = next(line for line in server.stdout if line.startswith("ACCEPT"))
    done = baton("status", line.split()[1], "--tls-ca", shared.public.cert)
    server.terminate()
    server.wait(30)
    server.stdout.close()
    assert done.returncode == 1 and told in done.stderr, done.stderr


@pytest.mark.parametrize("flags,code,told", [
    (["--tls-cert", "CERT", "--tls-key", "KEY"], 2, "--tls-ca is missing"),
    (["--tls-ca", "CA", "--tls-cert", "CERT"], 2, "--tls-cert is given without --tls-key"),
    (["--tls-ca", "CA", "--http", "http://127.0.0.1:1"], 2, "http://127.0.0.1:1 is called without TLS, but CAs or a certificate are given for it"),
    (["--tls-ca", "/nowhere"], 1, "--tls-ca: cannot read /nowhere"),
    (["--api-key-file", "/nowhere"], 1, "--api-key-file /nowhere"),
    (["--http", "https://127.0.0.1:1/status"], 2, "and nothing stands behind it"),
])
def test_settings_that_say_too_little(shared, flags, code, told):
    files = {"CERT": shared.client[0], "KEY": shared.client[1], "CA": shared.public.cert}
    *others, address = flags if flags[-2:-1] == ["--http"] else [*flags, "--http", "127.0.0.1:1"]
    for command in ("status", "top", "trace"):
        done = baton(command, address, *(files.get(word, word) for word in others[:-1]))
        assert done.returncode == code and told in done.stderr, done.stderr


def test_the_longest_id_of_a_request(shared):
    """Each of its bytes takes three in a URL, and the choice comes behind it. An answer's has chatcmpl- before it."""
    done = baton("trace", shared.clear)
    assert "has had no request yet" in done.stderr
    for length, told in ((137, "knows no request"), (138, "no request has so long an id")):
        done = subprocess.run([BUILD / "bin/baton", "trace", "%" * length, "--choice", "15", "--http", shared.clear], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and told in done.stderr, done.stderr


class Guard(http.server.BaseHTTPRequestHandler):
    """A proxy before a router: it asks for a key, and answers with the router's answer."""
    def do_GET(self):  # noqa: N802
        good = self.headers.get("Authorization") == f"Bearer {self.server.key}"
        self.send_response(200 if good else 401)
        self.end_headers()
        self.wfile.write(self.server.answer if good else b"")

    def log_message(self, *arguments):
        pass


def test_a_key_is_sent_over_tls(tmp_path, shared):
    status = baton("status", shared.clear, "--json").stdout.encode()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shared.cert, shared.key)
    (tmp_path / "key").write_text("baton_right\n")
    (tmp_path / "other").write_text("baton_wrong\n")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        server.socket, server.key, server.answer = context.wrap_socket(server.socket, server_side=True), "baton_right", status
        threading.Thread(target=server.serve_forever, daemon=True).start()
        call = [f"https://127.0.0.1:{server.server_port}", "--tls-ca", shared.public.cert]
        without, wrong = baton("status", *call), baton("status", *call, "--api-key-file", tmp_path / "other")
        server.shutdown()
    assert "answered 401 Unauthorized: it asks for an API key" in without.stderr, without.stderr
    assert "answered 401 Unauthorized: it doesn't know this API key" in wrong.stderr, wrong.stderr


def test_chat_over_tls_with_a_key(tmp_path, start_cluster):
    key, line = new_key("ci")
    (tmp_path / "keys").write_text(line + "\n")
    (tmp_path / "key").write_text(key + "\n")
    world = World(tmp_path / "certificates", lambda flags, **options: start_cluster(flags=[*flags, "--api-keys", tmp_path / "keys"], **options))
    flags = [word for name, value in world.flags().items() for word in ("--" + name.replace("_", "-"), value)]

    def chat(*more):
        return subprocess.run([BUILD / "bin/baton", "chat", "--server", world.cluster.grpc, "--max-tokens", "5", *map(str, more)], input="To be\n", env=world.cluster.environment, capture_output=True, text=True, timeout=60)
    good = chat(*flags, "--api-key-file", tmp_path / "key")
    assert good.returncode == 0 and good.stdout.strip(), good.stderr
    assert "invalid_api_key" in chat(*flags).stderr and chat(*flags).returncode == 1
    assert "cannot reach a router" in chat("--api-key-file", tmp_path / "key").stderr


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802
        self.server.posts.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.mark.parametrize("case", ["taken", "another CA", "no certificate"])
def test_spans_over_tls(tmp_path, start_cluster, connect, shared, case):
    """The collector asks for a certificate; what it does not take is dropped, counted, and told with the sentence."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shared.cert, shared.key)
    context.load_verify_locations(shared.public.cert)
    context.verify_mode = ssl.CERT_REQUIRED
    settings = {"otlp-tls-ca": shared.other.cert if case == "another CA" else shared.public.cert}
    if case != "no certificate":
        settings.update({"otlp-tls-cert": shared.client[0], "otlp-tls-key": shared.client[1]})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        server.posts, server.handle_error = [], lambda *arguments: None
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"otlp-endpoint": f"https://127.0.0.1:{server.server_port}", **settings})
        connect(cluster).generate(PROMPT, max_tokens=2, ignore_eos=True)
        log = cluster.folder / "logs/router.log"
        if case == "taken":
            wait_until("the spans are here", lambda: server.posts, 20)
            assert server.posts[0][0] == "/v1/traces" and server.posts[0][1]["resourceSpans"]
            assert 'baton_tls_certificate_expiry_timestamp_seconds{for="otlp-tls"}' in cluster.metrics("router")
        else:
            wait_until("they are dropped", lambda: cluster.metrics("router")["baton_otlp_dropped_requests_total"] == 1, 20)
            assert {"another CA": "is not one to trust", "no certificate": "wants a client's certificate"}[case] in log.read_text(), log.read_text()
            assert "--otlp-tls-" in log.read_text() and not server.posts
        server.shutdown()


def test_a_collector_that_can_not_be_called_so(shared):
    done = subprocess.run([BUILD / "bin/baton-router", "--model", SHAKESPEARE, "--otlp-endpoint", "http://127.0.0.1:1", "--otlp-tls-ca", shared.public.cert], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "http://127.0.0.1:1 is called without TLS" in done.stderr, done.stderr
    done = subprocess.run([BUILD / "bin/baton-router", "--model", SHAKESPEARE, "--otlp-endpoint", "https://127.0.0.1:1", "--otlp-tls-name", "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--otlp-tls-name is given without --otlp-tls-ca" in done.stderr, done.stderr
