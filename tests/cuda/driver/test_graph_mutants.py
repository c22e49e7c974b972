"""Bugs that show only where a kernel starts before the one ahead of it is done: a wait that comes too late, a kernel that lets the next one
start before its own wait. test_graphs must fail for each. A mutant is a library that replaces kernels of the emulated driver."""
import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
LONG = bool(os.environ.get("BATON_LONG"))
COMPILER = [*(["ccache"] if shutil.which("ccache") else []), "g++", "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-ffp-contract=off", "-w",
            "-DCUDA_EMULATED", f"-I{TOP}", "-include", str(TOP / "tests/cuda/emulate/device.h"), "-x", "c++", "-c"]
EARLY = "test_early_kernels_change_nothing"

NORM = """    float *slots = shared_pointer<float>(shared_base(), CUDA_ROW_THREADS / 32);
    uint32_t row = p.rows ? p.rows[blockIdx.x] : blockIdx.x;
    const float *x = p.x + uint64_t(row) * p.hidden;
    float factor = factor_of(x, p.hidden, p.eps, slots);
    for (uint32_t i = threadIdx.x; i < p.hidden; i += CUDA_ROW_THREADS)
        p.out"""
FACTOR = "    float factor = factor_of(x, p.hidden, p.eps, slots);\n"
PACK = """    const cuda_weights &w = p.weights;
    uint32_t row_bytes"""
WAIT, LETS = "    wait_previous_kernel();\n", "    let_next_kernel_start();\n"
# name: file, old text, new text, the test. SHORT ones run by default.
SHORT = {"norm_waits_late"}
MUTANTS = {
    "norm_waits_late": ("rows", WAIT + NORM, NORM.replace(FACTOR, FACTOR + WAIT), EARLY),
    "pack_lets_the_next_start": ("rows", WAIT + PACK, LETS + WAIT + PACK, EARLY),
}


def test_every_mutant_has_a_place():
    for name, (file, old, *_) in MUTANTS.items():
        assert (TOP / f"kernels/cuda/device/{file}.cu").read_text().count(old) == 1, name


@pytest.mark.parametrize("name", [name for name in MUTANTS if LONG or name in SHORT])
def test_mutant_is_caught(name, tmp_path):
    file, old, new, tests = MUTANTS[name]
    source = tmp_path / f"{file}.cu"
    source.write_text((TOP / f"kernels/cuda/device/{file}.cu").read_text().replace(old, new))
    subprocess.run([*COMPILER, source, "-o", tmp_path / "mutant.o"], check=True)
    # It finds the emulator's functions in the driver.
    subprocess.run(["g++", "-shared", tmp_path / "mutant.o", BUILD / "tests/libcuda-emulated.so", "-o", tmp_path / "mutant.so"], check=True)
    env = {**os.environ, "BATON_CUDA_MUTANT": str(tmp_path / "mutant.so"), "ASAN_OPTIONS": "detect_leaks=0"}
    mutant = subprocess.run([BUILD / "tests/test_graphs", tests], env=env, capture_output=True, text=True, cwd=TOP)
    assert mutant.returncode != 0 and ", expected " in mutant.stderr, mutant.stdout + mutant.stderr
