"""Clusters with the mock engine: equal bytes in any company, over any lane and after a loss; a wrong block gives a wrong token; steps and
reads take no less than their profile says."""
import concurrent.futures
import json
import re
import subprocess

import grpc
import pytest
from client import pb, reason_of, request
from front import SETTINGS, Front
from harness import BATON, LONG, SHAKESPEARE, arm, get, wait_until
from test_byte_equality import requests_for

TOKENS = 64
COUNT = 30 if LONG else 12
PROFILE = {"name": "slow", "prefill": {"step_us": 30000, "row_us": 0, "position_us": 0},
           "decode": {"step_us": 20000, "row_us": 0, "context_us": 0}, "kv_tokens": 8192, "kv_bytes_per_token": 100000,
           "link": {"bytes_per_second": 1e8, "latency_us": 1000}}


def outcome(answer):
    assert len(answer.hashes) == len(answer.ids) == TOKENS
    return answer.ids, answer.hashes


def ask(client, requests, company):
    size = len(requests) if company else 1
    answers = []
    for first in range(0, len(requests), size):
        answers += client.generate_all(requests[first:first + size])
    return answers


def test_same_request_same_bytes(start_cluster, connect, tmp_path):
    """Alone, together, over shm and tcp, without a handoff, in chunks of any length, from the prefix cache, with swaps, after a decode
    worker's death. Then a block that changes unseen, and blocks of another sequence: such an answer is another one."""
    requests = requests_for(2048, COUNT, TOKENS)
    armed = tmp_path / "armed"
    arm(armed, "")

    def run(transport, prefill, decode, chunk, flags=(), profile="instant", environment=None):
        cluster = start_cluster(prefill=prefill, decode=decode, transport=transport, settings={"chunk-tokens": chunk},
                                flags=["--engine", "mock", "--profile", profile, *flags], process_environment=environment)
        return cluster, connect(cluster)

    cluster, client = run("shm", 1, 1, 512)
    assert {(w["numerics"], w["isa"]) for w in cluster.status()["workers"]} == {("mock/v1/block32", "mock")}
    alone = ask(client, requests, company=False)
    assert {a.timing.lane for a in alone} == {"shm"}
    texts = [a.text for a in alone]
    assert all(re.fullmatch(r"[ -~]+", text) for text in texts), texts
    alone = [outcome(a) for a in alone]
    assert len({tuple(ids) for ids, _ in alone}) == len(requests)
    cached = ask(client, requests, company=True)
    assert [outcome(a) for a in cached] == alone, "from the prefix cache"
    cluster.stop()

    # Too few blocks for all: some are swapped or computed again. Steps take time, so that all are there at once.
    profile = tmp_path / "steps.json"
    profile.write_text(json.dumps(PROFILE | {"name": "steps", "decode": {"step_us": 5000, "row_us": 0, "context_us": 0}}))
    cluster, client = run("auto", 0, 1, 64, flags=["--kv-tokens", "2048"], profile=profile,
                          environment={"decode-0": {"BATON_FAILPOINTS": f"@{armed}", "BATON_PROMPTS_FIRST": "true"}})
    prompts_have_steps_of_their_own(cluster, client)
    for _ in range(5):  # the order of arrival decides whether one must give way
        assert [outcome(a) for a in ask(client, requests, company=True)] == alone, "without a handoff"
        if cluster.total("decode-0", "baton_preemptions_total"):
            break
    assert cluster.total("decode-0", "baton_preemptions_total") > 0
    arm(armed, "decode-0:step.misdirected=fail@20")
    wrong = [outcome(a) != right for a, right in zip(ask(client, requests, company=True), alone)]
    arm(armed, "")
    assert [hit[0] for hit in cluster.failpoint_hits()] == ["step.misdirected"] and any(wrong), "another sequence's blocks go unnoticed"
    cluster.stop()

    cluster, client = run("tcp", 2, 2, 16, environment={f"decode-{i}": {"BATON_FAILPOINTS": f"@{armed}"} for i in (0, 1)})
    arm(armed, "decode-0:decode.after_tokens=kill@40,decode-1:decode.flip=fail@2")
    seen = ask(client, requests, company=True)
    cluster.expected_exit = 1
    assert [outcome(a) for a in seen] == alone, "a worker died, and a block came wrong"
    assert {hit[0] for hit in cluster.failpoint_hits()} == {"decode.after_tokens", "decode.flip"}
    # decode-1 has held a checksum against each block until now. One that changes behind the check shows in the answer.
    arm(armed, "decode-1:decode.rot=fail")
    prompt, options = requests_for(1500, 1, TOKENS)[0]  # one that no worker has in its cache
    rotten = outcome(client.generate(prompt, **options))
    arm(armed, "")
    sound = outcome(client.generate(prompt, **options))
    assert ["decode.rot", "fail"] == cluster.failpoint_hits()[-1][:2]
    assert rotten[0][0] == sound[0][0] and rotten[0][1:] != sound[0][1:], "the first token is the prefill worker's, the others are not right"
    assert all(a != b for a, b in zip(rotten[1][1:], sound[1][1:])), "every later row has read it"
    cluster.stop()

    cluster, client = run("shm", 2, 2, 64, flags=["--placement-policy", "goodput", "--slo-class", "name=chat,ttft=60s,tpot=30s", "--slo-default", "chat"])
    for company in (False, True):
        assert [outcome(a) for a in ask(client, requests, company)] == alone, "placed by goodput"


