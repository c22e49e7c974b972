"""`baton up`, `generate` and `status` as a user meets them."""
import json
import os
import pathlib
import re
import signal
import subprocess

import pytest
from harness import BATON, GOLDEN, Cluster, Failed, alive, processes_of, wait_until

PROMPT = "ROMEO:"


def test_a_session_at_the_terminal(start_cluster):
    cluster = start_cluster()
    ready = (cluster.folder / "up.log").read_text()
    assert cluster.grpc in ready and 'generate --max-tokens 64 "Once upon a time"\n' in ready
    assert set(cluster.processes) == {"router", "prefill-0", "decode-0"}
    assert {p["role"] for p in cluster.processes.values()} == {"router", "prefill", "decode"}

    shown = cluster.command("generate", "--max-tokens", 8, "--temperature", 0, PROMPT)
    assert shown.returncode == 0 and len(shown.stdout) > 1
    for part in ("TTFT", "TPOT", "prefill-0 -> decode-0"):
        assert part in shown.stderr
    answer = cluster.generate(PROMPT, max_tokens=8, temperature=0)
    assert shown.stdout == answer["text"] + "\n"
    assert answer["finish_reason"] == "max_tokens" and len(answer["token_ids"]) == 8
    assert answer["ttft_ms"] > 0 and answer["usage"]["completion_tokens"] == 8

    table = cluster.command("status")
    assert table.returncode == 0
    assert "workers 2 of 2 up" in table.stdout and "decode-0" in table.stdout
    assert json.loads(cluster.command("status", "--json").stdout)["numerics"] in table.stdout

    with pytest.raises(Failed) as failed:
        cluster.generate(PROMPT, max_tokens=8, model="nobody")
    assert failed.value.code == 1 and "NOT_FOUND (model_not_found)" in failed.value.text
    for name in cluster.processes:
        assert cluster.metrics(name)["process_start_time_seconds"] > 0
    assert cluster.total("router", "baton_router_requests_total", status="ok") == 2


def test_it_says_which_weights_and_kv_it_serves(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", prefill=0, flags=["--weights", "int4", "--kv", "int8"])
    [served] = [line.split()[1] for line in (cluster.folder / "up.log").read_text().splitlines() if line.startswith("  numerics ")]
    assert "/w-int4/kv-int8/" in served
    assert f"   numerics {served}   " in cluster.command("status").stdout


def cpus_of_threads(pid):
    """The name of each thread of a process, and the CPUs that it may run on."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        yield status["Name"], status["Cpus_allowed_list"]


def test_only_who_computes_is_pinned(start_cluster):
    """A worker's computing at its start leaves no affinity behind: threads that send, or find allowed tokens of a schema, may run on every CPU."""
    cpus = os.sched_getaffinity(0)
    cpu = str(min(cpus))
    cluster = start_cluster(model=GOLDEN / "llama", compute="fast", flags=["--env", f"prefill-0:BATON_CPUS={cpu}"])
    threads = list(cpus_of_threads(cluster.pids["prefill-0"]))
    assert [allowed for _, allowed in threads].count(cpu) == (1 if len(cpus) > 1 else len(threads)), threads  # the steps' own


def test_ctrl_c_ends_everything(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama")
    assert "generate --max-tokens 64 --prompt-ids 1,2,3   (the model has no tokenizer)" in (cluster.folder / "up.log").read_text()
    cluster.stop(signal.SIGINT)
    assert cluster.command("generate", PROMPT).returncode == 1
    assert not list((cluster.folder / "baton").glob("cluster*.json"))


@pytest.mark.parametrize("code", [0, 1])
def test_logs_without_a_folder_of_their_own_stay_if_something_went_wrong(tmp_path, code):
    ready = tmp_path / "ready.json"
    up = subprocess.Popen([BATON, "up", "--no-pin", "--no-restart", "--model", GOLDEN / "llama", "--ready-file", ready], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)))
    try:
        line = next(line for line in up.stdout if line.startswith("  logs "))
        logs = pathlib.Path(line.split()[1])
        assert "(removed after an end in order; --log-dir DIR keeps them)" in line and (logs / "router.log").exists()
        if code:
            wait_until("the ready file is there", ready.exists, 20)
            os.kill(json.loads(ready.read_text())["processes"][1]["pid"], signal.SIGKILL)
        up.terminate()
        up.stdout.read()
        assert up.wait(60) == code
        assert logs.exists() == bool(code)
    finally:
        up.kill()


