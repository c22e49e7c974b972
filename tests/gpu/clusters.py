#!/usr/bin/env python3
"""Clusters on one device: clusters.py KIND... [--device cuda:0] [--dry]. Prints one JSON object a kind.

1p1d, 2p1d   requests give the bytes that one worker alone gives (the decode worker computes the prompt itself)
killed       kill -9 of the prefill worker that owns the blocks, in the middle of a handoff: the bytes are the same
stopped      SIGSTOP of it, past its lease, then SIGCONT: the bytes are the same, then and later

All blocks go by the lane cuda: a kind fails if any took another one.

A fault counts if the answer was under way and its blocks weren't all there: the decode worker had bytes of it, and the answer no
token. A kind in which no fault came in time fails."""
import argparse
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import GOLDEN, Cluster, wait_until  # noqa: E402

VOCABULARY = 380


class Sizes:
    def __init__(self, dry):
        self.model = GOLDEN / ("rope-linear" if dry else "llama-wide")
        self.requests, self.answer = (2, 3) if dry else (12, 24)
        self.prompts = (20, 60) if dry else (40, 900)
        self.long = 150 if dry else 3000
        self.chunk = 16 if dry else 128
        self.tries, self.hits = (4, 1) if dry else (12, 2)  # requests in which a fault is tried, and faults that are enough


def prompt(seed, count):
    rng = random.Random(seed)
    return [rng.randrange(3, VOCABULARY) for _ in range(count)]


def ask(cluster, seed, count, answer):
    """Tokens and hashes of their logits."""
    told = cluster.generate(prompt(seed, count), max_tokens=answer, ignore_eos=True, temperature=1, seed=seed, logits_hash=True)
    return told["token_ids"], told["logits_hashes"], told


def start(options, sizes, folder, prefill, decode=1, settings=None):
    os.environ["BATON_DEVICE"] = options.device
    settings = {"chunk-tokens": sizes.chunk, "kv-tokens": 2048 if options.dry else 16384, "device-memory-share": 0.3, **(settings or {})}
    path = pathlib.Path(folder) / f"{prefill}p{decode}d-{random.randrange(1 << 30)}"
    path.mkdir()
    return Cluster(path, model=sizes.model, prefill=prefill, decode=decode, compute="fast", settings=settings, restart=prefill > 1)


def check_lane(cluster):
    """The pairing's lane may not be replaced quietly: all bytes went by the lane cuda."""
    for worker in cluster.status()["workers"]:
        assert worker["role"] != "decode" or worker["lane"] == "cuda", f"{worker['name']}: lane {worker['lane']}, for {worker['lane_reason']}"
    moved = [cluster.total("decode-0", "baton_kv_bytes_moved_total", **lane) for lane in ({}, {"lane": "cuda"})]
    assert moved[0] == moved[1] > 0, f"{moved[0]} bytes were moved, {moved[1]} of them by the lane cuda"


def expected(options, sizes, folder, wanted):
    """The answers of a decode worker that computes prompts itself."""
    cluster = start(options, sizes, folder, prefill=0, decode=1)
    try:
        return {key: ask(cluster, *key)[:2] for key in wanted}
    finally:
        cluster.stop()


def requests_of(sizes):
    rng = random.Random(5)
    return [(seed, rng.randrange(*sizes.prompts), sizes.answer) for seed in range(sizes.requests)]


def check_bytes(options, sizes, folder, prefill):
    wanted = requests_of(sizes)
    alone = expected(options, sizes, folder, wanted)
    cluster = start(options, sizes, folder, prefill)
    try:
        lanes, moved, workers = set(), 0, set()
        for key in wanted:
            tokens, hashes, told = ask(cluster, *key)
            assert (tokens, hashes) == alone[key], f"request {key} differs from the one alone"
            lanes.add(told["lane"])
            workers.add(told["prefill_worker"])
            moved += told["kv_bytes"]
        assert moved > 0 and lanes == {"cuda"}, f"{moved} bytes were handed over, by the lanes {lanes}"
        check_lane(cluster)
        return {"requests": len(wanted), "lane": "+".join(sorted(lanes)), "KiB moved": round(moved / 1024), "prefill workers": len(workers)}
    finally:
        cluster.stop()


def owner_of(cluster):
    """The prefill worker that computes a prompt now; None: none does."""
    busy = [name for name in cluster.processes if name.startswith("prefill") and cluster.blocks(name)["used"] + cluster.blocks(name)["pinned"]]
    return busy[0] if len(busy) == 1 else None


def strike(cluster, sizes, key, number):
    """Sends the signal to the owner of the request's blocks once the decode worker has some of its bytes. Returns the answer, the owner,
    and whether that was in time."""
    moved = lambda: cluster.total("decode-0", "baton_kv_bytes_moved_total")  # noqa: E731
    before, result = moved(), {}
    thread = threading.Thread(target=lambda: result.update(answer=ask(cluster, *key)))
    thread.start()
    wait_until("bytes of the request have come", lambda: moved() > before or not thread.is_alive(), 60)
    owner = owner_of(cluster)
    in_time = bool(owner) and thread.is_alive()
    if in_time:
        os.kill(cluster.pids[owner], number)
    thread.join(90)
    assert "answer" in result, "the request has no answer"
    return result["answer"], owner, in_time


def check_fault(options, sizes, folder, number):
    keys = [(1000 + i, sizes.long, 4) for i in range(sizes.tries)]
    alone = expected(options, sizes, folder, keys)
    # Short steps: the handoff lasts long enough for the fault to come in its middle.
    cluster = start(options, sizes, folder, prefill=2, settings={"lease": "2s", "peer-timeout": "2s", "read-timeout": "1s", "chunk-tokens": 16})
    hits, again = 0, 0
    try:
        for key in keys:
            (tokens, hashes, told), owner, in_time = strike(cluster, sizes, key, number)
            assert (tokens, hashes) == alone[key], f"request {key} differs after the fault"
            if not in_time:
                continue
            hits += 1
            again += told["prefills"] > 1
            if number == signal.SIGSTOP:
                os.kill(cluster.pids[owner], signal.SIGCONT)
            else:
                cluster.wait_back(owner)
            assert ask(cluster, *key)[:2] == alone[key], "it differs later"
            if hits == sizes.hits:
                break
        assert hits, f"no fault of {sizes.tries} came in the middle of a handoff"
        check_lane(cluster)
        return {"faults in a handoff": hits, "computed again": again}
    finally:
        for name, pid in cluster.pids.items():
            os.kill(pid, signal.SIGCONT)
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="+", choices=["1p1d", "2p1d", "killed", "stopped"])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    sizes = Sizes(options.dry)
    with tempfile.TemporaryDirectory(prefix="baton-gpu-cluster.") as folder:
        for kind in options.kinds:
            if kind in ("killed", "stopped"):
                facts = check_fault(options, sizes, folder, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
                facts = {f"{kind}: {key}": value for key, value in facts.items()}
            else:
                facts = check_bytes(options, sizes, folder, int(kind[0]))
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
