"""The parts of tests/gpu/run: the commands of each, and what their output says. `alone`: it measures, so nothing runs beside it."""
import dataclasses
import json
import pathlib
import re
import shutil
import sys
from typing import Callable

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
GOLDEN = "tests/golden/models"
EIGHT_B, TINY = HERE / "llama-8b", HERE / "tiny"
THREADS = 16


class NotHere(Exception):
    """The machine lacks what a part needs: it isn't run."""


@dataclasses.dataclass
class Part:
    about: str
    limit_s: float
    commands: Callable
    read: Callable = lambda output: {}
    quick: bool = False
    default: bool = True  # False: only if it is named
    alone: bool = False


# --- checks ---

def build(machine):
    for name in ("baton", "baton-prefill", "baton-decode", "baton-router", "device_kernels", "device_equality", "device_speed"):
        if not machine.program(name).exists():
            raise FileNotFoundError(machine.program(name))
    return [[machine.program("baton"), "--version"],
            [machine.program("baton"), "bench", "engine", "--model", TINY, "--random-weights", "--device", machine.device, "--no-pin",
             "--prefill", 8, "--batch", 1, "--decode", 2, "--rounds", 1]]


def read_build(output):
    found = re.search(r"random weights: (\S+) on (\S+),", output)
    return {"numerics": found[1], "kernels of": found[2]} if found else {}


def kernels(machine):
    """The table of the emulator's tests, and those of every backend."""
    if machine.dry:  # more memory, and more scratch with it, than the other parts have
        return [["env", "BATON_CUDA_EMULATED=sms=2,memory=1024", machine.program("device_kernels"), test] for test in ("test_packing", "test_embed", "test_fp8_terms*")]
    return [[machine.program(name)] for name in ("device_kernels", "device_attention", "device_fused", "device_sample", "test_rows", "test_sample")]


def read_tests(output):
    passed = [int(n) for n in re.findall(r"\[  PASSED  \] (\d+) test", output)]
    failed = sorted(set(re.findall(r"^\[  FAILED  \] (.+)", output, re.M)) - {f"{n} test(s), listed below:" for n in range(1000)})
    aligned = re.search(r"^fp8: a product is aligned by (.+)", output, re.M)  # decision 59's question
    return {"passed": sum(passed)} | ({"failed": ", ".join(failed)} if failed else {}) | ({"fp8 products aligned by": aligned[1]} if aligned else {})


def golden(machine):
    program = machine.program("test_golden_models")
    return [[program, "*rope-linear"]] if machine.dry else [[program]]


def equality(machine):
    program = machine.program("device_equality")
    if machine.dry:
        return [[program, f"{GOLDEN}/rope-linear", "--batch", 3, "--prompt", 40, "--answer", 4, "--cells", 2]]
    models = [["llama-wide"], ["qwen3"], ["mistral-headdim", "--kv-int8"], ["llama-scan", "--int8"]]
    return [[program, f"{GOLDEN}/{model}", *flags, "--cells", 24] for model, *flags in (models[:2] if machine.quick else models)]


def equality_whole(machine):
    """Every cell, and the step loop's own matrix (tests/equality)."""
    program = machine.program("device_equality")
    return [[program, f"{GOLDEN}/llama-wide", *flags, "--cells", 0] for flags in ([], ["--int8"], ["--kv-int8"])] + [[machine.program("test_equality")]]


def equality_fp8(machine):
    """Folders with scales of tensors, static ones of inputs, and scales of blocks."""
    if not machine.has_fp8:
        raise NotHere("fp8 needs the tensor cores of compute capability 9.0")
    sizes = ["--batch", 2, "--prompt", 40, "--answer", 4, "--cells", 1] if machine.dry else ["--cells", 24]
    return [[machine.program("device_equality"), f"{GOLDEN}/{model}", *sizes] for model in ("llama-fp8", "llama-fp8-blocks")]


def read_equality(output):
    cells = [tuple(map(int, found)) for found in re.findall(r"^cells (\d+), tokens (\d+), cells that differ (\d+), recorded steps (\d+)", output, re.M)]
    names = ("cells", "tokens compared", "cells that differ", "steps by graphs")
    return {name: sum(one[i] for one in cells) for i, name in enumerate(names)} if cells else {}


def clusters(*kinds):
    def commands(machine):
        words = [sys.executable, HERE / "clusters.py", *kinds, "--device", machine.device]
        return [words + (["--dry"] if machine.dry else [])]
    return commands


def read_clusters(output):
    facts = {}
    for line in output.splitlines():
        if line.startswith("{"):
            facts |= json.loads(line)
    return facts


