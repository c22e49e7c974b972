"""At the limits of the workers: what doesn't fit waits its turn, and what can't start says so and ends."""
import subprocess

import pytest
from harness import BUILD, GOLDEN


def test_more_requests_than_the_workers_hold_wait_their_turn(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama", settings={"max-sequences": 3})
    client = connect(cluster)
    asked = dict(temperature=1, seed=5, max_tokens=12, ignore_eos=True)
    prompts = [[1, 2, 3, 4 + i] for i in range(32)]
    answers = client.generate_all([(prompt, asked) for prompt in prompts])
    assert all(len(answer.ids) == 12 for answer in answers)
    assert all(answer.timing.prefills == 1 for answer in answers)
    assert cluster.total("router", "baton_router_retries_total") == 0


@pytest.mark.parametrize("program", ["baton-prefill", "baton-decode"])
def test_a_worker_that_cannot_register_ends(program):
    """It is up but for the last step: everything that it has started must go down again."""
    done = subprocess.run([BUILD / "bin" / program, "--name", "w", "--router", "", "--model", GOLDEN / "llama"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "is not host:port" in done.stderr
