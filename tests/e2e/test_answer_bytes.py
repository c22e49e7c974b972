"""An answer arrives whole, whatever its bytes: U+0000, characters cut between tokens, bytes that are no character. By every way it can take:
gRPC and HTTP, streamed and at once, completion and chat; each equal to /detokenize and to the `tokenizers` package."""
import os
import random
import subprocess

import front
import pytest
from client import pb, request
from harness import BATON, LONG
from scripted_model import distinct_pieces, write_model

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from tokenizers import Tokenizer  # noqa: E402

SEED = int(os.environ.get("BATON_ANSWERS_SEED", random.SystemRandom().randrange(1 << 32)))
COUNT = 30 if LONG else 4  # scripts of each style
ALPHABETS = [b"\0ab", b"\0\xf0\x9f\x99\x82", "\0aé漢🙂\ufffd\r\n\"\\<".encode(), bytes(range(256))]
WORDS = ["\0", "a", "é", "漢", "🙂", "\ufffd", "\u2028", "\r\n", '"', "\\", "</tool_call>", "\x1b[0m", "\x7f", " "]


USER_ALONE = "{%- for m in messages %}{%- if m.role == 'user' %}{{- m.content | trim ~ '\\n' }}{%- elif m.role == 'judge' %}{{- raise_exception('no judges') }}{%- endif %}{%- endfor %}"


def bytes_scripts(draw):
    """Any bytes at all, cut anywhere."""
    scripts = {"nul": [b"a\0", b"b\0c", b"d\xf0\x9f"]}
    seen = set(scripts["nul"])
    for i in range(COUNT):
        alphabet = draw.choice(ALPHABETS)
        scripts[f"s{i}"] = distinct_pieces(bytes(draw.choice(alphabet) for _ in range(draw.randint(20, 120))), draw, seen=seen)
    return scripts


def text_script(draw):
    """Whole text, some of its characters byte by byte. (Of a malformed run of byte tokens a stream can't be what the whole is.)"""
    words = [draw.choice(WORDS) for _ in range(draw.randint(1, 40))]
    return [piece for word in words for piece in ([bytes([b]) for b in word.encode()] if draw.random() < 0.4 else [word])]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    draw, folder = random.Random(SEED), tmp_path_factory.mktemp("models")
    print(f"seed {SEED}")
    return {"bytes": write_model(folder / "bytes", bytes_scripts(draw), style="bytes"),
            "ends": write_model(folder / "ends", {"hello": ["Hello", " world"]}, chat_template=USER_ALONE, config_json={"eos_token_id": 5}, generation_config={"eos_token_id": [5]}),
            "pieces": write_model(folder / "pieces", {"nul": ["a", "\0", "b", "\0"], **{f"s{i}": text_script(draw) for i in range(COUNT)}})}


def of_models(shared_cluster, models):
    return shared_cluster(model=[f"{name}={says.folder}" for name, says in models.items()], prefill=0, decode=1, settings=front.SETTINGS)


@pytest.fixture
def doors(shared_cluster, connect, models):
    cluster = of_models(shared_cluster, models)
    return connect(cluster), front.Front(cluster)


def joined(frames, part):
    """The text of all frames of a stream."""
    return "".join(part(frame["choices"][0]) or "" for frame in frames)


