"""The client leaves, at any step: both workers stop within one chunk or step, everything is free again within a second."""
import time

from runner import case

from .shapes import NORMAL

ROW = "client leaves, at any step"


def leaves_at(run, point, number=1):
    """The process that pauses at the point learns of the leave there, and of nothing before."""
    victim_ask, other_ask = run.ask(0), run.ask(1)
    paused = run.pause_at(point, number)
    victim = run.start(victim_ask)
    where = paused()
    other = run.start(other_ask)
    victim.cancel()
    run.ends(victim, "CANCELLED cancelled", "CANCELLED")
    if where != "router":
        run.wait("the router has counted it", lambda: run.fleet.figure("router", 'baton_router_requests_total{status="cancelled"}') > run.cancelled)
    run.fleet.go(point)
    gone = time.monotonic()
    run.same(other)
    run.settle(since=gone)
    return "cancelled; the other answer equal"


for name, point in [("queued", "router.arrived"), ("placed", "router.placed"), ("prefill_taken", "prefill.taken"),
                    ("prefill_reserved", "prefill.reserved"), ("opened", "router.opened"), ("prefill_complete", "prefill.before_complete"),
                    ("first_token", "router.first_token"),
                    ("decode_taken", "decode.taken"), ("decode_reserved", "decode.reserved"), ("reading", "decode.reading"),
                    ("read", "decode.read_done"), ("confirm", "decode.before_confirm"), ("confirmed", "decode.after_confirm"),
                    ("held", "decode.held"), ("answering_confirm", "prefill.at_confirm")]:
    case(f"client_leaves.{name}", ROW, NORMAL, point=point)(leaves_at)


@case("client_leaves.prefill", ROW, NORMAL)
def leaves_in_prefill(run):
    asks = [run.ask(0), run.ask(1)]
    longest = max(run.fleet.chunks[name] for name in ("prefill-0", "prefill-1"))
    return leaves_at(run, "prefill.after_chunk", run.rng.randrange(-(-len(asks[0].prompt) // longest)) + 1)


@case("client_leaves.decoding", ROW, NORMAL)
def leaves_while_decoding(run):
    tokens = dict(run.ask(0).options)["max_tokens"]
    return leaves_at(run, "decode.after_tokens", run.rng.randrange(1, tokens - 1))


@case("client_leaves.at_once", ROW, NORMAL)
def leaves_at_any_moment(run):
    """Without a pause: the leave races with everything else."""
    victim_ask, other_ask = run.ask(0), run.ask(1)
    point = run.rng.choice(["prefill.reserved", "prefill.after_chunk", "decode.reserved", "decode.reading", "decode.before_confirm", "decode.after_tokens"])
    run.arm(f"{point}=log")
    victim, other = run.start(victim_ask), run.start(other_ask)
    run.prove_hits(point)
    victim.cancel()
    victim.wait()
    run.ends(victim, "CANCELLED cancelled", "CANCELLED", "OK")
    run.same(other)
    return "cancelled; the other answer equal"
