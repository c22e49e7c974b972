"""The lane tcp of KV bytes, spoken by hand (common/kv/transport/kv_frame.h): what a reader may ask, and what a stranger may try."""
import dataclasses
import pathlib
import re
import socket
import struct

TOP = pathlib.Path(__file__).resolve().parents[2]
VERSION = int(re.search(r"KV_FRAME_VERSION (\d+)", (TOP / "common/kv/transport/kv_frame.h").read_text())[1])
HELLO, WELCOME, ASK, ANSWER = 1, 2, 3, 4
FRAME_BYTES = 40
ADMITTED, NOT_ADMITTED = 1, 2


@dataclasses.dataclass
class Address:
    """What a Peer stream's Welcome says of the pool (kv_address.h)."""
    host: str
    port: int
    admission: int
    secret: bytes
    pool_bytes: int

    @classmethod
    def of(cls, encoded):
        admission, secret, _, _, pool_bytes, version, port = struct.unpack_from("<Q16sQQQHH", encoded, 20)
        family, size = (socket.AF_INET, 4) if version == 4 else (socket.AF_INET6, 16)
        return cls(socket.inet_ntop(family, encoded[72:72 + size]), port, admission, secret, pool_bytes)


def frame(kind, a=0, b=0, c=0, d=0):
    return b"BKVL" + struct.pack("<HHQQQQ", VERSION, kind, a, b, c, d)


class Closed(Exception):
    """The owner has closed the connection."""


class Lane:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port), timeout=20)

    def close(self):
        self.socket.close()

    def take(self, count):
        taken = bytearray()
        while len(taken) < count:
            try:
                part = self.socket.recv(min(count - len(taken), 1 << 20))
            except ConnectionResetError:
                part = b""
            if not part:
                raise Closed(f"after {len(taken)} of {count} bytes")
            taken += part
        return bytes(taken)

    def take_frame(self):
        magic, version, kind, *fields = struct.unpack("<4sHHQQQQ", self.take(FRAME_BYTES))
        assert (magic, version) == (b"BKVL", VERSION)
        return kind, fields

    def hello(self, admission, secret):
        """The verdict, and the bytes of the pool as a reader is told them."""
        self.socket.sendall(b"BKVL" + struct.pack("<HHQ16sQ", VERSION, HELLO, admission, secret, 0))
        kind, (verdict, _, pool_bytes, _) = self.take_frame()
        assert kind == WELCOME
        return verdict, pool_bytes

    def ask(self, offset, count, grant=0):
        """(refused, bytes)"""
        self.socket.sendall(frame(ASK, 7, offset, count, grant))
        kind, (number, told, refused, _) = self.take_frame()
        assert (kind, number, told) == (ANSWER, 7, count)
        return bool(refused), self.take(count)


def admitted(address):
    """A lane that the owner of this Address has admitted."""
    lane = Lane(address.host, address.port)
    assert lane.hello(address.admission, address.secret) == (ADMITTED, address.pool_bytes)
    return lane
