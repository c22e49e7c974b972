"""Schemas of bug reports: all are taken. A text of the longest length is taken and one character more isn't, and what is drawn is valid, says the
package jsonschema. Fractions are read as decimals: 0.07 is a multiple of 0.01, but not of the double that is nearest to it."""
import decimal
import json
import subprocess

import pytest
from test_schemas import HERE, PROGRAM, TOKENIZERS, answers, no_constant, validator_of


def read(text):
    return json.loads(text, parse_float=decimal.Decimal, parse_constant=no_constant)


def schemas(name):
    return [read(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines()]


def uri(length):
    return "https://example.com:80/a%20b?q=".ljust(length, "x")


def hostname(length):
    return ("label." * 50)[: length - 2].rstrip(".").ljust(length - 2, "y") + "zz"


def email(length):
    return "first.last+tag@" + hostname(length - len("first.last+tag@"))


def spaced(length):
    """Characters of one to four bytes."""
    return "é" + (" €" * length)[: length - 2] + "🙂"


LENGTHS = [(uri, 2083), (email, 254), (hostname, 253), (spaced, 8192)]  # by line of format_with_length.jsonl
FIELD = [  # by line of refused_in_the_field.jsonl: taken, and not taken
    (['{"e":"a.b@c.de"}', '{"e":"0@a-b.c.org"}'], ['{"e":".a@c.de"}', '{"e":"a..b@c.de"}', '{"e":"A@c.de"}', '{"e":"a@c.d"}', '{"e":"a"}']),
    (['{"p":{"pet":"cat","m":3}}', '{"p":{"pet":"dog","w":1.5}}'], ['{"p":{"m":3}}', '{"p":{"pet":"dog","m":3}}', '{"p":{"pet":"cow","w":1}}']),
    (['{"f":"/a b/\\u00e9"}', '{"f":""}'], ['{"f":1}']),
    (['{"i":"10.0.0.1"}', '{"i":"fe80::1"}'], ['{"i":"10.0.0"}', '{"i":"fe80::1::"}', '{"i":""}']),
    (['{"price":0.01}', '{"price":-12.5}', '{"price":7}', '{"price":0.07}', '{"price":123456789.10}'], ['{"price":0.001}', '{"price":1.125}']),
]


def taken(name, judged, folder):
    """Whether each of the judged, (number of a schema, text), is taken as a whole."""
    path = folder / "judged"
    path.write_text("".join(f"{number}\t{text}\n" for number, text in judged), encoding="utf-8")
    done = subprocess.run([PROGRAM, HERE / name, path], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return [line == "1" for line in done.stdout.splitlines()]


def test_texts_of_the_longest_length_and_one_more(tmp_path):
    name, judged, expected = "format_with_length.jsonl", [], []
    for number, (schema, (text, limit)) in enumerate(zip(schemas(name), LENGTHS, strict=True)):
        (key, value), = schema["properties"].items()
        assert value["maxLength"] == limit
        for length in (limit - 1, limit, limit + 1):
            assert len(text(length)) == length
            answer = {key: text(length)}
            assert validator_of(schema).is_valid(answer) == (length <= limit), (number, length)
            for ascii_only in (False, True):  # a pattern's characters are spelled without escapes
                if ascii_only and not text(length).isascii():
                    continue
                judged.append((number, json.dumps(answer, ensure_ascii=ascii_only)))
                expected.append(length <= limit)
    assert taken(name, judged, tmp_path) == expected


def test_what_the_field_sends(tmp_path):
    name, judged, expected = "refused_in_the_field.jsonl", [], []
    for number, (schema, (good, bad)) in enumerate(zip(schemas(name), FIELD, strict=True)):
        for text, valid in [(text, True) for text in good] + [(text, False) for text in bad]:
            judged.append((number, text))
            expected.append(valid)
            if valid:
                assert validator_of(schema).is_valid(read(text)), (number, text)
    assert taken(name, judged, tmp_path) == expected


@pytest.mark.parametrize("name", ["format_with_length.jsonl", "refused_in_the_field.jsonl"])
def test_what_is_drawn_is_valid(name):
    validators = [validator_of(schema) for schema in schemas(name)]
    seen = set()
    for number, seed, outcome, text in answers(TOKENIZERS["tiny-shakespeare"], HERE / name, 5):
        assert outcome in ("complete", "cut"), (number, seed, outcome, text)
        if outcome == "complete":
            seen.add(number)
            assert validators[number].is_valid(read(text)), (number, seed, text)
    assert len(seen) == len(validators)


def test_answers_that_run_into_the_limit():
    """Nothing is closed as long as anything else may come: the text gets its longest length, and ends."""
    name = HERE / "format_with_length.jsonl"
    done = subprocess.run([PROGRAM, TOKENIZERS["tiny-shakespeare"], name, "1", "9000", "endless"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    drawn = [line.split("\t", 4) for line in done.stdout.split("\n")[:-1]]
    for (number, _, outcome, _, text), schema, (_, limit) in zip(drawn, schemas(name), LENGTHS, strict=True):
        assert outcome == "complete", (number, outcome)
        answer = read(json.loads(text))
        assert validator_of(schema).is_valid(answer), (number, answer)
        assert len(*answer.values()) == limit, (number, answer)