def prompts_have_steps_of_their_own(cluster, client):
    """A prompt of ten chunks comes beside an answer. In chunks beside it, 100 steps would do for both."""
    call = client.start(list(range(3, 63)), max_tokens=100, ignore_eos=True)
    next(iter(call))
    client.generate(list(range(103, 743)), max_tokens=1)
    assert sum(1 for reply in call if reply.WhichOneof("event") == "finished") == 1
    assert cluster.total("decode-0", "baton_steps_total") == 1 + 99 + 10


def test_steps_and_reads_take_their_time(start_cluster, connect, tmp_path):
    """Lower bounds: a busy machine only adds to them. 320 tokens are 32 MB at 100 MB/s. So an objective below a step's time is missed by
    each answer, and one far above by none."""
    profile = tmp_path / "slow.json"
    profile.write_text(json.dumps(PROFILE))
    classes = "name=chat,ttft=60s,tpot=30s, name=rush,tpot=1ms,p=50, name=batch,e2e=10m,offline"
    cluster = start_cluster(flags=["--engine", "mock", "--profile", profile, "--slo-class", classes, "--slo-default", "chat", "--placement-policy", "least-tokens"],
                            settings=SETTINGS)
    ready = (cluster.folder / "up.log").read_text()
    assert "\n  placement  least-tokens\n  class      chat (default)  TTFT 1 min  TPOT 30 s  90%\n  class      rush  TPOT 1 ms  50%\n" in ready, ready
    assert "\n  class      batch  E2E 10 min  90%  priority offline\n" in ready, ready
    client = connect(cluster)
    answer = client.generate(list(range(3, 323)), max_tokens=11, ignore_eos=True, temperature=0)
    assert answer.timing.ttft_us >= 30000 and answer.timing.tpot_us >= 20000
    assert answer.timing.ttft_us + answer.timing.token_1_to_2_us >= 30000 + 320000 + 20000  # how late the first token is told doesn't count
    assert answer.timing.kv_bytes == 320 * 8
    attainment_is_counted(cluster, client)


