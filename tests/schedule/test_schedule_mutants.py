"""The random schedules and the lives in virtual time catch every mutant of the real code (schedule_mutants.py), by an invariant that the
mutant is meant to break."""
import pathlib
import re
import sys

import pytest

import schedule_mutants

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mutants  # noqa: E402

SCHED = "common/engine/sched"
STEPS = 400000  # at most
SOURCES = [
    *sorted((mutants.TOP / SCHED).glob("*.c")),
    *sorted((mutants.TOP / "tests/schedule").glob("*.c")),
    *(f"common/base/domain/{name}.c" for name in ("cost_model", "model_shape", "prefix_hash", "sampling")),
    *(f"common/base/{name}.c" for name in ("assert", "rng", "status", "str", "utf8")),
]
BROKEN = re.compile(r"BROKEN (\w+), seed (\d+): (.*)")
IN_VIRTUAL_TIME = {"turn", "deadline"}  # invariants that the random schedules don't look at


@pytest.fixture(scope="module")
def code():
    return mutants.Code("schedule", SOURCES, optimize="-O1", libraries=["-lcmocka", "-lxxhash", "-lm"])


def test_every_mutant_is_caught(code, capsys):
    def verdict(mutant):
        program = code.link(mutant.name, code.mutate(mutant.name, [(f"{SCHED}/{file}", old, new) for file, old, new in mutant.edits]))
        only = {} if mutant.breaks & IN_VIRTUAL_TIME else {"BATON_SCHEDULE_ONLY": "test_random_schedules"}
        found = BROKEN.search(mutants.run(program, BATON_SCHEDULE_STEPS=STEPS, BATON_SCHEDULE_QUIET=1, **only).stdout)
        program.unlink()
        return mutant, found
    lines, wrong = [], []
    for mutant, found in mutants.in_parallel(verdict, mutants.chosen(schedule_mutants.ALL)):
        invariant, seed, sentence = found.groups() if found else ("-", "-", "survives")
        lines.append(f"{mutant.name:20} {invariant:8} seed {seed:>5}  {sentence}")
        if invariant not in mutant.breaks:
            wrong.append(f"{mutant.name} ({mutant.why}): {invariant} ({sentence}), not {' or '.join(sorted(mutant.breaks))}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert not wrong, "\n".join(wrong)
