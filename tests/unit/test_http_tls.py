"""TLS of the HTTP server, seen by other people's clients: openssl s_client and Python's ssl, with certificates that openssl makes here."""
import concurrent.futures
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import time

import pytest

PROBE = pathlib.Path(os.environ["BATON_BUILD"]) / "tests/http_probe"
REQUEST = b"GET /now HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def openssl(*arguments, **more):
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60, **more)


def make_ca(folder, name):
    done = openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", folder / f"{name}.key",
                   "-out", folder / f"{name}.pem", "-subj", f"/CN={name}", "-days", 2)
    assert done.returncode == 0, done.stderr


def make_pair(folder, name, ca):
    """NAME.pem, NAME.key, signed by CA, for localhost."""
    request = folder / f"{name}.csr"
    done = openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", folder / f"{name}.key", "-out", request, "-subj", f"/CN={name}")
    assert done.returncode == 0, done.stderr
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    done = openssl("x509", "-req", "-in", request, "-CA", folder / f"{ca}.pem", "-CAkey", folder / f"{ca}.key", "-CAcreateserial", "-out", folder / f"{name}.pem", "-days", 2,
                   "-extfile", extensions)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    for ca in ("ca", "other-ca"):
        make_ca(folder, ca)
    for name, ca in (("first", "ca"), ("second", "ca"), ("client", "ca"), ("stranger", "other-ca")):
        make_pair(folder, name, ca)
    return folder


class Probe:
    """A server; its log is in `log`."""

    def __init__(self, folder, *arguments):
        self.log = folder / "probe.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([PROBE, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline().strip()
        assert line, self.log.read_text()
        self.host, port = line.split(":")
        self.port = int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0, self.log.read_text()

    def wait_log(self, text):
        deadline = time.monotonic() + 20
        while text not in self.log.read_text():
            assert time.monotonic() < deadline, self.log.read_text()


def serve(made, folder, name="first", *more):
    """With copies of NAME's pair, so that a test may replace them."""
    for kind in ("pem", "key"):
        shutil.copy(made / f"{name}.{kind}", folder / f"server.{kind}")
    return Probe(folder, folder / "server.pem", folder / "server.key", *more)


def context(made, client=None):
    made_context = ssl.create_default_context(cafile=str(made / "ca.pem"))
    if client:
        made_context.load_cert_chain(made / f"{client}.pem", made / f"{client}.key")
    return made_context


def connect(probe, tls):
    return tls.wrap_socket(socket.create_connection((probe.host, probe.port), timeout=20), server_hostname="localhost")


def read_all(connection):
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def ask(probe, tls, request=REQUEST):
    with connect(probe, tls) as connection:
        connection.sendall(request)
        return read_all(connection)


def subject_of(connection):
    return dict(pair for part in connection.getpeercert()["subject"] for pair in part)["commonName"]


def s_client(probe, *arguments):
    return openssl("s_client", "-connect", f"{probe.host}:{probe.port}", *arguments, input="")


