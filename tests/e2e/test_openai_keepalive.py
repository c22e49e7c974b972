"""Streams that are silent for long: comments, which keep proxies from taking them for dead, and which clients pass over."""
import json

import front
import openai
import pytest
from harness import failpoint, wait_until

COMMENT = b": keep-alive\n"
HELD = {"prefill-0": failpoint("prefill.taken", "pause@2")}  # the first prompt pairs the workers


def let_go(cluster):
    cluster.failpoint_go("prefill.taken")


@pytest.fixture
def door(start_cluster):
    cluster = start_cluster(settings={**front.SETTINGS, "http-keepalive": "100ms", "worker-keepalive": "30s"}, process_environment=HELD)
    door = front.Front(cluster)
    door.cluster = cluster
    assert door.complete("ROMEO:", max_tokens=2, seed=1).status == 200
    return door


def begin(door, **more):
    """The answer, as soon as its head has come."""
    connection = door.connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "ROMEO:", "max_tokens": 8, "seed": 5, "stream": True, **more}), door.headers)
    return connection.getresponse()


def test_a_long_prefill_is_not_silent(door):
    answer = begin(door)
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream") and answer.headers["x-request-id"]
    for _ in range(3):
        assert (answer.readline(), answer.readline()) == (COMMENT, b"\n")
    let_go(door.cluster)
    frames = [frame for frame in answer.read().split(b"\n\n") if frame and not frame.startswith(b":")]
    assert frames[-1] == b"data: [DONE]"
    text = "".join(json.loads(frame[6:])["choices"][0]["text"] for frame in frames[:-1])
    assert text == door.complete("ROMEO:", max_tokens=8, seed=5).json["choices"][0]["text"]


def test_packages_pass_over_comments(door):
    client = openai.OpenAI(base_url=f"http://{door.address}/v1", api_key="none")
    stream = client.completions.create(model="tiny-shakespeare", prompt="ROMEO:", max_tokens=8, seed=5, stream=True)  # returns at the first comment
    let_go(door.cluster)
    whole = client.completions.create(model="tiny-shakespeare", prompt="ROMEO:", max_tokens=8, seed=5)
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_what_fails_behind_a_comment_is_told_in_the_stream(door):
    connection = door.connect()
    body = {"prompt": ["ROMEO:", "JULIET:"], "n": 2, "max_tokens": 8, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {**door.headers, "x-request-timeout-ms": "700"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200 and body.count(COMMENT) >= 3
    assert b'"code":"deadline"' in body and body.endswith(b"data: [DONE]\n\n")
    late = door.complete("a", {"x-request-timeout-ms": "300"}, max_tokens=8)  # whole answers wait in silence
    assert late.error[:2] == (504, "deadline")
    let_go(door.cluster)
    wait_until("it serves", lambda: door.complete("a", max_tokens=1).status == 200, 20)


def test_a_silent_decode(start_cluster):
    cluster = start_cluster(settings={**front.SETTINGS, "http-keepalive": "100ms", "worker-keepalive": "30s"},
                            process_environment={"decode-0": failpoint("decode.after_tokens", "pause@3")})
    answer = begin(front.Front(cluster), ignore_eos=True)
    lines = [answer.readline()]
    while lines[-1] != COMMENT:
        lines.append(answer.readline())
    assert any(line.startswith(b"data: ") for line in lines), "it had begun"
    cluster.failpoint_go("decode.after_tokens")
    assert answer.read().endswith(b"data: [DONE]\n\n")


def test_none_is_sent_where_none_is_wanted(start_cluster):
    cluster = start_cluster(settings={**front.SETTINGS, "http-keepalive": "0", "worker-keepalive": "30s"}, process_environment=HELD)
    door = front.Front(cluster)
    assert door.complete("ROMEO:", max_tokens=2).status == 200
    reply = door.complete("ROMEO:", {"x-request-timeout-ms": "700"}, stream=True)
    assert reply.error[:2] == (504, "deadline"), "and so what fails still has a status of its own"
    let_go(cluster)
