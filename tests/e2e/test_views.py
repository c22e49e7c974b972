"""Views of a cluster: traces, top, chat, the access log, the figures, the status page."""
import concurrent.futures
import http.server
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
import types
import urllib.error
import urllib.request

import front
import grpc
import pytest
from client import pb, pb_grpc, request
from harness import BATON, GOLDEN, SHAKESPEARE, TOP, ended_trace, failpoint, get, trace_of, wait_until
from keys import Keyed, new_key
from terminal import Terminal

PROMPT = [20 + i for i in range(100)]
GRAFANA = TOP / "deploy/grafana"


def test_a_request_in_all_views(start_cluster, connect, tmp_path):
    log = tmp_path / "access.log"
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"access-log": log, "chunk-tokens": 32})
    connect(cluster).generate(PROMPT, request_id="r/1?", max_tokens=6, ignore_eos=True)
    trace = ended_trace(cluster, "r%2F1%3F")
    assert (trace["id"], trace["status"], trace["finish"], trace["prompt_tokens"], trace["tokens"]) == ("r/1?", "ok", "max_tokens", 100, 6)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", trace["peer"]), "as over HTTP"
    attempt, = trace["attempts"]
    assert (attempt["prefill_worker"], attempt["decode_worker"], attempt["why"]) == ("prefill-0", "decode-0", "ok")
    prefill, handoff = attempt["prefill"], attempt["handoff"]
    assert prefill["chunks"] == 4 and len(prefill["chunk_end_ms"]) == 4 and prefill["cached_tokens"] == 0
    moments = [0, trace["dispatched_ms"], prefill["begin_ms"], *prefill["chunk_end_ms"], trace["first_token_ms"] + 5]
    assert moments == sorted(moments), moments
    assert handoff["bytes"] > 0 and handoff["sent_ms"] <= handoff["begin_ms"] <= handoff["end_ms"] <= handoff["told_ms"] + 5
    assert trace["first_token_ms"] <= trace["second_token_ms"] <= trace["last_token_ms"] <= trace["ended_ms"]

    shown = cluster.command("trace", "r/1?", "--columns", "80").stdout
    assert all(len(line) <= 80 for line in shown.splitlines()) and "\033" not in shown
    for word in ("request r/1?", "ok, max_tokens", "queue", "chunk 4", "handoff", "decode-0", "TTFT", "longest gap"):
        assert word in shown, shown
    assert json.loads(cluster.command("trace", "--last", "--json").stdout)["id"] == "r/1?"
    assert json.loads(get(cluster, "/traces")[1])["traces"][0]["id"] == "r/1?"

    line, = wait_until("it is in the access log", lambda: log.read_text().splitlines(), 20)
    fields = dict(word.split("=", 1) for word in line.split(" "))
    assert (fields["req"], fields["status"], fields["finish"], fields["tokens"], fields["chunks"]) == ("r/1?", "ok", "max_tokens", "6", "4")
    assert fields["prefill"] == "prefill-0" and fields["decode"] == "decode-0" and fields["lane"] == handoff["lane"]
    assert float(fields["ttft_ms"]) <= float(fields["total_ms"]) and fields["peer"] == trace["peer"]


def test_what_is_not_known_is_told(shared_cluster):
    cluster = shared_cluster(model=GOLDEN / "llama-wide")  # whose other tests ask for nothing
    for arguments, code, told in ((["nobody"], 1, "knows no request nobody"), (["--last"], 1, "has had no request yet"), ([], 2, "give either REQUEST_ID or --last"),
                                  (["x" * 300], 1, "no request"), ([""], 2, "REQUEST_ID is empty"), (["r", "--last"], 2, "give either")):
        done = cluster.command("trace", *arguments)
        assert done.returncode == code and told in done.stderr, done.stderr
    try:
        get(cluster, "/trace/nobody")
        raise AssertionError("found")
    except urllib.error.HTTPError as error:
        assert error.code == 404