def ways(client, door, model, prompt, **stop):
    """The text of the answer, by the way it took, and the ids of the answer."""
    asked = request(prompt, model=model, max_tokens=500, **stop)
    body = {"model": model, "max_tokens": 500, **stop}
    chat = {**body, "messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"script": prompt}}
    whole = client.stub.GenerateOnce(asked, timeout=60)
    texts = {"GenerateOnce": whole.text,
             "Generate": "".join(event.delta.text for event in client.stub.Generate(asked, timeout=60)),
             "completion": door.complete(prompt, **body).json["choices"][0]["text"],
             "completion, streamed": joined(door.complete(prompt, stream=True, **body).frames, lambda choice: choice["text"]),
             "chat": door.ask("/v1/chat/completions", chat).json["choices"][0]["message"]["content"],
             "chat, streamed": joined(door.ask("/v1/chat/completions", {**chat, "stream": True}).frames, lambda choice: choice["delta"].get("content"))}
    return texts, whole


@pytest.mark.parametrize("style", ["bytes", "pieces"])
def test_an_answer_is_whole_by_every_way(doors, models, style):
    client, door = doors
    says = models[style]
    package = Tokenizer.from_file(str(says.folder / "tokenizer.json"))
    for name, ids in says.ids.items():
        prompt = "x" + says.markers[name]
        texts, whole = ways(client, door, style, prompt)
        assert list(whole.token_ids) == [*ids, says.end] and whole.finished.reason == pb.FINISH_REASON_EOS
        texts["Detokenize"] = client.stub.Detokenize(pb.DetokenizeRequest(model=style, ids=ids), timeout=60).text
        texts["/detokenize"] = door.ask("/detokenize", {"model": style, "tokens": ids}).json["prompt"]
        expected = package.decode(ids, skip_special_tokens=False)
        assert expected == says.texts[name].decode(errors="replace")
        assert texts == dict.fromkeys(texts, expected), f"seed {SEED}, {name}"
        content = door.chat("x", model=style, max_tokens=500, logprobs=True, chat_template_kwargs={"script": says.markers[name]}).json["choices"][0]["logprobs"]["content"]
        assert b"".join(bytes(token["bytes"]) for token in content) == says.texts[name]


def test_a_stop_string_with_a_nul(doors, models):
    client, door = doors
    stopped = 0
    for style in ("bytes", "pieces"):
        says = models[style]
        for name in says.ids:
            text = says.texts[name].decode(errors="replace")
            at = text.find("\0", 1)
            if at < 0:
                continue
            stop = text[at - 1:at + 2]
            texts, whole = ways(client, door, style, "x" + says.markers[name], stop=[stop])
            assert texts == dict.fromkeys(texts, text[:text.find(stop)]), f"seed {SEED}, {name}"
            assert whole.finished.stop_string == stop
            stopped += 1
    assert stopped


def test_a_nul_in_a_message(doors, models):
    """A prompt may hold one too, and becomes the tokens that the package makes of it."""
    client, door = doors
    for style in ("bytes", "pieces"):
        says = models[style]
        package = Tokenizer.from_file(str(says.folder / "tokenizer.json"))
        for text in ("\0", "a\0b", "\0\0é\0"):
            ids = package.encode(text).ids
            assert list(client.stub.Tokenize(pb.TokenizeRequest(model=style, text=text), timeout=60).ids) == ids
            assert door.ask("/tokenize", {"model": style, "prompt": text}).json["tokens"] == ids
            echoed = client.stub.GenerateOnce(request(text, model=style, max_tokens=1, echo=True), timeout=60)
            assert echoed.prompt.text == text and list(echoed.prompt.token_ids) == ids
            completed = door.complete(text, model=style, max_tokens=0, echo=True, return_token_ids=True).json["choices"][0]
            assert (completed["text"], completed["prompt_token_ids"]) == (text, ids)
            content = [{"type": "text", "text": text}]
            for asked in (text, content):
                messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": "\0"}]
                rendered = door.ask("/tokenize", {"model": style, "messages": messages}).json["tokens"]
                assert rendered == package.encode(f"user: {text}\nassistant: \0\n").ids


def test_the_end_token_is_that_of_the_tokenizer(doors, models, shared_cluster):
    """Both files of ids name another one (mlx-vlm#2112, vllm#4180)."""
    client, door = doors
    says = models["ends"]
    whole = client.stub.GenerateOnce(request("x", model="ends", max_tokens=50), timeout=60)
    assert (whole.text, whole.finished.reason, whole.finished.stop_token) == ("Hello world", pb.FINISH_REASON_EOS, says.end)
    choice = door.complete("x", model="ends", max_tokens=50).json["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("Hello world", "stop")
    line = f'5 (config.json, generation_config.json), {says.end} "<|end|>" (tokenizer_config.json)'
    cluster = of_models(shared_cluster, models)
    assert f"  end tokens {line}\n" in (cluster.folder / "up.log").read_text()
    assert line in (cluster.folder / "logs/router.log").read_text().replace('\\"', '"')


def test_roles_that_a_template_writes(doors):
    """A template may know more roles than OpenAI's; a message that it leaves out is refused, as the model would not see it."""
    _, door = doors
    chat = [{"role": "user", "content": "a"}, {"role": "critic", "content": " b "}]
    both = door.ask("/tokenize", {"model": "pieces", "messages": chat, "add_generation_prompt": False})
    assert both.json["tokens"] == door.ask("/tokenize", {"model": "pieces", "prompt": "user: a\ncritic:  b \n"}).json["tokens"]
    assert door.ask("/v1/chat/completions", {"model": "pieces", "messages": chat, "max_tokens": 1}).status == 200
    for path in ("/v1/chat/completions", "/tokenize"):
        refused = door.ask(path, {"model": "ends", "messages": chat, "max_tokens": 1})
        assert refused.error[:2] == (400, "chat_refused")
        assert refused.json["error"]["message"] == 'messages[1].role: the chat template of model "ends" leaves out messages of the role "critic"'
    refused = door.ask("/v1/chat/completions", {"model": "ends", "messages": [*chat[:1], {"role": "judge", "content": "b"}]})
    assert refused.error[:2] == (400, "chat_refused") and "no judges" in refused.json["error"]["message"]
    assert door.ask("/v1/chat/completions", {"model": "ends", "messages": [*chat[:1], {"role": "assistant", "content": "b"}], "max_tokens": 1}).status == 200


def test_likely_tokens_of_one_text_are_told_apart(doors, models):
    client, door = doors
    says = models["pieces"]
    asked = dict(model="pieces", max_tokens=4, logprobs=20)
    choice = door.complete("x" + says.markers["nul"], **asked).json["choices"][0]
    by_grpc = client.stub.GenerateOnce(request("x" + says.markers["nul"], **asked), timeout=60)
    for told, top in zip(by_grpc.logprobs, choice["logprobs"]["top_logprobs"], strict=True):
        assert len(top) == len(told.top_ids) == 20
        named = {int(key[9:]): value for key, value in top.items() if key.startswith("token_id:")}
        assert all(value == pytest.approx(told.top[list(told.top_ids).index(id)], abs=1e-5) for id, value in named.items())
    chat = door.chat("x", model="pieces", max_tokens=4, logprobs=True, top_logprobs=20, chat_template_kwargs={"script": says.markers["nul"]}).json["choices"][0]
    assert all(len(token["top_logprobs"]) == 20 for token in chat["logprobs"]["content"])


def test_a_completion_goes_on_to_its_end(doors, models):
    """Without max_tokens it has what room there is."""
    _, door = doors
    says = models["pieces"]
    longest = max(says.ids, key=lambda name: len(says.ids[name]))
    assert len(says.ids[longest]) > 16
    for stream in (False, True):
        reply = door.complete("x" + says.markers[longest], model="pieces", stream=stream)
        text = joined(reply.frames, lambda choice: choice["text"]) if stream else reply.json["choices"][0]["text"]
        assert text == says.texts[longest].decode()


def test_the_command_prints_it(models, shared_cluster):
    cluster = of_models(shared_cluster, models)
    says = models["pieces"]
    told = cluster.generate("x" + says.markers["nul"], model="pieces", max_tokens=500)
    assert told["text"] == "a\0b\0"
    command = [BATON, "generate", "--model", "pieces", "--max-tokens", "9", "-"]
    printed = subprocess.run(command, input=b"x\0" + says.markers["nul"].encode(), env=cluster.environment, capture_output=True, timeout=60)
    assert printed.stdout == b"a\0b\0\n", printed
