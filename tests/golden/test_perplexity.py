"""`baton perplexity` of the model that ships, against a forward pass written in numpy that gives transformers' figure on the whole
held-out text (perplexity/make_perplexity.py). docs/benchmarks.md has the whole text's figures."""
import json
import os
import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
LONG = bool(os.environ.get("BATON_LONG"))
MODEL, HERE = TOP / "deploy/local/tiny-shakespeare", TOP / "tests/golden/perplexity"
EXPECTED = json.loads((HERE / "expected.json").read_text())


def perplexity(*arguments):
    return subprocess.run([BUILD / "bin/baton", "perplexity", *map(str, arguments)], text=True, capture_output=True, timeout=300)


EACH_ALONE = [(["--weights", "int8"], "/w-int8", 0.5), (["--kv", "int8"], "/w-bf16/kv-int8/", 0.5), (["--weights", "int4"], "/w-int4", 3)]


@pytest.mark.parametrize("flags,numerics,percent", [
    (["--compute", "f32"], "f32/w-f32", 0.01),
    (["--threads", "2"], "bf16-", 0.1),
    (["--weights", "int8", "--kv", "int8"], "/w-int8/kv-int8/", 0.5),
    (["--weights", "int4", "--kv", "int8"], "/w-int4/kv-int8/", 3),
] + EACH_ALONE * LONG)
def test_perplexity_is_the_reference_s(flags, numerics, percent):
    done = perplexity("--model", MODEL, *flags, "--json", HERE / "part.txt")
    assert done.returncode == 0 and 'mod=weights msg="loaded"' in done.stderr, done.stderr  # how far a load is has the same level
    told = json.loads(done.stdout)
    assert numerics in told["numerics"]
    assert {name: told[name] for name in ("tokens", "window", "scored")} == {name: EXPECTED[name] for name in ("tokens", "window", "scored")}
    assert told["perplexity"] == pytest.approx(EXPECTED["perplexity"], rel=percent / 100)


@pytest.fixture(scope="module")
def one_window(tmp_path_factory):
    """A text, and what f32 makes of it with weights and KV as they are, which the test above compares: the reference kernels take long
    to widen int4."""
    text = tmp_path_factory.mktemp("window") / "text"
    text.write_text((HERE / "part.txt").read_text()[:1800])
    told = json.loads(perplexity("--model", MODEL, "--compute", "f32", "--json", text).stdout)
    assert told["scored"] == EXPECTED["window"] - 1
    return text, told["perplexity"]


OF_INT4 = [(["--weights", "int4"], "f32/w-int4/kv-f32/", 3), (["--weights", "int4", "--kv", "int8"], "f32/w-int4/kv-int8/", 3)]


@pytest.mark.parametrize("flags,numerics,percent", [
    (["--weights", "int8"], "f32/w-int8/kv-f32/", 0.5),
    (["--kv", "int8"], "f32/w-f32/kv-int8/", 0.5),
] + OF_INT4 * LONG)
def test_f32_takes_every_weight_and_kv_type(one_window, flags, numerics, percent):
    text, expected = one_window
    done = perplexity("--model", MODEL, "--compute", "f32", *flags, "--json", text)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["numerics"].startswith(numerics) and told["perplexity"] == pytest.approx(expected, rel=percent / 100)
    assert told["perplexity"] != expected


@pytest.mark.parametrize("compute,isa,told", [("f32", "auto", "portable"), ("fast", "portable", "portable"), ("fast", "auto", None)])
def test_it_says_what_it_computed_with(tmp_path, compute, isa, told):
    (tmp_path / "text").write_text((HERE / "part.txt").read_text()[:400])
    flags = ["--model", MODEL, "--window", 64, "--compute", compute, "--isa", isa, tmp_path / "text"]
    shown = json.loads(perplexity(*flags, "--json").stdout)
    assert shown["isa"] == told if told else shown["isa"] not in ("", "auto")
    assert perplexity(*flags).stdout.startswith(f"{shown['numerics']} on {shown['isa']}: ")


def test_windows_do_not_see_each_other(tmp_path):
    """Tokens after the last whole window aren't scored, and half windows make a worse model."""
    text = (HERE / "part.txt").read_text()
    (tmp_path / "text").write_text(text[:2000])
    done = perplexity("--model", MODEL, "--window", 64, tmp_path / "text")
    told = re.match(r"\S+/w-\S+ on \w+: (\d+) tokens, windows of (\d+), (\d+) scored: \d+\.\d{6} nats, perplexity \d+\.\d{4}\n$", done.stdout)
    count, window, scored = (int(number) for number in told.groups())
    assert (window, scored) == (64, count // 64 * 63)


@pytest.mark.parametrize("text,flags,told", [
    ("too short", [], "tokens, fewer than one window of 512: a longer text, or a smaller --window"),
    ("b\udcff", [], "text: the text isn't valid UTF-8 at byte 1"),
    ("short", ["--window", "2049"], "a window of 2049 tokens does not fit the model's context of 2048"),
    (None, [], "cannot open"),
])
def test_a_text_that_cannot_be_scored_is_refused(tmp_path, text, flags, told):
    if text is not None:
        (tmp_path / "text").write_text(text, errors="surrogateescape")
    done = perplexity("--model", MODEL, *flags, tmp_path / "text")
    assert done.returncode == 1 and told in done.stderr and done.stdout == ""


def test_standard_input_is_a_text_like_another(tmp_path):
    text = (HERE / "part.txt").read_text()[:600]
    (tmp_path / "text").write_text(text)
    flags = ["perplexity", "--model", MODEL, "--window", "64"]
    of_file, of_input = (subprocess.run([BUILD / "bin/baton", *flags, name], input=text, text=True, capture_output=True, timeout=120)
                         for name in (tmp_path / "text", "-"))
    assert of_file.returncode == 0 and of_file.stdout == of_input.stdout, of_input.stderr


def test_a_folder_without_a_tokenizer_is_told_what_for(tmp_path):
    (tmp_path / "config.json").write_text((MODEL / "config.json").read_text())
    done = perplexity("--model", tmp_path, HERE / "part.txt")
    told = f"baton perplexity: {tmp_path}/tokenizer.json: No such file or directory; perplexity needs a tokenizer\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_a_folder_is_no_text(tmp_path):
    done = perplexity("--model", MODEL, tmp_path)
    assert (done.returncode, done.stderr) == (1, f"baton perplexity: cannot read {tmp_path}: Is a directory\n")


@pytest.mark.parametrize("at", [1, 63])
def test_a_token_that_the_model_has_not_is_refused(tmp_path, at):
    """The last of a window is scored, and is no input of the engine, which refuses others itself."""
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).symlink_to(MODEL / name)
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][0] | {"id": vocab, "content": "<|other|>"})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "text").write_text("<|endoftext|>" * at + "<|other|>" + "<|endoftext|>" * (63 - at))
    done = perplexity("--model", model, "--window", 64, tmp_path / "text")
    told = f"the text's token {at + 1} has the id {vocab}, but the model has {vocab}: its tokenizer.json is another model's\n"
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.endswith(told), done.stderr


def test_a_text_without_an_end_is_refused():
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([BUILD / "bin/baton", "perplexity", "--model", MODEL, "-"], stdin=endless, text=True, capture_output=True, timeout=60)
    assert done.returncode == 1 and "- is longer than" in done.stderr
