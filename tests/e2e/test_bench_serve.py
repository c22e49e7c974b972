"""`baton bench serve` against a running cluster by all its doors, and against servers that refuse, break off or speak otherwise."""
import collections
import http.server
import json
import os
import re
import subprocess
import threading

import front
import pytest
from harness import BATON, SHAKESPEARE, wait_until

LOOSE = ["--goodput", "ttft:600000", "tpot:600000"]
FIGURES = [f"{part}_{name}_ms" for part in ("mean", "median", "std", "max", "p99") for name in ("ttft", "tpot", "itl", "e2el")]


def serve(*arguments, environment=None, timeout=120):
    environment = environment or dict(os.environ, XDG_RUNTIME_DIR="/nonexistent")
    return subprocess.run([str(BATON), "bench", "serve", *map(str, arguments)], env=environment, text=True, capture_output=True, timeout=timeout)


@pytest.fixture
def bench(shared_cluster, tmp_path):
    """Runs it against the cluster, and returns its JSON. All lengths are exact: the tokenizer is the model's."""
    cluster = shared_cluster(settings={**front.SETTINGS, "kv-tokens": 16384})

    def run(*arguments, baton=False, tokenizer=SHAKESPEARE):
        path = tmp_path / "result.json"
        where = ["--backend", "baton", "--server", cluster.grpc] if baton else ["--base-url", f"http://{front.address(cluster)}"]
        done = serve(*where, "--tokenizer", tokenizer, "--disable-tqdm", "--save-result", "--save-detailed", "--result-filename", path, *arguments)
        assert done.returncode == 0, done.stderr
        result = json.loads(path.read_text())
        assert result["failed"] == 0 and result["failures"] == {}, done.stdout
        assert f"Successful requests:                     {result['completed']}" in done.stdout
        return result

    run.cluster = cluster
    return run


def random(count, *more):
    return ["--num-prompts", count, "--random-input-len", 12, "--random-output-len", 5, "--temperature", 0, *more]


def test_open_loop_closed_loop_and_both_doors(bench):
    """The same requests by rate, by concurrency, over HTTP and over gRPC: the same numbers of tokens, and the same texts."""
    open_loop = bench(*random(24, "--request-rate", 60, *LOOSE))
    assert all(open_loop[name] >= 0 for name in FIGURES), open_loop
    assert (open_loop["completed"], open_loop["total_input_tokens"], open_loop["total_output_tokens"]) == (24, 24 * 12, 24 * 5)
    assert open_loop["input_lens"] == [12] * 24 and open_loop["output_lens"] == [5] * 24
    assert open_loop["request_rate"] == 60 and open_loop["max_concurrency"] is None and open_loop["backend"] == "openai"
    assert open_loop["attainment"] == 1 and open_loop["request_goodput"] == open_loop["request_throughput"] > 0
    assert len(open_loop["attainment_by_input_decile"]) == 10 and open_loop["request_rate_attained_99"] > 0
    assert all(later >= due for due, later in zip(open_loop["start_times"], open_loop["start_times"][1:]))
    assert open_loop["start_times"][-1] >= 24 / 60  # the last one is due then
    for ttft, itls, latency in zip(open_loop["ttfts"], open_loop["itls"], open_loop["latencies"]):
        assert abs(ttft + sum(itls) - latency) < 1e-4
    closed = bench(*random(24, "--max-concurrency", 3, "--goodput", "ttft:0"))
    assert closed["max_concurrent_requests"] <= 3 and closed["request_rate"] == "inf" and closed["max_concurrency"] == 3
    assert closed["attainment"] == 0 and closed["request_rate_attained_90"] is None
    rpc = bench(*random(24, "--max-concurrency", 8), baton=True)
    assert rpc["backend"] == "baton" and "attainment" not in rpc and rpc["request_goodput"] is None
    classless = serve("--backend", "baton", "--server", bench.cluster.grpc, "--num-prompts", 1, "--slo-class", "chat")
    assert classless.returncode == 1 and 'slo_class_unknown' in classless.stderr, classless.stderr
    for other in (closed, rpc):
        assert all(other[name] == open_loop[name] for name in ("completed", "total_input_tokens", "total_output_tokens", "input_lens", "generated_texts"))
    assert len(set(open_loop["generated_texts"])) > 12 and "" not in open_loop["generated_texts"]


def test_measured_lengths_and_chats(bench):
    """Without the tokenizer, words are measured by /tokenize; a chat's template counts, too."""
    for backend in ("openai", "openai-chat"):
        result = bench("--backend", backend, "--num-prompts", 8, "--max-concurrency", 4, "--random-input-len", 120,
                       "--random-output-len", 3, "--num-warmups", 3, tokenizer="")
        assert result["completed"] == 8 and result["output_lens"] == [3] * 8 and result["tokenizer_id"] is None
        assert abs(sum(result["input_lens"]) / 8 - 120) < 12, result["input_lens"]


