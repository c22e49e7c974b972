"""For the programs of tests/ that are started by their name: whichever python3 was found, they run in the one that has their modules."""
import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAKE = "python3 -m venv .venv && .venv/bin/pip install -r tests/requirements.txt"


def modules(*names):
    """Returns if they are there. Otherwise starts this program anew with ROOT/.venv's python; exits with a sentence if that won't do."""
    missing = [name for name in names if not importlib.util.find_spec(name)]
    if not missing:
        return
    python = ROOT / ".venv/bin/python"
    if python.exists() and os.environ.get("BATON_TESTS_PYTHON") != str(python):
        os.environ["BATON_TESTS_PYTHON"] = str(python)  # once
        os.execv(python, [str(python), *sys.argv])
    sys.exit(f"{sys.argv[0]} needs Python's {', '.join(missing)}: run this in {ROOT}: {MAKE}")
