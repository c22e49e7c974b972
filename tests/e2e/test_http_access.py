"""API keys at the HTTP door: which keys may ask, how much, the form of a refusal for OpenAI's clients, and which cached prompts are hit."""
import concurrent.futures
import random
import socket

import grpc
import openai
import pytest
from client import request
from front import Front
from harness import arm, failpoint, wait_until
from keys import Keyed, grow

MODEL = "tiny-shakespeare"
SHORT = dict(max_tokens=4, temperature=0, ignore_eos=True)
PROMPT = list(range(10, 60))


@pytest.fixture(scope="module")
def keys_of_file(tmp_path_factory):
    return tmp_path_factory.mktemp("keys") / "keys"


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """The failpoints of a shared cluster's router; each test arms its own."""
    path = tmp_path_factory.mktemp("points") / "points"
    path.write_text("")
    return path


@pytest.fixture
def doors(tmp_path, start_cluster, shared_cluster, keys_of_file):
    """make({"a": {flags}, ...}): a cluster that knows these keys, and the door of each; .cluster and .key are theirs. Tests without options of
    their own share one, whose file of keys grows, and so do those that say shared=True and have equal options."""
    def make(keys, shared=False, **more):
        shared = shared or not more
        path = keys_of_file if shared else tmp_path / "keys"
        made = grow(path, keys)
        cluster = (shared_cluster if shared else start_cluster)(flags=["--api-keys", path, "--log-level", "debug"], **more)
        fronts = []
        for key in made.values():
            Keyed(cluster.grpc, key).wait_known().close()
            fronts.append(Front(cluster, key))
            fronts[-1].cluster, fronts[-1].key = cluster, key
        return fronts
    return make


def rows(cluster, name):
    return cluster.total(name, "baton_prompt_tokens_computed_total") + cluster.total(name, "baton_decode_tokens_computed_total")


def test_a_light_tenant_passes_a_heavy_one_and_a_hopeless_deadline_costs_no_step(doors):
    """Most of the heavy tenant's 32 choices still wait or run when the light one's request, which came last, is done."""
    heavy, light = doors({"heavy": {}, "light": {}}, prefill=0, settings={"max-sequences": 8, "worker-keepalive": "60s"},
                         process_environment={"decode-0": failpoint("decode.after_tokens", "pause@3")})
    cluster, client, ended = heavy.cluster, Keyed(heavy.cluster.grpc, heavy.key), []
    calls = [client.start(PROMPT, n=16, max_tokens=150, ignore_eos=True, temperature=1) for _ in range(2)]

    def read(call):
        for response in call:
            if response.WhichOneof("event") == "finished":
                ended.append(response)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        reading = [pool.submit(read, call) for call in calls]
        # A call's other choices come behind its first token. Then the worker stands still until the second call is there, too.
        wait_until("choices of both calls have begun or wait", lambda: cluster.total("router", "baton_router_requests") >= 17, 60)
        cluster.failpoint_go("decode.after_tokens")
        assert light.complete("To be", **SHORT).status == 200
        ended_before = len(ended)
        for done in reading:
            done.result()
    client.close()
    assert len(ended) == 32 and ended_before <= 16, f"{ended_before} of the heavy tenant's choices went first"

    # The worker knows by now how long its steps take.
    def hopeless():
        before = rows(cluster, "decode-0")
        reply = light.complete("To be", {"x-request-timeout-ms": "100"}, max_tokens=1900, ignore_eos=True)
        assert reply.error[:2] == (504, "deadline") and rows(cluster, "decode-0") == before
        return "can't be met any more: 0 of 1900 tokens" in reply.json["error"]["message"]
    wait_until("the request comes to the worker within its deadline", hopeless, 60)


def package(door, key=None):
    return openai.OpenAI(base_url=f"http://{door.address}/v1", api_key=key or door.key, max_retries=0)