def test_requests_and_streams(made, tmp_path):
    with serve(made, tmp_path) as probe:
        tls = context(made)
        assert ask(probe, tls).endswith(b"\r\n\r\nnow\n")
        body = os.urandom(3 << 20)
        answer = ask(probe, tls, b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert answer.endswith(body)
        answer = ask(probe, tls, b"GET /stream?3000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert [int(line[6:]) for line in answer.split(b"\n") if line.startswith(b"data: ")] == list(range(3000))
        with connect(probe, tls) as connection:  # kept alive, and pipelined
            connection.sendall(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n" * 20 + REQUEST)
            assert read_all(connection).count(b"now\n") == 21


def test_what_is_old_is_refused(made, tmp_path):
    with serve(made, tmp_path) as probe:
        for version, good in (("-tls1", False), ("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)):
            done = s_client(probe, version, "-cipher", "DEFAULT:@SECLEVEL=0")
            assert (done.returncode == 0 and "BEGIN CERTIFICATE" in done.stdout) == good, version + done.stdout + done.stderr
        for cipher in ("AES128-SHA", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "NULL", "aNULL"):
            assert s_client(probe, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0").returncode != 0, cipher
        assert s_client(probe, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256").returncode == 0


def test_protocols(made, tmp_path):
    with serve(made, tmp_path) as probe:
        assert "ALPN protocol: http/1.1" in s_client(probe, "-alpn", "h2,http/1.1").stdout
        assert "No ALPN negotiated" in s_client(probe).stdout
        assert s_client(probe, "-alpn", "h2").returncode != 0


def test_nothing_is_resumed_or_renegotiated(made, tmp_path):
    with serve(made, tmp_path) as probe:
        first = s_client(probe, "-tls1_2")
        assert "Secure Renegotiation IS supported" in first.stdout and "TLS session ticket:" not in first.stdout
        done = openssl("s_client", "-connect", f"{probe.host}:{probe.port}", "-tls1_2", "-reconnect", input="")
        assert "Reused" not in done.stdout


def test_who_speaks_no_tls_is_closed(made, tmp_path):
    with serve(made, tmp_path) as probe:
        with socket.create_connection((probe.host, probe.port), timeout=20) as plain:
            plain.sendall(REQUEST)
            try:
                assert b"HTTP" not in plain.recv(65536)
            except ConnectionResetError:
                pass
        assert ask(probe, context(made)).endswith(b"now\n")


def test_clients_must_show_a_certificate(made, tmp_path):
    with serve(made, tmp_path, "first", made / "ca.pem") as probe:
        assert ask(probe, context(made, "client")).endswith(b"now\n")
        for wrong in (None, "stranger"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                answer = ask(probe, context(made, wrong))
                raise AssertionError(answer)


def test_a_new_pair_is_taken_over_without_a_failed_request(made, tmp_path):
    with serve(made, tmp_path) as probe:
        tls = context(made)
        stop = tmp_path / "stop"

        def load():
            asked = 0
            with connect(probe, tls) as kept:
                while not stop.exists():
                    kept.sendall(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n")
                    answer = b""
                    while not answer.endswith(b"now\n"):
                        piece = kept.recv(65536)
                        assert piece
                        answer += piece
                    assert ask(probe, tls).endswith(b"now\n")
                    asked += 2
                return asked, subject_of(kept)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            loads = [pool.submit(load) for _ in range(3)]
            try:
                for round_, name in enumerate(("second", "first", "second")):
                    for kind in ("pem", "key"):  # one after the other: between them they don't fit, and the old ones stay
                        fresh = tmp_path / "fresh"
                        shutil.copy(made / f"{name}.{kind}", fresh)
                        fresh.rename(tmp_path / f"server.{kind}")
                    seen = None
                    deadline = time.monotonic() + 20
                    while seen != name:
                        with connect(probe, tls) as connection:
                            seen = subject_of(connection)
                        assert time.monotonic() < deadline, round_
            finally:
                stop.touch()
            results = [one.result(timeout=60) for one in loads]
        assert all(asked > 0 and subject == "first" for asked, subject in results), results


def test_a_pair_that_cannot_be_used_leaves_the_old_one(made, tmp_path):
    with serve(made, tmp_path) as probe:
        tls = context(made)
        shutil.copy(made / "second.key", tmp_path / "server.key")
        probe.wait_log("those before stay")
        assert "server.key is not that of the certificate" in probe.log.read_text()
        with connect(probe, tls) as connection:
            assert subject_of(connection) == "first"
        (tmp_path / "server.pem").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
        probe.wait_log("is not readable PEM")
        assert ask(probe, tls).endswith(b"now\n")
        shutil.copy(made / "second.pem", tmp_path / "server.pem")
        probe.wait_log("version=2")
        with connect(probe, tls) as connection:
            assert subject_of(connection) == "second"


@pytest.mark.parametrize("arguments,wrong", [
    (("none.pem", "first.key"), "none.pem"),
    (("first.pem", "none.key"), "none.key"),
    (("first.pem", "second.key"), "second.key"),
    (("first.key", "first.key"), "first.key"),
    (("first.pem", "first.key", "first.key"), "first.key"),
    (("first.pem", ""), "--tls-cert is given without --tls-key: both or neither"),
])
def test_files_that_cannot_be_used_are_told_at_start(made, arguments, wrong):
    done = subprocess.run([PROBE, *(str(made / name) if name else "" for name in arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 1
    assert "http_probe: " in done.stderr and wrong in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_the_failpoint_keeps_the_certificate_before(made, tmp_path):
    os.environ.update(BATON_FAILPOINTS="tls.files=fail@2", BATON_FAILPOINTS_ALLOW="1")
    try:
        probe = serve(made, tmp_path)
    finally:
        del os.environ["BATON_FAILPOINTS"], os.environ["BATON_FAILPOINTS_ALLOW"]
    with probe:
        tls = context(made)
        for round_, name, seen in ((2, "second", "first"), (3, "client", "client")):
            for kind in ("pem", "key"):
                shutil.copy(made / f"{name}.{kind}", tmp_path / f"server.{kind}")
            probe.wait_log(f"for=tls version={round_}")
            with connect(probe, tls) as connection:
                assert subject_of(connection) == seen
        assert "TLS goes on with the certificate that it had" in probe.log.read_text()
