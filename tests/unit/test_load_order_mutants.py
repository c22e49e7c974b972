"""test_load_plan catches each mutant of the order in which `baton bench serve` sends requests (load_plan.c)."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mutants  # noqa: E402

PLAN = "common/cli/load_plan.c"
SOURCES = ["tests/unit/test_load_plan.c", PLAN, *(f"common/cli/{name}.c" for name in ("load_files", "input_lines", "prefix_trace")),
           *(f"common/base/{name}.c" for name in ("arena", "assert", "file_read", "rng", "status", "str", "utf8", "json/json", "domain/prefix_hash", "log", "clock")),
           *(f"common/engine/sched/{name}.c" for name in ("eviction", "kv_blocks", "prefix_cache"))]
Mutant = collections.namedtuple("Mutant", "name why old new")  # the old text occurs exactly once
MUTANTS = [Mutant(*row) for row in [
    ("no_limit", "any number of requests run", "(order->limit && order->running >= order->limit)", "(!order)"),
    ("one_too_many", "one request more than may runs", "order->running >= order->limit", "order->running > order->limit"),
    ("too_early", "a request is sent before it is due", "if (load_order_when(order) > now_ns)", "if (load_order_when(order) == UINT64_MAX)"),
    ("ready_when_due", "a request that waits for a place is ready all the time", "due_ns > order->slot_ns ? due_ns : order->slot_ns", "due_ns"),
    ("any_end_is_a_place", "an end below the limit counts as the place", "if (order->limit && order->running == order->limit)", "if (order->limit)"),
    ("no_think_time", "a later turn comes at once", "now_ns + order->plan->requests[child].think_ns", "now_ns"),
    ("failed_turns_go_on", "a turn comes after one that failed", "        if (success) {\n", "        if (true) {\n"),
    ("orphans_wait", "a failure takes the next turns along, but not those behind them", "        order->next[last] = order->child[child];\n", ""),
    ("lost_are_left", "lost turns are waited for", "        order->left--;\n        count++;\n", "        count++;\n"),
    ("ended_still_run", "an ended request keeps its place", "    order->running--;\n", ""),
    ("latest_first", "the request that is due last goes first", "return at_a < at_b ||", "return at_a > at_b ||"),
    ("heap_one_side", "the heap looks at one child", "            child++;\n", "            ;\n"),
    ("heap_unsorted", "a new request goes to the heap's end", "    for (; at && earlier(order, request,", "    for (; false && earlier(order, request,"),
]]


def test_every_mutant_is_caught(capsys):
    code = mutants.Code("load_order", SOURCES, libraries=["-lcmocka", "-ljson-c", "-lxxhash", "-lm"])

    def verdict(mutant):
        return mutant, mutants.first_failure(mutants.run(code.link(mutant.name, code.mutate(mutant.name, [(PLAN, mutant.old, mutant.new)])), timeout=60))
    assert not mutants.first_failure(mutants.run(code.link("none")))
    assert not mutants.survivors(mutants.in_parallel(verdict, mutants.chosen(MUTANTS, 4)), capsys)
