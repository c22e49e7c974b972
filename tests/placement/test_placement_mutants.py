"""The unit tests of placement catch every mutant of the real code (placement_mutants.py).

Compiles the few pure files and the tests without sanitizers, each mutant in a folder of its own."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess

import pytest

import placement_mutants

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "placement_mutants"
PLANNER = TOP / "router/planner"
FLAGS = ["-std=gnu17", "-O0", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-w"]
PRODUCT = [
    *(PLANNER / name for name in ("admission.c", "answer_length.c", "breaker.c", "calibration.c", "candidates.c", "decision_log.c", "goodput.c",
                                  "placement.c", "placement_books.c", "policy.c", "predict.c", "prefix_index.c", "prefix_pairs.c", "prompt_names.c", "request_life.c", "route_policy.c",
                                  "step_watch.c", "worker_books.c")),
    *(TOP / "common/base/domain" / name for name in ("cost_fit.c", "placement_policy.c", "prefix_hash.c")),
    *(TOP / "common/engine/sched" / name for name in ("eviction.c", "kv_blocks.c", "prefix_cache.c")),
    *(TOP / "common/base" / name for name in ("assert.c", "map.c", "rng.c", "status.c", "str.c", "utf8.c")),
]
OWN_TESTS = {"breaker.c": ["test_breaker.c"], "step_watch.c": ["test_step_watch.c"], "answer_length.c": ["test_answer_length.c"],
             "calibration.c": ["test_calibration.c"], "admission.c": ["test_admission.c"], "decision_log.c": ["test_decision_log.c"],
             "goodput.c": ["test_goodput.c"], "predict.c": ["test_predict.c"], "policy.c": ["test_placement_policy.c"],
             **dict.fromkeys(["prefix_index.c", "prefix_pairs.c", "prompt_names.c"], ["test_prefix_index.c"])}  # by mutated file; for all others:
OTHER_TESTS = ["test_placement.c", "test_worker_books.c", "test_candidates.c", "test_route_policy.c", "test_calibration.c", "test_admission.c",
               "test_decision_log.c", "test_prefix_index.c", "test_placement_policy.c"]
TESTS = [TOP / "tests/unit" / name for name in sorted({*OTHER_TESTS, *sum(OWN_TESTS.values(), [])})]
LONG = bool(os.environ.get("BATON_LONG"))
FEW = {"SEEDS": "400", "EVENTS": "4000", "POLICY_SEEDS": "100"}


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
        made = pool.map(lambda source: (source, compile_one(source, BUILD / "none" / f"{source.stem}.o")), [*PRODUCT, *TESTS])
        return dict(made)


def failures(folder, objects, tests=TESTS):
    """The tests that fail, or how the program dies."""
    found = []
    for test in tests:
        program = folder / test.stem
        subprocess.run(["cc", str(objects[test]), *(str(objects[source]) for source in PRODUCT), "-lcmocka", "-lxxhash", "-lm", "-o", str(program)], check=True)
        done = subprocess.run([program], capture_output=True, text=True, errors="replace", timeout=120, env={"PATH": os.environ["PATH"], **FEW})
        program.unlink()
        names = [line.split()[-1] for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("[  FAILED  ] test_")]
        found += names or ([f"{test.stem} ends with {done.returncode}"] if done.returncode else [])
        if found:
            break
    return found


def verdict(mutant, objects):
    folder = BUILD / mutant.name
    folder.mkdir(parents=True, exist_ok=True)
    text = (PLANNER / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        return mutant, None, f"{mutant.file} has this {text.count(mutant.old)} times, not once: {mutant.old}"
    (folder / mutant.file).write_text(text.replace(mutant.old, mutant.new))
    try:
        mine = {**objects, PLANNER / mutant.file: compile_one(folder / mutant.file, folder / f"{mutant.file}.o")}
        found = failures(folder, mine, [TOP / "tests/unit" / name for name in OWN_TESTS.get(mutant.file, OTHER_TESTS)])
    except (AssertionError, subprocess.SubprocessError) as error:
        return mutant, None, str(error)
    return mutant, found, found[0] if found else "survives"


def test_every_mutant_is_caught(objects, capsys):
    mutants = [mutant for mutant in placement_mutants.ALL if LONG or not mutant.long]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda mutant: verdict(mutant, objects), mutants))
    with capsys.disabled():
        print("\n" + "\n".join(f"{mutant.name:20} {sentence}" for mutant, _, sentence in verdicts))
    assert not [f"{mutant.name} ({mutant.why}): {sentence}" for mutant, found, sentence in verdicts if not found]


def test_the_code_as_it_is_survives(objects):
    assert not failures(BUILD / "none", objects)
