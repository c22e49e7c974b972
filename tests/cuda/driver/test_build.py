"""The choice of nvcc (cmake/BatonCuda.cmake), and with --long a build without it."""
import os
import pathlib
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]


def choose(tmp_path, choice, release):
    """Runs the choice alone, with an nvcc of that release before all others. Returns (exit status, what it says)."""
    program = tmp_path / "bin/nvcc"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.88'\n")
    program.chmod(0o755)
    done = subprocess.run(["cmake", f"-DBATON_CUDA={choice}", "-P", TOP / "cmake/BatonCuda.cmake"], text=True, capture_output=True,
                          env=dict(os.environ, CUDA_HOME=str(tmp_path)), timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("choice,release,status,said", [
    ("OFF", "13.0", 0, "CUDA: left out (BATON_CUDA=OFF)"),
    ("AUTO", "13.0", 0, "CUDA: kernels are built by nvcc 13.0"),
    ("ON", "13.1", 0, "CUDA: kernels are built by nvcc 13.1"),
    ("AUTO", "12.8", 0, "CUDA: left out, without nvcc of CUDA 13 or newer"),
    ("ON", "12.8", 1, "BATON_CUDA is ON, and there is no nvcc of CUDA 13 or newer"),
])
def test_the_choice_is_said(tmp_path, choice, release, status, said):
    code, text = choose(tmp_path, choice, release)
    assert code == status and said in " ".join(text.split()), text


@pytest.mark.skipif(not os.environ.get("BATON_LONG"), reason="tests/run --long")
def test_all_else_is_built_without_nvcc(tmp_path):
    """A worker of such a build says that it holds no kernels, and the tests of the driver pass."""
    done = subprocess.run(["cmake", "-S", TOP, "-B", tmp_path, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DBATON_CUDA=OFF"], text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0 and "CUDA: left out (BATON_CUDA=OFF)" in done.stdout, done.stdout + done.stderr
    done = subprocess.run(["cmake", "--build", tmp_path, "--target", "baton-decode", "test_driver"], text=True, capture_output=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-4000:]
    assert subprocess.run([tmp_path / "tests/test_driver"], cwd=TOP, timeout=300).returncode == 0
    worker = subprocess.run([tmp_path / "bin/baton-decode", "--name", "w", "--model", TOP / "tests/golden/models/llama", "--router", "[::1]:1", "--device", "cuda:0"],
                            text=True, capture_output=True, timeout=60)
    assert worker.returncode == 1 and "(cuda_not_built)" in worker.stderr, worker.stderr
