"""Workers on one GPU, by the emulated driver (tests/cuda/driver): they start, hand KV blocks over and draw on the device, and show its
numbers. One that loses its device exits at once while its answer goes on elsewhere."""
import re
import signal

import grpc
import pytest
from bare import Bare
from client import Answer
from harness import BUILD, GOLDEN, IN_TURNS, LONG, arm, wait_until

DRIVER = BUILD / "tests/libcuda-emulated.so"
PROMPT = list(range(20, 53))
ASKED = dict(max_tokens=3, ignore_eos=True, temperature=1, seed=4, logits_hash=True)

EMULATED = {"BATON_DEVICE": "cuda:0", "BATON_CUDA_DRIVER": str(DRIVER), "BATON_CUDA_EMULATED": "sms=2,late=1,memory=64"}

pytestmark = pytest.mark.skipif(not DRIVER.exists(), reason="the emulated driver isn't built (no C++ compiler)")


def log_of(cluster, name):
    return (cluster.folder / "logs" / f"{name}.log").read_text()


def shows_its_device(cluster):
    seen = cluster.metrics("decode-0")
    assert seen["baton_device_temperature_celsius"] == 61 and seen["baton_device_power_watts"] == 612.5
    assert seen["baton_device_memory_used_bytes"] == 48 << 20 and seen["baton_device_clock_hertz"] == 1.98e9
    assert seen['baton_device_ecc_errors{kind="uncorrected"}'] == 2 and seen["baton_device_xids_total"] == 0
    assert seen['baton_device_slowed{reason="thermal"}'] == 1 and seen['baton_device_slowed{reason="power_cap"}'] == 0
    told = wait_until("the router knows it", lambda: next(w for w in cluster.status()["workers"] if w["name"] == "decode-0")["device"], 20)
    assert told["memory_total_bytes"] == 64 << 20 and told["temperature_celsius"] == 61 and told["slowed_by"] == ["thermal"]


# The driver tells an error while a step runs.
TOLD = {"xid": ("xid=79,xid_at=60", ["the device reports an XID, and is lost: it fell off its bus", "xid=79"]),
        "ecc": ("ecc_at=60", ["the device's memory has errors that ECC can't correct", "code=cuda_ecc"])}
# A step fails in the middle of an answer.
FAILED = ("fails=200,result=214", ["name=CUDA_ERROR_ECC_UNCORRECTABLE", 'xid="48, 94, 95"'])


@pytest.mark.parametrize("cause", TOLD if LONG else ["xid"])
def test_a_cluster_on_one_device(start_cluster, connect, cause):
    """decode-1 and decode-2 lose the device in their first steps, and exit with code 1. The request whose step it was, and all others, end with
    the same bytes elsewhere."""
    emulated = {**EMULATED, "BATON_CUDA_EMULATED": "sms=2,late=1,memory=64,reasons=32"}
    losses = {"decode-1": FAILED, "decode-2": TOLD[cause]}
    lost = {name: {**emulated, "BATON_CUDA_EMULATED": "sms=2,late=1,memory=64," + loss[0]} for name, loss in losses.items()}
    cluster = start_cluster(model=GOLDEN / "rope-linear", decode=3, compute="fast", settings={"chunk-tokens": 16, "kv-tokens": 2048},
                            flags=IN_TURNS, process_environment={"prefill-0": emulated, "decode-0": emulated, **lost})
    cluster.expected_exit = 1
    client = connect(cluster)
    for name in ("prefill-0", "decode-0", "decode-1"):
        assert "numerics=cuda-bf16-sm90/" in log_of(cluster, name)
        assert 'mod=cuda msg="a GPU is open" device=cuda:0 name="emulated GPU 0"' in log_of(cluster, name)
    shows_its_device(cluster)
    first = client.generate(PROMPT, **ASKED)
    for _ in range(40):
        if all("its device is lost" in log_of(cluster, name) for name in losses):
            break
        # Side by side: one at a time may all go to the worker that is measured as the fastest.
        for again in [answer_of(call) for call in [client.start(PROMPT, **ASKED) for _ in range(6)]]:
            assert (again.ids, again.hashes) == (first.ids, first.hashes)
    for name, (_, told) in losses.items():
        log = log_of(cluster, name)
        assert all(text in log for text in [*told, "its device is lost", "code=device_lost"])
        wait_until("its end is told", lambda name=name: f"{name} ended with exit code 1" in (cluster.folder / "up.log").read_text(), 10)
    assert cluster.total("router", "baton_router_retries_total") >= 1, "the request of the failed step went on elsewhere"
    again = client.generate(PROMPT, **ASKED)
    assert (again.ids, again.hashes) == (first.ids, first.hashes)
    assert again.timing.decode_worker == "decode-0"
    steps = {by: cluster.metrics("decode-0")[f'baton_decode_steps_total{{by="{by}"}}'] for by in ("graph", "launches")}
    assert steps["graph"] > 0 and steps["launches"] == 0, steps  # after the handoff each step draws one token of one answer
    assert cluster.metrics("decode-0")['baton_device_microseconds_total{in="steps"}'] > 0
    assert 'msg="decode steps are recorded"' in log_of(cluster, "decode-0") and "steps are recorded" not in log_of(cluster, "prefill-0")