def test_an_attempt_that_was_lost_is_shown(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", prefill=2, settings={"chunk-tokens": 32},
                            process_environment={"prefill-0": failpoint("prefill.after_chunk", "kill"), "prefill-1": failpoint("prefill.after_chunk", "kill")}, restart=True)
    before = dict(cluster.pids)
    connect(cluster).generate(PROMPT, request_id="r1", max_tokens=4, ignore_eos=True)
    trace = ended_trace(cluster, "r1")
    assert trace["status"] == "ok" and trace["attempt_count"] >= 2
    assert trace["attempts"][0]["why"] != "ok" and trace["attempts"][-1]["why"] == "ok"
    shown = cluster.command("trace", "r1").stdout
    assert "attempt 1" in shown and f"ended: {trace['attempts'][0]['why']}" in shown, shown

    def are_back():
        cluster.read_ready_file()
        return all(cluster.pids[hit[4]] != before[hit[4]] for hit in cluster.failpoint_hits())
    wait_until("who was killed is back", are_back, 30)


def test_a_prompt_that_decode_computes(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", prefill=0, decode=1)
    connect(cluster).generate(PROMPT, request_id="r1", max_tokens=4, ignore_eos=True)
    attempt, = ended_trace(cluster, "r1")["attempts"]
    assert attempt["prefill"]["local"] and attempt["prefill"]["worker"] == "decode-0" and attempt["prefill"]["chunks"] == 1
    assert "handoff" not in attempt


def test_what_is_refused_is_logged_and_the_file_is_opened_again(start_cluster, connect, tmp_path):
    log, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"access-log": log})
    client = connect(cluster)
    try:
        client.generate([], request_id="r0")
    except Exception:  # noqa: BLE001: whatever the client makes of it
        pass
    refused = wait_until("it is logged", lambda: log.read_text().splitlines(), 20)
    assert len(refused) == 1 and (" status=empty_prompt" in refused[0] or " status=missing_input" in refused[0]), refused
    log.rename(moved)
    os.kill(cluster.pids["router"], signal.SIGHUP)

    def says_so():  # with the next line that it writes
        client.generate(PROMPT, max_tokens=1)
        return "the access log is opened again" in (cluster.folder / "logs/router.log").read_text()
    wait_until("the router says so", says_so, 20)
    wait_until("lines come to the new file", log.read_text, 20)
    assert moved.read_text().splitlines()[0] == refused[0]
    assert "prompt=" not in log.read_text()


def logged(log, count):
    """The lines of an access log, once there are that many, as dictionaries."""
    lines = wait_until(f"{count} lines are logged", lambda: (lambda found: found if len(found) >= count else None)(log.read_text().splitlines()), 20)
    return [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]


def test_requests_of_the_http_door_are_seen_as_well(start_cluster, tmp_path):
    log = tmp_path / "access.log"
    # The prefill worker's report may come behind a short answer's end: the decode worker passes it on.
    cluster = start_cluster(model=SHAKESPEARE, settings={**front.SETTINGS, "access-log": log}, process_environment={"prefill-0": failpoint("prefill.send_prefilled", "fail@*")})
    door = front.Front(cluster)
    answer = door.complete("ROMEO:", {"X-Request-Id": "o1"}, max_tokens=4, n=2, stream=True, ignore_eos=True)
    assert answer.status == 200 and answer.frames
    for choice in (0, 1):
        trace = ended_trace(cluster, f"o1?choice={choice}")
        assert (trace["id"], trace["choice"], trace["status"], trace["tokens"], trace["model"]) == ("o1", choice, "ok", 4, cluster.status()["model"])
        assert trace["attempts"][-1]["decode_worker"] == "decode-0" and trace["attempts"][-1]["prefill"]["chunks"] == 1
        assert re.fullmatch(r"127\.0\.0\.1:\d+", trace["peer"])
    assert "request o1, choice 1" in cluster.command("trace", "o1", "--choice", "1").stdout
    assert cluster.command("trace", "o1", "--choice", "2").returncode == 1
    assert [(line["req"], line.get("choice"), line["status"], line["tokens"]) for line in sorted(logged(log, 2), key=lambda line: line.get("choice", ""))] == \
        [("o1", None, "ok", "4"), ("o1", "1", "ok", "4")]
    assert cluster.total("router", "baton_prompt_tokens_total") == trace["prompt_tokens"], "it is one prompt"

    assert door.complete("a", {"X-Request-Id": "o2"}, max_tokens=-1).status == 400
    assert door.complete("a", {"X-Request-Id": "o3"}, model="nobody").status == 404
    assert door.ask("/nowhere", headers={"X-Request-Id": "o4"}).status == 404
    refused = logged(log, 5)[2:]
    assert [(line.get("req"), line["status"]) for line in refused] == [("o2", refused[0]["status"]), ("o3", "model_not_found"), ("o4", "not_found")]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", line["peer"]) for line in refused) and "model" not in refused[1]


