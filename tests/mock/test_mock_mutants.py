"""The unit tests of the mock engine's pure parts catch every mutant of them."""
import collections
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import mutants  # noqa: E402

ROWS, PROFILE, LINK = (f"common/{name}.c" for name in ("engine/mock/mock_rows", "base/domain/step_profile", "base/domain/link_model"))
BASE = [f"common/base/{name}.c" for name in ("assert", "rng", "status", "str", "utf8", "domain/kv_layout", "domain/content_hash", "domain/model_shape", "domain/sampling")]
TESTS = {"tests/unit/test_mock_rows.c": [ROWS], "tests/unit/test_link_model.c": [PROFILE, LINK]}

# name, why, file, old text (once in the file), new text
Mutant = collections.namedtuple("Mutant", "name why file old new")
MUTANTS = [
    ("values_unread", "a row's value isn't read", ROWS, "content_hash(block + kv_layout_head_run_bytes(layout), bytes)", "keys"),
    ("keys_unread", "a row's key isn't read", ROWS, "return mix(mix(before, keys),", "return mix(mix(before, 0),"),
    ("no_chain", "a block counts without those before it", ROWS, "return mix(mix(before, keys),", "return mix(mix(0, keys),"),
    ("last_block_unread", "a partial block isn't read", ROWS, "context = inside ? add_rows(before, block, kv->layout, inside) : before;", "context = before;"),
    ("drawn_without_the_block", "the token is drawn without the block that isn't full", ROWS,
     "return inside ? add_rows(before, block_of(kv, position + count - 1), kv->layout, inside)\n                  : before;", "return before;"),
    ("stale_block", "the first block is never read again", ROWS, "for (uint32_t at = 0; at + per <= position; at += per)", "for (uint32_t at = per; at + per <= position; at += per)"),
    ("not_through_the_table", "blocks are read where a first sequence has them", ROWS, "(size_t)kv->blocks[position / kv->layout->block_tokens] *",
     "(size_t)(position / kv->layout->block_tokens) *"),
    ("token_unseen", "a row doesn't know its token", ROWS, "((uint64_t)at << 32) | tokens[i]", "(uint64_t)at << 32"),
    ("any_model", "all models have the same contexts", ROWS, "mix(kv->seed, MOCK_VERSION)", "mix(1, MOCK_VERSION)"),
    ("one_seed", "the seed doesn't count", ROWS, "mix(mix(sampling->seed, sampling->choice), sequence->index)", "mix(mix(0, sampling->choice), sequence->index)"),
    ("one_choice", "choices are alike", ROWS, "mix(mix(sampling->seed, sampling->choice), sequence->index)", "mix(mix(sampling->seed, 0), sequence->index)"),
    ("one_index", "the index doesn't count", ROWS, "mix(mix(sampling->seed, sampling->choice), sequence->index)", "mix(sampling->seed, sampling->choice)"),
    ("greedy_draws", "temperature 0 draws by the seed", ROWS, "bool greedy = sampling->temperature <= 0;", "bool greedy = false;"),
    ("ends_unbanned", "an end comes before min_tokens", ROWS, "if (sequence->ban_end && !sampling->ignore_eos &&", "if (false &&"),
    ("stops_unbanned", "a stop id comes before min_tokens", ROWS, "if (sequence->ban_end && among(id, sampling->stop_ids", "if (false && among(id, sampling->stop_ids"),
    ("biases_unread", "a banned token is drawn", ROWS, "if (sampling->biases[i].id == id && sampling->biases[i].bias <= -100)", "if (false)"),
    ("never_complete", "a constraint that may end goes on", ROWS, "if (is_allowed(tokens, sequence, tokens->end_ids[i])) {", "if (false) {"),
    ("smaller_offset", "both: the smaller fixed part counts", PROFILE, "profile->prefill.step_us > decode->step_us", "profile->prefill.step_us < decode->step_us"),
    ("never_large", "many rows cost as few", PROFILE, "profile->large_from && shape->decode_rows >= profile->large_from", "false"),
    ("large_too_late", "the threshold itself is small", PROFILE, "shape->decode_rows >= profile->large_from", "shape->decode_rows > profile->large_from"),
    ("no_tiles", "prompt rows have no stairs", PROFILE, "(shape->prefill_rows + tile - 1) / tile * tile", "shape->prefill_rows"),
    ("no_buckets", "decode rows have no stairs", PROFILE, "profile->decode_buckets[i] >= shape->decode_rows", "false"),
    ("noise_has_a_drift", "noise makes steps longer", PROFILE, " - profile->noise_sigma * profile->noise_sigma / 2", ""),
    ("one_noise", "all steps have the same noise", PROFILE, "STREAM_RADIUS, step)", "STREAM_RADIUS, 0)"),
    ("no_latency", "a flow begins at once", LINK, ".begins_us = now_us + link->latency_us", ".begins_us = now_us"),
    ("unshared", "each flow has the whole link", LINK, "(until_us - link->now_us) * link->bytes_per_us / moving.count", "(until_us - link->now_us) * link->bytes_per_us"),
    ("share_kept", "a flow that is done keeps its share", LINK, "        if (link_done(flow))\n            continue;\n", "        if (link_done(flow)) {\n            moving.count++;\n            continue;\n        }\n"),
    ("early", "a flow moves before it begins", LINK, "if (!link_done(flow) && (double)flow->begins_us <= link->now_us)", "if (!link_done(flow))"),
    ("removed_stays", "a flow that is taken away keeps its share", LINK, "    *place = flow->next;\n", ""),
]


@pytest.fixture(scope="module")
def code():
    return mutants.Code("mock", [*BASE, *TESTS, *sum(TESTS.values(), [])], libraries=["-lcmocka", "-lxxhash", "-lm"])


def first_failure(code, name, objects, test):
    return mutants.first_failure(mutants.run(code.link(name, objects, [test, *TESTS[test], *BASE]), timeout=20))


def test_the_unchanged_code_passes(code):
    assert [first_failure(code, "none", code.objects, test) for test in TESTS] == [None, None]


def test_every_mutant_is_caught(code, capsys):
    def verdict(mutant):
        test = next(test for test, files in TESTS.items() if mutant.file in files)
        return mutant, first_failure(code, mutant.name, code.mutate(mutant.name, [mutant[2:]]), test)
    assert not mutants.survivors(mutants.in_parallel(verdict, mutants.chosen([Mutant(*row) for row in MUTANTS], 4)), capsys)
