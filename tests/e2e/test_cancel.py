"""A client that leaves: in the prefill, in the transfer, in the decode. Every block is back within a second."""
import random
import time

import grpc
import pytest
from harness import GOLDEN, failpoint, wait_until

PROMPT = [random.Random(3).randrange(10, 380) for _ in range(3000)]


def cancel_and_watch(cluster, call, baseline):
    call.cancel()
    begin = time.monotonic()
    wait_until("all blocks are as before", lambda: cluster.all_blocks() == baseline, 1)
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    return time.monotonic() - begin


def idle_blocks(cluster):
    """All workers' blocks, once nothing holds one."""
    return wait_until("all blocks are free", lambda: all(
        b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values()), 10) and cluster.all_blocks()


@pytest.mark.parametrize("moment", ["prefill", "transfer", "decode"])
def test_blocks_are_back_within_a_second(start_cluster, connect, moment):
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"chunk-tokens": 64},
                            process_environment={"decode-0": failpoint("decode.reading", "log@*")})
    client = connect(cluster)
    client.generate(PROMPT[:40], max_tokens=2, ignore_eos=True)  # pairs the workers
    baseline = idle_blocks(cluster)
    reads = len(cluster.failpoint_hits())

    call = client.start(PROMPT, max_tokens=500, ignore_eos=True, temperature=0)
    if moment == "prefill":
        wait_until("prefill holds blocks", lambda: cluster.blocks("prefill-0")["pinned"] > 0, 20)
    elif moment == "transfer":
        wait_until("a read was started", lambda: len(cluster.failpoint_hits()) > reads, 20)
    else:
        for _ in range(3):
            next(call)
    assert cluster.all_blocks() != baseline
    cancel_and_watch(cluster, call, baseline)
    assert len(client.generate(PROMPT[:40], max_tokens=2, ignore_eos=True).ids) == 2
