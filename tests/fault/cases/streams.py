"""A control stream breaks while both of its ends live; a step that can't be computed."""
from runner import case

from .shapes import NORMAL, SHORT_LEASE


@case("session_lost.prefill", "a Session stream is lost", NORMAL, name="prefill-0", prefills=[[1, 1]])
@case("session_lost.decode", "a Session stream is lost", NORMAL, name="decode-0", prefills=[[1, 1]])
def session_lost(run, name, prefills):
    """At its first command, which is lost with the stream."""
    _, start = run.pair()
    lost = run.fleet.total("router", "baton_router_sessions_lost_total")
    run.arm(f"{name}:worker.session_lose=fail")
    seen = run.all_same(run.strike(start, "worker.session_lose"), prefills)
    run.prove_hits("worker.session_lose", 1, 1)
    assert run.fleet.total("router", "baton_router_sessions_lost_total") == lost + 1
    run.fleet.wait_sessions()
    return f"equal, prefills {seen}"


@case("session_lost.prefill_later", "a Session stream is lost", SHORT_LEASE, name="prefill-0")
@case("session_lost.decode_later", "a Session stream is lost", SHORT_LEASE, name="decode-0")
def session_lost_later(run, name):
    """At the second request's command, while the first one is under way."""
    asks, start = run.pair()
    run.arm(f"{name}:worker.session_lose=fail@2")
    run.all_same(run.strike(lambda: start() + start(), "worker.session_lose", rounds=4))
    run.prove_hits("worker.session_lose", 1, 1)
    run.fleet.wait_sessions()
    run.settle(within=2.7)  # if Opened was lost with the stream, the handle stays until its lease ends
    return "equal"


@case("peer_lost.prefill", "a Peer stream is lost", NORMAL, point="prefill-0:prefill.peer_lose", most=2)
@case("peer_lost.decode", "a Peer stream is lost", NORMAL, point="decode-0:decode.peer_lose", most=3)
def peer_lost(run, point, most):
    """It is opened again, what was asked is asked again, and nothing is read or computed twice for it."""
    _, start = run.pair()
    run.arm(f"{point}=fail@{run.rng.randrange(1, most + 1)}")
    seen = run.all_same(run.strike(start, point.split(":")[1]), [[1, 1]])
    run.prove_hits(point.split(":")[1], 1, 1)
    return f"equal, prefills {seen}"


@case("step_fails.prefill", "a step can't be computed", NORMAL)
def prefill_step_fails(run):
    asks, start = run.pair()
    run.arm(f"prefill-0:step.fails=fail@{run.chunk_hit('prefill-0', asks)}")
    seen = run.all_same(run.strike(start, "step.fails"), [[1, 2]])
    run.prove_hits("step.fails", 1, 1)
    return f"equal, prefills {seen}"


@case("step_fails.decode", "a step can't be computed", NORMAL)
def decode_step_fails(run):
    asks, start = run.pair()
    fewest = min(dict(ask.options)["max_tokens"] for ask in asks)
    run.arm(f"decode-0:step.fails=fail@{run.rng.randrange(1, fewest - 1)}")
    seen = run.all_same(run.strike(start, "step.fails"), [[1, 2]])
    run.prove_hits("step.fails", 1, 1)
    return f"equal, prefills {seen}"
