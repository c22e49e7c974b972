"""A client that leaves: in the prefill, in the transfer, in the decode. Every block is back, and what is left of the answer is not computed."""
import random

import grpc
import pytest
from harness import GOLDEN, arm, wait_until

PROMPT = [random.Random(3).randrange(10, 380) for _ in range(3000)]


def idle_blocks(cluster):
    """All workers' blocks, once nothing holds one."""
    return wait_until("all blocks are free", lambda: all(
        b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values()), 10) and cluster.all_blocks()


@pytest.mark.parametrize("point", ["prefill.after_chunk", "decode.reading", "decode.after_tokens"], ids=["prefill", "transfer", "decode"])
def test_blocks_are_back(start_cluster, connect, tmp_path, point):
    armed = tmp_path / "failpoints"
    armed.write_text("")
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"chunk-tokens": 64},
                            process_environment={f"{point.split('.')[0]}-0": {"BATON_FAILPOINTS": f"@{armed}"}})
    client = connect(cluster)
    client.generate(PROMPT[:40], max_tokens=2, ignore_eos=True)  # pairs the workers
    baseline = idle_blocks(cluster)
    arm(armed, f"{point}=pause")  # held there until its client has left
    call = client.start(PROMPT, max_tokens=500, ignore_eos=True, temperature=0)
    wait_until("it is held", cluster.failpoint_hits, 20)
    assert cluster.all_blocks() != baseline
    call.cancel()
    cluster.failpoint_go(point)
    wait_until("all blocks are as before", lambda: cluster.all_blocks() == baseline, 20)
    assert cluster.total("decode-0", "baton_decode_tokens_computed_total") < 400, "it was cancelled, not finished"
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    assert len(client.generate(PROMPT[:40], max_tokens=2, ignore_eos=True).ids) == 2
