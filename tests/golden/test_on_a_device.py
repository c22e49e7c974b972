"""With --long, the tests of bytes and of whole clusters once more on each deferred device (kernels/deferred). By default a few of them
run there: in test_golden_models, test_byte_equality, test_equality and tests/kernels/test_deferred.c."""
import os
import pathlib
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
DEVICES = ("deferred", "deferred-late")
PROGRAMS = ["test_golden_models", "test_byte_equality", "test_handoff_bytes", "test_handoff_together", "test_equality", "test_attention",
            "test_rows", "unit_engine test_engine", "unit_engine test_engine_step", "unit_worker test_step_loop",
            "unit_worker test_step_loop_preemption", "unit_worker test_prompt_logprobs"]
CLUSTERS = ["test_byte_equality.py", "test_cancel.py", "test_faults.py", "test_colocated.py", "test_golden.py", "test_sampling_options.py"]

pytestmark = pytest.mark.skipif(not os.environ.get("BATON_LONG"), reason="tests/run --long")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program(program, device):
    name, *files = program.split()
    environment = dict(os.environ, BATON_TEST_DEVICE=device, BATON_EQUALITY_SEED="2")
    ended = subprocess.run([BUILD / "tests" / name, *files], cwd=TOP, env=environment, text=True, capture_output=True, timeout=1800)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]


def test_golden_models_on_the_emulated_gpu():
    driver = BUILD / "tests/libcuda-emulated.so"
    if not driver.exists():
        pytest.skip("the emulated driver isn't built (no C++ compiler)")
    environment = dict(os.environ, BATON_TEST_DEVICE="cuda", BATON_CUDA_DRIVER=str(driver), BATON_CUDA_EMULATED="sms=2,memory=256")
    ended = subprocess.run([BUILD / "tests/test_golden_models"], cwd=TOP, env=environment, text=True, capture_output=True, timeout=1800)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("file", CLUSTERS)
def test_clusters(file, device):
    environment = dict(os.environ, BATON_DEVICE=device)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file]
    ended = subprocess.run(command, cwd=TOP / "tests/e2e", env=environment, text=True, capture_output=True, timeout=1800)
    assert ended.returncode == 0, ended.stdout[-4000:]


@pytest.mark.parametrize("device", DEVICES)
def test_the_faults(device):
    """One seed of each fault."""
    environment = dict(os.environ, BATON_DEVICE=device)
    environment.pop("BATON_LONG")
    ended = subprocess.run([sys.executable, TOP / "tests/fault/run", "--turns", "--jobs", "4"], cwd=TOP, env=environment, text=True,
                           capture_output=True, timeout=3600)
    assert ended.returncode == 0, ended.stdout[-4000:]
