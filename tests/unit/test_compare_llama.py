"""tests/bench/compare_llama.py with programs that only say figures: it takes turns, goes on where it was ended, and its ratios are
medians of rounds."""
import json
import pathlib
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
# Each call's speed is its number: 1, 2, 3 ... of its side; ours are ten times that. The 2nd of llama-bench may be told to fail.
BATON = """
turn = count("baton")
out = sys.argv[sys.argv.index("--json") + 1]
with open(os.path.join(here, "chunks"), "a") as file:
    print(sys.argv[sys.argv.index("--chunk") + 1] if "--chunk" in sys.argv else "whole", file=file)
figure = lambda **more: dict(more, tokens_per_s=10.0 * turn, linear_of_peak=0.9, of_read=0.5)
figures = [figure(kind="prefill", tokens=tokens) for tokens in (512, 2048)]
figures += [figure(kind="decode", depth=depth, batch=batch) for depth in (0, 2048) for batch in (1, 8, 16)]
json.dump({"engines": [{"figures": figures}]}, open(out, "w"))
"""
LLAMA_BENCH = """
turn = count("llama-bench")
if turn == 2 and os.path.exists(os.path.join(here, "fail")):
    sys.exit("out of luck")
json.dump([{"n_prompt": prompt, "n_gen": steps, "avg_ts": float(turn)} for prompt, steps in ((16, 0), (512, 0), (0, 32))], sys.stdout)
"""
BATCHED = """
turn = count("llama-batched-bench")
print("main: noise")
listed = lambda flag: [int(number) for number in sys.argv[sys.argv.index(flag) + 1].split(",")]
for prompt, batch in [(prompt, batch) for prompt in listed("-npp") for batch in listed("-npl")]:
    if batch != 16 or not os.path.exists(os.path.join(here, "cut")):
        print(json.dumps({"pp": prompt, "pl": batch, "speed_pp": 100.0 * turn, "speed_tg": float(turn)}))
"""
HEAD = """#!{python}
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
def count(name):
    with open(os.path.join(here, "calls"), "a+") as file:
        file.write(name + "\\n")
        file.seek(0)
        return file.read().split().count(name)
"""


@pytest.fixture
def run(tmp_path):
    for name, text in (("baton", BATON), ("llama-bench", LLAMA_BENCH), ("llama-batched-bench", BATCHED)):
        (tmp_path / name).write_text(HEAD.format(python=sys.executable) + text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "work/llama-1.1b-bf16").mkdir(parents=True)
    (tmp_path / "work/llama-1.1b-BF16.gguf").touch()

    def start(*arguments):
        return subprocess.run([sys.executable, TOP / "tests/bench/compare_llama.py", "--llama-bin", tmp_path, "--work",
                               tmp_path / "work", "--baton", tmp_path / "baton", "--shapes", "llama-1.1b", "--weights", "bf16",
                               "--threads", "1", "--rounds", "3", *arguments], text=True, capture_output=True, timeout=300)
    return start


def calls(tmp_path):
    return (tmp_path / "calls").read_text().split()


ROUND = [["baton"], ["llama-bench", "llama-batched-bench", "llama-batched-bench"]]
ALL = sum(ROUND + ROUND[::-1] + ROUND, [])


def test_a_run_that_was_ended_goes_on(run, tmp_path):
    (tmp_path / "fail").touch()
    done = run()
    assert done.returncode == 1 and "llama-bench ended with 1" in done.stderr and "out of luck" in done.stderr
    assert calls(tmp_path) == ALL[:5]  # theirs of the second round comes first, and failed
    (tmp_path / "fail").unlink()
    done = run()
    assert done.returncode == 0, done.stderr
    assert calls(tmp_path) == ALL[:4] + ["llama-bench"] + ALL[4:]
    before = (tmp_path / "work/state.json").read_text()
    again = run("--report")
    assert (again.returncode, again.stdout, calls(tmp_path)[len(ALL) + 1:]) == (0, done.stdout, [])
    assert (tmp_path / "work/state.json").read_text() == before


def test_the_table(run, tmp_path):
    done = run()
    assert done.returncode == 0, done.stderr
    assert calls(tmp_path) == ALL
    rows = {row[1].strip(): [cell.strip() for cell in row[2:5]]
            for row in (line.split("|") for line in done.stdout.splitlines() if line.startswith("| "))}
    # llama-bench is called once a round; the batched one twice: 1 and 2, 3 and 4, 5 and 6; ours say 10, 20, 30.
    assert rows["prefill 512"] == ["20.00", "2.00", "**10.00** 10.00-10.00"]
    assert rows["decode at 2048"] == ["20.00", "3.00", "**6.67** 6.00-10.00"]
    assert rows["decode, batch 16"] == ["20.00", "4.00", "**5.00** 5.00-5.00"]
    assert rows["prefill 2048"] == ["20.00", "300.00", "0.07 < 1.3 0.06-0.10"]
    assert rows["linear layers of prefill 512, of the instruction's peak"][0] == "90% 90-90"
    assert "llama-1.1b, 1 thread, tokens/s, medians of 3 rounds" in done.stdout


def test_other_programs_are_not_mixed_in(run, tmp_path):
    assert run("--rounds", "1").returncode == 0
    with open(tmp_path / "baton", "a") as file:
        file.write("# another\n")
    done = run()
    assert done.returncode == 1 and "was measured with other programs" in done.stderr
    assert len(json.loads((tmp_path / "work/state.json").read_text())["turns"]) == 2


def test_chunks_are_those_of_the_state(run, tmp_path):
    assert run("--rounds", "1", "--chunk", "512").returncode == 0
    for other in ([], ["--chunk", "256"]):
        done = run(*other)
        assert done.returncode == 1 and "was measured with --chunk 512, this is" in done.stderr, done.stderr
    done = run("--rounds", "2", "--chunk", "512")
    assert done.returncode == 0 and done.stdout.startswith("our prompts in steps of at most 512 rows")
    assert (tmp_path / "chunks").read_text().split() == ["512", "512"]
    assert run("--report").stdout == done.stdout  # measures nothing, whatever would be measured


def test_another_prefix_or_cpu_is_not_mixed_in(run, tmp_path):
    assert run("--rounds", "1").returncode == 0
    assert (tmp_path / "chunks").read_text().split() == ["whole"]
    done = run("--prefix", "nice -n 1")
    assert done.returncode == 1 and "was measured with --prefix '', this is 'nice -n 1'" in done.stderr
    path = tmp_path / "work/state.json"
    state = json.loads(path.read_text())
    state["circumstances"]["CPU"] = "Another 9000"
    path.write_text(json.dumps(state))
    done = run()
    assert done.returncode == 1 and "was measured with CPU 'Another 9000', this is" in done.stderr
    assert len(calls(tmp_path)) == 4


def test_a_state_of_old_had_whole_prompts(run, tmp_path):
    assert run("--rounds", "1").returncode == 0
    path = tmp_path / "work/state.json"
    state = json.loads(path.read_text())
    del state["circumstances"]
    path.write_text(json.dumps(state))
    done = run("--chunk", "512")
    assert done.returncode == 1 and "was measured with --chunk 0, this is 512" in done.stderr
    assert run("--rounds", "2").returncode == 0


def test_a_figure_that_was_not_said_is_not_taken(run, tmp_path):
    (tmp_path / "cut").touch()
    done = run()
    assert done.returncode == 1 and "theirs did not say decode, batch 16" in done.stderr
    assert len(json.loads((tmp_path / "work/state.json").read_text())["turns"]) == 1
