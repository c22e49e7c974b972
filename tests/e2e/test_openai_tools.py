"""Tool calls over HTTP, both ways, in each published format, and clients that go, wait or don't read: a router, and a worker that says what it is told to."""
import json
import re
import shutil
import socket
import threading
import urllib.request

import front
import openai
import pytest
from bare import Bare
from fake_worker import FakeWorker, wp
from harness import SHAKESPEARE, wait_until

CONTEXT = VOCABULARY = 2048
EOS_FINISH = 1
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
ASKED = [{"role": "user", "content": "Weather in Verona?"}]
ARGUMENTS = '{"city": "Verona", "note": "}]\\" é"}'
TEMPLATES = {  # a template, and how its model writes the call
    "hermes": ("{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for c in m.tool_calls or [] %}"
               "<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}\n{% endfor %}",
               'Let me see.\n<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>", "Let me see.\n"),
    "llama3": ("<|start_header_id|>{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for c in m.tool_calls or [] %}"
               "{{ '{\"name\": \"' + c.function.name + '\", \"parameters\": ' }}{{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}",
               '{"name": "get_weather", "parameters": ' + ARGUMENTS + "}", None),
    "mistral": ("{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for c in m.tool_calls or [] %}"
                "[TOOL_CALLS][{{ c.function | tojson }}]{% if c.id | length != 9 %}{{ raise_exception('ids have 9 characters') }}{% endif %}{% endfor %}\n{% endfor %}",
                '[TOOL_CALLS][{"name": "get_weather", "arguments": ' + ARGUMENTS + "}]", None),
    "deepseek": ("{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% if m.tool_calls %}<｜tool▁calls▁begin｜>"
                 "{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name + '\n```json\n' + c.function.arguments + '\n```<｜tool▁call▁end｜>' }}"
                 "{% endfor %}<｜tool▁calls▁end｜>{% endif %}\n{% endfor %}",
                 "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n" + ARGUMENTS +
                 "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "Let me see."),
}


class Scripted(FakeWorker):
    """Says `script`, a list of ids, to everybody."""

    script = ()

    def step(self):
        tokens = super().step()
        for token in tokens.tokens:
            if token.index <= len(self.script):
                token.id, token.finish = self.script[token.index - 1], EOS_FINISH if token.index == len(self.script) else 0
                if token.finish:
                    self.jobs.pop(token.request, None)
        return tokens


class Held(FakeWorker):
    """Says 5 tokens, and the rest when it is let."""

    go_on = threading.Event()

    def step(self):
        return super().step() if self.go_on.is_set() or all(job[1] < 5 for job in self.jobs.values()) else wp.Tokens()


def model_folder(path, template):
    path.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHAKESPEARE / name, path)
    (path / "chat_template.jinja").write_text(template)
    return path


@pytest.fixture
def started():
    things = []
    yield things
    for thing in reversed(things):
        assert not thing.stop()


def answered(client, **more):
    """(content, [(name, arguments)], finish reason, message) of the whole answer, and of its stream."""
    whole = client.chat.completions.create(model="model", messages=ASKED, tools=TOOLS, **more).choices[0]
    content, calls, finish, chunks = "", [], None, 0
    for chunk in client.chat.completions.create(model="model", messages=ASKED, tools=TOOLS, stream=True, **more):
        delta, finish = chunk.choices[0].delta, chunk.choices[0].finish_reason
        content += delta.content or ""
        for part in delta.tool_calls or []:
            if part.id:
                assert part.index == len(calls) and part.type == "function"
                calls.append([part.function.name, ""])
            calls[part.index][1] += part.function.arguments or ""
            chunks += 1
    whole_calls = [[call.function.name, call.function.arguments] for call in whole.message.tool_calls or []]
    assert (content or None, calls, finish) == (whole.message.content or None, whole_calls, whole.finish_reason)
    assert not calls or chunks >= 2  # the name, then arguments, as the worker's tokens come
    return whole


@pytest.mark.parametrize("family", TEMPLATES)
def test_calls_come_and_go(started, tmp_path, family):
    template, text, said = TEMPLATES[family]
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=model_folder(tmp_path / "model", template))
    started.append(router)
    door = front.Front(router)
    worker = Scripted(router.grpc, "model", CONTEXT, VOCABULARY)
    started.append(worker)
    worker.script = door.ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"] + [0]
    client = openai.OpenAI(base_url=f"http://{router.front}/v1", api_key="none")
    choice = answered(client)
    assert choice.finish_reason == "tool_calls" and choice.message.content == said
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"] == "Verona"
    assert len(call.id) == 9 if family == "mistral" else call.id.startswith("call_")
    back = [*ASKED, choice.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "21"}]
    rendered = door.ask("/tokenize", {"messages": back, "tools": TOOLS}).json["tokens"]
    prompt = door.ask("/detokenize", {"tokens": rendered}).json["prompt"]
    assert "get_weather" in prompt and '"city": "Verona"' in prompt and "tool: 21" in prompt
    assert client.chat.completions.create(model="model", messages=back, tools=TOOLS).choices[0].message.tool_calls
    plain = client.chat.completions.create(model="model", messages=ASKED).choices[0]  # no tool may be called
    assert plain.message.content == text and not plain.message.tool_calls and plain.finish_reason == "stop"


