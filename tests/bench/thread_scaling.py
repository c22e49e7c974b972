#!/usr/bin/env python3
"""The gain of a second compute thread in prefill: `baton bench engine` on one thread and on two, in turns, in rounds.

    thread_scaling.py --model DIR --work DIR [--weights bf16,int8,int4] [--prefill 512] [--rounds 5] [--threads 2] [--prefix "chrt -f 10"]

Threads are pinned to CPUs from --first-cpu on; who goes first changes from round to round. Packed weights are kept in --work, so that a
round is spent on measuring. Tokens per second and *CPU*, the share of the time that the threads had one, are medians; the ratio
is the median of the ratios within a round, behind it the least and the most."""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]


def measure(options, weights, threads, first_cpu):
    done = subprocess.run([*shlex.split(options.prefix), str(options.baton), "bench", "engine", "--model", str(options.model), "--weights",
                           weights, "--weight-cache", str(options.work), "--threads", str(threads), "--first-cpu", str(first_cpu),
                           "--prefill", str(options.prefill), "--batch", "0", "--rounds", "1", "--json", "-"],
                          text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"thread_scaling.py: baton ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)["engines"][0]["figures"][0]


def one_round(options, weights, number):
    """(figures of one thread on each CPU, figure of all threads)"""
    turns = [(1, options.first_cpu + i) for i in range(options.threads)] + [(options.threads, options.first_cpu)]
    first = number % len(turns)
    figures = {turn: measure(options, weights, *turn) for turn in turns[first:] + turns[:first]}
    return [figures[turn] for turn in turns[:-1]], figures[turns[-1]]


def row(options, weights):
    rounds = [one_round(options, weights, number) for number in range(options.rounds)]
    singles = [statistics.mean(figure["tokens_per_s"] for figure in one) for one, _ in rounds]
    ratios = [all_threads["tokens_per_s"] / single for single, (_, all_threads) in zip(singles, rounds)]
    cells = [weights, f"{statistics.median(singles):.1f}",
             f"{statistics.median(figure['ran'] for one, _ in rounds for figure in one):.0%}",
             f"{statistics.median(figure['tokens_per_s'] for _, figure in rounds):.1f}",
             f"{statistics.median(figure['ran'] for _, figure in rounds):.0%}"]
    return "| " + " | ".join([*cells, f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} to {max(ratios):.2f})"]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--weights", default="bf16,int8,int4")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--first-cpu", type=int, default=0)
    parser.add_argument("--prefix", default="", help="in front of each command, such as \"chrt -f 10\"")
    parser.add_argument("--baton", type=pathlib.Path, default=TOP / "build/release/bin/baton")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    print(f"| weights | 1 thread, tokens/s | CPU | {options.threads} threads, tokens/s | CPU | ratio |\n|" + "---|" * 6)
    for weights in options.weights.split(","):
        print(row(options, weights), flush=True)


if __name__ == "__main__":
    main()
