"""The unit tests of the mock engine's pure parts catch every mutant of them. Each is compiled without sanitizers, in a folder of its own."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "mock_mutants"
LONG = bool(os.environ.get("BATON_LONG"))  # otherwise every fourth mutant
FLAGS = ["-std=gnu17", "-O0", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-w"]
ROWS, PROFILE, LINK = (TOP / "common" / name for name in ("engine/mock/mock_rows.c", "base/domain/step_profile.c", "base/domain/link_model.c"))
BASE = [TOP / "common/base" / f"{name}.c" for name in ("assert", "rng", "status", "str", "utf8", "domain/kv_layout", "domain/content_hash", "domain/model_shape",
                                                       "domain/sampling")]
TESTS = {ROWS: TOP / "tests/unit/test_mock_rows.c", PROFILE: TOP / "tests/unit/test_link_model.c", LINK: TOP / "tests/unit/test_link_model.c"}

# name, why, file, old text (once in the file), new text
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


def compile_one(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["cc", *FLAGS, f"-I{TOP}", "-c", str(source), "-o", str(target)], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, f"{source} does not compile:\n{done.stderr}"
    return target


@pytest.fixture(scope="module")
def objects():
    """A run of the unchanged code."""
    shutil.rmtree(BUILD, ignore_errors=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(lambda source: (source, compile_one(source, BUILD / "none" / f"{source.stem}.o")), [*BASE, *TESTS, *set(TESTS.values())]))


def first_failure(folder, objects, test):
    """The first test that fails, or how the program dies."""
    parts = [ROWS] if test == TESTS[ROWS] else [PROFILE, LINK]
    program = folder / test.stem
    subprocess.run(["cc", *(str(objects[source]) for source in [test, *parts, *BASE]), "-lcmocka", "-lxxhash", "-lm", "-o", str(program)], check=True)
    try:
        done = subprocess.run([program], capture_output=True, text=True, errors="replace", timeout=20, env={"PATH": os.environ["PATH"]})
    except subprocess.TimeoutExpired:
        return "never ends"
    names = [line.split()[-1] for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("[  FAILED  ] test_")]
    return names[0] if names else f"ends with {done.returncode}" if done.returncode else None


def verdict(mutant, objects):
    name, _, file, old, new = mutant
    folder = BUILD / name
    text = file.read_text()
    assert text.count(old) == 1, f"{name}: {file.name} has this {text.count(old)} times, not once: {old}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file.name).write_text(text.replace(old, new))
    return mutant, first_failure(folder, {**objects, file: compile_one(folder / file.name, folder / f"{file.stem}.o")}, TESTS[file])


def test_the_unchanged_code_passes(objects):
    assert [first_failure(BUILD / "none", objects, test) for test in sorted(set(TESTS.values()))] == [None, None]


def test_every_mutant_is_caught(objects, capsys):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = list(pool.map(lambda mutant: verdict(mutant, objects), MUTANTS if LONG else MUTANTS[::4]))
    with capsys.disabled():
        print("\n" + "\n".join(f"{mutant[0]:24} {found or 'survives'}" for mutant, found in verdicts))
    assert not [f"{mutant[0]} ({mutant[1]}) survives" for mutant, found in verdicts if not found]
