"""A message is dropped. On Peer every one of them is asked for again; on Session a stream that lives loses none, and the request's
deadline is the backstop of what can't be asked for again."""
from runner import case

from .shapes import NORMAL, SHORT_LEASE

PEER = "a Peer message is dropped"
SESSION = "a Session message is dropped"


@case("dropped.subscribe", PEER, NORMAL, point="decode.send_subscribe")
@case("dropped.extend", PEER, NORMAL, point="decode.send_extend")
@case("dropped.confirm", PEER, NORMAL, point="decode.send_confirm")
@case("dropped.ready", PEER, NORMAL, point="prefill.send_ready")
@case("dropped.complete", PEER, NORMAL, point="prefill.send_complete")
@case("dropped.held", PEER, NORMAL, point="prefill.send_held")
@case("dropped.extended", PEER, NORMAL, point="prefill.send_extended")
@case("dropped.first_token", SESSION, NORMAL, point="prefill-0:worker.send_tokens")
@case("dropped.first_token_again", SESSION, NORMAL, point="decode-0:worker.send_tokens", prefills=[[1, 1], [1, 2]])
@case("dropped.pulled", SESSION, NORMAL, point="decode.send_pulled")
def heals(run, point, prefills=([1, 1],)):
    """The message after it makes up for it. (decode's second token shows a gap, if it comes before the first one of prefill.)"""
    name = point.split(":")[-1]
    _, start = run.pair()
    run.arm(f"{point}=fail")
    seen = run.all_same(run.strike(start, name), prefills)
    run.prove_hits(name, 1)
    return f"equal, prefills {seen}"


@case("dropped.token", SESSION, NORMAL)
def a_token(run):
    """The next one shows the gap: what is missing is computed again."""
    asks, start = run.pair()
    fewest = min(dict(ask.options)["max_tokens"] for ask in asks)
    run.arm(f"decode-0:worker.send_tokens=fail@{run.rng.randrange(2, fewest)}")
    seen = run.all_same(run.strike(start, "worker.send_tokens"), [[1, 2]])
    run.prove_hits("worker.send_tokens", 1, 1)
    return f"equal, prefills {seen}"


@case("dropped.prefill", SESSION, NORMAL, point="router.send_prefill")
@case("dropped.opened", SESSION, NORMAL, point="prefill-0:prefill.send_opened")
@case("dropped.decode", SESSION, NORMAL, point="router.send_decode")
@case("dropped.only_token", SESSION, NORMAL, point="prefill-0:worker.send_tokens", tokens=1)
def ends_by_deadline(run, point, tokens=None):
    """No process misses it: the request ends by its deadline, and all is released."""
    asks, _ = run.pair(tokens=tokens)
    run.arm(f"{point}=fail")
    calls = run.strike(lambda: [run.start(ask, timeout=1.5) for ask in asks], point.split(":")[-1])
    for call in calls:
        call.wait()
    run.prove_hits(point.split(":")[-1], 1, 1)
    assert sorted(call.code for call in calls) == ["DEADLINE_EXCEEDED", "OK"], [call.said for call in calls]
    run.same([call for call in calls if call.code == "OK"][0], [1])
    return "DEADLINE_EXCEEDED; the other answer equal"


@case("dropped.release", SESSION, SHORT_LEASE)
def a_release(run):
    """A client leaves, and the workers aren't told: the lease, and the answer's own end, release it."""
    ask, other_ask = run.ask(0), run.ask(1)
    run.arm("prefill.after_chunk=pause", "router.send_release=fail@*")
    victim = run.start(ask)
    run.fleet.wait_hit("prefill.after_chunk")  # and held there: a short answer might end before its client leaves
    victim.cancel()
    run.ends(victim, "CANCELLED cancelled", "CANCELLED")
    run.prove_hits("router.send_release")
    run.fleet.go("prefill.after_chunk")
    run.same(run.start(other_ask))
    run.settle(within=2.7)
    return "released by the lease; the other answer equal"
