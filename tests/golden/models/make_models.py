"""Writes the small random models of this folder and what transformers computes with them, in float32 on the CPU.

Usage: make_models.py OUT [NAME...]     Needs: pip install torch 'transformers>=5' safetensors

Each OUT/<name>/ holds config.json, the weights, generation_config.json and golden.json; README.md says how to compare.
Between them they cover what published models look like: both spellings of config.json (rope_theta + rope_scaling +
torch_dtype up to transformers 4; rope_parameters + dtype since 5), one file and shards with an index, bf16, fp16 and fp32.
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

SEED = 7
GREEDY_TOKENS = 32
BASE = dict(vocab_size=384, hidden_size=128, intermediate_size=192, num_hidden_layers=3, num_attention_heads=8,
            num_key_value_heads=2, max_position_embeddings=2048, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2,
            pad_token_id=None)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=64)
WIDE = {**BASE, "hidden_size": 64, "intermediate_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 4096}
SMALL = {**BASE, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 256}
# Longer than the trained context; `rope-dynamic` and `rope-longrope-short` stay within it.
ROPES = {
    "rope-linear": dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
    "rope-dynamic": dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0),
    "rope-yarn": dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32),
    "rope-yarn-mscale": dict(rope_type="yarn", rope_theta=50000.0, factor=4.0, original_max_position_embeddings=64, beta_fast=4.0,
                             beta_slow=0.5, mscale=1.0, mscale_all_dim=0.4, truncate=False),
    "rope-longrope": dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32,
                          short_factor=[1.0 + 0.05 * i for i in range(8)], long_factor=[1.0 + 0.9 * i for i in range(8)]),
    "rope-longrope-short": dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=256, attention_factor=1.19,
                                short_factor=[1.0 + 0.25 * i for i in range(8)], long_factor=[1.0 + 0.9 * i for i in range(8)]),
}
QWEN_ROPE = dict(rope_type="default", rope_theta=1000000.0)
STORED = {"qwen3": torch.float32, "mistral-headdim": torch.float16}  # the others: bf16
OLDER_SPELLING = {"llama3-rope", "qwen2", "mistral-headdim", "rope-linear", "rope-yarn"}
# name: (offset of the random seed, configuration, prompt lengths)
MODELS = {
    "llama": (0, LlamaConfig(**BASE, tie_word_embeddings=False), (1, 7, 33, 130)),
    "llama-mha": (1, LlamaConfig(**{**BASE, "num_key_value_heads": 8}, tie_word_embeddings=False), (1, 7, 33, 130)),
    "llama3-rope": (2, LlamaConfig(**BASE, tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE), (1, 7, 33, 130)),
    "qwen2": (3, Qwen2Config(**BASE, tie_word_embeddings=True, rope_parameters=QWEN_ROPE), (1, 7, 33, 130)),
    "qwen3": (4, Qwen3Config(**BASE, head_dim=32, tie_word_embeddings=True, rope_parameters=QWEN_ROPE), (1, 7, 33, 130)),
    "mistral-window": (5, MistralConfig(**BASE, sliding_window=24, tie_word_embeddings=False), (1, 7, 33, 130)),
    "mistral-headdim": (6, MistralConfig(**{**BASE, "hidden_size": 160}, head_dim=32, sliding_window=None,
                                         tie_word_embeddings=False), (1, 7, 33, 130)),
    "llama-wide": (9, LlamaConfig(**WIDE, tie_word_embeddings=True), (1, 700, 3000)),
}
for seed, (name, rope) in zip((20, 21, 22, 30, 49, 31), ROPES.items()):
    # Beyond the trained 32 from the first token on: transformers takes the long factors by the length of a sequence.
    lengths = (33, 70, 150) if name == "rope-longrope" else (1, 33, 150)
    MODELS[name] = (seed, LlamaConfig(**SMALL, tie_word_embeddings=True, rope_parameters=rope), lengths)


def edit_json(path, edit):
    with open(path) as file:
        data = json.load(file)
    edit(data)
    with open(path, "w") as file:
        json.dump(data, file, indent=2, sort_keys=True)


def older_spelling(config):
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"


def write_model(folder, name, config):
    """Random weights, large enough that logits differ clearly, rounded to bf16 so that storage loses nothing."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 1:
                p.copy_(0.2 * torch.randn_like(p) + (1 if "norm" in key else 0))
            else:
                scale = 0.6 if "embed" in key or "lm_head" in key else 1.6 / p.shape[-1] ** 0.5
                p.copy_(torch.randn_like(p) * scale)
            p.copy_(p.to(torch.bfloat16).float())
    model.to(STORED.get(name, torch.bfloat16)).save_pretrained(folder, max_shard_size="300KB" if name == "llama-mha" else "5GB")
    if name in OLDER_SPELLING:
        edit_json(os.path.join(folder, "config.json"), older_spelling)
    if name == "llama3-rope":
        edit_json(os.path.join(folder, "generation_config.json"), lambda data: data.update(eos_token_id=[2, 5]))


def golden_prompt(model, ids):
    """The exact forward of every step; the cache only spares time."""
    greedy, margins, past, row = [], [], None, None
    step_ids = ids
    with torch.no_grad():
        first = model(ids).logits[0, -1]
        for _ in range(GREEDY_TOKENS):
            out = model(step_ids, past_key_values=past, use_cache=True)
            row, past = out.logits[0, -1], out.past_key_values
            top = torch.topk(row, 2).values
            margins.append(round(float(top[0] - top[1]), 4))
            greedy.append(int(row.argmax()))
            step_ids = row.argmax().view(1, 1)
    return dict(ids=ids[0].tolist(), greedy=greedy, margins=margins, first_logits=[round(float(x), 5) for x in first])


def main(out, names):
    for name in names or MODELS:
        offset, config, lengths = MODELS[name]
        folder = os.path.join(out, name)
        torch.manual_seed(SEED + offset)
        write_model(folder, name, config)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        generator = torch.Generator().manual_seed(SEED * 1000 + offset)
        prompts = [golden_prompt(model, torch.randint(3, config.vocab_size, (1, n), generator=generator)) for n in lengths]
        with open(os.path.join(folder, "golden.json"), "w") as file:
            json.dump(dict(prompts=prompts), file)
        print(name, "smallest margin", min(min(p["margins"]) for p in prompts), flush=True)


main(sys.argv[1], sys.argv[2:])
