#!/usr/bin/env python3
"""PyTorch's compiled step of the 8B Llama shape beside ours: one layer compiled whole, 32 of them and the head in one CUDA graph. Decode
of 1, 16 and 64 sequences at 1,024, prompts of 2,048 and 8,192, a copy, and a product of 8192 x 8192 x 8192. Random weights.

Prints a JSON line for each, as soon as it is there; {"why": ...} where PyTorch or its GPU isn't. TORCH_LIMIT: seconds (70)."""
import json
import os
import statistics
import sys
import time

BEGAN = time.monotonic()
LIMIT = float(os.environ.get("TORCH_LIMIT", "70"))
D, L, H, KV, HD, FF, V, CTX = 4096, 32, 32, 8, 128, 14336, 128256, 1024
G = H // KV
LAYER = (H + 2 * KV) * HD * D + H * HD * D + 3 * FF * D


def leave(why):
    print(json.dumps({"why": why}))
    sys.exit(0)


if "--dry" in sys.argv:
    leave("the emulated driver is no device of PyTorch")
try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    leave("PyTorch isn't on this machine")
if not torch.cuda.is_available():
    leave("PyTorch sees no GPU")
torch.set_grad_enabled(False)
torch.manual_seed(1)


def drawn(*shape, scale=0.02):
    return torch.empty(*shape, dtype=torch.bfloat16, device="cuda").normal_(0, scale)


def say(name, told, **figures):
    print(json.dumps({"name": name, "told": told, **figures}), flush=True)


def ms_of(work, runs):
    """Median of several runs, by events."""
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def graph_of(work):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
        work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


layers = [[1 + drawn(D), drawn((H + 2 * KV) * HD, D), drawn(D, H * HD), 1 + drawn(D), drawn(2 * FF, D), drawn(D, FF)] for _ in range(L)]
embedding, head, final_norm = drawn(V, D, scale=1), drawn(V, D), 1 + drawn(D)
angles = torch.outer(torch.arange(8192).float(), 500000.0 ** (-torch.arange(0, HD, 2).float() / HD)).cuda()
COS, SIN = angles.cos(), angles.sin()


def norm(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).bfloat16() * weight


def rotate(x, cos, sin):
    wide = x.float().unflatten(-1, (HD // 2, 2))
    a, b, cos, sin = wide[..., 0], wide[..., 1], cos[None, :, None, :], sin[None, :, None, :]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(3).bfloat16()


def queries(x, weight, qkv, cos, sin):
    batch, rows, _ = x.shape
    q, k, v = F.linear(norm(x, weight), qkv).split([H * HD, KV * HD, KV * HD], -1)
    return rotate(q.view(batch, rows, H, HD), cos, sin), rotate(k.view(batch, rows, KV, HD), cos, sin), v.view(batch, rows, KV, HD)


def rest(x, attention, out, weight, gate_up, down):
    x = x + F.linear(attention, out)
    gate, up = F.linear(norm(x, weight), gate_up).split(FF, -1)
    return x + F.linear(F.silu(gate) * up, down)


def decode_layer(x, n1, qkv, out, n2, gate_up, down, keys, values, cos, sin, position):
    q, k, v = queries(x, n1, qkv, cos, sin)
    keys[:, :, position] = k.transpose(1, 2)
    values[:, :, position] = v.transpose(1, 2)
    attention = F.scaled_dot_product_attention(q.view(x.shape[0], KV, G, HD), keys, values)
    return rest(x, attention.reshape(x.shape[0], 1, H * HD), out, n2, gate_up, down)


def prefill_layer(x, n1, qkv, out, n2, gate_up, down, cos, sin):
    batch, rows, _ = x.shape
    q, k, v = queries(x, n1, qkv, cos, sin)
    k, v = k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous()
    attention = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True, enable_gqa=True)
    return rest(x, attention.transpose(1, 2).reshape(batch, rows, H * HD), out, n2, gate_up, down)


def last_token(x):
    return F.linear(norm(x[:, -1], final_norm), head).argmax(-1)


def compiled(function):
    return torch.compile(function, fullgraph=True, dynamic=False)


def decode(layer, last, copy_gbs, batch):
    caches = [(drawn(batch, KV, CTX, HD, scale=1), drawn(batch, KV, CTX, HD, scale=1)) for _ in range(L)]
    tokens, position = torch.randint(0, V, (batch, 1), device="cuda"), torch.tensor([CTX - 1], device="cuda")

    def step():
        x = F.embedding(tokens, embedding)
        for weights, (keys, values) in zip(layers, caches):
            x = layer(x, *weights, keys, values, COS[CTX - 1:CTX], SIN[CTX - 1:CTX], position)
        return last(x)
    ms = ms_of(graph_of(step), 25)
    gb = (2 * (L * LAYER + V * D) + batch * L * 2 * KV * HD * 2 * CTX) / 1e9
    share = gb / ms * 1e3 / copy_gbs
    say(f"decode.{batch}.{CTX}", f"{ms:.2f} ms, {100 * share:.1f}% of copy", of_copy=share, step_ms=ms)


def prefill(layer, last, rows):
    tokens = torch.randint(0, V, (1, rows), device="cuda")

    def step():
        x = F.embedding(tokens, embedding)
        for weights in layers:
            x = layer(x, *weights, COS[:rows], SIN[:rows])
        return last(x)
    ms = ms_of(graph_of(step), 4)
    gflops = (2 * L * LAYER * rows + 2 * V * D + L * 2 * rows * rows * H * HD) / ms / 1e6
    say(f"prefill.{rows}", f"{ms:.1f} ms, {gflops / 1e3:.0f} TFLOP/s", gflops=gflops, step_ms=ms)


def main():
    a = torch.empty(1 << 29, dtype=torch.int32, device="cuda").random_()
    b = torch.empty_like(a)
    b.copy_(a)
    copy_gbs = 2 * 4 * a.numel() / ms_of(lambda: b.copy_(a), 9) / 1e6
    say("copy", f"{copy_gbs:.0f} GB/s", gbs=copy_gbs)
    del a, b
    x, w = drawn(8192, 8192, scale=1), drawn(8192, 8192, scale=1)
    ms = min(ms_of(lambda: torch.mm(x, w), 9) for _ in range(2))
    say("product", f"{2 * 8192 ** 3 / ms / 1e9:.0f} TFLOP/s", gflops=2 * 8192 ** 3 / ms / 1e6)
    del x, w
    torch.cuda.empty_cache()
    decode_step, prefill_step, last = compiled(decode_layer), compiled(prefill_layer), compiled(last_token)
    torch._dynamo.config.recompile_limit = 64
    work = [(decode, decode_step, last, copy_gbs, batch) for batch in (1, 16, 64)] + [(prefill, prefill_step, last, rows) for rows in (2048, 8192)]
    for function, *arguments in work:
        if time.monotonic() - BEGAN > LIMIT - 8:
            print(f"no time was left for {function.__name__} of {arguments[-1]}", flush=True)
            continue
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            function(*arguments)
        torch.cuda.empty_cache()


main()
