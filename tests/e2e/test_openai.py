"""The OpenAI-compatible door with the openai package as its users write it, and with bare HTTP: the traps that clients of other servers
fell into, errors, streams, and that an answer is the same by gRPC."""
import json
import re

import front
import openai
import pytest
from harness import wait_until

MODEL = "tiny-shakespeare"


@pytest.fixture
def door(start_cluster):
    cluster = start_cluster(settings=front.SETTINGS)
    door = front.Front(cluster)
    door.cluster = cluster
    door.client = openai.OpenAI(base_url=f"http://{door.address}/v1", api_key="none")
    return door


def completions(door):
    client = door.client
    assert [m.id for m in client.models.list()] == [MODEL] and client.models.retrieve(MODEL).object == "model"
    whole = client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=12, seed=5)
    assert whole.object == "text_completion" and whole.choices[0].finish_reason == "length" and whole.id.startswith("cmpl-")
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (2, 12, 14)
    chunks = list(client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=12, seed=5, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks[:-1]) == whole.choices[0].text
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage and all(c.usage is None for c in chunks[:-1])
    assert chunks[-2].choices[0].finish_reason == "length" and {c.id for c in chunks} == {chunks[0].id}
    several = client.completions.create(model=MODEL, prompt=["ROMEO:", [849, 28]], n=2, max_tokens=6, seed=5, echo=True)
    texts = [c.text for c in several.choices]
    assert [c.index for c in several.choices] == [0, 1, 2, 3] and texts[:2] == texts[2:] and texts[0] != texts[1]
    assert all(text.startswith("ROMEO:") for text in texts) and several.usage.prompt_tokens == 4
    scored = client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=3, temperature=0, echo=True, logprobs=2).choices[0]
    assert "".join(scored.logprobs.tokens) == scored.text and scored.logprobs.token_logprobs[0] is None
    assert scored.logprobs.text_offset == [sum(map(len, scored.logprobs.tokens[:i])) for i in range(5)]
    told = list(zip(scored.logprobs.tokens, scored.logprobs.token_logprobs, scored.logprobs.top_logprobs))[1:]
    assert all(len(top) in (2, 3) and top[token] == logprob for token, logprob, top in told)
    unlikely = client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=40, temperature=2, seed=3, logprobs=1).choices[0].logprobs
    assert {len(top) for top in unlikely.top_logprobs} == {1, 2} and all(token in top for token, top in zip(unlikely.tokens, unlikely.top_logprobs))
    for stream in (False, True):  # a prompt of one token: what is told of it is null
        asked = dict(model=MODEL, prompt=[849], max_tokens=2, temperature=0, echo=True, logprobs=1, stream=stream)
        made = [part.choices[0] for part in (client.completions.create(**asked) if stream else [client.completions.create(**asked)])]
        made = [[value for part in made if part.logprobs for value in getattr(part.logprobs, name)] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")]
        tokens, logprobs, tops, offsets = made
        assert tokens[0] == "ROMEO" and len(tokens) == 3 and offsets == [0, 5, 5 + len(tokens[1])], made
        assert (logprobs[0], tops[0]) == (None, None) and None not in logprobs[1:] + tops[1:]
    alone = client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=0, temperature=0, echo=True, logprobs=2)
    choice = alone.choices[0]
    assert choice.text == "ROMEO:" and choice.finish_reason == "length" and (alone.usage.prompt_tokens, alone.usage.completion_tokens) == (2, 0)
    assert choice.logprobs.token_logprobs == scored.logprobs.token_logprobs[:2] and choice.logprobs.top_logprobs == scored.logprobs.top_logprobs[:2]


def chats(door):
    client, messages = door.client, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Speak."}]}]
    whole = client.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=10, seed=1, logprobs=True, top_logprobs=2)
    choice = whole.choices[0]
    assert whole.object == "chat.completion" and choice.message.role == "assistant" and choice.message.tool_calls is None
    assert len(choice.logprobs.content) == 10 and all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)
    assert bytes(b for token in choice.logprobs.content for b in token.bytes).decode() == choice.message.content
    chunks = list(client.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=10, seed=1, stream=True, n=2))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content
    for index in range(2):
        mine = [c.choices[0] for c in chunks if c.choices[0].index == index]
        assert mine[-1].finish_reason == "length" and [c.delta.role for c in mine].count("assistant") == 1
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices[0].index == 0) == choice.message.content
    with client.chat.completions.stream(model=MODEL, messages=messages, max_tokens=5, seed=1) as stream:
        assert choice.message.content.startswith("".join(event.delta for event in stream if event.type == "content.delta"))


