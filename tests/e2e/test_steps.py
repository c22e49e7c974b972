"""What workers say of their steps: reports that the router learns from, a step that hangs, steps that keep failing; and workers of
several versions of the protocol in one cluster."""
import json
import urllib.error
import urllib.request

import pytest
from bare import Bare
from client import Answer
from harness import GOLDEN, IN_TURNS, arm, get, wait_until

PROMPT = list(range(20, 90))
ASKED = dict(max_tokens=12, ignore_eos=True, temperature=1, seed=4)


def health(cluster, name):
    try:
        with urllib.request.urlopen(f"http://{cluster.processes[name]['metrics']}/healthz", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def workers(cluster):
    return {worker["name"]: worker for worker in json.loads(get(cluster, "/status")[1])["workers"]}


def log_of(cluster, name):
    return (cluster.folder / "logs" / f"{name}.log").read_text()


@pytest.fixture
def cluster(start_cluster, tmp_path):
    """decode-0 speaks the oldest version, decode-1 computes on a device; all take their failpoints from the file `points`."""
    points = tmp_path / "points"
    points.write_text("")
    every = {"BATON_FAILPOINTS": f"@{points}"}
    made = start_cluster(model=GOLDEN / "llama", decode=2, restart=True, flags=IN_TURNS,
                         settings={"chunk-tokens": 32, "prefix-cache": "false", "step-stall": "1s", "failed-steps": 3},
                         process_environment={"prefill-0": every, "decode-1": {**every, "BATON_DEVICE": "deferred"}, "decode-0": {**every, "BATON_TEST_PROTOCOL_VERSION": "4"}})
    made.points = points
    return made


def test_steps_are_reported_and_watched(cluster, connect, tmp_path):
    client = connect(cluster)
    first = client.generate(PROMPT, **ASKED)
    served = {first.timing.decode_worker}
    for _ in range(30):
        answer = client.generate(PROMPT, **ASKED)
        assert answer.ids == first.ids
        served.add(answer.timing.decode_worker)
    assert served == {"decode-0", "decode-1"}, "both versions serve"
    seen = wait_until("all steps are reported", lambda: (lambda w: w if all(
        w[name]["step_cost"]["steps"] == cluster.total(name, "baton_steps_total") for name in ("prefill-0", "decode-1")) else None)(workers(cluster)), 10)
    assert {name: worker["protocol"] for name, worker in seen.items()} == {"prefill-0": 7, "decode-0": 4, "decode-1": 7}
    assert seen["decode-0"]["step_cost"]["steps"] == 0
    for name, rows in (("prefill-0", "prefill_row_us"), ("decode-1", "decode_row_us")):
        cost = seen[name]["step_cost"]
        assert all(value >= 0 for value in cost.values()) and cost["step_us"] + cost[rows] > 0, cost
        assert seen[name]["steps"] > 0
    metrics = cluster.metrics("router")
    assert metrics['baton_router_step_seconds_count{role="decode"}'] == seen["decode-1"]["step_cost"]["steps"]
    outside_the_range(cluster, tmp_path)
    a_step_that_hangs(cluster, client, first)
    steps_that_keep_failing(cluster, client, first)
    a_device_that_is_lost(cluster, client, first)
    a_device_that_copies_nothing(cluster, client, first)


def outside_the_range(cluster, tmp_path):
    """Both sides say both ranges, and the status page has the worker."""
    sentence = "the worker decode-9 speaks protocol version 9, this process 4 to 7"
    with open(tmp_path / "decode-9.log", "wb") as log:
        worker = Bare("baton-decode", "--name", "decode-9", "--router", cluster.grpc, "--test-protocol-version", "9", model=GOLDEN / "llama", stderr=log)
    try:
        wait_until("it is told", lambda: sentence in (tmp_path / "decode-9.log").read_text(), 20)
        assert sentence in log_of(cluster, "router")
        assert sentence in get(cluster, "/status")[1]
    finally:
        assert worker.stop() == 0


def a_step_that_hangs(cluster, client, first):
    """Its process answers all the while: /healthz says that a step hangs, and the router sees for how long."""
    arm(cluster.points, "decode-0:step.computing=hang,decode-1:step.computing=hang")
    call = client.start(PROMPT, **ASKED)
    name = wait_until("it hangs", lambda: [hit[4] for hit in cluster.failpoint_hits() if hit[1] == "hang"], 20)[0]
    arm(cluster.points, "")
    wait_until("it is unhealthy", lambda: health(cluster, name)[0] == 503, 20)
    status, text = health(cluster, name)
    assert status == 503 and text.startswith("stalled: a step has taken "), text
    assert health(cluster, "prefill-0") == (200, "ok\n")
    if name == "decode-1":
        assert workers(cluster)[name]["busy_us"] > 500_000
    cluster.failpoint_go("step.computing")
    answer = Answer()
    for response in call:
        answer.take(response)
    assert answer.check().ids == first.ids
    wait_until("it is healthy", lambda: health(cluster, name) == (200, "ok\n"), 20)


def counted_as_lost(cluster):
    return sum("level=warn" in line and "worker=decode-1 " in line and "session is lost" in line for line in log_of(cluster, "router").splitlines())


def steps_that_keep_failing(cluster, client, first):
    """The worker exits and is started again; requests go on elsewhere."""
    lost = counted_as_lost(cluster)
    arm(cluster.points, "decode-1:step.fails=fail@*")
    for _ in range(20):
        if "its steps keep failing" in log_of(cluster, "decode-1"):
            break
        assert client.generate(PROMPT, **ASKED).ids == first.ids
    arm(cluster.points, "")
    line = next(line for line in log_of(cluster, "decode-1").splitlines() if "its steps keep failing" in line)
    assert "level=error" in line and "failed_steps=3" in line
    cluster.wait_back("decode-1")
    assert counted_as_lost(cluster) == lost + 1, "it has crashed, and didn't leave"
    assert client.generate(PROMPT, **ASKED).ids == first.ids


def a_device_that_is_lost(cluster, client, first):
    """Its worker says so and exits at the first step; the answer goes on elsewhere, and the next life of the worker serves."""
    arm(cluster.points, "decode-1:device.lost=fail")
    for _ in range(20):
        if "its device is lost" in log_of(cluster, "decode-1"):
            break
        assert client.generate(PROMPT, **ASKED).ids == first.ids
    arm(cluster.points, "")
    line = next(line for line in log_of(cluster, "decode-1").splitlines() if "its device is lost" in line)
    assert "level=error" in line and "code=device_lost" in line
    cluster.wait_back("decode-1")
    assert client.generate(PROMPT, **ASKED).ids == first.ids


def a_device_that_copies_nothing(cluster, client, first):
    """Its steps are fine, but no KV block comes in: the worker exits as for failing steps."""
    arm(cluster.points, "decode-1:device.copy_fails=fail")
    for _ in range(40):
        if "the device copies no KV blocks" in log_of(cluster, "decode-1"):
            break
        assert client.generate(PROMPT, **ASKED).ids == first.ids
    arm(cluster.points, "")
    line = next(line for line in log_of(cluster, "decode-1").splitlines() if "the device copies no KV blocks" in line)
    assert "level=error" in line and "failed_copies=" in line
    cluster.wait_back("decode-1")
    assert client.generate(PROMPT, **ASKED).ids == first.ids
