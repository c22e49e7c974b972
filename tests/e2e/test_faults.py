"""Workers that are killed at the worst moments: the answer is whole and equal, or the error comes fast; nothing leaks."""
import json
import random
import shutil
import time

import grpc
import pytest
from client import reason_of
from harness import GOLDEN, IN_TURNS, alive, failpoint, wait_until

PROMPT = [random.Random(2).randrange(10, 380) for _ in range(600)]
ASKED = dict(temperature=1, seed=9, max_tokens=32, ignore_eos=True, logits_hash=True)


def nothing_held(cluster):
    return all(b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values())


def test_prefill_worker_killed_in_the_middle_of_a_prefill(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", prefill=2, settings={"chunk-tokens": 64}, flags=IN_TURNS,
                            process_environment={"prefill-0": failpoint("prefill.after_chunk", "kill@3")})
    client = connect(cluster)
    # Two at once: one of them is prefilled by prefill-0.
    answers = client.generate_all([(PROMPT, ASKED), (PROMPT, ASKED)])
    assert [hit[:3] for hit in cluster.failpoint_hits()] == [["prefill.after_chunk", "kill", "3"]]
    cluster.expected_exit = 1
    wait_until("the dead worker is reaped", lambda: not alive(cluster.pids["prefill-0"]), 20)
    undisturbed = client.generate(PROMPT, **ASKED)
    assert undisturbed.timing.prefills == 1
    for answer in answers:
        assert (answer.ids, answer.hashes) == (undisturbed.ids, undisturbed.hashes)
    assert sorted(answer.timing.prefills for answer in answers) == [1, 2]
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


def test_the_only_prefill_worker_killed(start_cluster, connect):
    """The decode worker does its part: the same answer, and more of them, until a prefill worker is back."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"chunk-tokens": 64, "local-prefill-wait": "4s", "worker-wait": "60s",
                                                                  "worker-ttl": "10m", "prefix-cache": "false"},
                            process_environment={"prefill-0": failpoint("prefill.after_chunk", "kill@13")})
    client = connect(cluster)
    undisturbed = client.generate(PROMPT, **ASKED)  # ten chunks
    assert not cluster.failpoint_hits() and cluster.total("router", "baton_router_local_prefills_total") == 0
    cluster.expected_exit = 1
    answer = client.generate(PROMPT, **ASKED)
    assert [hit[:2] for hit in cluster.failpoint_hits()] == [["prefill.after_chunk", "kill"]]
    assert (answer.ids, answer.hashes) == (undisturbed.ids, undisturbed.hashes)
    assert answer.timing.prefills == 2
    for _ in range(2):  # the wait is for the prefill worker, and not each request's own
        again = client.generate(PROMPT, **ASKED)
        assert (again.ids, again.hashes) == (undisturbed.ids, undisturbed.hashes)
        assert again.timing.queue_us < 3_000_000  # the computing itself takes what it takes
    assert cluster.total("router", "baton_router_local_prefills_total") == 3
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


@pytest.mark.parametrize("name,action", [("decode.reading", "kill"), ("decode.before_confirm", "kill"),
                                         ("decode.after_tokens", "kill@5")])
def test_the_only_decode_worker_killed(start_cluster, connect, name, action):
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"chunk-tokens": 64, "worker-wait": "500ms"},
                            process_environment={"decode-0": failpoint(name, action)})
    call = connect(cluster).start(PROMPT, **ASKED)
    cluster.expected_exit = 1
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    ended = time.monotonic()
    hits = cluster.failpoint_hits()
    assert [hit[0] for hit in hits] == [name]
    killed = cluster.failpoint_log.stat().st_mtime
    assert time.time() - killed < 30, "the error took as long as the client's deadline"
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert reason_of(caught.value) in ("no_workers", "workers_lost")
    wait_until("prefill's pinned blocks are free", lambda: nothing_held(cluster), 15 - (time.monotonic() - ended))


def test_a_decode_worker_killed_after_k_tokens_is_replaced(start_cluster, connect):
    """The client sees a pause, no loss and no repeat: the indices are checked by the client."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", decode=2, settings={"chunk-tokens": 64}, flags=IN_TURNS,
                            process_environment={"decode-0": failpoint("decode.after_tokens", "kill@5")})
    client = connect(cluster)
    answers = client.generate_all([(PROMPT, ASKED), (PROMPT, ASKED)])
    cluster.expected_exit = 1
    assert [hit[0] for hit in cluster.failpoint_hits()] == ["decode.after_tokens"]
    undisturbed = client.generate(PROMPT, **ASKED)
    for answer in answers:
        assert answer.ids == undisturbed.ids
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


