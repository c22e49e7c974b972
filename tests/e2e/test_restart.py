"""Processes that die and are started again: they find their places, and nothing else is started again for that."""
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import grpc
import pytest
from front import SETTINGS, Front
from harness import BATON, GOLDEN, LONG, alive, wait_until

PROMPT = [20 + i for i in range(200)]
ASKED = dict(temperature=1, seed=9, max_tokens=24, ignore_eos=True, logits_hash=True)


def nothing_held(cluster):
    return all(b["pinned"] == b["landing"] == b["used"] == 0 for b in cluster.all_blocks().values())


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_a_worker_finds_its_place_again(start_cluster, connect, name):
    cluster = start_cluster(model=GOLDEN / "llama-wide", restart=True)
    client = connect(cluster)
    before = client.generate(PROMPT, **ASKED)
    others = {other: pid for other, pid in cluster.pids.items() if other != name}
    for _ in range(2):
        incarnation = {w["name"]: w["incarnation"] for w in cluster.status()["workers"]}
        changes = cluster.total("router", "baton_router_membership_changes_total")
        cluster.kill(name)
        former = cluster.wait_back(name)
        changed = cluster.total("router", "baton_router_membership_changes_total")
        assert changed >= changes + 2, "another life of it joins, and has a session"
        taken = (cluster.folder / "logs" / f"{name}.log").read_text().count("Address already in use")
        # another program may have got one of its ports meanwhile: then it is started once more, with others
        assert taken or cluster.processes[name]["address"] == former["address"]
        assert {w["name"]: w["incarnation"] for w in cluster.status()["workers"]}[name] != incarnation[name]
        after = client.generate(PROMPT, **ASKED)
        assert (after.ids, after.hashes) == (before.ids, before.hashes)
        assert after.timing.prefills == 1 and after.timing.prefill_worker == "prefill-0", "handed over, not computed on decode"
        assert cluster.total("router", "baton_router_membership_changes_total") == changed, "requests change nothing"
    assert {other: cluster.pids[other] for other in others} == others, "nothing else was started again"
    assert cluster.processes[name]["restarts"] == 2 + taken
    wait_until("all blocks are free", lambda: nothing_held(cluster), 15)


def one_status(client, number, ended):
    """One request to its end: appends its text's length, its status, and what the status says."""
    count = 0
    try:
        for response in client.start(PROMPT, **{**ASKED, "seed": number, "max_tokens": 3000}):
            count += len(response.delta.token_ids)
        ended.append((count, None, ""))
    except grpc.RpcError as error:
        ended.append((count, error.code(), error.details()))


