#!/usr/bin/env python3
"""Placement policies on real processes: a cluster of mock workers and `baton bench serve`, at a rate that virtual time found.

Usage: tests/bench/goodput_cluster.py [--build DIR] [--policies NAME,...] [--workloads NAME,...] [--rate WORKLOAD=X]... [options]

Each policy serves each workload on a cluster of its own (4 prefill and 4 decode workers of an A100 with OPT-13B by default), with the same
requests. Prints a Markdown table: attained requests a second and device, attainment, the latencies, and the machine's load, as other work on
the CPUs adds to all times. `tournament knee workload=turns` prints the rates of virtual time."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
MODEL = TOP / "deploy/local/tiny-shakespeare"
CONTEXT = 16384
LINK = 50e9  # bytes a second, as the tournament's

# As in tests/bench/tournament/workload.c, from the same plans; objectives in milliseconds.
WORKLOADS = {
    "turns": ("ttft:600 tpot:80", ["--dataset-name", "multi-turn", "--multi-turn-system-len", "480", "--multi-turn-input-len", "260", "--multi-turn-output-len", "140",
                                   "--multi-turn-turns", "5", "--multi-turn-think-time", "3"], 5),
    "prefixes": ("ttft:800 tpot:80", ["--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", "1600", "--prefix-repetition-suffix-len", "100",
                                      "--prefix-repetition-num-prefixes", "60", "--prefix-repetition-output-len", "80", "--ignore-eos"], 1),
    "fixed": ("ttft:400 tpot:40", ["--dataset-name", "random", "--random-input-len", "512", "--random-output-len", "64"], 1),
}


def fail(sentence):
    sys.exit(f"goodput_cluster.py: {sentence}")


def profile_of(name, seed):
    """A profile with a fast link, and noise of this seed."""
    profile = json.loads((TOP / "deploy/profiles" / f"{name}.json").read_text())
    return profile | {"link": {"bytes_per_second": LINK, "latency_us": 50}, "noise": {"sigma": 0.05, "seed": seed}}


def prepare(folder, profile):
    """Writes profile.json and a model with a long context; returns the model's folder."""
    model = folder / "model"
    model.mkdir()
    config = json.loads((MODEL / "config.json").read_text()) | {"max_position_embeddings": CONTEXT}
    (model / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        if (MODEL / name).exists():
            shutil.copy(MODEL / name, model / name)
    (folder / "profile.json").write_text(json.dumps(profile))
    return model


def slo_class(objective):
    """Environment that tells a router the objective, as `baton bench serve` takes it."""
    ttft, tpot = (part.split(":")[1] for part in objective.split())
    return {"BATON_SLO_CLASS": f"name=bench,ttft={ttft}ms,tpot={tpot}ms"}


def start(build, profile, model, folder, flags, environment):
    """Starts a cluster of mock workers. Returns its process and the URL of its HTTP door."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    ready = run / "ready.json"
    command = ["setpriv", "--pdeathsig", "KILL", build / "bin/baton", "up", "--no-pin", "--engine", "mock", "--profile", profile, "--model", model,
               "--ready-file", ready, "--log-dir", run / "logs", "--http-listen", "127.0.0.1:0", *flags]
    process = subprocess.Popen([str(part) for part in command], env=dict(os.environ, XDG_RUNTIME_DIR=str(run)) | environment, stdout=subprocess.DEVNULL,
                               stderr=(run / "up.log").open("w"))
    while not ready.exists():
        if process.poll() is not None:
            fail(f"the cluster didn't start: {(run / 'up.log').read_text()}")
        time.sleep(0.05)
    return process, f"http://{json.loads(ready.read_text())['openai']}"


def stop(process):
    process.terminate()
    process.wait()


def bench(build, url, model, path, objective, count, rate, seed, flags):
    """Sends `count` requests at `rate` a second; writes the figures to `path`."""
    subprocess.run([str(part) for part in (build / "bin/baton", "bench", "serve", "--base-url", url, "--model", model, "--tokenizer", model, "--num-prompts", count,
                                           "--request-rate", rate, "--seed", seed, "--goodput", *objective.split(), "--temperature", 0, "--disable-tqdm", "--save-result",
                                           "--percentile-metrics", "ttft,tpot", "--metric-percentiles", "50,90", "--result-filename", path, *flags)],
                   check=True, stdout=subprocess.DEVNULL, stderr=path.with_suffix(".log").open("w"))


def measure(options, policy, workload, folder, model):
    objective, flags, roots = WORKLOADS[workload]
    environment = slo_class(objective) if options.slo else {}
    process, url = start(options.build, folder / "profile.json", model, folder, ["--prefill", options.prefill, "--decode", options.decode, "--placement-policy", policy,
                                                                               "--max-sequences", 256, "--chunk-time", "40ms"], environment)
    path = folder / f"{policy}-{workload}.json"
    rate = options.rates[workload] * (options.prefill + options.decode)
    try:
        bench(options.build, url, model, path, objective, options.requests, rate / roots, options.seed, flags)
    finally:
        stop(process)
    return json.loads(path.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--policies", default="random,least-tokens,goodput")
    parser.add_argument("--workloads", default="turns,prefixes")
    parser.add_argument("--rate", action="append", default=[], metavar="WORKLOAD=X", help="requests a second and device")
    parser.add_argument("--profile", default="a100-opt-13b-tp1-distserve")
    parser.add_argument("--prefill", type=int, default=4)
    parser.add_argument("--decode", type=int, default=4)
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slo", action=argparse.BooleanOptionalAction, default=True, help="tell the router the objectives (slo-class)")
    options = parser.parse_args()
    options.rates = {"turns": 2.6, "prefixes": 3.8, "fixed": 2.0} | {name: float(rate) for name, rate in (text.split("=") for text in options.rate)}
    devices = options.prefill + options.decode
    print("| workload | rate | policy | goodput | % attained | TTFT P50 / P90, ms | TPOT P50 / P90, ms | failed | load |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = prepare(folder, profile_of(options.profile, options.seed))
        for workload in options.workloads.split(","):
            for policy in options.policies.split(","):
                result = measure(options, policy, workload, folder, model)
                print(f"| {workload} | {options.rates[workload]:.2f} | {policy} | {result['request_goodput'] / devices:.3f} | {100 * result['attainment']:.1f} "
                      f"| {result['p50_ttft_ms']:.0f} / {result['p90_ttft_ms']:.0f} | {result['p50_tpot_ms']:.1f} / {result['p90_tpot_ms']:.1f} | {result['failed']} "
                      f"| {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
