"""A client that has its answer finds all books settled: its places are free, its key may ask again, and it is counted. That it is so in the
very moment when the last bytes are handed over is what test_dispatch_books looks at; here are the real doors, again and again."""
import grpc
import pytest
from bare import Bare
from client import Client, request
from fake_worker import FakeWorker, model_with_context
from front import SETTINGS, Front
from harness import SHAKESPEARE
from keys import new_key

SHORT = dict(max_tokens=4, ignore_eos=True, seed=1)
TOO_LONG = dict(prompt=["a", "b"], max_tokens=10 ** 6)  # known when there was a place for each of them
ANSWERS = {
    "whole": dict(prompt="To be", n=2, **SHORT),
    "stream": dict(prompt="To be", n=2, stream=True, **SHORT),
    "prompts": dict(prompt=["To be", "or not"], **SHORT),
    "stream of prompts": dict(prompt=["To be", "or not"], stream=True, **SHORT),
}


def test_one_after_the_other_over_http(start_cluster, tmp_path):
    """With places for two choices, and a key for one request at once."""
    key, line = new_key("ours", running="2")  # as many as each body has choices
    (tmp_path / "keys").write_text(line + "\n")
    cluster = start_cluster(model=SHAKESPEARE, settings={**SETTINGS, "max-requests": 2}, flags=["--api-keys", tmp_path / "keys"])
    door = Front(cluster, key)
    counts = {"ok": 0, "deadline": 0}

    def look(status, body):
        counts[status] += len(body["prompt"]) if isinstance(body["prompt"], list) else 1
        assert cluster.total("router", "baton_router_requests_total", status=status) == counts[status]
        # Nor does one that is refused keep anything.
        assert door.ask("/v1/completions", TOO_LONG).error[:2] == (400, "context_length_exceeded")

    for _ in range(10):
        for name, body in ANSWERS.items():
            reply = door.ask("/v1/completions", body)
            assert reply.status == 200, (name, reply.body)
            look("ok", body)
        assert door.ask("/v1/completions", ANSWERS["prompts"], {"x-request-timeout-ms": "1"}).error[1] == "deadline"
        look("deadline", ANSWERS["prompts"])


def test_one_after_the_other_by_grpc(tmp_path):
    """With a router that has a place for one."""
    router = Bare("baton-router", "--max-requests", "1", model=model_with_context(tmp_path / "model", 4096))
    worker = FakeWorker(router.grpc, "model", 4096, 384)
    client = Client(router.grpc)
    try:
        for _ in range(100):
            client.generate([1, 2, 3], max_tokens=2, ignore_eos=True)
            client.stub.GenerateOnce(request([1, 2, 3], max_tokens=2, ignore_eos=True), timeout=60)
            with pytest.raises(grpc.RpcError) as caught:
                client.generate([1, 2, 3], max_tokens=10 ** 6)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    finally:
        client.close()
        assert not worker.stop() and not router.stop()
