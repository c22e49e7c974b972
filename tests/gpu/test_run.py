"""tests/gpu/run without a GPU: it isn't run, a part that overruns or fails is reported while the rest goes on, and a dry run goes
through its parts on the emulated driver (all of them with --long)."""
import fnmatch
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import types

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", HERE.parents[1] / "build/debug"))
sys.path.insert(0, str(HERE))
import device  # noqa: E402
import figures  # noqa: E402
import parts  # noqa: E402

loader = importlib.machinery.SourceFileLoader("gpu_run", str(HERE / "run"))
gpu_run = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_run", loader))
loader.exec_module(gpu_run)

needs_driver = pytest.mark.skipif(not (BUILD / "tests/libcuda-emulated.so").exists(), reason="the emulated driver isn't built (no C++ compiler)")


def run(out, *arguments, timeout=100):
    command = [sys.executable, HERE / "run", "--build", BUILD, "--out", out, *arguments]
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, timeout=timeout)
    path = out / "results.json"
    results = json.loads(path.read_text()) if path.exists() else None
    return done, results, {row["part"]: row for row in results["parts"]} if results else None


def test_without_a_gpu_it_is_not_run(tmp_path):
    if "why" not in device.find(0):
        pytest.skip("here is a GPU")
    done, results, _ = run(tmp_path, "--quick")
    assert (done.returncode, results) == (77, None)
    assert done.stdout.startswith("not run: ") and len(done.stdout.splitlines()) == 1, done.stdout


@needs_driver
def test_a_dry_run_of_some_parts(tmp_path):
    """One overruns, and the others go on: checks, then what measures."""
    done, results, rows = run(tmp_path, "--dry", "build", "kernels", "equality", "decode", "torch", "--limit", "equality=0.01")
    assert done.returncode == 1, done.stdout
    assert {name: row["outcome"] for name, row in rows.items()} == {
        "build": "ok", "kernels": "ok", "equality": "overran", "decode": "ok", "torch": "not run"}, done.stdout
    assert rows["equality"]["why"] == "device_equality: its limit" and "emulated driver" in rows["torch"]["why"]
    assert rows["build"]["facts"]["numerics"].startswith("cuda-bf16-sm90/") and rows["kernels"]["facts"]["passed"] == 3
    assert rows["kernels"]["facts"]["fp8 products aligned by"].startswith("the sum of its operands' exponents (0x1.c2")
    kinds = [(f["kind"], f.get("tokens"), f.get("batch"), f.get("depth")) for f in rows["decode"]["facts"]["figures"]]
    assert kinds == [("prefill", 8, None, None), ("prefill", 16, None, None), ("decode", None, 1, 20), ("decode", None, 2, 20)]
    assert results["device"]["name"] == "emulated GPU 0" and results["dry"] and "===== decode: ok" in (tmp_path / "log.txt").read_text()
    assert "a dry run: no figure means anything" in done.stdout


@needs_driver
def test_equality_compares_recorded_steps(tmp_path):
    """Those alone are launched kernel by kernel."""
    done, _, rows = run(tmp_path, "--dry", "equality")
    assert done.returncode == 0 and rows["equality"]["facts"]["steps by graphs"] > 0 == rows["equality"]["facts"]["cells that differ"], done.stdout
    assert "decode steps launched" in (tmp_path / "log.txt").read_text()


@needs_driver
def test_a_run_without_time_tells_what_it_left_out(tmp_path):
    """In the table, in results.json, and by its exit code."""
    done, results, rows = run(tmp_path, "--dry", "decode", "linear", "--total", gpu_run.ENDING_S)
    assert done.returncode == 3 and [row["outcome"] for row in rows.values()] == ["no time"] * 2, done.stdout
    assert rows["linear"]["why"] == "0 s were left, half of its 45 s are the least" and results["no_time"] == ["decode", "linear"]
    assert f"The run's {gpu_run.ENDING_S} s were too short for 2 of 2 parts. To run them: tests/gpu/run decode linear" in done.stdout


