"""`baton bench engine` and `baton bench schedule`: what they measure is what was asked for, and the shares follow from the counts of
operations and bytes."""
import json
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, DIM, VOCAB = 2, 64, 96, 4, 2, 16, 160
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
          "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
          "vocab_size": VOCAB, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "tie_word_embeddings": False}
LAYER_WEIGHTS = LAYERS * (HIDDEN * (HEADS + 2 * KV_HEADS) * DIM + HIDDEN * HEADS * DIM + 3 * HIDDEN * FFN)
LONG = bool(os.environ.get("BATON_LONG"))  # tests/run --long
ON_X86 = os.uname().machine == "x86_64"


@pytest.fixture
def model(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "model"


def bench(*arguments):
    return subprocess.run([BUILD / "bin/baton", "bench", *map(str, arguments)], text=True, capture_output=True, timeout=120)


def engine(model, *arguments):
    return bench("engine", "--model", model, "--random-weights", "--no-pin", *arguments)


def test_every_size_has_its_figure_and_each_its_bound(model, tmp_path):
    out = tmp_path / "figures.json"
    done = engine(model, "--weights", "bf16,int4", "--threads", "1,2", "--prefill", "8,40", "--batch", "1,3", "--depth", "0,33",
                  "--decode", 2, "--rounds", 2, "--json", out)
    assert done.returncode == 0, done.stderr
    told = json.loads(out.read_text())
    assert (told["model"], told["random_weights"]) == (str(model), True)
    assert not ON_X86 or told["cpu"].split(",")[0] in open("/proc/cpuinfo").read()
    assert [(re.search(r"w-(\w+)", e["numerics"])[1], e["threads"]) for e in told["engines"]] == [
        ("bf16", 1), ("bf16", 2), ("int4", 1), ("int4", 2)]
    blocks = 2 + 2 * 2  # blocks of 32 tokens: a prompt of 40, and two sequences more at depth 33
    for one in told["engines"]:
        assert one["held_bytes"] > one["weight_bytes"] + blocks * 32 * LAYERS * 2 * KV_HEADS * DIM * 2
        assert one["held_bytes"] < one["peak_bytes"] < 1 << 30
        kinds = [(f["kind"], f.get("tokens"), f.get("depth"), f.get("batch")) for f in one["figures"]]
        assert kinds == [("prefill", 8, None, None), ("prefill", 40, None, None)] + [
            ("decode", None, depth, batch) for depth in (0, 33) for batch in (1, 3)]
        for figure in one["figures"]:
            assert len(figure["rounds"]) == 2
            assert 0 < figure["linear_time"] and 0 < figure["attention_time"] and figure["ran"] > 0
            assert figure["linear_time"] + figure["attention_time"] < 1
            assert figure["read_gbs"] > 0 and bool(figure["peak_gflops"]) == bool(one["instruction"])
            if figure["kind"] == "decode":
                check_decode(one, figure)
            else:
                check_prefill(figure)
    if "int4" in one["numerics"]:
        assert told["engines"][0]["weight_bytes"] == 2 * (LAYER_WEIGHTS + VOCAB * HIDDEN)
        assert one["weight_bytes"] < told["engines"][0]["weight_bytes"] / 2


def check_prefill(figure):
    tokens, seconds = figure["tokens"], figure["rounds"][0]["step_ms"] * 1e-3
    flop = 2 * (tokens * LAYER_WEIGHTS + VOCAB * HIDDEN) + 4 * LAYERS * HEADS * DIM * tokens * (tokens + 1) / 2
    one = figure["rounds"][0]
    assert one["gflops"] == pytest.approx(flop * 1e-9 / seconds, rel=1e-3)
    assert one["tokens_per_s"] == pytest.approx(tokens / seconds, rel=1e-3)
    if one["peak_gflops"]:
        assert one["of_peak"] == pytest.approx(one["gflops"] / one["peak_gflops"], rel=1e-3)


def check_decode(engine, figure):
    one, seen = figure["rounds"][0], 2 * figure["depth"] + 1 + 2  # positions, of both steps
    kv = figure["batch"] * seen * LAYERS * 2 * KV_HEADS * DIM * 2
    seconds = 2 * one["step_ms"] * 1e-3
    assert one["tokens_per_s"] == pytest.approx(2 * figure["batch"] / seconds, rel=1e-3)
    assert one["gbs"] == pytest.approx((2 * engine["weight_bytes"] + kv) * 1e-9 / seconds, rel=1e-3)
    assert one["of_read"] == pytest.approx(one["gbs"] / one["read_gbs"], rel=1e-3)


DEVICES = [("deferred", {})] + [("cuda:0", {"BATON_CUDA_DRIVER": str(BUILD / "tests/libcuda-emulated.so"), "BATON_CUDA_EMULATED": "sms=2,memory=64,late=1"})]


@pytest.mark.parametrize("device,environment", DEVICES)
def test_a_device_is_measured_by_its_events(model, tmp_path, monkeypatch, device, environment):
    """Steps that run ahead: figures as on the CPU, without times of operations; memory of the device; a table with its own columns."""
    if environment and not pathlib.Path(environment["BATON_CUDA_DRIVER"]).exists():
        pytest.skip("the emulated driver isn't built (no C++ compiler)")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "figures.json"
    done = engine(model, "--device", device, "--prefill", 40, "--chunk", 16, "--batch", "1,3", "--depth", 33, "--decode", 2, "--rounds", 1, "--json", out)
    assert done.returncode == 0, done.stderr
    told = json.loads(out.read_text())
    (one,) = told["engines"]
    assert told["device"] == device and [f["kind"] for f in one["figures"]] == ["prefill", "decode", "decode"]
    assert one["device_bytes"] > one["held_bytes"] > one["weight_bytes"]
    for figure in one["figures"]:
        assert (figure["linear_time"], figure["attention_time"]) == (0, 0) and 0 < figure["ran"] < 1.5 and figure["read_gbs"] > 0
    check_prefill(one["figures"][0])
    check_decode(one, one["figures"][1])
    if device == "cuda:0":
        assert one["numerics"].startswith("cuda-bf16-sm90/") and one["instruction"] == "64 rows by a layer of 128 x 128" and one["figures"][0]["of_peak"] > 0
    lines = done.stdout.splitlines()
    assert re.match(r"memory of the device: 0\.\d{3} GB$", lines[2]) and " GB/s copied, beside the 0.000 GB of weights" in lines[4], done.stdout
    assert [line.split()[-1] for line in lines if "tokens/s" in line] == ["busy", "busy"] and "CPU below" not in done.stdout


def test_the_table_is_for_people(model):
    done = engine(model, "--prefill", 16, "--batch", "1,2", "--decode", 2, "--rounds", 1)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.match(rf"{re.escape(str(model))}, random weights: bf16-\S+/w-bf16/\S+ on \w+, 1 thread, medians of 1 round; loaded in \d+\.\d s$", lines[0])
    assert re.match(r"(.+, )?at best: \d+\.\d GFLOP/s \(.+\), \d+\.\d\d GB/s read of the 0\.000 GB of weights$", lines[2])
    assert not ON_X86 or "not known" not in lines[2]
    assert re.match(r"memory at its peak: \d\.\d{3} GB, \d+\.\d\d times packed weights and KV pool \(0\.\d{3} GB\)$", lines[1])
    rows = [line.split() for line in lines]
    assert sum(row[:1] == ["16"] for row in rows) == 1
    assert [row[:2] for row in rows if row[:1] == ["0"]] == [["0", "1"], ["0", "2"]]
    assert "round 1 of 1" in done.stderr


def test_a_log_has_what_is_measured_in_its_first_round(model):
    done = engine(model, "--prefill", "8,16", "--batch", "1,3", "--depth", "0,33", "--decode", 2, "--rounds", 2)
    assert done.returncode == 0, done.stderr
    assert 'level=info proc=bench mod=weights msg="loaded"' in done.stderr  # how far a load is has the same level
    lines = [line for line in done.stderr.splitlines() if "level=info" not in line]
    assert lines[:4] == ["round 1 of 2: prefill, 8 tokens (1 of 4)", "round 1 of 2: prefill, 16 tokens (2 of 4)",
                         "round 1 of 2: decode, depths 0 to 33, batch 1 (3 of 4)", "round 1 of 2: decode, depths 0 to 33, batch 3 (4 of 4)"]
    assert re.search(r"threads 1: round 1 of 2, \d+ s, about \d+ s left$", lines[4]), lines
    assert re.search(r"threads 1: round 2 of 2, \d+ s$", lines[-1]), lines


def on_a_terminal(*command):
    """The text of stderr there."""
    ours, its = pty.openpty()
    run = subprocess.Popen([BUILD / "bin/baton", *map(str, command)], stdout=subprocess.DEVNULL, stderr=its)
    os.close(its)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert run.wait(60) == 0, shown
    return shown.decode().replace("\r\n", "\n")


def test_a_terminal_has_one_line_of_what_is_measured(model):
    shown = on_a_terminal("bench", "engine", "--model", model, "--random-weights", "--no-pin", "--prefill", 8, "--depth", 7, "--decode", 2,
                          "--rounds", 2)
    turns = ["prefill, 8 tokens (1 of 2)", "decode, depth 7, batch 1 (2 of 2)"]
    wanted = "".join("".join(rf"\rround {i} of 2: {re.escape(turn)} \x1b\[K" for turn in turns) + r"\r\x1b\[K[^\r\n]*round " + str(i) + r" of 2, [^\r\n]*\n"
                     for i in (1, 2))
    assert re.search(wanted + "$", shown), repr(shown)


def test_memory_of_many_weights_is_announced(model):
    """Taking it is slow, and has no parts to count; what follows it does."""
    (model / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": 2048, "intermediate_size": 11264, "head_dim": 64}))
    arguments = ["engine", "--model", model, "--random-weights", "--no-pin", "--prefill", 8, "--batch", 0, "--rounds", 1]
    assert on_a_terminal("bench", *arguments).startswith("\rtaking memory for weights, 0.3 GiB \x1b[K\r\x1b[K")
    run = subprocess.Popen([BUILD / "bin/baton", "bench", *map(str, arguments)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert any('mod=weights msg="taking memory for weights" of_bytes=' in line for line in run.stderr)
    run.kill()  # the rest was seen above
    run.communicate(timeout=60)


def test_prompts_in_chunks_are_the_same_work_in_less_memory(model, tmp_path):
    """2050 rows in steps of 32: the weights are read 65 times, and no room is made for longer steps."""
    (model / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 4096}))
    told = {}
    for chunk in (0, 32, 4096):
        done = engine(model, "--prefill", 2050, "--batch", 0, "--rounds", 1, "--chunk", chunk, "--json", tmp_path / "figures.json")
        assert done.returncode == 0, done.stderr
        assert ("prompts in steps of at most 32 rows" in done.stdout) == (chunk == 32)
        told[chunk] = json.loads((tmp_path / "figures.json").read_text())
        assert told[chunk]["chunk"] == chunk
        (figure,) = told[chunk]["engines"][0]["figures"]
        check_prefill(figure)
        seconds, steps = figure["step_ms"] * 1e-3, 65 if chunk == 32 else 1
        assert figure["gbs"] * seconds == pytest.approx(steps * told[chunk]["engines"][0]["weight_bytes"] * 1e-9, rel=1e-3)
    whole, chunked = (told[chunk]["engines"][0]["peak_bytes"] for chunk in (0, 32))
    assert chunked < whole


def test_tokens_may_be_drawn(model):
    done = engine(model, "--prefill", 0, "--decode", 3, "--rounds", 1, "--temperature", 0.8, "--top-p", 0.9, "--json", "-")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and (told["temperature"], told["top_p"]) == (0.8, 0.9)


def two_engines(model, out):
    command = [BUILD / "bin/baton", "bench", "engine", "--model", model, "--random-weights", "--no-pin", "--weights", "bf16,int4", "--prefill", "8",
               "--batch", "0", "--rounds", "20", "--json", out]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("out", ["figures.json", "-"])
def test_what_was_measured_is_told_when_a_later_engine_fails(model, tmp_path, out):
    """The folder goes while the first one is measured."""
    path = out if out == "-" else tmp_path / out
    run = two_engines(model, path)
    assert any("w-bf16" in line and "round 1 of 20" in line for line in run.stderr)
    (model / "config.json").unlink()
    stdout, stderr = run.communicate(timeout=120)
    assert run.returncode == 1 and "config.json" in stderr
    told = json.loads(stdout if out == "-" else path.read_text())
    assert ["w-bf16" in one["numerics"] for one in told["engines"]] == [True]
    assert sorted(path.name for path in tmp_path.iterdir()) == (["model"] if out == "-" else ["figures.json", "model"])


def test_what_was_measured_is_in_the_file_when_a_later_engine_is_killed(model, tmp_path):
    run = two_engines(model, tmp_path / "figures.json")
    assert any("w-int4" in line and "round 1 of 20" in line for line in run.stderr)
    run.kill()
    run.communicate(timeout=60)
    first, *later = json.loads((tmp_path / "figures.json").read_text())["engines"]
    assert "w-bf16" in first["numerics"] and first["figures"]
    assert len(later) <= 1  # the later engine may have ended just before the signal came


def test_json_on_standard_output_is_alone_there(model):
    done = engine(model, "--prefill", 4, "--batch", 0, "--rounds", 1, "--compute", "f32", "--json", "-")
    (one,) = json.loads(done.stdout)["engines"]
    assert one["numerics"].startswith("f32/") and [f["kind"] for f in one["figures"]] == ["prefill"]


@pytest.mark.parametrize("arguments,code,told", [
    (["--prefill", "512,"], 2, "--prefill: '512,' is not up to 8 numbers in 1 .. 65536 between commas, or 0 alone"),
    (["--prefill", "8,0"], 2, "--prefill: '8,0' is not up to 8"),
    (["--prefill", ""], 2, "--prefill: '' is not up to 8"),
    (["--batch", "65"], 2, "--batch: '65' is not up to 8 numbers in 1 .. 64 between commas, or 0 alone"),
    (["--batch", "0,1"], 2, "--batch: '0,1' is not up to 8 numbers in 1 .. 64 between commas, or 0 alone"),
    (["--depth", "1,2,3,4,5,6,7,8,9"], 2, "--depth: '1,2,3,4,5,6,7,8,9' is not up to 8"),
    (["--threads", "0"], 2, "--threads: '0' is not up to 8 numbers in 1 .. 64"),
    (["--weights", "bf16,int5"], 2, "--weights: 'bf16,int5' is not auto, bf16, int8 or int4, or up to 8 of them between commas"),
    (["--weights", ",".join(9 * ["auto"])], 2, "is not auto, bf16, int8 or int4, or up to 8 of them between commas"),
    (["--prefill", "0", "--batch", "0"], 2, "nothing to measure"),
    (["--chunk", "65537"], 2, "--chunk"),
    (["--temperature", "101"], 2, "--temperature"),
    (["--prefill", "129"], 1, "--prefill 129 does not fit the model's context of 128 tokens: at most --prefill 128"),
    (["--prefill", "0", "--depth", "5,100", "--decode", "29"], 1, "--depth 100 with --decode 29 makes 129 tokens, which do not fit the model's "
                                                                  "context of 128: at most --depth 99"),
    (["--prefill", "0", "--decode", "129"], 1, "--decode 129 does not fit the model's context of 128 tokens: at most --decode 128, with --depth 0"),
    (["--json", "/dev/null/figures.json"], 1, "cannot open /dev/null/figures.json"),
])
def test_what_cannot_be_measured_is_refused(model, arguments, code, told):
    done = engine(model, *arguments)
    assert done.returncode == code and told in done.stderr, done.stderr
    assert done.stdout == "" and (code == 1 or done.stderr.endswith("Try: baton bench engine --help\n"))


def test_all_sizes_that_are_wrong_are_told_at_once(model):
    """With a setting of another kind, too; and those that don't fit the model, once each is a size."""
    done = engine(model, "--prefill", "x", "--batch", "y", "--depth", "z", "--rounds", 0)
    assert done.returncode == 2 and [line.split()[3].rstrip(":") for line in done.stderr.splitlines()[:-1]] == ["--prefill", "--batch", "--depth", "--rounds"], done.stderr
    done = bench("engine", "--model", model, "--random-weights", "--prefill", 0, "--batch", 0, "--first-cpu", 1023, "--pin")
    assert done.returncode == 2 and "nothing to measure" in done.stderr and "need CPU 1023" in done.stderr, done.stderr
    done = engine(model, "--weights", "int8,bf16,bf16", "--compute", "f32")
    assert done.returncode == 2 and done.stderr.count("weights bf16: compute f32 holds float weights as f32") == 1, done.stderr
    done = engine(model, "--prefill", 129, "--depth", 100, "--decode", 29)
    assert done.returncode == 1 and "at most --prefill 128; --depth 100 with --decode 29 makes 129 tokens" in done.stderr, done.stderr


def test_the_greatest_sizes_that_fit(model):
    done = engine(model, "--prefill", 0, "--depth", 99, "--decode", 29, "--rounds", 1)
    assert done.returncode == 0, done.stderr


def test_a_cpu_that_is_not_ours_is_told_before_anything_is_measured(model):
    """One that the machine doesn't have, and one that taskset or a container keeps from us."""
    ours = sorted(os.sched_getaffinity(0))
    cases = [(["--first-cpu", 1023], 1023, None), (["--threads", "1,2", "--first-cpu", ours[-1]], ours[-1] + 1, None)]
    if len(ours) > 1:
        cases.append((["--first-cpu", ours[0]], ours[0], ours[1]))
    for arguments, wanted, only in cases:
        confine = (lambda: os.sched_setaffinity(0, {only})) if only is not None else None
        done = subprocess.run([BUILD / "bin/baton", "bench", "engine", "--model", model, "--random-weights", *map(str, arguments)],
                              text=True, capture_output=True, timeout=120, preexec_fn=confine)
        assert (done.returncode, done.stdout) == (2, "") and f"need CPU {wanted}, but this process may run only on {only or ''}" in done.stderr
        assert "give fewer threads, another --first-cpu, or --no-pin" in done.stderr


def test_more_threads_than_cpus_are_told(model):
    """Without pins they can be measured, on one CPU in turns."""
    cpu = min(os.sched_getaffinity(0))
    for threads, told in [("1,3", True), ("1", False)]:
        command = [BUILD / "bin/baton", "bench", "engine", "--model", model, "--random-weights", "--no-pin", "--threads", threads, "--prefill", "8", "--batch", "0",
                   "--rounds", "1"]
        done = subprocess.run(command, text=True, capture_output=True, timeout=120, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        assert done.returncode == 0 and ("baton bench engine: 3 threads, but this process may run on 1 CPU: they take turns" in done.stderr) == told, done.stderr


def test_types_that_the_folder_is_not_of_are_told_before_the_first_is_measured(model, tmp_path):
    quantization = {"quant_method": "baton", "version": 1, "weights": "int8"}
    (model / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": quantization}))
    done = engine(model, "--weights", "auto,bf16", "--prefill", 8, "--batch", 0, "--rounds", 1, "--json", tmp_path / "figures.json")
    assert (done.returncode, done.stdout) == (1, "") and not (tmp_path / "figures.json").exists()
    assert done.stderr.startswith("baton bench engine: weights bf16: the model folder is quantized to int8 already"), done.stderr
    done = engine(model, "--weights", "auto,int8", "--prefill", 8, "--batch", 0, "--rounds", 1)
    assert done.returncode == 0, done.stderr


def test_memory_that_is_not_there_is_told_with_what_takes_less(model):
    (model / "config.json").write_text(json.dumps({**CONFIG, "max_position_embeddings": 1 << 17, "num_hidden_layers": 64, "head_dim": 256,
                                                   "num_key_value_heads": HEADS}))
    done = engine(model, "--batch", 64, "--depth", 65536)
    assert done.returncode == 1 and "are available here: a smaller --batch or --depth, shorter prompts or another machine" in done.stderr, done.stderr


def test_weights_that_no_memory_holds_are_told_with_types_that_take_less(model):
    """If they alone are too much, no smaller prompt helps."""
    (model / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 1024, "hidden_size": 32768, "intermediate_size": 65536, "head_dim": 128}))
    for weights, less in [("bf16", "weights int8 or int4"), ("int8", "weights int4"), ("int4", "a smaller model")]:
        done = engine(model, "--prefill", 8, "--weights", weights)
        assert done.returncode == 1 and f"are available here: {less} or another machine" in done.stderr, done.stderr


EARLIER = "the figures of yesterday\n"


def long_run(model, out, number=signal.SIGINT, inherited=signal.SIG_DFL, rounds=100):
    """One that is in its first round, with a signal as a shell would leave it."""
    def begin():
        signal.signal(number, inherited)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [BUILD / "bin/baton", "bench", "engine", "--model", model, "--random-weights", "--no-pin", "--prefill", "8", "--decode", "64", "--rounds", str(rounds),
               "--json", out]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=begin)
    assert any(f"round 1 of {rounds}" in line for line in run.stderr)
    return run


def test_figures_that_a_file_held_stay_until_there_are_new_ones(model, tmp_path):
    out, link = tmp_path / "figures.json", tmp_path / "link"
    out.write_text(EARLIER)
    link.symlink_to(out)
    done = engine(model, "--prefill", 129, "--json", out)
    assert done.returncode == 1 and out.read_text() == EARLIER
    run = long_run(model, out)
    run.kill()
    run.communicate(timeout=60)
    assert out.read_text() == EARLIER
    done = engine(model, "--prefill", 8, "--batch", 0, "--rounds", 1, "--json", link)
    assert done.returncode == 0 and len(json.loads(out.read_text())["engines"]) == 1 and link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "link", "model"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGPIPE] + [signal.SIGTERM, signal.SIGQUIT] * LONG)
