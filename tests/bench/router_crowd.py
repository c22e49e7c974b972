#!/usr/bin/env python3
"""The cost of thousands of idle and slow clients of the router's HTTP door: memory, CPU, and the others' latency.

    router_crowd.py [--idle 10000] [--slow 1000] [--rounds 16] [--rate 500] [--seconds 2] [--max-connections N] [--build build/release] [--prefix "chrt -f 10"]
                    [--crowd-priority idle|normal] [--stolen SHARE] [--keep FILE]

Two routers run at once, each with workers of its own (tests/bench/router_load, which answer at once); one has the crowd. The same load (completions with a prompt of
2 KiB, a Poisson process) goes to the one without it, the one with it, with it, without it: windows of --seconds, so that what the machine does to one it does to the
other. Latencies are pooled over all windows; rounds (of four windows) drawn again and again tell how sure the ratios are. What the router with the crowd takes while
the load is the other's, is the crowd's.

The crowd's client, what the system does for both ends of its connections, and the other router are beside both, so "without" is not without a crowd: the same
rounds are measured before it comes and after it has left, too, a quarter as many each ("no crowd"). The client runs when no other process
wants to (--crowd-priority normal: like any other); its sent and read bytes are printed, so that one which is kept from it is seen.

What a virtual machine's host gives to others is told (`steal` of /proc/stat). --stolen leaves out each round, whole, in one of whose windows that was a larger share of
the CPUs: beside a busy host a p99 is the host's, with the crowd and without. The share is fixed before the run. Windows of a file of --keep that tell none count as
stolen.

Idle clients have asked something and keep their connections. Of the slow ones a third each sends a head, or a body, of one byte a second, or reads 256 bytes a second
of an answer of 480 KB, of which the system takes up a part, and the router keeps the rest; whom the router puts out comes again. The routers have room for all of
them, or --max-connections: then who is idle makes room for who comes. --keep adds the windows to a file, and counts those that are in it. Needs a limit of open files of --idle, --slow and 1,000 more."""
import argparse
import json
import os
import pathlib
import random
import re
import tempfile
import time
import urllib.request

from router_world import TOP, Baton, Load, fail, running, wait_until, words

TOKENS = 30000
RATE = 500
READ_BYTES = 256  # a second, of each that reads slowly
LINGER = "1h"  # for slow readers: if they were cut off and came again, the making of answers would be measured
QUIET_PART = 4  # so many times fewer rounds before the crowd comes, and after it has left
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
    parser.add_argument("--crowd-priority", choices=("idle", "normal"), default="idle", help="of the crowd's client")
    parser.add_argument("--stolen", type=float, default=1, help="rounds of which a larger share was stolen are left out")
    parser.add_argument("--flags", default="", help="more flags of the routers")
    parser.add_argument("--keep", type=pathlib.Path, help="file of windows, one a line")
    return parser.parse_args()


class Crowd(Load):
    """Its clients, in a process of their own."""

    def __init__(self, options, log):
        super().__init__(argparse.Namespace(build=options.build, prefix="chrt -i 0" if options.crowd_priority == "idle" else ""), log)

    def gather(self, options, router):
        self.tell("crowd", router.address, router.model, options.idle, options.slow, TOKENS)
        everyone = min(options.idle + options.slow, (options.max_connections or 60000) - 1000)
        # Some of the slow clients are always between being disconnected and coming again.
        wait_until("the crowd is there", lambda: self.tell("crowd")["connected"] >= everyone - 0.2 * options.slow, 90)
        time.sleep(2)

    def leave(self, routers):
        self.tell("leave")
        wait_until("the crowd has left", lambda: unsent_bytes(routers["beside"]) == 0)
        time.sleep(2)


def unsent_bytes(router):
    """Bytes that wait in the router for slow readers."""
    with urllib.request.urlopen(f"http://{router.metrics}/metrics", timeout=10) as answer:
        return float(re.search(r"^baton_router_http_unsent_bytes (\S+)$", answer.read().decode(), re.M)[1])