class World:
    """Time that passes by parts alone: each needs `share` of its limit. One that is ended before takes all the time of its signals."""

    def __init__(self, share, now):
        self.share, self.now, self.given = share, now, {}

    def run(self, machine, name, limit_s):
        needs, self.given[name] = self.share * parts.PARTS[name].limit_s, limit_s
        self.now += limit_s + 2 * gpu_run.GRACE_S if needs > limit_s else needs
        return {"part": name, "outcome": "overran" if needs > limit_s else "ok", "facts": {}}


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 1, 3])
@pytest.mark.parametrize("flags", [[], ["--quick"]])
@pytest.mark.parametrize("set_up", (0, 10, 30))
def test_a_run_holds_its_bound(tmp_path, set_up, flags, share):
    """Whatever parts take, and its set-up: the programs are unpacked, the driver may be slow."""
    options = gpu_run.options_of(flags)
    options.dry = True  # one part after the other
    names, world = gpu_run.choose(options), World(share, now=1000 + set_up)
    rows = gpu_run.run_all(types.SimpleNamespace(out=tmp_path), options, names, 1000, world.run, lambda: world.now)
    assert [row["part"] for row in rows] == names and world.now <= 1000 + (120 if flags else 300)
    limits = {name: parts.PARTS[name].limit_s for name in names}
    assert all(limits[name] / 2 <= given <= limits[name] for name, given in world.given.items())
    # Nothing is left out in silence, and a part that lacked time isn't called one that overran its limit.
    expected = {name: "no time" if name not in world.given or share * limits[name] > world.given[name] < limits[name] else "overran" if share > 1 else "ok" for name in names}
    assert {row["part"]: row["outcome"] for row in rows} == expected
    outcomes = set(expected.values())
    assert gpu_run.exit_code(rows) == (1 if "overran" in outcomes else 3 if "no time" in outcomes else 0)
    assert outcomes == {"ok"} or share >= 0.4
    assert "no time" in outcomes or share < 1


def test_parts_side_by_side_may_end_at_once(tmp_path):
    """Each writes results.json whole. Parts that lack time end at once."""
    options = gpu_run.options_of(["--total", "0"])
    names = [name for name in gpu_run.choose(options) if not parts.PARTS[name].alone]
    for _ in range(50):
        rows = gpu_run.run_all(types.SimpleNamespace(out=tmp_path), options, names, 1000, clock=lambda: 1000)
        assert [row["outcome"] for row in rows] == ["no time"] * len(names)
        assert {row["part"] for row in json.loads((tmp_path / "results.json").read_text())["parts"]} == set(names)


def test_named_parts_have_their_own_limits_alone():
    assert gpu_run.options_of(["whole", "sanitizer"]).total == gpu_run.options_of(["--dry"]).total == float("inf")
    assert [gpu_run.options_of(flags).total for flags in ([], ["--quick"], ["decode", "--total", "9"], ["--total", "0"])] == [300, 120, 9, 0]


