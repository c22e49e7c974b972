"""test_cost_fit catches each mutant of cost_fit.c."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mutants  # noqa: E402

FIT = "common/base/domain/cost_fit.c"

# name: what it leaves out, (old text, new text)...; the old text occurs exactly once.
MUTANTS = {
    "negative": ("parameters may be negative", ("left > 0 ? left / own : 0", "left / own")),
    "outliers_count": ("a step far beyond the usual error counts in full", ("return beyond ? side * bound : error;", "return error;")),
    "no_change": ("several steps beyond the bound are no change", ("#define CHANGE            3 ", "#define CHANGE            1000000000 ")),
    "step_kept": ("the step's own cost is never forgotten, nor followed", ("changes ? FORGETS_AT_CHANGE : FORGETS_STEP", "0")),
    "all_forgotten": ("slopes are forgotten in all directions",
                      ("    forget(fit, rows, FORGETS_SLOPES);\n",
                       "    for (int i = 0; i < N; i++) {\n        fit->evidence[i] *= 0.99;\n        for (int j = 0; j < N; j++)\n"
                       "            fit->information[i][j] *= 0.99;\n    }\n")),
    "no_ratios": ("predictions are the fitted mean", ("double own = ratio *", "double own = (ratio > 0) *")),
    "falls": ("a larger batch may be predicted to take less", ("return own > most ? own : most;", "return own;")),
    "decodes_left_out": ("prompt rows may make a step shorter", ("return all > decodes ? all : decodes;", "return all > 0 ? all : decodes;")),
    "no_prior": ("a prior says nothing", ("prior && steps > NO_PRIOR ? steps : NO_PRIOR", "NO_PRIOR")),
    "prior_for_ever": ("a prior is never left behind", ("prior && steps > NO_PRIOR ? steps : NO_PRIOR", "prior ? steps * 1000 : NO_PRIOR")),
    "old_ratios": ("ratios are never forgotten, and overflow", ("ratios->total >= SAMPLES * SAMPLE", "false")),
    "absolute": ("long steps weigh more than short ones", ("target = 1 + error, scale = predicted;", "target = predicted * (1 + error), scale = 1;")),
    "first_scale": ("the first step doesn't give the scale", ("fit->unit[i] *= ratio;", "fit->unit[i] *= 1;")),
}
DEFAULT = ("all_forgotten",)  # without --long
Mutant = collections.namedtuple("Mutant", "name why edits")


def test_every_mutant_is_caught(capsys):
    code = mutants.Code("cost_fit", ["tests/unit/test_cost_fit.c", FIT, "common/base/rng.c", "common/base/assert.c"], optimize="-O1", libraries=["-lcmocka", "-lm"])

    def verdict(mutant):
        return mutant, mutants.first_failure(mutants.run(code.link(mutant.name, code.mutate(mutant.name, mutant.edits))))
    assert not mutants.LONG or not verdict(Mutant("unchanged", "", ()))[1]
    chosen = [Mutant(name, MUTANTS[name][0], [(FIT, *edit) for edit in MUTANTS[name][1:]]) for name in (MUTANTS if mutants.LONG else DEFAULT)]
    assert not mutants.survivors(mutants.in_parallel(verdict, chosen), capsys)
