#!/usr/bin/env python3
"""Overload with client deadlines on real processes: how much is done in time, and how much work is for requests that miss?

Usage: tests/bench/overload.py [--build DIR] [--profile NAME] [--prefill N] [--decode N] [--deadline S] [--seconds S] [--loads 0.8,5,10] [options]

Starts a cluster with the mock engine, which sleeps a profile's times and reserves a profile's blocks. A closed loop finds its capacity, in
requests a second. Then each load is sent for --seconds, as Poisson arrivals over gRPC, each request with its deadline. Work for misses is what
the workers computed, by their own figures, beyond the prompts and answers that came in time. It prints one row a load, and the machine's load:
other work on the CPUs makes the mock's steps longer."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
MODEL = TOP / "deploy/local/tiny-shakespeare"


def start_cluster(options, folder):
    environment = dict(os.environ, XDG_RUNTIME_DIR=str(folder))
    ready = folder / "ready.json"
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", options.build / "bin/baton", "up", "--no-pin", "--engine", "mock", "--profile", options.profile, "--model", MODEL,
                                "--prefill", str(options.prefill), "--decode", str(options.decode), "--ready-file", ready, "--log-dir", folder / "logs"],
                               env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    while not ready.exists():
        if process.poll() is not None:
            sys.exit("the cluster didn't start")
        time.sleep(0.05)
    return process, next(one for one in json.loads(ready.read_text())["processes"] if one["role"] == "router")


def computed(router):
    """Prompt tokens and tokens of answers that all workers have computed."""
    with urllib.request.urlopen(f"http://{router['metrics']}/status", timeout=10) as answer:
        workers = json.load(answer)["workers"]
    return sum(worker["prompt_tokens"] for worker in workers), sum(worker["tokens"] for worker in workers)


def send(options, folder, router, count, *flags):
    path = folder / "result.json"
    subprocess.run([options.build / "bin/baton", "bench", "serve", "--backend", "baton", "--server", router["address"], "--model", "tiny-shakespeare", "--tokenizer", MODEL,
                    "--num-prompts", str(count), "--random-input-len", str(options.input), "--random-output-len", str(options.output), "--ignore-eos", "--temperature", "0",
                    "--disable-tqdm", "--save-result", "--result-filename", path, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(path.read_text())


def settled(router):
    """The figures, once no worker computes any more."""
    seen = computed(router)
    while True:
        time.sleep(0.5)
        now = computed(router)
        if now == seen:
            return now
        seen = now


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--profile", default="a100-opt-13b-tp1-vllm")
    parser.add_argument("--prefill", type=int, default=2)
    parser.add_argument("--decode", type=int, default=2)
    parser.add_argument("--input", type=int, default=256)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--deadline", type=float, default=15, help="seconds")
    parser.add_argument("--seconds", type=float, default=60, help="of each load")
    parser.add_argument("--loads", default="0.8,5,10", help="shares of the capacity")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster, router = start_cluster(options, folder)
        try:
            send(options, folder, router, 64)  # the workers' costs are learnt
            capacity = send(options, folder, router, 600, "--max-concurrency", str(64 * options.decode))["request_throughput"]
            print(f"capacity {capacity:.1f} requests/s (closed loop, {64 * options.decode} at once), deadline {options.deadline:g} s")
            print("| load | sent | in time | of the capacity | prompt tokens for misses | answer tokens for misses | machine's load |\n|---|---|---|---|---|---|---|")
            for load in map(float, options.loads.split(",")):
                before, count = settled(router), round(load * capacity * options.seconds)
                result = send(options, folder, router, count, "--request-rate", f"{load * capacity:.3f}", "--request-timeout", f"{options.deadline * 1000:.0f}ms")
                prompts, answers = (after - start for after, start in zip(settled(router), before))
                in_time = result["completed"]
                shares = [1 - in_time * length / max(whole, 1) for length, whole in ((options.input, prompts), (options.output, answers))]
                print(f"| {load:g} | {count} | {in_time} | {in_time / min(load, 1) / capacity / options.seconds:.2f} | {shares[0]:.1%} | {shares[1]:.1%} | {os.getloadavg()[0]:.1f} |", flush=True)
        finally:
            cluster.terminate()
            cluster.wait()


if __name__ == "__main__":
    main()
