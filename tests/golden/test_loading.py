"""Model folders in shards, of tensors that are larger than a piece of the loader: each byte of a matrix is read once, memory for
staging is bounded, and every device gets the same weights. With --long also a folder of 1.3 GB, and the emulated GPU."""
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
SHIPPED = TOP / "deploy/local/tiny-shakespeare"
DRIVER = BUILD / "tests/libcuda-emulated.so"
STAGING = 2 * (16 << 20)
LONG = bool(os.environ.get("BATON_LONG"))


def drawn(rng, count):
    """bf16 numbers of 2^-7 to 2^-5 in size, of both signs."""
    block = 2 * 40_009  # no multiple of a row
    numbers = int.from_bytes(rng.randbytes(block), "little")
    sign, exponent = (int.from_bytes(two * (block // 2), "little") for two in (b"\xff\x80", b"\x00\x3c"))
    piece = (numbers & sign | exponent).to_bytes(block, "little")
    return (piece * (2 * count // block + 1))[:2 * count]


def write_folder(folder, hidden, ffn, layers, vocab, heads):
    """A Llama folder in two shards. Returns the bytes of its matrices."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocab,
              "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True}
    tensors = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        tensors |= {at + f"self_attn.{part}_proj.weight": [hidden, hidden] for part in "qkvo"}
        tensors |= {at + f"mlp.{part}_proj.weight": [ffn, hidden] for part in ("gate", "up")}
        tensors |= {at + "mlp.down_proj.weight": [hidden, ffn], at + "input_layernorm.weight": [hidden], at + "post_attention_layernorm.weight": [hidden]}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(SHIPPED / "tokenizer.json", folder)
    names, rng, weight_map = list(tensors), random.Random(1), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        shard, header, at = f"model-{number:05}-of-00002.safetensors", {}, 0
        for name in part:
            size = 2 * tensors[name][0] * (tensors[name] + [1])[1]
            header[name] = {"dtype": "BF16", "shape": tensors[name], "data_offsets": [at, at + size]}
            weight_map[name], at = shard, at + size
        text = json.dumps(header).encode()
        with open(folder / shard, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in part:
                file.write(drawn(rng, tensors[name][0] * (tensors[name] + [1])[1]))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return sum(2 * shape[0] * shape[1] for shape in tensors.values() if len(shape) == 2)


def baton(*arguments, environment=None, timeout=300):
    """Output, log, and the bytes of all reads (not of mapped files)."""
    command = ["sh", "-c", '"$@" || exit; grep -a rchar /proc/$$/io >&2', "sh", BUILD / "bin/baton", *arguments]
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=timeout, env={**os.environ, **(environment or {})})
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, int(re.search(r"rchar: (\d+)", done.stderr)[1])


def loaded(log):
    line = re.search(r'msg="loaded".*', log)[0]
    return {name: int(value) for name, value in re.findall(r" (read_bytes|staging_bytes)=(\d+)", line)}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The embedding is three pieces."""
    folder = tmp_path_factory.mktemp("loading") / "model"
    bytes_of_matrices = write_folder(folder, hidden=128, ffn=192, layers=1, vocab=70_000, heads=8)
    text = folder.parent / "text"
    text.write_text((TOP / "tests/golden/perplexity/part.txt").read_text()[:300])
    return folder, text, bytes_of_matrices


def perplexity(small, *flags, **keywords):
    out, log, read = baton("perplexity", "--model", small[0], "--window", 32, "--json", *flags, small[1], **keywords)
    return json.loads(out), loaded(log), read


def test_every_device_gets_the_same_weights(small):
    expected, counts, mapped = perplexity(small, "--threads", 2)
    assert counts == {"read_bytes": small[2], "staging_bytes": 0} and expected["scored"] > 30
    for device in ("deferred-late",) + ("deferred",) * LONG:
        told, counts, read = perplexity(small, "--threads", 2, "--device", device)
        assert told == expected
        assert counts == {"read_bytes": small[2], "staging_bytes": STAGING}
        assert small[2] <= read - mapped + (1 << 20) <= small[2] + (2 << 20)


@pytest.mark.skipif(not LONG or not DRIVER.exists(), reason="tests/run --long")
def test_the_emulated_gpu_gets_them(small):
    expected, _, _ = perplexity(small)
    environment = {"BATON_CUDA_DRIVER": DRIVER, "BATON_CUDA_EMULATED": "sms=2,memory=256"}
    told, counts, _ = perplexity(small, "--device", "cuda:0", environment=environment, timeout=900)
    assert told["numerics"].startswith("cuda-bf16-") and told["nll"] == pytest.approx(expected["nll"], rel=2e-3)
    assert counts == {"read_bytes": small[2], "staging_bytes": STAGING}


@pytest.mark.skipif(not LONG, reason="tests/run --long")
@pytest.mark.parametrize("device", ["cpu", "deferred"])
def test_a_large_folder(tmp_path, device):
    bytes_of_matrices = write_folder(tmp_path / "model", hidden=2048, ffn=8192, layers=10, vocab=32_000, heads=16)
    assert bytes_of_matrices > 1_300_000_000
    out, log, read = baton("bench", "engine", "--model", tmp_path / "model", "--device", device, "--no-pin", "--threads", 2, "--prefill", 8, "--batch", 0,
                           "--rounds", 1, "--json", "-", timeout=900)
    assert loaded(log) == {"read_bytes": bytes_of_matrices, "staging_bytes": 0 if device == "cpu" else STAGING}
    assert read < (bytes_of_matrices if device != "cpu" else 0) + (64 << 20)
    assert json.loads(out)["engines"][0]["load_s"] > 0
