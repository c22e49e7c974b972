"""A worker that is stopped (SIGSTOP) and goes on later (SIGCONT): too late, whatever it then says."""
import re

from runner import Shape, case

from .shapes import QUICK_ROUTER, SHORT, SHORT_LEASE

LEASE = "lease ran out while D was paused"
LOST = 'baton_handoffs_total{status="lost"}'
# Readers that silence doesn't affect: they learn of a lease's end from the answer to Confirm.
PATIENT_D = Shape("patient-decode", workers=SHORT, of={"decode-0": {"lease": "60s"}, "decode-1": {"lease": "60s"}})


def expired(run):
    return sum(run.fleet.figure(name, LOST) for name in ("prefill-0", "prefill-1"))


def dropped(run):
    """Messages of older attempts, at all workers and the router."""
    return sum(run.fleet.total(name, "baton_stale_messages_total") for name in run.fleet.shape.names()) + \
        run.fleet.total("router", "baton_router_dropped_messages_total")


@case("decode_stopped.reading", LEASE, SHORT_LEASE, point="decode.reading")
@case("decode_stopped.read", LEASE, SHORT_LEASE, point="decode.read_done")
@case("decode_stopped.before_confirm", LEASE, SHORT_LEASE, point="decode.before_confirm")
@case("decode_stopped.gone_dropped", LEASE, SHORT_LEASE, point="decode.before_confirm", more="prefill.send_gone=fail")
@case("decode_stopped.told_gone", LEASE, PATIENT_D, point="decode.before_confirm", reasons={"gone"})
def stopped_past_the_lease(run, point, more="", reasons=frozenset({"gone", "silent"})):
    """The router doesn't notice: D learns that the handle is gone, reports lost, and never decodes."""
    fleet = run.fleet
    _, start = run.pair()
    before, lost, told = expired(run), fleet.figure("decode-0", LOST), len(fleet.log_text("router"))
    run.arm(f"decode-0:{point}=stop", *[more] * bool(more))
    calls = run.strike(start, point)
    run.prove_hits(point, 1, 1)
    run.wait("it stands still", lambda: fleet.is_stopped("decode-0"))
    run.wait("its lease ran out", lambda: expired(run) > before, 10)
    fleet.resume("decode-0")
    seen = run.all_same(calls, [[1, 2]])
    if more:
        run.prove_hits("prefill.send_gone", 1)
    assert fleet.figure("decode-0", LOST) == lost + 1, "decode-0 didn't report the loss"
    seen_reasons = set(re.findall(r'worker=decode-0 .* why="(\w+)[:"] .*msg="handoff is lost"', fleet.log_text("router")[told:]))
    assert seen_reasons and seen_reasons <= reasons, seen_reasons  # told so, or noticed first that it had heard nothing for a lease
    return f"lost ({'/'.join(sorted(seen_reasons))}), equal, prefills {seen}"


@case("decode_stopped.given_up", LEASE, QUICK_ROUTER, point="decode.before_confirm", prefills=[[1, 1]])
@case("decode_stopped.given_up_decoding", "D dies after k tokens", QUICK_ROUTER, point="decode.after_tokens", prefills=[[1, 2]])
def stopped_and_given_up(run, point, prefills):
    """The router gives the work to another one. Later messages of the first one are about an old attempt."""
    fleet = run.fleet
    asks, start = run.pair()
    fewest = min(dict(ask.options)["max_tokens"] for ask in asks)
    number = run.rng.randrange(1, fewest) if point == "decode.after_tokens" else 1
    rows, stale = fleet.total("decode-0", "baton_decode_tokens_computed_total"), dropped(run)
    run.arm(f"decode-0:{point}=stop@{number}")
    calls = run.strike(start, point)
    run.prove_hits(point, 1, 1)
    run.wait("it stands still", lambda: fleet.is_stopped("decode-0"))
    seen = run.all_same(calls, prefills)  # while it is stopped
    assert fleet.is_stopped("decode-0")
    fleet.resume("decode-0")
    fleet.wait_sessions()
    run.settle(within=2, since=max(call.ended_at for call in calls) + 100)
    if point == "decode.before_confirm":
        run.wait("what it says is counted as stale", lambda: dropped(run) > stale, 5)
        assert fleet.total("decode-0", "baton_decode_tokens_computed_total") == rows, "decode-0 decoded"
    return f"elsewhere, equal, prefills {seen}"


@case("prefill_stopped", "P is silent past the read's deadline or the lease", SHORT_LEASE)
def prefill_stopped(run):
    """Over shm its bytes still come, but no answer (silence); over tcp a read that was under way may end at its deadline first; a decode
    worker that hadn't paired with it yet can't (peer_down). Lost, and computed elsewhere."""
    fleet = run.fleet
    asks, start = run.pair()
    told = len(fleet.log_text("router"))
    run.arm(f"prefill-0:prefill.after_chunk=stop@{run.chunk_hit('prefill-0', asks)}")
    calls = run.strike(start, "prefill.after_chunk")
    run.prove_hits("prefill.after_chunk", 1, 1)
    run.wait("it stands still", lambda: fleet.is_stopped("prefill-0"))
    # Both were its own, or the one that was had not told of its first chunk yet, which then counts as none.
    seen = run.all_same(calls, [[1, 2], [2, 2], [1, 1]])
    assert 'msg="prompt is computed again"' in fleet.log_text("router")[told:], "nothing was lost"
    reasons = set(re.findall(r'prefill=prefill-0 why="(\w+)[:"]', fleet.log_text("router")[told:]))
    unpaired = not all('peer=prefill-0 lane=' in fleet.log_text(name) for name in ("decode-0", "decode-1"))
    allowed = {"silent"} | ({"read"} if run.lane == "tcp" else set()) | ({"peer_down"} if unpaired else set())
    assert reasons <= allowed and (reasons or seen == [1, 1]), reasons
    assert fleet.is_stopped("prefill-0")
    fleet.resume("prefill-0")
    run.settle(within=2, since=max(call.ended_at for call in calls) + 100)
    return f"lost ({'/'.join(sorted(reasons))}), equal, prefills {seen}"
