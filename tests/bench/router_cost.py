#!/usr/bin/env python3
"""The cost of a request on its way through the router, beside sglang-router, on one machine with workers that answer at once.

    router_cost.py [--sglang-router PATH] [--routers TEXT] [--rounds 4] [--rate 200] [--tokens 1] [--limit 540] [--bare-proxy] [--awake] [--build build/release] [--prefix "chrt -b 0"] [--json FILE] [--flags "..."]

The client and all workers are one program (tests/bench/router_load). Each round asks, in turns, a worker itself and every router: completions with a prompt of 2 KiB
and one token at --rate requests a second (Poisson, open loop: a late request counts from when it was due); the same as fast as 32 connections let; streams, 50 new ones a
second, of 2 tokens and of 64 tokens with steps of 20 ms. Baton hands no completion of one token from prefill to decode: `--tokens 2` measures those that are. *Added* is a router's percentile less the worker's in the same round; CPU is all of the router's process;
a chunk's is what the streams of 64 tokens cost more than those of 2. *Behind* is from when the worker sent a token until the client has it. Figures are medians
of the rounds. *Untokenized*: the 2 KiB are in a field that nobody reads, and the prompt is one token id.

A round of one router, and of the worker itself, takes 40 s: `--routers colocated --rounds 2` is a quick look.

--bare-proxy measures a proxy as well that hands bytes on unread (tests/bench/bare_proxy.c), with one thread, with two as the router has, and polling before it sleeps: what two more
hops cost on the machine, whatever a router does in between.

--awake keeps the CPUs from halting while all of them are measured, the worker itself too: what is left is not the waking of a virtual machine's CPUs. --prefix "chrt -b 0"
keeps who is woken from pushing another off his CPU (client, worker and router share them), which is the machine's scheduler and no program's.

sglang-router is that of PyPI (pip install sglang-router==0.3.2); without --sglang-router only Baton's router is measured. No round begins later than --limit seconds
after the start."""
import argparse
import contextlib
import json
import pathlib
import statistics
import tempfile
import time

from router_world import TOP, BareProxy, Baton, Direct, Load, Sglang, awake, words

SECONDS, STREAMS, STREAM_SECONDS, FEW, TOKENS, STEP_US = 6, 50, 4, 2, 64, 20000
BYTES = 2048


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sglang-router", type=pathlib.Path)
    parser.add_argument("--routers", default="", metavar="TEXT", help="only those in whose names this occurs, as in the table")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--tokens", type=int, default=1, help="of a completion that isn't streamed (default 1)")
    parser.add_argument("--limit", type=float, default=540)
    parser.add_argument("--bare-proxy", action="store_true")
    parser.add_argument("--awake", action="store_true", help="keep the CPUs from halting")
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--prefix", default="", help="in front of each program that is started")
    parser.add_argument("--flags", default="", help="more flags of Baton's router")
    parser.add_argument("--workers", type=int, default=1, help="of each role in front of which Baton's router is measured")
    parser.add_argument("--json", type=pathlib.Path, help="all that was measured goes here")
    return parser.parse_args()


def start_all(options, load, folder, log, started):
    """[(router, its prompts)]; `started` gets what must be ended."""
    text = json.dumps(words(BYTES, 1))
    prompts = {"text": text, "untokenized": f'[5],"unread":{text}'}
    routers = [(Direct(load.tell("http-worker")["address"]), {"text": text})]
    flags = options.flags.split()
    for threads, poll_us in ((1, 0), (2, 0), (1, 300)) if options.bare_proxy else ():
        started.append(BareProxy(options, load, log, threads, poll_us))
        routers.append((started[-1], {"text": text}))
    for prefill in (False, True):
        if options.routers not in Baton.name_of(prefill):
            continue
        started.append(Baton(options, load, folder, log, prefill=prefill, flags=flags, workers=options.workers))
        routers.append((started[-1], prompts))
    for policy, pd in (("round_robin", False), ("cache_aware", False), ("round_robin", True)) if options.sglang_router else ():
        if options.routers not in Sglang.name_of(policy, pd):
            continue
        started.append(Sglang(options, load, log, policy, pd))
        routers.append((started[-1], {"text": text}))
    return routers


