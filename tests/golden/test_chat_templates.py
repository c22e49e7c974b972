"""baton chat-template against jinja2 as transformers sets it up: published templates with their recorded outputs and with conversations made
up at random, and a small template for each construct. Prints the seed; BATON_CHATS_SEED=n repeats one, BATON_CHATS_COUNT=n changes how many."""
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from jinja_as_transformers import environment, render  # noqa: E402
from random_texts import texts  # noqa: E402
from test_tokenizers_package import newer_marks  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

FOLDER = Path(__file__).parent / "chat_templates"
TEMPLATES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
BATON = Path(os.environ.get("BATON_BUILD", "build/debug")).resolve() / "bin/baton"
SEED = int(os.environ.get("BATON_CHATS_SEED", 20260726))
COUNT = int(os.environ.get("BATON_CHATS_COUNT", 200 if os.environ.get("BATON_LONG") else 30))


def baton(path, records):
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    done = subprocess.run([BATON, "chat-template", "--template", path, "--jsonl", "--now", "2026-07-26"], input=lines, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def check(path, records, expected):
    got = baton(path, records)
    assert len(got) == len(records)
    wrong = [n for n in range(len(records)) if got[n] != expected[n]]
    shown = "\n".join(f"{records[n]!a}:\n  {got[n]!a} instead of\n  {expected[n]!a}" for n in wrong[:3])
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(records)} differ:\n{shown}"


@pytest.mark.parametrize("name", TEMPLATES)
def test_recorded_outputs(name):
    recorded = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    records = [{key: value for key, value in record.items() if key not in ("text", "error")} for record in recorded]
    assert len(records) == 24
    check(FOLDER / f"{name}.jinja", records, [{key: record[key] for key in ("text", "error") if key in record} for record in recorded])


# ------------------------------------------------------------------------------------- conversations
WORDS = ["Hello", "world", "né", "漢字", "🙂", "  ", "\n", "\n\n", "\t", "<|im_start|>", "<|im_end|>", "</s>", "[INST]", "<think>", "</think>", "it's", '"quoted"', "\\n", "{{ x }}",
         "{% if %}", "a<b>&c", "/no_think", "/think", "\u2028", "e\u0301", "<tool_response>", "</tool_response>", "code_interpreter", "0", "\u200b", "ß", "\x7f"]
NAMES = ["get_weather", "search", "brave_search", "code_interpreter", "求める"]


def text(rnd):
    return "".join(rnd.choice(WORDS) + rnd.choice(["", " "]) for _ in range(rnd.choice([0, 1, 1, 2, 3, 5, 12])))


def value(rnd, depth=0):
    kind = rnd.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [value(rnd, depth + 1) for _ in range(rnd.randrange(4))]
    if kind == 7:
        return {rnd.choice(["city", "unit", "items", "keys", "x", "né", "a b"]) + str(n): value(rnd, depth + 1) for n in range(rnd.randrange(4))}
    return [text(rnd), rnd.randrange(-5, 10 ** rnd.randrange(1, 18)), rnd.choice([0.5, 1e-7, 1e22, -2.0, 3.14159, 1e16]), rnd.random() < 0.5, None, "Paris"][kind]


def arguments(rnd):
    made = {key: value(rnd, 1) for key in rnd.sample(["city", "unit", "query", "n"], rnd.randrange(4))}
    return json.dumps(made) if rnd.random() < 0.3 else made