def errors(door):
    client = door.client
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-4", prompt="a")
    assert caught.value.code == "model_not_found" and MODEL in caught.value.message and caught.value.param == "model"
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="a", max_tokens=100000)
    assert caught.value.code == "context_length_exceeded" and caught.value.request_id
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    assert caught.value.code == "unsupported_parameter" and caught.value.param == "messages[0].content[0].type"
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model=MODEL, input="a")
    ended = lambda: door.cluster.total("router", "baton_router_requests_total", status="deadline")  # noqa: E731
    before = ended()
    with pytest.raises(openai.InternalServerError) as caught:  # and sent once: x-should-retry is false
        client.completions.create(model=MODEL, prompt="a", max_tokens=1500, extra_body={"ignore_eos": True}, extra_headers={"x-request-timeout-ms": "50"})
    assert caught.value.status_code == 504 and caught.value.code == "deadline" and ended() == before + 1


def cancelling(door):
    cluster = door.cluster
    idle = {name: {"used": 0, "pinned": 0, "landing": 0} for name in ("prefill-0", "decode-0")}
    stream = door.client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    wait_until("the decode worker holds it", lambda: cluster.blocks("decode-0")["used"], 20)  # the first token is the prefill worker's
    stream.close()
    wait_until("the workers have let go of it", lambda: {name: {k: cluster.blocks(name)[k] for k in idle[name]} for name in idle} == idle, 20)


def ids_by_http(door, answer, asked):
    """return_token_ids: those of the same answer by gRPC, whole and streamed, with logprobs and without; of several answers each has its own."""
    prompt = door.ask("/tokenize", {"prompt": "JULIET:"}).json["tokens"]
    for more in ({}, {"logprobs": 1}, {"n": 2}, {"echo": True, "logprobs": 0}):
        choices = door.complete("JULIET:", return_token_ids=True, **asked, **more).json["choices"]
        frames = door.complete("JULIET:", return_token_ids=True, stream=True, **asked, **more).frames
        for choice in choices:
            assert choice["prompt_token_ids"] == prompt and len(choice["token_ids"]) == 20
            parts = [part for frame in frames for part in frame["choices"] if part["index"] == choice["index"]]
            assert ["prompt_token_ids" in part for part in parts] == [True] + [False] * (len(parts) - 1) and parts[0]["prompt_token_ids"] == prompt
            assert [id for part in parts for id in part.get("token_ids", [])] == choice["token_ids"]
            assert "".join(part["text"] for part in parts) == choice["text"]
        assert choices[0]["token_ids"] == answer.ids
    chat = door.chat("Speak.", max_tokens=8, seed=1, return_token_ids=True).json
    frames = door.chat("Speak.", max_tokens=8, seed=1, return_token_ids=True, stream=True).frames
    assert chat["prompt_token_ids"] == frames[0]["prompt_token_ids"] == door.ask("/tokenize", {"messages": [{"role": "user", "content": "Speak."}]}).json["tokens"]
    assert [id for frame in frames for id in frame["choices"][0].get("token_ids", [])] == chat["choices"][0]["token_ids"] and len(chat["choices"][0]["token_ids"]) == 8
    assert all("token_ids" not in part for part in door.complete("a", max_tokens=2).json["choices"])


def by_grpc(door, connect):
    """The same bytes, and one validator: the same sentence for the same mistake."""
    client = connect(door.cluster)
    asked = {"max_tokens": 20, "seed": 11, "temperature": 0.9, "top_p": 0.9, "presence_penalty": 0.5, "logit_bias": {28: 2}}
    answer = client.generate("JULIET:", **asked)
    reply = door.complete("JULIET:", **{**asked, "logit_bias": {"28": 2}})
    assert reply.json["choices"][0]["text"] == answer.text and answer.text
    ids_by_http(door, answer, {**asked, "logit_bias": {"28": 2}})
    with pytest.raises(Exception) as caught:
        client.generate("JULIET:", temperature=-1)
    assert door.complete("JULIET:", temperature=-1).json["error"]["message"] in str(caught.value)


TAKEN = [
    {}, {"stop": None, "logprobs": None, "seed": None, "user": None, "n": None}, {"unheard_of": {"of": [1]}}, {"stop": ["q", None]}, {"user": "u", "metadata": {"a": "b"}},
    {"store": False, "service_tier": "auto"}, {"temperature": 0}, {"temperature": 0, "top_p": 1}, {"seed": 2**64 - 1}, {"seed": -5}, {"max_tokens": 2.0}, {"priority": 5},
    {"logit_bias": {}}, {"logit_bias": {"5": -100}}, {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}, {"ignore_eos": True, "min_tokens": 1},
    {"stream_options": {"include_usage": False}}, {"response_format": {"type": "text"}}, {"prompt": ["a"]}, {"prompt": [[849, 28]]}, {"best_of": 1},
]


