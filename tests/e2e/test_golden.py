"""The whole cluster, over real UCX, against ids that a reference implementation wrote."""
import json
import os
import shutil
import subprocess

import pytest
from harness import BATON, GOLDEN, LONG


def golden(model):
    return json.loads((GOLDEN / model / "golden.json").read_text())["prompts"]


@pytest.mark.parametrize("model", ["llama", "mistral-window", "qwen3", "rope-longrope"] + ["llama-mha", "llama3-rope", "llama-wide", "mistral-headdim", "qwen2"] * LONG)
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
    computed, cached = (cluster.total("prefill-0", name) for name in ("baton_prompt_tokens_computed_total", "baton_prefix_cache_hits_total"))
    assert computed + cached == sum(len(p["ids"]) for p in golden(model))


def test_an_instruction_set_is_forced_on_all_workers(start_cluster, connect):
    """The equal sets give the same hashes of logits; AVX-512-BF16, where there is one, need not."""
    prompt = golden("mistral-window")[-1]

    def hashes(isa):
        cluster = start_cluster(model=GOLDEN / "mistral-window", compute="fast", flags=["--isa", isa])
        answer = connect(cluster).generate(prompt["ids"], temperature=1, seed=3, max_tokens=24, ignore_eos=True, logits_hash=True)
        log = (cluster.folder / "logs" / "decode-0.log").read_text()
        cluster.stop()
        return answer.hashes, log

    portable, log = hashes("portable")
    assert "isa=portable" in log and len(portable) == 24
    flags = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()
    widest = "avx512" if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= set(flags) else "avx2" if {"avx2", "fma"} <= set(flags) else "portable"
    forced, log = hashes(widest)
    assert f"isa={widest}" in log
    assert forced == portable


@pytest.mark.parametrize("changes, flags, settings, code, sentence", [
    (dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=8), [], {}, 1,
     '"model_type": "qwen3_moe" (Qwen3MoeForCausalLM) is a mixture of experts, which is not supported'),
    (dict(num_hidden_layers=2), [], {}, 1, "model.layers.2.input_layernorm.weight: there is no place for it in this model by config.json, nor for 10 others"),
    ({}, [], {"kv-tokens": 1 << 30}, 1, "memory are needed (weights 0.0, KV pool of 1073741824 tokens 768.0,"),
    ({}, ["--compute", "f32", "--isa", "avx2"], {}, 2, "isa avx2 is of the fast path"),
], ids=["experts", "layers", "memory", "isa"])
def test_what_cannot_be_served_is_one_sentence_at_start(tmp_path, changes, flags, settings, code, sentence):
    model = tmp_path / "model"
    shutil.copytree(GOLDEN / "qwen3", model)
    config = json.loads((model / "config.json").read_text())
    if "num_hidden_layers" in changes:
        config["layer_types"] = config["layer_types"][:changes["num_hidden_layers"]]
    (model / "config.json").write_text(json.dumps({**config, **changes}))
    environment = dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path))
    for name, value in settings.items():
        environment["BATON_" + name.upper().replace("-", "_")] = str(value)
    done = subprocess.run([BATON, "up", "--no-pin", "--model", model, *flags], env=environment, text=True, capture_output=True, timeout=60)
    assert done.returncode == code
    assert sentence in done.stderr


def test_prompt_tokens_are_counted_where_they_are_computed(start_cluster, connect):
    """No prefill worker: the decode worker computes the prompt, the same counter moves there, and the ids are the same."""
    cluster = start_cluster(model=GOLDEN / "llama", prefill=0, compute="f32")
    prompt = golden("llama")[-1]
    answer = connect(cluster).generate(prompt["ids"], temperature=0, max_tokens=len(prompt["greedy"]), ignore_eos=True)
    assert answer.ids == prompt["greedy"]
    assert answer.timing.prefill_worker == "" and answer.timing.lane == "" and answer.timing.kv_bytes == 0
    assert cluster.total("decode-0", "baton_prompt_tokens_computed_total") == len(prompt["ids"])
