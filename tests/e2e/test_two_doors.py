"""The same request has the same answer by gRPC and by HTTP, and the same mistake the same code: one table of each, sent to both doors, streamed and not."""
import json
import re

import front
import grpc
import pytest
from client import pb, reason_of, request

ENDS = {pb.FINISH_REASON_EOS: "stop", pb.FINISH_REASON_STOP_TOKEN: "stop", pb.FINISH_REASON_STOP_STRING: "stop", pb.FINISH_REASON_COMPLETE: "stop",
        pb.FINISH_REASON_MAX_TOKENS: "length", pb.FINISH_REASON_CONTEXT: "length"}
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["name", "age"]}
LONG = "But soft, what light through yonder window breaks? " * 12
NUL = 191  # the token of the byte 0
PRIORITIES = {"normal": pb.PRIORITY_NORMAL, "high": pb.PRIORITY_HIGH, "offline": pb.PRIORITY_OFFLINE}
# Prompt, and what is asked for by the names of both doors; those that differ are told apart below.
EQUAL = [
    ("ROMEO:", dict(temperature=0)),
    ("ROMEO:", dict(seed=1)),
    ("ROMEO:", dict(seed=2**64 - 1, max_tokens=30)),
    ([20, 21, 22], dict(seed=3, max_tokens=8)),
    ([20, 21, 22], dict(seed=3, max_tokens=8, echo=True)),
    ("naïve \u2019tis \U0001f642", dict(seed=5, max_tokens=12, echo=True)),
    (LONG, dict(seed=6, max_tokens=20)),
    (LONG, dict(seed=6, max_tokens=3, echo=True, logprobs=2, prompt_logprobs=2)),
    ("ROMEO:", dict(seed=7, temperature=1.5, top_k=20, top_p=0.9, min_p=0.01, max_tokens=40)),
    ("ROMEO:", dict(seed=8, temperature=2, top_p=1, min_p=0, top_k=0)),
    ("ROMEO:", dict(seed=9, stop=["e"], max_tokens=60)),
    ("ROMEO:", dict(seed=10, stop=["the ", ", ", "\n"], max_tokens=60)),
    ("ROMEO:", dict(seed=11, stop_ids=[199, 63, 12], max_tokens=80)),
    ("ROMEO:", dict(seed=12, stop=["e"], min_tokens=20, max_tokens=60)),
    ("ROMEO:", dict(seed=13, logit_bias={0: 12.0}, max_tokens=40)),
    ("ROMEO:", dict(seed=13, logit_bias={0: 12.0}, max_tokens=20, ignore_eos=True)),
    ("ROMEO:", dict(seed=13, logit_bias={0: 100.0}, max_tokens=20, logprobs=1)),
    ("ROMEO:", dict(seed=14, logit_bias={40: 5.5, 41: -100, 2000: 0.25}, max_tokens=30)),
    ("ROMEO:", dict(seed=15, presence_penalty=1.5, frequency_penalty=-0.5, repetition_penalty=1.2, max_tokens=40)),
    ("ROMEO:", dict(seed=16, logprobs=0, max_tokens=12)),
    ("ROMEO:", dict(seed=17, logprobs=5, max_tokens=12)),
    ("ROMEO: \U0001f642", dict(seed=17, logprobs=20, temperature=2, max_tokens=40)),
    ("ROMEO:", dict(seed=18, n=4, temperature=1.2, max_tokens=20)),
    ("ROMEO:", dict(seed=18, n=3, temperature=1.2, max_tokens=20, logprobs=3, echo=True, prompt_logprobs=3)),
    ("ROMEO:", dict(seed=19, n=2, temperature=1.2, max_tokens=40, stop=["a"])),
    ("ROMEO:", dict(seed=20, constraint=dict(json_schema=PERSON), max_tokens=100)),
    ("ROMEO:", dict(seed=21, constraint=dict(json_object=True), max_tokens=40)),
    ("ROMEO:", dict(seed=22, constraint=dict(regex="(To|Not to) be, [A-Z][a-z]{2,8}[.!]"), max_tokens=40, logprobs=2)),
    ("ROMEO:", dict(seed=23, constraint=dict(choice=["Romeo", "Juliet", "the Nurse"]), n=3, temperature=2)),
    ("ROMEO:", dict(seed=24, constraint=dict(regex="[ab]{40}"), max_tokens=5)),
    ("<|im_start|>a<|im_end|>", dict(seed=25, max_tokens=5, echo=True, skip_special_tokens=False)),
    ("<|im_start|>a<|im_end|>", dict(seed=25, max_tokens=5, echo=True)),
    ("ROMEO:", dict(seed=26, add_special_tokens=False, max_tokens=5)),
    ("ROMEO:", dict(seed=27, priority="high", max_tokens=5)),
    ("ROMEO:", dict(seed=27, priority="offline", max_tokens=5)),
    ("ROMEO:", dict(seed=28, max_tokens=2040)),  # up to the context
    ("a\0b", dict(seed=29, echo=True, max_tokens=5)),
    ("a\0b", dict(seed=29, logit_bias={NUL: 18}, stop=["e\0", "\0\0"], max_tokens=40, logprobs=2)),
    ("ROMEO:", dict(seed=30, constraint=dict(choice=["a\0b", "\0"]), n=3, temperature=2)),
    (LONG, dict(max_tokens=0, echo=True)),
    (LONG, dict(max_tokens=0, echo=True, logprobs=2, prompt_logprobs=2)),
    ("ROMEO:", dict(max_tokens=0, n=2, echo=True, logprobs=2, prompt_logprobs=2)),
    ("ROMEO:", dict(max_tokens=0, echo=True, constraint=dict(choice=["~"]), logit_bias={i: -100 for i in range(1024)}, stop_ids=[7], presence_penalty=1)),  # an answer would have no token left
]
X = "x"
PARAM = re.compile(r"(prompt|logit_bias|priority): ")
HTTP_NAMES = {"prompt_logprobs": "logprobs", "stop.strings": "stop", "stop.token_ids": "stop_token_ids", "token_ids": "prompt"}  # gRPC's fields
WRONG = [
    (X, dict(max_tokens=0)), (X, dict(max_tokens=0, logprobs=1)), (X, dict(max_tokens=0, min_tokens=1, echo=True)), (X, dict(max_tokens=2**31)), (X, dict(max_tokens=2048)), (X, dict(min_tokens=20, max_tokens=10)),
    (X, dict(temperature=-0.1)), (X, dict(temperature=1e30)), (X, dict(top_p=0)), (X, dict(top_p=1.5)), (X, dict(min_p=1)), (X, dict(min_p=-1)),
    (X, dict(presence_penalty=2.1)), (X, dict(frequency_penalty=-2.1)), (X, dict(repetition_penalty=0)), (X, dict(repetition_penalty=101)),
    (X, dict(n=0)), (X, dict(n=17)), (X, dict(logprobs=21)), (X, dict(logprobs=1, echo=True, prompt_logprobs=21)),
    (X, dict(logit_bias={2048: 1})), (X, dict(logit_bias={7: 100.5})), (X, dict(logit_bias={i: 1 for i in range(1025)})),
    (X, dict(stop=["a" * 257])), (X, dict(stop=["a"] * 17)), (X, dict(stop=[""])), (X, dict(stop_ids=[2048])), (X, dict(stop_ids=list(range(65)))),
    ("", {}), ([], {}), ([2048], {}), ([1] * 2048, dict(max_tokens=1)), (LONG * 100, dict(max_tokens=1)), ("a" * ((4 << 20) + 1), {}), (None, {}),
    (X, dict(model="nobody")), (X, dict(priority="now")), (X, dict(slo_class="nobody")),
    (X, dict(constraint=dict(json_schema={"not": {}}))), (X, dict(constraint=dict(regex="("))), (X, dict(constraint=dict(choice=[]))), (X, dict(constraint=dict(choice=["a", ""]))),
    (X, dict(constraint=dict(regex="(a|b)*a(a|b){20}"))), (X, dict(constraint=dict(json_schema={"enum": ["y" * 200000]}))),
]


