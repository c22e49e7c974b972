"""`baton chat-template` prints the prompt that the server makes of the same request, as OpenAI's clients send it."""
import json
import subprocess

import front
import pytest
from bare import Bare
from fake_worker import FakeWorker
from harness import BATON, GOLDEN, LONG
from test_openai_tools import CONTEXT, VOCABULARY, model_folder

PUBLISHED = GOLDEN.parent / "chat_templates"
TEMPLATES = {  # without one that writes the date: it may be another one a moment later
    "all": "{% for m in messages %}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{{ m | tojson }}\n{% endfor %}"
           "{{ tools | tojson }} {{ documents | tojson }} {{ add_generation_prompt }}",
    **{name: (PUBLISHED / f"{name}.jinja").read_text(encoding="utf-8") for name in ("meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407", "Qwen-Qwen2.5-7B-Instruct")},
}
USER = {"role": "user", "content": "Speak <|im_end|></s>."}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}]
NULLS = dict.fromkeys(["refusal", "annotations", "audio", "function_call", "tool_calls"])  # as the openai package dumps an answer


def calling(**function):
    return [USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "f", **function}}]},
            {"role": "tool", "tool_call_id": "abcdefghi", "content": [{"type": "text", "text": "21"}]}]


REQUESTS = {
    "a text": dict(messages=[{"role": "system", "content": "Be brief."}, USER]),
    "a developer": dict(messages=[{"role": "developer", "content": "Be brief."}, USER]),
    "parts": dict(messages=[{"role": "user", "name": None, "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"]}]),
    "an answer": dict(messages=[USER, {"role": "assistant", "content": "I speak.", **NULLS}, USER]),
    "a refusal": dict(messages=[USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, USER]),
    "an answer left out": dict(messages=[USER, {"role": "assistant"}, USER]),
    "what nobody knows": dict(messages=[{**USER, "weight": 1}], user="u", metadata={"a": "b"}),
    "tools": dict(messages=[USER], tools=TOOLS),
    "no tools": dict(messages=[USER], tools=[]),
    "tools for nothing": dict(messages=[USER], tools=TOOLS, tool_choice="none"),
    "a call": dict(messages=calling(arguments='{"a": "x"}'), tools=TOOLS),
    "a call without arguments": dict(messages=calling(), tools=TOOLS),
    "a call with blank arguments": dict(messages=calling(arguments=""), tools=TOOLS),
    "reasoning": dict(messages=[USER, {"role": "assistant", "content": "I speak.", "reasoning": "So."}, USER]),
    "a call with arguments cut off": dict(messages=calling(arguments='{"a": '), tools=TOOLS),
    "the last one to be continued": dict(messages=[USER, {"role": "assistant", "content": "I sp"}], continue_final_message=True),
    "no more": dict(messages=[USER], add_generation_prompt=False),
    "arguments of the template": dict(messages=[USER], chat_template_kwargs={"enable_thinking": False}),
    "documents": dict(messages=[USER], documents=[{"title": "t <|im_end|>", "text": "x"}]),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(router, {name: folder}): all templates, each a model's."""
    top = tmp_path_factory.mktemp("models")
    folders = {name: model_folder(top / name, template) for name, template in TEMPLATES.items()}
    first, *others = (f"{name}={folder}" for name, folder in folders.items())
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", *(word for other in others for word in ("--model", other)), model=first)
    yield router, folders
    assert not router.stop()


@pytest.mark.parametrize("name", REQUESTS)
def test_the_command_prints_what_the_server_makes(served, name):
    router, folders = served
    door, wrong = front.Front(router), []
    for model, folder in folders.items():
        if model not in ("all", list(folders)[1 + list(REQUESTS).index(name) % 3]) and not LONG:
            continue  # each request by two of the templates, and each template by a third of the requests
        reply = door.ask("/tokenize", {"model": model, **REQUESTS[name]})
        done = subprocess.run([BATON, "chat-template", "--model", folder, "--ids"], input=json.dumps(REQUESTS[name]), capture_output=True, text=True, timeout=60)
        if reply.status == 200:
            same = done.returncode == 0 and [int(word) for word in done.stdout.split()] == reply.json["tokens"]
        else:  # both refuse it, with the template's sentence
            same = done.returncode == 1 and reply.error[1] == "chat_refused" and reply.json["error"]["message"] in done.stderr
        if not same:
            prompt = reply.status == 200 and door.ask("/detokenize", {"model": model, "tokens": reply.json["tokens"], "skip_special_tokens": False}).json["prompt"]
            wrong.append(f"{model}: {prompt or reply.body!r}: {done.stdout or done.stderr}")
    assert not wrong, "\n".join(wrong)


def test_a_bos_is_not_written_twice(tmp_path):
    """A tokenizer that begins each text with one, and a template that writes one itself."""
    folder = model_folder(tmp_path / "model", "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    [bos] = [token for token in tokenizer["added_tokens"] if token["content"] == "<|endoftext|>"]
    tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos["content"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                                   "special_tokens": {bos["content"]: {"id": bos["content"], "ids": [bos["id"]], "tokens": [bos["content"]]}}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=folder)
    try:
        door = front.Front(router)
        text = door.ask("/tokenize", {"prompt": "Speak."}).json["tokens"]
        assert text[0] == bos["id"] and text.count(bos["id"]) == 1
        assert door.ask("/tokenize", {"messages": [{"role": "user", "content": "Speak."}]}).json["tokens"] == text
    finally:
        assert not router.stop()


@pytest.mark.parametrize("template,told", [("a\n{% for m in messages %}\n{{ m.content | urlize }}{% endfor %}", "line 3: the filter 'urlize' is not supported"),
                                           ("{{ bos_token }}\n{% include 'x' %}", "line 2: the tag 'include' is not supported"), ("{% if x %}\n\n", "line 2: the 'if' of line 1 has no 'endif'")])
def test_a_template_that_cannot_be_used_is_told_at_the_start(tmp_path, template, told):
    """And costs chats alone: nothing takes its place."""
    folder = model_folder(tmp_path / "model", template)
    with open(tmp_path / "log", "w+b") as log:
        router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=folder, stderr=log)
        try:
            door = front.Front(router)
            line, = (line for line in (tmp_path / "log").read_text().splitlines() if "level=error" in line)
            assert "the chat template can't be used: completions only" in line and "chat_template.jinja: chat template" in line and told in line, line
            assert door.chat("Speak.").error[:2] == (400, "no_chat_template")
            assert door.ask("/tokenize", {"messages": [USER]}).error[:2] == (400, "no_chat_template")
            worker = FakeWorker(router.grpc, "model", CONTEXT, VOCABULARY)
            try:
                assert door.complete("a", max_tokens=2).status == 200
            finally:
                worker.stop()
        finally:
            assert not router.stop()


def test_documents_reach_the_template(served):
    door = front.Front(served[0])
    tokens = door.ask("/tokenize", {"model": "all", **REQUESTS["documents"]}).json["tokens"]
    assert '[{"title": "t <|im_end|>", "text": "x"}]' in door.ask("/detokenize", {"model": "all", "tokens": tokens}).json["prompt"]
    assert door.ask("/tokenize", {"model": "all", "messages": [USER], "documents": "x"}).error == (400, "malformed", "documents")
