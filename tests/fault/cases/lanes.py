"""The byte path between two workers: it breaks, or it is not the one that was wanted."""
from runner import Shape, case

from .shapes import PAIR, WORKERS

LOST = "a lost lane: the others' reads are repeated once"
NO_FAST_PATH = "no fast path between a pair"


@case("lane_lost.reading", LOST, PAIR)
def lost_while_reading(run):
    """One pair of workers, four requests: all reads of the pairing end with it, and are made again on the next."""
    _, start = run.pair()
    run.arm(f"decode.lane_lose=fail@{run.rng.randrange(1, 4)}")
    seen = run.all_same(start() + start(), [[1] * 4])
    run.prove_hits("decode.lane_lose", 1, 1)
    return f"equal, prefills {seen}"


SLOW = Shape("slow-lane", prefill=1, decode=2, workers=WORKERS,
             of={"prefill-0": {"transport": "tcp"}, "decode-0": {"transport": "shm"}, "decode-1": {"transport": "auto"}})
NO_LANE = Shape("no-lane", prefill=1, decode=1, workers=WORKERS, of={"prefill-0": {"transport": "tcp"}, "decode-0": {"transport": "shm"}})


@case("lane_lower.warning", NO_FAST_PATH, SLOW, lanes=("tcp",))
def lower_lane(run):
    """One insists on shm and is refused, the other takes what it gets and says so."""
    fleet = run.fleet
    _, start = run.pair()
    calls = start() + start()
    run.all_same(calls, [[1] * 4])
    run.prove({call.answer.timing.lane for call in calls} == {"tcp"}, "another lane")
    assert {call.answer.timing.decode_worker for call in calls} == {"decode-1"}
    warnings = [line for line in fleet.log_text("decode-1").splitlines() if "level=warn" in line and "lane=tcp" in line]
    assert warnings, "the slow lane is not a warning"
    assert "does not offer the lane shm" in fleet.log_text("decode-0")
    return "a warning names the lane; one that insists on a better one is refused"


@case("refusals.pause", "workers refuse again and again", NO_LANE, lanes=("tcp",))
def refusals_pause(run):
    """Each attempt is refused at once: the pauses between them keep the bound of attempts from being used up in no time."""
    from asked import ask_of
    fleet = run.fleet
    call = run.start(ask_of(run.seed), timeout=1.2)
    run.ends(call, "DEADLINE_EXCEEDED deadline", "DEADLINE_EXCEEDED")
    tries = fleet.log_text("router").count('msg="refused"')
    before = getattr(fleet, "refused_before", 0)
    fleet.refused_before = tries
    run.prove(tries - before >= 3, f"{tries - before} refusals")
    assert tries - before <= 10, f"{tries - before} refusals in 1.2 s"
    return "paused between attempts until the deadline"
