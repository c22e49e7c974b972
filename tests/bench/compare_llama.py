#!/usr/bin/env python3
"""The engine beside llama.cpp on this machine: one model of random weights in both formats, measured in turns, in rounds.

    compare_llama.py --llama-bin DIR --work DIR [--rounds 5] [--shapes ...] [--weights ...] [--threads ...] [--chunk ROWS]
                     [--prefix "chrt -f 10"]

DIR of --llama-bin holds llama-bench, llama-batched-bench and llama-quantize. Models are made once in --work, about 8 GB for the
1.1B shape: a Hugging Face folder from the shape's config.json, what `baton quantize` makes of it, and the same weights as GGUF
(packages gguf and numpy), quantized by llama-quantize. Weights are bf16 beside BF16, int8 beside Q8_0, int4 beside Q4_0.

In each round every cell (shape, weights, threads) has its turn: ours, theirs; in the next round theirs, ours. Results go into
--work/state.json at once: a run that was ended goes on where it was when it is started again, and --report prints what is there. It goes on
only with the programs, CPU model, --chunk and --prefix that it began with. Figures are medians over rounds, ratios are medians of the
ratios within a round, with the least and the most of them. *Others* is the share of the pinned CPUs' time that other programs took
meanwhile (median; 0 on a quiet machine)."""
import argparse
import hashlib
import json
import os
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import time

import llama_models