def answer_of(call):
    answer = Answer()
    for response in call:
        answer.take(response)
    return answer.check()


def moved(cluster, name):
    return cluster.metrics(name)['baton_kv_bytes_moved_total{lane="cuda"}']


def test_the_lane_cuda(start_cluster, connect, tmp_path):
    """Blocks go from one worker's device memory to the other's: the bytes of a worker that computes all by itself, also if their owner is
    stopped or killed, or the client leaves. decode-1 has a bad path, and takes the next lane."""
    armed, other = tmp_path / "failpoints", tmp_path / "others"
    armed.write_text("")
    other.write_text("transport.probe=fail")
    cluster = start_cluster(model=GOLDEN / "rope-linear", decode=2, compute="fast", restart=True, flags=IN_TURNS,
                            settings={"chunk-tokens": 16, "kv-tokens": 2048, "prefix-cache": "false", "lease": "20s", "local-prefill-wait": "100ms",
                                      "worker-keepalive": "1s"},
                            process_environment={"prefill-0": {**EMULATED, "BATON_KV_SOCKET": str(tmp_path / "prefill-0.sock")},
                                                 "decode-0": {**EMULATED, "BATON_FAILPOINTS": f"@{armed}"},
                                                 "decode-1": {**EMULATED, "BATON_FAILPOINTS": f"@{other}"}})
    client = connect(cluster)
    answers = [client.generate(PROMPT, **ASKED) for _ in range(2)]
    assert {(answer.timing.decode_worker, answer.timing.lane) for answer in answers} == {("decode-0", "cuda"), ("decode-1", "tcp")}
    assert answers[0].hashes == answers[1].hashes

    def lanes():
        return {worker["name"]: (worker["lane"], worker["lane_reason"]) for worker in cluster.status()["workers"] if worker["role"] == "decode"}
    assert lanes() == {"decode-0": ("cuda", ""), "decode-1": ("tcp", "the self-test failed: the mapping gives other bytes than the owner's")}
    assert moved(cluster, "decode-0") == answers[0].timing.kv_bytes > 0
    cluster.kill("decode-1", signal.SIGSTOP)  # all that follows is decode-0's
    wait_until("the router misses decode-1", lambda: all(worker["name"] != "decode-1" or worker["state"] != "up" for worker in cluster.status()["workers"]), 30)

    def held_at_reading(nth):
        cluster.failpoint_go("decode.reading", False)
        arm(armed, "decode.reading=pause")
        call = client.start(PROMPT, **ASKED)
        wait_until("it is about to read", lambda: sum(hit[0] == "decode.reading" for hit in cluster.failpoint_hits()) == nth, 30)
        return call

    def go_on():
        arm(armed, "")
        cluster.failpoint_go("decode.reading")

    before = moved(cluster, "decode-0")
    call = held_at_reading(1)
    cluster.kill("prefill-0", signal.SIGSTOP)
    go_on()
    wait_until("a stopped owner's blocks were read", lambda: moved(cluster, "decode-0") > before, 20)
    cluster.kill("prefill-0", signal.SIGCONT)
    assert answer_of(call).hashes == answers[0].hashes

    call = held_at_reading(2)
    call.cancel()
    go_on()
    with pytest.raises(grpc.RpcError):
        list(call)
    wait_until("all blocks are free", lambda: cluster.blocks("decode-0")["landing"] == cluster.blocks("prefill-0")["pinned"] == 0, 20)

    call = held_at_reading(3)
    cluster.kill("prefill-0")
    go_on()
    alone = answer_of(call)
    assert (alone.hashes, alone.timing.prefill_worker) == (answers[0].hashes, ""), "decode-0 computes it all"
    cluster.wait_back("prefill-0")
    again = client.generate(PROMPT, **ASKED)  # of another process's memory, at the same socket
    assert (again.hashes, again.timing.lane) == (answers[0].hashes, "cuda")

    arm(other, "transport.import=fail@*")
    cluster.kill("decode-1", signal.SIGCONT)

    def from_the_other():
        answer = client.generate(PROMPT, **ASKED)
        assert answer.hashes == answers[0].hashes
        return answer.timing.decode_worker == "decode-1" and answer.timing.lane
    assert wait_until("decode-1 answers again", from_the_other, 30) == "tcp"
    assert lanes() == {"decode-0": ("cuda", ""), "decode-1": ("tcp", "the owner's memory can't be mapped: a failpoint")}


