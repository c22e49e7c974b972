"""Processes that die and are started again: they find their places, and nothing else is started again for that."""
import os
import signal

import pytest
from harness import GOLDEN, wait_until

PROMPT = [20 + i for i in range(200)]
ASKED = dict(temperature=1, seed=9, max_tokens=24, ignore_eos=True, logits_hash=True)


def nothing_held(cluster):
    return all(b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values())


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_a_worker_finds_its_place_again(start_cluster, connect, name):
    cluster = start_cluster(model=GOLDEN / "llama-wide", restart=True)
    client = connect(cluster)
    before = client.generate(PROMPT, **ASKED)
    others = {other: pid for other, pid in cluster.pids.items() if other != name}
    for _ in range(2):
        incarnation = {w["name"]: w["incarnation"] for w in cluster.status()["workers"]}
        cluster.kill(name)
        former = cluster.wait_back(name)
        assert cluster.processes[name]["address"] == former["address"]
        assert {w["name"]: w["incarnation"] for w in cluster.status()["workers"]}[name] != incarnation[name]
        after = client.generate(PROMPT, **ASKED)
        assert (after.ids, after.hashes) == (before.ids, before.hashes)
        assert after.timing.prefills == 1 and after.timing.prefill_worker == "prefill-0", "handed over, not computed on decode"
    assert {other: cluster.pids[other] for other in others} == others, "nothing else was started again"
    assert cluster.processes[name]["restarts"] == 2
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)