def sanitizer(machine):
    found = shutil.which("compute-sanitizer") or next((str(p) for p in pathlib.Path("/usr/local/cuda/bin").glob("compute-sanitizer")), None)
    if machine.dry or not found:
        raise NotHere("compute-sanitizer isn't on this machine" if not found else "the emulated driver is no device")
    run = [found, "--target-processes", "all", "--error-exitcode", 99, "--print-limit", 5]
    tests = [("kernels", "test_linear_is_right"), ("attention", "test_attention_is_right"), ("kernels", "test_rope_append"), ("kernels", "test_norm_and_swiglu")]
    return [run + ["--tool", tool, machine.program("device_" + program), test] for tool in ("memcheck", "racecheck", "synccheck") for program, test in tests]


# --- benchmarks ---

def bench(weights="bf16", prefill="0", batch="0", depth="0", decode=24, rounds=3):
    def commands(machine):
        sizes = dict(prefill=prefill, batch=batch, depth=depth, decode=decode, rounds=rounds, chunk=2048)
        if machine.dry:
            sizes = dict(prefill="0" if prefill == "0" else "8,16", batch="0" if batch == "0" else "1,2", depth="0" if depth == "0" else "20", decode=2,
                         rounds=1, chunk=8)
        flags = [word for name, value in sizes.items() for word in (f"--{name}", value)]
        return [[machine.program("baton"), "bench", "engine", "--model", TINY if machine.dry else EIGHT_B, "--random-weights", "--device", machine.device,
                 "--weights", weights, "--threads", 1 if machine.dry else THREADS, "--no-pin", *flags, "--json", "-"]]
    return commands


