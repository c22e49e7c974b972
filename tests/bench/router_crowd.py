#!/usr/bin/env python3
"""What thousands of idle and slow clients of the router's HTTP door cost: memory, CPU, and the others' latency.

    router_crowd.py [--idle 10000] [--slow 1000] [--rounds 16] [--rate 500] [--seconds 2] [--max-connections N] [--build build/release] [--prefix "chrt -f 10"]
                    [--keep FILE]

Two routers run at once, each with workers of its own (tests/bench/router_load, which answer at once); one has the crowd. The same load (completions with a prompt of
2 KiB, a Poisson process) goes to the one without it, the one with it, with it, without it: windows of --seconds, so that what the machine does to one it does to the
other. Latencies are pooled over all windows; rounds (of four windows) drawn again and again tell how sure the ratios are. The crowd's client runs at the lowest
priority, and beside both: what it takes itself is the measuring machine's. What the router with the crowd takes while the load is the other's, is the crowd's.

Idle clients have asked something and keep their connections. Of the slow ones a third each sends a head, or a body, of one byte a second, or reads 256 bytes a second
of an answer of 120 KB; whom the router puts out comes again. The routers have room for all of them, or --max-connections: then who is idle makes room for who comes.
--keep adds the windows to a file, and counts those that are in it. Needs a limit of open files of --idle, --slow and 1,000 more."""
import argparse
import json
import pathlib
import random
import tempfile
import time

from router_world import TOP, Baton, Load, running, wait_until, words

TOKENS = 30000
RATE = 500
ORDER = "alone beside beside alone".split()
DRAWS, SURE = 1000, 0.95
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=10000)
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--max-connections", type=int, help="of the routers; not given: room for all")
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build/release")
    parser.add_argument("--prefix", default="", help="in front of each program that is started, but the crowd's")
    parser.add_argument("--flags", default="", help="more flags of the routers")
    parser.add_argument("--keep", type=pathlib.Path, help="file of windows, one a line")
    return parser.parse_args()


class Crowd(Load):
    """Its clients, in a process of their own that runs when nobody else wants to."""

    def __init__(self, options, log):
        super().__init__(argparse.Namespace(build=options.build, prefix="chrt -i 0"), log)

    def gather(self, options, router):
        self.tell("crowd", router.address, router.model, options.idle, options.slow, TOKENS)
        everyone = min(options.idle + options.slow, (options.max_connections or 60000) - 1000)
        # Of the slow ones some are always between being put out and coming again.
        wait_until("the crowd is there", lambda: self.tell("crowd")["connected"] >= everyone - 0.2 * options.slow, 90)
        time.sleep(2)


def cpu_ns(process):
    return sum(int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir())


