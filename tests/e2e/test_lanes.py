"""The lane that KV bytes take, by the transport's own word, and that the pull overlaps the prefill."""
import random

import pytest
from harness import GOLDEN, SHM

LONG_PROMPT = [random.Random(1).randrange(10, 380) for _ in range(3000)]


@pytest.mark.parametrize("lane", sorted({SHM, "tcp"}))
def test_the_lane_asked_for_is_the_lane_taken(start_cluster, lane):
    cluster = start_cluster(model=GOLDEN / "llama-wide", transport=lane)
    answer = cluster.generate(list(range(10, 110)), max_tokens=4, temperature=0, ignore_eos=True)
    assert answer["lane"] == lane
    assert answer["kv_bytes"] > 0
    shown = {key: value for key, value in cluster.metrics("router").items() if key.startswith("baton_router_kv_bytes_total")}
    assert shown == {f'baton_router_kv_bytes_total{{lane="{known}"}}': answer["kv_bytes"] * (known == lane) for known in ("shm", "tcp", "cuda", "rdma")}
    moved = {key: value for key, value in cluster.metrics("decode-0").items() if key.startswith("baton_kv_bytes_moved_total")}
    assert moved == {f'baton_kv_bytes_moved_total{{lane="{known}"}}': answer["kv_bytes"] * (known == lane) for known in ("shm", "tcp", "cuda", "rdma", "local")}
    [decode] = [w for w in cluster.status()["workers"] if w["name"] == "decode-0"]
    assert decode["lane"] == lane


@pytest.mark.parametrize("lane", sorted({SHM, "tcp"}))
def test_the_pull_overlaps_the_prefill(start_cluster, lane):
    cluster = start_cluster(model=GOLDEN / "llama-wide", transport=lane, settings={"chunk-tokens": 512})
    answer = cluster.generate(LONG_PROMPT, max_tokens=4, temperature=0, ignore_eos=True)
    assert 0 < answer["kv_bytes_before_complete"] < answer["kv_bytes"]
    assert len(answer["token_ids"]) == 4
    assert cluster.total("decode-0", "baton_prompt_tokens_computed_total") == 0
