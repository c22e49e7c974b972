"""Requests to the context limit: one, and 24 (64 with --long) at once where workers have memory for two and a half; all are answered, as they are alone, or refused
with the numbers."""
import random

import front
import grpc
import pytest
from client import pb, reason_of
from harness import GOLDEN, LONG, PREFILLED_THERE, wait_until

CONTEXT, POOL, TOGETHER = 256, 640, 64 if LONG else 24
ASKED = dict(temperature=1, ignore_eos=True, logits_hash=True)


def prompts():
    """Each leaves another room for an answer; the last one room for one token."""
    rng = random.Random(3)
    lengths = [CONTEXT - 8 - i * 37 % 150 for i in range(TOGETHER - 1)] + [CONTEXT - 1]
    return [[rng.randrange(3, 380) for _ in range(length)] for length in lengths]


def outcome(prompt, answer):
    assert len(prompt) + len(answer.ids) == CONTEXT
    assert answer.finished.reason == pb.FINISH_REASON_MAX_TOKENS and answer.timing.prefills == 1
    return answer.ids, answer.hashes


def nothing_held(cluster):
    return all(b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values())


def asked_for(prompt, i):
    return prompt, dict(ASKED, seed=i, max_tokens=CONTEXT - len(prompt))


def quiet(start_cluster, connect, requests):
    """Each alone, with room for all."""
    cluster = start_cluster(model=GOLDEN / "qwen3", compute="fast", prefill=0, settings={"context": CONTEXT})
    client = connect(cluster)
    answers = [outcome(prompt, client.generate(prompt, **asked)) for prompt, asked in requests]
    assert cluster.total("decode-0", "baton_preemptions_total") == 0
    cluster.stop()
    return answers


def test_many_to_the_context_limit_in_too_little_memory(start_cluster, connect):
    requests = [asked_for(prompt, i) for i, prompt in enumerate(prompts())]
    expected = quiet(start_cluster, connect, requests)
    preempted = 0
    for prefill in (1, 0):
        cluster = start_cluster(model=GOLDEN / "qwen3", compute="fast", prefill=prefill, settings=PREFILLED_THERE | {"context": CONTEXT, "kv-tokens": POOL})
        answers = connect(cluster).generate_all(requests)
        assert [outcome(prompt, answer) for (prompt, _), answer in zip(requests, answers)] == expected
        assert {answer.timing.prefill_worker for answer in answers} == {"prefill-0" if prefill else ""}
        assert cluster.total("router", "baton_router_retries_total") == 0
        preempted += cluster.total("decode-0", "baton_preemptions_total")
        wait_until("all blocks are free", lambda: nothing_held(cluster), 15)
        cluster.stop()
    assert preempted > 0


def refusal(client, prompt, **asked):
    with pytest.raises(grpc.RpcError) as caught:
        client.generate(prompt, ignore_eos=True, **asked)
    assert (caught.value.code(), reason_of(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "context_length_exceeded")
    return caught.value.details()


def test_the_last_token_that_fits_and_the_first_that_does_not(start_cluster, connect):
    """At the model's own limit, and where the pool is smaller than that."""
    prompt, limit = [5 + i % 300 for i in range(2048)], 2048
    cluster = start_cluster(model=GOLDEN / "qwen3", compute="fast")
    client = connect(cluster)
    answer = client.generate(prompt[:limit - 20], max_tokens=20, **ASKED, seed=1)
    assert len(answer.ids) == 20
    assert client.generate(prompt[:limit - 1], max_tokens=1, **ASKED, seed=1).usage.completion_tokens == 1
    numbers = "the prompt has {} tokens and max_tokens is {}, together {}, but "
    for length, more in ((limit, 1), (limit - 1, 2)):
        assert refusal(client, prompt[:length], max_tokens=more) == numbers.format(length, more, limit + 1) + "the model's context is 2048"
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)
    cluster.stop()

    cluster = start_cluster(model=GOLDEN / "qwen3", compute="fast", process_environment={"decode-0": {"BATON_KV_TOKENS": "1024"}})
    client = connect(cluster)
    assert refusal(client, prompt[:1000], max_tokens=25) == numbers.format(1000, 25, 1025) + "one request may have 1024 on a decode worker"
    assert len(client.generate(prompt[:1000], max_tokens=24, ignore_eos=True).ids) == 24


def test_an_answer_as_long_as_there_is_room(start_cluster, connect):
    """A chat without max_tokens fills what a worker takes, which is less than the model's context here, and /v1/models tells it."""
    cluster = start_cluster(settings=front.SETTINGS, process_environment={"decode-0": {"BATON_KV_TOKENS": "256"}})
    door, client = front.Front(cluster), connect(cluster)
    assert door.ask("/v1/models").json["data"][0]["max_model_len"] == 256 and door.ask("/tokenize", {"prompt": "a"}).json["max_model_len"] == 256
    assert cluster.status()["models"][0]["context"] == 256
    answer = door.chat("Speak.", ignore_eos=True, seed=1).json
    assert answer["usage"]["total_tokens"] == 256 and answer["choices"][0]["finish_reason"] == "length"
    assert len(client.generate([5] * 248, ignore_eos=True).ids) == 8 and len(client.generate([5] * 20, ignore_eos=True).ids) == 16
    with pytest.raises(grpc.RpcError) as caught:
        client.generate([5] * 256, ignore_eos=True)
    assert reason_of(caught.value) == "context_length_exceeded"
