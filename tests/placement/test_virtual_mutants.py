"""The tests of the cluster in virtual time catch every mutant of it: the real code with one rule left out or reversed.

Runs with --long."""
import pytest
from placement_mutants import Mutant
from test_placement_mutants import PLANNER, PRODUCT, mutants

TEST = "tests/unit/test_virtual_cluster.c"

ALL = [
    Mutant("read_at_the_end", "rows are read when all are computed, not beside the next chunk", "virtual_worker.c", "run->prompt_tokens : run->computed / block * block", "run->prompt_tokens : 0"),
    Mutant("honest_reports", "a worker that should lie reports its true times", "virtual_router.c", "reported * (double)node->took_us", "(double)node->took_us"),
    Mutant("no_slowness", "no device is slower than its profile", "virtual_worker.c", "(uint64_t)llrint(slowness * step_profile_us(", "(uint64_t)llrint(1 * step_profile_us("),
    Mutant("endless", "answers have no end token", "virtual_worker.c", "        return VIRTUAL_END;\n", "        ;\n"),
    Mutant("free_messages", "commands take no time", "virtual_router.c", "cluster->figures.now_us + cluster->config.message_us", "cluster->figures.now_us"),
    Mutant("free_reads", "bytes take no time", "virtual_worker.c", "there > run->landed && profile->link_bytes_per_second > 0", "there > run->landed && profile->link_bytes_per_second < 0"),
    Mutant("one_read", "a second read of a run never begins", "virtual_worker.c", "        run->landed = run->asked;\n", "        run->landed = run->asked;\n        if (!run->complete || run->landed < run->prompt_tokens)\n            continue;\n"),
    Mutant("kept_blocks", "a prefill worker keeps its blocks when they were read", "virtual_worker.c", "case JOB_CONFIRMED: drop(cluster, node, run, job.attempt); break;", "case JOB_CONFIRMED: break;"),
    Mutant("lost_reference", "an ended sequence keeps its request", "virtual_worker.c", "    scheduler_remove(node->scheduler, sequence);\n    virtual_call_unref(cluster, call);", "    scheduler_remove(node->scheduler, sequence);"),
    Mutant("wiped_not", "wiped caches keep their blocks", "virtual_cluster.c", "        scheduler_distrust(cluster->nodes[i].scheduler);", "        ;"),
    Mutant("asleep", "the router looks at requests that wait only when something happens", "virtual_cluster.c", "bool waits = cluster->placement.waiting && cluster->looks < MOST_LOOKS;", "bool waits = false;"),
    Mutant("any_order", "events at one time come in any order", "virtual_cluster.c", "a->at_us == b->at_us && a->order < b->order", "a->at_us == b->at_us && a->order > b->order"),
]


@pytest.mark.skipif(not mutants.LONG, reason="compiles a dozen mutants: --long")
def test_every_mutant_is_caught(capsys):
    code = mutants.Code("virtual", [*PRODUCT, TEST], libraries=["-lcmocka", "-lxxhash", "-lm"])

    def verdict(mutant):
        objects = code.mutate(mutant.name, [(f"{PLANNER}/{mutant.file}", mutant.old, mutant.new)])
        return mutant, mutants.first_failure(mutants.run(code.link(mutant.name, objects), timeout=120, BATON_VIRTUAL_FEW=1))
    assert not mutants.first_failure(mutants.run(code.link("none"), BATON_VIRTUAL_FEW=1)), "the code as it is"
    assert not mutants.survivors(mutants.in_parallel(verdict, ALL), capsys)
