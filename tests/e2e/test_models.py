"""Several models behind one router: each answers as it does alone, and nothing that happens to one is another's matter."""
import json
import re
import signal
import subprocess
import threading
import urllib.request

import grpc
import pytest
from bare import Bare
from client import pb, reason_of, request
from harness import BUILD, GOLDEN, PREFILLED_THERE, SHAKESPEARE, Failed, wait_until

TEXT = "ROMEO: But soft, what light"
TWO = ["words=" + str(SHAKESPEARE), GOLDEN / "llama"]


def golden(model):
    return json.loads((GOLDEN / model / "golden.json").read_text())["prompts"]


def asked(model):
    """Requests of one model, with names that say nothing of it."""
    prompts = [TEXT, "JULIET:"] if model == "words" else [prompt["ids"] for prompt in golden(model)[:3]]
    return [(prompt, dict(max_tokens=12, temperature=heat, seed=5, ignore_eos=True, logits_hash=True))
            for prompt in prompts for heat in (0, 1)]


def bytes_of(answer):
    return answer.text, answer.ids, answer.hashes


def test_each_answers_as_it_does_alone(start_cluster, connect):
    """All at once, so that both pools work at the same time; and twice, the second time from their prefix caches."""
    expected = {}
    for name, folder in (("words", SHAKESPEARE), ("llama", GOLDEN / "llama"), ("qwen2", GOLDEN / "qwen2")):
        alone = start_cluster(model=f"{name}={folder}")
        expected[name] = [bytes_of(answer) for answer in connect(alone).generate_all(asked(name))]
        alone.stop()
    cluster = start_cluster(model=[*TWO, GOLDEN / "qwen2"], settings=PREFILLED_THERE)
    client = connect(cluster)
    everything = [(name, i, prompt, options) for name in expected for i, (prompt, options) in enumerate(asked(name))]
    for _ in range(2):
        answers = client.generate_all([(prompt, dict(options, model=name)) for name, _, prompt, options in everything])
        for (name, i, _, _), answer in zip(everything, answers):
            assert bytes_of(answer) == expected[name][i], (name, i)
            pool = list(expected).index(name)
            assert (answer.timing.prefill_worker, answer.timing.decode_worker) == (f"prefill-{pool}", f"decode-{pool}")
    for name in expected:
        assert cluster.total("router", "baton_router_requests_total", model_name=name, status="ok") == 2 * len(asked(name))
        assert cluster.total("router", "baton_time_to_first_token_seconds_count", model_name=name) == 2 * len(asked(name))


def test_what_a_client_is_told(start_cluster, connect):
    cluster = start_cluster(model=TWO)
    client = connect(cluster)
    listed = client.stub.ListModels(pb.ListModelsRequest(), timeout=20).models
    assert [(m.name, m.has_tokenizer, m.prefill_workers, m.decode_workers) for m in listed] == [("words", True, 1, 1), ("llama", False, 1, 1)]
    assert [m.vocab for m in listed] == [2048, 384]

    refusals = [
        (dict(prompt=TEXT), "INVALID_ARGUMENT", "missing_model", 'the request names no model, and several are served: "words" and "llama"'),
        (dict(prompt=TEXT, model="gpt-5"), "NOT_FOUND", "model_not_found", 'model "gpt-5" is not served here; "words" and "llama" are'),
        (dict(prompt=TEXT, model="llama"), "FAILED_PRECONDITION", "no_tokenizer", 'model "llama" has no tokenizer.json: send token ids'),
        (dict(prompt=[384], model="llama"), "INVALID_ARGUMENT", "invalid_token_id", "the model's ids end at 383"),
    ]
    for options, code, reason, sentence in refusals:
        with pytest.raises(grpc.RpcError) as failed:
            client.stub.GenerateOnce(request(**options), timeout=20)
        assert (failed.value.code().name, reason_of(failed.value)) == (code, reason)
        assert sentence in failed.value.details()
    assert client.generate([384], model="words", max_tokens=2).ids, "an id that only one of them has"

    ids = client.stub.Tokenize(pb.TokenizeRequest(model="words", text=TEXT), timeout=20).ids
    assert client.stub.Detokenize(pb.DetokenizeRequest(model="words", ids=ids, skip_special_tokens=True), timeout=20).text == TEXT
    for call, message in ((client.stub.Tokenize, pb.TokenizeRequest), (client.stub.Detokenize, pb.DetokenizeRequest)):
        for model, reason in (("", "missing_model"), ("llama", "no_tokenizer"), ("x", "model_not_found")):
            with pytest.raises(grpc.RpcError) as failed:
                call(message(model=model), timeout=20)
            assert reason_of(failed.value) == reason


