"""Who goes first, from a client's field to the rows of a step: a worker that has one place in a step gives it to the higher class."""
from client import pb
from harness import GOLDEN

ASKED = dict(temperature=1, ignore_eos=True, logits_hash=True)
LONG, SHORT = 600, 20
COMPUTED = "baton_decode_tokens_computed_total"


def overtaken(cluster, client, priority):
    """A long answer is being written when a short one of the normal class is asked for: how many rows were computed when that has ended."""
    call = client.start([5, 6, 7], **ASKED, seed=1, max_tokens=LONG, priority=priority)
    count = len(next(call).delta.token_ids)
    assert count > 0
    client.generate([8, 9], **ASKED, seed=2, max_tokens=SHORT)
    computed = cluster.total("decode-0", COMPUTED)
    assert count + sum(len(event.delta.token_ids) for event in call) == LONG
    return computed


def test_offline_has_no_rows_while_others_have(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", prefill=0, settings={"max-batch-sequences": 1})
    assert overtaken(cluster, connect(cluster), pb.PRIORITY_OFFLINE) < LONG, "the short one had to wait for the end of the other"


def test_queues_of_a_worker_let_short_answers_pass(start_cluster, connect):
    """The policy that its settings name: with skip-join MLFQ the long one has used its quantum up."""
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", settings={"max-batch-sequences": 1, "batch-policy": "mlfq"})
    assert overtaken(cluster, connect(cluster), pb.PRIORITY_NORMAL) < LONG
