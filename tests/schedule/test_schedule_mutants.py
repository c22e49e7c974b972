"""The random schedules catch every mutant of the real code (schedule_mutants.py), by an invariant that the mutant is meant to break.

Compiles the few pure files and the schedules without sanitizers, each mutant in a folder of its own."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import schedule_mutants

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "schedule_mutants"
SCHED = TOP / "common/engine/sched"
STEPS = 400000  # at most
FLAGS = ["-std=gnu17", "-O1", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-w"]
SOURCES = [
    *sorted(SCHED.glob("*.c")),
    *sorted((TOP / "tests/schedule").glob("*.c")),
    *(TOP / "common/base/domain" / name for name in ("cost_model.c", "model_shape.c", "prefix_hash.c", "sampling.c")),
    *(TOP / "common/base" / name for name in ("assert.c", "rng.c", "status.c", "str.c", "utf8.c")),
]
BROKEN = re.compile(r"BROKEN (\w+), seed (\d+): (.*)")


def compile_one(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["cc", *FLAGS, f"-I{TOP}", "-c", str(source), "-o", str(target)], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, f"{source} does not compile:\n{done.stderr}"
    return target


@pytest.fixture(scope="module")
def objects():
    """A run of the unchanged code."""
    shutil.rmtree(BUILD, ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda source: (source, compile_one(source, BUILD / "none" / f"{source.stem}.o")), SOURCES)
        return dict(made)


def build(mutant, objects):
    folder = BUILD / mutant.name
    folder.mkdir(parents=True, exist_ok=True)
    texts = {}
    for name, old, new in mutant.edits:
        text = texts.get(name) or (SCHED / name).read_text()
        assert text.count(old) == 1, f"{mutant.name}: {name} has this {text.count(old)} times, not once:\n{old}"
        texts[name] = text.replace(old, new)
    mine = dict(objects)
    for name, text in texts.items():
        (folder / name).write_text(text)
        mine[SCHED / name] = compile_one(folder / name, folder / f"{name}.o")
    program = folder / "schedule"
    subprocess.run(["cc", *map(str, mine.values()), "-lcmocka", "-lxxhash", "-lm", "-o", str(program)], check=True)
    return program


def verdict(mutant, objects):
    try:
        program = build(mutant, objects)
    except AssertionError as error:
        return mutant, str(error)
    environment = {"PATH": os.environ["PATH"], "BATON_SCHEDULE_STEPS": str(STEPS), "BATON_SCHEDULE_QUIET": "1"}
    result = subprocess.run([program], capture_output=True, text=True, errors="replace", env=environment, timeout=300)
    program.unlink()
    return mutant, BROKEN.search(result.stdout)


def test_every_mutant_is_caught(objects, capsys):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda mutant: verdict(mutant, objects), schedule_mutants.ALL))
    lines, wrong = [], []
    for mutant, found in verdicts:
        invariant, seed, sentence = found.groups() if isinstance(found, re.Match) else ("-", "-", found or "survives")
        lines.append(f"{mutant.name:20} {invariant:8} seed {seed:>5}  {sentence}")
        if invariant not in mutant.breaks:
            wrong.append(f"{mutant.name} ({mutant.why}): {invariant} ({sentence}), not {' or '.join(sorted(mutant.breaks))}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert not wrong, "\n".join(wrong)
