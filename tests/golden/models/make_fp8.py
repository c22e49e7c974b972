"""Writes llama-fp8 and llama-fp8-blocks, `llama` with its layers in e4m3 as other tools write them, without any package: make_fp8.py

llama-fp8 has scales of tensors and static ones of inputs, llama-fp8-blocks has scales of 128 x 128. tests/golden/test_fp8_folder.c keeps
the hashes of their logits.
"""
import array
import bisect
import json
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
BLOCK, MOST = 128, 448.0
STATIC = {"q_proj": 0.010, "k_proj": 0.012, "v_proj": 0.011, "o_proj": 0.004, "gate_proj": 0.010, "up_proj": 0.011, "down_proj": 0.020}
SIZES = [((code & 7) + (8 if code >> 3 else 0)) * 2.0 ** (max(code >> 3, 1) - 10) for code in range(0x7f)]  # of codes 0 .. 0x7e
CONFIGS = {"llama-fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "static", "ignored_layers": ["lm_head"]},
           "llama-fp8-blocks": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK]}}


def e4m3(value):
    """To nearest, ties to the even code."""
    size, sign = min(abs(value), MOST), 0x80 if value < 0 else 0
    above = bisect.bisect_left(SIZES, size)
    if above == 0:
        return sign
    low, high = size - SIZES[above - 1], SIZES[above] - size
    return sign | (above - 1 if low < high or (low == high and above % 2 == 1) else above)


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def quantized(rows, high, wide):
    """A list of numbers, row by row, and a list of scales, block by block."""
    n, k = len(rows), len(rows[0])
    numbers, scales = bytearray(n * k), []
    for r in range(0, n, high):
        for c in range(0, k, wide):
            block = [(i, j) for i in range(r, min(r + high, n)) for j in range(c, min(c + wide, k))]
            scales.append(f32(max(abs(rows[i][j]) for i, j in block) / MOST))
            for i, j in block:
                numbers[i * k + j] = e4m3(f32(rows[i][j] / scales[-1]))
    return bytes(numbers), scales


def tensors_of(name, info, data, blocks):
    """What becomes of a tensor: (name, dtype, shape, bytes) each."""
    begin, end = info["data_offsets"]
    if not name.endswith("_proj.weight"):
        yield name, info["dtype"], info["shape"], data[begin:end]
        return
    n, k = info["shape"]
    values = array.array("f", b"".join(b"\0\0" + data[at:at + 2] for at in range(begin, end, 2)))  # bf16
    numbers, scales = quantized([values[i * k:(i + 1) * k] for i in range(n)], BLOCK if blocks else n, BLOCK if blocks else k)
    shape = [-(-n // BLOCK), -(-k // BLOCK)] if blocks else []
    yield name, "F8_E4M3", [n, k], numbers
    yield name.replace("weight", "weight_scale_inv" if blocks else "weight_scale"), "F32", shape, struct.pack(f"<{len(scales)}f", *scales)
    if not blocks:
        yield name.replace("weight", "input_scale"), "F32", [], struct.pack("<f", STATIC[name.split(".")[-2]])


def main():
    assert sys.byteorder == "little"
    source = (HERE / "llama/model.safetensors").read_bytes()
    length, = struct.unpack("<Q", source[:8])
    tensors, data = json.loads(source[8:8 + length]), source[8 + length:]
    tensors.pop("__metadata__", None)
    for folder, quantization in CONFIGS.items():
        header, body = {"__metadata__": {"format": "pt"}}, b""
        for name in sorted(tensors):
            for new, dtype, shape, tensor in tensors_of(name, tensors[name], data, "weight_block_size" in quantization):
                header[new] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(tensor)]}
                body += tensor
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        (HERE / folder).mkdir(exist_ok=True)
        (HERE / folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        config = json.loads((HERE / "llama/config.json").read_text()) | {"quantization_config": quantization}
        (HERE / folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (HERE / folder / "generation_config.json").write_text((HERE / "llama/generation_config.json").read_text())


main()
