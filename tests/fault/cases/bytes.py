"""Bytes that change, come late, twice, in another order, or not at all."""
from runner import case

from .shapes import FAULTY, GOODPUT, NORMAL

ROW = "bytes flipped on the way"


@case("bytes.flipped_once", ROW, NORMAL)
def flipped_once(run):
    _, start = run.pair()
    run.arm("decode-0:decode.flip=fail")
    calls = run.strike(start, "decode.flip")
    seen = run.all_same(calls, [[1, 1]])
    run.prove_hits("decode.flip", 1, 1)
    changed = [call for call in calls if call.answer.timing.decode_worker == "decode-0"]
    assert len(changed) == 1
    whole = run.same(run.start(changed[0].ask), [1]).timing.kv_bytes
    # Blocks are compared as they come: those that were good before aren't read again.
    again = changed[0].answer.timing.kv_bytes - whole
    assert 0 < again <= whole, f"{again} of {whole} bytes were read again"
    return f"one re-read, equal, prefills {seen}"


@case("bytes.flipped_always", ROW, NORMAL, also=[])
@case("bytes.flipped_always_and_release_dropped", ROW, NORMAL, also=["decode-0:decode.send_release=fail@*"])
def flipped_always(run, also):
    fleet = run.fleet
    _, start = run.pair()
    done, lost = [fleet.figure("decode-0", f'baton_handoffs_total{{status="{status}"}}') for status in ("ok", "lost")]
    run.arm("decode-0:decode.flip=fail@*", *also)
    calls = run.strike(start, "decode.flip")
    seen = run.all_same(calls)
    run.prove_hits("decode.flip", 2)
    if also:
        run.prove_hits("decode.send_release", 1)
    assert {call.answer.timing.decode_worker for call in calls} == {"decode-1"}
    assert fleet.figure("decode-0", 'baton_handoffs_total{status="ok"}') == done
    assert fleet.figure("decode-0", 'baton_handoffs_total{status="lost"}') > lost
    return f"lost, computed again elsewhere, equal, prefills {seen[0]}..{seen[-1]}"


@case("bytes.flipped_always_goodput", ROW, GOODPUT)
def flipped_always_by_goodput(run):
    """The reader is chosen when the prompt starts. One that has just failed is not chosen again while there is another."""
    asks = [run.ask(i) for i in range(8)]
    run.arm("decode-0:decode.flip=fail@*")
    calls = run.strike(lambda: [run.start(ask) for ask in asks], "decode.flip", rounds=5)
    seen = run.all_same(calls)
    run.prove_hits("decode.flip", 2)
    assert {call.answer.timing.decode_worker for call in calls} == {"decode-1"}
    return f"lost, computed again elsewhere, equal, prefills {seen[0]}..{seen[-1]}"


def with_faults(run, faults):
    run.fleet.restart("decode-0", kv_faults=f"seed={run.seed},{faults}")
    run.fleet.wait_sessions()
    run.arm("router.arrived=log")  # hits count from here


TRANSPORT = "a fault of the transport"


@case("transport.drop", TRANSPORT, FAULTY, kind="drop", faults="drop=1,limit=1")
@case("transport.delay", TRANSPORT, FAULTY, kind="delay", faults="delay=1:30ms")
@case("transport.duplicate", TRANSPORT, FAULTY, kind="duplicate", faults="duplicate=1")
@case("transport.reorder", TRANSPORT, FAULTY, kind="reorder", faults="reorder=1")
@case("transport.corrupt", TRANSPORT, FAULTY, kind="corrupt", faults="corrupt=1,limit=1")
@case("transport.lost", TRANSPORT, FAULTY, kind="lost", faults="lost=1,limit=1")
def transport_fault(run, kind, faults):
    """Each heals within the handoff: repeated once, computed once. Which read it hits, the first or the second, is the seed's choice.
    A round may bring only one to decode-0."""
    if "limit" in faults:
        faults += f",first={run.rng.randrange(2)}"
    with_faults(run, faults)
    _, start = run.pair()
    seen = run.all_same(run.strike(lambda: start() + start(), f"kv.{kind}", rounds=3), [[1] * 4])
    run.prove_hits(f"kv.{kind}", 1)
    run.wait("it is counted", lambda: run.fleet.figure("decode-0", f'baton_kv_faults_total{{kind="{kind}"}}') > 0, 2)
    return f"equal, prefills {seen}"


@case("transport.corrupt_always", ROW, FAULTY)
def corrupt_always(run):
    with_faults(run, "corrupt=1")
    _, start = run.pair()
    calls = run.strike(start, "kv.corrupt")
    seen = run.all_same(calls)
    run.prove_hits("kv.corrupt", 2)
    assert run.fleet.figure("decode-0", 'baton_handoffs_total{status="ok"}') == 0
    assert {call.answer.timing.decode_worker for call in calls} == {"decode-1"}
    return f"lost, computed again elsewhere, equal, prefills {seen[0]}..{seen[-1]}"


@case("transport.mixed", TRANSPORT, FAULTY)
def mixed(run):
    """All kinds at once: an answer, where there is one, is the right one."""
    with_faults(run, "drop=0.05,delay=0.2:20ms,duplicate=0.2,corrupt=0.1,reorder=0.1,lost=0.1")
    _, start = run.pair()
    hits = []
    for _ in range(5):
        run.all_same(start() + start() + start())
        hits = [hit for hit in run.fleet.hits() if hit[0].startswith("kv.")]
        if hits:
            break
    run.prove(hits, "no fault was drawn")
    run.proven = len(hits)
    return "equal"