def test_whose_request_it_was(start_cluster, tmp_path):
    """Keys by their ids, with their tenants, at both doors; a key itself is nowhere."""
    log, keys, secret = tmp_path / "access.log", tmp_path / "keys", tmp_path / "key"
    key, line = new_key("k1", tenant="ours", requests_per_minute=3)
    keys.write_text(line + "\n")
    secret.write_text(key + "\n")
    cluster = start_cluster(model=SHAKESPEARE, flags=["--api-keys", keys], settings={**front.SETTINGS, "access-log": log})
    client = Keyed(cluster.grpc, key)
    assert list(client.start("ROMEO:", request_id="r1", max_tokens=2))
    assert front.Front(cluster, key).complete("ROMEO:", {"X-Request-Id": "o1"}, max_tokens=2).status == 200
    talk = subprocess.run([str(BATON), "chat", "--plain", "--max-tokens", "2", "--api-key-file", secret], input="x\n", env=cluster.environment, text=True, capture_output=True, timeout=120)
    assert talk.returncode == 0, talk.stderr
    assert front.Front(cluster, key).complete("ROMEO:", {"X-Request-Id": "o2"}, max_tokens=2).status == 429
    assert front.Front(cluster, "wrong").complete("ROMEO:", {"X-Request-Id": "o3"}, max_tokens=2).status == 401
    assert subprocess.run([str(BATON), "chat", "--plain"], input="x\n", env=cluster.environment, text=True, capture_output=True, timeout=120).returncode == 1
    lines = logged(log, 6)
    assert [(line["status"], line.get("key"), line.get("tenant")) for line in lines] == [("ok", "k1", "ours")] * 3 + [("rate_limited", "k1", "ours")] + [("invalid_api_key", None, None)] * 2
    assert [line.get("req") for line in lines][:5] == ["r1", "o1", lines[2]["req"], "o2", "o3"]
    assert (trace_of(cluster, "o1")["key"], trace_of(cluster, "o1")["tenant"]) == ("k1", "ours")
    assert "key k1 of tenant ours" in cluster.command("trace", "r1").stdout
    for text in (log.read_text(), get(cluster, "/traces")[1], cluster.logs(limit=10 ** 7)):
        assert key not in text


# ---------------------------------------------------------------------------------------------------------------- figures


def names_of(text):
    return set(re.findall(r"\b((?:baton|process)_[a-z0-9_]+)", text))


def test_every_metric_of_the_dashboard_and_the_rules_is_there(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", flags=["--slo-class", "name=chat,ttft=30s"])
    connect(cluster).generate(PROMPT, max_tokens=4, ignore_eos=True)
    pages = [urllib.request.urlopen(f"http://{p['metrics']}/metrics", timeout=10).read().decode() for p in cluster.processes.values()]
    real = set().union(*(set(re.findall(r"^(?:# TYPE )?([a-z_0-9]+)(?:\{| )", page, re.M)) for page in pages))
    dashboard = json.loads((GRAFANA / "dashboard.json").read_text())
    asked = names_of(json.dumps([panel.get("targets", []) for panel in dashboard["panels"]])) | names_of((GRAFANA / "alerts.yml").read_text())
    assert len(asked) > 25
    assert not asked - real, sorted(asked - real)
    for page in pages:
        families = re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M)
        assert len({name for name, _ in families}) == len(families)
        assert all(name.endswith("_total") for name, kind in families if kind == "counter"), families
        assert all(re.search(rf"^# HELP {name} \S", page, re.M) for name, _ in families)


def workers_pages(cluster):
    return [urllib.request.urlopen(f"http://{p['metrics']}/metrics", timeout=10).read().decode() for p in cluster.processes.values() if p["role"] != "router"]


