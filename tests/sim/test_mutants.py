"""The simulation catches every mutant of the real code (mutants.py), by the invariant that the mutant is meant to break; and shows a short life for it.

Compiles the few pure files and the simulation without sanitizers, each mutant in a folder of its own."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import mutants

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "mutants"
SEEDS = 150000  # at most; most need fewer than 300, the rarest 40000
FLAGS = ["-std=gnu17", "-O1", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-w"]
SOURCES = [
    *sorted((TOP / "common/kv/handoff").glob("*.c")),
    *sorted((TOP / "tests/sim").glob("*.c")),
    *(TOP / "router/planner" / name for name in ("breaker.c", "request_life.c", "retry_budget.c", "step_watch.c")),
    TOP / "common/base/domain/logprobs.c",
    TOP / "common/base/domain/sampling.c",
    *(TOP / "common/base" / name for name in ("assert.c", "map.c", "rng.c", "status.c", "str.c", "utf8.c")),
]
BROKEN = re.compile(r"BROKEN (\w+), seed (\d+), after (\d+) events: (.*)")


def compile_one(source, target, *, include=()):
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", *FLAGS, *(f"-I{folder}" for folder in (*include, TOP)), "-c", str(source), "-o", str(target)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, f"{source} does not compile:\n{done.stderr}"
    return target


def object_of(folder, source):
    return folder / "objects" / (str(source.relative_to(TOP)).replace("/", "_") + ".o")


@pytest.fixture(scope="module")
def objects():
    """A run of the unchanged code."""
    shutil.rmtree(BUILD, ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda source: (source, compile_one(source, object_of(BUILD / "none", source))), SOURCES)
        return dict(made)


def link(objects, program):
    subprocess.run(["cc", *map(str, objects.values()), "-lcmocka", "-o", str(program)], check=True)
    return program


def build(mutant, objects):
    folder = BUILD / mutant.name
    texts = {}
    for name, old, new in mutant.edits:
        text = texts.get(name) or (TOP / name).read_text()
        assert text.count(old) == 1, f"{mutant.name}: {name} has this {text.count(old)} times, not once:\n{old}"
        texts[name] = text.replace(old, new)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    changed = {name for name in texts if name.endswith(".c")}
    if len(changed) < len(texts):  # a header too: any file may include it
        changed |= {str(source.relative_to(TOP)) for source in SOURCES if source.parent.name == "handoff"}
    mine = dict(objects)
    for name in changed:
        source = folder / name if (folder / name).exists() else TOP / name
        mine[TOP / name] = compile_one(source, object_of(folder, TOP / name), include=[folder])
    return link(mine, folder / "sim")


def run(program, mutant, **settings):
    environment = {"PATH": os.environ["PATH"], "BATON_SIM_SEEDS": str(SEEDS), "BATON_SIM_FIRST": str(mutant.first if mutant else 1), "BATON_SIM_IGNORE": mutant.ignore if mutant else "", **settings}
    result = subprocess.run([program], capture_output=True, text=True, errors="replace", env=environment, timeout=300)
    return result.stdout


def verdict(mutant, objects):
    try:
        program = build(mutant, objects)
    except AssertionError as error:
        return mutant, str(error)
    found = BROKEN.search(run(program, mutant, BATON_SIM_SHRINK="0"))
    program.unlink()
    return mutant, found


def test_every_mutant_is_caught(objects, capsys):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda mutant: verdict(mutant, objects), mutants.ALL))
    lines, wrong = [], []
    for mutant, found in verdicts:
        invariant, seed, _, sentence = found.groups() if isinstance(found, re.Match) else ("-", "-", "-", found or "survives")
        lines.append(f"{mutant.name:32} {invariant:10} seed {seed:>6}  {sentence}")
        if invariant not in mutant.breaks:
            wrong.append(f"{mutant.name} ({mutant.why}): {invariant} ({sentence}), not {' or '.join(sorted(mutant.breaks))}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name, faults, requests", [("W_NO_READER", 2, 2), ("W_REREAD", 3, 3), ("M_LANDING_FREED", 1, 1)])
def test_a_caught_mutant_is_shown_in_a_short_life(objects, name, faults, requests):
    mutant = next(mutant for mutant in mutants.ALL if mutant.name == name)
    out = run(build(mutant, objects), mutant)
    as_found, shortest = out.split("The shortest life that was found where it breaks:\n")
    invariant = BROKEN.search(as_found).group(1)
    assert f"BROKEN {invariant}: " in shortest.splitlines()[-1] or f"BROKEN {invariant}: " in shortest
    assert len(re.findall(r"^  fault ", shortest, re.M)) <= faults, shortest
    assert len(re.findall(r"^  request ", shortest, re.M)) <= requests, shortest
    events = re.findall(r"^ *\d+ us  ", shortest, re.M)
    assert 5 < len(events) < 150, shortest


def test_the_code_as_it_is_survives(objects):
    program = link(objects, BUILD / "none" / "sim")
    assert not BROKEN.search(run(program, None, BATON_SIM_SEEDS="3000"))
