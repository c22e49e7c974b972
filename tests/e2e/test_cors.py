"""Pages of other origins in a browser: which origins may read answers, and the browser's preflight requests."""
import http.client

import front
import pytest
from bare import Bare
from keys import new_key

PAGE = "https://app.example"


def ask(door, method, path, headers, body=None):
    connection = http.client.HTTPConnection(door.address, timeout=20)
    connection.request(method, path, body, headers)
    reply = front.Reply(connection.getresponse())
    connection.close()
    return reply


def allowed(reply):
    return reply.headers.get("access-control-allow-origin")


def router(*flags, stderr=None):
    return Bare("baton-router", "--http-listen", "127.0.0.1:0", "--worker-wait", "20ms", *flags, stderr=stderr)


def preflight(door, origin, path="/v1/chat/completions"):
    return ask(door, "OPTIONS", path, {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type,x-stainless-os"})


def test_pages_of_the_list_may_read_answers_and_errors():
    running = router("--http-cors-origins", f"http://localhost:3000, {PAGE}")
    try:
        door = front.Front(running)
        reply = preflight(door, PAGE)
        assert reply.status == 204 and allowed(reply) == PAGE and not reply.body
        assert reply.headers["access-control-allow-methods"] == "GET, POST" and reply.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
        assert "access-control-allow-credentials" not in reply.headers and reply.headers["vary"] == "Origin"
        page = {"origin": PAGE, "content-type": "application/json"}
        for status, path, body in ((200, "/v1/models", None), (404, "/v1/nothing", None), (405, "/v1/completions", None), (400, "/v1/completions", b"{"), (503, "/v1/completions", b'{"prompt": "a"}'),
                                   (503, "/v1/completions", b'{"prompt": "a", "stream": true}')):
            reply = ask(door, "GET" if body is None else "POST", path, page, body)
            assert (reply.status, allowed(reply)) == (status, PAGE) and "x-request-id" in reply.headers["access-control-expose-headers"], (path, reply.status)
        for other in ("https://evil.example", PAGE + ":444", "null", "http://app.example", PAGE + "/"):
            # Without keys on loopback they may not even ask.
            for reply in (preflight(door, other), ask(door, "GET", "/v1/models", {"origin": other})):
                assert reply.error[:2] == (403, "origin_not_allowed") and allowed(reply) is None
        unasked = ask(door, "GET", "/v1/models", {})  # and a cache mustn't give it to a page
        assert allowed(unasked) is None and unasked.headers["vary"] == "Origin"
    finally:
        assert not running.stop()


def test_all_or_none():
    for flags, told in ((("--http-cors-origins", "*"), "*"), ((), None)):
        running = router(*flags)
        try:
            door = front.Front(running)
            reply = ask(door, "GET", "/v1/models", {"origin": PAGE})
            assert (reply.status, allowed(reply)) == (200 if told else 403, told)
            reply = preflight(door, PAGE, "/v1/models")
            assert (reply.status, allowed(reply)) == ((204, "*") if told else (403, None)) and "vary" not in reply.headers
        finally:
            assert not running.stop()


def test_names_that_a_page_may_have_chosen():
    """DNS rebinding: a page's own name comes to mean 127.0.0.1, where both doors ask for no key."""
    running = router("--allowed-hosts", "api.example")
    try:
        api, status = front.Front(running), front.Front(running)
        status.address = running.http
        for door, path in ((api, "/v1/models"), (status, "/status"), (status, "/")):
            for host, expected in ((door.address, 200), ("localhost:1", 200), ("api.example", 200), ("evil.example", 403), (f"evil.example:{door.address.split(':')[1]}", 403)):
                assert ask(door, "GET", path, {"host": host}).status == expected, (path, host)
            assert ask(door, "GET", path, {"origin": "https://evil.example"}).status == 403
        told = ask(api, "GET", "/v1/models", {"host": "evil.example"})
        assert told.error[:2] == (403, "host_not_allowed") and "allowed-hosts" in told.json["error"]["message"]
        # A form of any page can post these without asking.
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"):
            assert ask(api, "POST", "/v1/completions", {"content-type": kind}, b'{"prompt": "a"}').error[:2] == (415, "unsupported_media_type")
    finally:
        assert not running.stop()


WARNED = "whatever page a browser shows may ask, without an API key"


def test_a_page_without_a_key_reads_that_it_needs_one(tmp_path):
    key, line = new_key("page")
    (tmp_path / "keys").write_text(line + "\n")
    with open(tmp_path / "log", "w") as log:
        running = router("--http-cors-origins", PAGE, "--api-keys", tmp_path / "keys", stderr=log)
    try:
        door = front.Front(running)
        reply = preflight(door, PAGE)
        assert (reply.status, allowed(reply)) == (204, PAGE)
        for headers, status in (({}, 401), ({"authorization": f"Bearer {key}"}, 200)):
            reply = ask(door, "GET", "/v1/models", {"origin": PAGE, **headers})
            assert (reply.status, allowed(reply)) == (status, PAGE)
            reply = ask(door, "GET", "/v1/models", {"origin": "https://evil.example", **headers})
            assert (reply.status, allowed(reply), reply.headers["vary"]) == (status, None, "Origin")
        reply = preflight(door, "https://evil.example")
        assert reply.status >= 400 and allowed(reply) is None
    finally:
        assert not running.stop()
    assert WARNED not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("origins,keyed", [("*", False), ("*", True), (PAGE, False)])
def test_who_lets_all_pages_ask_is_warned(tmp_path, origins, keyed):
    (tmp_path / "keys").write_text(new_key("page")[1] + "\n")
    with open(tmp_path / "log", "w") as log:
        running = router("--http-cors-origins", origins, *(["--api-keys", tmp_path / "keys"] if keyed else []), stderr=log)
    assert not running.stop()
    assert (WARNED in (tmp_path / "log").read_text()) == (origins == "*" and not keyed)