def grpc_request(prompt, asked):
    asked = dict(asked)
    kind = asked.pop("constraint", None)
    if kind and "json_schema" in kind:
        kind = dict(json_schema=json.dumps(kind["json_schema"]))
    if kind and "choice" in kind:
        kind = dict(choice=pb.Choices(texts=kind["choice"]))
    flags = {name: asked.pop(name) for name in ("skip_special_tokens", "add_special_tokens") if name in asked}
    message = request(prompt if prompt is not None else X, constraint=pb.Constraint(**kind) if kind else None, **{**asked, "priority": PRIORITIES.get(asked.get("priority", "normal"), 3)})
    if prompt is None:
        message.ClearField("text")
    if "skip_special_tokens" in flags:
        message.output.skip_special_tokens = flags["skip_special_tokens"]
    if "add_special_tokens" in flags:
        message.add_special_tokens = flags["add_special_tokens"]
    return message


def http_body(prompt, asked):
    body = {"max_tokens": 16, **{key: value for key, value in asked.items() if key not in ("stop_ids", "constraint", "prompt_logprobs")}}  # 16 is gRPC's default
    if prompt is not None:
        body["prompt"] = prompt
    if "stop_ids" in asked:
        body["stop_token_ids"] = asked["stop_ids"]
    if "logit_bias" in asked:
        body["logit_bias"] = {str(id): bias for id, bias in asked["logit_bias"].items()}
    if "constraint" in asked:
        (kind, value), = asked["constraint"].items()
        body["structured_outputs"] = {{"json_schema": "json"}.get(kind, kind): value}
    if "prompt_logprobs" in asked:  # over HTTP an echo with logprobs has them
        body["logprobs"] = asked["prompt_logprobs"]
    return body


