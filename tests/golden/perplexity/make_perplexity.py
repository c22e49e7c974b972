#!/usr/bin/env python3
"""Writes expected.json: the perplexity of deploy/local/tiny-shakespeare on part.txt, by a forward pass written down here (numpy,
fp64 of the bf16 weights; nothing of Baton). Needs numpy and tokenizers.

    make_perplexity.py TINYSHAKESPEARE.TXT

The text is tinyshakespeare (1,115,394 characters); part.txt is the beginning of its last 5%, which the model never saw. On all of
that, this pass gives what transformers gives in fp32 (5.23.0): 4.310178 nats, perplexity 74.4538. It is checked before anything
is written."""
import json
import pathlib
import struct
import sys

import numpy as np
import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parents[2] / "deploy/local/tiny-shakespeare"
WINDOW, PART_WINDOWS, WHOLE_NLL = 512, 4, 4.310178


def read_tensors():
    data = (MODEL / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            wide = np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
            tensors[name] = wide.view("<f4").astype("f8").reshape(entry["shape"])
    return tensors


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def logits(tensors, config, ids):
    """[T, V] of one window."""
    heads, kv_heads, dim, eps = (config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"))
    count = len(ids)
    theta = config["rope_parameters"]["rope_theta"]
    angles = np.outer(np.arange(count), theta ** (-np.arange(0, dim, 2) / dim))
    cos, sin = (np.concatenate([part, part], -1) for part in (np.cos(angles), np.sin(angles)))
    hidden_from = np.triu(np.ones((count, count), bool), 1)
    x = tensors["model.embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        part = lambda name: tensors[f"model.layers.{layer}.{name}.weight"]  # noqa: E731
        split = lambda y, n: y.reshape(count, n, dim).transpose(1, 0, 2)  # noqa: E731
        y = norm(x, part("input_layernorm"), eps)
        q = rotate(split(y @ part("self_attn.q_proj").T, heads), cos, sin)
        k = rotate(split(y @ part("self_attn.k_proj").T, kv_heads), cos, sin).repeat(heads // kv_heads, 0)
        v = split(y @ part("self_attn.v_proj").T, kv_heads).repeat(heads // kv_heads, 0)
        scores = np.where(hidden_from, -np.inf, q @ k.transpose(0, 2, 1) / np.sqrt(dim))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (scores / scores.sum(-1, keepdims=True)) @ v
        x = x + seen.transpose(1, 0, 2).reshape(count, heads * dim) @ part("self_attn.o_proj").T
        y = norm(x, part("post_attention_layernorm"), eps)
        gate = y @ part("mlp.gate_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ part("mlp.up_proj").T)) @ part("mlp.down_proj").T
    return norm(x, tensors["model.norm.weight"], eps) @ tensors["model.embed_tokens.weight"].T


def mean_nll(tensors, config, ids):
    """Whole windows alone; the first token of a window isn't scored."""
    sums, scored = 0.0, 0
    for begin in range(0, len(ids) // WINDOW * WINDOW, WINDOW):
        window = ids[begin:begin + WINDOW]
        rows = logits(tensors, config, window)[:-1]
        rows -= rows.max(-1, keepdims=True)
        picked = rows[np.arange(WINDOW - 1), window[1:]]
        sums += (np.log(np.exp(rows).sum(-1)) - picked).sum()
        scored += WINDOW - 1
    return sums / scored, scored


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text = pathlib.Path(sys.argv[1]).read_text()
    held_out = text[int(0.95 * len(text)):]
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    encode = lambda piece: np.array(tokenizer.encode(piece, add_special_tokens=False).ids)  # noqa: E731
    tensors, config = read_tensors(), json.loads((MODEL / "config.json").read_text())
    whole, scored = mean_nll(tensors, config, encode(held_out))
    print(f"whole: {scored} tokens scored, {whole:.6f} nats, perplexity {np.exp(whole):.4f}")
    if abs(whole - WHOLE_NLL) > 2e-6:
        sys.exit(f"transformers gives {WHOLE_NLL} nats: nothing is written")
    part = held_out[:len(held_out) * PART_WINDOWS * WINDOW // 19413]
    while len(encode(part)) < PART_WINDOWS * WINDOW:  # up to the end of a line
        part = held_out[:held_out.index("\n", len(part) + 1) + 1]
    nll, scored = mean_nll(tensors, config, encode(part))
    (HERE / "part.txt").write_text(part)
    expected = {"tokens": len(encode(part)), "window": WINDOW, "scored": scored, "nll": nll, "perplexity": float(np.exp(nll))}
    (HERE / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
    print(f"part: {expected}")


if __name__ == "__main__":
    main()