def test_what_needs_a_key(doors):
    ours, = doors({"ours": {}})
    nobody, wrong = Front(ours.cluster), Front(ours.cluster, "a-secret-of-somebody")
    posts = {"/v1/completions": {"prompt": "To be", **SHORT}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
             "/tokenize": {"prompt": "x"}, "/detokenize": {"tokens": [1]}}
    gets = ["/v1/models", f"/v1/models/{MODEL}"]
    for path in [*posts, *gets]:
        for door in (nobody, wrong):
            reply = door.ask(path, posts.get(path), {"x-request-id": "mine"})
            assert reply.error == (401, "invalid_api_key", None) and reply.json["error"]["type"] == "authentication_error", path
            assert reply.headers["www-authenticate"] == "Bearer" and reply.headers["x-should-retry"] == "false" and reply.headers["x-request-id"] == "mine"
        assert ours.ask(path, posts.get(path)).status == 200, path
    for path in ("/", "/health", "/ready", "/live", "/version"):
        assert nobody.ask(path).status == 200, path
    assert b"/v1/models" in nobody.ask("/").body and ours.cluster.http.encode() not in nobody.ask("/").body
    assert ours.ask("/metrics").error == (404, "not_found", None) == nobody.ask("/metrics").error  # series of all callers, for operators
    for bad in ({"authorization": ours.key}, {"authorization": "Basic " + ours.key}, {"authorization": "Bearer " + ours.key[:-1]}, {"authorization": "Bearer " + "x" * 4000}):
        assert nobody.ask("/v1/models", headers=bad).status == 401, bad
    assert nobody.ask("/v1/models", headers={"authorization": "bearer  " + ours.key}).status == 200
    with pytest.raises(openai.AuthenticationError) as caught:
        package(ours, "wrong").models.list()
    assert caught.value.code == "invalid_api_key"
    log = ours.cluster.logs(limit=10 ** 7)
    assert ours.key not in log and "a-secret-of-somebody" not in log


def test_who_has_no_key_sends_no_body(doors):
    """A body that is asked for by 100-continue is not asked for, and one of any length is not kept."""
    ours, = doors({"ours": {}})
    host, port = ours.address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 401 ")
    # Without being asked either: the head is enough, and the connection serves the next request behind a short body.
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")
        connection.sendall(b'{"prompt":"a"}GET /live HTTP/1.1\r\nHost: a\r\n\r\n')
        assert connection.recv(64).startswith(b"HTTP/1.1 200 ")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n")
        assert b"\r\nConnection: close\r\n" in connection.recv(4096)


def test_requests_of_a_minute(doors):
    few, many = doors({"few": {"requests_per_minute": 3}, "many": {}})
    assert few.complete("To be", **SHORT).status == 200 and few.ask("/tokenize", {"prompt": "a"}).status == 200
    for path in ("/v1/models", f"/v1/models/{MODEL}") * 3:  # lists of models are no use of it
        assert few.ask(path).status == 200
    assert few.ask("/v1/completions", b"no JSON").status == 400
    reply = few.complete("To be", **SHORT)
    assert reply.error == (429, "rate_limited", None) and reply.json["error"]["type"] == "rate_limit_error" and "3 requests a minute" in reply.json["error"]["message"]
    seconds = int(reply.headers["retry-after"])
    assert 1 <= seconds <= 20 and reply.headers["retry-after-ms"] == str(seconds * 1000) and reply.headers["x-should-retry"] == "true" and reply.headers["x-request-id"]
    with pytest.raises(openai.RateLimitError):
        package(few).completions.create(model=MODEL, prompt="To be")
    assert many.complete("To be", **SHORT).status == 200 and few.ask("/v1/models").status == 200
    assert few.ask("/health").status == 200