def test_the_router_is_killed_under_load(start_cluster, connect):
    """Each client gets one clear status; the workers stay, drop what the dead router had asked for, and serve the next one."""
    cluster = start_cluster(model=GOLDEN / "llama-wide", restart=True, settings={"chunk-tokens": 64, "max-sequences": 8, "lease": "60s"})
    workers = {name: pid for name, pid in cluster.pids.items() if name != "router"}
    clients = [connect(cluster) for _ in range(3)]
    by_http = Front(cluster)
    before = clients[0].generate(PROMPT, **ASKED)
    ended = []
    # More than the workers hold: some are decoded, others wait.
    threads = [threading.Thread(target=one_status, args=(clients[i % 3], i, ended)) for i in range(18)]
    shell = subprocess.Popen([BATON, "generate", "--max-tokens", "3000", "--ignore-eos", "--prompt-ids", ",".join(map(str, PROMPT))],
                             env=cluster.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for thread in threads:
        thread.start()
    wait_until("all are asked for", lambda: cluster.total("router", "baton_router_requests") == len(threads) + 1, 60)
    wait_until("answers are written", lambda: cluster.blocks("decode-0")["used"] > 0, 60)
    cluster.kill("router")
    for thread in threads:
        thread.join(50)  # far below their deadlines, and the workers' lease
    _, error = shell.communicate(timeout=20)
    assert len(ended) == len(threads)
    assert {code for _, code, _ in ended} == {grpc.StatusCode.UNAVAILABLE}
    assert all(details for _, _, details in ended)
    assert shell.returncode == 1 and f"router at {cluster.grpc}" in error

    former = cluster.wait_back("router")
    assert cluster.processes["router"]["address"] == former["address"]
    assert by_http.ask("/live").status == 200, "HTTP is where it was, too"
    wait_until("all workers are back", lambda: [w["state"] for w in cluster.status()["workers"]] == ["up", "up"], 20)
    wait_until("all blocks are free", lambda: nothing_held(cluster), 20)
    after = connect(cluster).generate(PROMPT, **ASKED)
    assert (after.ids, after.hashes) == (before.ids, before.hashes)
    assert {name: cluster.pids[name] for name in workers} == workers, "no worker was started again"
    assert all(alive(pid) for pid in workers.values())


def test_a_router_that_comes_back_with_another_model_refuses_the_workers(start_cluster, tmp_path):
    """Both sides' files are named; with the right model everything is as before, and no worker was started again."""
    model = tmp_path / "model"
    model.symlink_to(GOLDEN / "llama")
    cluster = start_cluster(model=model, restart=True, flags=["--model-name", "tested"])
    workers = {name: pid for name, pid in cluster.pids.items() if name != "router"}
    before = cluster.generate([20, 21, 22], max_tokens=3, ignore_eos=True, temperature=0)["token_ids"]
    model.unlink()
    model.symlink_to(GOLDEN / "llama-wide")
    cluster.kill("router")
    cluster.wait_back("router")
    for name in workers:
        log = cluster.folder / f"logs/{name}.log"
        wait_until("it is told why", lambda: "refused this worker" in log.read_text(), 20)
        told = next(line for line in log.read_text().splitlines() if "refused this worker" in line)
        assert re.search(f"worker {name} serves model tested .*config.json ([0-9a-f]{{16}}).*but this router serves tested .*(?!\\1)[0-9a-f]{{16}}", told), told
    model.unlink()
    model.symlink_to(GOLDEN / "llama")
    cluster.kill("router")
    cluster.wait_back("router")
    wait_until("all workers are back", lambda: [w["state"] for w in cluster.status()["workers"]] == ["up", "up"], 20)
    assert cluster.generate([20, 21, 22], max_tokens=3, ignore_eos=True, temperature=0)["token_ids"] == before
    assert {name: cluster.pids[name] for name in workers} == workers


def test_a_crash_loop_is_called_one_and_tried_on(start_cluster, tmp_path):
    model = tmp_path / "model"
    model.symlink_to(GOLDEN / "llama")
    cluster = start_cluster(model=model, decode=2, restart=True, flags=["--restart-wait", "200ms"])
    told = cluster.folder / "up.log"
    model.unlink()
    cluster.kill("decode-1")
    wait_until("said so", lambda: "decode-1 has ended 5 times in a row" in told.read_text(), 30)
    wait_until("with its log's last lines", lambda: "no such folder" in told.read_text(), 30)
    wait_until("tried on", lambda: told.read_text().count("msg=\"decode-1 ended with exit code 1\"") >= 6, 30)
    assert told.read_text().count("times in a row") == 1
    assert len(cluster.generate([20, 21, 22], max_tokens=3, ignore_eos=True)["token_ids"]) == 3, "the others serve"
    model.symlink_to(GOLDEN / "llama")
    cluster.wait_back("decode-1")
    assert cluster.processes["decode-1"]["restarts"] >= 6


def test_a_worker_that_does_not_answer(start_cluster, connect):
    """A worker that is stopped: `baton up` says so, status shows that one is missing, and it comes back by itself, or is started again."""
    cluster = start_cluster(model=GOLDEN / "llama", restart=True, settings={"worker-keepalive": "500ms", "worker-ttl": "1s"},
                            flags=("--liveness-timeout", "12s"))
    client = connect(cluster)
    before = client.generate([1, 2, 3], **ASKED)
    said = lambda: (cluster.folder / "up.log").read_text()
    former = cluster.pids["decode-0"]
    cluster.kill("decode-0", signal.SIGSTOP)
    wait_until("it is missing", lambda: [w["name"] for w in cluster.status()["missing"]] == ["decode-0"], 20)
    shown = cluster.command("status").stdout
    assert "workers 1 of 2 up" in shown and re.search(r"^decode-0 +decode +missing ", shown, re.M), shown
    wait_until("it is said", lambda: "decode-0 runs, but does not answer: it is ended at liveness-timeout" in said(), 20)
    os.kill(former, signal.SIGCONT)
    wait_until("it answers again", lambda: "decode-0 answers again" in said(), 20)
    wait_until("it is there again", lambda: "workers 2 of 2 up" in cluster.command("status").stdout, 20)
    assert cluster.status()["missing"] == []

    cluster.kill("decode-0", signal.SIGSTOP)
    cluster.wait_back("decode-0", 60)
    assert re.search(r"level=error .*msg=\"decode-0 has not answered for \d+ ms: ending it \(liveness-timeout\)\"", said()), said()
    assert not alive(former) and cluster.processes["decode-0"]["restarts"] == 1
    after = client.generate([1, 2, 3], **ASKED)
    assert (after.ids, after.hashes) == (before.ids, before.hashes)
    assert all(name not in said() for name in ("router runs, but", "prefill-0 runs, but"))


@pytest.mark.skipif(not LONG, reason="it stops a router for longer than a head may take: --long")
def test_a_router_that_was_stopped(start_cluster, connect):
    """Requests that were sent whole while the router stood still are answered, over HTTP and gRPC, and so is one whose head had begun."""
    cluster = start_cluster(model=GOLDEN / "llama", restart=True, settings=SETTINGS, flags=("--liveness-timeout", "0"))
    client, host = connect(cluster), Front(cluster).address
    before = client.generate([1, 2, 3], **ASKED)
    body = json.dumps(dict(prompt=[1, 2, 3], max_tokens=4)).encode()
    asked = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    name, port = host.rsplit(":", 1)
    crowd = [socket.create_connection((name, int(port)), timeout=60) for _ in range(600)]
    for i, connection in enumerate(crowd):
        connection.sendall(asked[:20 * (i % 2)])
    ended, threads = [], []
    cluster.kill("router", signal.SIGSTOP)
    for i, connection in enumerate(crowd):
        connection.sendall(asked[20 * (i % 2):])
    for number in range(8):
        threads.append(threading.Thread(target=lambda: ended.append(client.generate([1, 2, 3], **ASKED))))
        threads[-1].start()
    time.sleep(11)  # a head may take 10 s
    cluster.kill("router", signal.SIGCONT)
    heads = []
    for connection in crowd:
        with connection, connection.makefile("rb") as answer:
            heads.append(answer.readline())
    assert heads == [b"HTTP/1.1 200 OK\r\n"] * len(crowd), {head: heads.count(head) for head in heads}
    for thread in threads:
        thread.join()
    assert len(ended) == 8 and all((answer.ids, answer.hashes) == (before.ids, before.hashes) for answer in ended)
