"""tool_choice "required" and a function's name, with the openai package, in each published format: the answer is calls with arguments that
fit the tool's schema, streamed and not, although the small model knows no tools."""
import json
import shutil
from typing import Literal

import front
import jsonschema
import openai
import pydantic
import pytest
from client import pb
from harness import LONG, SHAKESPEARE
from test_openai_tools import TEMPLATES

END_OF_TURN, MARKER = 2, 2047  # ids; the second is the vocabulary's last one, which nothing is merged of
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Verona", "Mantua"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
           "required": ["city", "days"], "additionalProperties": False}
LETTER = {"type": "object", "properties": {"to": {"$ref": "#/$defs/name"}, "text": {"type": "string", "maxLength": 8}}, "required": ["to", "text"],
          "$defs": {"name": {"type": "string", "pattern": "^[A-Z][a-z]{2,5}$"}}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": WEATHER}},
         {"type": "function", "function": {"name": "send_letter", "parameters": LETTER, "strict": True}},
         {"type": "function", "function": {"name": "stop"}}]
SCHEMAS = {"get_weather": WEATHER, "send_letter": LETTER, "stop": {"maxProperties": 0}}
ASKED = dict(model="model", messages=[{"role": "user", "content": "Weather in Verona?"}], max_completion_tokens=400)
NAMED = {"type": "function", "function": {"name": "send_letter"}}


def model_folder(path, template):
    """The model with a template, and a vocabulary in which Mistral's marker is a special token."""
    shutil.copytree(SHAKESPEARE, path)
    (path / "chat_template.jinja").write_text(template)
    file = json.loads((path / "tokenizer.json").read_text())
    spelling = next(text for text, id in file["model"]["vocab"].items() if id == MARKER)
    file["model"]["merges"] = [pair for pair in file["model"]["merges"] if "".join(pair) != spelling]
    file["model"]["vocab"] = {"[TOOL_CALLS]" if id == MARKER else text: id for text, id in file["model"]["vocab"].items()}
    file["added_tokens"].append(dict(file["added_tokens"][0], id=MARKER, content="[TOOL_CALLS]"))
    (path / "tokenizer.json").write_text(json.dumps(file))
    return path


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each template, made once."""
    made = {}

    def folder(template):
        if template not in made:
            made[template] = model_folder(tmp_path_factory.mktemp("of") / "model", template)
        return made[template]

    return folder


@pytest.fixture
def served(shared_cluster, folders):
    def start(family, template=None):
        cluster = shared_cluster(model=f"model={folders(template or TEMPLATES[family][0])}", settings=front.SETTINGS)
        return openai.OpenAI(base_url=f"http://{front.address(cluster)}/v1", api_key="none", max_retries=0), cluster

    return start


def called(choice):
    """[(name, arguments)], each with arguments of its schema; nothing else was said."""
    assert choice.message.content is None and choice.message.tool_calls
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    assert len({call.id for call in choice.message.tool_calls}) == len(calls)
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])
    return calls


def streamed(client, **asked):
    """([(name, arguments)], finish reason), put together."""
    calls, finish = [], None
    for chunk in client.chat.completions.create(stream=True, **asked):
        assert not chunk.choices[0].delta.content
        finish = chunk.choices[0].finish_reason
        for part in chunk.choices[0].delta.tool_calls or []:
            if part.id:
                assert part.index == len(calls)
                calls.append([part.function.name, ""])
            calls[part.index][1] += part.function.arguments or ""
    return [tuple(call) for call in calls], finish


@pytest.mark.parametrize("family", [family for family in TEMPLATES if LONG or family != "mistral"])  # of which two more tests are
def test_answers_are_calls(served, family):
    client, cluster = served(family)
    bracket, line = (front.Front(cluster).ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"][0] for text in "]\n")
    names, counts = set(), set()
    room = 1000 if family == "deepseek" else 400  # its markers are many tokens here
    # They end the calls: the turn, a list, and for DeepSeek that there is no line with another call.
    bias = {END_OF_TURN: 7, bracket: 14, **({line: -15} if family == "deepseek" else {})}
    for seed in range(4):
        asked = dict(ASKED, tools=TOOLS, tool_choice="required", seed=seed, temperature=1.3, logit_bias=bias, max_completion_tokens=room)
        whole = client.chat.completions.create(**asked).choices[0]
        calls = called(whole)
        names |= {name for name, _ in calls}
        counts.add(len(calls))
        assert whole.finish_reason == "tool_calls"
        if seed and not LONG:
            continue
        assert streamed(client, **asked) == (calls, "tool_calls")
        single = client.chat.completions.create(parallel_tool_calls=False, **asked).choices[0]
        assert called(single) == calls[:1] and single.finish_reason == "tool_calls"
    assert len(names) > 1 and (counts == {1} if family == "llama3" else max(counts) > 1), (names, counts)
    asked = dict(ASKED, tools=TOOLS, tool_choice=NAMED, seed=1, temperature=1.3, max_completion_tokens=room)
    several = client.chat.completions.create(n=3, **asked)
    for choice in several.choices:
        assert [name for name, _ in called(choice)] == ["send_letter"] and choice.finish_reason == "stop"  # as OpenAI has it
    assert streamed(client, **asked) == (called(several.choices[0]), "stop")
    cut = client.chat.completions.create(**dict(asked, max_completion_tokens=100 if family == "deepseek" else 30)).choices[0]
    assert cut.finish_reason == "length" and cut.message.tool_calls[0].function.name == "send_letter"


def test_a_special_token_stands_for_its_text(served):
    """Mistral's marker is one token where the vocabulary has it, or is spelled: the calls are the same."""
    client, cluster = served("mistral")
    first = {}
    for bias in (50, -100):
        answer = client.chat.completions.create(**ASKED, tools=TOOLS, tool_choice="required", seed=3, logprobs=True, logit_bias={MARKER: bias}, parallel_tool_calls=False,
                                                extra_body={"skip_special_tokens": True}).choices[0]
        called(answer)
        first[bias] = answer.logprobs.content[0].token
    assert first[50] == "[TOOL_CALLS]" and first[-100] in "[TOOL_CALLS]" and first[-100] != "[TOOL_CALLS]"
    # No other constraint lets it in, and it is no text.
    text = client.completions.create(model="model", prompt="a", max_tokens=20, logit_bias={MARKER: 100}, extra_body={"guided_regex": r"\[TOOL_CALLS\]x{3}"}).choices[0].text
    assert text == "[TOOL_CALLS]xxx"


