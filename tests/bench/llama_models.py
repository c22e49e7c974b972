"""One model of random weights in the formats of both sides: a Hugging Face folder and its quantized copies for Baton, GGUF files
for llama.cpp. Each is made once; a file gets its name when it is whole. For speed alone: rows of q and k aren't put into the order
that llama.cpp's RoPE wants."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys


def folder(work, shape, weights):
    return work / f"{shape}-{weights}"


def gguf(work, shape, kind):
    return work / f"{shape}-{kind}.gguf"


def tensors(config):
    """(name in a Hugging Face folder, name in a GGUF file, shape), in one order."""
    hidden, ffn, heads = (config[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads"))
    dim = hidden // heads
    kv = config["num_key_value_heads"] * dim
    yield "model.embed_tokens.weight", "token_embd.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{i}.", f"blk.{i}."
        yield ours + "input_layernorm.weight", theirs + "attn_norm.weight", (hidden,)
        for name, short, rows in (("q", "attn_q", heads * dim), ("k", "attn_k", kv), ("v", "attn_v", kv)):
            yield f"{ours}self_attn.{name}_proj.weight", f"{theirs}{short}.weight", (rows, hidden)
            if config["model_type"] == "qwen2":
                yield f"{ours}self_attn.{name}_proj.bias", f"{theirs}{short}.bias", (rows,)
        yield ours + "self_attn.o_proj.weight", theirs + "attn_output.weight", (hidden, heads * dim)
        yield ours + "post_attention_layernorm.weight", theirs + "ffn_norm.weight", (hidden,)
        yield ours + "mlp.gate_proj.weight", theirs + "ffn_gate.weight", (ffn, hidden)
        yield ours + "mlp.up_proj.weight", theirs + "ffn_up.weight", (ffn, hidden)
        yield ours + "mlp.down_proj.weight", theirs + "ffn_down.weight", (hidden, ffn)
    yield "model.norm.weight", "output_norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", "output.weight", (config["vocab_size"], hidden)


def draw(rng, shape):
    """bf16 numbers as u16: N(0, 0.02); a vector of ones where it is a norm is the caller's."""
    import numpy as np
    values = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
    return ((values.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def write_folder(path, config_path, config):
    """model.safetensors, tensor after tensor."""
    import numpy as np
    rng, offset, header = np.random.default_rng(1), 0, {}
    for name, _, shape in tensors(config):
        count = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    new = path.with_name(path.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    shutil.copy(config_path, new / "config.json")
    with open(new / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, shape in tensors(config):
            (np.full(shape, 0x3F80, np.uint16) if "norm" in name else draw(rng, shape)).tofile(file)
    os.replace(new, path)


def read_folder(path, config):
    """(GGUF name, bf16 as u16) of each tensor, mapped."""
    import numpy as np
    data = np.memmap(path / "model.safetensors", np.uint8, "r")
    length = struct.unpack("<Q", data[:8].tobytes())[0]
    header = json.loads(data[8:8 + length].tobytes())
    for name, theirs, shape in tensors(config):
        begin, end = header[name]["data_offsets"]
        yield theirs, data[8 + length + begin:8 + length + end].view(np.uint16).reshape(shape)


def write_gguf(path, source, config):
    import gguf as package
    import numpy as np
    new = path.with_name(path.name + ".new")
    writer = package.GGUFWriter(new, config["model_type"])
    heads = config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(package.LlamaFileType.MOSTLY_BF16)
    for name, values in read_folder(source, config):
        if values.ndim == 1:  # llama.cpp wants vectors in fp32
            writer.add_tensor(name, (values.astype(np.uint32) << 16).view(np.float32))
        else:
            writer.add_tensor(name, values.view(np.uint8), raw_dtype=package.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(new, path)


def run(command):
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def make(work, shape, shape_folder, weights, kind, baton, llama_bin):
    """The folder for `weights` and the file of `kind`, and what they are made of, where they aren't there."""
    config_path = pathlib.Path(shape_folder) / "config.json"
    config = json.loads(config_path.read_text())
    source, whole = folder(work, shape, "bf16"), gguf(work, shape, "BF16")
    ours, theirs = folder(work, shape, weights), gguf(work, shape, kind)
    missing = [path for path in (ours, theirs) if not path.exists()]
    for path in missing:
        print(f"making {path}", file=sys.stderr, flush=True)
        if not source.exists():
            write_folder(source, config_path, config)
        if path == ours and weights != "bf16":
            new = path.with_name(path.name + ".new")
            shutil.rmtree(new, ignore_errors=True)
            run([baton, "quantize", "--model", source, "--type", weights, "--out", new])
            os.replace(new, path)
        if path == theirs and not whole.exists():
            write_gguf(whole, source, config)
        if path == theirs and kind != "BF16":
            new = path.with_name(path.name + ".new")
            run([llama_bin / "llama-quantize", whole, new, kind])
            os.replace(new, path)