def test_a_run_that_is_stopped_leaves_what_was_there(model, tmp_path, number):
    out = tmp_path / "figures.json"
    out.write_text(EARLIER)
    run = long_run(model, out, number)
    assert (tmp_path / "figures.json.tmp").exists()
    run.send_signal(number)
    run.communicate(timeout=60)
    assert run.returncode == -number and out.read_text() == EARLIER
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "model"]


def test_what_whole_rounds_measured_outlives_the_run(model, tmp_path):
    out = tmp_path / "figures.json"
    run = long_run(model, out)
    assert any("round 3 of 100" in line for line in run.stderr)  # is done: the first one only is told by turns
    run.kill()
    run.communicate(timeout=60)
    (one,) = json.loads(out.read_text())["engines"]
    assert [len(figure["rounds"]) >= 2 for figure in one["figures"]] == [True, True]


@pytest.mark.parametrize("number", [signal.SIGHUP] + [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT] * LONG)
def test_a_run_goes_on_where_a_signal_is_ignored(model, tmp_path, number):
    """As behind nohup or a shell's &."""
    out = tmp_path / "figures.json"
    run = long_run(model, out, number, signal.SIG_IGN, rounds=4)
    run.send_signal(number)
    run.communicate(timeout=120)
    assert run.returncode == 0 and len(json.loads(out.read_text())["engines"]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json", "model"]


def test_figures_go_into_a_pipe_as_well(model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True)
    done = engine(model, "--prefill", 8, "--batch", 0, "--rounds", 1, "--json", tmp_path / "pipe")
    assert done.returncode == 0, done.stderr
    assert json.loads(reader.communicate(timeout=60)[0])["engines"] and (tmp_path / "pipe").is_fifo()


def test_a_folder_without_weights_is_told_of_random_ones(model):
    done = bench("engine", "--model", model, "--no-pin", "--prefill", 8)
    assert done.returncode == 1 and done.stderr.endswith("found neither (*.bin and *.gguf aren't read); --random-weights draws some\n"), done.stderr


def rows_of(text):
    return [line.split() for line in text.splitlines() if re.match(r" *(\d|growth)", line)]


def test_a_schedule_of_every_size_has_a_row():
    done = bench("schedule", "--steps", 5, "--rounds", 2)
    assert done.returncode == 0, done.stderr
    *rows, growth = rows_of(done.stdout)
    assert [int(row[0]) for row in rows] == [16, 64, 256, 1024]
    for row in rows:
        assert len(row) == 10 and all(float(value) > 0 for value in row[1:9])
    for column, ratio in ((2, 2), (4, 3), (6, 5), (8, 6)):  # p50 and mean of both halves, as rounded as they are printed
        few, many = float(rows[0][column]), float(rows[-1][column])
        assert (many - 0.05) / (few + 0.05) - 0.05 <= float(growth[ratio].rstrip("x")) <= (many + 0.05) / (few - 0.05) + 0.05


def test_the_share_of_a_step_that_is_not_the_engines(model):
    done = bench("schedule", "--steps", 3, "--rounds", 2, "--model", model, "--random-weights")
    assert done.returncode == 0, done.stderr
    steps = rows_of(done.stdout)[5:]
    assert [int(row[0]) for row in steps] == [16, 64, 256]
    for sequences, rows, step_us, around_us, share in steps:
        assert int(rows) >= int(sequences) // 2 and 0 < float(around_us) < float(step_us)
        assert 0 < float(share.rstrip("%")) < 100


def test_a_share_that_others_disturb_is_told_as_such(model):
    """A process that spins on the only CPU of the steps has half of it."""
    cpu = min(os.sched_getaffinity(0))
    spins = subprocess.Popen(["sh", "-c", "while :; do :; done"], preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    try:
        done = subprocess.run([BUILD / "bin/baton", "bench", "schedule", "--steps", "20", "--rounds", "1", "--model", model, "--random-weights"],
                              text=True, capture_output=True, timeout=300, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    finally:
        spins.kill()
        spins.wait()
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("other programs ran, or threads were more than CPUs: steps took longer"), done.stdout + done.stderr


def test_a_schedule_without_a_model_has_no_settings_of_one(model):
    done = bench("schedule", "--random-weights", "--threads", 1)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr == ("baton bench schedule: --random-weights needs --model\n"
        "baton bench schedule: --threads needs --model\nTry: baton bench schedule --help\n")
    done = subprocess.run([BUILD / "bin/baton", "bench", "schedule", "--steps", "1", "--rounds", "1"], env=dict(os.environ, BATON_THREADS="2"),
                          text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr  # settings of workers
    done = bench("schedule", "--steps", 1, "--rounds", 1, "--model", model, "--random-weights", "--threads", 2)
    assert done.returncode == 0 and "16 sequences in steps of a worker over " in done.stderr and done.stderr.count(": 1 round of 1 step\n") == 3, done.stderr


def test_a_schedule_for_a_model_that_is_not_there(model):
    done = bench("schedule", "--steps", 1, "--rounds", 1, "--model", model.parent)
    assert done.returncode == 1 and "config.json" in done.stderr and done.stdout == ""

