"""The access log against what clients got: every request of either door has its line, with the name that the client was told and the status that it saw."""
import re

import front
import grpc
import openai
import pytest
from bare import Bare
from client import Client, pb, request
from fake_worker import FakeWorker
from harness import SHAKESPEARE, wait_until
from test_openai_tools import Held
from test_views import logged

CONTEXT = VOCABULARY = 2048
MINTED = r"[0-9a-f]{32}"


@pytest.fixture
def served(tmp_path):
    things = []

    def start(*flags, worker=FakeWorker, model=SHAKESPEARE):
        log = tmp_path / "access.log"
        router = Bare("baton-router", "--http-listen", "127.0.0.1:0", "--access-log", log, *flags, model=model)
        things.append(router)
        if worker:
            things.append(worker(router.grpc, SHAKESPEARE.name, CONTEXT, VOCABULARY))
        client = Client(router.grpc)
        things.append(client)
        return client, front.Front(router), log

    yield start
    for thing in reversed(things):
        assert not (thing.close if isinstance(thing, Client) else thing.stop)()


def outcome(call, streams=False):
    """(status, the name that the client is told)"""
    try:
        list(call) if streams else call.result()
        status = "ok"
    except grpc.RpcError as error:
        status = dict(error.trailing_metadata()).get("baton-reason", error.code().name.lower())
    return status, dict(call.initial_metadata()).get("x-request-id")


def test_by_grpc(served):
    client, _, log = served()
    stub = client.stub

    def generate(message, *headers, once=False):
        return outcome((stub.GenerateOnce.future if once else stub.Generate)(message, timeout=60, metadata=headers), not once)

    header = ("x-request-id", "by-header")
    told = [
        ("", *generate(request("a", request_id="r1", max_tokens=2))),
        ("", *generate(request("a", request_id="r2", max_tokens=2), header, once=True)),
        ("", *generate(request("a", max_tokens=2), header)),
        ("", *generate(request("a", max_tokens=2))),
        ("", *generate(request("a", max_tokens=2), ("x-request-id", "x" * 7000))),
        ("", *generate(request("a", max_tokens=0, request_id="r3"))),
        ("", *generate(request("a", max_tokens=0, request_id="r4"), header, once=True)),
        ("", *generate(request("a", max_tokens=0), header)),
        ("", *generate(request("a", max_tokens=0))),
        ("", *generate(request("a", max_tokens=0), ("x-request-id", "x" * 7000))),
        ("", *generate(request("a", max_tokens=0), ("x-request-id", "two words"))),
        ("", *generate(request("a", request_id="two words"))),
        ("", *generate(request("a", request_id="x" * 129), header)),
        ("", *generate(request("a", model="nobody", request_id="r5"))),
        ("tokenize", *outcome(stub.Tokenize.future(pb.TokenizeRequest(text="a"), timeout=60, metadata=[header]))),
        ("tokenize", *outcome(stub.Tokenize.future(pb.TokenizeRequest(text="a", model="nobody"), timeout=60))),
        ("detokenize", *outcome(stub.Detokenize.future(pb.DetokenizeRequest(ids=[20]), timeout=60))),
        ("detokenize", *outcome(stub.Detokenize.future(pb.DetokenizeRequest(ids=[VOCABULARY]), timeout=60, metadata=[("x-request-id", "")]))),
        ("models", *outcome(stub.ListModels.future(pb.ListModelsRequest(), timeout=60))),
    ]
    names = [name for _, _, name in told]
    assert [name for name in names if not re.fullmatch(MINTED, name)] == ["r1", "r2", "by-header", "r3", "r4", "by-header", "by-header", "r5", "by-header"], names
    assert {status for _, status, _ in told} == {"ok", "invalid_sampling", "invalid_request_id", "model_not_found", "invalid_token_id"}
    lines = logged(log, len(told))
    assert sorted((line.get("method", ""), line["status"], line["req"]) for line in lines) == sorted(told)
    assert all(line["peer"] for line in lines) and {line.get("model") for line in lines if line["status"] == "invalid_token_id"} == {SHAKESPEARE.name}
    # Calls that end before there is anything to read.
    silent = client.channel.stream_unary("/baton.v1.Baton/GenerateOnce")
    with pytest.raises(grpc.RpcError):
        silent(iter(()), timeout=60)
    with pytest.raises(grpc.RpcError):
        silent((b"\xff" for _ in range(1)), timeout=60)
    assert sorted(line["status"] for line in logged(log, len(told) + 2)[len(told):]) == ["malformed", "missing_message"]


def test_by_http(served):
    _, door, log = served()
    named = {"x-request-id": "mine"}
    asked = [("", "ok", door.complete("a", named, max_tokens=2)), ("", "invalid_sampling", door.complete("a", named, max_tokens=0)), ("", "malformed", door.ask("/v1/completions", b"{", named)),
             ("tokenize", "ok", door.ask("/tokenize", {"prompt": "a"}, named)), ("tokenize", "malformed", door.ask("/tokenize", b"{", named)),
             ("tokenize", "model_not_found", door.ask("/tokenize", {"prompt": "a", "model": "nobody"}, named)),
             ("detokenize", "ok", door.ask("/detokenize", {"tokens": [20]})), ("detokenize", "invalid_token_id", door.ask("/detokenize", {"tokens": [VOCABULARY]}, named)),
             ("models", "ok", door.ask("/v1/models", None, named)), ("models", "model_not_found", door.ask("/v1/models/nobody", None, named)), ("", "not_found", door.ask("/nowhere", None, named)),
             ("", "unsupported_parameter", door.ask("/v1/embeddings", {"input": "a"}, named)), ("", "unsupported_parameter", door.ask("/v1/audio/speech", {"input": "a"}, named)),
             ("", "unsupported_parameter", door.ask("/v1/load_lora_adapter", {}, {"x-request-id": "x" * 129}))]
    for _, status, reply in asked:
        assert (reply.status == 200) == (status == "ok") and (status == "ok" or reply.error[1] == status), (status, reply.body)
    for path in ("/", "/health", "/ready", "/live", "/version", "/metrics"):  # probes have none
        assert door.ask(path).status == 200
    lines = logged(log, len(asked))
    assert [(line.get("method", ""), line["status"], line["req"]) for line in lines] == [(method, status, reply.headers["x-request-id"]) for method, status, reply in asked]
    assert len(log.read_text().splitlines()) == len(asked)


