"""The router dies and comes back: each client gets one clear status, the workers reconnect, nothing stays held."""
import time

from runner import case

from .shapes import SHORT_LEASE

ROW = "the router dies and returns"


@case("router_killed.arrived", ROW, SHORT_LEASE, point="router.arrived", most=2)
@case("router_killed.placed", ROW, SHORT_LEASE, point="router.placed", most=2)
@case("router_killed.opened", ROW, SHORT_LEASE, point="router.opened", most=2)
@case("router_killed.first_token", ROW, SHORT_LEASE, point="router.first_token", most=2)
@case("router_killed.decoding", ROW, SHORT_LEASE, point="router.token", most=14)
def router_killed(run, point, most):
    fleet = run.fleet
    _, start = run.pair()
    run.arm(f"router:{point}=kill@{run.rng.randrange(1, most + 1)}")
    calls = start()
    run.prove_hits(point, 1, 1)
    for call in calls:
        run.ends(call, "UNAVAILABLE", "OK")
    ended = [call for call in calls if call.code == "OK"]  # before the kill
    run.all_same(ended)
    assert len(ended) < len(calls), "none was there when it was killed"
    fleet.disarm()
    lives = {name: fleet.processes[name].pid for name in fleet.shape.names()}
    fleet.restart("router", same_address=True)
    fleet.wait_sessions()
    run.settle(within=2.7, since=time.monotonic())  # the leases of what was opened run out
    run.reconnect()
    seen = run.all_same(start(), [[1, 1]])
    assert lives == {name: fleet.processes[name].pid for name in lives} and not fleet.dead()
    return f"UNAVAILABLE; the same workers serve again, prefills {seen}"
