"""The OpenAI-compatible door of a cluster: plain HTTP, so that tests see every byte."""
import http.client
import json
import re

SETTINGS = {"http-listen": "127.0.0.1:0"}


def address(cluster):
    """The HTTP door of a cluster started with SETTINGS, or of a bare router with --http-listen."""
    if hasattr(cluster, "front"):
        return cluster.front
    log = (cluster.folder / "logs/router.log").read_text()
    return re.search(r" http=(\S+) ", log).group(1)


class Reply:
    def __init__(self, answer):
        self.status, self.headers, self.body = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """(status, code, param)"""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"]
        return self.status, error["code"], error["param"]

    @property
    def frames(self):
        """The JSON of a stream's frames; [DONE] must be the last."""
        assert b"\r" not in self.body and self.headers["content-type"].startswith("text/event-stream")
        frames = self.body.decode().split("\n\n")
        assert frames[-2:] == ["data: [DONE]", ""] and all(frame.startswith("data: ") for frame in frames[:-1])
        return [json.loads(frame[6:]) for frame in frames[:-2]]


class Front:
    def __init__(self, cluster, key=None, tls=None):
        """key: sent with every request; tls: an ssl.SSLContext."""
        self.address, self.tls = address(cluster), tls
        self.headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}

    def connect(self, timeout=60):
        if self.tls:
            return http.client.HTTPSConnection(self.address, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(self.address, timeout=timeout)

    def ask(self, path, body=None, headers=()):
        """body: what json.dumps takes, or bytes as they are; None: GET."""
        connection = self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, body, {**self.headers, **dict(headers)})
        reply = Reply(connection.getresponse())
        connection.close()
        return reply

    def complete(self, prompt, headers=(), **more):
        return self.ask("/v1/completions", {"prompt": prompt, **more}, headers)

    def chat(self, text, **more):
        return self.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **more})
