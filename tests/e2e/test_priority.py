"""The order of requests, from a client's field to the rows of a step: a worker that has one place in a step gives it to the higher
class."""
from client import pb
from harness import GOLDEN, ended_trace, failpoint, wait_until

ASKED = dict(temperature=1, ignore_eos=True, logits_hash=True)
# Until the short request is there, the long answer is held, however slow the machine.
HELD = dict(process_environment={"decode-0": failpoint("decode.after_tokens", "pause@9")})
SETTINGS = {"max-batch-sequences": 1, "worker-keepalive": "30s"}


def is_overtaken(cluster, client, priority, is_there):
    """A long answer is being written when a short one of the normal class is asked for: does that end before it?"""
    calls = {"long": client.start([5, 6, 7], **ASKED, request_id="long", seed=1, max_tokens=600, priority=priority)}
    assert next(calls["long"]).delta.token_ids
    calls["short"] = client.start([8, 9], **ASKED, request_id="short", seed=2, max_tokens=20)
    wait_until("the short request is there", is_there, 30)
    cluster.failpoint_go("decode.after_tokens")
    ends = {}
    for name, call in calls.items():
        assert sum(len(event.delta.token_ids) for event in call) > 0
        trace = ended_trace(cluster, name)
        assert trace["status"] == "ok"
        ends[name] = trace["arrived_unix_ms"] + trace["ended_ms"]
    return ends["short"] < ends["long"]


def test_offline_has_no_rows_while_others_have(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", prefill=0, settings=SETTINGS, **HELD)

    def is_there():
        return cluster.total("router", "baton_router_requests", state="decode") == 2
    assert is_overtaken(cluster, connect(cluster), pb.PRIORITY_OFFLINE, is_there), "the short one had to wait for the end of the other"


def test_queues_of_a_worker_let_short_answers_pass(start_cluster, connect):
    """The policy that its settings name: with skip-join MLFQ the long one has used its quantum up."""
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", settings=SETTINGS | {"batch-policy": "mlfq"}, **HELD)

    def is_there():
        return cluster.total("prefill-0", "baton_prompt_tokens_computed_total") == 3 + 2
    assert is_overtaken(cluster, connect(cluster), pb.PRIORITY_NORMAL, is_there)
