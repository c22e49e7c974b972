"""Several models behind the OpenAI-compatible door: listed, asked for by name, each with its own template, tokenizer and limits."""
import concurrent.futures
import shutil
import signal

import front
import openai
from bare import Bare
from harness import GOLDEN, SHAKESPEARE, wait_until

TWO = ["words=" + str(SHAKESPEARE), GOLDEN / "llama"]
CHAT = [{"role": "user", "content": "Speak."}]


def test_each_is_asked_for_by_name(start_cluster, connect):
    cluster = start_cluster(model=TWO, settings=front.SETTINGS)
    door, grpc = front.Front(cluster), connect(cluster)
    client = openai.OpenAI(base_url=f"http://{door.address}/v1", api_key="none")
    assert [(m.id, m.max_model_len) for m in client.models.list()] == [(m["name"], m["context"]) for m in cluster.status()["models"]]
    assert client.models.retrieve("llama").id == "llama"

    for model, prompt in (("words", "ROMEO:"), ("words", [849, 28]), ("llama", [3, 1, 4])):
        more = dict(model=model, max_tokens=8, temperature=0)
        answer = door.complete(prompt, ignore_eos=True, **more).json
        assert answer["model"] == model and answer["usage"]["completion_tokens"] == 8
        if model == "words":
            assert answer["choices"][0]["text"] == grpc.generate(prompt, ignore_eos=True, **more).text
    assert cluster.total("router", "baton_router_requests_total", model_name="llama", status="ok") == 1

    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": CHAT}),
                       ("/tokenize", {"prompt": "a"}), ("/tokenize", {"messages": CHAT}), ("/detokenize", {"tokens": [5]})):
        missing, unknown = door.ask(path, body), door.ask(path, {**body, "model": "gpt-5"})
        assert missing.error == (400, "missing_model", "model") and unknown.error == (404, "model_not_found", "model")
        assert all('"words" and "llama"' in reply.json["error"]["message"] for reply in (missing, unknown))
    assert door.ask("/v1/models/gpt-5").error == (404, "model_not_found", "model")
    assert door.complete("a", model="llama").error[:2] == (400, "no_tokenizer")
    chat = door.chat("a", model="llama")
    assert chat.error[:2] == (400, "no_tokenizer") and 'model "llama" has no tokenizer.json' in chat.json["error"]["message"]
    assert door.ask("/tokenize", {"messages": CHAT, "model": "llama"}).error == (400, "no_tokenizer", "messages")
    assert door.complete([384], model="llama").error[1] == "invalid_token_id" and door.complete([384], model="words", max_tokens=1).status == 200
    assert cluster.total("router", "baton_router_requests_total", model_name="llama", status="no_tokenizer") == 2


def test_each_has_its_own_template(tmp_path):
    for name in ("plain", "loud"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(SHAKESPEARE / file, tmp_path / name)
        (tmp_path / name / "chat_template.jinja").write_text("{{ messages[0].content" + ("" if name == "plain" else " | upper") + " }}")
    router = Bare("baton-router", "--http-listen", "127.0.0.1:0", model=f"{tmp_path / 'plain'},{tmp_path / 'loud'}")
    try:
        door = front.Front(router)
        for name, text in (("plain", "Speak."), ("loud", "SPEAK.")):
            ids = door.ask("/tokenize", {"model": name, "messages": CHAT}).json["tokens"]
            assert door.ask("/detokenize", {"model": name, "tokens": ids}).json["prompt"] == text
    finally:
        assert not router.stop()


def test_a_flood_of_one_leaves_room_for_the_other(start_cluster):
    """A list of prompts is as many requests: all of them are let in, or none."""
    cluster = start_cluster(model=TWO, settings={**front.SETTINGS, "max-requests": 8})
    door = front.Front(cluster)
    flood = door.complete([[849, 28]] * 7, model="words", max_tokens=2)
    assert flood.error == (503, "overloaded", None) and 'too many requests for model "words" are here' in flood.json["error"]["message"]
    for model in ("llama", "words"):  # the places of admitted requests of the flood are given back
        assert len(door.complete([[3, 1]] * 6, model=model, max_tokens=2).json["choices"]) == 6


def test_a_flood_of_choices_leaves_room_for_the_other(start_cluster):
    """Each choice takes a place: 48 of 64 is all that one of two models may have, whatever n its requests have."""
    cluster = start_cluster(model=TWO, settings={**front.SETTINGS, "max-requests": 64, "worker-keepalive": "60s"})
    door = front.Front(cluster)
    frozen = ("prefill-0", "decode-0")  # workers of the first model
    for name in frozen:
        cluster.kill(name, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        try:
            flood = [pool.submit(door.complete, [849, 28], model="words", n=16, max_tokens=2) for _ in range(12)]
            wait_until("the flood has all that it may", lambda: sum(one.done() for one in flood) == 9, 20)
            for _ in range(2):
                assert len(door.complete([3, 1], model="llama", n=16, max_tokens=2).json["choices"]) == 16
        finally:
            for name in frozen:
                cluster.kill(name, signal.SIGCONT)
        replies = [one.result() for one in flood]
    assert sorted(reply.status for reply in replies) == [200] * 3 + [503] * 9
    assert {reply.error[1] for reply in replies if reply.status == 503} == {"overloaded"}
    assert all(len(reply.json["choices"]) == 16 for reply in replies if reply.status == 200)
    assert len(door.complete([[849, 28]] * 3, model="words", n=16, max_tokens=2).json["choices"]) == 48, "given back"
