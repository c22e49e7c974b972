"""Who goes first, from a client's field to the rows of a step: a worker that has one place in a step gives it to the higher class."""
from client import Answer, pb
from harness import GOLDEN, failpoint, wait_until

ASKED = dict(temperature=1, ignore_eos=True, logits_hash=True)
LONG, SHORT = 600, 20
COMPUTED = "baton_decode_tokens_computed_total"


# Until the short request is there, the long answer is held, however slow the machine.
HELD = dict(process_environment={"decode-0": failpoint("decode.after_tokens", "pause@9")})
SETTINGS = {"max-batch-sequences": 1, "worker-keepalive": "30s"}


def overtaken(cluster, client, priority, is_there):
    """A long answer is being written when a short one of the normal class is asked for: how many rows were computed when that has ended."""
    long = client.start([5, 6, 7], **ASKED, seed=1, max_tokens=LONG, priority=priority)
    count = len(next(long).delta.token_ids)
    assert count > 0
    short, answer = client.start([8, 9], **ASKED, seed=2, max_tokens=SHORT), Answer()
    wait_until("the short request is there", is_there, 30)
    cluster.failpoint_log.with_name(cluster.failpoint_log.name + ".decode.after_tokens.go").touch()
    for event in short:
        answer.take(event)
    answer.check()
    computed = cluster.total("decode-0", COMPUTED)
    assert count + sum(len(event.delta.token_ids) for event in long) == LONG
    return computed


def test_offline_has_no_rows_while_others_have(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", prefill=0, settings=SETTINGS, **HELD)

    def is_there():
        return cluster.total("router", "baton_router_requests", state="decode") == 2
    assert overtaken(cluster, connect(cluster), pb.PRIORITY_OFFLINE, is_there) < LONG, "the short one had to wait for the end of the other"


def test_queues_of_a_worker_let_short_answers_pass(start_cluster, connect):
    """The policy that its settings name: with skip-join MLFQ the long one has used its quantum up."""
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", settings=SETTINGS | {"batch-policy": "mlfq"}, **HELD)

    def is_there():
        return cluster.total("prefill-0", "baton_prompt_tokens_computed_total") == 3 + 2
    assert overtaken(cluster, connect(cluster), pb.PRIORITY_NORMAL, is_there) < LONG
