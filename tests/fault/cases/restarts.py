"""A worker comes back at the same address: another incarnation; nothing else is started again."""
from runner import case

from .shapes import NORMAL

PREFILL = "P restarts on the same address"
DECODE = "D restarts on the same address"


def serves_again(run, name, metric):
    """Two more requests at once: one of them is the new life's."""
    _, start = run.pair()
    for _ in range(4):
        run.all_same(start(), [[1, 1]])
        if run.fleet.total(name, metric) > 0:
            return
    raise AssertionError(f"the new {name} is not used")


@case("prefill_restarted.idle", PREFILL, NORMAL)
def prefill_idle(run):
    fleet = run.fleet
    _, start = run.pair()
    run.all_same(start(), [[1, 1]])
    others = {name: fleet.processes[name].pid for name in ("decode-0", "decode-1")}
    for name in ("prefill-0", "prefill-1"):
        address = fleet.processes[name].address
        fleet.restart(name, same_address=True)
        run.prove(fleet.processes[name].address == address, "another address")
    fleet.wait_sessions()
    serves_again(run, "prefill-0", "baton_prompt_tokens_computed_total")
    assert others == {name: fleet.processes[name].pid for name in others} and not fleet.dead()
    return "links rebuilt, equal, prefills [1, 1]"


@case("prefill_restarted.before_confirm", PREFILL, NORMAL, point="decode.before_confirm")
@case("prefill_restarted.reading", PREFILL, NORMAL, point="decode.reading")
def prefill_under_a_request(run, point):
    """The old life's handle is refused by the new one."""
    fleet = run.fleet
    ask, other_ask = run.ask(0), run.ask(1)
    paused = run.pause_at(point)
    call = run.start(ask)
    paused()
    holder = [name for name in ("prefill-0", "prefill-1") if fleet.blocks(name)["pinned"]]
    assert len(holder) == 1, holder
    fleet.restart(holder[0], same_address=True)
    fleet.go(point)
    seen = run.same(call, [2]).timing.prefills
    run.same(run.start(other_ask))
    fleet.wait_sessions()
    serves_again(run, holder[0], "baton_prompt_tokens_computed_total")
    return f"old handle refused, equal, prefills [{seen}]"


@case("decode_restarted.reading", DECODE, NORMAL, point="decode.reading")
@case("decode_restarted.before_confirm", DECODE, NORMAL, point="decode.before_confirm")
def decode_restarted(run, point):
    fleet = run.fleet
    _, start = run.pair()
    run.arm(f"decode-0:{point}=kill")
    calls = run.strike(start, point)
    run.prove_hits(point, 1, 1)
    run.wait("it is dead", lambda: "decode-0" in fleet.dead())
    fleet.disarm()
    fleet.restart("decode-0", same_address=True)
    seen = run.all_same(calls, [[1, 1]])
    fleet.wait_sessions()
    serves_again(run, "decode-0", "baton_kv_bytes_moved_total")
    return f"equal, prefills {seen}"
