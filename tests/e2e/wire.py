"""HTTP/2 by hand: frames and headers as no library would send them, and what comes back."""
import select
import socket
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ERRORS = ["NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
          "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"]


def frame(kind, flags, stream, payload, length=None):
    return struct.pack(">I", len(payload) if length is None else length)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value, bits):
    """HPACK's integers, behind a first byte of zeros."""
    top = (1 << bits) - 1
    if value < top:
        return bytes([value])
    out, value = bytes([top]), value - top
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return integer(len(value), 7) + value


def hpack(headers):
    return b"".join(b"\0" + text(name) + text(value) for name, value in headers)


def call_headers(path, *more, **changed):
    """The headers of a gRPC call; changed: content_type=None leaves one out."""
    names = {"method": "POST", "scheme": "http", "path": path, "authority": "test", "te": "trailers", "content_type": "application/grpc"}
    names.update(changed)
    pseudo = {"method", "scheme", "path", "authority"}
    listed = [((":" if key in pseudo else "") + key.replace("_", "-"), value) for key, value in names.items() if value is not None]
    return hpack(listed + list(more))


def message(body, compressed=0, length=None):
    return bytes([compressed]) + struct.pack(">I", len(body) if length is None else length) + body


def call(path, data, *more, end=True, **changed):
    """One whole call on stream 1."""
    return (frame(HEADERS, END_HEADERS, 1, call_headers(path, *more, **changed)) +
            frame(DATA, END_STREAM if end else 0, 1, data))


def header(block, name):
    """The value of a literal header in a block that gRPC core wrote (it neither indexes nor compresses these); None: not there."""
    mark = bytes([len(name)]) + name.encode()
    if mark not in block:
        return None
    rest = block[block.index(mark) + len(mark):]
    return rest[1:1 + rest[0]].decode(errors="replace")


class Wire:
    def __init__(self, address, preface=None):
        """Without a preface of its own: a sound beginning, with the server's settings acknowledged."""
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.send(PREFACE + frame(SETTINGS, 0, 0, b"") if preface is None else preface)
        if preface is None:
            next(f for f in self.frames() if f[0] == SETTINGS and not f[1] & ACK)
            self.send(frame(SETTINGS, ACK, 0, b""))

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has closed already, which is an outcome

    def take(self, count):
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            data += more
        return data

    def frames(self):
        while (head := self.take(9)) is not None:
            body = self.take(int.from_bytes(head[:3], "big"))
            if body is None:
                return
            yield head[3], head[4], int.from_bytes(head[5:9], "big") & 0x7FFFFFFF, body

    def outcome(self):
        """Returns the end: 'closed', 'GOAWAY ...', 'RST_STREAM ...', 'STATUS REASON SENTENCE' of a call, or 'pong', if a PING is
        answered before any of these."""
        for kind, flags, _, body in self.frames():
            if kind == GOAWAY:
                return f"GOAWAY {ERRORS[int.from_bytes(body[4:8], 'big')]} {body[8:].decode(errors='replace')}".strip()
            if kind == RST_STREAM:
                return f"RST_STREAM {ERRORS[int.from_bytes(body, 'big')]}"
            if kind == PING and flags & ACK:
                return "pong"
            if kind == HEADERS and flags & END_STREAM:
                return " ".join(str(header(body, name)) for name in ("grpc-status", "baton-reason", "grpc-message"))
        return "closed"

    def push(self, stream, limit):
        """Sends data on a stream for as long as its windows let it and nothing ends it; returns how many bytes went."""
        sent, windows = 0, {0: 65535 - 100, stream: 65535 - 100}
        frames = self.frames()
        while sent < limit:
            while min(windows.values()) >= 16384 and not select.select([self.socket], [], [], 0)[0]:
                self.send(frame(DATA, 0, stream, b"x" * 16384))
                sent, windows = sent + 16384, {key: value - 16384 for key, value in windows.items()}
            kind, flags, number, body = next(frames, (GOAWAY, 0, 0, b""))
            if kind in (GOAWAY, RST_STREAM, HEADERS):
                break
            if kind == WINDOW_UPDATE:
                windows[number] += int.from_bytes(body, "big")
            elif kind == SETTINGS and not flags & ACK:
                for at in range(0, len(body), 6):
                    if body[at:at + 2] == b"\0\4":
                        windows[stream] += int.from_bytes(body[at + 2:at + 6], "big") - 65535
                self.send(frame(SETTINGS, ACK, 0, b""))
            elif kind == PING and not flags & ACK:
                self.send(frame(PING, ACK, 0, body))
        return sent

    def close(self):
        self.socket.close()
