#!/usr/bin/env python3
"""The delay of an answer by a long prompt beside it, and the prompt's own delay: a decode worker computes both, by `chunk-time`.

    prompt_beside_answers.py --model DIR --work DIR [--weights int8] [--kv int8] [--chunk-times 50ms,100ms,200ms,400ms,0] [--rounds 3]

DIR of --model is a Hugging Face folder; prompts are random ids, so it needs no tokenizer. `baton up` serves it once for each
chunk-time, all at the same time and without prefill workers, one of which has work at a time; their compute threads are pinned to
--cpu. Run it on another CPU (`taskset -c 0`): router, clients and what workers do besides computing stay where it runs.

A client streams an answer; when it has --before tokens, a second one sends a prompt. Gaps between tokens of the answer are those that begin
while the prompt is computed: from when it is sent to its first token. *Alone* are the gaps before that, and a prompt of that length
without an answer beside it, whose time does not depend on chunk-time. Each cell is a median over rounds, in which each chunk-time
has its turn (who is first changes), with the least and the most behind it. --warm-ups prompts beside an answer teach each
worker's cost model before, and are not counted."""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[2]


def fail(sentence):
    sys.exit(f"prompt_beside_answers.py: {sentence}")


def keep_packed(options):
    """Packed weights in --work: all workers map the same ones."""
    command = ["taskset", "-c", options.cpu, options.baton, "bench", "engine", "--model", options.model, "--weights", options.weights,
               "--weight-cache", options.work, "--first-cpu", options.cpu, "--prefill", 16, "--batch", 0, "--rounds", 1]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def cluster(options):
    """The address of its HTTP door. Model i has the i-th chunk-time."""
    ready = options.work / "ready.json"
    ready.unlink(missing_ok=True)
    command = [options.baton, "up", "--no-pin", "--no-restart", "--prefill", 0, "--threads", 1, "--weights", options.weights, "--kv", options.kv,
               "--weight-cache", options.work, "--kv-tokens", 8192, "--chunk-tokens", options.chunk_tokens, "--ready-file", ready,
               "--log-dir", options.work / "logs"]
    for i, chunk_time in enumerate(options.chunk_times):
        command += ["--model", f"m{i}={options.model}", "--env", f"decode-{i}:BATON_CHUNK_TIME={chunk_time}", "--env",
                    f"decode-{i}:BATON_CPUS={options.cpu}"]
    with open(options.work / "up.log", "wb") as log:
        up = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
    try:
        while not ready.exists():
            if up.poll() is not None:
                fail(f"baton up ended with {up.returncode}, see {options.work}/up.log")
            time.sleep(0.1)
        yield json.loads(ready.read_text())["openai"].split("//")[-1].split("/")[0]
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait()


class Answer(threading.Thread):
    """A streamed answer; `times` is when each of its tokens came. `begun` is set once there are as many as `wanted`."""

    def __init__(self, address, model, prompt, tokens, wanted=1):
        super().__init__()
        self.body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                     "return_token_ids": True}
        self.address, self.wanted, self.begun, self.ended = address, wanted, threading.Event(), threading.Event()
        self.times, self.sent = [], time.monotonic()
        self.start()

    def run(self):
        connection = http.client.HTTPConnection(self.address, timeout=600)
        try:
            connection.request("POST", "/v1/completions", json.dumps(self.body), {"content-type": "application/json"})
            self.read(connection.getresponse())
        finally:
            self.begun.set()
            connection.close()

    def read(self, reply):
        if reply.status != 200:
            print(reply.read().decode(), file=sys.stderr)
            return
        while not self.ended.is_set() and (line := reply.readline()):
            now = time.monotonic()
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:]).get("choices", ()):
                    self.times += [now] * len(choice.get("token_ids") or ())
            if len(self.times) >= self.wanted:
                self.begun.set()
        reply.close()

    def wait(self):
        self.begun.wait()
        if len(self.times) < self.wanted:
            fail(f"an answer had {len(self.times)} tokens, not {self.wanted}")
        return self

    def end(self):
        self.ended.set()
        self.join()

    def first_s(self):
        return self.times[0] - self.sent