def test_children_die_with_a_killed_parent(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama")
    cluster.up.kill()
    cluster.expected_exit = -signal.SIGKILL
    for name, pid in cluster.pids.items():
        wait_until(f"{name} is gone", lambda: not alive(pid), 20)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("moment", [0, 1, 2, 3])
def test_ending_it_while_it_starts_leaves_nothing(tmp_path, number, moment):
    """moment: how many of the three processes there are."""
    cluster = Cluster(tmp_path, model=GOLDEN / "llama", restart=True, wait=False)
    wait_until("it starts", lambda: len(processes_of(tmp_path)) > moment, 30)
    cluster.up.send_signal(number)
    cluster.up.wait(15)
    wait_until("no process is left", lambda: not processes_of(tmp_path), 20)
    if number == signal.SIGTERM:
        # Before it takes signals: by the signal. 0: all had started before the signal came.
        assert cluster.up.returncode in (1, -signal.SIGTERM) + ((0,) if moment == 3 else ())
        assert not list((tmp_path / "baton").glob("cluster*.json"))
    assert not cluster.ready_file.exists() or number == signal.SIGKILL or cluster.up.returncode == 0


def test_what_a_killed_cluster_left_is_swept(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama")
    cluster.expected_exit = -signal.SIGKILL
    cluster.up.kill()
    cluster.up.wait()
    stale = cluster.folder / f"baton/cluster-{cluster.up.pid}.json"
    assert stale.exists() and cluster.ready_file.exists()
    wait_until("no process is left", lambda: not any(alive(pid) for pid in cluster.pids.values()), 20)  # nor a zombie
    again = Cluster(cluster.folder, model=GOLDEN / "llama", wait=False)
    try:
        wait_until("its own files are there", lambda: cluster.ready_file.exists() and
                   json.loads(cluster.ready_file.read_text())["pid"] == again.up.pid, 60)
        assert not stale.exists()
        again.wait_ready()
    finally:
        again.stop()
    assert not cluster.ready_file.exists()


def test_a_model_that_is_not_there(tmp_path):
    done = subprocess.run([BATON, "up", "--model", tmp_path / "nowhere"], env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)),
                          text=True, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert "nowhere" in done.stderr


@pytest.mark.parametrize("variable,value,code,told", [
    ("BATON_BLOCK_TOKENS", "abc", 2, "-0 ended with exit code 2 before it was ready: BATON_BLOCK_TOKENS must be a whole number, but is 'abc'"),
    ("BATON_RPC_THREADS", "99", 2, "router ended with exit code 2 before it was ready: BATON_RPC_THREADS must be in 1 .. 64, but is '99'"),
    ("BATON_KV_FAULTS", "nonsense", 2, "-0 ended with exit code 2 before it was ready: BATON_KV_FAULTS: "),
])
def test_a_start_that_fails_ends_with_its_cause(tmp_path, variable, value, code, told):
    done = subprocess.run([BATON, "up", "--no-pin", "--model", GOLDEN / "llama"], text=True, capture_output=True, timeout=60,
                          env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path), **{variable: value}))
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last.startswith("baton up: ")) == (code, True), done.stderr
    assert told in last, done.stderr


@pytest.mark.parametrize("flags,code,told", [
    (["--model", "{tmp}/bare"], 1, "{tmp}/bare: expected model.safetensors or model.safetensors.index.json, found neither"),
    (["--model", "{tmp}/none"], 1, "{tmp}/none: no such model folder"),
    (["--model", "{llama}", "--model", "llama={tmp}/bare"], 2, "two models are called llama, the second is of {tmp}/bare: give one of them another name"),
    (["--model", "{llama}", "--weight-cache", "{tmp}/none"], 2, "weight-cache: {tmp}/none: No such file or directory"),
    (["--model", "{int8}", "--weights", "int4"], 2, "int8"),
], ids=["weights", "folder", "names", "cache", "types"])
def test_a_model_that_cannot_be_served_is_told_before_anything_starts(tmp_path, flags, code, told):
    places = dict(tmp=tmp_path, llama=GOLDEN / "llama", int8=tmp_path / "int8")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/config.json").write_text((GOLDEN / "llama/config.json").read_text())
    subprocess.run([BATON, "quantize", "--model", GOLDEN / "llama", "--out", tmp_path / "int8"], check=True, capture_output=True, timeout=60)
    done = subprocess.run([BATON, "up", *(flag.format(**places) for flag in flags)], text=True, capture_output=True, timeout=60,
                          env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)))
    assert done.returncode == code and done.stderr.startswith("baton up: ") and done.stderr.count("\n") == 1, done.stderr
    assert told.format(**places) in done.stderr
    assert not list(tmp_path.glob("baton/*")), "no log folder, no process"


def test_a_flag_that_is_passed_on_goes_before_the_environment(tmp_path):
    done = subprocess.run([BATON, "up", "--no-pin", "--model", GOLDEN / "llama", "--access-log", tmp_path / "nowhere/log"], text=True, capture_output=True, timeout=60,
                          env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path), BATON_ACCESS_LOG="off"))
    assert done.returncode == 1 and f"access-log: cannot write to {tmp_path}/nowhere/log" in done.stderr.splitlines()[-1], done.stderr


