"""Packed weights that are kept (weight-cache): the next start uses them, the answers stay the same bytes, and what is wrong with a
file or its folder costs a sentence and time, never an answer."""
import fcntl
import os
import random
import shutil

import pytest
from harness import GOLDEN

PROMPT = [random.Random(7).randrange(10, 380) for _ in range(40)]
ASKED = dict(temperature=1, seed=5, max_tokens=16, ignore_eos=True, logits_hash=True)
KEPT, TAKEN, LEFT = 'msg="packed weights are kept"', "source=kept", 'msg="packed weights are left to another process"'
REFUSED, NOT_KEPT = 'msg="kept weights can\'t be used, they are packed again"', 'msg="packed weights can\'t be kept"'


@pytest.fixture
def ask(start_cluster, connect):
    """Starts a cluster over a cache folder ("off": none), asks, ends it: the answer's ids and hashes of logits, and the workers' logs."""
    def outcome(model, cache, **options):
        cluster = start_cluster(model=model, compute="fast", flags=["--weights", "int4", "--weight-cache", cache], **options)
        answer = connect(cluster).generate(PROMPT, **ASKED)
        cluster.stop()
        return (answer.ids, answer.hashes), [log.read_text() for log in sorted((cluster.folder / "logs").glob("*code*.log")) +
                                             sorted((cluster.folder / "logs").glob("prefill*.log"))]
    return outcome


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(GOLDEN / "llama", tmp_path / "model")


def sentence(log, start):
    return next(line for line in log.splitlines() if start in line)


def test_the_second_start_takes_what_the_first_one_kept(ask, model, tmp_path):
    """Two workers start at once over one empty folder: both serve, at least one keeps, and one whole file is there."""
    cache = tmp_path / "cache"
    cache.mkdir()
    want, logs = ask(model, "off")
    assert not any("kept" in log for log in logs)
    got, logs = ask(model, cache)
    assert got == want
    assert any(KEPT in log for log in logs)
    for log in logs:
        assert (KEPT in log or TAKEN in log or LEFT in log) and NOT_KEPT not in log
    [path] = cache.iterdir()
    assert path.name.startswith("model.") and path.name.endswith(".int4-int8.packed")
    before = path.stat()
    got, logs = ask(model, cache)
    assert got == want
    assert all(TAKEN in log and KEPT not in log for log in logs)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(cache.iterdir()) == [path]


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def test_a_file_that_is_not_the_one_is_packed_again(ask, model, tmp_path):
    """Cut off, one bit changed, and a file of other weights: each is told, and made again."""
    cache = tmp_path / "cache"
    cache.mkdir()
    alone = dict(prefill=0, decode=1)
    want, _ = ask(model, cache, **alone)
    [path] = cache.iterdir()
    sound = path.read_bytes()
    other = shutil.copytree(GOLDEN / "llama", tmp_path / "other" / "model")
    flip(other / "model.safetensors", (other / "model.safetensors").stat().st_size - 1)
    damages = [(lambda: os.truncate(path, len(sound) - 4096), "(cut short?)"),
               (lambda: flip(path, (2 << 20) + 1000), "it is damaged from byte 2097152 on: the checksum is wrong"),
               (lambda: path.write_bytes(others.read_bytes()), "the files of the model have changed since, or it was made from other files")]
    others_answer, _ = ask(other, cache, **alone)
    assert others_answer != want
    [others] = set(cache.iterdir()) - {path}
    for damage, why in damages:
        damage()
        got, [log] = ask(model, cache, **alone)
        assert got == want
        assert str(path) in sentence(log, REFUSED) and why in sentence(log, REFUSED)
        assert KEPT in log and path.read_bytes() == sound
    assert others.name != path.name and others.exists()


def test_where_nothing_can_be_written_it_is_said_and_served(ask, model, tmp_path):
    """A folder that takes no files, and a disk that fills up while they are written."""
    want, _ = ask(model, "off", prefill=0)
    got, [log] = ask(model, "/proc/sys", prefill=0)
    assert got == want and "/proc/sys/model." in sentence(log, NOT_KEPT)
    cache = tmp_path / "cache"
    cache.mkdir()
    got, [log] = ask(model, cache, prefill=0, process_environment={"decode-0": {"BATON_FAILPOINTS": "weights.keep=fail"}})
    assert got == want and "it can't be written: No space left on device" in sentence(log, NOT_KEPT)
    assert not list(cache.iterdir())


def test_while_another_writes_it_is_left_to_that_one(ask, model, tmp_path):
    """No fault, so no warning; the lock is held here, as a worker that packs the same would."""
    cache = tmp_path / "cache"
    cache.mkdir()
    want, _ = ask(model, cache, prefill=0)
    [path] = cache.iterdir()
    path.unlink()
    with open(f"{path}.tmp", "wb") as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        got, [log] = ask(model, cache, prefill=0)
    assert got == want and KEPT not in log
    assert "level=info" in sentence(log, LEFT) and f"{path}: another process is writing it" in sentence(log, LEFT)
    assert NOT_KEPT not in log and not path.exists()


def test_a_writer_that_is_killed_leaves_nothing_that_is_taken(ask, model, tmp_path, request):
    """It dies with the whole file written under its temporary name: the next start packs again, and writes over it."""
    cache = tmp_path / "cache"
    cache.mkdir()
    want, _ = ask(model, "off", prefill=0)
    with pytest.raises(AssertionError, match="killed by signal 9"):
        ask(model, cache, prefill=0, process_environment={"decode-0": {"BATON_FAILPOINTS": "weights.keep=kill"}})
    request.node.clusters[-1].expected_exit = 1
    [left] = cache.iterdir()
    assert left.name.endswith(".packed.tmp")
    got, [log] = ask(model, cache, prefill=0)
    assert got == want and KEPT in log and TAKEN not in log
    assert [path.name + ".tmp" for path in cache.iterdir()] == [left.name]