def test_tokens_of_a_minute(doors):
    """Reserved are all prompts, and max_tokens of all their answers; what was not used is given back at the end."""
    ours, = doors({"ours": {"tokens_per_minute": 300}})
    for body in (dict(prompt=PROMPT, max_tokens=251), dict(prompt=PROMPT, max_tokens=126, n=2), dict(prompt=[PROMPT, PROMPT], max_tokens=101)):
        reply = ours.ask("/v1/completions", body)
        assert reply.error[:2] == (429, "quota") and "300 tokens a minute" in reply.json["error"]["message"], body
        assert "retry-after" not in reply.headers and reply.headers["x-should-retry"] == "false"
    stop = ours.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "ignore_eos": True, "return_token_ids": True}).json
    first = stop["choices"][0]["token_ids"][:1]
    # 53 are used. Two prompts with 60 each reserve 220; of these 102 are used, since each answer ends at its first token: so two with 20 each still fit.
    for most in (60, 20):
        reply = ours.ask("/v1/completions", {"prompt": [PROMPT, PROMPT], "max_tokens": most, "temperature": 0, "stop_token_ids": first})
        assert reply.status == 200 and reply.json["usage"]["completion_tokens"] == 2, reply.body
    reply = ours.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 200})
    assert reply.error[:2] == (429, "rate_limited") and 1 <= int(reply.headers["retry-after"]) <= 60


def test_requests_at_once(doors):
    """Two streams take both places, until one of their clients leaves; by gRPC the key has the same two."""
    ours, other = doors({"ours": {"running": 2}, "other": {}})
    completions = package(ours).completions
    completions.create(model=MODEL, prompt="To be", max_tokens=1)  # the package's imports at its first call take longer than an answer
    streams = [completions.create(model=MODEL, prompt="To be", max_tokens=2000, temperature=1, stream=True, extra_body={"ignore_eos": True}) for _ in range(2)]
    reply = ours.complete("To be", **SHORT)
    assert reply.error[:2] == (429, "rate_limited") and "2 requests running at once" in reply.json["error"]["message"] and reply.headers["retry-after"] == "1"
    by_grpc = Keyed(ours.cluster.grpc, ours.key)
    with pytest.raises(Exception, match="2 requests running at once"):
        list(by_grpc.start("To be"))
    by_grpc.close()
    assert other.complete("To be", **SHORT).status == 200
    streams[0].close()
    wait_until("its place is free", lambda: ours.complete("To be", **SHORT).status == 200, 20)
    streams[1].close()


def test_one_after_the_other_is_never_more_than_one(doors):
    """The end gives the place back before its client can know of it, whatever the end is."""
    ours, = doors({"ours": {"running": 4}})  # as many as the largest body has choices
    bodies = [({"prompt": "To be", **SHORT}, 200), ({"prompt": ["To be", "or not"], "n": 2, "seed": 1, "max_tokens": 4}, 200), (b"no JSON", 400), ({"prompt": "x", "model": "none"}, 404),
              ({"prompt": PROMPT, "max_tokens": 10 ** 6}, 400), ({"prompt": "To be", "stream": True, **SHORT}, 200), (b"x" * (10 << 20), 413)]
    for round_ in range(5):
        for body, status in bodies:
            reply = ours.ask("/v1/completions", body)
            assert reply.status == status, (round_, reply.status, reply.body)


def test_a_body_that_never_comes_gives_its_place_back(doors):
    ours, = doors({"ours": {"running": 1}})
    host, port = ours.address.rsplit(":", 1)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer {ours.key}\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode())
        assert connection.recv(64).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"{")
        assert ours.complete("To be", **SHORT).status == 429
    wait_until("its place is free", lambda: ours.complete("To be", **SHORT).status == 200, 20)


