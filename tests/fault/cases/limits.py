"""Too much for a worker's pool waits its turn; a request that kills what it touches is stopped."""
from runner import Shape, case

from .shapes import GOODPUT, PATIENT

FULL = "out of KV blocks"
PREEMPTED, PROMPTS = ("decode-0", "baton_preemptions_total"), ("prefill-0", "baton_prompt_tokens_computed_total")
TIGHT_P = Shape("tight-prefill", prefill=1, decode=1, workers=PATIENT.workers, of={"prefill-0": {"kv-tokens": 512}})
# All come to the decode worker at once: the router holds none of them back.
TIGHT_D = Shape("tight-decode", prefill=1, decode=1, workers=PATIENT.workers, of={"decode-0": {"kv-tokens": 512}}, router={"unconfirmed-tokens": 100000})


@case("out_of_blocks.prefill", FULL, TIGHT_P)
def prefill_is_full(run):
    """A prompt that waits for blocks is not opened: it waits, and costs nothing. Nothing is read meanwhile, so nothing is freed."""
    asks = [run.ask(i) for i in range(4)]
    paused = run.pause_at("decode.reading")
    calls = [run.start(ask) for ask in asks]
    paused()

    def waits():
        seen = run.fleet.metrics("prefill-0")
        return seen["baton_num_requests_waiting"] and not seen["baton_num_requests_running"]
    run.wait("nothing is computed, and a prompt waits", waits)
    run.fleet.go("decode.reading")
    return f"waited, equal, prefills {run.all_same(calls, [[1] * 4])}"


@case("out_of_blocks.decode", FULL, TIGHT_D)
def decode_is_full(run):
    """A handle stays leased while its reader has no room: of these prompts it holds three, of these answers one, so some are
    preempted. All are there before the first is read."""
    asks = [run.ask(i, length=130, tokens=160) for i in range(4)]
    preempted, prompts = (run.fleet.total(*what) for what in (PREEMPTED, PROMPTS))
    paused = run.pause_at("decode.reading")
    calls = [run.start(ask) for ask in asks]
    paused()
    run.wait("all prompts are computed", lambda: run.fleet.total(*PROMPTS) == prompts + sum(len(ask.prompt) for ask in asks))
    run.fleet.go("decode.reading")
    seen = run.all_same(calls, [[1] * 4])
    run.prove(run.fleet.total(*PREEMPTED) > preempted, "none was preempted")
    return f"preempted, equal, prefills {seen}"


@case("poison.prefill", "a request that kills what it touches", GOODPUT, point="prefill.taken")
@case("poison.decode", "a request that kills what it touches", GOODPUT, point="decode.taken")
def poison(run, point):
    """Each worker that takes it in dies and is started again, as baton up would. It ends after a bounded number; others don't."""
    fleet = run.fleet
    other_ask, ask = run.ask(1, tokens=60), run.ask(0)
    run.arm(f"{point}/poison=kill@*")
    other = run.start(other_ask)
    run.wait("the other one decodes", lambda: other.tokens_seen > 2)
    victim = run.start(ask, name="poison")

    def start_the_dead():
        for name in fleet.dead():
            try:
                fleet.restart(name)
            except AssertionError:  # it was struck before it said that it was ready
                assert not victim.ended.is_set() and fleet.processes[name].ended.wait(10)

    while not victim.ended.is_set():
        start_the_dead()
        victim.ended.wait(0.01)
    run.ends(victim, "UNAVAILABLE workers_lost")
    struck = {int(hit[3]) for hit in run.prove_hits(point, 2, 3)}
    # The request's end may be known here before the last death is.
    run.wait("all that it killed are dead", lambda: not any(process.alive for process in fleet.history if process.pid in struck))
    start_the_dead()
    run.same(other)
    return f"workers_lost after {len(struck)} workers; the other answer equal"