@needs_driver
def test_a_part_that_fails_is_told(tmp_path):
    """A folder without programs, and a comparison that must see a token that was changed."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/libcuda-emulated.so").symlink_to(BUILD / "tests/libcuda-emulated.so")
    done, _, rows = run(tmp_path / "out", "--dry", "build", "--build", tmp_path)
    assert done.returncode == 1 and rows["build"]["outcome"] == "failed" and rows["build"]["why"].startswith("FileNotFoundError: ")
    environment = dict(os.environ, BATON_TEST_DEVICE="deferred")
    command = [BUILD / "tests/device_equality", "tests/golden/models/rope-linear", "--batch", "3", "--prompt", "40", "--answer", "4", "--cells", "8"]
    for spoil, code in ((["--spoil"], 1), ([], 0)):
        ended = subprocess.run([*command, *spoil], cwd=HERE.parents[1], env=environment, text=True, capture_output=True, timeout=100)
        assert ended.returncode == code, ended.stdout + ended.stderr
        assert ("differs: batch=" in ended.stdout) == bool(spoil)


@pytest.mark.parametrize("read, why", [(lambda output: output["rate"], "TypeError: "), (lambda output: 1 / 0, "ZeroDivisionError: "), (json.loads, "JSONDecodeError: ")])
def test_output_that_is_not_as_expected_fails_its_part_alone(tmp_path, monkeypatch, read, why):
    monkeypatch.setitem(parts.PARTS, "build", parts.Part("", 60, lambda machine: [["true"]], read))
    row = gpu_run.run_part(types.SimpleNamespace(out=tmp_path, environment=dict(os.environ)), "build", 60)
    assert row["outcome"] == "failed" and row["why"].startswith(why) and row["facts"] == {}


def test_unknown_parts_and_limits_are_refused(tmp_path):
    for arguments in (["nothing"], ["--limit", "build"], ["--limit", "nothing=3"]):
        done, results, _ = run(tmp_path, *arguments)
        assert done.returncode == 2 and results is None and "usage:" in done.stderr


@needs_driver
def test_the_lane_is_measured(tmp_path):
    done, results, rows = run(tmp_path, "--dry", "lane")
    assert done.returncode == 0 and rows["lane"]["outcome"] == "ok", done.stdout
    assert {"lane.32", "lane.132", "lane.memcpy", "lane.chunk"} == set(results["figures"])


def test_tests_by_name_are_in_their_programs(monkeypatch):
    """A program runs none, and passes, if it has no test of the name."""
    monkeypatch.setattr(parts.shutil, "which", lambda name: name)
    machine = types.SimpleNamespace(dry=False, program=lambda name: name)
    commands = parts.sanitizer(machine)
    machine.dry = True
    for command in commands + parts.kernels(machine):
        source = HERE.parent / f"cuda/test_cuda_{command[-2].removeprefix('device_')}.c"
        tests = re.findall(r"cmocka_unit_test\((\w+)\)", source.read_text())
        assert fnmatch.filter(tests, command[-1]), command
    assert len(commands) == 12


def result_of(**parts_of):
    rows = [{"part": name, "outcome": "ok", "seconds": 1, "facts": {"figures": given}} for name, given in parts_of.items()]
    return {"parts": rows, "dry": False, "device": {"sentence": "a GPU"}}


def decode(weights, batch, depth, rate, share, busy=0.99):
    return {"kind": "decode", "weights": weights, "batch": batch, "depth": depth, "tokens_per_s": rate, "of_read": share, "ran": busy, "gflops": 1}


def test_figures_are_ratios_of_one_run():
    layers = [{"type": kind, "layer": layer, "rows": 64, "us": us} for kind, us in (("bf16", 3.0), ("fp8", 2.0)) for layer in ("qkv", "o", "gate_up", "down", "head")]
    lane = [{"lane": "gather", "blocks": blocks, "run_bytes": 1 << run, "of_copy": share} for blocks, run, share in ((32, 16, 0.26), (32, 18, 0.24), (132, 16, 0.3))]
    lane += [{"lane": "memcpy", "blocks": 0, "run_bytes": 1 << 16, "of_copy": 0.003}, {"chunk_rows": 2048, "bytes": 1 << 28, "blocks": 32, "ms": 0.29, "worst_ms": 2}]
    results = result_of(decode=[decode("bf16", 1, 1024, 100, 0.8), decode("bf16", 64, 1024, 5000, 0.6, busy=0.9),
                                {"kind": "prefill", "weights": "bf16", "tokens": 2048, "tokens_per_s": 10, "gflops": 600}],
                        int8=[decode("int8", 1, 1024, 150, 0.5)], linear=[{"copy_gbs": 4000}, *layers], lane=lane, cublas=[{"name": "product", "gflops": 750}],
                        torch=[{"name": "decode.1.1024", "of_copy": 0.75}, {"name": "prefill.2048", "gflops": 600}])
    results["figures"] = figures.of(results)
    assert results["figures"] == pytest.approx({"decode.1.1024": 0.8, "decode.64.1024": 0.6, "busy": 0.9, "lane.32": 0.24, "lane.132": 0.3, "lane.memcpy": 0.003, "lane.chunk": 0.29, "prefill.2048": 0.8, "int8.1": 1.5, "fp8.64": 1.5,
                                                "torch.decode.1.1024": 0.75, "torch.prefill.2048": 0.8})
    lines = {line.split("  ")[1].strip(): line.split()[-1] for line in list(figures.table(results))[1:]}
    assert lines == {"decode 1 at 1k, share of copy": "must", "decode 64 at 1k, share of copy": "missed", "prefill 2048 over cuBLASLt 8192^3": "missed",
                     "int8 over bf16: decode 1": "must", "fp8 over bf16: linear layers at M = 64": "must", "device busy between decode steps": "missed", "lane, 64 KiB runs, 32 CTAs, share of copy": "must",
                     "lane, 64 KiB runs, 132 CTAs, share of copy": "missed", "lane, a memcpy for each run, share of copy": "-", "ms from a chunk of 2048 to its copy": "aim"}
    assert not list(figures.table(result_of() | {"figures": {}}))


def test_limits_leave_time():
    """Checks run four at a time, the others alone. At their limits no part of the quick run is left out, and checks leave half of a run."""
    def longest(chosen):
        beside = sorted((p.limit_s for p in chosen if not p.alone), reverse=True)
        return max(beside[:1] + [sum(beside) / 4]) + sum(p.limit_s for p in chosen if p.alone)
    assert longest([p for p in parts.PARTS.values() if p.quick]) <= gpu_run.MOST_QUICK_S - gpu_run.ENDING_S
    assert longest([p for p in parts.PARTS.values() if p.default and not p.alone]) <= gpu_run.MOST_S / 2
    assert all(p.default for p in parts.PARTS.values() if p.quick)


@needs_driver
@pytest.mark.skipif(not os.environ.get("BATON_LONG"), reason="tests/run --long")
def test_a_whole_dry_run(tmp_path):
    done, results, rows = run(tmp_path, "--dry", "--total", 1500, *(f"--limit={name}=400" for name in parts.PARTS), timeout=1600)
    assert done.returncode == 0, done.stdout
    assert {name for name, row in rows.items() if row["outcome"] != "ok"} == {"torch", "cublas"}
    assert set(rows) == {name for name, part in parts.PARTS.items() if part.default}
    assert rows["1p1d"]["facts"]["lane"] == "cuda" and rows["faults"]["facts"]["killed: faults in a handoff"] >= 1
    assert rows["equality"]["facts"]["cells that differ"] == 0 < rows["equality"]["facts"]["steps by graphs"] and results["figures"]["busy"] > 0


@pytest.mark.skipif(not os.environ.get("BATON_LONG") or not (HERE.parents[1] / "build/release/tests/device_speed").exists(), reason="tests/run --long, with a release build")
def test_the_payload_is_small_and_runs(tmp_path):
    """Unpacked elsewhere: programs find their libraries beside them, and each other."""
    packed = subprocess.run([HERE / "pack", "--out", tmp_path], text=True, capture_output=True, timeout=800)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    with tarfile.open(tmp_path / "payload.tar.xz") as payload:
        payload.extractall(tmp_path, filter="data")
    done, _, rows = run(tmp_path / "out", "--dry", "build", "1p1d", "--build", tmp_path / "gpu")
    assert done.returncode == 0 and rows["1p1d"]["facts"]["requests"] == 2, done.stdout