def test_a_large_request_holds_up_no_other(doors):
    """With one thread for each door and one that reads large requests, which stands still: small requests go on over both doors. A text that can't fit isn't tokenized."""
    large, small = doors({"large": {}, "small": {}}, process_environment={"router": {**failpoint("doors.body", "pause"), "BATON_HTTP_THREADS": "1", "BATON_RPC_THREADS": "1"}})
    texts = ["O Romeo, " * 40000, "wherefore " * 40000]
    by_grpc = [Keyed(large.cluster.grpc, door.key) for door in (large, small)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(large.complete, texts[0], **SHORT)
        wait_until("it is read", large.cluster.failpoint_hits, 20)
        second = pool.submit(lambda: by_grpc[0].start(texts[1], **SHORT).code())
        for _ in range(5):
            assert small.complete("To be", **SHORT).status == 200
            assert len(list(by_grpc[1].start("To be", **SHORT))) > 1
        assert not first.done() and not second.done()
        large.cluster.failpoint_go("doors.body")
        assert first.result(60).error == (400, "context_length_exceeded", "prompt")
        assert second.result(60) == grpc.StatusCode.INVALID_ARGUMENT
    for client in by_grpc:
        client.close()


def test_large_messages_wait_in_a_quarter_of_the_memory(doors):
    """Of a receive-memory of 16 MiB a quarter is less than one largest message needs: that much is there. A second message of 3 MB is refused while the first is read, and finds room once the first is answered."""
    ours, = doors({"ours": {}}, process_environment={"router": {**failpoint("doors.body", "pause"), "BATON_RECEIVE_MEMORY": "16MiB"}})
    client, text = Keyed(ours.cluster.grpc, ours.key), "O Romeo, " * 350_000
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: client.start(text, **SHORT).code())
        wait_until("it is read", ours.cluster.failpoint_hits, 20)
        second = client.start(text, **SHORT)
        assert second.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "too many large requests wait" in second.details()
        assert len(list(client.start("To be", **SHORT))) > 1
        ours.cluster.failpoint_go("doors.body")
        assert first.result(60) == grpc.StatusCode.INVALID_ARGUMENT
    assert client.start(text, **SHORT).code() == grpc.StatusCode.INVALID_ARGUMENT
    client.close()


@pytest.mark.parametrize("size", [0, 300_000], ids=["small", "large"])
@pytest.mark.parametrize("point", ["doors.submit", "doors.submitted"])
def test_a_client_leaves_while_its_request_is_submitted(doors, points, point, size):
    """Large bodies are submitted beside the HTTP loop, which sees the client leave meanwhile: of a body with two prompts neither call is closed before it is submitted, and neither is forgotten. A small one is submitted on the loop."""
    ours, = doors({"ours": {}}, shared=True, process_environment={"router": {"BATON_FAILPOINTS": f"@{points}"}})
    pid, hits = ours.cluster.pids["router"], len(ours.cluster.failpoint_hits())
    ended = lambda: ours.cluster.total("router", "baton_router_requests_total")  # noqa: E731
    before = ended()
    ours.cluster.failpoint_go(point, False)
    arm(points, f"{point}=pause")
    body = b'{"prompt": ["To be", "or not"], "max_tokens": 1900, "ignore_eos": true}' + b" " * size  # longer than this client may be held up
    host, port = ours.address.rsplit(":", 1)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer {ours.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode() + body)
        wait_until("it is held", lambda: len(ours.cluster.failpoint_hits()) > hits, 20)
        arm(points, "")
        connection.shutdown(socket.SHUT_WR)
        if size:
            assert connection.recv(1) == b"", "the loop has not ended the exchange"
    ours.cluster.failpoint_go(point)
    wait_until("both calls have ended", lambda: ended() == before + 2, 20)
    wait_until("nothing is left", lambda: ours.cluster.total("router", "baton_router_requests") == 0, 20)
    assert ours.complete("To be", **SHORT).status == 200
    assert ours.cluster.pids["router"] == pid and ended() == before + 3


