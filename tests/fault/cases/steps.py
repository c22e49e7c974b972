"""A worker's steps fail, or one never ends, while its other threads answer; and losses that one request or the cluster has many of."""
from runner import Shape, case

from .shapes import LONG, NORMAL, WORKERS

HANGS, FAILS = "a step hangs", "every step of a worker fails"
STUCK = Shape("stuck", workers=WORKERS, router={"step-timeout": "1s"})
ALL_STUCK = Shape("all-stuck", workers=WORKERS, router={"placement-policy": "goodput", "step-timeout": "1s", "local-prefill-wait": "1s"})
FAILING = Shape("failing", workers=WORKERS | {"failed-steps": 0})  # the worker stays, and fails
WAITS = Shape("waits", workers=WORKERS, router={"placement-policy": "goodput", "worker-wait": "60s"})
HUNG = "baton_router_workers_hung"


@case("step_hangs.decode", HANGS, STUCK, lanes=("tcp",), name="decode-0")
@case("step_hangs.prefill", HANGS, STUCK, lanes=("shm",), name="prefill-0")
def step_hangs(run, name):
    """Its requests go on elsewhere while its session is up; it is used again when its step ends."""
    fleet, told = run.fleet, len(run.fleet.log_text("router"))
    asks, start = run.pair()
    fewest = min(dict(ask.options)["max_tokens"] for ask in asks) if name == "decode-0" else 2
    run.arm(f"{name}:step.computing=hang@{run.rng.randrange(1, fewest)}")
    calls = run.strike(start, "step.computing")
    run.prove_hits("step.computing", 1, 1)
    seen = run.all_same(calls, [[1, 1], [1, 2], [2, 2]])
    assert fleet.total("router", HUNG) == 1 and fleet.total("router", "baton_router_workers_up") == 4, "it was another fault"
    since = "\n" + fleet.log_text("router")[told:]
    assert f"worker={name} " in since.split('msg="a step of this worker does not end')[0].rsplit("\n", 1)[1]
    others = [run.start(ask) for ask in asks]
    run.all_same(others, [[1, 1]])
    fleet.go("step.computing")
    run.wait("it gets on", lambda: fleet.total("router", HUNG) == 0)
    run.settle(within=2, since=max(call.ended_at for call in run.calls) + 100)
    return f"elsewhere, equal, prefills {seen}"


@case("step_hangs.all_prefill", HANGS, ALL_STUCK, lanes=("tcp",))
def all_prefill_hang(run):
    """Workers that hang are away: the requests of the last ones are computed on decode workers, and so are others."""
    fleet = run.fleet
    asks, start = run.pair()
    run.arm("prefill-0:step.computing=hang", "prefill-1:step.computing=hang")
    calls = start()
    run.prove_hits("step.computing", 2, 2)
    run.all_same(calls, [[2, 2]])
    assert fleet.total("router", HUNG) == 2 and fleet.total("router", "baton_router_workers_up") == 4, "it was another fault"
    others = [run.start(ask) for ask in asks]
    run.all_same(others, [[1, 1]])
    assert {call.answer.timing.prefill_worker for call in calls + others} == {""}
    fleet.go("step.computing")
    run.wait("they get on", lambda: fleet.total("router", HUNG) == 0)
    run.settle(within=2, since=max(call.ended_at for call in run.calls) + 100)
    return "computed on decode workers, equal"


@case("every_step_fails.prefill", FAILS, FAILING, lanes=("tcp",), name="prefill-0")
@case("every_step_fails.decode", FAILS, FAILING, lanes=("shm",), name="decode-0")
def every_step_fails(run, name):
    """60 requests (200 with BATON_LONG=1) beside a worker that is broken: it is kept out after 5 failures at most, and the requests are
    answered."""
    fleet, told, count = run.fleet, len(run.fleet.log_text("router")), 200 if LONG else 60
    asks = [run.ask(i, length=20, tokens=3) for i in range(2)]
    run.arm(f"{name}:step.fails=fail@*")
    for _ in range(count // 2):
        calls = [run.start(ask) for ask in asks]
        for call in calls:
            call.wait()
        if sum(call.code != "OK" for call in run.calls) > 2:
            break
    good = [call for call in run.calls if call.code == "OK"]
    assert len(run.calls) == count and len(good) >= count - 2, [call.said for call in run.calls if call.code != "OK"][:5]
    for call in good:
        run.same(call)
    run.prove_hits("step.fails", 3)
    text = fleet.log_text("router")[told:]
    failed, out = f'worker={name} ', 'msg="requests fail at this worker: it is kept out'
    assert out in text, "its breaker did not open"
    before = [line for line in text.split(out)[0].splitlines() if failed in line and 'msg="a step failed"' in line]
    assert 3 <= len(before) <= 5, before
    return f"{len(good)} of {count} equal, kept out after {len(before)} failures"


@case("decode_killed.four_times", "D dies after k tokens", WAITS, lanes=("shm",))
def killed_four_times(run):
    """More often than one request may be struck, but each time it had got on: each decode worker dies at its 450th token."""
    fleet, ask = run.fleet, run.ask(0, length=130, tokens=2000)
    run.arm("decode.after_tokens=kill@450")
    call = run.start(ask, timeout=120)
    while len(fleet.hits("decode.after_tokens")) < 4:
        run.wait("one dies, or all ends", lambda: fleet.dead() or call.ended.is_set(), 60)
        assert not call.ended.is_set(), call.said
        for name in fleet.dead():
            fleet.restart(name)
    fleet.disarm()
    run.prove_hits("decode.after_tokens", 4, 4)
    seen = run.same(call, [5]).timing.prefills
    return f"equal, prefills [{seen}]"


@case("mass_death", "half of the workers die at once", NORMAL, lanes=("shm", "tcp") if LONG else ("tcp",))
def mass_death(run):
    """No more prompts are computed than there were requests, requests under way at the death, and retries that the budget had then."""
    fleet, count = run.fleet, 24 if LONG else 8
    asks = [run.ask(i, tokens=600 if LONG else 250) for i in range(count)]
    before = fleet.total("router", "baton_router_prefills_total") + fleet.total("router", "baton_router_local_prefills_total")
    run.arm(f"decode-1:decode.after_tokens=kill@{100 if LONG else 60}")  # when its requests have some tokens, and are far from their end
    calls = [run.start(ask) for ask in asks]
    run.wait("one dies", fleet.dead, 40)
    fleet.kill("prefill-1")
    under_way = sum(not call.ended.is_set() for call in calls)
    budget = fleet.total("router", "baton_router_retry_budget")
    run.prove_hits("decode.after_tokens", 1, 1)
    run.prove(set(fleet.dead()) == {"prefill-1", "decode-1"}, "they live")
    seen = run.all_same(calls)
    after = fleet.total("router", "baton_router_prefills_total") + fleet.total("router", "baton_router_local_prefills_total")
    assert after - before <= count + under_way + budget, (after - before, under_way, budget)
    assert sum(seen) > count, "nothing was under way there"
    return f"equal, {after - before:.0f} prefills for {count} requests, {under_way} under way"
