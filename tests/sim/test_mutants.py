"""The simulation catches every mutant of the real code (sim_mutants.py), by the invariant that the mutant is meant to break; and shows a short life for it."""
import pathlib
import re
import sys

import pytest

import sim_mutants

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mutants  # noqa: E402

SEEDS = 150000  # at most; most need fewer than 300, the rarest 40000
SOURCES = [
    *sorted((mutants.TOP / "common/kv/handoff").glob("*.c")),
    *sorted((mutants.TOP / "tests/sim").glob("*.c")),
    *(f"router/planner/{name}.c" for name in ("breaker", "request_life", "retry_budget", "step_watch")),
    *(f"common/base/{name}.c" for name in ("assert", "map", "rng", "status", "str", "utf8", "domain/logprobs", "domain/sampling")),
]
BROKEN = re.compile(r"BROKEN (\w+), seed (\d+), after (\d+) events: (.*)")


@pytest.fixture(scope="module")
def code():
    return mutants.Code("sim", SOURCES, optimize="-O1", libraries=["-lcmocka"])


def build(mutant, code):
    return code.link(mutant.name, code.mutate(mutant.name, mutant.edits))


def run(program, mutant, **settings):
    settings = {"BATON_SIM_SEEDS": SEEDS, "BATON_SIM_FIRST": mutant.first if mutant else 1, "BATON_SIM_IGNORE": mutant.ignore if mutant else "", **settings}
    return mutants.run(program, **settings).stdout


def test_every_mutant_is_caught(code, capsys):
    def verdict(mutant):
        program = build(mutant, code)
        found = BROKEN.search(run(program, mutant, BATON_SIM_SHRINK=0))
        program.unlink()
        return mutant, found
    lines, wrong = [], []
    for mutant, found in mutants.in_parallel(verdict, mutants.chosen(sim_mutants.ALL)):
        invariant, seed, _, sentence = found.groups() if found else ("-", "-", "-", "survives")
        lines.append(f"{mutant.name:32} {invariant:10} seed {seed:>6}  {sentence}")
        if invariant not in mutant.breaks:
            wrong.append(f"{mutant.name} ({mutant.why}): {invariant} ({sentence}), not {' or '.join(sorted(mutant.breaks))}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name, faults, requests", [("W_NO_READER", 2, 2), ("W_REREAD", 3, 3), ("M_LANDING_FREED", 1, 1)])
def test_a_caught_mutant_is_shown_in_a_short_life(code, name, faults, requests):
    mutant = next(mutant for mutant in sim_mutants.ALL if mutant.name == name)
    out = run(build(mutant, code), mutant)
    as_found, shortest = out.split("The shortest life that was found where it breaks:\n")
    invariant = BROKEN.search(as_found).group(1)
    assert f"BROKEN {invariant}: " in shortest.splitlines()[-1] or f"BROKEN {invariant}: " in shortest
    assert len(re.findall(r"^  fault ", shortest, re.M)) <= faults, shortest
    assert len(re.findall(r"^  request ", shortest, re.M)) <= requests, shortest
    events = re.findall(r"^ *\d+ us  ", shortest, re.M)
    assert 5 < len(events) < 150, shortest


def test_the_code_as_it_is_survives(code):
    assert not BROKEN.search(run(code.link("none"), None, BATON_SIM_SEEDS=3000))