def attainment_is_counted(cluster, client):
    """By both doors, behind one answer of the class chat."""
    door, short = Front(cluster), dict(max_tokens=3, ignore_eos=True)

    def refused(metadata=(), **asked):
        with pytest.raises(grpc.RpcError) as error:
            list(client.stub.Generate(request("To be", **short, **asked), timeout=60, metadata=metadata))
        return error.value.code(), dict(error.value.trailing_metadata())["baton-reason"]
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    client.generate("To be", slo_class="rush", **short)
    client.generate("To be", slo_class="rush", slo_objective={"tpot_us": 30000000}, **short)  # loosened, and attained
    assert door.complete("To be", headers={"x-baton-slo-class": "rush"}, **short).status == 200
    assert door.chat("To be", slo_class="rush", **short).status == 200
    assert door.complete(["To be", "or not"], slo_class="batch", n=2, **short).status == 200
    call = client.start("To be", max_tokens=1000, ignore_eos=True)
    next(iter(call))
    call.cancel()
    wait_until("all have ended", lambda: cluster.total("router", "baton_router_requests") == 0, 30)
    # Bad input by both doors: the client's own, and no miss.
    assert refused(slo_class="hurry") == (invalid, "slo_class_unknown")
    assert refused(slo_class="rush", slo_objective={"tpot_us": 999}) == (invalid, "slo_tightened")
    assert refused(slo_class="rush", slo_objective={"ttft_us": 1000}) == (invalid, "slo_tightened")
    assert refused([("x-baton-slo-class", "hurry")]) == (invalid, "slo_class_unknown")
    assert refused([("x-baton-slo-class", "batch")], slo_class="rush") == (invalid, "slo_class_conflict")
    assert refused([("x-baton-slo-class", "rush")] * 2) == (invalid, "malformed")
    reply = door.complete("To be", slo_class="hurry", **short)
    assert reply.error == (400, "slo_class_unknown", "slo_class") and reply.json["error"]["message"].endswith("none of the router's: chat, rush, batch")
    assert door.chat("To be", slo_class="rush", slo_objective={"tpot_ms": 0.9}, **short).error == (400, "slo_tightened", "slo_objective")
    assert door.complete("To be", {"x-baton-slo-class": "batch"}, slo_class="rush", **short).error == (400, "slo_class_conflict", "slo_class")

    status = json.loads(get(cluster, "/status")[1])
    seen = {one["name"]: one for one in status["slo"]}
    counts = {name: (one["ever"]["attained"], one["ever"]["missed"]) for name, one in seen.items()}
    assert counts == {"chat": (1, 0), "rush": (1, 3), "batch": (4, 0)}
    assert seen["chat"]["uncounted"] == 1 and seen["rush"]["ever"]["missed_by"] == {"ttft": 0, "tpot": 3, "itl": 0, "e2e": 0, "failed": 0, "rejected": 0}
    assert seen["rush"]["hour"] == seen["rush"]["ever"] and seen["rush"]["error_budget_left"] == -0.5 and seen["chat"]["error_budget_left"] == 1
    assert seen["batch"]["priority"] == "offline" and [name for name, one in seen.items() if one["default"]] == ["chat"]
    # From the first step reports on there are predictions: a prompt takes a step of 30 ms, a token one of 20 ms.
    predicted = [(kind, one["predicted"][kind]) for one in seen.values() for kind in ("ttft", "tpot") if one["predicted"][kind]["answers"]]
    assert {kind for kind, _ in predicted} == {"ttft", "tpot"} and all(about["predicted_ms"] > 0 and about["measured_ms"] >= 20 for _, about in predicted), predicted
    assert cluster.total("router", "baton_router_ttft_to_predicted_ratio_count") == sum(one["predicted"]["ttft"]["answers"] for one in seen.values())
    assert all(abs(one["goodput_per_second"] - 2 * one["goodput_per_device"]) < 1e-3 for one in seen.values())  # of two workers
    outcomes = {(name, outcome): cluster.total("router", "baton_router_slo_requests_total", slo_class=name, outcome=outcome)
                for name in seen for outcome in ("attained", "missed")}
    assert outcomes == {(name, outcome): count for name, both in counts.items() for outcome, count in zip(("attained", "missed"), both)}