def test_what_a_process_would_refuse_of_what_is_passed_on_is_refused_before_any_starts(tmp_path):
    """In its own words, all of it at once, with the name that it was given under."""
    done = subprocess.run([BATON, "up", "--model", GOLDEN / "llama", "--kv-tokens", "1", "--context", "-1", "--max-sequences", "0", "--chunk-time", "5", "--http-listen", "here",
                           "--http-cors-origins", "app.example"], text=True, capture_output=True, timeout=60,
                          env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path), BATON_CHUNK_TOKENS="many"))
    worker = subprocess.run([BATON.parent / "baton-decode", "--name", "w", "--router", "h:1", "--model", "m", "--kv-tokens", "1"], text=True, capture_output=True, timeout=60)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and lines[-1] == "Try: baton up --help", done.stderr
    assert "baton up: --kv-tokens must be in 256 .. 1073741824, but is '1'" in lines
    assert worker.stderr.splitlines()[0].replace("baton-decode", "baton up") in lines, worker.stderr
    assert sorted(line.split()[2].rstrip(":") for line in lines[:-1]) == ["--chunk-time", "--context", "--http-cors-origins", "--http-listen", "--kv-tokens", "--max-sequences",
                                                                          "BATON_CHUNK_TOKENS"], done.stderr
    assert not list(tmp_path.iterdir()), "no log folder, no process"


def test_what_is_passed_on_and_empty_is_not_given(start_cluster, monkeypatch):
    """Neither in the environment, nor where a flag says so of what is there."""
    monkeypatch.setenv("BATON_CONTEXT", "")
    monkeypatch.setenv("BATON_ACCESS_LOG", "")
    monkeypatch.setenv("BATON_KV_TOKENS", "")
    monkeypatch.setenv("BATON_CHUNK_TOKENS", "16")
    cluster = start_cluster(model=GOLDEN / "llama", flags=["--chunk-tokens", "", "--log-level", "debug"])
    log = (cluster.folder / "logs/decode-0.log").read_text()
    for name in ("context", "kv-tokens", "chunk-tokens"):
        assert re.search(rf'name={name} value="\d+" source=default$', log, re.M), log


def test_settings_from_a_file_in_the_environment_are_of_up_alone(start_cluster, tmp_path, monkeypatch):
    file = tmp_path / "up.yaml"
    file.write_text("start-timeout: 90s\nlog-level: debug\n")
    monkeypatch.setenv("BATON_CONFIG", str(file))
    cluster = start_cluster(model=GOLDEN / "llama")
    assert "level=debug" in (cluster.folder / "logs/router.log").read_text()


def test_ctrl_c_cancels_a_generate(start_cluster):
    cluster = start_cluster()
    asking = subprocess.Popen([BATON, "generate", "--max-tokens", "1900", "--ignore-eos", PROMPT], env=cluster.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    asking.stdout.read(1)
    asking.send_signal(signal.SIGINT)
    _, error = asking.communicate(timeout=20)
    assert asking.returncode == 130 and b"cancelled" in error
    wait_until("counted", lambda: cluster.total("router", "baton_router_requests_total", status="cancelled") == 1, 20)


def test_what_is_no_file_is_not_replaced_by_the_ready_file(tmp_path):
    place = tmp_path / "pipe"
    os.mkfifo(place)
    done = subprocess.run([BATON, "up", "--model", GOLDEN / "llama", "--ready-file", place], text=True, capture_output=True, timeout=60)
    assert done.returncode == 2 and "--ready-file" in done.stderr and "is not a regular file" in done.stderr
    assert place.is_fifo()


def test_logs_go_into_no_file(tmp_path):
    (tmp_path / "file").touch()
    done = subprocess.run([BATON, "up", "--model", GOLDEN / "llama", "--log-dir", tmp_path / "file"], text=True, capture_output=True, timeout=60)
    assert done.returncode == 2 and f"--log-dir {tmp_path}/file exists and is not a folder" in done.stderr


@pytest.mark.parametrize("place", ["nowhere/ready.json", "file/ready.json"])
def test_a_ready_file_that_cannot_be_written_is_told_before_anything_starts(tmp_path, place):
    (tmp_path / "file").touch()
    done = subprocess.run([BATON, "up", "--model", GOLDEN / "llama", "--ready-file", tmp_path / place], text=True, capture_output=True, timeout=60,
                          env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)))
    assert done.returncode == 2 and f"--ready-file {tmp_path / place}: cannot write into its folder" in done.stderr
    assert not list(tmp_path.glob("baton/*")), "no log folder, no process"


