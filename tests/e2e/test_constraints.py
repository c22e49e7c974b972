"""Structured output as it is served: answers have the shape that was asked for, by gRPC and by the openai package, streamed and not; they are the same
wherever they are computed, also after a worker's death; what can't be kept is refused, naming the keyword."""
import concurrent.futures
import json
import os
import pathlib
import random
import re
from typing import Annotated

import front
import grpc
import jsonschema
import openai
import pydantic
import pytest
from client import pb, reason_of
from harness import GOLDEN, IN_TURNS, LONG, PREFILLED_THERE, SHM, failpoint, wait_until

MODEL = "tiny-shakespeare"
HERE = pathlib.Path(__file__).resolve().parent
SCHEMAS = [json.loads(line) for line in (HERE.parent / "constrain/schemas.jsonl").read_text(encoding="utf-8").splitlines()]
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                                           "tags": {"type": "array", "items": {"enum": ["a", "bc", "d"]}, "maxItems": 3}},
          "required": ["name", "age", "tags"], "additionalProperties": False}
CHOICES = ["Romeo", "Juliet", "Rome", "the Nurse"]
ROLE = r"(To|Not to) be, [A-Z][a-z]{2,8}[.!]"
ENDED = {pb.FINISH_REASON_EOS, pb.FINISH_REASON_COMPLETE}


def constraint(**kind):
    if "schema" in kind:
        return pb.Constraint(json_schema=json.dumps(kind["schema"]))
    if "choice" in kind:
        return pb.Constraint(choice=pb.Choices(texts=kind["choice"]))
    return pb.Constraint(**kind)


def valid(schema, text):
    kind = jsonschema.validators.validator_for(schema)
    kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text))
    return True


KINDS = [(dict(schema=PERSON), lambda text: valid(PERSON, text)), (dict(json_object=True), lambda text: isinstance(json.loads(text), dict)),
         (dict(regex=ROLE), lambda text: re.fullmatch(ROLE, text)), (dict(choice=CHOICES), lambda text: text in CHOICES)]


def requests_for(count, max_tokens=60):
    """Each kind with other options: sampling, penalties, biases, stops, several answers; prompts that are cut into chunks."""
    rng = random.Random(5)
    options = [{}, dict(logprobs=3), dict(frequency_penalty=1.2, presence_penalty=-0.5), dict(logit_bias={40: 3.0, 41: -100}), dict(stop=["e"], max_tokens=60), dict(n=1, top_k=20),
               dict(top_p=0.8), dict(min_tokens=12, max_tokens=40), dict(ignore_eos=True), dict(repetition_penalty=1.3)]
    requests = []
    for i in range(count):
        kind, check = KINDS[i % len(KINDS)]
        asked = dict(seed=i, temperature=rng.choice([0, 1, 1.5]), max_tokens=rng.choice([1, 5, max_tokens]), logits_hash=True,
                     constraint=constraint(**kind)) | options[i % len(options)]
        requests.append(("ROMEO: " + "What is it that you say? " * rng.choice([0, 1, 12]), asked, check))
    return requests


def serve(client, requests):
    answers = client.generate_all([(prompt, asked) for prompt, asked, _ in requests])
    for answer, (_, asked, check) in zip(answers, requests):
        if answer.finished.reason in ENDED:
            assert check(answer.text), (asked, answer.text)
    return [(answer.ids, answer.hashes, answer.text, answer.finished.reason, answer.logprobs) for answer in answers], answers


