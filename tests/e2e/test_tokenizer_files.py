"""A tokenizer.json that can't be served: every program says so when it starts, with the component's name and place. One in
SentencePiece's style, served: text in, text out, at once and streamed."""
import json
import shutil
import subprocess

import pytest
from client import pb
from harness import BUILD, TOP

TOKENIZER = TOP / "tests/golden/tokenizers/llama2.json"
SENTENCE = '"pre_tokenizer": "pretokenizers"[1]: "UnicodeScripts" isn\'t supported'


@pytest.fixture
def model(tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(TOP / "tests/golden/models/llama" / name, tmp_path)
    spec = json.loads(TOKENIZER.read_text())
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, {"type": "UnicodeScripts"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    return tmp_path


def refused(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
    assert done.returncode not in (0, -6, -11), done
    return done.stdout + done.stderr


def test_tokenize_names_it(model):
    assert f"{model}/tokenizer.json: {SENTENCE}" in refused(BUILD / "bin/baton", "tokenize", "--tokenizer", model / "tokenizer.json", "x")
    assert f"{model}/tokenizer.json: {SENTENCE}" in refused(BUILD / "bin/baton", "detokenize", "--tokenizer", model, "1")


def test_the_router_names_it(model):
    said = refused(BUILD / "bin/baton-router", "--model", model, "--listen", "127.0.0.1:0").replace('\\"', '"')
    assert f"{model}/tokenizer.json: {SENTENCE}" in said


def test_up_names_it(model):
    said = refused(BUILD / "bin/baton", "up", "--no-pin", "--no-restart", "--model", model).replace('\\"', '"')
    assert f"{model}/tokenizer.json: {SENTENCE}" in said


@pytest.fixture
def small_model(tmp_path):
    """Ids below the golden model's 384: byte tokens and characters."""
    folder = tmp_path / "model"
    shutil.copytree(TOP / "tests/golden/models/llama", folder)
    spec = json.loads(TOKENIZER.read_text())
    model = spec["model"]
    model["vocab"] = kept = {token: id for token, id in model["vocab"].items() if id < 384}
    model["merges"] = [m for m in model["merges"] if {*m.split(" "), m.replace(" ", "")} <= kept.keys()]
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    return folder


def test_byte_fallback_is_served(start_cluster, connect, small_model):
    cluster = start_cluster(model=small_model)
    client = connect(cluster)
    prompt = "Hi  w\u00f6rld \U0001f642"
    asked = [BUILD / "bin/baton", "tokenize", "--tokenizer", small_model / "tokenizer.json", prompt]
    ids = list(map(int, subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()))
    assert ids[0] == 1, "a begin token"
    assert ids == list(client.stub.Tokenize(pb.TokenizeRequest(text=prompt), timeout=10).ids)
    asked = [BUILD / "bin/baton", "detokenize", "--tokenizer", small_model / "tokenizer.json", " ".join(map(str, ids))]
    text = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert text == client.stub.Detokenize(pb.DetokenizeRequest(ids=ids), timeout=10).text + "\n" and text.startswith("<s>")
    from_text = client.generate(prompt, temperature=0, max_tokens=40, ignore_eos=True)
    from_ids = client.generate(ids, temperature=0, max_tokens=40, ignore_eos=True)
    assert from_text.ids == from_ids.ids and from_text.text == from_ids.text and len(from_text.ids) == 40
    command = [BUILD / "bin/baton", "detokenize", "--no-special", "--jsonl", "--pieces", "--tokenizer", small_model / "tokenizer.json"]
    pieces = json.loads(subprocess.run(command, input=json.dumps(list(from_text.ids)), capture_output=True, text=True, check=True).stdout)
    assert from_text.text == "".join(pieces) and from_text.text
