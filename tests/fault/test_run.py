"""The harness itself: a fault that did not happen, a wrong answer, a wrong status and a block that stays held are failures, and are told."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cases.shapes import PAIR  # noqa: E402
from runner import Case, Runner  # noqa: E402


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    made = Runner(tmp_path_factory.mktemp("fleets"), tmp_path_factory.mktemp("kept"))
    yield made
    assert made.close() == []


def outcome(runner, function):
    return runner.run_one(Case("a.case", "", PAIR, function, {}, ("shm",)), "shm", 1)


def test_nothing_wrong(runner):
    def good(run):
        run.arm("decode.reading=log")
        run.same(run.start(run.ask()), [1])
        run.prove_hits("decode.reading", 1, 1)
        return "equal"
    result = outcome(runner, good)
    assert result.ok and result.hit == 1 and result.outcome == "equal" and result.wrong == result.leaked == 0


def test_a_fault_that_did_not_happen(runner):
    def unproven(run):
        run.same(run.start(run.ask()), [1])
        return "equal"
    result = outcome(runner, unproven)
    assert not result.ok and "nothing was proven" in result.outcome

    def not_hit(run):
        run.arm("decode.flip=fail@99")
        run.strike(lambda: [run.start(run.ask())], "decode.flip")
    result = outcome(runner, not_hit)
    assert not result.ok and "did not happen: decode.flip" in result.outcome and (pathlib.Path(result.logs) / "decode-0.log").exists()


def test_a_wrong_answer(runner):
    def other(run):
        run.prove(True, "")
        ask = run.ask()
        ids, hashes = run.quiet.of(run.client, ask)
        call = run.start(ask).wait()
        call.answer.ids = [ids[0] ^ 1, *ids[1:]]
        try:
            run.same(call)
        finally:
            run.quiet.known[ask] = (ids, hashes)
    result = outcome(runner, other)
    assert not result.ok and result.wrong == 1 and "tokens are wrong" in result.outcome


def test_a_status_that_was_not_promised(runner):
    def cancelled(run):
        run.prove(True, "")
        call = run.start(run.ask())
        call.cancel()
        run.ends(call, "UNAVAILABLE workers_lost")
    result = outcome(runner, cancelled)
    assert not result.ok and "CANCELLED" in result.outcome


def test_blocks_that_stay_held(runner):
    def holds(run):
        run.pause_at("prefill.after_chunk")
        call = run.start(run.ask())
        run.fleet.wait_hit("prefill.after_chunk")
        run.prove(True, "")
        call.cancel()  # the test doesn't let the worker go on
        return ""
    result = outcome(runner, holds)
    assert not result.ok and result.leaked > 0 and "pinned" in result.outcome


@pytest.mark.skipif(not os.environ.get("BATON_LONG"), reason="tests/run --long")
def test_the_lane_cuda(tmp_path):
    from fleet import CUDA
    if not pathlib.Path(CUDA["BATON_CUDA_DRIVER"]).exists():
        pytest.skip("the emulated driver isn't built (no C++ compiler)")
    command = [sys.executable, pathlib.Path(__file__).with_name("run"), "--lane", "cuda", "--seeds", "1", "--jobs", "2", "--keep", tmp_path]
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
