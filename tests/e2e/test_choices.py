"""Several answers to one prompt (n > 1): each is what its number draws, wherever it is computed; the prompt is computed once, and its tokens are counted once."""
import random

import grpc
import pytest
from client import Answer, pb, reason_of, request
from harness import GOLDEN, IN_TURNS, failpoint, wait_until

PROMPT = [random.Random(5).randrange(3, 380) for _ in range(200)]
ASKED = dict(temperature=1, seed=6, max_tokens=24, ignore_eos=True, logits_hash=True, logprobs=3)
HITS = "baton_prefix_cache_hits_total"


def choices_of(call, n):
    """The parts of each choice, as those of an answer; and what comes once."""
    answers, last = [Answer() for _ in range(n)], Answer()
    for response in call:
        event = response.WhichOneof("event")
        if event in ("delta", "finished"):
            answers[getattr(response, event).choice].take(response)
        else:
            last.take(response)
    assert all(answer.finished for answer in answers) and last.timing
    assert last.usage.completion_tokens == sum(len(answer.ids) for answer in answers)
    return [(answer.ids, answer.hashes, answer.logprobs) for answer in answers], last


def test_choices_are_the_same_wherever_they_are_computed(start_cluster, connect):
    results = []
    for prefill, decode, n in [(1, 1, 4), (0, 1, 4), (2, 2, 4), (1, 1, 1)]:
        cluster = start_cluster(model=GOLDEN / "llama-wide", compute="fast", prefill=prefill, decode=decode, settings={"chunk-tokens": 64})
        client = connect(cluster)
        answers, last = choices_of(client.start(PROMPT, n=n, **ASKED), n)
        assert last.usage.prompt_tokens == len(PROMPT)
        if n > 1:
            once = client.stub.GenerateOnce(request(PROMPT, n=n, **ASKED), timeout=60)
            assert [list(choice.token_ids) for choice in [once, *once.others]] == [ids for ids, *_ in answers]
            assert [list(choice.logits_hashes) for choice in [once, *once.others]] == [hashes for _, hashes, _ in answers]
            assert [choice.finished.choice for choice in [once, *once.others]] == list(range(n)) and len(once.others[0].logprobs) == 24
            assert once.usage == last.usage
        if (prefill, decode) == (1, 1) and n > 1:  # except its last, partial block, the prompt is computed once
            assert cluster.total("prefill-0", HITS) >= 3 * 192
        results.append(answers)
        cluster.stop()
    assert results[0] == results[1] == results[2] and results[3] == results[0][:1]
    assert len({tuple(ids) for ids, *_ in results[0]}) == 4, "each draws for itself"


def test_choices_survive_the_death_of_a_decode_worker(start_cluster, connect):
    undisturbed = start_cluster(model=GOLDEN / "llama-wide", decode=2)
    expected, _ = choices_of(connect(undisturbed).start(PROMPT, n=3, **ASKED), 3)
    undisturbed.stop()
    cluster = start_cluster(model=GOLDEN / "llama-wide", decode=2, flags=IN_TURNS,
                            process_environment={"decode-0": failpoint("decode.after_tokens", "kill@9")})
    cluster.expected_exit = 1
    answers, _ = choices_of(connect(cluster).start(PROMPT, n=3, **ASKED), 3)
    assert [hit[1] for hit in cluster.failpoint_hits()] == ["kill"]
    assert answers == expected


def test_who_leaves_frees_all_choices(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide")
    call = connect(cluster).start(PROMPT, n=8, temperature=1, seed=1, max_tokens=3000, ignore_eos=True)
    seen = set()
    for response in call:
        seen.add(response.delta.choice)
        if len(seen) == 8:
            break
    call.cancel()
    wait_until("all blocks are free", lambda: all(b["used"] == b["pinned"] == b["landing"] == 0 for b in cluster.all_blocks().values()), 20)
    assert cluster.total("decode-0", "baton_decode_tokens_computed_total") < 8 * 2900, "it was cancelled, not finished"


def test_how_many_choices_there_may_be(start_cluster, connect):
    client = connect(start_cluster(model=GOLDEN / "llama", settings={"max-sequences": 3}))
    for n in (0, 17):
        with pytest.raises(grpc.RpcError) as caught:
            client.generate([1, 2, 3], n=n)
        assert reason_of(caught.value) == "invalid_sampling" and caught.value.details() == f"n must be between 1 and 16, got {n}"
    answers, last = choices_of(client.start([1, 2, 3], n=16, seed=1, max_tokens=3, ignore_eos=True), 16)
    assert [len(ids) for ids, *_ in answers] == [3] * 16 and last.usage == pb.Usage(prompt_tokens=3, completion_tokens=48)