def test_one_call_is_told_where_one_is_wanted(started, tmp_path):
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=model_folder(tmp_path / "model", TEMPLATES["hermes"][0]))
    started.append(router)
    worker = Scripted(router.grpc, "model", CONTEXT, VOCABULARY)
    started.append(worker)
    call = '<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>"
    worker.script = front.Front(router).ask("/tokenize", {"prompt": call + "\n" + call, "add_special_tokens": False}).json["tokens"] + [0]
    client = openai.OpenAI(base_url=f"http://{router.front}/v1", api_key="none")
    assert [len(answered(client, **more).message.tool_calls) for more in ({}, {"parallel_tool_calls": True}, {"parallel_tool_calls": False})] == [2, 2, 1]


def test_what_is_no_call_is_text(started, tmp_path):
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=model_folder(tmp_path / "model", TEMPLATES["llama3"][0]))
    started.append(router)
    worker = Scripted(router.grpc, "model", CONTEXT, VOCABULARY)
    started.append(worker)
    text = '{"name": "nobody", "parameters": {}} is what I would say'
    worker.script = front.Front(router).ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"] + [0]
    choice = answered(openai.OpenAI(base_url=f"http://{router.front}/v1", api_key="none"))
    assert choice.message.content == text and choice.finish_reason == "stop"


def metric(router, name, label):
    """Metrics of the only model."""
    with urllib.request.urlopen(f"http://{router.http}/metrics", timeout=20) as answer:
        return int(re.search(rf'^{name}{{model_name="[^"]*",{label}}} (\d+)$', answer.read().decode(), re.M).group(1))


def counted(router, status):
    return metric(router, "baton_router_requests_total", f'status="{status}"')


def queued(router):
    return metric(router, "baton_router_requests", 'state="queued"')


def test_a_client_that_goes_while_it_waits_is_forgotten(started):
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", "--worker-wait", "1m")
    started.append(router)
    connection = front.Front(router).connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": ["a", "b"], "n": 2}), {"content-type": "application/json"})
    wait_until("it waits", lambda: queued(router) == 2, 20)
    connection.close()
    wait_until("it is forgotten", lambda: queued(router) == 0, 20)


def test_a_draining_router_ends_its_streams(started, tmp_path):
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=model_folder(tmp_path / "model", TEMPLATES["hermes"][0]))
    started.append(router)
    worker = Held(router.grpc, "model", CONTEXT, VOCABULARY)
    started.append(worker)
    connection = front.Front(router).connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 50, "stream": True}), {"content-type": "application/json"})
    answer = connection.getresponse()
    first = answer.readline()
    router.process.terminate()
    wait_until("it drains", lambda: front.Front(router).ask("/ready").status == 503, 20)
    assert front.Front(router).complete("a").error[:2] == (503, "draining")
    worker.go_on.set()
    assert first.startswith(b"data: ") and answer.read().endswith(b'"finish_reason":"length"}]}\n\ndata: [DONE]\n\n')


def test_a_client_that_does_not_read_is_cut_off(started, tmp_path):
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", "--client-buffer", "64KiB", model=model_folder(tmp_path / "model", TEMPLATES["hermes"][0]))
    started.append(router)
    started.append(FakeWorker(router.grpc, "model", CONTEXT, VOCABULARY))
    host, port = router.front.rsplit(":", 1)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        body = json.dumps({"prompt": ["a"] * 4, "n": 16, "max_tokens": 2000, "stream": True}).encode()
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_until("it is cut off", lambda: counted(router, "slow_reader"), 60)
    wait_until("nothing of it is left", lambda: not queued(router), 20)
    assert front.Front(router).complete("a", max_tokens=2).status == 200
