"""Writes llama-scan/model.safetensors, the random weights of its config.json, without any package: make_scan.py

Nothing was computed with it elsewhere (there is no golden.json): tests compare what it gives with what it gives, in other company.
"""
import array
import json
import pathlib
import random
import struct
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "llama-scan"


def shapes(c):
    hidden, ffn, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    heads, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(c["num_hidden_layers"]):
        for name, shape in {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (heads, hidden),
                            "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, heads),
                            "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden), "mlp.down_proj": (hidden, ffn)}.items():
            yield f"model.layers.{layer}.{name}.weight", shape


def bf16(rng, name, shape):
    """As large as make_models.py makes them, cut to bf16."""
    if len(shape) == 1:
        values = [1 + 0.2 * rng.gauss(0, 1) for _ in range(shape[0])]
    else:
        scale = 0.6 if "embed" in name else 1.6 / shape[1] ** 0.5
        values = [scale * rng.gauss(0, 1) for _ in range(shape[0] * shape[1])]
    return array.array("H", array.array("f", values).tobytes())[1::2].tobytes()


def main():
    assert sys.byteorder == "little"
    rng, header, data = random.Random(17), {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes(json.loads((FOLDER / "config.json").read_text())):
        tensor = bf16(rng, name, shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(tensor)]}
        data += tensor
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (FOLDER / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


main()
