"""Programs that are told to stop: what runs ends well or at the deadline with one clear status, and new work is refused at once."""
import collections
import concurrent.futures
import contextlib
import datetime
import os
import re
import shutil
import signal
import threading
import time

import grpc
import pytest
from client import pb, reason_of
from grpc_health.v1 import health_pb2, health_pb2_grpc
from harness import GOLDEN, IN_TURNS, LONG, alive, failpoint, wait_until

PROMPT = [20 + i for i in range(200)]
ASKED = dict(temperature=1, seed=9, max_tokens=24, ignore_eos=True, logits_hash=True)
# Decodes for longer than any test here waits.
ENDLESS = dict(temperature=1, seed=9, max_tokens=3000, ignore_eos=True)


def nothing_held(cluster):
    return all(b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values())


def started(client, **options):
    """A call of which the first token is here."""
    call = client.start(PROMPT, **options)
    next(call)
    return call


def status_of(call):
    """The one status that a call ends with, and its reason."""
    with pytest.raises(grpc.RpcError) as caught:
        list(call)
    return caught.value.code(), reason_of(caught.value)


def test_the_router_drains_while_it_streams(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", restart=True, settings={"worker-keepalive": "60s"},
                            process_environment={"decode-0": failpoint("decode.after_tokens", "pause@1100")})  # in the second answer
    client, late = connect(cluster), connect(cluster)
    undisturbed = client.generate(PROMPT, **{**ASKED, "max_tokens": 1000})
    late.stub.ListModels(pb.ListModelsRequest())  # connected
    health = health_pb2_grpc.HealthStub(late.channel)
    running = started(client, **{**ASKED, "max_tokens": 1000})
    os.kill(cluster.pids["router"], signal.SIGTERM)
    wait_until("it is not serving", lambda: health.Check(health_pb2.HealthCheckRequest()).status ==
               health_pb2.HealthCheckResponse.NOT_SERVING, 20)
    wait_until("the answer stands still", cluster.failpoint_hits, 60)
    assert status_of(late.start(PROMPT, **ASKED)) == (grpc.StatusCode.UNAVAILABLE, "draining")
    cluster.failpoint_go("decode.after_tokens")
    ids = [i for response in running for i in response.delta.token_ids]
    assert ids == undisturbed.ids[-len(ids):] and len(ids) > 500  # but what came before it was asked to stop
    # It ended in order, and is started again all the same.
    cluster.wait_back("router")
    wait_until("all workers are back", lambda: [w["state"] for w in cluster.status()["workers"]] == ["up", "up"], 20)
    assert connect(cluster).generate(PROMPT, **ASKED).ids == undisturbed.ids[:24]


