#!/usr/bin/env python3
"""What thousands of idle and slow clients of the router's HTTP door cost: memory, and the others' latency.

    router_crowd.py [--idle 10000] [--slow 1000] [--rounds 5] [--rate 500] [--seconds 15] [--max-connections N] [--build build/release] [--prefix "chrt -f 10"]

In each round the same load (completions with a prompt of 2 KiB, a Poisson process) runs without the crowd and with it. Idle clients have asked something and keep their
connections. Of the slow ones a third each sends a head, or a body, of one byte a second, or doesn't read a stream of 256 tokens that it asked for; whom the router puts out
comes again. Workers are router_load's (tests/bench/router_load), which answer at once; the ratios are medians of those within a round. The router runs with
room for all of them, or with --max-connections: then who is idle makes room for who comes. Needs a limit of open files of --idle, --slow and 1,000 more."""
import argparse
import json
import pathlib
import statistics
import tempfile
import time

from router_world import TOP, Baton, Load, running, wait_until, words

TOKENS = 256
RATE = 500


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=10000)
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--max-connections", type=int, help="of the router; not given: room for all")
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--prefix", default="", help="in front of each program that is started")
    parser.add_argument("--flags", default="", help="more flags of the router")
    return parser.parse_args()


def gather(options, load, router):
    load.tell("crowd", router.address, router.model, options.idle, options.slow, TOKENS)
    everyone = min(options.idle + options.slow, (options.max_connections or 60000) - 1000)

    def there():
        return load.tell("crowd")["connected"] >= 0.99 * everyone
    wait_until("the crowd is there", there, 60)
    time.sleep(1)


def disperse(load, router):
    load.tell("leave")
    time.sleep(0.5)  # the router reads that they left


def measure_round(options, load, router):
    empty = router.resident_bytes()
    alone = load.run(router, options.rate, options.seconds)
    gather(options, load, router)
    beside = load.run(router, options.rate, options.seconds)
    figures = load.tell("crowd")
    grown = router.resident_bytes() - empty
    disperse(load, router)
    return {"alone": alone, "beside": beside, "grown": grown, "figures": figures}


def main():
    options = parse()
    rounds, room = [], options.max_connections or options.idle + options.slow + 1000
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "w") as log:
        load = Load(options, log)
        with running(load):
            load.tell("prompt", json.dumps(words(2048, 1)))
            router = Baton(options, load, pathlib.Path(folder), log, flags=["--max-connections", room, *options.flags.split()])
            with running(router):
                load.run(router, options.rate, 1)
                for _ in range(options.rounds):
                    rounds.append(measure_round(options, load, router))
                    print(json.dumps(rounds[-1]), flush=True)
    show(options, rounds)


def show(options, rounds):
    middle = statistics.median

    def of(which, index):
        return middle(r[which]["whole"][index] for r in rounds) / 1000

    def ratio(index):
        return middle(r["beside"]["whole"][index] / r["alone"]["whole"][index] for r in rounds)
    everyone = options.idle + options.slow
    print(f"\n{options.idle} idle and {options.slow} slow clients beside {options.rate:g} requests/s; medians of {options.rounds} rounds\n")
    print("| | without | beside them | ratio |\n|---|---|---|---|")
    for name, index in (("p50, ms", 0), ("p99, ms", 1)):
        print(f"| {name} | {of('alone', index):.2f} | {of('beside', index):.2f} | {ratio(index):.2f} |")
    cpu = [middle(r[which]["cpu_us"] / r[which]["seconds"] / 1e4 for r in rounds) for which in ("alone", "beside")]
    print(f"| CPU of the router, % of a core | {cpu[0]:.1f} | {cpu[1]:.1f} | {cpu[1] / cpu[0]:.2f} |")
    most = max(r["grown"] for r in rounds)
    print(f"\nMemory: {most / 2**20:.0f} MiB more at most, {most / everyone / 1024:.1f} KiB a client; put out in a round: "
          f"{middle(r['figures']['put_out'] for r in rounds):.0f}, refused: {middle(r['figures']['refused'] for r in rounds):.0f}")


if __name__ == "__main__":
    main()