def test_the_same_bytes_wherever_they_are_computed(start_cluster, connect):
    requests = requests_for(40 if LONG else 20)  # each kind with each of the options

    def run(prefill, chunk, transport="auto"):
        cluster = start_cluster(prefill=prefill, transport=transport, settings=PREFILLED_THERE | {"chunk-tokens": chunk})
        client = connect(cluster)
        together, answers = serve(client, requests)
        assert {answer.timing.prefill_worker for answer in answers} == {"prefill-0" if prefill else ""}
        alone = [serve(client, [request])[0][0] for request in requests[:10 if LONG or not prefill else 0]]
        cluster.stop()
        assert alone == together[:len(alone)]
        return together

    colocated = run(0, 64)
    assert run(1, 16, SHM) == colocated
    assert run(1, 512, "tcp") == colocated
    reasons = [reason for _, _, _, reason, _ in colocated]
    assert sum(reason in ENDED for reason in reasons) > len(requests) // 4 and pb.FINISH_REASON_COMPLETE in reasons and pb.FINISH_REASON_STOP_STRING in reasons


def test_a_death_changes_no_answer(start_cluster, connect):
    schema = {"type": "array", "items": {"type": "string", "pattern": "^[a-z ]{20,40}$"}, "minItems": 4, "maxItems": 6}
    asked = dict(temperature=1, seed=9, max_tokens=160, logits_hash=True, frequency_penalty=0.3, constraint=constraint(schema=schema))
    answers = []
    for process, name, action in [("decode-0", "decode.after_tokens", "kill@12"), ("prefill-0", "prefill.before_complete", "kill"),
                                  ("decode-0", "decode.before_confirm", "kill")][:3 if LONG else 2]:
        cluster = start_cluster(prefill=2, decode=2, flags=IN_TURNS, process_environment={process: failpoint(name, action)})
        cluster.expected_exit = 1
        both = connect(cluster).generate_all([("ROMEO:", asked)] * 2)
        assert [hit[:2] for hit in cluster.failpoint_hits()] == [[name, "kill"]]
        answers += [(answer.ids, answer.hashes, answer.text) for answer in both]
        cluster.stop()
    assert all(answer == answers[0] for answer in answers) and len(answers[0][0]) > 20
    assert valid(schema, answers[0][2])


def test_a_preemption_changes_no_answer(start_cluster, shared_cluster, connect):
    """A pool too small for all of them, which are there before the first is computed: some are computed again."""
    requests = [("ROMEO: " + "Speak, " * i, dict(seed=i, temperature=1.2, max_tokens=120, logits_hash=True, constraint=constraint(schema=PERSON | {
        "properties": PERSON["properties"] | {"name": {"type": "string", "minLength": 60, "maxLength": 90}}})), lambda text: True) for i in range(12)]
    small = start_cluster(prefill=0, settings={"kv-tokens": 512, "swap-share": "0", "context": 256},
                          process_environment={"decode-0": failpoint("decode.taken", "pause")})
    client = connect(small)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, client, requests)
        wait_until("all are there", lambda: small.total("router", "baton_router_requests") == len(requests), 60)
        small.failpoint_go("decode.taken")
        tight, _ = served.result()
    assert small.total("decode-0", "baton_preemptions_total") > 0
    small.stop()
    assert tight == serve(connect(shared_cluster()), requests)[0]


def test_a_hundred_schemas_as_served(start_cluster, connect):
    """Some answers to each, at temperature 1.5; one to every fourth without --long. BATON_SCHEMA_ANSWERS=20: all that are drawn without a model
    in tests/constrain (its README has the command)."""
    each, step = int(os.environ.get("BATON_SCHEMA_ANSWERS", "4" if LONG else "1")), 1 if LONG else 4
    numbers = range(0, len(SCHEMAS), step)
    cluster = start_cluster(settings={"max-sequences": 64})
    client = connect(cluster)
    complete = answered = 0
    for first in range(0, len(numbers), 16):
        schemas = [(number, seed, SCHEMAS[number]) for number in numbers[first:first + 16] for seed in range(each)]
        answers = client.generate_all([("JULIET:", dict(seed=1000 * number + seed, temperature=1.5, max_tokens=150, constraint=constraint(schema=schema)))
                                       for number, seed, schema in schemas])
        for (number, seed, schema), answer in zip(schemas, answers):
            assert answer.finished.reason in ENDED | {pb.FINISH_REASON_MAX_TOKENS}
            answered += 1
            if answer.finished.reason in ENDED:
                complete += 1
                assert valid(schema, answer.text), (schema["title"], seed, answer.text)
    print(f"{complete} of {answered} answers are complete, and valid")
    assert answered == each * len(numbers) and 2 * complete > answered, complete