def kernel_bytes():
    """What all sockets of the machine hold, of TCP."""
    fields = next(line.split() for line in pathlib.Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    return 4096 * int(fields[fields.index("mem") + 1])


def measure_round(options, load, routers, seed):
    windows = []
    for i, which in enumerate(ORDER):
        before = {name: cpu_ns(router) for name, router in routers.items()}
        told = load.run(routers[which], options.rate, options.seconds, seed=2 * seed + i // 2)
        used = {name: (cpu_ns(router) - before[name]) / 1e6 / told["seconds"] for name, router in routers.items()}
        windows.append({"which": which, "times": load.tell("times"), "cpu_ms": used})
    return windows


def measure(options):
    rounds, room = [], options.max_connections or options.idle + options.slow + 1000
    flags = ["--max-connections", room, *options.flags.split()]
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "w") as log:
        load, crowd = Load(options, log), Crowd(options, log)
        with running(load, crowd):
            load.tell("prompt", json.dumps(words(2048, 1)))
            routers = {name: Baton(options, load, pathlib.Path(folder) / name, log, flags=flags) for name in ("alone", "beside")}
            with running(*routers.values()):
                for router in routers.values():
                    load.run(router, options.rate, 1)
                empty, kernel = routers["beside"].resident_bytes(), kernel_bytes()
                crowd.gather(options, routers["beside"])
                came = crowd.tell("crowd")
                most = most_kernel = 0
                for seed in range(options.rounds):
                    rounds.append(measure_round(options, load, routers, seed))
                    most = max(most, routers["beside"].resident_bytes() - empty)
                    most_kernel = max(most_kernel, kernel_bytes() - kernel)
                figures = crowd.tell("crowd")
                figures["put_out"] -= came["put_out"]
    return rounds, {**figures, "most": most, "most_kernel": most_kernel}


class Pool:
    """Latencies of many rounds, so that quantiles of rounds drawn again are quickly told."""

    def __init__(self, rounds, which):
        self.counts = [0] * len(rounds)
        self.falling = []
        for i, windows in enumerate(rounds):
            for window in windows:
                if window["which"] == which:
                    self.counts[i] += len(window["times"])
                    self.falling += [(time, i) for time in window["times"]]
        self.falling.sort(reverse=True)

    def quantiles(self, weights):
        total = sum(weight * count for weight, count in zip(weights, self.counts))
        left = sorted(((1 - share) * total, name) for name, share in SHARES.items())
        found, above = {}, 0
        for time, i in self.falling:
            above += weights[i]
            while left and above > left[0][0]:
                found[left.pop(0)[1]] = time / 1000
            if not left:
                return found
        return found


def compare(rounds):
    """Of each quantile: without, with, the ratio, and between which it lies."""
    alone, beside = Pool(rounds, "alone"), Pool(rounds, "beside")
    source, ratios = random.Random(1), {name: [] for name in SHARES}
    ones = [1] * len(rounds)
    for _ in range(DRAWS):
        weights = [0] * len(rounds)
        for i in source.choices(range(len(rounds)), k=len(rounds)):
            weights[i] += 1
        without, with_it = alone.quantiles(weights), beside.quantiles(weights)
        for name in SHARES:
            ratios[name].append(with_it[name] / without[name])
    without, with_it = alone.quantiles(ones), beside.quantiles(ones)
    for name in SHARES:
        drawn, cut = sorted(ratios[name]), int(DRAWS * (1 - SURE) / 2)
        yield name, without[name], with_it[name], with_it[name] / without[name], drawn[cut], drawn[-1 - cut]


def show(options, rounds, figures):
    def cpu(which, loaded):
        used = [window["cpu_ms"][which] for windows in rounds for window in windows if window["which"] == loaded]
        return sum(used) / len(used)
    everyone = options.idle + options.slow
    requests = sum(len(window["times"]) for windows in rounds for window in windows)
    print(f"\n{options.idle} idle and {options.slow} slow clients beside {options.rate:g} requests/s; {len(rounds)} rounds of 4 windows of {options.seconds:g} s, "
          f"{requests} requests\n")
    print(f"| | without | beside them | ratio | {SURE:.0%} of ratios |\n|---|---|---|---|---|")
    for name, without, with_it, ratio, low, high in compare(rounds):
        print(f"| {name}, ms | {without:.2f} | {with_it:.2f} | {ratio:.2f} | {low:.2f} to {high:.2f} |")
    print(f"| CPU of the router under load, ms a second | {cpu('alone', 'alone'):.1f} | {cpu('beside', 'beside'):.1f} | | |")
    print(f"| CPU of the router without load, ms a second | {cpu('alone', 'beside'):.1f} | {cpu('beside', 'alone'):.1f} | | |")
    print(f"\nMemory: {figures['most'] / 2**20:.0f} MiB more at most, {figures['most'] / everyone / 1024:.1f} KiB a client; the system's for TCP, both ends: "
          f"{figures['most_kernel'] / 2**20:.0f} MiB. Put out meanwhile: {figures['put_out']}, refused: {figures['refused']}")


def main():
    options = parse()
    rounds, figures = measure(options)
    if options.keep:
        with options.keep.open("a") as file:
            file.writelines(json.dumps(windows) + "\n" for windows in rounds)
        rounds = [json.loads(line) for line in options.keep.read_text().splitlines()]
    show(options, rounds, figures)


if __name__ == "__main__":
    main()