def tool(rnd):
    properties = {key: {"type": rnd.choice(["string", "integer", "array"]), "description": text(rnd)} for key in rnd.sample(["city", "unit", "query"], rnd.randrange(1, 4))}
    function = {"name": rnd.choice(NAMES), "description": text(rnd), "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}
    if rnd.random() < 0.3:
        function["return"] = {"type": "string"}
    return {"type": "function", "function": function}


def content(rnd):
    kind = rnd.random()
    if kind < 0.08:
        return [{"type": "text", "text": text(rnd)} for _ in range(rnd.randrange(3))]
    if kind < 0.12:
        return None
    return text(rnd)


def assistant(rnd, tools):
    message = {"role": "assistant", "content": content(rnd)}
    if rnd.random() < 0.3:
        message["content"] = f"<think>\n{text(rnd)}\n</think>\n\n{text(rnd)}"
    if rnd.random() < 0.2:
        message["reasoning_content"] = rnd.choice([text(rnd), None])
    if tools and rnd.random() < 0.5:
        calls = [{"id": rnd.choice(["abcdefghi", "123456789", "short"]), "type": "function", "function": {"name": rnd.choice(NAMES), "arguments": arguments(rnd)}}
                 for _ in range(rnd.choice([1, 1, 1, 2, 0]))]
        message["tool_calls"] = calls
        if rnd.random() < 0.3:
            del message["content"]
    elif rnd.random() < 0.1:
        message["tool_calls"] = None
    return message


def conversation(rnd):
    tools = [tool(rnd) for _ in range(rnd.randrange(1, 4))] if rnd.random() < 0.4 else rnd.choice([None, None, None, []])
    messages = [{"role": "system", "content": text(rnd)}] if rnd.random() < 0.5 else []
    for _ in range(rnd.randrange(1, 5)):
        messages.append({"role": "user", "content": content(rnd)})
        if rnd.random() < 0.75:
            messages.append(assistant(rnd, tools))
            for call in messages[-1].get("tool_calls") or []:
                answer = {"role": rnd.choice(["tool", "tool", "ipython", "tool_results"]), "name": call["function"]["name"], "content": value(rnd) if rnd.random() < 0.2 else text(rnd)}
                messages.append(answer | ({"tool_call_id": call["id"]} if rnd.random() < 0.8 else {}))
    if rnd.random() < 0.1:
        rnd.shuffle(messages)
    if rnd.random() < 0.05:
        messages.append({"role": rnd.choice(["developer", "observer", "", "<|im_end|>"]), "content": text(rnd)})
    return messages, tools


def record(rnd):
    messages, tools = conversation(rnd)
    kwargs = {key: rnd.choice(values) for key, values in {"enable_thinking": [True, False], "date_string": ["1 Jan 2026", "né"], "tools_in_user_message": [True, False],
              "builtin_tools": [["code_interpreter", "brave_search"], ["search"]], "custom_tools": [[tool(rnd)]], "unused": [value(rnd)]}.items() if rnd.random() < 0.2}
    return {"messages": messages, "tools": tools, "add_generation_prompt": rnd.random() < 0.5, "bos": "<s>", "eos": "</s>", "chat_template_kwargs": kwargs,
            "documents": [{"title": text(rnd), "text": text(rnd)}] if rnd.random() < 0.1 else None}


@pytest.mark.parametrize("name", TEMPLATES)
def test_generated_conversations(name):
    print(f"seed {SEED}")
    rnd = random.Random(SEED)
    records = [record(rnd) for _ in range(COUNT)]
    path = FOLDER / f"{name}.jinja"
    template = environment().from_string(path.read_text(encoding="utf-8"))
    expected = [render(template, r) for r in records]
    assert sum("text" in e for e in expected) > COUNT // 10
    check(path, records, expected)


# ------------------------------------------------------------------------------------- constructs
MESSAGES = [{"role": "user", "content": "Hello né 漢字 🙂 <b>"}, {"role": "assistant", "content": "  hi \n there  "}]
VARIABLES = {"a": 1, "b": 2.5, "c": "text", "d": {"x": 1, "y": [1, 2, {"z": None}], "items": 5}, "e": [3, 1, 2], "f": True, "n": None, "words": ["b", "A", "c", "a"],
             "big": 1e16, "small": 1e-5, "people": [{"name": "Bob", "age": 3}, {"name": "al", "age": 1}, {"name": "Cy"}]}
CONSTRUCTS = (FOLDER / "constructs.txt").read_text(encoding="utf-8")[:-1].split("\n===\n")


def test_constructs(tmp_path):
    """Many that end well are one template, as a program's start takes longer than they all do; where one differs, its half is looked at, and so on."""
    assert len(CONSTRUCTS) > 140
    one = {"messages": MESSAGES, "add_generation_prompt": False, "bos": "<s>", "eos": "</s>", "chat_template_kwargs": VARIABLES}

    def expected(source):
        return render(environment().from_string(source), one)

    def wrong(sources):
        source = "\n===\n".join(sources)
        wanted = expected(source)
        if len(sources) == 1 or "text" in wanted:
            path = tmp_path / "template.jinja"
            path.write_text(source, encoding="utf-8")
            got = baton(path, [one])[0]
            if got == wanted:
                return []
            if len(sources) == 1:
                return [f"{source!a}: {got!a} instead of {wanted!a}"]
        half = len(sources) // 2
        found = wrong(sources[:half]) + wrong(sources[half:])
        return found if found or "text" not in wanted else [f"each is right alone, and not together: {source!a}"]
    sound = [source for source in CONSTRUCTS if "text" in expected(source)]
    assert len(sound) > 80
    told = sum((wrong([source]) for source in CONSTRUCTS if source not in sound), []) + sum((wrong(sound[first:first + 25]) for first in range(0, len(sound), 25)), [])
    assert not told, "\n".join(told)


# ------------------------------------------------------------------------------------- special tokens
@pytest.mark.parametrize("name", ["gpt2", "llama2", "llama3", "mistral-metaspace", "qwen2", "tekken"])
def test_what_a_message_spells_is_text(name, tmp_path):
    # The package's own way to encode special tokens as text, and a prompt that is nothing but a message.
    path = FOLDER.parent / "tokenizers" / f"{name}.json"
    (tmp_path / "tokenizer.json").write_bytes(path.read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    reference = Tokenizer.from_file(str(path))
    reference.encode_special_tokens = True
    special = [token.content for token in reference.get_added_tokens_decoder().values()]
    rnd = random.Random(SEED)
    marks = str.maketrans("", "", "".join(newer_marks()))
    inputs = [t.translate(marks) + rnd.choice(special) * rnd.randrange(3) for t in texts(SEED, 400, special)]
    lines = "".join(json.dumps({"messages": [{"role": "user", "content": t}]}) + "\n" for t in inputs)
    done = subprocess.run([BATON, "chat-template", "--model", tmp_path, "--jsonl", "--ids"], input=lines, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    got = [json.loads(line)["ids"] for line in done.stdout.split("\n")[:-1]]
    expected = [encoding.ids for encoding in reference.encode_batch(inputs, add_special_tokens=False)]
    wrong = [n for n in range(len(inputs)) if got[n] != expected[n]]
    assert not wrong, f"seed {SEED}: {inputs[wrong[0]]!a}: {got[wrong[0]]} instead of {expected[wrong[0]]}"


# ------------------------------------------------------------------------------------- the command
def run(arguments, text):
    return subprocess.run([BATON, "chat-template", *map(str, arguments)], input=text, capture_output=True, text=True, encoding="utf-8")


def test_command_line(tmp_path):
    hello = {"messages": [{"role": "user", "content": "hi"}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ strftime_now('|%F %T') }}{{ add_generation_prompt }}"}))
    done = run(["--model", tmp_path, "--now", "2026-07-26T10:20:30"], json.dumps(hello, indent=2))
    assert (done.returncode, done.stdout) == (0, "<s>hi|2026-07-26 10:20:30True")
    assert run(["--model", tmp_path], json.dumps(hello)).stdout.startswith("<s>hi|20")
    for now in ("2026-02-29", "2026-7-26", "2026-07-26T24:00:00", "2026-07-26 10:00:00", "today", "2026-07-26T10:20:30Z"):
        done = run(["--model", tmp_path, "--now", now], json.dumps(hello))
        assert done.returncode == 2 and "--now must be as 2026-07-26" in done.stderr
    assert run(["--template", "x", "--ids"], "").returncode == 2
    for arguments in ([], ["--model", tmp_path, "--template", "x"]):
        done = run(arguments, "")
        assert done.returncode == 2 and "one of them" in done.stderr
    assert "--jsonl" in run(["--help"], "").stdout
    template = tmp_path / "template.jinja"
    template.write_text("{{ messages[0].content }}{{ eos_token }}")
    lines = json.dumps(hello | {"eos": "</s>"}) + "\n" + json.dumps({"messages": []}) + "\n" + "[]\n"
    done = run(["--template", template, "--jsonl"], lines)
    assert done.returncode == 0
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert first == {"text": "hi</s>"} and "at least one message" in second["error"] and "must be an object" in third["error"]
    for text, sentence in (("{", "line 1: not JSON"), ("x" * ((8 << 20) + 1), "line 1: the input is over the limit of 8388608 bytes"),
                           (json.dumps(hello) + "\n" + "[" * 111 + "]" * 111, "line 2: JSON is nested deeper than 110")):
        done = run(["--template", template, "--jsonl"], text)
        assert done.returncode == 1 and sentence in done.stderr, done.stderr
    done = run(["--template", tmp_path / "nowhere"], "{}")
    assert done.returncode == 1 and "No such file" in done.stderr
    template.write_text("a\n{% include 'x' %}")
    done = run(["--template", template], json.dumps(hello))
    assert done.returncode == 1 and "line 2: the tag 'include' is not supported" in done.stderr
