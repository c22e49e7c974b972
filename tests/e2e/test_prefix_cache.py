"""Prompts that begin alike are computed and moved once, and requests that run out of KV blocks give them up and go on: the bytes stay the same."""
import random

import pytest
from harness import GOLDEN, arm, wait_until

BLOCK = 32
PROMPT = [random.Random(4).randrange(10, 380) for _ in range(300)]
OTHERS = random.Random(4).choices(range(10, 380), k=600)
ASKED = dict(temperature=1, seed=9, max_tokens=40, ignore_eos=True, logits_hash=True)
COMPUTED, HITS = "baton_prompt_tokens_computed_total", "baton_prefix_cache_hits_total"


def nothing_held(cluster):
    return all(b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values())


def router_knows_what_is_cached(cluster):
    told = cluster.metrics("router")
    cached = sum(cluster.metrics(name)['baton_kv_blocks{state="cached"}'] for name in ("prefill-0", "decode-0"))
    return told["baton_router_prefix_promises"] == 0 and told["baton_router_prefix_workers"] == 2 and told["baton_router_prefix_blocks"] == cached > 0


def the_router_learns_what_it_missed(cluster, client, points):
    """Events of a cache are lost, and then a session: what the router knows is right again."""
    events = cluster.total("router", "baton_router_cache_events_total")
    arm(points, "prefill-0:worker.send_cache=fail")
    client.generate(OTHERS[:200], **ASKED)
    wait_until("events are lost", lambda: ["worker.send_cache", "fail"] in [hit[:2] for hit in cluster.failpoint_hits()], 15)
    arm(points, "")
    client.generate(OTHERS[200:400], **ASKED)
    wait_until("the gap is seen", lambda: cluster.metrics("router")["baton_router_cache_gaps_total"] == 1, 15)
    wait_until("the router was told all again", lambda: router_knows_what_is_cached(cluster), 15)
    told = cluster.metrics("router")
    assert told["baton_router_cache_restarts_total"] == 1
    assert cluster.total("router", "baton_router_cache_events_total") > events
    arm(points, "prefill-0:worker.session_lose=fail")
    client.generate(OTHERS[400:], **ASKED)
    assert ["worker.session_lose", "fail"] in [hit[:2] for hit in cluster.failpoint_hits()]
    wait_until("the router knows the new session's", lambda: router_knows_what_is_cached(cluster), 15)
    assert cluster.metrics("router")["baton_router_cache_gaps_total"] == 1


def outcome(answer):
    assert answer.timing.prefills == 1
    return answer.ids, answer.hashes


@pytest.mark.parametrize("compute", ["f32", "fast"])
def test_what_came_before_is_neither_computed_nor_moved_again(start_cluster, connect, tmp_path, compute):
    """The same prompt, and one that goes on where its answer ended: decode has those blocks, prefill the prompt's."""
    points = tmp_path / "points"
    points.write_text("")
    cluster = start_cluster(model=GOLDEN / "qwen3", compute=compute, process_environment={"prefill-0": {"BATON_FAILPOINTS": f"@{points}"}})
    client = connect(cluster)
    first, again = client.generate(PROMPT, **ASKED), client.generate(PROMPT, **ASKED)
    assert outcome(again) == outcome(first)
    blocks, known = -(-len(PROMPT) // BLOCK), (len(PROMPT) - 1) // BLOCK
    assert again.timing.kv_bytes * blocks == first.timing.kv_bytes * (blocks - known)
    assert cluster.total("prefill-0", COMPUTED) == 2 * len(PROMPT) - known * BLOCK
    assert cluster.total("prefill-0", HITS) == cluster.total("decode-0", HITS) == known * BLOCK
    longer = PROMPT + first.ids + PROMPT[:50]
    followed = client.generate(longer, **ASKED)
    held = (len(PROMPT) + len(first.ids) - 1) // BLOCK  # the last token's keys and values were never needed
    assert cluster.total("decode-0", HITS) == (known + held) * BLOCK
    assert followed.timing.kv_bytes * blocks == first.timing.kv_bytes * (-(-len(longer) // BLOCK) - held)
    assert cluster.total("decode-0", COMPUTED) == 0
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)
    wait_until("the router was told of all that is cached", lambda: router_knows_what_is_cached(cluster), 15)
    if compute == "f32":
        the_router_learns_what_it_missed(cluster, client, points)
    cluster.stop()
    cluster = start_cluster(model=GOLDEN / "qwen3", compute=compute, prefill=0, settings={"prefix-cache": "false"})
    client = connect(cluster)
    assert outcome(client.generate(PROMPT, **ASKED)) == outcome(first)
    assert outcome(client.generate(longer, **ASKED)) == outcome(followed)
    assert cluster.total("decode-0", HITS) == 0


@pytest.mark.parametrize("swap,kind,kv", [("1", "swap", "int8"), ("0", "recompute", "auto")])
def test_requests_that_run_out_of_blocks_go_on_as_if_nothing_had_happened(start_cluster, connect, swap, kind, kv):
    """Four at once on a decode worker that holds one and a half of them at their ends."""
    requests = [(PROMPT[i:i + 60], dict(ASKED, seed=i, max_tokens=260)) for i in range(4)]
    cluster = start_cluster(model=GOLDEN / "qwen3", compute="fast", flags=["--kv", kv], settings={"swap-share": swap},
                            process_environment={"decode-0": {"BATON_KV_TOKENS": "512"}})
    client = connect(cluster)
    together = [outcome(answer) for answer in client.generate_all(requests)]
    assert cluster.metrics("decode-0")[f'baton_preemptions_total{{kind="{kind}"}}'] > 0
    alone = [outcome(client.generate(prompt, **asked)) for prompt, asked in requests]
    assert together == alone
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)
