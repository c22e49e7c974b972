"""Who has an answer finds all books settled: its places are free, its key may ask again, and it is counted. The router is stopped in the moment when the last bytes have gone, and
does nothing more until the test has looked."""
import os

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


def stopped_router(start_cluster, tmp_path):
    """One that has places for two choices, and a key for one request at once."""
    key, line = new_key("ours", running="1")
    (tmp_path / "keys").write_text(line + "\n")
    plan = tmp_path / "plan"
    plan.write_text("")
    cluster = start_cluster(model=SHAKESPEARE, settings={**SETTINGS, "max-requests": 2}, flags=["--api-keys", tmp_path / "keys"],
                            process_environment={"router": {"BATON_FAILPOINTS": f"@{plan}"}})
    return cluster, Front(cluster, key), plan


def stop_when_told(cluster, plan, hit):
    """At the hit-th end from now on."""
    go = cluster.failpoint_log.with_name(cluster.failpoint_log.name + ".router.told.go")
    go.unlink(missing_ok=True)
    new = plan.with_suffix(".new")
    new.write_text(f"router.told=pause@{hit}\n")
    os.rename(new, plan)
    return go


def go_on(door, go):
    go.touch()
    assert door.ask("/v1/completions", ANSWERS["whole"]).status == 200


def look(cluster, door, status, count):
    assert cluster.total("router", "baton_router_requests_total", status=status) == count
    for _ in range(3):  # nor does one that is refused keep anything
        assert door.ask("/v1/completions", TOO_LONG).error[:2] == (400, "context_length_exceeded")


def test_when_the_last_bytes_have_gone(start_cluster, tmp_path):
    cluster, door, plan = stopped_router(start_cluster, tmp_path)
    told = 0
    for name, body in ANSWERS.items():
        prompts = len(body["prompt"]) if isinstance(body["prompt"], list) else 1
        go = stop_when_told(cluster, plan, prompts)
        reply = door.ask("/v1/completions", body)
        told += prompts
        assert reply.status == 200, (name, reply.body)
        look(cluster, door, "ok", told)
        go_on(door, go)
        told += 1
    assert len(cluster.failpoint_hits()) == len(ANSWERS)
    go = stop_when_told(cluster, plan, 1)
    assert door.ask("/v1/completions", ANSWERS["prompts"], {"x-request-timeout-ms": "1"}).error[1] == "deadline"
    look(cluster, door, "deadline", 2)
    go_on(door, go)


def test_one_after_the_other(tmp_path):
    """By gRPC, with a router that has a place for one."""
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
