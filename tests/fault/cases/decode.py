"""A decode worker dies: before it decodes its handle goes to another one, later the prompt and its tokens are prefilled again."""
from runner import case

from .shapes import NORMAL

BEFORE, AFTER = "D dies before decoding", "D dies after k tokens"


@case("decode_killed.reserve", BEFORE, NORMAL, point="decode.taken", prefills=[[1, 1]])
@case("decode_killed.reserved", BEFORE, NORMAL, point="decode.reserved", prefills=[[1, 1]])
@case("decode_killed.reading", BEFORE, NORMAL, point="decode.reading", prefills=[[1, 1]])
@case("decode_killed.read", BEFORE, NORMAL, point="decode.read_done", prefills=[[1, 1]])
@case("decode_killed.before_confirm", BEFORE, NORMAL, point="decode.before_confirm", prefills=[[1, 1]])
@case("decode_killed.after_confirm", BEFORE, NORMAL, point="decode.after_confirm", prefills=[[1, 1], [1, 2]])
@case("decode_killed.held", BEFORE, NORMAL, point="decode.held", prefills=[[1, 2]])
def killed(run, point, prefills):
    _, start = run.pair()
    run.arm(f"decode-0:{point}=kill")
    calls = run.strike(start, point)
    seen = run.all_same(calls, prefills)
    run.prove_hits(point, 1, 1)
    run.prove_dead("decode-0")
    return f"equal, prefills {seen}"


@case("decode_killed.after_tokens", AFTER, NORMAL)
def killed_after_tokens(run):
    asks, start = run.pair()
    fewest = min(dict(ask.options)["max_tokens"] for ask in asks)
    run.arm(f"decode-0:decode.after_tokens=kill@{run.rng.randrange(1, fewest)}")
    calls = run.strike(start, "decode.after_tokens")
    seen = run.all_same(calls, [[1, 2]])
    run.prove_hits("decode.after_tokens", 1, 1)
    run.prove_dead("decode-0")
    return f"equal, prefills {seen}"


@case("decode_killed.computing", AFTER, NORMAL)
def killed_while_computing(run):
    asks, start = run.pair()
    fewest = min(dict(ask.options)["max_tokens"] for ask in asks)
    run.arm(f"decode-0:step.computing=kill@{run.rng.randrange(1, fewest - 1)}")
    calls = run.strike(start, "step.computing")
    seen = run.all_same(calls, [[1, 2]])
    run.prove_hits("step.computing", 1, 1)
    run.prove_dead("decode-0")
    return f"equal, prefills {seen}"
