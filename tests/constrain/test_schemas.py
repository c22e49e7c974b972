"""Answers drawn at random under each schema of schemas.jsonl, at temperature 1.5, over real vocabularies: each that ends is valid, says the package
jsonschema. (Logits are random: generate.h.)"""
import collections
import gzip
import json
import os
import pathlib
import subprocess

import jsonschema
import pytest

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
PROGRAM = pathlib.Path(os.environ["BATON_BUILD"]) / "tests/generate_answers"
SCHEMAS = [json.loads(line) for line in (HERE / "schemas.jsonl").read_text(encoding="utf-8").splitlines()]
SEEDS, MAX_TOKENS = 20 if os.environ.get("BATON_LONG") else 5, 400
COMPLETE = 0.99  # share of all answers; the others are cut off at MAX_TOKENS

TOKENIZERS = {
    "tiny-shakespeare": TOP / "deploy/local/tiny-shakespeare/tokenizer.json",  # 2,048 tokens
    "llama-spm": TOP / "tests/golden/tokenizers/llama-spm.tokenizer.json.gz",  # 32,000, byte fallback, a space that the first token loses
    "gpt-2": TOP / "tests/golden/tokenizers/gpt-2.tokenizer.json",  # 50,257
}


def unpacked(path, folder):
    if path.suffix != ".gz":
        return path
    target = folder / path.stem
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


def answers(tokenizer, schemas, seeds):
    done = subprocess.run([PROGRAM, tokenizer, schemas, str(seeds), str(MAX_TOKENS)], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.split("\n")[:-1]:  # U+2028 ends no line
        number, seed, outcome, _, text = line.split("\t", 4)
        yield int(number), seed, outcome, json.loads(text)


def validator_of(schema):
    kind = jsonschema.validators.validator_for(schema)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def no_constant(name):
    raise ValueError(f"{name} is no JSON")


def test_there_are_a_hundred_schemas_and_they_are_schemas():
    assert len(SCHEMAS) >= 100 and len({schema["title"] for schema in SCHEMAS}) == len(SCHEMAS)
    for schema in SCHEMAS:
        jsonschema.validators.validator_for(schema).check_schema(schema)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_every_complete_answer_is_valid(name, tmp_path):
    validators = [validator_of(schema) for schema in SCHEMAS]
    outcomes, different = collections.Counter(), collections.defaultdict(set)
    for number, seed, outcome, text in answers(unpacked(TOKENIZERS[name], tmp_path), HERE / "schemas.jsonl", SEEDS):
        title = SCHEMAS[number]["title"]
        assert outcome in ("complete", "cut"), f"{title}, seed {seed}: {outcome}: {text!r}"
        outcomes[outcome] += 1
        if outcome == "complete":
            different[number].add(text)
            problem = next(validators[number].iter_errors(json.loads(text, parse_constant=no_constant)), None)
            assert problem is None, f"{title}, seed {seed}: {problem.message}: {text!r}"
    assert sum(outcomes.values()) == len(SCHEMAS) * SEEDS
    assert outcomes["complete"] >= COMPLETE * sum(outcomes.values()), outcomes
    few = [SCHEMAS[number]["title"] for number in different if len(different[number]) < 2]
    assert len(few) <= 10, few  # a constant can't differ


def test_the_same_seed_gives_the_same_answer(tmp_path):
    schemas = tmp_path / "schemas.jsonl"
    schemas.write_text("".join(json.dumps(schema) + "\n" for schema in SCHEMAS[::10]), encoding="utf-8")
    runs = [list(answers(TOKENIZERS["tiny-shakespeare"], schemas, 3)) for _ in range(2)]
    assert runs[0] == runs[1] and len(runs[0]) == 3 * len(SCHEMAS[::10])
