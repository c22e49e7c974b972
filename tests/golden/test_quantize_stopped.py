"""`baton quantize` that is stopped on the way leaves no model, and the next run goes through as if it had not been."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
MODEL = TOP / "tests/golden/models/llama"
MODEL_FILES = ("config.json", "model.safetensors")


def command(out, model=MODEL):
    return [BUILD / "bin/baton", "quantize", "--model", model, "--type", "int8", "--out", out]


def quantize(out, model=MODEL, **environment):
    return subprocess.run(command(out, model), env=dict(os.environ, **environment), text=True, capture_output=True, timeout=120)


def failpoint(spec, log):
    return dict(BATON_FAILPOINTS=spec, BATON_FAILPOINTS_ALLOW="1", BATON_FAILPOINT_LOG=str(log))


def start_and_hold(out, log):
    """A run that waits in the middle of the weights."""
    run = subprocess.Popen(command(out), env=dict(os.environ, **failpoint("quantize.matrix=pause@5", log)), stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not log.exists() or not log.read_text().endswith("\n"):
        assert run.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    return run


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a run that nothing stops."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert quantize(out).returncode == 0
    assert set(MODEL_FILES) < set(files(out))
    return files(out)


def check_next_run(out, whole):
    done = quantize(out)
    assert done.returncode == 0, done.stderr
    assert files(out) == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle(tmp_path, whole, number):
    out = tmp_path / "out"
    run = start_and_hold(out, tmp_path / "hits")
    run.send_signal(number)
    assert run.wait(60) == -number
    assert (out / "model.safetensors.tmp").stat().st_size > 0
    assert not any((out / name).exists() for name in MODEL_FILES)
    check_next_run(out, whole)


def test_killed_between_the_two_names(tmp_path, whole):
    """The weights are there, config.json isn't: still no model, and not taken for a user's weights either."""
    out = tmp_path / "out"
    done = quantize(out, **failpoint("quantize.named=kill", tmp_path / "hits"))
    assert done.returncode == -signal.SIGKILL
    assert (out / "model.safetensors").read_bytes() == whole["model.safetensors"] and not (out / "config.json").exists()
    check_next_run(out, whole)


@pytest.mark.parametrize("name,told", [
    ("none/out", "cannot make the folder {}: No such file or directory: the folder above it must be there already"),
    ("file", "{} is a file: a folder without a model is wanted"),
    ("file/out", "cannot make the folder {}: Not a directory"),
])
def test_a_place_where_no_folder_can_be(tmp_path, name, told):
    (tmp_path / "file").touch()
    done = quantize(tmp_path / name)
    assert (done.returncode, done.stderr) == (1, f"baton quantize: {told.format(tmp_path / name)}\n")


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json", "config.json", "model.safetensors"])
def test_nothing_is_written_over(tmp_path, name):
    """A user's own file, with the name of a file of the source."""
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(MODEL, source)
    (source / "tokenizer.json").write_text("{}")
    out.mkdir()
    (out / name).write_text("mine")
    (out / "notes.txt").write_text("mine, too")
    (out / "added_tokens.json").write_text("{}")  # which the source doesn't have
    before = files(out)
    done = quantize(out, source)
    assert (done.returncode, done.stderr) == (1, f"baton quantize: {out}/{name}: it is there already: a folder without a model is wanted\n")
    assert files(out) == before
    (out / name).unlink()
    assert quantize(out, source).returncode == 0 and files(out)["notes.txt"] == b"mine, too"


def test_a_failure_leaves_nothing_that_the_next_run_refuses(tmp_path):
    """One small file that can't be read, behind others that could."""
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(MODEL, source)
    (source / "chat_template.json").mkdir()
    assert quantize(out, source).returncode == 1 and not files(out)
    (source / "chat_template.json").rmdir()
    assert quantize(out, source).returncode == 0


def test_two_at_once(tmp_path, whole):
    """The second is told so, and takes nothing from the first."""
    out, hits = tmp_path / "out", tmp_path / "hits"
    first = start_and_hold(out, hits)
    try:
        second = quantize(out)
        assert second.returncode == 1
        assert second.stderr == f"baton quantize: {out}/config.json: another process is writing it\n"
    finally:
        (tmp_path / "hits.quantize.matrix.go").touch()
        assert first.wait(60) == 0
    assert files(out) == whole
