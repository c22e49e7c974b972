"""Workers that don't fit together: never paired where the router can know it, refused with both sides named where it can't."""
import re

from fleet import GOLDEN
from runner import Shape, case

from .shapes import NORMAL, WORKERS

QUICK = {"worker-wait": "300ms"}


def odd_one(name, settings):
    return Shape(name, prefill=1, decode=2, workers=WORKERS, router=QUICK, of={"decode-0": settings})


LAYOUTS = odd_one("layouts", {"block-tokens": 16})
NUMERICS = odd_one("numerics", {"compute": "fast"})
KV_TYPES = odd_one("kv-types", {"kv": "int8"})
MODELS = Shape("models", prefill=1, decode=2, workers=WORKERS, router=QUICK, refused=("decode-0",),
               of={"decode-0": {"model": GOLDEN / "llama", "model-name": "llama-wide"}})
NAMES = Shape("names", prefill=1, decode=2, workers=WORKERS, router=QUICK, of={"decode-0": {"model": GOLDEN / "llama"}},
              refused=("decode-0",))


@case("mismatch.layout", "layouts or models differ", LAYOUTS, key="layout_hash")
@case("mismatch.numerics", "numerics ids differ", NUMERICS, key="numerics")
@case("mismatch.kv_type", "layouts or models differ", KV_TYPES, key="layout_hash")
def never_paired(run, key):
    fleet = run.fleet
    joined = dict(re.findall(rf"worker=(\S+) role=.* {key}=(\S+) .*joined", fleet.log_text("router")))
    run.prove(joined["prefill-0"] != joined["decode-0"], "they are alike")
    assert joined["prefill-0"] == joined["decode-1"]
    _, start = run.pair()
    calls = start() + start()
    seen = run.all_same(calls, [[1] * 4])
    assert {call.answer.timing.decode_worker for call in calls} == {"decode-1"}
    fleet.kill("decode-1")
    # An answer that has begun with it can't go on with other numerics.
    run.wait("the router lost it", lambda: re.search("worker=decode-1 .*session is lost", fleet.log_text("router")))
    alone = run.start(calls[0].ask)
    alone.wait()
    assert alone.code == "OK", f"{alone.said}: {alone.error}"
    assert (alone.answer.timing.decode_worker, alone.answer.timing.prefill_worker) == ("decode-0", "")
    assert not fleet.total("decode-0", "baton_handoffs_total")
    return f"served by the one that fits, prefills {seen}; then by the other alone"


@case("mismatch.model", "layouts or models differ", MODELS,
      sentence=r"model llama-wide \(384 ids, config.json (\w{16}).*but this router serves llama-wide .*(?!\1)\w{16}")
@case("mismatch.name", "layouts or models differ", NAMES, sentence=r'model llama, for which this router has no folder: it serves \\?"llama-wide')
def never_taken_in(run, sentence):
    run.wait("it was refused", lambda: re.search("worker decode-0 serves " + sentence, run.fleet.log_text("router")))
    run.prove(run.fleet.figure("decode-0", "baton_session_up") == 0, "it has a session")
    run.same(run.start(run.ask(0)), [1])
    return "registration refused with both named"


@case("mismatch.at_pairing_layout", "layouts or models differ", NORMAL, point="decode.hello_layout", kind="layout")
@case("mismatch.at_pairing_numerics", "numerics ids differ", NORMAL, point="decode.hello_numerics", kind="numerics")
def refused_at_pairing(run, point, kind):
    """The router was told something else: it learns of it by the refusal, and remembers while both live."""
    fleet = run.fleet
    _, start = run.pair()
    known = fleet.log_text("router").count("don't fit together")
    run.arm(f"decode-0:{point}=fail@*")
    fleet.restart("decode-0")
    fleet.wait_sessions()
    rounds = 0
    while fleet.log_text("router").count("don't fit together") < known + 2 and rounds < 8:  # with either prefill worker
        run.all_same(start())
        rounds += 1
    hits = len(run.prove_hits(point, 1, 8))
    both = {"layout": r"layout (\w{16}) here, model \w{16} layout (\w{16}) there", "numerics": r"numerics id (\w{16}) here, (\w{16}) there"}[kind]
    named = [match for name in ("prefill-0", "prefill-1") for match in re.findall(both, fleet.log_text(name))]
    assert named and all(here != there for here, there in named), "both hashes are not named"
    calls = start() + start() + start()
    run.all_same(calls, [[1] * 6])
    assert {call.answer.timing.decode_worker for call in calls} == {"decode-1"}
    assert len(fleet.hits(point)) == hits, "they were paired again"
    fleet.disarm()
    fleet.restart("decode-0")  # its next life
    fleet.wait_sessions()
    run.all_same(start(), [[1, 1]])
    assert fleet.total("decode-0", "baton_kv_bytes_moved_total") > 0, "decode-0 is still left out"
    return "refused with both named; not paired again until one restarted"