def test_ends(shared_cluster, connect):
    """An answer ends with the token after which nothing may follow: without an end token, and whatever is asked of ends."""
    client = connect(shared_cluster())
    plain = client.generate("ROMEO:", seed=1, constraint=constraint(choice=["the Nurse"]))
    assert (plain.text, plain.finished.reason) == ("the Nurse", pb.FINISH_REASON_COMPLETE)
    for options in (dict(ignore_eos=True), dict(min_tokens=16), dict(max_tokens=len(plain.ids)), dict(stop_ids=[plain.ids[-1]])):
        answer = client.generate("ROMEO:", seed=1, constraint=constraint(choice=["the Nurse"]), **options)
        ends = pb.FINISH_REASON_STOP_TOKEN if "stop_ids" in options else pb.FINISH_REASON_COMPLETE
        assert (answer.ids, answer.finished.reason) == (plain.ids, ends)
    cut = client.generate("ROMEO:", seed=1, max_tokens=2, constraint=constraint(regex="[ab]{40}"))
    assert cut.finished.reason == pb.FINISH_REASON_MAX_TOKENS and re.fullmatch("[ab]+", cut.text)
    endless = client.generate("ROMEO:", seed=1, max_tokens=30, ignore_eos=True, constraint=constraint(regex="[a-z ]*"))
    assert endless.finished.reason == pb.FINISH_REASON_MAX_TOKENS and re.fullmatch("[a-z ]*", endless.text)
    stopped = client.generate("ROMEO:", seed=1, max_tokens=30, stop=["r"], constraint=constraint(choice=["the Nurse"]))
    assert (stopped.text, stopped.finished.reason) == ("the Nu", pb.FINISH_REASON_STOP_STRING)
    several = client.stub.GenerateOnce(pb.GenerateRequest(text="ROMEO:", sampling=pb.Sampling(n=8, seed=3, temperature=1.5, max_tokens=30),
                                                          constraint=constraint(choice=CHOICES)), timeout=60)
    texts = [several.text] + [choice.text for choice in several.others]
    assert set(texts) <= set(CHOICES) and len(set(texts)) > 1
    # The model's own answer is sent unchanged.
    told = client.generate("ROMEO:", seed=1, logprobs=5, constraint=constraint(choice=["the Nurse"]))
    free = client.generate("ROMEO:", seed=1, logprobs=5)
    assert told.logprobs[0][1] == free.logprobs[0][1]
    digits = [client.stub.Tokenize(pb.TokenizeRequest(text=digit, add_special_tokens=False)).ids for digit in "0123456789"]
    assert all(len(ids) == 1 for ids in digits)
    with pytest.raises(grpc.RpcError) as caught:  # nothing is left to draw, and it is said
        client.generate("ROMEO:", constraint=constraint(regex="[0-9]"), logit_bias={ids[0]: -100.0 for ids in digits})
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "no_token_allowed")
    assert "the constraint allows no token that logit_bias doesn't ban" in caught.value.details()


REFUSED = [
    (dict(schema={"type": "object", "properties": {"a": {"not": {"type": "string"}}}}), "json_schema: #/properties/a/not"),
    (dict(schema={"type": "array", "uniqueItems": True}), "json_schema: #/uniqueItems"),
    (dict(schema={"$ref": "http://elsewhere/x.json"}), "json_schema: #/$ref"),
    (dict(regex="(a|b)*a(a|b){20}"), "regex: "),
    (dict(regex="a(?=b)"), "regex: "),
    (dict(choice=[]), "choice: "),
    (dict(choice=["a", ""]), "choice: choice 1"),
    (dict(choice=["x" * 200000]), "choice: it has more than 131072 bytes"),
    (dict(json_object=False), "constraint: json_object can only be true"),
    (dict(), "constraint: it has none of"),
]