def test_the_figures_of_requests(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide")
    client = connect(cluster)
    for _ in range(3):
        client.generate(PROMPT, max_tokens=5, ignore_eos=True)
    figure = lambda name, **labels: cluster.total("router", name, model_name="llama-wide", **labels)  # noqa: E731
    wait_until("all have ended", lambda: figure("baton_request_generation_tokens_count") == 3, 20)
    assert figure("baton_prompt_tokens_total") == 300 and figure("baton_generation_tokens_total") == 15
    assert figure("baton_inter_token_latency_seconds_count") == 12
    assert figure("baton_request_success_total", finished_reason="max_tokens") == 3
    assert figure("baton_time_to_first_token_seconds_count") == figure("baton_request_queue_time_seconds_count") == 3
    assert figure("baton_request_prompt_tokens_sum") == 300
    usage = cluster.metrics("decode-0")["baton_kv_cache_usage_perc"]
    assert 0 <= usage <= 1
    status = cluster.status()
    assert status["tokens"] == 15 and status["window"]["ttft"]["count"] == 3 and status["window"]["ttft"]["p50_ms"] > 0
    workers = lambda: cluster.status()["workers"]  # noqa: E731: they are shown with the next report of load
    wait_until("both tell what they did", lambda: sum(w["tokens"] for w in workers()) == 15 and sum(w["prompt_tokens"] for w in workers()) == 300, 20)


def test_each_of_several_models_has_its_figures(start_cluster, connect):
    cluster = start_cluster(model=["words=" + str(SHAKESPEARE), GOLDEN / "llama-wide"])
    connect(cluster).generate(PROMPT, model="llama-wide", max_tokens=5, ignore_eos=True)
    count = lambda name: cluster.total("router", "baton_request_prompt_tokens_count", model_name=name)  # noqa: E731
    wait_until("it has ended", lambda: (count("llama-wide"), count("words")) == (1, 0), 20)
    assert [(m["name"], m["prompt_tokens"], m["tokens"]) for m in cluster.status()["models"]] == [("words", 0, 0), ("llama-wide", 100, 5)]
    assert json.loads(get(cluster, "/trace")[1])["model"] == "llama-wide"
    shown = cluster.command("top", "--once", "--interval", "100ms").stdout
    assert "models 2   workers 4 of 4 up" in shown and re.search(r"^words .*^llama-wide ", shown, re.M | re.S), shown
    assert {re.search(r'^baton_worker_info{model_name="(.*?)"', page, re.M).group(1) for page in workers_pages(cluster)} == {"words", "llama-wide"}


def test_top_once(start_cluster, connect):
    cluster = start_cluster(model=GOLDEN / "llama-wide", prefill=2)
    connect(cluster).generate(PROMPT, max_tokens=4, ignore_eos=True)
    done = cluster.command("top", "--once", "--interval", "100ms")
    assert done.returncode == 0, done.stderr
    assert "\033" not in done.stdout and all(len(line) <= 80 for line in done.stdout.splitlines())
    for word in ("workers 3 of 3 up", "tokens/s", "TTFT", "prefill-1", "decode-0", "KV BLOCKS HELD"):
        assert word in done.stdout, done.stdout
    lost = cluster.command("top", "--http", "127.0.0.1:1")
    assert lost.returncode == 1 and "cannot connect to 127.0.0.1:1" in lost.stderr
    # Another cluster of this user, an older one: commands say which they ask, and name the other.
    mine = cluster.folder / f"baton/cluster-{cluster.up.pid}.json"
    other = mine.with_name(f"cluster-{os.getpid()}.json")
    other.write_text(json.dumps({**json.loads(mine.read_text()), "pid": os.getpid(), "grpc": "127.0.0.1:7", "http": "127.0.0.1:8"}))
    os.utime(other, (1, 1))
    newest = f"this is about the newest, pid {cluster.up.pid}, gRPC {cluster.grpc}, HTTP {cluster.http}"
    for arguments, address, flag in ((["status"], "127.0.0.1:8", "--http"), (["trace", "--last"], "127.0.0.1:8", "--http"),
                                     (["generate", "--prompt-ids", "1,2", "--max-tokens", "1"], "127.0.0.1:7", "--server")):
        done = cluster.command(*arguments)
        assert done.returncode == 0 and f"{newest}; others: pid {os.getpid()} {address}; name one with {flag} HOST:PORT\n" in done.stderr, done.stderr


# ------------------------------------------------------------------------------------------------------------------- page


def test_the_status_page_is_one_file(shared_cluster):
    cluster = shared_cluster(model=GOLDEN / "llama-wide")
    headers, page = get(cluster, "/")
    policy = headers["Content-Security-Policy"]
    nonce, = set(re.findall(r"nonce-(\w+)", policy))
    assert headers["Content-Type"] == "text/html; charset=utf-8" and headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert page.count(f'nonce="{nonce}"') == 2 and "@NONCE@" not in page
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", page) and "innerHTML" not in page and not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert re.findall(r"nonce-(\w+)", get(cluster, "/")[0]["Content-Security-Policy"])[0] != nonce


def trace(name, arrived, lasts, **more):
    """A request that is all decode: from its arrival, in seconds, for so many seconds."""
    return {"id": name, "arrived_unix_ms": 1e12 + 1000 * arrived, "age_ms": 1000 * lasts, "ended_ms": 1000 * lasts, "dispatched_ms": 0, "status": "ok", "prompt_tokens": 1, "tokens": 2,
            "max_tokens": 2, "model": "m", "first_token_ms": 0, "last_token_ms": 1000 * lasts, "attempts": [{"number": 1, "first_token_ms": 0, "ended_ms": 1000 * lasts}], **more}


@pytest.mark.skipif(not shutil.which("node"), reason="there is no node; tests/views/run checks the page in a browser")
def test_the_status_page_follows_the_newest():
    """The newest request is on top and the axis ends with it; one of an hour ago, and one that runs for an hour, squeeze no other; ids link to traces; workers that are missing are counted."""
    worker = {"model": "m", "role": "decode", "address": "127.0.0.1:1", "queue": 0, "running": 0, "blocks": 10, "blocks_free": 10, "blocks_cached": 0, "prompt_tokens": 0, "tokens": 0}
    lanes = [("cuda", ""), ("tcp", "the peer is on another machine"), ("rdma", "")]
    others = [{"name": f"decode-{i + 2}", "state": "down", "lane": lane, "lane_reason": why, **worker} for i, (lane, why) in enumerate(lanes)]
    status = {"queue": 0, "running": 0, "workers": [{"name": "decode-0", "state": "up", **worker}, *others], "missing": [{"name": "decode-1", "role": "decode", "address": "127.0.0.1:2", "model": "m", "silent_ms": 12000}]}
    traces = [trace("an hour ago", 0, 1), trace("runs", 1, 3599, status="running", ended_ms=None), trace("old", 3598, 1), trace("a/b c", 3599, 0.5, choice=2), trace("new", 3599.5, 0.5)]
    del traces[1]["ended_ms"]
    status["slo"] = [{"name": "chat", "default": True, "priority": "high", "offline": False, "percentile": 95, "objective": {"ttft_ms": 400, "tpot_ms": 40, "itl_ms": 0, "e2e_ms": 0},
                      "minute": {"attained": 3, "missed": 1}, "hour": {"attained": 0, "missed": 0, "missed_by": {"ttft": 2, "tpot": 0, "failed": 0, "rejected": 7}}, "ever": {"attained": 9, "missed": 9}, "goodput_per_second": 0.24,
                      "goodput_per_device": 0.12, "error_budget_left": -4, "deciles": [{"to_tokens": 9, "attained": 1}, {"to_tokens": 99, "attained": 0.25}]}]
    answers = {"/status": status, "/traces": {"traces": traces}}
    drawn = subprocess.run(["node", TOP / "tests/e2e/status_page.js", TOP / "router/ops/status_page.html"], input=json.dumps(answers), text=True, capture_output=True, timeout=60)
    assert drawn.returncode == 0 and not drawn.stderr, drawn.stderr
    drawn = json.loads(drawn.stdout)
    assert drawn["state"] == "live" and "1 of 5 workers up" in drawn["tiles"][0], drawn
    assert [(row[0], row[2]) for row in drawn["workers"]] == [("decode-0", "up"), ("decode-1", "missing"), *((f"decode-{i}", "down") for i in (2, 3, 4))]
    assert drawn["lanes"][0] == ["–", ""] and drawn["lanes"][2:] == [["cuda", ""], ["tcp", "the peer is on another machine"], ["rdma (never run)", ""]]
    assert drawn["classes"] == [["chat (default)", "TTFT 400 ms, TPOT 40.0 ms, 95%, high", "75.0%", "–", "0.24", "0.12", "-400%", "25%", "ttft 2, rejected 7"]], drawn["classes"]
    rows = drawn["rows"]
    assert [row["id"] for row in rows] == ["new", "a/b c #2", "old", "runs", "an hour ago"]
    assert [row["trace"] for row in rows] == ["/trace/new", "/trace/a%2Fb%20c?choice=2", "/trace/old", "/trace/runs", "/trace/an%20hour%20ago"]
    bars = {row["id"]: [(x, x + width) for kind, x, width in row["bars"] if kind == "decode"] for row in rows}
    left, right = bars["old"][0][0], bars["new"][0][1]
    assert (left, right) == (170, 928), "two seconds are the whole axis"
    assert bars["new"][0][1] - bars["new"][0][0] == pytest.approx((right - left) / 4)
    assert bars["runs"] == [(left, right)], "clipped at both ends"
    assert bars["an hour ago"] == [] and "\u2039 3597.0 s before" in rows[4]["words"]
    assert drawn["ticks"][-1] == "newest" and len(drawn["ticks"]) > 3


# ------------------------------------------------------------------------------------------------------------------- chat


def test_chat_without_a_terminal(shared_cluster):
    cluster = shared_cluster(model=SHAKESPEARE)
    script = "/temperature 0\n/max_tokens 12\nROMEO:\n/show\nand then\n/reset\nROMEO:\n/quit\nnever read\n"
    done = subprocess.run([str(BATON), "chat", "--plain"], input=script, env=cluster.environment, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["temperature is 0 from now on.", "max_tokens is 12 from now on."] and ">" not in lines[2]
    alone = cluster.generate("ROMEO:\n", temperature=0, max_tokens=12)["text"]
    assert done.stdout.count(alone.rstrip("\n")) == 3, "the first answer, /show, and the answer after /reset"
    assert "you: ROMEO:\nmodel: " + alone.rstrip("\n") in done.stdout and "never read" not in done.stdout
    broken = subprocess.run([str(BATON), "chat", "--server", "127.0.0.1:1"], input="x\n", env=cluster.environment, text=True, capture_output=True, timeout=120)
    assert broken.returncode == 1 and "cannot reach a router at 127.0.0.1:1" in broken.stderr


def test_chat_by_the_models_template(start_cluster):
    """The prompt is what the HTTP door makes of the same messages."""
    cluster = start_cluster(model=["words=" + str(SHAKESPEARE), GOLDEN / "llama"], settings=front.SETTINGS)
    said = "Speak.\nAnd then?\n"
    script = "/system Be brief.\n/temperature 0\n/max_tokens 12\n" + said
    talk = lambda *flags, script=script: subprocess.run([str(BATON), "chat", *flags], input=script, env=cluster.environment, text=True, capture_output=True, timeout=120)  # noqa: E731
    done = talk("--model", "words")
    assert done.returncode == 0, done.stderr
    messages = [{"role": "system", "content": "Be brief."}]
    for line in said.splitlines():
        messages.append({"role": "user", "content": line})
        answer = front.Front(cluster).ask("/v1/chat/completions", {"model": "words", "messages": messages, "temperature": 0, "max_tokens": 12}).json["choices"][0]["message"]["content"]
        assert answer.strip() in done.stdout, done.stdout
        messages.append({"role": "assistant", "content": answer.strip()})
    assert talk("--model", "words", "--server", cluster.grpc, "--model-dir", SHAKESPEARE).stdout == done.stdout, "the folder may be named"
    asked = ("--model", "words", "--max-tokens", "12", "--system", "Be brief.")
    flags = talk(*asked, "--temperature", "0", script=said)
    assert flags.stdout.splitlines() == done.stdout.splitlines()[3:] and flags.returncode == 0, flags.stderr
    narrow = talk(*asked, "--temperature", "3", "--seed", "5", "--top-p", "1e-9", script=said)  # but one token may be drawn
    assert narrow.stdout == flags.stdout == talk(*asked, "--temperature", "3", "--top-k", "1", "--min-p", "0.5", script=said).stdout
    assert talk(*asked, "--temperature", "3", script=said).stdout != flags.stdout
    for more, told in ((("--plain", "--system", "x"), "system is for models with a chat template"), (("--top-p", "0"), "top_p"), (("--temperature", "101"), "temperature must be between 0 and 100, got 101"),
                       (("--min-p", "x"), "--min-p must be a number, but is 'x'")):
        wrong = talk("--model", "words", *more)
        assert wrong.returncode == 2 and wrong.stderr.startswith("baton chat: ") and told in wrong.stderr, wrong.stderr
    wrong = talk("--model", "words", "--model-dir", GOLDEN / "llama")
    assert wrong.returncode == 1 and "no chat template, neither" in wrong.stderr, wrong.stderr


def test_q_ends_top(shared_cluster):
    """At once, without Enter and without showing it; the terminal is as it was before."""
    cluster = shared_cluster(model=SHAKESPEARE)
    for key in "q", "\x03":
        terminal = Terminal(cluster, "top", "--interval", "1h")
        terminal.read_until(r"decode-0")
        wait_until("keys come one by one", terminal.takes_keys, 20)
        terminal.type("~\n" + key)
        assert terminal.process.wait(30) == 0, terminal.text
        assert terminal.takes_lines()
        while select.select([terminal.master], [], [], 0)[0] and (text := terminal.read()):
            terminal.text += text
        assert "~" not in terminal.text, terminal.text


def test_ctrl_z_gives_the_terminal_back_until_top_goes_on(shared_cluster):
    """To a shell that doesn't set it itself."""
    terminal = Terminal(shared_cluster(model=SHAKESPEARE), "-c", f"set -m; '{BATON}' top --interval 1h; echo stop''ped; read line; fg; echo en''ded", program="sh")
    terminal.read_until(r"decode-0")
    wait_until("keys come one by one", terminal.takes_keys, 20)
    terminal.type("\x1a")
    terminal.read_until("stopped")
    assert terminal.takes_lines()
    terminal.type("\n")
    wait_until("top goes on", terminal.takes_keys, 20)
    terminal.type("q")
    terminal.read_until("ended")
    assert terminal.process.wait(30) == 0 and terminal.takes_lines()


def newest_status(cluster):
    """The status of the newest trace; None while the router has none."""
    try:
        return json.loads(get(cluster, "/trace")[1])["status"]
    except urllib.error.HTTPError as answer:
        if answer.code != 404:
            raise
        return None


def test_ctrl_c_stops_the_answer_and_not_the_chat(start_cluster):
    """The answer can't be over before that: it is the likeliest one, and its decode worker pauses in the middle of it."""
    cluster = start_cluster(model=SHAKESPEARE, settings={"worker-keepalive": "30s"}, process_environment={"decode-0": failpoint("decode.after_tokens", "pause@9")})
    terminal = Terminal(cluster, "chat", "--plain", "--max-tokens", "1900", "--temperature", "0")
    terminal.read_until(r"/help lists commands.*> $")
    terminal.type("KING RICHARD:\n")
    terminal.read_until(r"KING RICHARD:\s+\S+ ")
    terminal.type("\x03")
    terminal.read_until(r"\[stopped\].*> $")
    wait_until("the request is cancelled", lambda: newest_status(cluster) == "cancelled", 20)
    cluster.failpoint_go("decode.after_tokens")
    begin = len(terminal.text)
    terminal.type("/max_tokens 3\n")
    terminal.read_until(r"max_tokens is 3 from now on.*> $", begin)
    terminal.type("\x03")  # at the prompt: the line, not the program
    terminal.read_until(r"\(/quit or Ctrl-D ends\).*> $", begin)
    terminal.type("go on\n")
    terminal.read_until(r"\[\d+ \+ 3 tokens \(max_tokens\)", begin)
    begin = len(terminal.text)
    terminal.type("/max_tokens 2047\nmore\n")
    terminal.read_until(r"/max_tokens NUMBER asks for a shorter answer", begin)
    begin = len(terminal.text)
    terminal.type("/show\n")
    terminal.read_until(r"you: KING RICHARD:\s+model: .*you: go on\s+model: ", begin)
    terminal.type("\x04")
    assert terminal.process.wait(30) == 0, terminal.text


class Speaker(pb_grpc.BatonServicer):
    """A model that gives orders to terminals."""
    def Generate(self, asked, context):  # noqa: N802
        yield pb.GenerateResponse(delta=pb.Delta(text=ORDERS, token_ids=[1], first_index=0))
        yield pb.GenerateResponse(finished=pb.Finished(reason=pb.FINISH_REASON_EOS))
        yield pb.GenerateResponse(usage=pb.Usage(prompt_tokens=1, completion_tokens=1))


ORDERS = "before\x1b]0;title\x07\x1b[2J\u009b31m after\n"


def test_what_a_model_says_gives_a_terminal_no_orders(tmp_path):
    """Plain in a terminal, also by /show; to the byte where standard output is none."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    pb_grpc.add_BatonServicer_to_server(Speaker(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    world = types.SimpleNamespace(environment=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)))
    terminal = Terminal(world, "chat", "--plain", "--server", address)
    terminal.read_until(r"> $")
    terminal.type("x\n")
    terminal.read_until(r"before\?\]0;title\?\?\[2J\?31m after\s.*> $")
    begin = len(terminal.text)
    terminal.type("/show\n")
    terminal.read_until(r"before\?\]0;title\?\?\[2J\?31m after\s.*> $", begin)
    terminal.type("\x04")
    assert terminal.process.wait(30) == 0
    once = Terminal(world, "generate", "--server", address, "x")
    once.read_until(r"before\?\]0;title\?\?\[2J\?31m after\s")
    assert once.process.wait(30) == 0
    for shown in (terminal.text, once.text):
        assert not re.search(r"[\x07\x80-\x9f]|\x1b\]|\x1b\[2J|\x1b\[31m", shown), repr(shown)
    for command in (["chat", "--plain", "--server", address], ["generate", "--server", address, "x"]):
        done = subprocess.run([str(BATON), *command], input="x\n", env=world.environment, capture_output=True, text=True, timeout=60)
        assert ORDERS in done.stdout, (done.stdout, done.stderr)
    server.stop(None).wait()


def test_top_in_a_terminal(shared_cluster):
    cluster = shared_cluster(model=GOLDEN / "llama-wide")
    terminal = Terminal(cluster, "top", "--interval", "100ms")
    terminal.read_until(r"\x1b\[H\x1b\[2J.*generated 0\.0.*decode-0")
    assert not re.search(r"\x1b\[[0-9;]*m", terminal.text), "NO_COLOR is set"
    os.kill(terminal.process.pid, signal.SIGTERM)
    assert terminal.process.wait(30) == 0


# ------------------------------------------------------------------------------------------------------------- OpenTelemetry


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):  # noqa: N802
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def test_spans_reach_a_collector(start_cluster, connect):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        server.posts = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"otlp-endpoint": f"127.0.0.1:{server.server_port}"})
        client = connect(cluster)
        client.generate(PROMPT, request_id="r1", max_tokens=4, ignore_eos=True)
        parent = "00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01"
        list(client.stub.Generate(request(PROMPT, request_id="r2", max_tokens=4, ignore_eos=True), metadata=[("traceparent", parent)]))

        def spans():
            return [span for _, _, body in server.posts for resource in body["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]
        wait_until("all spans are here", lambda: sum(span["name"] == "request" for span in spans()) == 2, 20)
        server.shutdown()
    assert {(path, kind) for path, kind, _ in server.posts} == {("/v1/traces", "application/json")}
    for name in ("r1", "r2"):
        root, = (s for s in spans() if s["name"] == "request" and any(a["key"] == "baton.request_id" and a["value"]["stringValue"] == name for a in s["attributes"]))
        children = [s for s in spans() if s["traceId"] == root["traceId"] and s is not root]
        assert sorted(s["name"] for s in children) == ["decode", "handoff", "prefill", "queue"]
        assert all(s["parentSpanId"] == root["spanId"] for s in children)
        assert all(int(root["startTimeUnixNano"]) <= int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"]) for s in children)
        assert abs(int(root["startTimeUnixNano"]) / 1e9 - time.time()) < 60
        assert (root["traceId"], root.get("parentSpanId")) == (parent[3:35], parent[36:52]) if name == "r2" else "parentSpanId" not in root


def test_a_collector_that_does_not_answer(start_cluster, connect):
    """Requests go on, and what is dropped is counted."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = start_cluster(model=GOLDEN / "llama-wide", settings={"otlp-endpoint": f"127.0.0.1:{silent.getsockname()[1]}"})
        client = connect(cluster)
        for _ in range(3):
            client.generate(PROMPT, max_tokens=2, ignore_eos=True)
        wait_until("its time is over", lambda: cluster.metrics("router")["baton_otlp_dropped_requests_total"] > 0, 20)
    assert "did not answer in time" in (cluster.folder / "logs/router.log").read_text()