def test_an_answer_that_is_too_large(served):
    """Known when all of it is there: no choice of it was answered, whenever it was complete."""
    client, door, log = served("--client-buffer", "4KiB")
    assert door.complete("a", {"x-request-id": "o1"}, n=16, max_tokens=2040).error[1] == "answer_too_large"
    assert [(line["req"], int(line.get("choice", 0)), line["status"]) for line in sorted(logged(log, 16), key=lambda line: int(line.get("choice", 0)))] == [
        ("o1", i, "answer_too_large") for i in range(16)]
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.GenerateOnce(request("a", request_id="r1", n=16, max_tokens=2040), timeout=60)
    assert dict(caught.value.trailing_metadata())["baton-reason"] == "answer_too_large"
    assert {(line["req"], line["status"]) for line in logged(log, 32)[16:]} == {("r1", "answer_too_large")} and len(log.read_text().splitlines()) == 32


def test_answers_that_are_too_large_together(served):
    """The last of two prompts decides it; their ends often come together: neither was answered."""
    _, door, log = served("--client-buffer", "4KiB")
    assert door.complete("a", n=10, max_tokens=80).status == 200
    for i in range(1, 11):
        assert door.complete(["a", "a"], {"x-request-id": f"o{i}"}, n=10, max_tokens=80).error[1] == "answer_too_large"
        assert {line["status"] for line in logged(log, 10 + 20 * i)[-20:]} == {"answer_too_large"}


def counted(door, status):
    """Metrics of the only model."""
    return int(re.search(rf'^baton_router_requests_total{{model_name="[^"]*",status="{status}"}} (\d+)$', door.ask("/metrics").body.decode(), re.M).group(1))


def answered(door):
    """Answers with counted times."""
    return int(re.search(r'^baton_e2e_request_latency_seconds_count{model_name="[^"]*"} (\d+)$', door.ask("/metrics").body.decode(), re.M).group(1))


class OneOnly(FakeWorker):
    """Answers the first prompt that it gets, and no other."""

    def wanted(self, down):
        if down.WhichOneof("command") != "decode":
            return True
        self.prompt = getattr(self, "prompt", list(down.decode.prompt))
        return list(down.decode.prompt) == self.prompt

    def take(self, commands):
        super().take(filter(self.wanted, commands))


def test_prompts_of_one_body_end_as_the_body_does(served):
    """One of them is complete; the client is told of all or none, unless it is told as they come."""
    _, door, log = served(worker=OneOnly)
    late = door.complete(["a", "b"], {"x-request-id": "o1", "x-request-timeout-ms": "2000"}, n=2, max_tokens=3)
    assert late.error[1] == "deadline"
    lines = logged(log, 3)  # the second has one choice that began
    assert [line["req"].partition("-")[0] for line in lines] == ["o1"] * 3 and {line["status"] for line in lines} == {"deadline"}
    assert counted(door, "deadline") == 2
    with pytest.raises(openai.APITimeoutError):
        openai.OpenAI(base_url=f"http://{door.address}/v1", api_key="none", max_retries=0).completions.create(model=SHAKESPEARE.name, prompt=["a", "b"], max_tokens=3, timeout=2)
    assert {line["status"] for line in logged(log, 5)[3:]} == {"cancelled"} and len(log.read_text().splitlines()) == 5
    wait_until("both prompts are counted", lambda: counted(door, "cancelled") == 2, 20)
    assert counted(door, "ok") == answered(door) == 0


def test_prompts_that_are_all_answered(served):
    _, door, log = served()
    for stream in (False, True):
        assert door.complete(["a", "b", "c"], {"x-request-id": "o1"}, n=2, max_tokens=3, stream=stream).status == 200
    lines = logged(log, 12)
    assert {(line["req"].partition("-")[0], line["status"], line["finish"], line["tokens"]) for line in lines} == {("o1", "ok", "max_tokens", "3")}
    assert sorted(line.get("choice", "0") for line in lines) == ["0"] * 6 + ["1"] * 6 and len(log.read_text().splitlines()) == 12
    assert counted(door, "ok") == 6 and answered(door) == 12


def test_choices_end_as_their_call_does(served):
    client, door, log = served(worker=Held)
    late = door.complete("a", {"x-request-id": "o1", "x-request-timeout-ms": "1500"}, n=3, max_tokens=50)
    assert late.error[1] == "deadline"
    assert [(line["req"], line["status"]) for line in logged(log, 3)] == [("o1", "deadline")] * 3
    with pytest.raises(grpc.RpcError) as caught:
        list(client.stub.Generate(request("a", request_id="r1", n=3, max_tokens=50), timeout=2))
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert {(line["req"], line["status"]) for line in logged(log, 6)[3:]} == {("r1", "deadline")}
    with pytest.raises(openai.APITimeoutError):
        openai.OpenAI(base_url=f"http://{door.address}/v1", api_key="none", max_retries=0).completions.create(model=SHAKESPEARE.name, prompt="a", n=3, max_tokens=50, timeout=2)
    assert {line["status"] for line in logged(log, 9)[6:]} == {"cancelled"} and len(log.read_text().splitlines()) == 9