def prompt_of(options, count):
    return [options.random.randrange(3, options.vocabulary) for _ in range(count)]


def alone(options, address, model):
    answer = Answer(address, model, prompt_of(options, options.prompt), 8, 8).wait()
    answer.end()
    return {"prompt alone, s": answer.first_s()}


def beside(options, address, model):
    stream = Answer(address, model, prompt_of(options, 32), options.answer, options.before).wait()
    prompt = Answer(address, model, prompt_of(options, options.prompt), 8, 8).wait()
    stream.end()
    gaps = [(begin, end) for begin, end in zip(stream.times, stream.times[1:])]
    before = [end - begin for begin, end in gaps[4:] if end <= prompt.sent]
    # The step of the prompt's first token has one of the stream's, too: either may be read first.
    during = [end - begin for begin, end in gaps if prompt.sent <= begin and (begin + end) / 2 < prompt.times[0]]
    if not during or stream.times[-1] < prompt.times[0]:
        fail("the answer ended before the prompt was computed: --answer must be more")
    return {"gap alone, ms": 1e3 * statistics.median(before), "median gap, ms": 1e3 * statistics.median(during),
            "longest gap, ms": 1e3 * max(during), "tokens meanwhile": len(during), "prompt, s": prompt.first_s()}


def measure(options, address):
    """Figures of all rounds, by chunk-time."""
    turns = list(enumerate(options.chunk_times))
    rounds = {chunk_time: [] for chunk_time in options.chunk_times}
    for i, chunk_time in turns:
        for _ in range(options.warm_ups):
            print(f"warm-up, {chunk_time}: {beside(options, address, f'm{i}')}", file=sys.stderr, flush=True)
    for number in range(options.rounds):
        first = number * 2 % len(turns)
        lonely = alone(options, address, f"m{first}")
        for i, chunk_time in turns[first:] + turns[:first]:
            rounds[chunk_time].append(beside(options, address, f"m{i}") | lonely)
            print(f"round {number + 1}, {chunk_time}: {rounds[chunk_time][-1]}", file=sys.stderr, flush=True)
    return rounds


def table(rounds):
    names = list(next(iter(rounds.values()))[0])
    lines = ["| chunk-time | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for chunk_time, figures in rounds.items():
        columns = [[figure[name] for figure in figures] for name in names]
        digits = [1 if name.endswith(", s") else 0 for name in names]
        lines.append(f"| {chunk_time} | " + " | ".join(f"{statistics.median(values):.{n}f} ({min(values):.{n}f} to {max(values):.{n}f})"
                                                      for values, n in zip(columns, digits)) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", type=pathlib.Path, default=TOP / "build/release/bin/baton")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="for packed weights, logs, and rounds.json with all figures")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--kv", default="int8")
    parser.add_argument("--chunk-times", type=lambda text: text.split(","), default="50ms,100ms,200ms,400ms,0")
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of the prompt")
    parser.add_argument("--answer", type=int, default=300, help="tokens of the answer; it is given up when the prompt has its own")
    parser.add_argument("--before", type=int, default=30, help="tokens of the answer before the prompt is sent")
    parser.add_argument("--warm-ups", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", type=int, default=1, help="of the compute threads")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    options.random = random.Random(options.seed)
    options.vocabulary = json.loads((options.model / "config.json").read_text())["vocab_size"]
    os.environ["XDG_RUNTIME_DIR"] = str(options.work)
    keep_packed(options)
    with cluster(options) as address:
        rounds = measure(options, address)
    (options.work / "rounds.json").write_text(json.dumps(rounds, indent=1))
    print(table(rounds))


if __name__ == "__main__":
    main()