def test_mixed_numerics(start_cluster, connect):
    """A GPU computes prompts for a CPU that allows it. Received blocks are never taken for those that the CPU would have computed."""
    cluster = start_cluster(model=GOLDEN / "rope-linear", decode=2, compute="fast",
                            settings={"kv-tokens": 2048, "mixed-numerics": "true", "local-prefill-wait": "100ms"},
                            process_environment={"prefill-0": EMULATED, "decode-0": {"BATON_DEVICE": "cpu"},
                                                 "decode-1": {"BATON_DEVICE": "cpu", "BATON_MIXED_NUMERICS": "false"}})
    client = connect(cluster)
    # Without chunk-tokens a GPU is measured; this one is slow. Its first costs are these rates.
    assert re.search(r'msg="rows that fill a step are measured" rows=[1-9]\d* .* chunk_tokens=512', log_of(cluster, "prefill-0"))
    assert "batch_tokens=576 chunk_tokens=512" in log_of(cluster, "prefill-0")
    assert re.search(r'msg="memory of rows that no step will have is given back" rows=576 bytes=[1-9]', log_of(cluster, "prefill-0"))

    def computed():
        return cluster.total("decode-0", "baton_prompt_tokens_computed_total")
    answers = [client.generate(PROMPT, **ASKED) for _ in range(3)]
    assert {(answer.timing.prefill_worker, answer.timing.decode_worker, answer.timing.lane) for answer in answers} == {("prefill-0", "decode-0", "tcp")}
    assert answers[0].timing.kv_bytes > answers[1].timing.kv_bytes > 0, "blocks from such a worker are found"
    assert len({tuple(answer.hashes) for answer in answers}) == 1 and computed() == 0
    assert "numerics_mismatch" in log_of(cluster, "router"), "decode-1 doesn't allow it"
    cluster.kill("prefill-0")
    cluster.kill("decode-1")
    alone = client.generate(PROMPT, **ASKED)
    assert (alone.timing.prefill_worker, alone.timing.decode_worker) == ("", "decode-0")
    assert computed() == len(PROMPT), "all of it"


def test_a_gpu_that_is_not_measured(tmp_path):
    """The memory of this one is too small for a measurement: the log says what is a guess then."""
    with open(tmp_path / "log", "wb") as log:
        worker = Bare("baton-decode", "--name", "decode-0", "--router", "127.0.0.1:1", "--kv-tokens", "2048", "--threads", "1",
                      model=GOLDEN / "rope-linear", stderr=log, environment={**EMULATED, "BATON_CUDA_EMULATED": "sms=2,memory=11"})
    assert worker.stop() == 0
    told = (tmp_path / "log").read_text()
    assert re.search(r'level=warn .*msg="the GPU could not be measured: .*" read_gbs=\S+ peak_gflops=0\n', told)
    assert 'rows=0 ' in told and " chunk_tokens=512 " in told