def test_what_a_terminal_shows(start_cluster):
    cluster = start_cluster(model=TWO)
    ready = (cluster.folder / "up.log").read_text()
    assert re.search(r"^Baton serves 2 models, each with 1 prefill \+ 1 decode, f32, \d+ threads? each$", ready, re.M)
    assert f"  model      words  {SHAKESPEARE}\n" in ready
    assert 'baton generate --model words --max-tokens 64 "Once upon a time"\n' in ready
    assert "baton generate --model llama --max-tokens 64 --prompt-ids 1,2,3   (the model has no tokenizer)\n" in ready
    assert "baton chat --model words\n" in ready
    assert len(cluster.generate(TEXT, model="words", max_tokens=4, ignore_eos=True)["token_ids"]) == 4
    with pytest.raises(Failed) as failed:
        cluster.generate(TEXT, max_tokens=4)
    assert "INVALID_ARGUMENT (missing_model)" in failed.value.text and '"words" and "llama"' in failed.value.text
    table = cluster.command("status").stdout.splitlines()
    assert table[0].startswith("model words   numerics ") and table[0].endswith("workers 2 of 2 up")
    assert table[1].startswith("model llama   numerics ") and table[1].endswith("workers 2 of 2 up")
    assert [line.split()[:3] for line in table[3:]] == [["NAME", "MODEL", "ROLE"], ["prefill-0", "words", "prefill"], ["prefill-1", "llama", "prefill"],
                                                       ["decode-0", "words", "decode"], ["decode-1", "llama", "decode"]]
    status = cluster.status()
    assert "model" not in status and [model["name"] for model in status["models"]] == ["words", "llama"]
    assert {worker["name"]: worker["model"] for worker in status["workers"]}["decode-1"] == "llama"


def test_one_pool_killed(start_cluster, connect):
    """Its requests end with no_workers and its name; the other's go on, and new ones come through as before."""
    cluster = start_cluster(model=TWO)
    client = connect(cluster)
    alone = client.generate([3, 1, 4], model="llama", max_tokens=400, temperature=0, ignore_eos=True)
    doomed = client.start(TEXT, model="words", max_tokens=1500, ignore_eos=True)
    assert next(doomed).delta.token_ids
    other = client.start([3, 1, 4], model="llama", max_tokens=400, temperature=0, ignore_eos=True)
    ids = list(next(other).delta.token_ids)
    cluster.kill("decode-0")
    cluster.kill("prefill-0")
    with pytest.raises(grpc.RpcError) as failed:
        for _ in doomed:
            pass
    assert (failed.value.code().name, reason_of(failed.value)) == ("UNAVAILABLE", "no_workers")
    assert 'no decode worker of model "words" is up (' in failed.value.details()
    for response in other:
        ids += response.delta.token_ids
    assert ids == alone.ids
    # Requests that wait for missing workers don't delay others.
    waiting = [client.start(TEXT, model="words", max_tokens=4) for _ in range(8)]
    assert client.generate([3, 1, 4], model="llama", max_tokens=400, temperature=0, ignore_eos=True).ids == alone.ids
    for call in waiting:
        with pytest.raises(grpc.RpcError) as failed:
            for _ in call:
                pass
        assert reason_of(failed.value) == "no_workers"
    listed = client.stub.ListModels(pb.ListModelsRequest(), timeout=20).models
    assert [(m.name, m.decode_workers) for m in listed] == [("words", 0), ("llama", 1)], "it may come back, and stays listed"
    assert cluster.total("router", "baton_router_requests_total", model_name="llama") == 3
    assert cluster.total("router", "baton_router_requests_total", model_name="words", status="no_workers") == 9


