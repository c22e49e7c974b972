"""Colocated (two decode workers that prefill for themselves) and disaggregated (one and one) clusters give the same bytes for the same 120
requests, or 200 with --long, also where chunks, blocks, threads and lanes differ and KV blocks run out."""
import concurrent.futures
import random

import pytest
from harness import GOLDEN, LONG, PREFILLED_THERE, arm, wait_until

AT_ONCE, VOCABULARY, GROWING = 24, 380, 8
LONGEST = 300  # in a second segment of attention
HITS, PREEMPTIONS = "baton_prefix_cache_hits_total", 'baton_preemptions_total{{kind="{}"}}'


def requests_for(total, seed=8):
    """Short, middling and long prompts; a third begin like others; greedy and drawn, cut in every way that sampling has."""
    rng = random.Random(seed)

    def ids(count):
        return [rng.randrange(3, VOCABULARY) for _ in range(count)]
    beginnings = [ids(count) for count in (32, 64, 100, 200)]
    requests = []
    for i in range(total):
        prompt = ids(rng.choice([1, 2, 7, 31, 32, 33, 40, 64, 90]) if i % 20 else LONGEST)
        if i % 3 == 0 and i % 20:
            prompt = rng.choice(beginnings) + prompt
        asked = dict(seed=i, max_tokens=rng.choice([1, 2, 12, 24, 64]), temperature=rng.choice([0, 0.6, 1, 1]), logits_hash=True,
                     ignore_eos=bool(i % 4))
        asked |= rng.choice([{}, {}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.02}, {"min_tokens": 1}])
        requests.append((prompt, asked))
    # Short prompts with long answers: let in at once, they grow to three times what decode-0 has.
    return requests[:-GROWING] + [(ids(20), dict(seed=i, max_tokens=180, temperature=1, logits_hash=True, ignore_eos=True)) for i in range(GROWING)]


def serve(client, requests):
    """AT_ONCE under way at any time; (the bytes of each answer, its timing)."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda asked: client.generate(asked[0], **asked[1]), requests))
    for answer in answers:
        assert answer.timing.prefills == 1 and len(answer.hashes) == len(answer.ids) > 0
    return [(answer.ids, answer.hashes, answer.finished.reason) for answer in answers], [answer.timing for answer in answers]


def serve_together(cluster, client, armed, requests):
    """Nothing is read until the prompts of all are there: then they decode side by side."""
    def computed():
        return cluster.total("prefill-0", "baton_prompt_tokens_computed_total")
    before = computed()
    arm(armed, "decode.reading=pause")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, client, requests)
        wait_until("all prompts are computed", lambda: computed() == before + sum(len(prompt) for prompt, _ in requests), 60)
        cluster.failpoint_go("decode.reading")
        return served.result()


def first_difference(requests, answers, others):
    """None: all are equal."""
    for i, (answer, other) in enumerate(zip(answers, others, strict=True)):
        if answer != other:
            at = next((t for t, pair in enumerate(zip(answer[1], other[1])) if len(set(pair)) > 1), "the end")
            return f"request {i} ({len(requests[i][0])} tokens, {requests[i][1]}) differs at {at}"
    return None


@pytest.mark.parametrize("total,weights,kv,swap,kind", [(200 if LONG else 120, "bf16", "auto", "1", "swap"), (60, "int8", "int8", "0", "recompute")])
def test_colocated_and_disaggregated_give_the_same_bytes(start_cluster, connect, tmp_path, total, weights, kv, swap, kind):
    requests = requests_for(total)
    settings = {"weights": weights, "kv": kv, "swap-share": swap}

    colocated = start_cluster(model=GOLDEN / "llama-scan", compute="fast", prefill=0, decode=2, settings=settings | {"chunk-tokens": 64, "chunk-time": "1us"})
    answers, timings = serve(connect(colocated), requests)
    assert {timing.decode_worker for timing in timings} == {"decode-0", "decode-1"}
    assert {timing.prefill_worker for timing in timings} == {""}
    assert sum(colocated.total(name, HITS) for name in ("decode-0", "decode-1")) > 0
    assert all(colocated.total(name, "baton_preemptions_total") == 0 for name in ("decode-0", "decode-1"))
    colocated.stop()
    assert len({tuple(hashes) for _, hashes, _ in answers}) > total * 0.9, "the requests differ"

    armed = tmp_path / "failpoints"
    armed.write_text("")
    disaggregated = start_cluster(model=GOLDEN / "llama-scan", compute="fast", transport="tcp", flags=["--threads", 2],
                                  settings=settings | PREFILLED_THERE | {"chunk-tokens": 48, "block-tokens": 8},
                                  process_environment={"decode-0": {"BATON_KV_TOKENS": "512", "BATON_FAILPOINTS": f"@{armed}"}})
    client = connect(disaggregated)
    others, timings = (first + last for first, last in zip(serve(client, requests[:-GROWING]), serve_together(disaggregated, client, armed, requests[-GROWING:])))
    workers = {(asked["max_tokens"] > 1, timing.prefill_worker, timing.decode_worker) for timing, (_, asked) in zip(timings, requests)}
    assert workers == {(True, "prefill-0", "decode-0"), (False, "prefill-0", "")}, "one token needs no handoff"
    assert {timing.lane for timing, (ids, _, _) in zip(timings, others) if len(ids) > 1} == {"tcp"}
    assert disaggregated.total("prefill-0", HITS) > 0 and disaggregated.total("decode-0", HITS) > 0
    assert disaggregated.metrics("decode-0")[PREEMPTIONS.format(kind)] > 0
    assert first_difference(requests, others, answers) is None