def bench_fp8(quantization, **sizes):
    """The same of a folder in fp8, which needs no weights either."""
    def commands(machine):
        if not machine.has_fp8:
            raise NotHere("fp8 needs the tensor cores of compute capability 9.0")
        folder = machine.out / "fp8" / quantization["activation_scheme"]
        folder.mkdir(parents=True, exist_ok=True)
        config = json.loads(((TINY if machine.dry else EIGHT_B) / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3"} | quantization}))
        return [[folder if word in (TINY, EIGHT_B) else word for word in command] for command in bench("auto", **sizes)(machine)]
    return commands


def read_bench(output):
    """The object that --json - printed, line by line among the log."""
    told = json.loads(output[output.index('{"model"'):output.rindex("]}") + 2])
    figures = []
    for engine in told["engines"]:
        for one in engine["figures"]:
            kept = ("kind", "tokens", "depth", "batch", "tokens_per_s", "step_ms", "gflops", "of_peak", "gbs", "of_read", "ran", "peak_gflops", "read_gbs")
            figures.append({key: one[key] for key in kept if key in one} | {"weights": re.search(r"w-(\w+)", engine["numerics"])[1]})
    engine = told["engines"][-1]
    shown = {("prefill %d" % f["tokens"] if f["kind"] == "prefill" else "%d at %d" % (f["batch"], f["depth"])):
             (f"{f['gflops'] / 1e3:.0f} TFLOP/s" if f["kind"] == "prefill" else f"{f['step_ms']:.2f} ms, {100 * f['of_read']:.1f}% of copy, busy {100 * f['ran']:.1f}%")
             for f in figures}
    return {"loaded in s": round(engine["load_s"], 1), "device GB": round(engine["device_bytes"] / 1e9, 1), **shown, "figures": figures}


def linear(machine):
    return [[machine.program("device_speed"), *(["--scale", 32, "--rows", "1,16"] if machine.dry else [])]]


def read_linear(output):
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {"layers timed": len(lines) - 1, "copy GB/s": lines[0]["copy_gbs"], "figures": lines}


def lane(machine):
    return [[machine.program("device_speed"), "--lane", "32,132", *(["--scale", 32] if machine.dry else [])]]


def read_lane(output):
    """The copy's rate, then a line a measurement."""
    copy, *lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise NotHere("this device shares no memory with other processes")
    for line in lines:
        if "lane" in line:
            line["of_copy"] = line["gbs"] / copy["copy_gbs"]
    shown = {f"{one['lane']} of {one['run_bytes'] >> 10} KiB" + (f", {one['blocks']} CTAs" if one["blocks"] else ""):
             f"{one['gbs']:.0f} GB/s, {100 * one['of_copy']:.1f}% of copy" for one in lines if "lane" in one}
    shown |= {f"a chunk's {one['bytes'] >> 20} MiB": f"copied {one['ms']:.3f} ms after it, {one['worst_ms']:.3f} at worst" for one in lines if "ms" in one}
    return {"copy GB/s": copy["copy_gbs"], **shown, "figures": lines}


def plans(machine):
    sizes = ["--scale", 64, "--rows", 1] if machine.dry else ["--rows", "1,16,64,2048,8192"]
    return [[machine.program("device_speed"), "--plans", weights, *sizes] for weights in ("bf16", "int8")]


def read_plans(output):
    """The plans that were faster than the chosen ones by more than 3%: what kernels/cuda/linear_plans.c could change."""
    figures = [line for line in map(json.loads, filter(lambda line: line.startswith("{"), output.splitlines())) if "chosen_us" in line]
    better = [line for line in figures if line["best_us"] < 0.97 * line["chosen_us"]]
    return {"plans timed": sum(line["plans"] for line in figures), "chosen well": f"{len(figures) - len(better)} of {len(figures)}", "figures": figures} | {
        "{type} {layer} {rows}".format(**line): "{chosen} {chosen_us:.1f} us, {best} {best_us:.1f} us".format(**line) for line in better}


def python_with(machine, script):
    return [[sys.executable, HERE / script, *(["--dry"] if machine.dry else [])]]


def torch(machine):
    return python_with(machine, "torch_step.py")


def cublas(machine):
    return python_with(machine, "cublas.py")


def read_lines(output):
    """{"figure": ...} lines, and a sentence if the library isn't there."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    for line in lines:
        if "why" in line:
            raise NotHere(line["why"])
    return {"figures": lines} | {line["name"]: line["told"] for line in lines if "told" in line}


# In the order of a run: where its time is short, the last ones are left out. So what figures.py has bounds for comes first.
PARTS = {
    "build": Part("the programs start and open the device", 20, build, read_build, quick=True),
    "kernels": Part("every operation against the reference, by kernels.h", 60, kernels, read_tests, quick=True),
    "golden": Part("golden models, on the reference's ids", 60, golden, read_tests),
    "equality": Part("equal bytes: batch, chunks, cached beginnings, preemption, steps ahead", 60, equality, read_equality, quick=True),
    "equality-fp8": Part("equal bytes of folders in fp8", 40, equality_fp8, read_equality),
    "1p1d": Part("a cluster of one prefill and one decode worker on the device", 40, clusters("1p1d"), read_clusters),
    "2p1d": Part("a cluster of two prefill workers and one decode worker", 40, clusters("2p1d"), read_clusters, quick=True),
    "faults": Part("kill -9 and SIGSTOP of the worker that owns the blocks", 60, clusters("killed", "stopped"), read_clusters),
    "whole": Part("all cells of equality, and those of the step loop", 600, equality_whole, read_equality, default=False),
    "sanitizer": Part("compute-sanitizer on the kernels: memcheck, racecheck, synccheck", 600, sanitizer, read_tests, default=False, alone=True),
    "decode": Part("8B shape, bf16: decode 1, 16, 64 at 1k; prefill 2048 and 8192", 60, bench(prefill="2048,8192", batch="1,16,64", depth="1024"),
                   read_bench, alone=True),
    "cublas": Part("cuBLASLt's bf16 product of 8192 x 8192 x 8192", 15, cublas, read_lines, alone=True),
    "int8": Part("8B shape, int8: decode 1, 64 at 1k; prefill 2048", 45, bench("int8", prefill="2048", batch="1,64", depth="1024"), read_bench, alone=True),
    "linear": Part("the shape's linear layers by type and rows, and the copy rate", 45, linear, read_linear, alone=True),
    "lane": Part("the lane cuda: gathers of 32 and 132 CTAs, a memcpy a block, a chunk's blocks", 30, lane, read_lane, alone=True),
    "long": Part("8B shape, bf16: decode 16 at 8k", 30, bench(batch="16", depth="8192"), read_bench, alone=True),
    "longest": Part("8B shape, bf16: decode 4 at 64k", 50, bench(batch="4", depth="65536"), read_bench, alone=True),
    "fp8": Part("8B shape, fp8 with static scales of inputs: decode 1, 64 at 1k; prefill 2048", 45,
                bench_fp8({"activation_scheme": "static"}, prefill="2048", batch="1,64", depth="1024"), read_bench, alone=True),
    "plans": Part("every plan of the shape's linear layers beside the chosen one", 60, plans, read_plans, alone=True),
    "torch": Part("PyTorch's compiled step of the same shape", 75, torch, read_lines, alone=True),
    "fp8-blocks": Part("8B shape, fp8 with scales of 128 x 128: decode 1, 64 at 1k; prefill 2048", 45,
                       bench_fp8({"activation_scheme": "dynamic", "weight_block_size": [128, 128]}, prefill="2048", batch="1,64", depth="1024"),
                       read_bench, default=False, alone=True),
}