@pytest.mark.parametrize("baton", [False, True], ids=["http", "grpc"])
def test_conversations_go_on_from_their_answers(bench, baton):
    """Two conversations of 1 + 2 * 2 requests, whose prompts hold the earlier turns and their answers."""
    result = bench("--dataset-name", "multi-turn", "--multi-turn-turns", 3, "--multi-turn-branches", 2, "--multi-turn-think-time", 0.01, "--multi-turn-system-len", 6,
                   "--multi-turn-input-len", 8, "--multi-turn-output-len", 4, "--num-prompts", 10, "--request-rate", "inf", "--max-concurrency", 4, baton=baton)
    lengths = result["input_lens"]
    for first in (0, 5):
        root, branches, leaves = lengths[first], lengths[first + 1:first + 3], lengths[first + 3:first + 5]
        assert root == 14 and all(root + 8 < n <= root + 8 + 12 for n in branches), lengths  # an answer's text may have more tokens
        assert all(leaf > branch + 8 for leaf, branch in zip(leaves, branches)), lengths
    assert result["output_lens"] == [4] * 10
    starts, ends = result["start_times"], [start + latency for start, latency in zip(result["start_times"], result["latencies"])]
    assert all(starts[child] >= ends[parent] for child, parent in ((1, 0), (2, 0), (3, 1), (4, 2), (6, 5), (9, 7)))


def test_traces_and_prefixes_are_cached(bench, tmp_path):
    """Prompts with equal hash_ids share blocks, at the times of the trace; an Azure trace has its lengths."""
    trace = tmp_path / "mooncake.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 1000 + 200 * i, "input_length": 600, "output_length": 2, "hash_ids": [7, 10 + i]}) + "\n" for i in range(3)))
    hits = lambda: sum(bench.cluster.total(name, "baton_prefix_cache_hits_total") for name in ("prefill-0", "decode-0"))  # noqa: E731
    before = hits()
    result = bench("--dataset-name", "mooncake", "--dataset-path", trace, "--num-prompts", 3)
    assert result["input_lens"] == [600] * 3 and result["output_lens"] == [2] * 3 and result["self_timed"] is True
    assert [round(b - a, 1) >= 0.2 for a, b in zip(result["start_times"], result["start_times"][1:])] == [True, True]
    assert hits() - before >= 480  # the others may have come before the first one was cached
    rows = tmp_path / "azure.csv"
    rows.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,37,4\n0.1,20,0\n0.2,5000,9\n0.3,25,2\n")
    result = bench("--dataset-name", "azure", "--dataset-path", rows, "--num-prompts", 9, "--max-request-tokens", 2048, "--timed-trace-sec-multiplier", 0.5)
    assert result["input_lens"] == [37, 20, 25] and result["output_lens"] == [4, 1, 2]
    assert result["start_times"][2] >= 0.15
    shared = bench("--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", 32, "--prefix-repetition-suffix-len", 8,
                   "--prefix-repetition-num-prefixes", 2, "--prefix-repetition-output-len", 2, "--num-prompts", 9, "--ignore-eos", "--request-rate", "inf")
    assert shared["input_lens"] == [40] * 8


def test_sharegpts_texts(bench, tmp_path):
    talks = tmp_path / "sharegpt.json"
    talks.write_text(json.dumps([{"id": str(i), "conversations": [{"from": "human", "value": f"Speak, speak to me of love and death {i}"},
                                                                   {"from": "gpt", "value": "The king, the king is dead"}]} for i in range(3)]))
    result = bench("--dataset-name", "sharegpt", "--dataset-path", talks, "--num-prompts", 5, "--ignore-eos", "--max-concurrency", 2)
    assert result["completed"] == 5 and all(n > 5 for n in result["input_lens"]) and len(set(result["output_lens"])) == 1
    assert bench("--dataset-name", "sharegpt", "--dataset-path", talks, "--num-prompts", 5, "--no-oversample", "--output-len", 3, "--ignore-eos")["output_lens"] == [3] * 3


def test_results_are_appended_with_metadata(bench, tmp_path):
    for name in ("a", "b"):
        done = serve("--base-url", f"http://{front.address(bench.cluster)}/", "--tokenizer", SHAKESPEARE, *random(2), "--append-result", "--result-dir", tmp_path / "new",
                     "--result-filename", "all.jsonl", "--metadata", f"run={name}", "tp=2", "--metric-percentiles", "50,99.9", "--percentile-metrics", "ttft,lateness")
        assert done.returncode == 0 and "P99.9 TTFT (ms):" in done.stdout and "TPOT" not in done.stdout, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "new/all.jsonl").read_text().splitlines()]
    assert [(line["run"], line["tp"], line["completed"]) for line in lines] == [("a", "2", 2), ("b", "2", 2)]
    assert "p99.9_lateness_ms" in lines[0] and "mean_tpot_ms" not in lines[0] and "ttfts" not in lines[0]


