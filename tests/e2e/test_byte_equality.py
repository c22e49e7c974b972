"""The same request gives the same bytes: hashes of each step's fp32 logits, alone and in company, over every lane, however the
prompt is cut into chunks and however many threads compute, with prompt lookup's drafts and without."""
import json
import random

import pytest
from harness import GOLDEN, LONG, PREFILLED_THERE, SHAKESPEARE, SHM

TOKENS = 64 if LONG else 32
REQUESTS = {"fast": 50, "f32": 20} if LONG else {"fast": 12, "f32": 10}
TOGETHER = 16
TOGETHER_ON = [(SHM, 16, 2), ("tcp", 64, 1), ("tcp", 512, 2)]  # (lane, chunk-tokens, threads)
MODELS = {"shakespeare": (SHAKESPEARE, 2048), "llama-wide": (GOLDEN / "llama-wide", 380)}


def requests_for(vocabulary, count, tokens=TOKENS):
    """Prompts of 1 to 150 ids, and two that cross attention's segments and the largest chunk, each with its own seed, at
    temperature 1."""
    rng = random.Random(5)
    lengths = [600, 530] + [rng.choice([1, 2, 15, 16, 17, 31, 32, 33, 64, 150]) for _ in range(count - 2)]
    return [([rng.randrange(3, vocabulary) for _ in range(length)],
             dict(temperature=1, seed=1000 + i, max_tokens=tokens, ignore_eos=True, logits_hash=True))
            for i, length in enumerate(lengths)]


def outcome(answer):
    assert len(answer.hashes) == len(answer.ids) == TOKENS
    return answer.ids, answer.hashes


@pytest.mark.parametrize("compute", ["f32", "fast"])
@pytest.mark.parametrize("model", MODELS)
def test_same_request_same_bytes(start_cluster, connect, model, compute):
    folder, vocabulary = MODELS[model]
    requests = requests_for(vocabulary, REQUESTS[compute])

    def run(transport, chunk, threads, company):
        cluster = start_cluster(model=folder, compute=compute, transport=transport,
                                settings=PREFILLED_THERE | {"chunk-tokens": chunk, "draft-tokens": 4 * company}, flags=["--threads", threads])
        client = connect(cluster)
        size = TOGETHER if company else 1
        answers = []
        for first in range(0, len(requests), size):
            answers += client.generate_all(requests[first:first + size])
        if transport != "auto":
            assert {answer.timing.lane for answer in answers} == {transport}
        drafts, accepted = (cluster.total("decode-0", name) for name in ("baton_draft_tokens_total", "baton_draft_tokens_accepted_total"))
        assert accepted <= drafts and (company or not drafts)
        cluster.stop()
        return [outcome(answer) for answer in answers]

    alone = run(SHM, 512, 1, company=False)
    assert len({tuple(ids) for ids, _ in alone}) > len(requests) // 2, "the requests differ"
    # Without --long one of the three, and each of them in some of these tests.
    one = TOGETHER_ON[(2 * list(MODELS).index(model) + (compute == "fast")) % 3]
    for transport, chunk, threads in TOGETHER_ON if LONG else [one]:
        assert run(transport, chunk, threads, company=True) == alone, (transport, chunk, threads)


@pytest.mark.parametrize("model", ["mistral-window"] + ["qwen2"] * LONG)
def test_families_over_a_handoff_and_without(start_cluster, connect, model):
    """A window that is left many times over, biases: prefilled elsewhere or where it is decoded, in whatever chunks."""
    requests = requests_for(380, 10)

    def run(prefill, chunk, company):
        cluster = start_cluster(model=GOLDEN / model, compute="fast", prefill=prefill, settings=PREFILLED_THERE | {"chunk-tokens": chunk})
        client = connect(cluster)
        size = len(requests) if company else 1
        answers = []
        for first in range(0, len(requests), size):
            answers += client.generate_all(requests[first:first + size])
        assert {answer.timing.prefill_worker for answer in answers} == {"prefill-0" if prefill else ""}
        cluster.stop()
        return [outcome(answer) for answer in answers]

    handed_over = run(1, 512, company=False)
    assert len({tuple(ids) for ids, _ in handed_over}) == len(requests)
    assert run(1, 16, company=True) == handed_over
    assert run(0, 64, company=True) == handed_over


@pytest.mark.parametrize("folder,vocabulary,head_dim", [(GOLDEN / "qwen2", 380, 16), (GOLDEN / "qwen3", 380, 32)] + [(SHAKESPEARE, 2048, 64)] * LONG,
                         ids=["qwen2", "qwen3"] + ["shakespeare"] * LONG)
def test_int8_keys_and_values_over_either_lane_and_without(start_cluster, connect, folder, vocabulary, head_dim):
    """Blocks of 32 tokens, keys and values of 2 heads in each layer: a byte for each number and a scale of 4. None may be another at the other
    end. From a head_dim of 32 on, decode reads them where they lie."""
    config = json.loads((folder / "config.json").read_text())
    assert (config.get("head_dim", config["hidden_size"] // config["num_attention_heads"]), config["num_key_value_heads"]) == (head_dim, 2)
    requests = requests_for(vocabulary, 8)
    to_move = sum(-(-len(prompt) // 32) for prompt, _ in requests) * 32 * config["num_hidden_layers"] * 2 * 2 * (head_dim + 4)

    def run(chunk, prefill=1, transport="auto"):
        cluster = start_cluster(model=folder, compute="fast", prefill=prefill, transport=transport, flags=["--kv", "int8"],
                                settings=PREFILLED_THERE | {"chunk-tokens": chunk})
        numerics = {worker["numerics"] for worker in cluster.status()["workers"]}
        assert len(numerics) == 1 and "/kv-int8/" in numerics.pop()
        answers = connect(cluster).generate_all(requests)
        assert {answer.timing.lane for answer in answers} == {transport if prefill else ""}
        cluster.stop()
        return [outcome(answer) for answer in answers], sum(answer.timing.kv_bytes for answer in answers)

    local, none = run(64, prefill=0)
    shm, moved = run(16, transport=SHM)
    tcp, moved_too = run(512, transport="tcp")
    assert local == shm == tcp
    assert (none, moved, moved_too) == (0, to_move, to_move)
