"""The whole cluster, over real UCX, against ids that a reference implementation wrote."""
import json

import pytest
from harness import GOLDEN


def golden(model):
    return json.loads((GOLDEN / model / "golden.json").read_text())["prompts"]


@pytest.mark.parametrize("model", ["llama", "llama-mha", "llama3-rope", "llama-wide"])
def test_greedy_ids(start_cluster, connect, model):
    cluster = start_cluster(model=GOLDEN / model, compute="f32", settings={"chunk-tokens": 64})
    client = connect(cluster)
    for prompt in golden(model):
        expected = prompt["greedy"]
        answer = client.generate(prompt["ids"], temperature=0, max_tokens=len(expected), ignore_eos=True)
        assert answer.ids == expected
        assert answer.text == "", "a folder without tokenizer serves ids only"
        assert (answer.timing.prefill_worker, answer.timing.decode_worker) == ("prefill-0", "decode-0")
        assert answer.timing.lane in ("shm", "tcp")
        assert answer.timing.kv_bytes > 0
    # Every row that went through the model, by what it was: no row is left that could have been a prompt's.
    assert cluster.total("decode-0", "baton_prompt_tokens_computed_total") == 0
    assert cluster.total("decode-0", "baton_decode_tokens_computed_total") == sum(len(p["greedy"]) - 1 for p in golden(model))
    assert cluster.total("prefill-0", "baton_decode_tokens_computed_total") == 0
    assert cluster.total("prefill-0", "baton_prompt_tokens_computed_total") == sum(len(p["ids"]) for p in golden(model))


def test_prompt_tokens_are_counted_where_they_are_computed(start_cluster, connect):
    """No prefill worker: the decode worker computes the prompt, the same counter moves there, and the ids are the same."""
    cluster = start_cluster(model=GOLDEN / "llama", prefill=0, compute="f32")
    prompt = golden("llama")[-1]
    answer = connect(cluster).generate(prompt["ids"], temperature=0, max_tokens=len(prompt["greedy"]), ignore_eos=True)
    assert answer.ids == prompt["greedy"]
    assert answer.timing.prefill_worker == "" and answer.timing.lane == "" and answer.timing.kv_bytes == 0
    assert cluster.total("decode-0", "baton_prompt_tokens_computed_total") == len(prompt["ids"])