@pytest.mark.parametrize("arguments,words", [
    (["--dataset-name", "sharegtp"], "--dataset-name must be one of random, sharegpt,"),
    (["--request-rate", "0"], "--request-rate 0: must be requests a second above 0, or inf"),
    (["--request-rate", "fast"], "--request-rate fast: must be requests a second above 0, or inf"),
    (["--burstiness", "0"], "--burstiness 0: must be above 0, or inf"),
    (["--cv", "2", "--burstiness", "2"], "--cv and --burstiness say the same"),
    (["--dataset-name", "azure"], "--dataset-name azure needs --dataset-path FILE"),
    (["--dataset-path", "x"], "--dataset-path is for the datasets sharegpt, azure,"),
    (["--dataset-name", "azure", "--dataset-path", "/nowhere.csv", "--model", "m"], "cannot open /nowhere.csv: No such file"),
    (["--dataset-name", "mooncake", "--dataset-path", "/nowhere.jsonl", "--model", "m"], "cannot open /nowhere.jsonl: No such file"),
    (["--ramp-up-strategy", "linear"], "needs --ramp-up-start-rps above 0"),
    (["--ramp-up-start-rps", "1"], "need --ramp-up-strategy"),
    (["--ramp-up-strategy", "linear", "--request-rate", "3", "--ramp-up-start-rps", "1", "--ramp-up-end-rps", "2"], "both set the rate"),
    (["--goodput", "ttft:1", "itl:3"], "--goodput itl:3: must be ttft:MS, tpot:MS or e2el:MS"),
    (["--percentile-metrics", "ttft,foo"], "'foo' is none of ttft"),
    (["--metric-percentiles", "101"], "'101' is not a number from 0 to 100"),
    (["--extra-body", "{"], "--extra-body:"),
    (["--extra-body", '{"stream": false}'], '"stream" is in each body already'),
    (["--header", "nothing"], "--header 'nothing': must be KEY=VALUE"),
    (["--endpoint-type", "openai"], "--backend is its name"),
    (["--num-prompts", "0"], "--num-prompts must be in 1"),
    (["--random-input-len", "0", "--model", "m"], "--random-input-len 0 with"),
    (["--tokenizer", "/nowhere", "--model", "m"], "/nowhere"),
    (["--backend", "baton", "--header", "a=b"], "are for HTTP"),
])
def test_bad_settings_are_told_at_once(arguments, words):
    done = serve("--base-url", "http://127.0.0.1:1", *arguments)
    assert done.returncode in (1, 2) and words in done.stderr, (done.returncode, done.stderr)
    assert done.stdout == ""


def test_a_server_that_is_not_there():
    done = serve("--base-url", "http://127.0.0.1:1", "--model", "m")
    assert done.returncode == 1 and "the first request, to see that the server answers, failed: connection: cannot connect to 127.0.0.1:1: Connection refused" in done.stderr
    done = serve("--base-url", "127.0.0.1:1")
    assert done.returncode == 1 and "cannot ask for the server's models (--model names one)" in done.stderr
    done = serve("--backend", "baton", "--server", "127.0.0.1:1")
    assert done.returncode == 1 and "failed: UNAVAILABLE" in done.stderr


def test_requests_that_cannot_be_sent():
    done = serve("--base-url", "https://127.0.0.1:1", "--tls-ca", "system", "--tls-name", "a b", "--model", "m", timeout=60)
    assert done.returncode == 1 and '"a b" is no name for --tls-name' in done.stderr, done.stderr


class Other(http.server.BaseHTTPRequestHandler):
    """Another OpenAI server: no /tokenize, no usage if `told` is false, and what `plan` says of each request after the first ones."""
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply(200, json.dumps({"data": [{"id": "other"}]}))

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        world = self.server.world
        if self.path != "/v1/completions":
            self.reply(404, "no")
            return
        with world.lock:
            world.asked.append((asked, dict(self.headers)))
            fate = "ok" if asked["max_tokens"] == 1 else world.plan.pop(0) if world.plan else "ok"
        if fate == "busy":
            self.reply(429, json.dumps({"error": {"message": "wait", "code": "overloaded"}}))
            return
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(1 if fate == "cut" else asked["max_tokens"]):
            self.say({"choices": [{"text": " w", "finish_reason": "length" if i + 1 == asked["max_tokens"] else None}]})
        if fate == "ok":
            if world.told:
                self.say({"choices": [], "usage": {"prompt_tokens": 2 * len(asked["prompt"].split()) + 3, "completion_tokens": asked["max_tokens"]}})
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def say(self, chunk):
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def log_message(self, *_):
        pass