def told(logprobs):
    return [one.drawn for one in logprobs], [list(one.top) for one in logprobs]


def by_grpc(client, prompt, asked):
    """{index: (text, finish reason, logprobs of the tokens, of the likeliest of each)}, usage"""
    result = client.stub.GenerateOnce(grpc_request(prompt, asked), timeout=120)
    before = result.prompt.text if asked.get("echo") else ""
    choices = {}
    for index, choice in enumerate([result, *result.others]):
        ids, logprobs = list(choice.token_ids), list(choice.logprobs)
        if choice.finished.reason in (pb.FINISH_REASON_EOS, pb.FINISH_REASON_STOP_TOKEN):
            ids, logprobs = ids[:-1], logprobs[:-1]  # the end token has no text that HTTP could send
        drawn, top = told([*result.prompt_logprobs, *logprobs])
        choices[index] = (before + choice.text, ENDS[choice.finished.reason], drawn, top)
    return choices, (result.usage.prompt_tokens, result.usage.completion_tokens)


def streamed_by_grpc(client, prompt, asked):
    before, choices, usage = "", {}, None
    for response in client.stub.Generate(grpc_request(prompt, asked), timeout=120):
        event = response.WhichOneof("event")
        if event == "prompt":
            before = response.prompt.text
        elif event == "delta":
            choices[response.delta.choice] = choices.get(response.delta.choice, "") + response.delta.text
        elif event == "finished":
            choices.setdefault(response.finished.choice, "")
        elif event == "usage":
            usage = response.usage
    return {index: before + text for index, text in choices.items()}, (usage.prompt_tokens, usage.completion_tokens)


def numbers(choice):
    """As gRPC tells them: those of the prompt's first token, which there are none of, are left out."""
    logprobs = choice["logprobs"]
    if not logprobs:
        return [], []
    pairs = [(drawn, sorted(top.values(), reverse=True)) for drawn, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]) if drawn is not None]
    return [drawn for drawn, _ in pairs], [top for _, top in pairs]


def by_http(door, prompt, asked):
    reply = door.ask("/v1/completions", http_body(prompt, asked))
    assert reply.status == 200, reply.body
    answer = reply.json
    return {choice["index"]: (choice["text"], choice["finish_reason"], *numbers(choice)) for choice in answer["choices"]}, usage_of(answer)


def usage_of(answer):
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def streamed_by_http(door, prompt, asked):
    frames = door.ask("/v1/completions", {**http_body(prompt, asked), "stream": True, "stream_options": {"include_usage": True}}).frames
    choices = {}
    for frame in frames[:-1]:
        choice, = frame["choices"]
        choices[choice["index"]] = choices.get(choice["index"], "") + choice["text"]
    return choices, usage_of(frames[-1])


def same_logprobs(mine, theirs, asked):
    """Floats as JSON has them; HTTP tells the drawn token's, too, where it isn't one of the likeliest."""
    assert mine[0] == pytest.approx(theirs[0], rel=1e-6, abs=1e-6)
    for ours, others in zip(mine[1], theirs[1], strict=True):
        assert len(ours) <= len(others) <= len(ours) + 1 and all(any(abs(one - other) < 1e-5 for one in [*ours, *mine[0]]) for other in others)
        assert not ours or others[0] == pytest.approx(ours[0], rel=1e-6, abs=1e-6), asked