def test_at_the_deadline_the_rest_ends_with_one_status(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", flags=["--drain-timeout", "300ms"], settings={"lease": "60s"})
    calls = [started(connect(cluster), **ENDLESS) for _ in range(3)]
    asked = time.monotonic()
    cluster.up.terminate()
    assert {status_of(call) for call in calls} == {(grpc.StatusCode.UNAVAILABLE, "draining")}
    assert time.monotonic() - asked > 0.25
    assert cluster.up.wait(20) == 0, "told so, done so"


def test_a_second_signal_stops_at_once(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide")
    call = started(connect(cluster), **ENDLESS)
    cluster.up.terminate()
    cluster.up.send_signal(signal.SIGINT)  # at once: the same wish by two ways
    wait_until("it drains", lambda: "Draining" in (cluster.folder / "up.log").read_text(), 20)
    next(call)
    time.sleep(0.5)  # a person looks, and decides
    next(call)
    cluster.up.terminate()
    assert status_of(call) == (grpc.StatusCode.UNAVAILABLE, "draining")
    assert cluster.up.wait(25) == 0, "not after 30 s, and as it was told"
    told = (cluster.folder / "up.log").read_text()
    assert "level=warn" not in told and "level=error" not in told, told


def test_a_second_signal_during_a_prefill(start_cluster, connect):
    """The workers, told nothing while the router drained, get both signals too: one that has a long chunk to end does not go on to drain."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"chunk-tokens": 16},
                            process_environment={"prefill-0": failpoint("prefill.after_chunk", "pause@3")})
    call = connect(cluster).start(PROMPT, **ASKED)
    wait_until("it is in the middle of its prefill", cluster.failpoint_hits, 20)
    cluster.up.terminate()
    wait_until("it drains", lambda: "Draining" in (cluster.folder / "up.log").read_text(), 20)
    time.sleep(0.5)  # a person looks, and decides
    cluster.up.terminate()
    assert status_of(call) == (grpc.StatusCode.UNAVAILABLE, "draining")
    log = cluster.folder / "logs/prefill-0.log"
    wait_until("it was asked twice", lambda: 'why="asked a second time"' in log.read_text() or not alive(cluster.pids["prefill-0"]), 20)
    cluster.failpoint_go("prefill.after_chunk")
    assert cluster.up.wait(20) == 0, cluster.logs()
    told = (cluster.folder / "up.log").read_text()
    assert "killing" not in told and "level=warn proc=up" not in told, told


def test_idle_workers_end_as_soon_as_they_are_told(start_cluster):
    """Several in a row: what keeps one there is that the router is to hear that it leaves, once, and not the same again and again."""
    cluster = start_cluster(prefill=2, decode=18 if LONG else 3, settings={"kv-tokens": 512, "threads": 1, "failpoints": "worker.tells_draining=log@*"})
    cluster.expected_exit = 1

    def told(name, what):
        text = (cluster.folder / "logs" / f"{name}.log").read_text()
        return re.search(rf'^ts=(\S+) .*msg="{what}"$', text, re.M)
    for name in cluster.pids:
        if name == "router":
            continue
        os.kill(cluster.pids[name], signal.SIGTERM)
        wait_until(f"{name} is drained", lambda: told(name, "drained"), 20)
        begin, end = (datetime.datetime.fromisoformat(told(name, what)[1]) for what in ("draining", "drained"))
        assert (end - begin).total_seconds() < 10, f"{name} took {end - begin}, a third of the time that it may"
    for name in cluster.pids:  # told so, done so
        if name != "router":
            wait_until(f"{name} has ended", lambda: not alive(cluster.pids[name]), 20)
        warnings = [line for line in (cluster.folder / "logs" / f"{name}.log").read_text().splitlines() if "level=warn" in line]
        assert all("mod=failpoint" in line for line in warnings), warnings
    told_by = collections.Counter(hit[-1] for hit in cluster.failpoint_hits())
    assert told_by == {name: 1 for name in cluster.pids if name != "router"}


@pytest.mark.parametrize("name", ["router", "prefill-0", "decode-0"])
def test_a_second_signal_to_one_program(start_cluster, connect, name):
    cluster = start_cluster(model=GOLDEN / "llama-wide", restart=True, settings={"worker-wait": "10s"})
    call = started(connect(cluster), **ENDLESS)
    pid = cluster.pids[name]
    os.kill(pid, signal.SIGTERM)
    if name == "prefill-0":  # it holds nothing for this request any more
        wait_until("it has ended", lambda: not alive(pid), 20)
    else:
        time.sleep(0.5)
        assert alive(pid), "it drains"
        os.kill(pid, signal.SIGTERM)
        wait_until("it stops, and not after 30 s", lambda: not alive(pid), 20)
    cluster.wait_back(name)
    if name == "router":
        assert status_of(call)[0] == grpc.StatusCode.UNAVAILABLE
    else:
        next(call)  # on it goes, wherever it is written now
        call.cancel()
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


def test_a_draining_decode_worker_serves_what_it_was_promised(start_cluster, connect):
    """The last decode worker drains, idle, while the prompt of its request is computed: it waits for the handle, and then to its end."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"worker-wait": "1s"}, process_environment={"prefill-0": failpoint("prefill.taken", "pause@2")})
    cluster.expected_exit = 1  # it is down in the end
    client = connect(cluster)
    undisturbed = client.generate(PROMPT, **ASKED)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.generate, PROMPT, **ASKED)
        wait_until("it is promised", cluster.failpoint_hits, 20)
        os.kill(cluster.pids["decode-0"], signal.SIGTERM)
        wait_until("the router knows", lambda: "draining" in [w["state"] for w in cluster.status()["workers"]], 20)
        cluster.failpoint_go("prefill.taken")
        assert (answer.result().ids, answer.result().hashes) == (undisturbed.ids, undisturbed.hashes)
    wait_until("it has ended", lambda: not alive(cluster.pids["decode-0"]), 20)
    assert 'msg="drained"' in (cluster.folder / "logs/decode-0.log").read_text(), "in time"
    assert cluster.total("router", "baton_router_regives_total") == cluster.total("router", "baton_router_moves_total") == 0


@contextlib.contextmanager
def load(cluster, client, asked=ASKED, same=True):
    """Asks with 4 threads all the time: yields the answers, which grow; none failed, and (`same`) every one is as undisturbed."""
    undisturbed = client.generate(PROMPT, **asked)
    answers, failures, stop = [], [], threading.Event()

    def ask():
        try:
            while not stop.is_set():
                answers.append(client.generate(PROMPT, **asked))
        except grpc.RpcError as failure:
            failures.append(failure)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_until("load", lambda: len(answers) >= 8, 60)
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert not same or all((answer.ids, answer.hashes) == (undisturbed.ids, undisturbed.hashes) for answer in answers)
    assert cluster.total("router", "baton_router_requests_total") == len(answers) + 1, "each has ended, and well"
    assert cluster.total("router", "baton_router_requests_total", status="ok") == len(answers) + 1


def restart_under_load(cluster, name, answers):
    """Tells one worker to end, and waits until it is back and has taken its share."""
    leaving, states = cluster.pids[name], set()
    os.kill(leaving, signal.SIGTERM)

    def gone_and_back():
        cluster.read_ready_file()
        states.add(next((w["state"] for w in cluster.status()["workers"] if w["pid"] == leaving), "absent"))
        return cluster.processes[name]["restarts"] == 1
    wait_until("it is back", gone_and_back, 60)
    assert "down" not in states, states
    before = len(answers)
    wait_until("it takes its share again", lambda: len(answers) >= before + 8 and name in
               {part for answer in answers[before:] for part in (answer.timing.prefill_worker, answer.timing.decode_worker)}, 60)


def test_all_workers_are_restarted_under_load_and_nobody_notices(start_cluster, connect):
    """A rolling restart: every request is answered, and as if nothing had happened. Planned moves are no retries."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", prefill=2, decode=2, restart=True, settings={"chunk-tokens": 64})
    with load(cluster, connect(cluster)) as answers:
        for name in ("prefill-0", "decode-0", "prefill-1", "decode-1"):
            restart_under_load(cluster, name, answers)
    assert cluster.total("router", "baton_router_workers_kept_out") == 0, "leaving in order is no failure"
    assert cluster.total("router", "baton_router_retries_held_total") == 0
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


def other_weights(model, folder):
    """A copy of the model that computes something else: the low bit of every 997th weight is flipped."""
    shutil.copytree(model, folder)
    weights = max(folder.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    data = bytearray(weights.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    for at in range(begin + begin % 2, len(data), 2 * 997):
        data[at] ^= 1  # of a bf16
    weights.write_bytes(data)
    return folder


@pytest.mark.skipif(not LONG, reason="four workers start twice: --long")
def test_weights_are_replaced_in_place_under_load(start_cluster, connect, tmp_path):
    """The workers change over to other weights one by one: no request fails, and each answer is of the old weights or of the new ones."""
    model, new = tmp_path / "model", other_weights(GOLDEN / "llama-wide", tmp_path / "other" / "llama-wide")
    model.symlink_to(GOLDEN / "llama-wide")
    cluster = start_cluster(model=model, prefill=2, decode=2, restart=True, settings={"chunk-tokens": 64}, flags=("--model-name", "tested"))
    client = connect(cluster)
    with load(cluster, client, same=False) as answers:
        model.unlink()
        model.symlink_to(new)
        for name in ("prefill-0", "decode-0", "decode-1", "prefill-1"):
            os.kill(cluster.pids[name], signal.SIGTERM)
            cluster.wait_back(name, 60)
        wait_until("all fit again", lambda: [w["state"] for w in cluster.status()["workers"]] == ["up"] * 4, 20)
        count = len(answers)
        wait_until("the new weights answer", lambda: len(answers) >= count + 16, 60)
    before, after = answers[0], answers[-1]
    assert after.hashes != before.hashes, "the weights are the same"
    assert {tuple(answer.hashes) for answer in answers} == {tuple(before.hashes), tuple(after.hashes)}
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


def test_a_worker_at_its_deadline_hands_its_requests_over(start_cluster, connect):
    """The other decode worker goes on with what this one had not ended: no token is lost or comes twice."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", decode=2, flags=[*IN_TURNS, "--drain-timeout", "500ms"],  # five of its reports
                            process_environment={"decode-0": failpoint("step.computing", "hang@20")})  # long before an answer ends
    client = connect(cluster)
    asked = dict(ASKED, max_tokens=200)
    calls = [client.start(PROMPT, **asked) for _ in range(2)]  # one on each decode worker
    wait_until("its answer has begun", cluster.failpoint_hits, 20)
    os.kill(cluster.pids["decode-0"], signal.SIGTERM)
    cluster.expected_exit = 0
    answers = [[i for response in call for i in response.delta.token_ids] for call in calls]
    cluster.failpoint_go("step.computing")
    wait_until("it has ended", lambda: not alive(cluster.pids["decode-0"]), 20)
    undisturbed = client.generate(PROMPT, **asked)
    assert all(answer == undisturbed.ids for answer in answers)
    assert cluster.total("router", "baton_router_moves_total") + cluster.total("router", "baton_router_regives_total") > 0
    assert cluster.total("router", "baton_router_retries_total") == 0, "it was planned"
    assert [w["name"] for w in cluster.status()["workers"] if w["role"] == "decode"] == ["decode-1"]
    cluster.expected_exit = 1  # it is down in the end