def test_a_misspelt_variable_of_one_process_is_warned_of_on_the_terminal(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama", process_environment={"decode-0": {"BATON_KV_TOKNES": "64", "BATON_KV_TOKENS": "512", "OTHER": "x"}})
    told = [line for line in (cluster.folder / "up.log").read_text().splitlines() if "warning" in line]
    assert told == ["baton up: warning: --env decode-0:BATON_KV_TOKNES is not a setting of Baton, did you mean BATON_KV_TOKENS?"]


def test_warnings_of_the_processes_are_on_the_terminal(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama", flags=["--http-listen", "0.0.0.0:0"])

    def told(text):
        return [line for line in (cluster.folder / "up.log").read_text().splitlines() if text in line]
    wait_until("it is told", lambda: told("listening beyond loopback"), 20)
    line, = told("listening beyond loopback")
    assert line.startswith("router: ts=") and "without TLS and without API keys" in line, line
    cluster.stop()
    warned = [path.name for path in (cluster.folder / "logs").iterdir() if "level=warn" in path.read_text()]
    assert warned == ["router.log"], "the others were told to stop, and did"


def test_settings_of_workers_and_of_the_router_are_passed_on(start_cluster, tmp_path):
    """A setting of one process goes before the setting of all."""
    access = tmp_path / "access.log"
    cluster = start_cluster(model=GOLDEN / "llama", process_environment={"decode-0": {"BATON_KV_TOKENS": "1024"}},
                            flags=["--kv-tokens", "512", "--max-sequences", "3", "--access-log", access])
    sizes = {name: re.search(r'msg="sizes" .*', (cluster.folder / "logs" / f"{name}.log").read_text())[0] for name in ("prefill-0", "decode-0")}
    blocks = {name: int(re.search(r"kv_blocks=(\d+) .*block_tokens=(\d+)", line)[1]) * int(re.search(r"block_tokens=(\d+)", line)[1]) for name, line in sizes.items()}
    assert blocks == {"prefill-0": 512, "decode-0": 1024}, sizes
    assert all("max_sequences=3 " in line for line in sizes.values()), sizes
    assert cluster.command("generate", "--max-tokens", "1", "--prompt-ids", "1,2").returncode == 0
    wait_until("it is logged", lambda: access.exists() and access.read_text(), 20)


def test_a_context_above_the_models_is_told_of(start_cluster):
    """Which is 2048: it holds."""
    cluster = start_cluster(model=GOLDEN / "llama", flags=["--context", "4096"])

    def told():
        return re.findall(r'^(\S+): ts=\S+ level=warn .*msg="--context is above the model\'s own limit, which holds" context=4096 limit=2048', (cluster.folder / "up.log").read_text(), re.M)
    wait_until("both are told of", lambda: sorted(told()) == ["decode-0", "prefill-0"], 20)
    assert cluster.status()["models"][0]["context"] == 2048


def test_more_threads_than_cpus_are_warned_of(start_cluster):
    cluster = start_cluster(model=GOLDEN / "llama", flags=["--threads", str(len(os.sched_getaffinity(0)) + 1)])
    assert "isa        " in (cluster.folder / "up.log").read_text()

    def told():
        return re.findall(r'^(\S+): ts=\S+ level=warn .*msg="more compute threads than CPUs', (cluster.folder / "up.log").read_text(), re.M)
    wait_until("both are told of", lambda: sorted(told()) == ["decode-0", "prefill-0"], 20)


LITTLE = "mount -t tmpfs -o size=1m tmpfs /dev/shm && echo 1000000 > /proc/sys/kernel/shmmax"


@pytest.mark.skipif(subprocess.run(["unshare", "--ipc", "--mount", "sh", "-c", LITTLE], capture_output=True).returncode != 0, reason="no namespaces of its own")
def test_too_little_shared_memory(tmp_path):
    """UCX's own queues find no room, and neither does the pool: one sentence says how much is needed, what there is, and how to raise it."""
    command = f"{LITTLE} && exec {BATON} up --no-pin --transport shm --model {GOLDEN / 'llama'} --log-dir {tmp_path / 'logs'}"
    done = subprocess.run(["unshare", "--ipc", "--mount", "sh", "-c", command], env=dict(os.environ, XDG_RUNTIME_DIR=str(tmp_path)), text=True, capture_output=True, timeout=120)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.match(r"baton up: \S+ ended with exit code 1 before it was ready: the KV pool needs (\d+) MiB of shared memory", last), done.stderr
    assert "/dev/shm has 1 of 1 MiB free, kernel.shmmax is 0 MiB" in last and "docker --shm-size=" in last and last.endswith("or take --transport tcp"), last
    assert "mod=ucx" not in done.stderr, "in our words only"
