"""Encode, decode and streamed decode against the `tokenizers` package: random texts and random ids through each family's tokenizer, and
through pipelines put together at random. Prints the seed; BATON_TEXTS_SEED=n repeats one, BATON_TEXTS_COUNT=n changes how many."""
import gzip
import itertools
import json
import os
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import random_pipelines  # noqa: E402
from random_texts import texts  # noqa: E402
from tokenizers import Tokenizer, normalizers  # noqa: E402

FOLDER = Path(__file__).parent / "tokenizers"
BATON = Path(os.environ.get("BATON_BUILD", "build/debug")).resolve() / "bin/baton"
SEED = int(os.environ.get("BATON_TEXTS_SEED", random.SystemRandom().randrange(1 << 32)))
LONG = bool(os.environ.get("BATON_LONG"))  # tests/run --long
COUNT = int(os.environ.get("BATON_TEXTS_COUNT", 10000 if LONG else 200))  # in all
SMALL = ["gpt2", "llama2", "llama3", "mistral-metaspace", "qwen2", "tekken"]
PUBLISHED = ["gpt-2", "deepseek-llm", "llama-spm"]
FAMILIES = SMALL + PUBLISHED
BYTE_FALLBACK = ["llama2", "llama-spm", "mistral-metaspace"]
PIPELINES = int(os.environ.get("BATON_PIPELINES_COUNT", 25 if LONG else 3))


def file_of(name, folder):
    path = FOLDER / f"{name}.tokenizer.json.gz"
    if path.exists():
        unpacked = folder / f"{name}.json"
        unpacked.write_bytes(gzip.decompress(path.read_bytes()))
        return unpacked
    return FOLDER / (f"{name}.json" if name in SMALL else f"{name}.tokenizer.json")


def newer_marks():
    """Marks that the package's form C doesn't know: its tables are Unicode 9's, ours 14's. docs/tokenizers.md tells of them."""
    form_c = normalizers.NFC()
    marks = [chr(code) for code in range(0x300, 0x20000) if unicodedata.combining(chr(code))]
    hard = [("q" + mark + "\u0334", "q\u0345" + mark) for mark in marks]
    found = [mark for mark, pair in zip(marks, hard) if any(form_c.normalize_str(t) != unicodedata.normalize("NFC", t) for t in pair)]
    assert len(found) < 200
    return found


def without(characters, inputs):
    table = str.maketrans("", "", "".join(characters))
    return [text.translate(table) for text in inputs]