def test_priorities_and_classes(doors):
    classes = "name=chat,ttft=30s,name=vip,ttft=30s,priority=high"
    ours, chosen, member = doors({"ours": {}, "chosen": {"priorities": "high,normal"}, "member": {"classes": "vip"}},
                                 process_environment={"router": {"BATON_SLO_CLASS": classes, "BATON_SLO_DEFAULT": "chat"}})
    reply = ours.complete("To be", priority=-1, **SHORT)
    assert reply.error == (403, "priority_not_allowed", "priority") and reply.json["error"]["type"] == "permission_error"
    assert ours.complete("To be", priority=1, **SHORT).status == 200
    assert chosen.complete("To be", priority="high", **SHORT).status == 200
    with pytest.raises(openai.PermissionDeniedError):
        package(chosen).completions.create(model=MODEL, prompt="To be", extra_body={"priority": "offline"})
    # A key's list of classes bounds it, and brings their priorities; without one the key's own priorities bound it.
    reply = member.complete("To be", **SHORT)
    assert reply.error == (403, "slo_class_not_allowed", "slo_class") and "class chat, only vip" in reply.json["error"]["message"]
    assert member.complete("To be", headers={"x-baton-slo-class": "vip"}, **SHORT).status == 200
    assert member.complete("To be", slo_class="vip", priority="high", **SHORT).status == 200
    assert member.complete("To be", slo_class="nobody", **SHORT).error == (400, "slo_class_unknown", "slo_class")
    assert ours.complete("To be", slo_class="vip", **SHORT).error == (403, "priority_not_allowed", "priority")
    assert ours.complete("To be", slo_class="vip", priority="normal", **SHORT).status == 200
    client = Keyed(member.cluster.grpc, member.key)
    with pytest.raises(grpc.RpcError) as error:
        list(client.start("To be", **SHORT))
    client.close()
    assert error.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert dict(error.value.trailing_metadata())["baton-reason"] == "slo_class_not_allowed"


def test_a_tenant_hits_its_own_prompts_only(doors):
    """By both doors: keys of one tenant share what is cached; another tenant's prompt is computed anew, and its answer is the same."""
    first, second, other = doors({"first": {"tenant": "acme"}, "second": {"tenant": "acme"}, "other": {"tenant": "other"}})
    prompt = [random.Random(3).randrange(10, 60) for _ in range(256)]

    def ask(door):
        def hits():
            return sum(door.cluster.total(name, "baton_prefix_cache_hits_total") for name in ("prefill-0", "decode-0"))
        before = hits()
        reply = door.ask("/v1/completions", {"prompt": prompt, "seed": 4, "temperature": 1, "max_tokens": 12, "ignore_eos": True})
        assert reply.status == 200, reply.body
        return reply.json["choices"][0]["text"], hits() - before
    text, gained = ask(first)
    assert gained == 0
    shared, gained = ask(second)
    assert shared == text and gained > 0
    apart, gained = ask(other)
    assert apart == text and gained == 0
    by_grpc = Keyed(first.cluster.grpc, first.key)
    before = first.cluster.total("prefill-0", "baton_prefix_cache_hits_total")
    assert by_grpc.generate(prompt, seed=4, temperature=1, max_tokens=12, ignore_eos=True).text == text
    assert first.cluster.total("prefill-0", "baton_prefix_cache_hits_total") > before
    by_grpc.close()


def test_request_ids(doors):
    """One that a client sends comes back, on answers and on refusals of every kind, and is in the log; another is made up where it sends none, or none that is one."""
    ours, = doors({"ours": {}})
    asked = [("/v1/completions", {"prompt": "To be", **SHORT}, 200), ("/v1/completions", {"prompt": "To be", "stream": True, **SHORT}, 200), ("/v1/completions", b"no JSON", 400),
             ("/v1/models", None, 200), ("/v1/nothing", None, 404), ("/v1/completions", None, 405), ("/v1/completions", b"x" * (10 << 20), 413), ("/tokenize", {"prompt": "x"}, 200)]
    for index, (path, body, status) in enumerate(asked):
        name = f"trace-{index}"
        reply = ours.ask(path, body, {"x-request-id": name})
        assert (reply.status, reply.headers["x-request-id"]) == (status, name), path
        made = {ours.ask(path, body, headers).headers["x-request-id"] for headers in ({}, {"x-request-id": "two words"}, {"x-request-id": "x" * 129})}
        assert len(made) == 3 and all(len(name) == 32 for name in made), made
    text = ours.ask("/v1/completions", {"prompt": "To be", "n": 2, **SHORT}, {"x-request-id": "known"})
    assert text.json["id"] == "cmpl-known"
    assert "req=known" in ours.cluster.logs(limit=10 ** 7)
    calls = Keyed(ours.cluster.grpc, ours.key)
    call = calls.stub.Generate(request("To be", **SHORT), metadata=(*calls.metadata, ("x-request-id", "by-grpc")))
    list(call)
    assert dict(call.initial_metadata())["x-request-id"] == "by-grpc"
    calls.close()
