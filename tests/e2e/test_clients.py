"""The public interface through Python grpcio: streaming, errors with reasons, reflection, health."""
import grpc
import pytest
from client import pb, reason_of, request
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

PROMPT = "First Citizen:\nBefore we proceed"


def test_a_stream(shared_client):
    client = shared_client
    answer = client.generate(PROMPT, temperature=0, max_tokens=20)
    assert len(answer.ids) == 20 and answer.text
    assert answer.finished.reason == pb.FINISH_REASON_MAX_TOKENS
    assert answer.usage.prompt_tokens > 0
    assert answer.timing.ttft_us > 0 and answer.timing.total_us >= answer.timing.ttft_us
    assert answer.timing.prefills == 1

    once = client.stub.GenerateOnce(request(PROMPT, temperature=0, max_tokens=20), timeout=60)
    assert (list(once.token_ids), once.text) == (answer.ids, answer.text)
    assert once.finished.reason == answer.finished.reason

    again = client.generate(PROMPT, temperature=1, seed=3, max_tokens=20)
    assert client.generate(PROMPT, temperature=1, seed=3, max_tokens=20).ids == again.ids
    unseeded = client.generate(PROMPT, temperature=1, max_tokens=20)
    assert client.generate(PROMPT, temperature=1, seed=unseeded.timing.seed, max_tokens=20).ids == unseeded.ids


def test_stops(shared_client):
    client = shared_client
    whole = client.generate(PROMPT, temperature=0, max_tokens=40, ignore_eos=True)
    stop = whole.text[5:9]
    cut = client.generate(PROMPT, temperature=0, max_tokens=40, ignore_eos=True, stop=[stop])
    assert cut.text == whole.text[:whole.text.index(stop)]
    assert cut.finished.reason == pb.FINISH_REASON_STOP_STRING and cut.finished.stop_string == stop
    stop_id = whole.ids[7]
    cut = client.generate(PROMPT, temperature=0, max_tokens=40, ignore_eos=True, stop_ids=[stop_id])
    assert cut.ids[:whole.ids.index(stop_id)] == whole.ids[:whole.ids.index(stop_id)]
    assert cut.finished.reason == pb.FINISH_REASON_STOP_TOKEN and cut.finished.stop_token == stop_id


def test_tokenize_detokenize_models(shared_client):
    stub = shared_client.stub
    ids = stub.Tokenize(pb.TokenizeRequest(text=PROMPT), timeout=10).ids
    assert ids
    assert stub.Detokenize(pb.DetokenizeRequest(ids=ids, skip_special_tokens=True), timeout=10).text == PROMPT
    [model] = stub.ListModels(pb.ListModelsRequest(), timeout=10).models
    assert model.name and model.context > 0 and model.vocab > 0 and model.has_tokenizer


@pytest.mark.parametrize("message,code,reason", [
    (pb.GenerateRequest(), grpc.StatusCode.INVALID_ARGUMENT, "missing_input"),
    (request([]), grpc.StatusCode.INVALID_ARGUMENT, "empty_prompt"),
    (request([2**31]), grpc.StatusCode.INVALID_ARGUMENT, "invalid_token_id"),
    (request("a", temperature=-1), grpc.StatusCode.INVALID_ARGUMENT, "invalid_sampling"),
    (request("a", top_p=0), grpc.StatusCode.INVALID_ARGUMENT, "invalid_sampling"),
    (request("a", stop=[""]), grpc.StatusCode.INVALID_ARGUMENT, "invalid_stop"),
    (request("a", stop=["a"] * 17), grpc.StatusCode.INVALID_ARGUMENT, "invalid_stop"),
    (request("a", max_tokens=1000000), grpc.StatusCode.INVALID_ARGUMENT, "context_length_exceeded"),
    (pb.GenerateRequest(text="a", model="nobody"), grpc.StatusCode.NOT_FOUND, "model_not_found"),
])
def test_requests_that_are_wrong(shared_client, message, code, reason):
    with pytest.raises(grpc.RpcError) as caught:
        list(shared_client.stub.Generate(message, timeout=30))
    assert (caught.value.code(), reason_of(caught.value)) == (code, reason)
    assert caught.value.details()


@pytest.fixture
def shared_client(shared_cluster, connect):
    return connect(shared_cluster())


def test_deadline(shared_client):
    with pytest.raises(grpc.RpcError) as caught:
        list(shared_client.start("a", timeout=0.05, max_tokens=200, ignore_eos=True))
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_reflection(shared_client):
    database = ProtoReflectionDescriptorDatabase(shared_client.channel)
    assert {"baton.v1.Baton", "grpc.health.v1.Health"} <= set(database.get_services())
    service = DescriptorPool(database).FindServiceByName("baton.v1.Baton")
    assert [m.name for m in service.methods] == ["Generate", "GenerateOnce", "Tokenize", "Detokenize", "ListModels"]


def test_health_goes_to_not_serving_in_a_drain(start_cluster, connect):
    """And what runs when the drain begins is answered to its end."""
    cluster = start_cluster()
    client = connect(cluster)
    watch = health_pb2_grpc.HealthStub(client.channel).Watch(
        health_pb2.HealthCheckRequest(service="baton.v1.Baton"), timeout=60)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    running = client.start(PROMPT, max_tokens=100, temperature=0, ignore_eos=True)
    ids = list(next(running).delta.token_ids)
    cluster.up.terminate()
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    for response in running:
        ids += response.delta.token_ids
    assert len(ids) == 100
    assert cluster.up.wait(30) == 0