def traps(door):
    for more in TAKEN:
        reply = door.ask("/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 1, **more})
        assert reply.status == 200, (more, reply.body)
    assert door.complete("a", {"x-request-id": "my-own.1"}, max_tokens=1).headers["x-request-id"] == "my-own.1"
    assert door.complete("a", {"x-request-id": "with blanks"}, max_tokens=1).headers["x-request-id"] != "with blanks"
    assert door.chat("Speak.", max_tokens=1, tools=[], tool_choice="none").status == 200
    assert door.chat("Speak.", max_tokens=1, tools=[{"type": "function", "function": {"name": "f"}}]).error[:2] == (400, "unsupported_parameter")
    streamed = door.complete("a", stream=True, max_tokens=3, seed=1, stream_options={"include_usage": True, "continuous_usage_stats": True}).frames
    assert {frame["object"] for frame in streamed} == {"text_completion"} and all(frame["usage"]["prompt_tokens"] == 1 for frame in streamed)
    assert [len(frame["choices"]) for frame in streamed] == [1] * (len(streamed) - 1) + [0]
    # A stop string may end it at any time: it is not refused for its length.
    late = (door.complete("a", {"x-request-timeout-ms": ms}, stream=True, max_tokens=1900, ignore_eos=True, stop=["no such text"]) for ms in ("400", "1000", "2500"))
    late = next(reply for reply in late if reply.status == 200).body.decode()  # a busy machine may take longer to begin
    assert '"code":"deadline"' in late and late.endswith("data: [DONE]\n\n")  # it had begun: an error frame


def around(door):
    tokens = door.ask("/tokenize", {"prompt": "ROMEO:", "return_token_strs": True}).json
    assert tokens == {"count": 2, "max_model_len": 2048, "tokens": [849, 28], "token_strs": ["ROMEO", ":"]}
    assert door.ask("/detokenize", {"tokens": tokens["tokens"]}).json == {"prompt": "ROMEO:"}
    counted = door.ask("/tokenize", {"messages": [{"role": "user", "content": "Speak."}]}).json["count"]
    assert door.chat("Speak.", max_tokens=1).json["usage"]["prompt_tokens"] == counted
    for path in ("/health", "/ready", "/live", "/metrics", "/version", "/v1/models", f"/v1/models/{MODEL}"):
        assert door.ask(path).status == 200, path
    root = door.ask("/")
    assert root.status == 200 and b"/v1/models" in root.body and re.search(rb"Status page: http://127\.0\.0\.1:\d+/\n", root.body), root.body
    assert b"baton_router_requests_total" in door.ask("/metrics").body and door.ask("/version").json["version"]
    for meant in ("/chat/completions", "/v1/v1/chat/completions", "/v1/chat/completion", "/v1/chat/completions/"):
        assert "did you mean '/v1/chat/completions'?" in door.ask(meant, {}).json["error"]["message"]
    assert "did you mean '/v1/models'?" in door.ask("/v1/models/").json["error"]["message"]
    assert "use /v1/chat/completions" in door.ask("/v1/responses", {"input": "a"}).json["error"]["message"]
    late = door.complete("a", {"x-request-timeout-ms": "abc"}, max_tokens=1)
    assert late.error == (400, "malformed", None) and 'between 1 and 4294967295, got "abc"' in late.json["error"]["message"]
    assert door.ask("/v1/nothing").error[:2] == (404, "not_found") and door.ask("/v1/completions").error[:2] == (405, "method_not_allowed")


def test_the_openai_package_and_bare_http(door, connect):
    completions(door)
    chats(door)
    errors(door)
    cancelling(door)
    by_grpc(door, connect)
    traps(door)
    around(door)


def test_a_router_without_decode_workers_is_not_ready(start_cluster):
    cluster = start_cluster(settings={**front.SETTINGS, "worker-wait": "100ms"}, restart=True)
    door = front.Front(cluster)
    cluster.kill("decode-0", 19)  # stopped: neither dead nor alive
    wait_until("nobody is ready", lambda: door.ask("/ready").status == 503, 30)
    assert door.ask("/live").status == 200
    reply = door.complete("a", max_tokens=1)
    assert reply.error[:2] == (503, "no_workers") and reply.headers["retry-after"] == "1" and reply.headers["x-should-retry"] == "true"
    cluster.kill("decode-0", 18)
    wait_until("it is back", lambda: json.loads(door.complete("a", max_tokens=1).body).get("choices"), 30)
