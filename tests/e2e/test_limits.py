"""At the limits of the workers: what can't start says so and ends."""
import subprocess

import pytest
from harness import BUILD, GOLDEN


@pytest.mark.parametrize("program", ["baton-prefill", "baton-decode"])
def test_a_worker_that_cannot_register_ends(program):
    """It is up but for the last step: everything that it has started must go down again."""
    done = subprocess.run([BUILD / "bin" / program, "--name", "w", "--router", "", "--model", GOLDEN / "llama"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "is not host:port" in done.stderr
