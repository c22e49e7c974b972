"""The tests of the cluster in virtual time catch every mutant of it: the real code with one rule left out or reversed.

Compiles the pure files that the cluster needs, each mutant in a folder of its own. Runs with --long."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess

import pytest
from placement_mutants import Mutant
from test_placement_mutants import TOP, PLANNER, FLAGS, compile_one

LONG = bool(os.environ.get("BATON_LONG"))
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "virtual_mutants"
TEST = TOP / "tests/unit/test_virtual_cluster.c"
IMPURE = {"clock.c", "descriptors.c", "failpoint.c", "file_read.c", "file_watch.c", "log.c", "peer_places.c", "progress_line.c", "reload.c", "ring.c",
          "standard_output.c", "stop_signals.c", "fair_queue.c"}
PRODUCT = [*(path for path in sorted(PLANNER.glob("*.c")) if path.name != "cache_event_count.c"),
           *sorted((TOP / "common/engine/sched").glob("*.c")), TOP / "common/kv/handoff/handoff.c",
           *(path for path in sorted((TOP / "common/base/domain").glob("*.c"))),
           *(path for path in sorted((TOP / "common/base").glob("*.c")) if path.name not in IMPURE)]

ALL = [
    Mutant("read_at_the_end", "rows are read when all are computed, not beside the next chunk", "virtual_worker.c", "run->prompt_tokens : run->computed / block * block", "run->prompt_tokens : 0"),
    Mutant("prompts_wait_too", "prompts don't go first, although they should", "virtual_worker.c", "prompts && sequence->state == SEQUENCE_DECODE", "false"),
    Mutant("honest_reports", "a worker that should lie reports its true times", "virtual_router.c", "reported * (double)node->took_us", "(double)node->took_us"),
    Mutant("no_slowness", "no device is slower than its profile", "virtual_worker.c", "(uint64_t)llrint(slowness * step_profile_us(", "(uint64_t)llrint(1 * step_profile_us("),
    Mutant("endless", "answers have no end token", "virtual_worker.c", "        return VIRTUAL_END;\n", "        ;\n"),
    Mutant("free_messages", "commands take no time", "virtual_router.c", "cluster->figures.now_us + cluster->config.message_us", "cluster->figures.now_us"),
    Mutant("free_reads", "bytes take no time", "virtual_worker.c", "there > run->landed && profile->link_bytes_per_second > 0", "there > run->landed && profile->link_bytes_per_second < 0"),
    Mutant("one_read", "a second read of a run never begins", "virtual_worker.c", "        run->landed = run->asked;\n", "        run->landed = run->asked;\n        if (!run->complete || run->landed < run->prompt_tokens)\n            continue;\n"),
    Mutant("kept_blocks", "a prefill worker keeps its blocks when they were read", "virtual_worker.c", "case JOB_CONFIRMED: drop(cluster, node, run, job.attempt); break;", "case JOB_CONFIRMED: break;"),
    Mutant("lost_reference", "an ended sequence keeps its request", "virtual_worker.c", "    scheduler_remove(node->scheduler, sequence);\n    virtual_call_unref(cluster, call);", "    scheduler_remove(node->scheduler, sequence);"),
    Mutant("wiped_not", "wiped caches keep their blocks", "virtual_cluster.c", "        scheduler_distrust(cluster->nodes[i].scheduler);", "        ;"),
    Mutant("any_order", "events at one time come in any order", "virtual_cluster.c", "a->at_us == b->at_us && a->order < b->order", "a->at_us == b->at_us && a->order > b->order"),
]


@pytest.fixture(scope="module")
def objects():
    shutil.rmtree(BUILD, ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(lambda source: (source, compile_one(source, BUILD / "none" / f"{source.parent.name}-{source.stem}.o")), [*PRODUCT, TEST]))


def fails(folder, objects):
    program = folder / "test"
    subprocess.run(["cc", *FLAGS, *map(str, objects.values()), "-lcmocka", "-lxxhash", "-lm", "-o", str(program)], check=True)
    try:
        done = subprocess.run([program], capture_output=True, text=True, errors="replace", timeout=120, env={"PATH": os.environ["PATH"], "BATON_VIRTUAL_FEW": "1"})
    except subprocess.TimeoutExpired:
        return "does not end"
    program.unlink()
    names = [line.split()[-1] for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("[  FAILED  ] test_")]
    return names[0] if names else f"ends with {done.returncode}" if done.returncode else ""


def verdict(mutant, objects):
    folder = BUILD / mutant.name
    folder.mkdir(parents=True, exist_ok=True)
    text = (PLANNER / mutant.file).read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has this {text.count(mutant.old)} times, not once: {mutant.old}"
    (folder / mutant.file).write_text(text.replace(mutant.old, mutant.new))
    return mutant, fails(folder, {**objects, PLANNER / mutant.file: compile_one(folder / mutant.file, folder / f"{mutant.file}.o")})


@pytest.mark.skipif(not LONG, reason="compiles a dozen mutants: --long")
def test_every_mutant_is_caught(objects, capsys):
    assert not fails(BUILD / "none", objects), "the code as it is"
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda mutant: verdict(mutant, objects), ALL))
    with capsys.disabled():
        print("\n" + "\n".join(f"{mutant.name:20} {sentence or 'survives'}" for mutant, sentence in verdicts))
    assert not [f"{mutant.name} ({mutant.why}) survives" for mutant, sentence in verdicts if not sentence]