def measure(load, router, prompts, rate, tokens):
    figures = {}
    for kind, prompt in prompts.items():
        load.tell("prompt", prompt)
        load.tell("step", 0)
        figures[f"{kind} at a rate"] = load.run(router, rate, SECONDS if kind == "text" else 2, tokens=tokens)
        figures[f"{kind} saturated"] = load.run(router, 0, 2, 32, tokens)
    load.tell("prompt", prompts["text"])
    load.tell("step", STEP_US)
    for length in (FEW, TOKENS):
        figures[f"streams of {length}"] = load.run(router, STREAMS, STREAM_SECONDS, 256, length, stream=True)
    return figures


def main():
    options = parse()
    began, rounds, started = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "w") as log, awake() if options.awake else contextlib.nullcontext():
        load = Load(options, log)
        try:
            routers = start_all(options, load, pathlib.Path(folder), log, started)
            for router, prompts in routers:
                load.tell("prompt", prompts["text"])
                load.run(router, options.rate, 1)
            while len(rounds) < options.rounds and time.monotonic() - began < options.limit - (time.monotonic() - began) / (len(rounds) + 1):
                rounds.append({router.name: measure(load, router, prompts, options.rate, options.tokens) for router, prompts in routers})
                print(f"round {len(rounds)} of {options.rounds}, {time.monotonic() - began:.0f} s", flush=True)
        finally:
            for process in reversed([load, *started]):
                process.stop()
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=1) + "\n")
    show(rounds, options.rate)


class Middle:
    """Medians over the rounds, of one router."""

    def __init__(self, rounds, name):
        self.rounds, self.name = rounds, name

    def of(self, figure):
        return statistics.median(figure(r[self.name], r["direct"]) for r in self.rounds)

    def added_ms(self, index):
        return self.of(lambda own, direct: own["text at a rate"]["whole"][index] - direct["text at a rate"]["whole"][index]) / 1000

    def behind_ms(self, which, index):
        return self.of(lambda own, direct: own[f"streams of {TOKENS}"][which][index]) / 1000

    def cpu_us(self, run):
        return self.of(lambda own, direct: own[run]["cpu_us"] / own[run]["answers"]) if run in self.rounds[0][self.name] else None

    def chunk_cpu_us(self):
        def more(own, direct):
            few, many = own[f"streams of {FEW}"], own[f"streams of {TOKENS}"]
            return (many["cpu_us"] / many["answers"] - few["cpu_us"] / few["answers"]) / (TOKENS - FEW)
        return self.of(more)

    def per_second(self, run):
        return self.of(lambda own, direct: own[run]["answers"] / own[run]["seconds"])


def cell(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def show(rounds, rate):
    direct = Middle(rounds, "direct")
    one = direct.of(lambda own, _: own["text at a rate"]["whole"][0]) / 1000, direct.of(lambda own, _: own["text at a rate"]["whole"][1]) / 1000
    print(f"\nThe worker itself: p50 {one[0]:.2f} ms, p99 {one[1]:.2f} ms, {direct.per_second('text saturated'):.0f} requests/s; "
          f"tokens behind: {direct.behind_ms('behind', 0):.2f} / {direct.behind_ms('behind', 1):.2f} ms. Medians of {len(rounds)} rounds.\n")
    print(f"| | added p50 / p99, ms | requests/s, 32 connections | CPU a request, us: at {rate:g}/s | saturated | untokenized, saturated "
          "| first token behind, p50 / p99, ms | later ones | CPU a chunk, us |\n|---|---|---|---|---|---|---|---|---|")
    for name in rounds[0]:
        if name == "direct":
            continue
        router = Middle(rounds, name)
        print(f"| {name} | {router.added_ms(0):.2f} / {router.added_ms(1):.2f} | {router.per_second('text saturated'):.0f} "
              f"| {cell(router.cpu_us('text at a rate'), 0)} | {cell(router.cpu_us('text saturated'), 0)} | {cell(router.cpu_us('untokenized saturated'), 0)} "
              f"| {router.behind_ms('behind', 0):.2f} / {router.behind_ms('behind', 1):.2f} "
              f"| {router.behind_ms('later', 0):.2f} / {router.behind_ms('later', 1):.2f} | {router.chunk_cpu_us():.1f} |")


if __name__ == "__main__":
    main()