def test_a_byte_that_changed_on_the_way_is_read_again(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"chunk-tokens": 64, "prefix-cache": "false"},
                            process_environment={"decode-0": failpoint("decode.flip", "fail")})
    client = connect(cluster)
    changed = client.generate(PROMPT, **ASKED)
    assert [hit[:3] for hit in cluster.failpoint_hits()] == [["decode.flip", "fail", "1"]]
    undisturbed = client.generate(PROMPT, **ASKED)
    assert (changed.ids, changed.hashes) == (undisturbed.ids, undisturbed.hashes)
    assert changed.timing.prefills == 1 and changed.timing.kv_bytes > undisturbed.timing.kv_bytes
    assert cluster.metrics("decode-0")['baton_handoffs_total{status="lost"}'] == 0


def test_bytes_that_are_wrong_twice_are_never_used(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", decode=2, settings={"chunk-tokens": 64}, flags=IN_TURNS,
                            process_environment={"decode-0": failpoint("decode.flip", "fail@*")})
    client = connect(cluster)
    answers = client.generate_all([(PROMPT, ASKED), (PROMPT, ASKED)])  # one of them goes to decode-0 first
    assert len(cluster.failpoint_hits()) >= 2
    assert cluster.metrics("decode-0")['baton_handoffs_total{status="ok"}'] == 0
    assert cluster.metrics("decode-0")['baton_handoffs_total{status="lost"}'] > 0
    assert {answer.timing.decode_worker for answer in answers} == {"decode-1"}
    assert answers[0].hashes == answers[1].hashes
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


def test_up_reports_a_dead_child(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama", prefill=2)
    pid = cluster.pids["prefill-1"]
    cluster.kill("prefill-1")
    wait_until("reported", lambda: f"prefill-1 was killed by signal 9 (Killed)\" role=prefill pid={pid}" in
               (cluster.folder / "up.log").read_text(), 20)
    assert not alive(pid), "reaped"
    assert len(cluster.generate([20, 21, 22], max_tokens=3, ignore_eos=True)["token_ids"]) == 3


POISON = 380  # a token with a NaN embedding


def poisoned_model(folder):
    """The golden llama, with the bf16 embedding of POISON overwritten by NaN."""
    shutil.copytree(GOLDEN / "llama", folder)
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    tensor = json.loads(data[8:8 + size])["model.embed_tokens.weight"]
    row = tensor["shape"][1] * 2
    at = 8 + size + tensor["data_offsets"][0] + POISON * row
    data[at:at + row] = b"\xc0\x7f" * (row // 2)
    path.write_bytes(data)
    return folder


@pytest.mark.parametrize("prefill", [1, 0])
def test_logits_that_are_no_numbers_are_told_as_such(start_cluster, connect, tmp_path, prefill):
    """The same step fails wherever it is tried: that is what the client hears, and not that workers died."""
    cluster = start_cluster(model=poisoned_model(tmp_path / "model"), prefill=prefill, settings={"local-prefill-wait": "0"})
    client = connect(cluster)
    with pytest.raises(grpc.RpcError) as failed:
        client.generate([20, POISON], max_tokens=4)
    assert (failed.value.code(), reason_of(failed.value)) == (grpc.StatusCode.INTERNAL, "step_failed")
    worker = "prefill-0" if prefill else "decode-0"
    assert failed.value.details().startswith(f"a {worker[:-2]} worker could not compute a step: the model gave a logit that is not a number at position ")
    assert "and 3 prefills)" in failed.value.details()
    assert len(client.generate([20, 21], max_tokens=4, ignore_eos=True).ids) == 4, "another request is served as ever"
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)