def test_newer_mistral_models_name_the_tool_first(served):
    template = TEMPLATES["mistral"][0].replace("[TOOL_CALLS][{{ c.function | tojson }}]", "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}")
    client, _ = served("mistral", template)
    asked = dict(ASKED, tools=TOOLS, tool_choice="required", seed=1, temperature=1.3, logit_bias={END_OF_TURN: 3})
    whole = client.chat.completions.create(**asked).choices[0]
    assert streamed(client, **asked) == (called(whole), "tool_calls")


class Letter(pydantic.BaseModel):
    to: Literal["Romeo", "Juliet"]
    pages: int = pydantic.Field(ge=1, le=20)


def test_arguments_are_parsed(served):
    """As applications do it: a strict tool made of a class, and what comes back is one of that class; and a response_format is of text, which there is none of."""
    client, _ = served("hermes")
    tools = [openai.pydantic_function_tool(Letter, name="letter")]
    more = dict(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": WEATHER}})
    for kind in ({}, more):
        message = client.chat.completions.parse(**ASKED, tools=tools, tool_choice="required", parallel_tool_calls=False, **kind).choices[0].message
        assert isinstance(message.tool_calls[0].function.parsed_arguments, Letter)


def refused(client, **asked):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**dict(ASKED, **asked))
    return caught.value.code, caught.value.param, caught.value.body["message"]


def tool(name, schema):
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def test_what_is_refused(served):
    client, _ = served("hermes")
    odd = tool("odd", {"type": "object", "properties": {"a": {"not": {}}}})
    code, param, message = refused(client, tools=[*TOOLS, odd], tool_choice="required")
    assert (code, param) == ("invalid_constraint", "tools") and "odd/properties/a/not" in message
    assert refused(client, tools=[tool("f", {"type": "string"})], tool_choice="required")[:2] == ("invalid_constraint", "tools")
    assert refused(client, tools=[TOOLS[0]] * 2, tool_choice="required")[:2] == ("invalid_constraint", "tools")
    assert refused(client, tools=TOOLS, tool_choice="required", extra_body={"guided_regex": "a"})[:2] == ("malformed", "guided_regex")
    assert refused(client, tools=TOOLS, tool_choice="any")[:2] == ("malformed", "tool_choice")
    assert refused(client, tool_choice="required")[:2] == ("malformed", "tool_choice")
    # Only what is asked for is kept to: the schema of another tool doesn't matter, nor where none must be called.
    assert client.chat.completions.create(**ASKED, tools=[*TOOLS, odd], tool_choice=NAMED).choices[0].message.tool_calls
    assert client.chat.completions.create(**dict(ASKED, max_completion_tokens=3), tools=[odd], tool_choice="auto").choices[0].finish_reason
    assert client.chat.completions.create(**dict(ASKED, max_completion_tokens=3), tools=[odd], tool_choice="none").choices[0].finish_reason


def test_a_format_that_is_not_known(served):
    client, _ = served("hermes", "{% for m in messages %}{{ m.content }}{% endfor %}")
    for choice in ("required", NAMED, "auto"):
        code, _, message = refused(client, tools=TOOLS, tool_choice=choice)
        assert code == "unsupported_parameter" and "writes calls is not known: its chat template has none of the formats of Hermes" in message


def test_who_renders_chats_alone_asks_for_the_same(served, connect):
    _, cluster = served("hermes")
    calls = pb.ToolCalls(tools=[pb.ToolCalls.Tool(name="get_weather", begin="get_weather(", json_schema=json.dumps(WEATHER), end=")")], separator="; ", parallel=True)
    answer = connect(cluster).generate("Verona?", max_tokens=300, seed=1, logit_bias={END_OF_TURN: 5.0}, constraint=pb.Constraint(tool_calls=calls))
    assert answer.finished.reason == pb.FINISH_REASON_EOS
    for call in answer.text.split("; "):
        assert call.startswith("get_weather(") and call.endswith(")")
        jsonschema.validate(json.loads(call[12:-1]), WEATHER)
