"""`baton bench prefix-cache` against the same cache written down in thirty lines, on traces made here: conversations that go on,
prompts that begin alike, and prompts that come once."""
import gzip
import json
import math
import os
import pathlib
import random
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
TRACE_BLOCK = 512


def run(*arguments):
    return subprocess.run([BUILD / "bin/baton", "bench", "prefix-cache", *map(str, arguments)], text=True, capture_output=True,
                          timeout=120)


def make_trace(seed, count=300):
    """Prompts as Mooncake's traces have them: (tokens, one id for each started block; equal ids, equal beginnings)."""
    rng, ids, prompts, conversations = random.Random(seed), {}, [], [[("system", i % 3)] for i in range(12)]
    for turn in range(count):
        content = rng.choice(conversations)
        if rng.random() < 0.3:
            content = content[:1]  # begins anew
        content += [("text", turn, i) for i in range(rng.randrange(1, 12))]
        names = [ids.setdefault(tuple(content[:i + 1]), len(ids)) for i in range(len(content))]
        tokens = TRACE_BLOCK * len(content)
        if rng.random() < 0.7:  # an unfinished block, which no other prompt has
            tokens -= rng.randrange(1, TRACE_BLOCK)
            names[-1] = ids.setdefault(("end", turn), len(ids))
        prompts.append((tokens, names))
    return prompts


def write_trace(path, prompts):
    path.write_text("".join(json.dumps({"timestamp": i, "input_length": tokens, "output_length": 1, "hash_ids": names}) + "\n"
                            for i, (tokens, names) in enumerate(prompts)))
    return path


