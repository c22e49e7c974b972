"""The prefix cache is on, and both workers hold the beginning of the prompts: what dies or fails under a request that computes and reads
only the rest costs no token, and what a failed step leaves is not taken for a prefix."""
from asked import Ask, ask_of
from runner import Shape, case

from .shapes import WORKERS

ROW = "a fault where a prefix is cached"
CACHED = Shape("cached", workers=WORKERS | {"prefix-cache": "true"})
PREFIX_TOKENS = 128
HITS = "baton_prefix_cache_hits_total"


def warmed(run):
    """Two requests of one beginning, which every worker of the fleet has computed or read."""
    prefix = ask_of(run.seed, length=PREFIX_TOKENS).prompt
    asks = [Ask(prefix + ask.prompt, ask.options) for ask in (ask_of(run.seed, which) for which in (1, 2))]
    for ask in asks:
        run.quiet.of(run.client, ask)
    served = set()
    for _ in range(6):
        answers = [run.same(call) for call in [run.start(ask) for ask in asks]]
        served |= {name for answer in answers for name in (answer.timing.prefill_worker, answer.timing.decode_worker)}
        if served == set(run.fleet.shape.names()):
            return asks
    raise AssertionError(f"only {served} have served")


def hits(run, role):
    return sum(run.fleet.figure(name, HITS) for name in run.fleet.shape.names() if name.startswith(role))


def struck(run, asks, spec, point, role, prefills=None):
    """The fault happens under requests that workers of that role, which don't fail, have found cached."""
    before = hits(run, role)
    run.arm(spec)
    seen = run.all_same(run.strike(lambda: [run.start(ask) for ask in asks], point), prefills)
    run.prove_hits(point, 1, 1)
    found = hits(run, role) - before
    run.prove(found >= PREFIX_TOKENS, f"{found:.0f} tokens were found cached")
    return f"equal, prefills {seen}"


@case("cached.decode_killed_reading", ROW, CACHED, point="decode.reading", prefills=[[1, 1]])
@case("cached.decode_killed_after_confirm", ROW, CACHED, point="decode.after_confirm", prefills=[[1, 1], [1, 2]])
@case("cached.decode_killed_after_tokens", ROW, CACHED, point="decode.after_tokens", prefills=[[1, 2]])
def decode_killed(run, point, prefills):
    seen = struck(run, warmed(run), f"decode-0:{point}=kill@{3 if point.endswith('tokens') else 1}", point, "prefill", prefills)
    run.prove_dead("decode-0")
    return seen


@case("cached.prefill_killed_after_chunk", ROW, CACHED, point="prefill.after_chunk", prefills=[[1, 1], [1, 2]])
@case("cached.prefill_killed_at_confirm", ROW, CACHED, point="prefill.at_confirm", prefills=[[1, 2]])
def prefill_killed(run, point, prefills):
    seen = struck(run, warmed(run), f"prefill-0:{point}=kill", point, "decode", prefills)
    run.prove_dead("prefill-0")
    return seen


@case("cached.flipped", ROW, CACHED)
def flipped(run):
    """A repeated read reads the same blocks again, not the cached ones."""
    return struck(run, warmed(run), "decode-0:decode.flip=fail", "decode.flip", "decode", [[1, 1]])


@case("cached.step_fails_prefill", ROW, CACHED, name="prefill-0", number=1)
@case("cached.step_fails_decode", ROW, CACHED, name="decode-0", number=4)
def step_fails(run, name, number):
    """Its writes are unknown: no later request finds blocks that it may have written."""
    asks = warmed(run)
    seen = struck(run, asks, f"{name}:step.fails=fail@{number}", "step.fails", "decode" if "prefill" in name else "prefill", [[1, 2]])
    run.all_same([run.start(ask) for ask in asks], [[1, 1]])
    return seen


@case("cached.cancelled", ROW, CACHED)
def cancelled(run):
    """A client leaves while the rest of its prompt is read: what was cached stays so, for the next one."""
    asks = warmed(run)
    paused = run.pause_at("decode.reading")
    call = run.start(asks[0])
    paused()
    call.cancel()
    run.ends(call, "CANCELLED")
    run.fleet.go("decode.reading")
    before = hits(run, "decode")
    run.all_same([run.start(ask) for ask in asks], [[1, 1]])
    found = hits(run, "decode") - before
    run.prove(found >= 2 * PREFIX_TOKENS, f"{found:.0f} tokens were found cached")
    return "CANCELLED; the next finds it, equal"
