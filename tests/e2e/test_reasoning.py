"""A new user's path through tools and reasoning, with the openai package and a model that says a chosen text: tags cut anywhere between
tokens, answers that begin or end inside their reasoning, and all that applies behind it."""
import json

import front
import openai
import pytest
from bare import Bare
from scripted_model import write_model
from test_openai_tools import CONTEXT, VOCABULARY, Scripted, model_folder

TEMPLATE = ("{%- for t in tools or [] %}{{- t | tojson }}{%- endfor %}{%- for m in messages %}{{- '[' ~ m.role ~ ']' }}"
            "{%- if m.reasoning_content %}{{- '<think>\\n' ~ m.reasoning_content ~ '\\n</think>\\n\\n' }}{%- endif %}{{- m.content or '' }}"
            "{%- for c in m.tool_calls or [] %}{{- '<tool_call>\\n' ~ (c.function | tojson) ~ '\\n</tool_call>' }}{%- endfor %}{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '[assistant]' ~ ('<think>\\n' if inside else script | default('')) }}{%- endif %}")
GLM = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}\n"
       "{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n{% endfor %}</tool_call>{% endfor %}{% endfor %}")
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Verona"}}\n</tool_call>'
TEXTS = {  # name: (reasoning with its tags, the rest)
    "inside": ("So they ask.\n</think>\n\n", "It is 21."),
    "weather": ("<think>\nI must call it.\n</think>\n\n", CALL),
    "stops": ("<think>\nSTOP here\n</think>\n\n", "It is STOP 21."),
    "endless": ("<think>\nI go on </thin", ""),
    "json": ('<think>\n{"x": 1}, no\n</think>\n\n', '{"city": "Verona"}'),
    "plain": ("", "No <think> here."),
    "parts": ("<think>\nSo \U0001F642\n</think>\n\n", "\U0001F642!"),
}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
USER = {"role": "user", "content": "What is the weather in Verona today, and what should I wear for a walk?"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "city", "schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def cut(text, length):
    raw = text.encode()
    return [raw[at:at + length] for at in range(0, len(raw), length)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Each part in tokens of its own, so that a test can count them; the tags are in several tokens, and one character too."""
    scripts = {name: cut(before, 3) + cut(behind, 5) for name, (before, behind) in TEXTS.items()}
    return write_model(tmp_path_factory.mktemp("scripted") / "model", scripts, chat_template=TEMPLATE)


@pytest.fixture
def served(shared_cluster, model):
    cluster = shared_cluster(model=f"model={model.folder}", settings=front.SETTINGS)
    return openai.OpenAI(base_url=f"http://{front.address(cluster)}/v1", api_key="none", max_retries=0), front.Front(cluster)


def asked(name, **more):
    body = {**more.pop("extra_body", {}), "chat_template_kwargs": {"inside": True} if name == "inside" else {"script": f"<|{name}|>"}}
    return dict(dict(model="model", messages=[USER], extra_body=body), **more)


def streamed(client, **arguments):
    """(reasoning, content, [(name, arguments)], finish reason, usage), put together; reasoning comes first."""
    reasoning, content, calls, finish, usage = "", "", [], None, None
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **arguments):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            piece = getattr(choice.delta, "reasoning_content", None)
            assert not piece or not (content or calls)
            reasoning, content, finish = reasoning + (piece or ""), content + (choice.delta.content or ""), choice.finish_reason or finish
            for part in choice.delta.tool_calls or []:
                if part.id:
                    calls.append([part.function.name, ""])
                calls[part.index][1] += part.function.arguments or ""
    return reasoning, content, calls, finish, usage


def answered(client, **arguments):
    """The whole answer; its stream says the same."""
    whole = client.chat.completions.create(**arguments)
    choice = whole.choices[0]
    calls = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls or []]
    reasoning, content, told, finish, usage = streamed(client, **arguments)
    assert (reasoning, content, told, finish) == (getattr(choice.message, "reasoning_content", None) or "", choice.message.content or "", calls, choice.finish_reason)
    assert usage.completion_tokens_details == whole.usage.completion_tokens_details and usage.completion_tokens == whole.usage.completion_tokens
    return choice, whole.usage


def tokens(model, name):
    """Tokens of the reasoning, with those of the tags and without the newlines behind the end tag."""
    before = TEXTS[name][0].rstrip("\n")
    count = len(b"".join(cut(before, 3)))
    return -(-count // 3)


def test_a_users_path(served, model):
    """Asks with tools, gets reasoning and a call, sends both back with the result, and gets an answer."""
    client, door = served
    first, usage = answered(client, **asked("weather", tools=TOOLS))
    assert first.message.reasoning_content == "I must call it." and first.message.content is None and first.finish_reason == "tool_calls"
    call, = first.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Verona"})
    history = [USER, first.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "21"}]
    prompt = door.ask("/detokenize", {"tokens": door.ask("/tokenize", {"messages": history, "tools": TOOLS}).json["tokens"]}).json["prompt"]
    assert "[assistant]<think>\nI must call it.\n</think>\n\n<tool_call>\n" in prompt and prompt.endswith("</tool_call>[tool]21[assistant]")
    renamed = [USER, {"role": "assistant", "content": None, "reasoning": "I must call it.", "tool_calls": history[1]["tool_calls"]}, history[2]]
    assert door.ask("/tokenize", {"messages": renamed, "tools": TOOLS}).json["tokens"] == door.ask("/tokenize", {"messages": history, "tools": TOOLS}).json["tokens"]
    second, usage = answered(client, **asked("inside", messages=history, tools=TOOLS))
    assert (second.message.reasoning_content, second.message.content, second.finish_reason) == ("So they ask.", "It is 21.", "stop")
    assert usage.completion_tokens_details.reasoning_tokens == tokens(model, "inside") < usage.completion_tokens
    again = client.chat.completions.create(**asked("inside", messages=history, tools=TOOLS)).usage  # the prefix cache has it now
    assert 0 < again.prompt_tokens_details.cached_tokens < again.prompt_tokens == usage.prompt_tokens


def test_what_applies_behind_reasoning(served, model):
    client, _ = served
    choice, usage = answered(client, **asked("stops", stop="STOP"))
    assert (choice.message.reasoning_content, choice.message.content, choice.finish_reason) == ("STOP here", "It is ", "stop")
    assert usage.completion_tokens_details.reasoning_tokens == tokens(model, "stops")
    choice, _ = answered(client, **asked("json", response_format=SCHEMA))
    assert choice.message.reasoning_content == '{"x": 1}, no' and json.loads(choice.message.content) == {"city": "Verona"}
    for wanted in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        choice, _ = answered(client, **asked("weather", tools=TOOLS, tool_choice=wanted))
        assert choice.message.reasoning_content == "I must call it." and choice.message.tool_calls[0].function.name == "get_weather"
    # Without reasoning the answer is kept to the schema from its first byte on: the model can't say its script.
    choice = client.chat.completions.create(**asked("json", response_format=SCHEMA, max_tokens=40, extra_body={"separate_reasoning": False})).choices[0]
    assert choice.message.content.startswith("{") and not hasattr(choice.message, "reasoning_content")


def test_answers_of_each_form(served, model):
    client, _ = served
    choice, usage = answered(client, **asked("endless"))  # it ends inside
    assert choice.message.content is None and choice.message.reasoning_content == "I go on </thin"
    assert usage.completion_tokens_details.reasoning_tokens == usage.completion_tokens - 1  # but for the end token
    choice, usage = answered(client, **asked("weather", tools=TOOLS, max_tokens=4))
    assert choice.finish_reason == "length" and usage.completion_tokens_details.reasoning_tokens == usage.completion_tokens == 4
    choice, usage = answered(client, **asked("plain"))
    assert choice.message.content == "No <think> here." and choice.message.reasoning_content is None
    assert usage.completion_tokens_details.reasoning_tokens == 0
    choice, _ = answered(client, **asked("parts", logprobs=True))
    assert choice.message.reasoning_content == "So \U0001F642" and choice.message.content == "\U0001F642!"
    assert len(choice.logprobs.content) == len(model.ids["parts"])  # of all tokens, with those of the reasoning
    # vLLM's and SGLang's members: without the reasoning, and all of it in the content.
    choice, usage = answered(client, **asked("parts", extra_body={"include_reasoning": False}))
    assert choice.message.content == "\U0001F642!" and not hasattr(choice.message, "reasoning_content") and usage.completion_tokens_details.reasoning_tokens
    unshown = asked("endless", extra_body={"include_reasoning": False})
    choice, usage = answered(client, **unshown)
    assert choice.message.content is None and choice.finish_reason == "stop"
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(stream=True, **unshown)]
    assert all(chunk.delta.content is None for chunk in chunks) and chunks[-1].finish_reason == "stop"
    choice, usage = answered(client, **asked("parts", extra_body={"separate_reasoning": False}))
    assert choice.message.content == model.texts["parts"].decode() and usage.completion_tokens_details.reasoning_tokens == 0


def test_reasoning_off_and_calls_in_a_form_that_is_not_known(tmp_path):
    """--reasoning off gives the content of earlier versions. A template with calls as GLM-4.5 writes them is told at the start."""
    folders = {"thinks": model_folder(tmp_path / "thinks", TEMPLATE), "glm": model_folder(tmp_path / "glm", GLM)}
    with open(tmp_path / "log", "w+b") as log:
        router = Bare("baton-router", "--http-listen", "127.0.0.1:0", "--reasoning", "off", "--model", f"glm={folders['glm']}",
                      model=f"thinks={folders['thinks']}", stderr=log)
        worker = None
        try:
            lines = (tmp_path / "log").read_text().splitlines()
            assert any("model=thinks tools=hermes" in line and "reasoning=" in line for line in lines), lines
            told, = (line for line in lines if "level=warn" in line and "in a way that is not known" in line)
            assert "model=glm" in told
            door = front.Front(router)
            reply = door.chat("Speak.", model="glm", tools=TOOLS)
            assert reply.error == (400, "unsupported_parameter", None) or reply.error[:2] == (400, "unsupported_parameter")
            worker = Scripted(router.grpc, "thinks", CONTEXT, VOCABULARY)
            text = "<think>\nSo.\n</think>\n\nYes."
            worker.script = door.ask("/tokenize", {"model": "thinks", "prompt": text, "add_special_tokens": False}).json["tokens"] + [0]
            message = door.chat("Speak.", model="thinks").json["choices"][0]["message"]
            assert message["content"] == text and "reasoning_content" not in message
        finally:
            if worker:
                worker.stop()
            assert not router.stop()