def cpu_ns(process):
    return sum(int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir())


def kernel_bytes():
    """Memory of all TCP sockets of the machine."""
    fields = next(line.split() for line in pathlib.Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("TCP:"))
    return 4096 * int(fields[fields.index("mem") + 1])


def stolen_seconds():
    return int(pathlib.Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def measure_round(options, load, routers, seed, quiet=False):
    """quiet: no router has a crowd."""
    windows = []
    for i, which in enumerate(ORDER):
        before = {name: cpu_ns(router) for name, router in routers.items()}
        stolen = stolen_seconds()
        told = load.run(routers[which], options.rate, options.seconds, seed=2 * seed + i // 2)
        used = {name: (cpu_ns(router) - before[name]) / 1e6 / told["seconds"] for name, router in routers.items()}
        windows.append({"which": which, "quiet": quiet, "times": load.tell("times"), "cpu_ms": used,
                        "stolen": (stolen_seconds() - stolen) / told["seconds"] / os.cpu_count()})
    return windows


def measure_crowd(options, load, crowd, routers):
    """Rounds beside it, and what it took and did meanwhile."""
    empty, kernel = routers["beside"].resident_bytes(), kernel_bytes()
    crowd.gather(options, routers["beside"])
    came, begin = crowd.tell("crowd"), time.monotonic()
    rounds, most, most_kernel, unsent = [], 0, 0, []
    for seed in range(options.rounds):
        rounds.append(measure_round(options, load, routers, seed))
        most = max(most, routers["beside"].resident_bytes() - empty)
        most_kernel = max(most_kernel, kernel_bytes() - kernel)
        unsent.append(unsent_bytes(routers["beside"]))
    figures, seconds = crowd.tell("crowd"), time.monotonic() - begin
    for name in ("put_out", "sent_bytes", "read_bytes"):
        figures[name] -= came[name]
    if options.slow >= 3 and not max(unsent):
        fail("nothing waits in the router for those who read slowly: the system takes up all their answers")
    return rounds, {**figures, "seconds": seconds, "most": most, "most_kernel": most_kernel, "unsent": unsent}


def measure(options):
    room = options.max_connections or options.idle + options.slow + 1000
    quiet = range(max(1, options.rounds // QUIET_PART))
    flags = ["--max-connections", room, "--client-linger", LINGER, *options.flags.split()]
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "w") as log:
        load, crowd = Load(options, log), Crowd(options, log)
        with running(load, crowd):
            load.tell("prompt", json.dumps(words(2048, 1)))
            routers = {name: Baton(options, load, pathlib.Path(folder) / name, log, flags=flags) for name in ("alone", "beside")}
            with running(*routers.values()):
                for router in routers.values():
                    load.run(router, options.rate, 1)
                before = [measure_round(options, load, routers, seed, quiet=True) for seed in quiet]
                rounds, figures = measure_crowd(options, load, crowd, routers)
                crowd.leave(routers)
                after = [measure_round(options, load, routers, seed, quiet=True) for seed in quiet]
    return before + rounds + after, figures


class Pool:
    """Latencies of many rounds, so that quantiles of rounds drawn again are quickly told."""

    def __init__(self, rounds, *which):
        self.counts = [0] * len(rounds)
        self.falling = []
        for i, windows in enumerate(rounds):
            for window in windows:
                if window["which"] in which:
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


def draw(source, count):
    """How often each of so many rounds is drawn."""
    weights = [0] * count
    for i in source.choices(range(count), k=count):
        weights[i] += 1
    return weights


def between(ratios):
    drawn, cut = sorted(ratios), int(DRAWS * (1 - SURE) / 2)
    return f"{drawn[cut]:.2f} to {drawn[-1 - cut]:.2f}"


def compare(quiet, rounds):
    """Of each quantile: with no crowd at all, without, with, and its ratios to both, each with between which it lies."""
    nobody, alone, beside = Pool(quiet, *ORDER), Pool(rounds, "alone"), Pool(rounds, "beside")
    source, ratios, all_ratios = random.Random(1), {name: [] for name in SHARES}, {name: [] for name in SHARES}
    for _ in range(DRAWS):
        weights = draw(source, len(rounds))
        none, without, with_it = nobody.quantiles(draw(source, len(quiet))), alone.quantiles(weights), beside.quantiles(weights)
        for name in SHARES:
            ratios[name].append(with_it[name] / without[name])
            all_ratios[name].append(with_it[name] / none[name])
    none, without, with_it = (pool.quantiles([1] * len(pool.counts)) for pool in (nobody, alone, beside))
    for name in SHARES:
        yield (name, none[name], without[name], with_it[name], with_it[name] / without[name], between(ratios[name]), with_it[name] / none[name],
               between(all_ratios[name]))


def mean_cpu_ms(rounds, routers, loaded):
    """Of those routers a second, in windows whose load they have, or another."""
    used = [ms for windows in rounds for window in windows for router, ms in window["cpu_ms"].items()
            if router in routers and (router == window["which"]) == loaded]
    return sum(used) / len(used)


def show_crowd(options, figures):
    everyone, readers = options.idle + options.slow, options.slow // 3
    unsent, seconds = figures["unsent"], figures["seconds"]
    print(f"\nMemory: {figures['most'] / 2**20:.0f} MiB more at most, {figures['most'] / everyone / 1024:.1f} KiB a client; the system's for TCP, both ends: "
          f"{figures['most_kernel'] / 2**20:.0f} MiB. Put out meanwhile: {figures['put_out']}, refused: {figures['refused']}")
    print(f"Unsent in the router, to those who read slowly: {min(unsent) / 2**20:.1f} to {max(unsent) / 2**20:.1f} MiB, "
          f"{max(unsent) / max(1, readers) / 1024:.0f} KiB each at most")
    print(f"The crowd sent {figures['sent_bytes'] / seconds:.0f} bytes a second of {options.slow - readers}, and read {figures['read_bytes'] / seconds:.0f} of "
          f"{READ_BYTES * readers}; it was late by {figures['late_us'] / 1000:.0f} ms at most")


def most_stolen(windows):
    return max(window.get("stolen", 1) for window in windows)


def show(options, rounds, figures):
    all_stolen, all_count = sorted(map(most_stolen, rounds)), len(rounds)
    rounds = [windows for windows in rounds if most_stolen(windows) <= options.stolen]
    print(f"\nMost that was stolen in a window of a round: median {all_stolen[all_count // 2]:.1%}, at most {all_stolen[-1]:.1%}; "
          f"{len(rounds)} rounds of {all_count} have at most {options.stolen:.1%}")
    quiet, rounds = ([windows for windows in rounds if windows[0].get("quiet", False) == want] for want in (True, False))
    if not quiet or not rounds:
        fail("no rounds are left")
    requests = sum(len(window["times"]) for windows in rounds for window in windows)
    print(f"\n{options.idle} idle and {options.slow} slow clients beside {options.rate:g} requests/s; {len(rounds)} rounds of 4 windows of {options.seconds:g} s, "
          f"{requests} requests\n")
    sure = f"{SURE:.0%} of ratios"
    print(f"| | no crowd | without | beside them | ratio to without | {sure} | ratio to no crowd | {sure} |\n|---|---|---|---|---|---|---|---|")
    for name, none, without, with_it, ratio, drawn, all_ratio, all_drawn in compare(quiet, rounds):
        print(f"| {name}, ms | {none:.2f} | {without:.2f} | {with_it:.2f} | {ratio:.2f} | {drawn} | {all_ratio:.2f} | {all_drawn} |")
    for loaded, title in (True, "under"), (False, "without"):
        print(f"| CPU of the router {title} load, ms a second | {mean_cpu_ms(quiet, ORDER, loaded):.1f} | {mean_cpu_ms(rounds, ['alone'], loaded):.1f} | "
              f"{mean_cpu_ms(rounds, ['beside'], loaded):.1f} | | | | |")
    show_crowd(options, figures)


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