def baton(command, path, inputs, *flags):
    lines = "".join(json.dumps(value) + "\n" for value in inputs)
    done = subprocess.run([BATON, command, "--tokenizer", path, "--jsonl", *flags], input=lines, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def check(what, inputs, got, expected):
    assert len(got) == len(inputs)
    wrong = [n for n in range(len(inputs)) if got[n] != expected[n]]
    shown = "\n".join(f"{inputs[n]!a}: {got[n]!a} instead of {expected[n]!a}" for n in wrong[:5])
    assert not wrong, f"seed {SEED}: {what} differs for {len(wrong)} of {len(inputs)}:\n{shown}"


def check_encode(reference, path, inputs, special):
    expected = [encoding.ids for encoding in reference.encode_batch(inputs, add_special_tokens=special)]
    check("encode", inputs, baton("tokenize", path, inputs, "--special" if special else "--no-special"), expected)
    return expected


def check_decode(reference, path, inputs, keep_special, whole=True, streamed=True):
    flags = ["--special" if keep_special else "--no-special"]
    decoded = [reference.decode(ids, skip_special_tokens=not keep_special) for ids in inputs]
    if whole:
        check("decode", inputs, baton("detokenize", path, inputs, *flags), decoded)
    if streamed:
        pieces = baton("detokenize", path, inputs, "--pieces", *flags)
        check("streamed decode", inputs, ["".join(parts) for parts in pieces], decoded)


@pytest.mark.parametrize("name", FAMILIES)
def test_random_texts(name, tmp_path):
    print(f"seed {SEED}")
    path = file_of(name, tmp_path)
    reference = Tokenizer.from_file(str(path))
    added = [token.content for token in reference.get_added_tokens_decoder().values()]
    inputs = texts(SEED + FAMILIES.index(name), -(-COUNT // len(FAMILIES)), added[:50])
    if name == "qwen2":
        inputs = without(newer_marks(), inputs)
    plain = check_encode(reference, path, inputs, special=False)
    check_decode(reference, path, plain, keep_special=True)
    if reference.post_processor:
        special = check_encode(reference, path, inputs, special=True)
        check_decode(reference, path, special, keep_special=False, whole=False)


@pytest.mark.parametrize("name", SMALL)
def test_random_ids(name, tmp_path):
    print(f"seed {SEED}")
    path = file_of(name, tmp_path)
    reference = Tokenizer.from_file(str(path))
    rnd = random.Random(SEED)
    size = reference.get_vocab_size()
    inputs = [[rnd.randrange(size if rnd.random() < 0.5 else min(size, 400)) for _ in range(rnd.randint(1, 20))] for _ in range(500 if LONG else 250)]
    # A stream doesn't take back characters of a run of byte tokens with a malformed end: detokenizer.h.
    check_decode(reference, path, inputs, keep_special=False, streamed=name not in BYTE_FALLBACK)


@pytest.mark.parametrize("name,unknown,fuse", [("gpt2", None, False), ("gpt2", "<|endoftext|>", False), ("llama3", "<|endoftext|>", True)],
                         ids=["dropped", "unknown", "fused"])
def test_bytes_without_a_token(name, fuse, unknown, tmp_path):
    """As StarCoder's vocabulary, which lacks 0xF1 and others: such a byte becomes the unknown token where there is one, else nothing."""
    print(f"seed {SEED}")
    rnd, pipeline, path = random.Random(SEED), json.loads((FOLDER / f"{name}.json").read_text()), tmp_path / "tokenizer.json"
    gone = random_pipelines.drop_bytes(rnd, pipeline["model"], 40)
    pipeline["model"].update(unk_token=unknown, fuse_unk=fuse)
    path.write_text(json.dumps(pipeline))
    reference = Tokenizer.from_file(str(path))
    some = "".join(bytes([byte]).decode() for byte in gone if byte < 0x80)
    inputs = texts(SEED, 150, [some, "\U00040000\U000f1fff", "ñ" + some + "é"]) + ["", some, some * 3, "a" + some + "b", "\U00100000x"]
    ids = check_encode(reference, path, inputs, special=False)
    check_decode(reference, path, ids, keep_special=True)
    if unknown:
        assert any(pipeline["model"]["vocab"][unknown] in each for each in ids)


REPLACE = {"type": "Replace"}
STARTS = {  # a normalizer: texts with a start that it changes
    "one for several": ([REPLACE | {"pattern": {"Regex": "a+"}, "content": "-"}], ["ab", "aab", "aaab", "baa", "aa", " aa"]),
    "one for a long one": ([REPLACE | {"pattern": {"Regex": "é+"}, "content": "-"}], ["éb", "ééb", "bé"]),
    "several for one": ([REPLACE | {"pattern": {"String": "a"}, "content": "écd"}], ["ab", "aab", "b"]),
    "several for several": ([REPLACE | {"pattern": {"String": "aa"}, "content": "écd"}], ["aa", "aab", "ab", "aaaab"]),
    "none": ([REPLACE | {"pattern": {"String": "a"}, "content": ""}], ["ab", "aab", "ba", "a b"]),
    "put in front": ([{"type": "Prepend", "prepend": "ab"}], ["b", "ab", "é b", " b"]),
    "one, then several": ([REPLACE | {"pattern": {"String": "aa"}, "content": "-"}, REPLACE | {"pattern": {"String": "-"}, "content": "cc"}], ["aab", "ab", "-b"]),
    "in front, then one": ([{"type": "Prepend", "prepend": "a"}, REPLACE | {"pattern": {"Regex": "a+"}, "content": "-"}], ["b", "ab", "aab", "é"]),
    "in front, then none": ([{"type": "Prepend", "prepend": "a"}, REPLACE | {"pattern": {"String": "a"}, "content": ""}], ["b", "ab", "aab", "é"]),
    "in front, then over it": ([{"type": "Prepend", "prepend": "a"}, REPLACE | {"pattern": {"String": "ab"}, "content": "-"}], ["b", "bb", "ab"]),
    "composed": ([{"type": "NFC"}, REPLACE | {"pattern": {"String": "é"}, "content": "-"}], ["e\u0301b", "éb", "\u0301b", "\u0958b", "e\u0301\u0301b"]),
    "composed behind": ([{"type": "Prepend", "prepend": "a"}, {"type": "NFC"}, REPLACE | {"pattern": {"Regex": "á"}, "content": "c"}], ["\u0301b", "b", "e\u0301"]),
}
WORDS = [[], [{"type": "Split", "pattern": {"Regex": "[-c]|(?<=b)"}, "behavior": "Isolated", "invert": False}], [{"type": "WhitespaceSplit"}]]


@pytest.mark.parametrize("name", STARTS)
def test_where_a_text_starts(name, tmp_path):
    # Metaspace's "first" goes by where a piece starts in the text as it came, through all that was made of it since.
    normalizers, inputs = STARTS[name]
    inputs = inputs + [text + " " + text for text in inputs] + ["<s>" + text for text in inputs] + [text + "<s>" + text for text in inputs]
    pipeline = json.loads((FOLDER / "llama2.json").read_text())
    pipeline["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    vocab, special = pipeline["model"]["vocab"], pipeline["added_tokens"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False) | {"normalized": True}
    tokens = [{"id": id, "content": content} | flags for content, id in (("é", vocab["é"]), ("cd", len(vocab)))]
    path = tmp_path / "tokenizer.json"
    firsts = set()
    kinds = list(itertools.product(WORDS, (False, True), ([], tokens)))
    for words, split, added in kinds if LONG else kinds[list(STARTS).index(name) % 4::4]:  # all of them with one text or another
        metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": split}
        path.write_text(json.dumps(pipeline | {"added_tokens": special + added, "pre_tokenizer": {"type": "Sequence", "pretokenizers": words + [metaspace]}}))
        reference = Tokenizer.from_file(str(path))
        check_encode(reference, path, inputs, special=False)
        firsts |= {reference.encode(text, add_special_tokens=False).tokens[0][:1] for text in inputs}
    assert "▁" in firsts and len(firsts) > 1


def without_panics(reference, inputs):
    """The package ends a thread ("AddedVocabulary bad split") where one added token strips what another one's match has."""
    kept = []
    for text in inputs:
        try:
            reference.encode(text)
            kept.append(text)
        except BaseException as error:
            assert type(error).__name__ == "PanicException", error
    assert len(kept) > len(inputs) * 0.9
    return kept


def test_random_pipelines(tmp_path):
    print(f"seed {SEED}")
    rnd = random.Random(SEED)
    models = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("gpt2", "llama2")}
    path = tmp_path / "tokenizer.json"
    marks = newer_marks() + random_pipelines.newer_punctuation()
    for _ in range(PIPELINES):
        pipeline = random_pipelines.make(rnd, models)
        path.write_text(json.dumps(pipeline))
        reference = Tokenizer.from_file(str(path))
        added = [token["content"] for token in pipeline["added_tokens"]]
        inputs = without_panics(reference, without(marks, texts(rnd.randrange(1 << 32), 60, added)))
        try:
            ids = check_encode(reference, path, inputs, special=True)
            check_decode(reference, path, ids, keep_special=True)
        except AssertionError as error:
            kept = {key: value for key, value in pipeline.items() if key != "model"}
            settings = {key: value for key, value in pipeline["model"].items() if key not in ("vocab", "merges")}
            raise AssertionError(f"{json.dumps(kept)} {json.dumps(settings)}: {error}") from None