@pytest.fixture
def other():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    server.world = world = type("World", (), {})()
    world.lock, world.asked, world.plan, world.told = threading.Lock(), [], [], True
    world.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield world
    server.shutdown()


def test_another_server_with_failures(other, tmp_path):
    other.plan = ["busy", "ok", "cut", "busy", "ok"] + ["ok"] * 5
    path = tmp_path / "r.json"
    done = serve("--base-url", other.url, "--num-prompts", 10, "--random-input-len", 43, "--random-output-len", 4, "--max-concurrency", 1, "--goodput", "e2el:600000",
                 "--save-result", "--result-filename", path, "--header", "x-team=a", "x-more=b=c", "--extra-body", '{"logit_bias": {"5": 1}}', "--top-p", 0.5, "--seed", 3,
                 "--slo-class", "chat",
                 environment=dict(os.environ, XDG_RUNTIME_DIR="/nonexistent", OPENAI_API_KEY="secret"))
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert (result["completed"], result["failed"], result["failures"]) == (7, 3, {"overloaded": 2, "unfinished": 1})
    assert result["attainment"] == 0.7 and result["objective_scale_90"] is None and result["total_output_tokens"] == 28
    assert result["total_input_tokens"] == 7 * 43  # 20 words of two tokens, and three: measured before
    assert "overloaded                             2          wait" in done.stdout
    body, headers = other.asked[-1]
    assert body["ignore_eos"] is True and body["top_p"] == 0.5 and body["logit_bias"] == {"5": 1} and body["model"] == "other" and len(body["prompt"].split()) == 20
    assert headers["x-team"] == "a" and headers["x-more"] == "b=c" and headers["Authorization"] == "Bearer secret"
    prefix = headers["X-Request-Id"].removesuffix("9")
    assert re.fullmatch("bench-[0-9a-f]{8}-", prefix) and f"with ids {prefix}0 and up" in done.stderr
    assert {headers["x-baton-slo-class"] for _, headers in other.asked} == {"chat"} and other.asked[0][1]["X-Request-Id"] == prefix + "probe"
    again = [asked["prompt"] for asked, _ in other.asked if asked["max_tokens"] == 4]
    assert len(set(again)) == 10


def test_lost_turns_come_when_their_conversations_fail(other, tmp_path):
    """One of 10 conversations fails at its first turn. The turn that is lost by that doesn't count among the first requests."""
    other.plan = ["ok"] * 7 + ["cut"]
    path = tmp_path / "r.json"
    done = serve("--base-url", other.url, "--dataset-name", "multi-turn", "--multi-turn-turns", 2, "--multi-turn-think-time", 3, "--multi-turn-input-len", 8,
                 "--multi-turn-output-len", 4, "--num-prompts", 20, "--request-rate", 100, "--max-concurrency", 1, "--goodput", "e2el:600000", "--save-result",
                 "--result-filename", path)
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text())
    assert result["failures"] == {"unfinished": 1, "earlier turn failed": 1}
    assert result["request_rate_attained_90"] > 0


def test_a_server_without_usage_and_one_that_only_fails(other):
    other.told = False
    done = serve("--base-url", other.url, "--num-prompts", 3, "--random-input-len", 10, "--random-output-len", 4)
    assert done.returncode == 0 and "the server doesn't tell numbers of tokens" in done.stderr and "Total generated tokens:                  12" in done.stdout
    other.plan = ["busy"] * 3
    done = serve("--base-url", other.url, "--num-prompts", 3, "--random-input-len", 10, "--random-output-len", 4)
    assert done.returncode == 1 and "all 3 requests failed: overloaded: wait" in done.stderr


def test_a_signal_ends_the_run_with_its_figures(other):
    """Requests at 20 a second for minutes: after some, Ctrl-C. What was sent is reported, and nothing else."""
    process = subprocess.Popen([str(BATON), "bench", "serve", "--base-url", other.url, "--num-prompts", "4000", "--request-rate", "20", "--random-input-len", "8",
                                "--random-output-len", "2"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, XDG_RUNTIME_DIR="/nonexistent"))
    wait_until("some were sent", lambda: sum(asked["max_tokens"] == 2 for asked, _ in list(other.asked)) >= 5, 60)
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    sent = sum(asked["max_tokens"] == 2 for asked, _ in other.asked)
    numbers = collections.Counter()
    for line in out.splitlines():
        if line.startswith(("Successful requests:", "Failed requests:")):
            numbers[line.split()[0]] = int(line.split()[-1])
    assert process.returncode == 130, err
    assert 5 <= sum(numbers.values()) and abs(sum(numbers.values()) - sent) <= 1, (numbers, sent)
