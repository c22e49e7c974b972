"""HTTP/1.1 by hand: bytes as no library would send them, and answers down to their chunks."""
import json
import socket


class Answer:
    """status, headers (lower case), body; chunks: what a chunked body came in, else empty."""

    def __init__(self, file):
        line = file.readline()
        self.status = int(line.split()[1]) if line else None  # None: the connection was closed
        self.headers, self.chunks, self.body = {}, [], b""
        while line and (field := file.readline().strip()):
            name, _, value = field.decode("latin-1").partition(":")
            self.headers[name.lower()] = value.strip()
        if self.status == 100:  # and what it announces
            self.__init__(file)
            self.continued = True
        elif self.headers.get("transfer-encoding") == "chunked":
            while size := int(file.readline(), 16):
                self.chunks.append(file.read(size))
                file.readline()
            file.readline()
            self.body = b"".join(self.chunks)
        elif "content-length" in self.headers:
            self.body = file.read(int(self.headers["content-length"]))

    continued = False

    @property
    def error(self):
        """The error's members, in OpenAI's shape."""
        error = json.loads(self.body)["error"]
        assert isinstance(error, dict) and set(error) == {"message", "type", "param", "code"}, error
        return error


def exchange(address, data, count=1, timeout=30):
    """Sends the bytes on a connection of their own; the answers to them, or None for what was closed without one."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered already
        with connection.makefile("rb") as file:
            answers = [Answer(file) for _ in range(count)]
    return answers[0] if count == 1 else answers


def post(path, body, *fields, length=None):
    """A whole request, of JSON unless a field says otherwise. length=None: the body's."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body) if length is None else length}", *fields]
    if not any(field.lower().startswith("content-type:") for field in fields):
        head.append("Content-Type: application/json")
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body