def test_what_cannot_be_kept_is_refused(shared_cluster, connect):
    cluster = shared_cluster(settings=front.SETTINGS)
    client, door = connect(cluster), front.Front(cluster)
    ended = lambda: {status: cluster.total("router", "baton_router_requests_total", status=status) for status in ("no_token_allowed", "step_failed", "internal")}  # noqa: E731
    before = ended()
    for kind, sentence in REFUSED:
        with pytest.raises(grpc.RpcError) as caught:
            client.generate("a", constraint=constraint(**kind))
        assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_constraint"), kind
        assert caught.value.details().startswith(sentence), caught.value.details()
        if "schema" in kind:
            reply = door.chat("a", response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": kind["schema"]}})
            assert reply.error == (400, "invalid_constraint", "response_format") and caught.value.details() in reply.json["error"]["message"]
    for body, code, param in [({"guided_grammar": "root ::= a"}, "unsupported_parameter", "guided_grammar"),
                              ({"structured_outputs": {"grammar": "x"}}, "unsupported_parameter", "structured_outputs.grammar"),
                              ({"structured_outputs": {"structural_tag": "{}"}}, "unsupported_parameter", "structured_outputs.structural_tag"),
                              ({"guided_regex": "a", "guided_choice": ["a"]}, "malformed", "guided_choice"),
                              ({"guided_regex": "("}, "invalid_constraint", "guided_regex"),
                              ({"structured_outputs": {"regex": "("}}, "invalid_constraint", "structured_outputs"),
                              ({"guided_choice": [1]}, "malformed", "guided_choice"),
                              ({"guided_json": "{"}, "invalid_constraint", "guided_json"),
                              ({"guided_json": {"type": "string", "x": "y" * 200000}}, "invalid_constraint", "guided_json"),
                              ({"response_format": {"type": "xml"}}, "unsupported_parameter", "response_format.type"),
                              ({"response_format": {"type": "json_schema"}}, "malformed", "response_format.json_schema")]:
        assert door.complete("a", **body).error == (400, code, param), body
    for number in ("18446744073709551616", "-123456789012345678901234567890"):  # by way of this door's JSON, too
        assert door.ask("/v1/completions", b'{"prompt": "a", "max_tokens": 60, "guided_json": {"const": %s}}' % number.encode()).json["choices"][0]["text"] == number
    assert door.ask("/v1/completions", b'{"prompt": "a", "guided_json": {"const": 1e999}}').error == (400, "invalid_constraint", "guided_json")
    assert door.complete("a", max_tokens=1).status == 200
    # With a prompt alone no token is drawn, so there is nothing to constrain.
    assert door.complete("a", guided_regex="(", max_tokens=0, echo=True).json["choices"][0]["text"] == "a"
    assert client.generate("a", constraint=constraint(regex="("), max_tokens=0, echo=True).finished.reason == pb.FINISH_REASON_MAX_TOKENS
    # The bans of the request itself: its own fault, at once, and no step that failed.
    digits = {str(client.stub.Tokenize(pb.TokenizeRequest(text=digit, add_special_tokens=False)).ids[0]): -100 for digit in "0123456789"}
    assert door.complete("a", guided_regex="[0-9]", logit_bias=digits).error == (400, "no_token_allowed", "logit_bias")
    assert ended() == {**before, "no_token_allowed": before["no_token_allowed"] + 1}


def test_one_that_takes_long_holds_nobody_up(shared_cluster, connect):
    """While it is compiled others are answered, it can be cancelled, and requests for the same one wait with it; then it is known."""
    client = connect(shared_cluster())
    slow = constraint(schema={"enum": list(range(18000))})

    def begin(asked):
        return client.stub.GenerateOnce.future(pb.GenerateRequest(text="a", sampling=pb.Sampling(max_tokens=2), constraint=asked), timeout=120)

    first, same, left = begin(slow), begin(slow), begin(constraint(schema={"enum": list(range(17999))}))
    assert client.generate("a", max_tokens=2, ignore_eos=True).finished.reason == pb.FINISH_REASON_MAX_TOKENS
    assert not first.done()
    left.cancel()
    sentences = {caught.exception().details() for caught in (first, same)}
    assert all(reason_of(call.exception()) == "invalid_constraint" for call in (first, same))
    assert len(sentences) == 1 and "steps to compile" in sentences.pop()
    again = [begin(slow) for _ in range(40)]  # from memory (test_constraint_checks counts)
    assert all(reason_of(call.exception()) == "invalid_constraint" for call in again)


def test_one_that_never_fits_is_not_tried_again(start_cluster, connect):
    cluster = start_cluster(prefill=1, settings={"constraint-memory": "1MiB"})
    client = connect(cluster)
    large = {"properties": {name: {"type": "string", "pattern": f"^(a|b)*a(a|b){{{count}}}$"} for name, count in (("p", 12), ("q", 12))}}
    for _ in range(3):
        with pytest.raises(grpc.RpcError) as caught:
            client.generate("a", constraint=constraint(schema=large))
        assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "refused")
        assert "(constraint-memory)" in caught.value.details()
    assert client.generate("a", max_tokens=2, ignore_eos=True).finished.reason == pb.FINISH_REASON_MAX_TOKENS


