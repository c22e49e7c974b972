"""A prefill worker dies before Confirm: the prompt and what was emitted is prefilled elsewhere; no token is sent twice."""
from runner import case

from .shapes import NORMAL, PAIR, PATIENT

ROW = "P dies before Confirm"


@case("prefill_killed.queued", ROW, NORMAL, point="prefill.taken", prefills=[[1, 1]])
@case("prefill_killed.reserved", ROW, NORMAL, point="prefill.reserved", prefills=[[1, 1]])
@case("prefill_killed.mid_chunk", ROW, NORMAL, point="step.computing", chunk=True, prefills=[[1, 1], [1, 2]])
@case("prefill_killed.after_chunk", ROW, NORMAL, point="prefill.after_chunk", chunk=True, prefills=[[1, 1], [1, 2]])
@case("prefill_killed.complete", ROW, NORMAL, point="prefill.before_complete", prefills=[[1, 2]])
@case("prefill_killed.at_confirm", ROW, NORMAL, point="prefill.at_confirm", prefills=[[1, 2]])
def killed(run, point, prefills, chunk=False):
    """A prefill that it hadn't told the router of (what was sent last may die with it) counts as none."""
    asks, start = run.pair()
    number = run.chunk_hit("prefill-0", asks) if chunk else 1
    run.arm(f"prefill-0:{point}=kill@{number}")
    calls = run.strike(start, point)
    seen = run.all_same(calls, prefills)
    run.prove_hits(point, 1, 1)
    run.prove_dead("prefill-0")
    return f"equal, prefills {seen}"


@case("prefill_killed.at_once", ROW, PATIENT)
def killed_at_once(run):
    """No process waits for peer-timeout or the lease, which are a minute: connected peers know for certain that the process has ended."""
    _, start = run.pair()
    run.arm("prefill-0:prefill.at_confirm=kill@1")
    calls = run.strike(start, "prefill.at_confirm")
    for call in calls:
        call.wait(20)
    seen = run.all_same(calls, [[1, 2]])
    run.prove_hits("prefill.at_confirm", 1, 1)
    run.prove_dead("prefill-0")
    return f"equal, prefills {seen}, at once"


@case("prefill_killed.after_confirm", "P dies after Confirm: nothing is lost", NORMAL)
def killed_after_confirm(run):
    ask, other_ask = run.ask(0), run.ask(1)
    before = {name: run.fleet.figure(name, 'baton_handoffs_total{status="ok"}') for name in ("prefill-0", "prefill-1")}
    paused = run.pause_at("decode.held")
    call = run.start(ask)
    paused()
    served = [name for name in before if run.fleet.figure(name, 'baton_handoffs_total{status="ok"}') > before[name]]
    assert len(served) == 1, served
    other = run.start(other_ask)
    run.fleet.kill(served[0])
    run.fleet.go("decode.held")
    run.same(call, [1])
    run.same(other)
    return "equal, prefills [1]"


@case("prefill_killed.before_pairing", ROW, NORMAL)
def killed_before_pairing(run):
    """A new decode worker is about to pair for the first time: with a pool that isn't there any more."""
    fleet = run.fleet
    ask, other_ask = run.ask(0), run.ask(1)
    fleet.restart("decode-0")
    fleet.restart("decode-1")
    fleet.wait_sessions()
    paused = run.pause_at("decode.reserved")
    call = run.start(ask)
    paused()
    holder = [name for name in ("prefill-0", "prefill-1") if fleet.blocks(name)["pinned"]]
    assert len(holder) == 1, holder
    fleet.kill(holder[0])
    fleet.go("decode.reserved")
    seen = run.same(call, [2]).timing.prefills
    run.same(run.start(other_ask))
    return f"equal, prefills [{seen}]"


@case("prefill_killed.pairing", ROW, PATIENT)
def killed_while_paired(run):
    """Neither decode worker knows it, and one is about to be admitted to its pool. Its end says nothing about the byte path: the handle of the
    dead is not offered to the other one, who could only wait for it."""
    fleet = run.fleet
    for ask in (run.ask(number) for number in range(4)):
        fleet.restart("decode-0")
        fleet.restart("decode-1")
        fleet.wait_sessions()
        before = len(fleet.log_text("router"))
        paused = run.pause_at("decode.reserved")
        call = run.start(ask)
        paused()
        holder = [name for name in ("prefill-0", "prefill-1") if fleet.blocks(name)["pinned"]]
        assert len(holder) == 1, holder
        run.arm(f"{holder[0]}:transport.hello=kill@1")
        fleet.go("decode.reserved")
        call.wait(20)
        if fleet.hits("transport.hello"):
            break  # else it was admitted before its blocks were reserved
    seen = run.same(call, [2]).timing.prefills
    run.prove_hits("transport.hello", 1, 1)
    run.prove_dead(holder[0])
    refused = [line for line in fleet.log_text("router")[before:].splitlines() if 'why="pairing"' in line]
    assert not refused, refused
    run.same(run.start(run.ask(4)))
    return f"equal, prefills [{seen}], at once"


AWAY = "all prefill workers that fit are away"
LOCAL, COMPUTED = "baton_router_local_prefills_total", 'baton_prompt_tokens_computed_total{role="decode"}'


def computed_locally(run, before, asks):
    """The router sent so many prompts to the decode worker, and that computed every token of them."""
    locally, rows = run.fleet.figure("router", LOCAL) - before[0], run.fleet.figure("decode-0", COMPUTED) - before[1]
    assert locally == len(asks), f"{locally:.0f} prompts were sent to the decode worker"
    assert rows >= sum(len(ask.prompt) for ask in asks), f"the decode worker computed {rows:.0f} tokens of prompts"


@case("prefill_away.taken", AWAY, PAIR, point="prefill.taken", prefills=(1,))
@case("prefill_away.mid_chunk", AWAY, PAIR, point="step.computing", chunk=True, prefills=(1, 2))
@case("prefill_away.after_chunk", AWAY, PAIR, point="prefill.after_chunk", chunk=True, prefills=(1, 2))
@case("prefill_away.at_confirm", AWAY, PAIR, point="prefill.at_confirm")
def away(run, point, chunk=False, prefills=(2,)):
    """The only one dies under a request: after local-prefill-wait its prompt is computed by the decode worker, and so is the next; no longer once it is back,
    where it was: what it refused before says nothing about it."""
    fleet = run.fleet
    ask, next_ask = run.ask(0), run.ask(1)
    before = fleet.figure("router", LOCAL), fleet.figure("decode-0", COMPUTED)
    number = run.chunk_hit("prefill-0", [ask]) if chunk else 1
    run.arm(f"prefill-0:{point}=kill@{number}")
    call = run.start(ask)
    run.prove_hits(point, 1, 1, 20)
    run.prove_dead("prefill-0")
    fleet.disarm()
    seen = run.same(call, prefills).timing.prefills
    computed_locally(run, before, [ask])
    run.same(run.start(next_ask), [1])
    computed_locally(run, before, [ask, next_ask])
    fleet.restart("prefill-0", same_address=True)
    fleet.wait_sessions()
    run.same(run.start(ask), [1])
    computed_locally(run, before, [ask, next_ask])
    assert fleet.total("prefill-0", "baton_prompt_tokens_computed_total") >= len(ask.prompt)
    return f"computed by the decode worker, equal, prefills [{seen}], [1]; then by the new one"
