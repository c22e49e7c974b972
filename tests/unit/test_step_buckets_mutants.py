"""test_step_buckets catches each mutant of step_buckets.c: the real code with one rule left out or reversed."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mutants  # noqa: E402

FILE = "common/engine/step_buckets.c"

# name: what it leaves out, old text, new text; the old text occurs exactly once.
MUTANTS = {
    "descending": ("numbers may fall", "number > (read.count ? read.rows[read.count - 1] : 0) &&", "number > 0 &&"),
    "equal": ("a number may come twice", "number > (read.count ? read.rows[read.count - 1] : 0) &&", "number >= (read.count ? read.rows[read.count - 1] : 1) &&"),
    "no_end": ("text behind the numbers is fine", " &&\n                (!*at || *at == ',');", ";"),
    "too_many": ("numbers beyond the last place are dropped", "        sound = false; /* a number has to follow */\n", ""),
    "largest": ("any number is fine", " && number <= MOST_ROWS &&\n", " &&\n"),
    "written": ("a wrong setting is half read", "struct step_bucket_sizes read = {.chosen = strcmp(text, \"auto\") != 0};\n    const",
                "struct step_bucket_sizes read = *sizes = (struct step_bucket_sizes){.chosen = strcmp(text, \"auto\") != 0};\n    const"),
    "chosen_too_many": ("more rows than a step has", "sizes->rows[count] <= most_rows", "true"),
    "auto_without_most": ("auto leaves the largest step out", "    rows[count++] = most_rows;\n", ""),
    "coarse": ("auto pads many rows up to twice as many", "8 * step <= next", "step < next"),
    "few_first": ("few rows are recorded first", "for (uint32_t i = count; i-- > 0 && buckets->count < KERNELS_MAX_PASSES;)\n        ",
                  "for (uint32_t i = 0; i < count && buckets->count < KERNELS_MAX_PASSES; i++)\n        "),
    "part_of_context": ("the longest contexts have no bucket", "covered < context_blocks ? (uint32_t)covered : context_blocks",
                        "covered <= context_blocks ? (uint32_t)covered : UINT32_MAX"),
    "not_ready": ("a bucket that isn't recorded is taken", "!one->ready || ", ""),
    "rows_short": ("a step has a row more than its bucket", "one->rows < rows ||", "one->rows + 1 < rows ||"),
    "rows_full": ("a full bucket isn't taken", "one->rows < rows ||", "one->rows <= rows ||"),
    "outgrown": ("a context outgrows its bucket", "one->blocks < blocks)\n", "one->blocks + 1 < blocks)\n"),
    "any_rows": ("a step is padded more than it must be", "one->rows < chosen->rows ||", "one->rows > chosen->rows ||"),
    "any_context": ("a longer context than needed is taken", "one->blocks < chosen->blocks))", "one->blocks > chosen->blocks))"),
    "first_of_its_kind": ("the first of as many rows is looked at", "for (uint32_t i = next; i-- > 0;)\n        if (buckets->all[i].rows == buckets->all[next].rows)",
                          "for (uint32_t i = 0; i < next; i++)\n        if (buckets->all[i].rows == buckets->all[next].rows)"),
    "any_kind": ("a recording takes as long as the one ahead", "        if (buckets->all[i].rows == buckets->all[next].rows)\n", ""),
    "unknown_kind": ("a number of rows that is new takes no time", "next ? buckets->record_us[next - 1] : 0", "0"),
}
DEFAULT = ("outgrown",)  # without --long
Mutant = collections.namedtuple("Mutant", "name why edits")


def test_every_mutant_is_caught(capsys):
    code = mutants.Code("step_buckets", ["tests/unit/test_step_buckets.c", FILE, "common/base/status.c", "common/base/utf8.c", "common/base/assert.c"],
                        optimize="-O1", libraries=["-lcmocka"])

    def verdict(mutant):
        return mutant, mutants.first_failure(mutants.run(code.link(mutant.name, code.mutate(mutant.name, mutant.edits))))
    assert not mutants.LONG or not verdict(Mutant("unchanged", "", ()))[1]
    chosen = [Mutant(name, MUTANTS[name][0], [(FILE, *MUTANTS[name][1:])]) for name in (MUTANTS if mutants.LONG else DEFAULT)]
    assert not mutants.survivors(mutants.in_parallel(verdict, chosen), capsys)
