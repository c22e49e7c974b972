"""Programs of tests/ that the READMEs tell to start by name do so with any python3: they find .venv by themselves, or say how to make it."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ["tests/fault/run", "tests/fault/soak"]
NEEDED = ["grpc", "grpc_tools"]


def start(root, program, *arguments):
    """With a python that has the standard library alone."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("BATON_", "PYTHONPATH"))}
    return subprocess.run([sys.executable, "-S", "-B", root / program, *arguments], cwd=root, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture
def bare(tmp_path):
    """A checkout without .venv, as far as these programs look."""
    for folder in ("tests/fault", "tests/e2e"):
        shutil.copytree(TOP / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / "tests/needs.py", tmp_path / "tests")
    return tmp_path


def fake_venv(root, text):
    (root / ".venv/bin").mkdir(parents=True)
    python = root / ".venv/bin/python"
    python.write_text(text)
    python.chmod(0o755)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_python_of_venv_is_taken(bare, program):
    fake_venv(bare, '#!/bin/sh\necho "started: $@"\n')
    done = start(bare, program, "--seed", "7")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"started: {bare / program} --seed 7\n"


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_venv_one_sentence_says_what_to_do(bare, program):
    done = start(bare, program, "--seed", "7")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (f"{bare / program} needs Python's {', '.join(NEEDED)}: run this in {bare}: "
                           "python3 -m venv .venv && .venv/bin/pip install -r tests/requirements.txt\n")


def test_a_venv_that_lacks_it_too_is_not_started_again_and_again(bare):
    fake_venv(bare, f'#!/bin/sh\nexec "{sys.executable}" -S -B "$@"\n')
    done = start(bare, PROGRAMS[0], "--list")
    assert done.returncode == 1 and done.stderr.count("needs Python's") == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_with_the_modules_they_start(program):
    done = subprocess.run([sys.executable, "-B", TOP / program, "--help"], cwd=TOP, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("usage: ")