TOP = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {"llama-1.1b": TOP / "tests/bench/llama-1.1b", "qwen2-0.5b": TOP / "tests/bench/qwen2-0.5b"}
THEIRS = {"bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
SHORT, LONG, STEPS = 512, 2048, 32  # tokens of the prompts, and steps of a decode
BATCHES = (8, 16)
# Figure -> its name in the table, and for each type of weights the ratio that must hold and the aim.
FIGURES = {
    "prefill 512": {"bf16": (1.15, 1.3), "int8": (1.9, 3.0), "int4": (1.3, 2.0)},
    "prefill 2048": {"bf16": (1.3, 1.6), "int8": (1.9, 3.0)},
    "decode": {"bf16": (1.0, 1.05), "int8": (1.2, 1.35), "int4": (1.2, 1.4)},
    "decode at 2048": {"bf16": (1.4, 1.6), "int8": (1.4, 1.6)},
    "decode, batch 8": {"bf16": (1.7, 2.0), "int8": (2.0, 3.0)},
    "decode, batch 16": {"bf16": (1.7, 2.0), "int8": (2.0, 3.0)},
}
# Baton's own figures: (figure, value of `baton bench engine --json`) -> what the table calls it.
BOUNDS = {
    ("prefill 512", "linear_of_peak"): "linear layers of prefill 512, of the instruction's peak",
    ("prefill 2048", "linear_of_peak"): "linear layers of prefill 2048, of the instruction's peak",
    ("decode", "of_read"): "decode, of the read bandwidth",
}


def fail(sentence):
    sys.exit(f"compare_llama.py: {sentence}")


# --- one side, once ---


class Machine:
    """Runs a command on some CPUs, and tells how much of them others took."""

    def __init__(self, options):
        self.prefix = shlex.split(options.prefix)
        self.first_cpu = options.first_cpu

    def busy_s(self, threads):
        wanted = {f"cpu{self.first_cpu + i}" for i in range(threads)}
        lines = [line.split() for line in pathlib.Path("/proc/stat").read_text().splitlines()]
        ticks = sum(sum(map(int, line[1:4] + line[6:9])) for line in lines if line[0] in wanted)
        return ticks / os.sysconf("SC_CLK_TCK")

    def run(self, command, threads):
        cpus = ",".join(str(self.first_cpu + i) for i in range(threads))
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy, begun = self.busy_s(threads), time.monotonic()
        done = subprocess.run([*self.prefix, "taskset", "-c", cpus, *map(str, command)], text=True, capture_output=True)
        if done.returncode:
            fail(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        seconds = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        ours = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
        return done.stdout, max(0.0, (self.busy_s(threads) - busy - ours) / (seconds * threads))


def figures_of(weights):
    return [name for name, aims in FIGURES.items() if weights in aims]


def run_ours(machine, options, shape, weights, threads):
    out = options.work / "ours.json"
    folder = llama_models.folder(options.work, shape, weights)
    wants_all = "decode at 2048" in figures_of(weights)
    sizes = ["--prefill", f"{SHORT},{LONG}", "--batch", ",".join(map(str, (1, *BATCHES))), "--depth", f"0,{LONG}"] if wants_all \
        else ["--prefill", SHORT, "--batch", 1, "--depth", 0]
    chunk = ["--chunk", options.chunk] if options.chunk else []
    _, others = machine.run([options.baton, "bench", "engine", "--model", folder, "--threads", threads, "--first-cpu",
                             machine.first_cpu, *sizes, *chunk, "--decode", STEPS, "--rounds", 1, "--json", out], threads)
    engine = json.loads(out.read_text())["engines"][0]
    figures = {}
    for figure in engine["figures"]:
        if figure["kind"] == "prefill":
            name = f"prefill {figure['tokens']}"
        elif figure["batch"] == 1:
            name = f"decode at {figure['depth']}" if figure["depth"] else "decode"
        elif figure["depth"] == 0:
            name = f"decode, batch {figure['batch']}"
        else:
            continue
        figures[name] = {key: value for key, value in figure.items() if key != "rounds"}
    return figures, others


def batched(machine, options, gguf, threads, prompts, batches):
    """Of llama-batched-bench: {(tokens of a prompt, batch): entry}, and what others took. It may end before its last line is
    written, so the last prompt and batch are one that nobody waits for."""
    context = (max(batches) + 1) * (max(prompts) + STEPS + 1)
    lines, others = machine.run([options.llama_bin / "llama-batched-bench", "-m", gguf, "-t", threads, "-tb", threads, "-c",
                                 context, "-npp", ",".join(map(str, prompts)), "-ntg", STEPS, "-npl",
                                 ",".join(map(str, batches)), "--output-format", "jsonl"], threads)
    entries = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return {(entry["pp"], entry["pl"]): entry for entry in entries}, others


def run_theirs(machine, options, shape, weights, threads):
    gguf = llama_models.gguf(options.work, shape, THEIRS[weights])
    # A prompt of 16 tokens comes first instead of the program's own warm-up, which computes the whole prompt twice.
    lines, others = machine.run([options.llama_bin / "llama-bench", "-m", gguf, "-t", threads, "-r", 1, "--no-warmup", "-o",
                                 "json", "-p", f"16,{SHORT}", "-n", STEPS], threads)
    entries = {(entry["n_prompt"], entry["n_gen"]): entry["avg_ts"] for entry in json.loads(lines)}
    speeds = {f"prefill {SHORT}": entries[SHORT, 0], "decode": entries[0, STEPS]}
    if "decode at 2048" in figures_of(weights):
        deep, more = batched(machine, options, gguf, threads, (LONG, 1), (1,))
        wide, most = batched(machine, options, gguf, threads, (1,), (*BATCHES, 1))
        others = max(others, more, most)
        if (LONG, 1) in deep:
            speeds |= {f"prefill {LONG}": deep[LONG, 1]["speed_pp"], f"decode at {LONG}": deep[LONG, 1]["speed_tg"]}
        speeds |= {f"decode, batch {batch}": wide[1, batch]["speed_tg"] for batch in BATCHES if (1, batch) in wide}
    return {name: {"tokens_per_s": speed} for name, speed in speeds.items()}, others


SIDES = {"ours": run_ours, "theirs": run_theirs}


# --- the state: what was measured, on disk after every turn ---


def fingerprint(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


class State:
    def __init__(self, options):
        self.path = options.work / "state.json"
        programs = {str(name): fingerprint(name) for name in (options.baton, options.llama_bin / "llama-bench",
                                                              options.llama_bin / "llama-batched-bench")}
        if self.path.exists():
            self.data = json.loads(self.path.read_text())
            if sorted(self.data["programs"].values()) != sorted(programs.values()):
                fail(f"{self.path} was measured with other programs than these: move it away to begin anew")
        else:
            self.data = {"programs": programs, "circumstances": self.circumstances(options), "turns": {}}
        if not options.report:
            self.refuse_others(options)

    @staticmethod
    def circumstances(options):
        return {"--chunk": options.chunk, "--prefix": options.prefix, "CPU": cpu_model()}

    def refuse_others(self, options):
        """What a state didn't write down once was: prompts whole, and the rest is not known."""
        began = {"--chunk": 0, **self.data.get("circumstances", {})}
        for name, now in self.circumstances(options).items():
            if began.get(name, now) != now:
                fail(f"{self.path} was measured with {name} {began[name]!r}, this is {now!r}: go on as it began, or move it away to begin anew")

    def turn(self, cell, round_number, side):
        """None where it wasn't measured yet."""
        return self.data["turns"].get(self.key(cell, round_number, side))

    def put(self, cell, round_number, side, figures, others):
        self.data["turns"][self.key(cell, round_number, side)] = {"figures": figures, "others": others}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.data, indent=1))
        os.replace(new, self.path)

    @staticmethod
    def key(cell, round_number, side):
        return "/".join(map(str, (*cell, round_number, side)))

    def rounds(self, cell):
        """(ours, theirs) of each round in which both had their turn."""
        pairs, number = [], 0
        while (ours := self.turn(cell, number, "ours")) and (theirs := self.turn(cell, number, "theirs")):
            pairs.append((ours, theirs))
            number += 1
        return pairs


# --- the report ---


def median(values):
    return statistics.median(values) if values else float("nan")


def speeds(pairs, figure):
    return [tuple(side["figures"][figure]["tokens_per_s"] for side in pair) for pair in pairs]


def verdict(ratios, aims):
    ratio = median(ratios)
    text = f"**{ratio:.2f}**" if ratio >= aims[1] else f"{ratio:.2f}" if ratio >= aims[0] else f"{ratio:.2f} < {aims[0]:g}"
    return f"{text} {min(ratios):.2f}-{max(ratios):.2f}"


def percent(shares):
    return f"{100 * median(shares):.0f}% {100 * min(shares):.0f}-{100 * max(shares):.0f}"


def print_shape(state, shape, threads, types):
    cells = {weights: state.rounds((shape, weights, threads)) for weights in types}
    cells = {weights: pairs for weights, pairs in cells.items() if pairs}
    if not cells:
        return
    counts = "/".join(str(len(pairs)) for pairs in cells.values())
    print(f"\n{shape}, {threads} thread{'s' * (threads > 1)}, tokens/s, medians of {counts} rounds\n")
    print("| | " + " | ".join(f"{weights} | its {THEIRS[weights]} | ratio" for weights in cells) + " |")
    print("|---|" + "---|---|---|" * len(cells))
    for figure, aims in FIGURES.items():
        row = []
        for weights, pairs in cells.items():
            if weights not in aims:
                row.append("| | ")
                continue
            both = speeds(pairs, figure)
            ratios = [ours / theirs for ours, theirs in both]
            row.append(f"{median([b[0] for b in both]):.2f} | {median([b[1] for b in both]):.2f} | {verdict(ratios, aims[weights])}")
        print(f"| {figure} | " + " | ".join(row) + " |")
    for (figure, value), name in BOUNDS.items():
        shares = [[ours["figures"][figure][value] for ours, _ in pairs] for weights, pairs in cells.items() if figure in figures_of(weights)]
        print(f"| {name} | " + " | ".join(f"{percent(share)} | | " for share in shares) + " |")
    deeper = [[1 - o["figures"]["decode at 2048"]["tokens_per_s"] / o["figures"]["decode"]["tokens_per_s"] for o, _ in pairs]
              for weights, pairs in cells.items() if "decode at 2048" in figures_of(weights)]
    print("| decode at 2048, below depth 0 | " + " | ".join(f"{percent(loss)} | | " for loss in deeper) + " |")
    others = [[median([pair[side]["others"] for pair in pairs]) for side in (0, 1)] for pairs in cells.values()]
    print("| others | " + " | ".join(f"{100 * ours:.0f}% | {100 * theirs:.0f}% | " for ours, theirs in others) + " |")


def print_scaling(state, shape, types):
    for weights in types:
        one, two = (state.rounds((shape, weights, threads)) for threads in (1, 2))
        ratios = [b[0]["figures"]["prefill 512"]["tokens_per_s"] / a[0]["figures"]["prefill 512"]["tokens_per_s"]
                  for a, b in zip(one, two)]
        if ratios:
            print(f"\n{shape}, {weights}: 2 threads over 1 in prefill 512: {median(ratios):.2f}")


def report(state, options):
    if chunk := state.data.get("circumstances", {}).get("--chunk"):
        print(f"our prompts in steps of at most {chunk} rows")
    for shape in options.shapes:
        for threads in options.threads:
            print_shape(state, shape, threads, options.weights)
        print_scaling(state, shape, options.weights)


# --- the run ---


def listed(allowed, kind=str):
    def parse(text):
        values = [kind(item) for item in text.split(",")]
        if not set(values) <= set(allowed):
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(map(str, allowed))}")
        return values
    return parse


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-bin", type=pathlib.Path, required=True, metavar="DIR", help="llama.cpp's programs")
    parser.add_argument("--work", type=pathlib.Path, required=True, metavar="DIR", help="models and state; made if need be")
    parser.add_argument("--baton", type=pathlib.Path, default=TOP / "build/release/bin/baton", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shapes", type=listed(SHAPES), default=list(SHAPES), help="of " + ",".join(SHAPES))
    parser.add_argument("--weights", type=listed(THEIRS), default=list(THEIRS), help="of " + ",".join(THEIRS))
    parser.add_argument("--threads", type=listed([1, 2], int), default=[1, 2], help="of 1,2")
    parser.add_argument("--chunk", type=int, default=0, metavar="ROWS",
                        help="our prompts in steps of at most so many rows, as a worker's 512; 0: each in one step")
    parser.add_argument("--first-cpu", type=int, default=0, help="threads are pinned from this CPU on")
    parser.add_argument("--prefix", default="", help='put before every measured command, such as "chrt -f 10"')
    parser.add_argument("--report", action="store_true", help="measure nothing, print what was measured")
    return parser.parse_args()


def main():
    options = parse_options()
    options.work.mkdir(parents=True, exist_ok=True)
    for program in (options.baton, *(options.llama_bin / name for name in ("llama-bench", "llama-batched-bench"))):
        if not program.is_file():
            fail(f"there is no {program}")
    state, machine = State(options), Machine(options)
    if options.report:
        return report(state, options)
    cells = [(shape, weights, threads) for shape in options.shapes for threads in options.threads for weights in options.weights]
    for shape, weights in dict.fromkeys(cell[:2] for cell in cells):
        llama_models.make(options.work, shape, SHAPES[shape], weights, THEIRS[weights], options.baton, options.llama_bin)
    for number in range(options.rounds):
        for cell in cells:
            for side in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
                if state.turn(cell, number, side):
                    continue
                begun = time.monotonic()
                figures, others = SIDES[side](machine, options, *cell)
                if missing := set(figures_of(cell[1])) - set(figures):
                    fail(f"{side} did not say {', '.join(sorted(missing))}; started again, the run goes on from here")
                state.put(cell, number, side, figures, others)
                print(f"round {number + 1} of {options.rounds}, {', '.join(map(str, cell))} threads, {side}: "
                      f"{time.monotonic() - begun:.0f} s, others {100 * others:.0f}%", file=sys.stderr, flush=True)
    return report(state, options)


if __name__ == "__main__":
    main()