def rejection(cluster, client):
    """A class that no request attains: after 200 outcomes some are rejected, more and more of them, by both doors. A class without
    objectives rejects none."""
    door, never = Front(cluster), dict(slo_class="never", max_tokens=1)

    def one(options):
        try:
            client.generate("To be", **options)
        except grpc.RpcError as error:
            assert (error.code(), reason_of(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "slo_unattainable"), error.details()
            return int(dict(error.trailing_metadata())["retry-after"])
        return 0
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert set(pool.map(one, [never] * 200)) == {0}, "one was rejected before the class was calibrated"
        later = list(pool.map(one, [never] * 200))
        assert set(pool.map(one, [dict(slo_class="free", max_tokens=1)] * 60)) == {0}
    assert later.count(0) >= 10 and len(later) - later.count(0) >= 40, later
    assert all(1 <= seconds <= 90 for seconds in later if seconds)
    labels = dict(slo_class="never", stage="turn")
    assert cluster.total("router", "baton_router_slo_calibrated", **labels) == 1
    assert cluster.total("router", "baton_router_slo_calibration_error", **labels) < 0.05
    assert cluster.total("router", "baton_router_slo_let_through_total", slo_class="never", outcome="missed") == later.count(0)
    assert cluster.total("router", "baton_router_slo_calibrated", slo_class="free") == 0
    with concurrent.futures.ThreadPoolExecutor(24) as pool:  # one that is alone is never rejected
        reply = next(reply for reply in pool.map(lambda _: door.complete("To be", **never), range(120)) if reply.status != 200)
    assert {door.complete("To be", **never).status for _ in range(10)} == {200}
    name = reply.headers["x-request-id"]
    assert reply.error == (429, "slo_unattainable", None) and "SLO class never" in reply.json["error"]["message"]
    assert 1 <= int(reply.headers["retry-after"]) <= 90 and reply.headers["x-should-retry"] == "true"
    # The command tells why.
    told = cluster.command("explain", name).stdout
    assert f"request {name}" in told and "class never: TTFT 1 us" in told, told
    assert "It was rejected (slo_unattainable): try again after" in told and "  slo_unattainable" in told
    # Each name that an answer gives its request finds it.
    free = door.complete("To be", slo_class="free", max_tokens=1)
    told = cluster.command("explain", free.headers["x-request-id"]).stdout
    assert "its workers by goodput" in told and " 2 choices\n" in told and "class free\n" in told, told
    assert free.json["id"].startswith("cmpl-") and cluster.command("explain", free.json["id"]).stdout == told
    assert f"request {free.headers['x-request-id']}" in cluster.command("trace", free.json["id"]).stdout
    name = cluster.generate("To be", slo_class="free", max_tokens=1)["request_id"]
    assert f"request {name}\n" in cluster.command("explain", "--last").stdout
    for arguments, code, sentence in ((["unheard-of"], 1, "no decision about unheard-of: it keeps the newest 1000, since it started"), ([""], 2, "REQUEST_ID is empty"),
                                      ([], 2, "give either REQUEST_ID or --last")):
        done = cluster.command("explain", *arguments)
        assert done.returncode == code and sentence in done.stderr, done.stderr


def test_capacity_constraints_and_logprobs(start_cluster, connect, monkeypatch):
    monkeypatch.setenv("BATON_KV_TOKENS", "")  # not given
    cluster = start_cluster(flags=["--engine", "mock", "--profile", "a100-opt-66b-tp2-distserve", "--slo-class", "name=never,ttft=1us,name=free,offline",
                                   "--decision-sample", "100"], settings=SETTINGS)
    assert {name: sum(cluster.blocks(name).values()) for name in ("prefill-0", "decode-0")} == {"prefill-0": 362, "decode-0": 362}
    client = connect(cluster)
    answer = client.generate("Once upon", max_tokens=400, seed=5, constraint=pb.Constraint(choice=pb.Choices(texts=["yes", "no", "perhaps"])))
    assert answer.text in ("yes", "no", "perhaps")
    rejection(cluster, client)


@pytest.mark.parametrize("flags,sentences", [
    (["--engine", "mock"], ["--engine mock needs --profile"]),
    (["--profile", "instant"], ["--profile is for --engine mock alone"]),
    (["--placement-policy", "best"], ["--placement-policy", "least-tokens", "goodput"]),
    (["--engine", "mock", "--profile", "h100"], ["no profile 'h100'", "instant", "a100-opt-13b-tp1-vllm"]),
    (["--engine", "mock", "--profile", "/nowhere/a.json"], ["/nowhere/a.json"]),
    (["--slo-class", "name=chat,ttft=1s", "--slo-class", "p=50,e2e=0"], ["slo-class: 'p=' stands in front of name=", "slo-class: 'e2e=' stands in"]),
    (["--slo-class", "name=chat,ttft=1s", "--slo-class", "name=b,ttft=0,p=101"], ["class b: ttft=0 must be in 1us .. 24h", "class b: p=101 must be a number in 50 .. 99.99"]),
])
def test_wrong_settings_are_told(flags, sentences):
    done = subprocess.run([BATON, "up", "--model", SHAKESPEARE, *flags], text=True, capture_output=True, timeout=60)
    assert done.returncode == 2
    for sentence in sentences:
        assert sentence in done.stderr, done.stderr
