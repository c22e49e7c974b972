#!/usr/bin/env python3
"""The gain of kept packed weights (weight-cache): loads from the kept file beside a plain read of that file, and memory.

    load_times.py --model DIR --work DIR [--weights bf16,int8,int4] [--rounds 5] [--threads 1] [--prefix "chrt -f 10"]

For each type of weights: one first load, which packs and keeps (in --work, as large as the packed weights); then rounds, in each of
which the file is read from front to back (8 MiB at a time, one thread) and the model is loaded from it, each once with the file in
the page cache and once with it, and for loads the model, out of it; what goes first changes from round to round. Loads are those of
`baton bench engine`, a process each. Times are medians, ratios medians of the ratios within a round. *Memory* is what the process
had at most, of its own and of files that it maps, through load, a prompt of 512 tokens and a step of 16 sequences, over packed
weights and KV pool: of the first load and of one from the file."""
import argparse
import ctypes
import json
import mmap
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
READ = """
import sys, time
piece, begun = bytearray(8 << 20), time.monotonic()
with open(sys.argv[1], "rb", buffering=0) as file:
    while file.readinto(piece):
        pass
print(time.monotonic() - begun)
"""
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
SMALL = ["--prefill", 8, "--batch", 0]
SERVING = ["--prefill", 512, "--batch", 16, "--depth", 512, "--decode", 1]


def fail(sentence):
    sys.exit(f"load_times.py: {sentence}")


def run(options, command):
    cpus = ",".join(str(options.first_cpu + i) for i in range(options.threads))
    done = subprocess.run([*shlex.split(options.prefix), "taskset", "-c", cpus, *map(str, command)], text=True, capture_output=True)
    if done.returncode:
        fail(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def load(options, weights, sizes):
    out = run(options, [options.baton, "bench", "engine", "--model", options.model, "--weights", weights, "--threads",
                        options.threads, "--first-cpu", options.first_cpu, "--rounds", 1, "--weight-cache", options.work,
                        *sizes, "--json", "-"])
    return json.loads(out)["engines"][0]


def plain_read(options, path):
    return float(run(options, [sys.executable, "-c", READ, path]))


def cached_share(path):
    """Counts the file's pages that are in memory (mincore, which brings none in)."""
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // os.sysconf("SC_PAGESIZE")))()
    with open(path, "rb") as file:
        mapped = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    libc.mincore(mapped, size, pages)
    libc.munmap(mapped, size)
    return sum(page & 1 for page in pages) / len(pages)


def evict(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cached_share(path) > 0.01:
            fail(f"{path} stays in the page cache: does another process use it?")


def one_round(options, weights, path, number):
    sources = sorted(options.model.glob("*.safetensors"))
    times = {}
    for state in ("cached", "on disk"):
        for what in ("read", "load") if number % 2 else ("load", "read"):
            if state == "on disk":
                evict([path, *sources] if what == "load" else [path])  # the model's samples stay for the next round's cached load
            elif not number:
                plain_read(options, path)
            times[state, what] = plain_read(options, path) if what == "read" else load(options, weights, SMALL)["load_s"]
    return times


def measure(options, weights):
    before = set(options.work.glob("*.packed"))
    first = load(options, weights, SERVING)
    made = set(options.work.glob("*.packed")) - before
    if len(made) != 1:
        fail(f"--work {options.work} keeps weights of this model already: an empty folder is needed")
    path = made.pop()
    second = load(options, weights, SERVING)
    rounds = [one_round(options, weights, path, i) for i in range(options.rounds)]
    cells = [weights, f"{path.stat().st_size * 1e-9:.2f}", f"{first['load_s']:.1f}"]
    for state in ("cached", "on disk"):
        ratio = statistics.median(times[state, "load"] / times[state, "read"] for times in rounds)
        cells += [f"{statistics.median(times[state, what] for times in rounds):.3f}" for what in ("read", "load")]
        cells.append(f"**{ratio:.2f}**")
    cells += [f"{engine['peak_bytes'] / engine['held_bytes']:.2f}" for engine in (first, second)]
    path.unlink()
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--weights", default="bf16,int8,int4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--first-cpu", type=int, default=0)
    parser.add_argument("--prefix", default="", help="in front of each command, such as \"chrt -f 10\"")
    parser.add_argument("--baton", type=pathlib.Path, default=TOP / "build/release/bin/baton")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    print("| weights | GB | first load, s | cached: read, s | load, s | ratio | on disk: read, s | load, s | ratio "
          "| memory: first | kept |\n|" + "---|" * 11)
    for weights in options.weights.split(","):
        print(measure(options, weights), flush=True)


if __name__ == "__main__":
    main()
