#!/usr/bin/env python3
"""DistServe's Figure 1 on real processes: mock workers with vLLM's coefficients, `baton bench serve`, and the largest rate a device at which
nine of ten requests attain TTFT 0.4 s and TPOT 0.04 s (OPT-13B on A100; prompts of 512 tokens, answers of 64).

Usage: tests/bench/figure1.py [--build DIR] [--shapes NAME,...] [--quick] [--ray MS] [options]

Each shape runs several clusters side by side, each at a rate of its own round the knee that is expected, and interpolates. The mock's steps
sleep, so they take little CPU; a busy machine adds to all times. Prints a Markdown table: the rate, the paper's and that of another
program by the rules of its simulator, and the attainment at each rate."""
import argparse
import concurrent.futures
import json
import os
import pathlib
import tempfile

import goodput_cluster as cluster

OBJECTIVE = "ttft:400 tpot:40"
FLAGS = ["--dataset-name", "random", "--random-input-len", "512", "--random-output-len", "64"]
UNCHUNKED = ["--chunk-tokens", "16384", "--chunk-time", "0"]
# prefill and decode workers, flags, prompts first, the paper's rate and the other program's, the middle of the rates that are tried.
SHAPES = {
    "together": (0, 1, UNCHUNKED, True, 1.6, 1.76, 1.76),
    "apart": (2, 1, UNCHUNKED, False, 3.3, 3.6, 3.4),
    "chunked": (0, 1, [], False, None, None, 2.2),
    "goodput": (0, 1, ["--placement-policy", "goodput"], False, None, None, 2.2),
    "goodput-apart": (2, 1, [*UNCHUNKED, "--placement-policy", "goodput"], False, None, None, 3.4),
}
TRIED = {1: (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3), 3: (0.8, 0.9, 1.0, 1.1)}  # of the middle, by devices: those beside each other share the CPUs


def profile_of(options):
    """vLLM's, and DistServe's simulator's cost of a step's calls of workers by Ray: a time, and 0.1 us for each token."""
    profile = cluster.profile_of("a100-opt-13b-tp1-vllm", options.seed)
    del profile["noise"]
    for phase, tokens in (("prefill", "row_us"), ("decode", "context_us"), ("decode_large", "context_us")):
        profile[phase]["step_us"] += 1000 * options.ray
        profile[phase][tokens] += 0.1 if options.ray else 0
    return profile


def attainment(options, shape, rate, seed, folder, model):
    prefill, decode, flags, first, *_ = SHAPES[shape]
    environment = {"BATON_PREFIX_CACHE": "false", "BATON_PROMPTS_FIRST": str(first).lower()}
    if "goodput" in shape:
        environment |= cluster.slo_class(OBJECTIVE)
    flags = ["--prefill", prefill, "--decode", decode, "--max-sequences", 256, *flags]
    process, url = cluster.start(options.build, folder / "profile.json", model, folder, flags, environment)
    path = folder / f"{seed}.json"
    rate *= prefill + decode
    try:
        cluster.bench(options.build, url, model, path, OBJECTIVE, int(rate * options.seconds), rate, seed, FLAGS)
    finally:
        cluster.stop(process)
    return json.loads(path.read_text())["attainment"]


def knee(points):
    """The rate at which nine of ten attain, between neighbours. Attainment that rises with the rate is evened out first."""
    blocks = [[share, 1] for _, share in sorted(points)]
    i = 0
    while i + 1 < len(blocks):
        if blocks[i][0] >= blocks[i + 1][0]:
            i += 1
            continue
        share, count = blocks.pop(i + 1)
        blocks[i] = [(blocks[i][0] * blocks[i][1] + share * count) / (blocks[i][1] + count), blocks[i][1] + count]
        i = max(i - 1, 0)
    shares = [share for share, count in blocks for _ in range(count)]
    rates = sorted(rate for rate, _ in points)
    if shares[0] < 0.9 or shares[-1] >= 0.9:
        return None
    at = next(i for i, share in enumerate(shares) if share < 0.9)
    part = (shares[at - 1] - 0.9) / (shares[at - 1] - shares[at])
    return rates[at - 1] + part * (rates[at] - rates[at - 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=cluster.TOP / "build/release")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--quick", action="store_true", help="2 minutes of requests for each rate, in place of 10")
    parser.add_argument("--seconds", type=float, help="of requests for each rate")
    parser.add_argument("--ray", type=float, default=2, help="milliseconds that Ray's calls add to a step; 0: none")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.seconds = options.seconds or (120 if options.quick else 600)
    print("| shape | requests a second and device | to 1.76 / 3.6 | paper | attainment at each rate, % | load |\n|---|---|---|---|---|---|", flush=True)
    for shape in options.shapes.split(","):
        prefill, decode, _, _, paper, other, middle = SHAPES[shape]
        rates = [middle * times for times in TRIED[prefill + decode]]
        with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(len(rates)) as pool:
            folder = pathlib.Path(name)
            model = cluster.prepare(folder, profile_of(options))
            shares = list(pool.map(lambda i: attainment(options, shape, rates[i], options.seed + i, folder, model), range(len(rates))))
        found = knee(list(zip(rates, shares)))
        told = f"{found:.2f}" if found else "beyond these rates" if min(shares) >= 0.9 else "below these rates"
        print(f"| {shape} | {told} | {f'{found / other:.2f}' if found and other else ''} | {paper or ''} "
              f"| {', '.join(f'{rate:.2f}: {100 * share:.0f}' for rate, share in zip(rates, shares))} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
