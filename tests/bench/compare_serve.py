#!/usr/bin/env python3
"""`baton bench serve` beside another client, in turns, against one server: are the means of TTFT and TPOT the same?

Usage: tests/bench/compare_serve.py [--build DIR] [--base-url URL --model NAME --tokenizer DIR] [--guidellm PATH] [options]

Without --base-url it starts a cluster with the mock engine, which sleeps a profile's times. The other client is guidellm, if its program is
named, otherwise the `openai` package with vLLM's definitions: TTFT from the call to the first chunk with a choice, TPOT = (last chunk - first
chunk) / (tokens - 1). Both send equal prompts (those that `baton bench serve` made) if the other is the package, and prompts of equal length
otherwise. Prints each round, and the ratio of the medians; exits 1 if one is beyond --bound. It prints the machine's load, too: other work on
the CPUs delays both clients."""
import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
MODEL = TOP / "deploy/local/tiny-shakespeare"


def start_cluster(options, folder):
    environment = dict(os.environ, XDG_RUNTIME_DIR=str(folder), BATON_HTTP_LISTEN="127.0.0.1:0")
    ready = folder / "ready.json"
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", options.build / "bin/baton", "up", "--no-pin", "--engine", "mock", "--profile", options.profile, "--model", MODEL,
                                "--prefill", "1", "--decode", "1", "--ready-file", ready, "--log-dir", folder / "logs"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    while not ready.exists():
        if process.poll() is not None:
            sys.exit("the cluster didn't start")
        time.sleep(0.05)
    return process, f"http://{json.loads(ready.read_text())['openai']}"


def ours(options, folder, seed):
    path = folder / "ours.json"
    subprocess.run([options.build / "bin/baton", "bench", "serve", "--base-url", options.base_url, "--model", options.model, "--tokenizer", options.tokenizer, "--max-concurrency", str(options.concurrency),
                    "--num-prompts", str(options.requests), "--random-input-len", str(options.input), "--random-output-len", str(options.output), "--temperature", "0", "--seed", str(seed),
                    "--disable-tqdm", "--save-result", "--result-filename", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result = json.loads(path.read_text())
    assert result["failed"] == 0, result
    return result["mean_ttft_ms"], result["mean_tpot_ms"]


async def ask(client, options, prompt, limit, times):
    async with limit:
        start, stamps, tokens = time.perf_counter(), [], None
        stream = await client.completions.create(model=options.model, prompt=prompt, max_tokens=options.output, temperature=0, stream=True, stream_options={"include_usage": True},
                                                 extra_body={"ignore_eos": True})
        async for chunk in stream:
            if chunk.choices:
                stamps.append(time.perf_counter())
            if chunk.usage:
                tokens = chunk.usage.completion_tokens
        times.append(((stamps[0] - start) * 1e3, (stamps[-1] - stamps[0]) * 1e3 / (tokens - 1)))


async def openai_round(options, seed):
    import openai
    rng, limit, times = random.Random(seed), asyncio.Semaphore(options.concurrency), []
    words = "the of and to in is that for it as was with be by on not are this at from but have an they which one you were".split()
    async with openai.AsyncOpenAI(base_url=f"{options.base_url}/v1", api_key="none", max_retries=0) as client:
        prompts = [" ".join(rng.choice(words) for _ in range(options.words)) for _ in range(options.requests)]
        await ask(client, options, "Speak", limit, [])  # the package loads parts of itself at its first call
        await asyncio.gather(*(ask(client, options, prompt, limit, times) for prompt in prompts))
    return tuple(statistics.mean(column) for column in zip(*times))


def guidellm(options, folder, seed):
    path = folder / "guidellm.json"
    subprocess.run([options.guidellm, "run", "--backend", f"kind=openai_http,target={options.base_url},model={options.model},request_format=/v1/completions",
                    "--profile", f"kind=concurrent,streams={options.concurrency}", "--constraint", f"kind=max_requests,count={options.requests}",
                    "--tokenizer", f"kind=huggingface_auto,model={options.tokenizer}", "--data", f"kind=synthetic_text,prompt_tokens={options.input},output_tokens={options.output}",
                    "--seed", f"kind=static,value={seed}", "--output", f"kind=json,path={path}", "--disable-console"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, HF_HUB_OFFLINE="1"))
    metrics = json.loads(path.read_text())["benchmarks"][0]["metrics"]
    return metrics["time_to_first_token_ms"]["successful"]["mean"], metrics["inter_token_latency_ms"]["successful"]["mean"]


def words_for(options):
    """Words of the package's prompts that make about options.input tokens."""
    import urllib.request
    words = "the of and to in is that for it as was with be by on not are this at from but have an they which one you were".split() * 20
    body = json.dumps({"model": options.model, "prompt": " ".join(words)}).encode()
    asked = urllib.request.Request(f"{options.base_url}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return round(options.input * len(words) / json.load(answer)["count"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--base-url")
    parser.add_argument("--model", default="tiny-shakespeare")
    parser.add_argument("--tokenizer", default=str(MODEL))
    parser.add_argument("--profile", default="a100-opt-13b-tp1-vllm")
    parser.add_argument("--guidellm", help="guidellm's program, of 0.8")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--input", type=int, default=256)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bound", type=float, default=0.1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, cluster = pathlib.Path(name), None
        if not options.base_url:
            cluster, options.base_url = start_cluster(options, folder)
        options.words = 0 if options.guidellm else words_for(options)
        other = "guidellm" if options.guidellm else "openai"
        rounds = {"baton": [], other: []}
        for number in range(options.rounds):
            rounds["baton"].append(ours(options, folder, 2 * number))
            rounds[other].append(guidellm(options, folder, 2 * number + 1) if options.guidellm else asyncio.run(openai_round(options, 2 * number + 1)))
            for client, seen in rounds.items():
                print(f"round {number}  {client:8s}  TTFT {seen[-1][0]:8.1f} ms  TPOT {seen[-1][1]:7.2f} ms   load {os.getloadavg()[0]:.1f}", flush=True)
        if cluster:
            cluster.terminate()
            cluster.wait()
    beyond = False
    for column, figure in enumerate(("TTFT", "TPOT")):
        medians = [statistics.median(seen[column] for seen in rounds[client]) for client in rounds]
        ratio = medians[0] / medians[1]
        beyond |= abs(ratio - 1) > options.bound
        print(f"{figure}: medians of means {medians[0]:.1f} and {medians[1]:.1f} ms, ratio {ratio:.3f}")
    sys.exit(beyond)


if __name__ == "__main__":
    main()
