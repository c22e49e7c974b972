"""The unit tests of placement catch every mutant of the real code (placement_mutants.py)."""
import pathlib
import re
import sys

import pytest

import placement_mutants

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mutants  # noqa: E402

PLANNER = "router/planner"
IMPURE = {"clock.c", "descriptors.c", "failpoint.c", "file_read.c", "file_watch.c", "log.c", "peer_places.c", "progress_line.c", "reload.c", "ring.c",
          "standard_output.c", "stop_signals.c", "fair_queue.c"}
PRODUCT = [str(path.relative_to(mutants.TOP)) for folder in (PLANNER, "common/engine/sched", "common/base/domain", "common/base")
           for path in sorted((mutants.TOP / folder).glob("*.c")) if path.name not in IMPURE | {"cache_event_count.c"}] + ["common/kv/handoff/handoff.c"]
OWN_TESTS = {"breaker.c": ["test_breaker.c"], "step_watch.c": ["test_step_watch.c"], "answer_length.c": ["test_answer_length.c"],
             "calibration.c": ["test_calibration.c"], "admission.c": ["test_admission.c", "test_admission_lengths.c"], "decision_log.c": ["test_decision_log.c"],
             "goodput.c": ["test_goodput.c"], "request_life.c": ["test_request_life.c"], "predict.c": ["test_predict.c", "test_deadline_estimate.c"], "deadline_estimate.c": ["test_deadline_estimate.c"], "policy.c": ["test_placement_policy.c", "test_policy_draws.c"],
             **dict.fromkeys(["prefix_index.c", "prefix_pairs.c", "prompt_names.c"], ["test_prefix_index.c", "test_prompt_names.c"])}  # by mutated file; for all others:
OTHER_TESTS = ["test_placement.c", "test_worker_books.c", "test_candidates.c", "test_route_policy.c", "test_route_blocked.c", "test_calibration.c",
               "test_admission.c", "test_admission_lengths.c", "test_decision_log.c", "test_prompt_names.c", "test_placement_policy.c", "test_policy_draws.c", "test_deadline_estimate.c"]
TESTS = sorted(f"tests/unit/{name}" for name in {*OTHER_TESTS, *sum(OWN_TESTS.values(), [])})
FEW = {"SEEDS": 400, "EVENTS": 4000, "POLICY_SEEDS": 300}


@pytest.fixture(scope="module")
def code():
    return mutants.Code("placement", [*PRODUCT, *TESTS], libraries=["-lcmocka", "-lxxhash", "-lm"])


def first_failure(code, name, objects, file=None):
    tests = [f"tests/unit/{test}" for test in OWN_TESTS.get(file, OTHER_TESTS)] if file else TESTS
    for test in sorted(tests, key=lambda test: not test.endswith(f"/test_{file}")):  # its own test first
        found = mutants.first_failure(mutants.run(code.link(f"{name}/{pathlib.Path(test).stem}", objects, [test, *PRODUCT]), timeout=120, **FEW))
        if found:
            return found


def test_every_mutant_is_caught(code, capsys):
    def verdict(mutant):
        return mutant, first_failure(code, mutant.name, code.mutate(mutant.name, [(f"{PLANNER}/{mutant.file}", mutant.old, mutant.new)]), mutant.file)
    wanted = mutants.chosen([mutant for mutant in placement_mutants.ALL if mutants.LONG or not mutant.long])
    assert not mutants.survivors(mutants.in_parallel(verdict, wanted), capsys)


def test_the_mutants_of_the_rules_exist():
    """Those that README.md names, in whichever file they are."""
    rows = [line.split("|")[2] for line in (mutants.TOP / "tests/placement/README.md").read_text().splitlines() if line.startswith("| ")]
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    there = "".join(path.read_text() for folder in ("placement", "schedule", "sim", "unit") for path in (mutants.TOP / "tests" / folder).glob("*mutants.py"))
    assert len(named) > 100 and not {name for name in named if f'"{name}"' not in there}


def test_the_code_as_it_is_survives(code):
    assert not first_failure(code, "none", code.objects)