def test_a_model_without_a_tokenizer_has_no_constraints(start_cluster, connect):
    with pytest.raises(grpc.RpcError) as caught:
        connect(start_cluster(model=GOLDEN / "llama")).generate([1, 2], constraint=constraint(regex="a"))
    assert reason_of(caught.value) == "no_tokenizer"


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=150)
    likes: list[Annotated[str, pydantic.Field(max_length=8)]] = pydantic.Field(max_length=2)


def test_the_openai_package(shared_cluster, connect):
    cluster = shared_cluster(settings=front.SETTINGS)
    door = front.Front(cluster)
    client = openai.OpenAI(base_url=f"http://{door.address}/v1", api_key="none")
    messages = [{"role": "user", "content": "Who are you?"}]
    asked = dict(model=MODEL, messages=messages, seed=4, temperature=0.6, max_completion_tokens=400)
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    whole = client.chat.completions.create(response_format=wanted, **asked)
    assert whole.choices[0].finish_reason == "stop" and valid(PERSON, whole.choices[0].message.content)
    streamed = client.chat.completions.create(response_format=wanted, stream=True, **asked)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == whole.choices[0].message.content
    parsed = client.chat.completions.parse(response_format=Person, **asked)
    assert isinstance(parsed.choices[0].message.parsed, Person)
    anything = client.chat.completions.create(response_format={"type": "json_object"}, **asked).choices[0]
    assert anything.finish_reason == "length" or isinstance(json.loads(anything.message.content), dict)
    for more in ({"structured_outputs": {"choice": CHOICES}}, {"guided_choice": CHOICES}):
        answers = client.completions.create(model=MODEL, prompt="ROMEO:", n=4, seed=1, extra_body=more).choices
        assert all(choice.text in CHOICES and choice.finish_reason == "stop" for choice in answers)
    for more in ({"structured_outputs": {"regex": ROLE}}, {"guided_regex": ROLE}):
        text = client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=60, seed=1, extra_body=more).choices[0].text
        assert re.fullmatch(ROLE, text), text
    texts = {client.completions.create(model=MODEL, prompt="ROMEO:", max_tokens=400, seed=2, temperature=0.6, extra_body=more).choices[0].text
             for more in ({"structured_outputs": {"json": PERSON}}, {"guided_json": PERSON}, {"guided_json": json.dumps(PERSON)})}
    same = connect(cluster).generate("ROMEO:", seed=2, temperature=0.6, max_tokens=400, constraint=constraint(schema=PERSON))
    assert texts == {same.text} and valid(PERSON, same.text)