@pytest.fixture
def doors(shared_cluster, connect):
    def start(**options):
        cluster = shared_cluster(settings=front.SETTINGS, **options)
        return connect(cluster), front.Front(cluster)

    return start


def test_equal_requests_have_equal_answers(doors):
    client, door = doors()
    for prompt, asked in EQUAL:
        (ours, our_usage), (theirs, their_usage) = by_grpc(client, prompt, asked), by_http(door, prompt, asked)
        assert {index: choice[:2] for index, choice in ours.items()} == {index: choice[:2] for index, choice in theirs.items()}, asked
        assert our_usage == their_usage, asked
        if "logprobs" in asked:
            for index, choice in ours.items():
                same_logprobs(choice[2:], theirs[index][2:], asked)
        whole = {index: choice[0] for index, choice in ours.items()}
        assert streamed_by_grpc(client, prompt, asked) == (whole, our_usage), asked
        assert streamed_by_http(door, prompt, asked) == (whole, our_usage), asked


def test_streamed_logprobs_are_those_of_the_whole(doors):
    """All of them, places in the text too; but a streamed echo has those of the prompt with the first answer to it alone."""
    _, door = doors()
    rows = [(prompt, asked) for prompt, asked in EQUAL if "logprobs" in asked]
    compared = 0
    assert any(asked.get("echo") and asked.get("n") for _, asked in rows)
    for prompt, asked in rows:
        body = http_body(prompt, asked)
        whole, frames = door.ask("/v1/completions", body).json, door.ask("/v1/completions", {**body, "stream": True}).frames
        for choice in whole["choices"]:
            untold = whole["usage"]["prompt_tokens"] if choice["index"] and asked.get("echo") else 0
            mine = [frame["choices"][0]["logprobs"] for frame in frames if frame["choices"][0]["index"] == choice["index"]]
            streamed = {key: [one for logprobs in mine if logprobs for one in logprobs[key]] for key in choice["logprobs"]}
            assert streamed == {key: told[untold:] for key, told in choice["logprobs"].items()}, asked
            compared += len(streamed["tokens"])
    assert compared > 100
    chat = {"messages": [{"role": "user", "content": "Speak."}], "seed": 3, "n": 2, "max_tokens": 12, "logprobs": True, "top_logprobs": 3}
    whole, frames = door.ask("/v1/chat/completions", chat).json, door.ask("/v1/chat/completions", {**chat, "stream": True}).frames
    for choice in whole["choices"]:
        mine = [frame["choices"][0]["logprobs"] for frame in frames if frame["choices"][0]["index"] == choice["index"]]
        assert [token for logprobs in mine if logprobs for token in logprobs["content"]] == choice["logprobs"]["content"] != []


def refused_by_grpc(call, message):
    try:
        answer = call(message, timeout=60)
        if not isinstance(answer, pb.GenerateResult):
            list(answer)
        return "answered", ""
    except grpc.RpcError as error:
        return reason_of(error), error.details()


def refused_by_http(door, body):
    reply = door.ask("/v1/completions", body)
    return ("answered", "") if reply.status == 200 else (reply.error[1], reply.json["error"]["message"])


def as_http_says(sentence):
    field, *rest = re.split(r"(?=[\[ ])", sentence, maxsplit=1)
    return "".join([HTTP_NAMES.get(field, field), *rest])


def test_equal_mistakes_have_equal_codes(doors):
    """And the same sentence, with the door's own names of fields, but where HTTP's reader finds the mistake in the JSON already: then it begins with the parameter."""
    client, door = doors()
    differ = []
    for prompt, asked in WRONG:
        grpcs = [refused_by_grpc(call, grpc_request(prompt, asked)) for call in (client.stub.GenerateOnce, client.stub.Generate)]
        https = [refused_by_http(door, {**http_body(prompt, asked), "stream": streams}) for streams in (False, True)]
        if len({code for code, _ in grpcs + https}) > 1 or grpcs[0][0] == "answered" or any(as_http_says(sentence) not in said and not PARAM.match(said) for _, sentence in grpcs for _, said in https):
            differ.append((str(prompt)[:20], str(asked)[:60], grpcs, https))
    assert not differ, "\n".join(map(str, differ))
    assert door.complete("a", max_tokens=1).status == 200 and client.generate("a", max_tokens=1).finished