def test_one_pool_frozen_and_flooded(start_cluster, connect):
    """All that a model may have of the router is taken by requests that get nowhere: the other's are answered as ever."""
    cluster = start_cluster(model=TWO, settings={"max-requests": 8, "max-queue": 64, "worker-keepalive": "60s"})
    client = connect(cluster)
    ask = dict(model="llama", max_tokens=16, temperature=0, ignore_eos=True)
    alone = client.generate([3, 1, 4], **ask).ids
    for name in ("prefill-0", "decode-0"):
        cluster.kill(name, signal.SIGSTOP)
    try:
        flood = [client.start(TEXT, model="words", max_tokens=4, ignore_eos=True) for _ in range(12)]
        wait_until("the flood has all that it may", lambda: cluster.total("router", "baton_router_requests_total", model_name="words", status="overloaded") == 6, 20)
        assert cluster.total("router", "baton_router_requests", model_name="words") == 6, "2 of its own and 4 for whoever comes first, of 8"
        answers = client.generate_all([([3, 1, 4], ask)] * 2)
        assert [answer.ids for answer in answers] == [alone] * 2
    finally:
        for name in ("prefill-0", "decode-0"):
            cluster.kill(name, signal.SIGCONT)
    ends = []
    for call in flood:
        try:
            ends.append(sum(len(response.delta.token_ids) for response in call))
        except grpc.RpcError as error:
            ends.append(reason_of(error))
            assert 'too many requests for model "words" are here' in error.details()
    assert sorted(map(str, ends)) == ["4"] * 6 + ["overloaded"] * 6


def test_a_pool_that_comes_back(start_cluster, connect):
    cluster = start_cluster(model=TWO, prefill=0, restart=True)
    client = connect(cluster)
    before = client.generate(TEXT, model="words", max_tokens=6, temperature=0).ids
    cluster.kill("decode-0")
    cluster.wait_back("decode-0")
    assert client.generate(TEXT, model="words", max_tokens=6, temperature=0).ids == before


def test_workers_of_other_models(start_cluster):
    """By hand: one of a model that the router has no folder for is refused and shown; one more of a known model joins its pool."""
    router = Bare("baton-router", model=f"words={SHAKESPEARE},llama={GOLDEN / 'llama'}")
    workers = []

    def status():
        with urllib.request.urlopen(f"http://{router.http}/status", timeout=20) as answer:
            return json.loads(answer.read())
    try:
        workers.append(Bare("baton-decode", "--router", router.grpc, "--name", "stranger", "--threads", "1", model=GOLDEN / "qwen2"))
        workers.append(Bare("baton-decode", "--router", router.grpc, "--name", "known", "--threads", "1", model=GOLDEN / "llama"))
        workers.append(Bare("baton-decode", "--router", router.grpc, "--name", "imposter", "--threads", "1", "--model-name", "llama", model=GOLDEN / "qwen2"))
        seen = wait_until("they are told of", lambda: (s := status()) and len(s["refused"]) == 2 and s["models"][1]["decode_workers"] == 1 and s, 30)
        refused = {one["name"]: one for one in seen["refused"]}
        assert refused["stranger"]["reason"] == refused["imposter"]["reason"] == "wrong_model"
        assert refused["stranger"]["sentence"].startswith('worker stranger serves model qwen2, for which this router has no folder: it serves "words" and "llama"')
        assert "worker imposter serves model llama (" in refused["imposter"]["sentence"]
        assert [(worker["name"], worker["model"]) for worker in seen["workers"]] == [("known", "llama")]
        assert seen["models"][0]["decode_workers"] == 0
    finally:
        for worker in workers:
            worker.stop()
        router.stop()


@pytest.mark.parametrize("models, sentence", [
    (f"{SHAKESPEARE},{SHAKESPEARE}", "two models are called tiny-shakespeare"),
    (f"a={SHAKESPEARE},a={GOLDEN / 'llama'}", "two models are called a: "),
    (f"a={SHAKESPEARE},b=/no/such/folder", "model b: "),
    ("a=", "'a=' names no folder"),
])
def test_lists_that_cannot_be_served(models, sentence):
    done = subprocess.run([str(BUILD / "bin/baton-router"), "--model", models], text=True, capture_output=True, timeout=60)
    assert done.returncode in (1, 2) and sentence in done.stderr


def test_many_clients_of_both(start_cluster, connect):
    """More of each than its workers hold at once: both get through, none of the other's tokens."""
    cluster = start_cluster(model=TWO, settings={"max-sequences": 4})
    client = connect(cluster)
    alone = {"words": client.generate(TEXT, model="words", max_tokens=8, temperature=0, ignore_eos=True).ids,
             "llama": client.generate([9, 8, 7], model="llama", max_tokens=8, temperature=0, ignore_eos=True).ids}
    wrong = []

    def ask(model, prompt):
        for _ in range(3):
            ids = client.generate(prompt, model=model, max_tokens=8, temperature=0, ignore_eos=True).ids
            if ids != alone[model]:
                wrong.append((model, ids))
    threads = [threading.Thread(target=ask, args=pair) for pair in [("words", TEXT), ("llama", [9, 8, 7])] * 12]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