def play(prompts, capacity_tokens, policy, block, even):
    """Hit tokens, evicted blocks, prompts that are too long: everything is scanned, nothing is clever."""
    capacity, tick, age = capacity_tokens // block, 0, 0.0
    cached, hits, evicted, too_long = {}, 0, 0, 0  # (id, part of its block): [parent, weight, frequency, tick, priority]

    def ask(key):
        nonlocal tick
        tick += 1
        entry = cached[key]
        entry[2:4] = entry[2] + 1, tick
        entry[4] = float(tick) if policy == "lru" else age + entry[2] * entry[1]

    for tokens, names in prompts:
        if tokens > capacity * block:
            too_long += 1
            continue
        whole = tokens // block
        keys = [(names[i * block // TRACE_BLOCK], i * block % TRACE_BLOCK) for i in range(whole)]
        known = 0
        while known < (tokens - 1) // block and keys[known] in cached:
            known += 1
        hits += known * block
        for key in keys[:known]:
            ask(key)
        need = -(-tokens // block) - known - (capacity - len(cached))
        for _ in range(need):
            inner = {entry[0] for entry in cached.values()}
            victim = min((key for key in cached if key not in inner and key not in keys[:known]),
                         key=lambda key: (cached[key][4], cached[key][3]))
            age = max(age, cached.pop(victim)[4])
            evicted += 1
        for i in range(known, whole):
            weight = math.sqrt(1 + (i + 0.5) / (even / block)) if even else 1.0
            cached.setdefault(keys[i], [keys[i - 1] if i else None, weight, 0, 0, 0.0])
            ask(keys[i])
    return hits, evicted, too_long


@pytest.mark.parametrize("seed,block,even", [(1, 512, 26624), (2, 512, 0), (3, 256, 4096)])
def test_hits_are_those_of_a_plain_model(tmp_path, seed, block, even):
    prompts = make_trace(seed, 300 if block == 512 else 120)
    capacities = (20 * 512, 64 * 512, 300 * 512)
    flags = [word for capacity in capacities for word in ("--capacity", capacity)]
    done = run("--json", "--block", block, "--even-tokens", even, *flags, write_trace(tmp_path / "t.jsonl", prompts))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["policy"] for line in lines] == ["unlimited"] + 3 * ["lcbfu", "lru"]
    total = sum(tokens for tokens, _ in prompts)
    for line in lines:
        assert line["prompts"] == len(prompts) and line["prompt_tokens"] == total
        assert line["hit_percent"] == pytest.approx(100 * line["hit_tokens"] / total, abs=1e-3)
    assert len({line["hit_tokens"] for line in lines}) > 4  # the capacities and the policies matter
    for line in lines[1:]:
        assert line["hit_tokens"] <= lines[0]["hit_tokens"]
        expected = play(prompts, line["capacity_tokens"], line["policy"], block, even)
        assert (line["hit_tokens"], line["evicted_blocks"], line["too_long"]) == expected, line


def test_room_for_everything_is_an_unlimited_cache(tmp_path):
    prompts = make_trace(4)
    done = run("--json", "--capacity", 4000 * 512, write_trace(tmp_path / "t.jsonl", prompts))
    unlimited, lcbfu, lru = [json.loads(line) for line in done.stdout.splitlines()]
    assert unlimited["hit_tokens"] > 0 and lcbfu["evicted_blocks"] == lru["evicted_blocks"] == 0
    for name in ("hit_tokens", "saved_percent"):
        assert unlimited[name] == lcbfu[name] == lru[name]


def test_the_table(tmp_path):
    trace = write_trace(tmp_path / "t.jsonl", [(600, [0, 1]), (600, [0, 2])])
    done = run("--capacity", 2048, "--capacity", 512, "--even-tokens", 0, trace)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"""{trace}: 2 prompts of 1200 tokens; blocks of 512 tokens
                     hits, tokens   saved, prefill
capacity, tokens    lcbfu     lru    lcbfu     lru
       unlimited           42.67%           42.67%
            2048   42.67%  42.67%   42.67%  42.67%
             512    0.00%   0.00%    0.00%   0.00%
                 longer than that: 2 prompts, which count as misses
"""


GOOD = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}\n'


@pytest.mark.parametrize("text,told", [
    ("", "t.jsonl has no lines"),
    (GOOD + "\n", "t.jsonl:2: "),
    (GOOD + "[]\n", "t.jsonl:2: "),
    (GOOD.replace("600", "0"), "t.jsonl:1: "),
    (GOOD.replace("600", str(2**22 + 1)), "t.jsonl:1: "),
    (GOOD.replace("600", "512"), "512 tokens are 1 started blocks of 512, but there are 2 hash_ids"),
    (GOOD.replace("[0, 1]", "[0, -1]"), "t.jsonl:1: "),
    (GOOD.replace("[0, 1]", f"[0, {2**26}]"), "t.jsonl:1: "),
    (GOOD.replace("[0, 1]", '[0, "1"]'), "t.jsonl:1: "),
    (GOOD.replace("[0, 1]", "[" * 10 + "]" * 10), "t.jsonl:1: "),
    (GOOD.replace("}", " " * 2**20 + "}"), "t.jsonl:1: longer than 1048576 bytes"),
    (GOOD + "\0" + GOOD, "t.jsonl:2: has a NUL byte: it is not a trace"),
    (GOOD + GOOD.rstrip() + "\0", "t.jsonl:2: has a NUL byte: it is not a trace"),
])
def test_a_trace_that_is_none_is_refused(tmp_path, text, told):
    (tmp_path / "t.jsonl").write_text(text)
    done = run(tmp_path / "t.jsonl")
    assert done.returncode == 1 and told in done.stderr, done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1


def test_a_compressed_trace_is_refused(tmp_path):
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(GOOD.encode()))
    done = run(tmp_path / "t.jsonl.gz")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("t.jsonl.gz is compressed by gzip: unpack it first\n")


@pytest.mark.parametrize("flags,told", [
    (["--capacity", "511"], "--capacity 511: must be a number of tokens from 512 to 268435456"),
    (["--capacity", str(2**28 + 1)], "must be a number of tokens from 512 to 268435456"),
    (["--block", "48"], "--block 48 does not divide 512"),
])
def test_settings_that_cannot_be(tmp_path, flags, told):
    done = run(*flags, write_trace(tmp_path / "t.jsonl", [(1, [0])]))
    assert done.returncode == 2 and told in done.stderr


def test_a_file_that_is_not_there(tmp_path):
    done = run(tmp_path / "none.jsonl")
    assert done.returncode == 1 and "cannot open" in done.stderr
