"""Programs of tests/ that a person starts: they say what they take, and refuse what they don't before they do anything."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
SAYS = '#!/bin/sh\necho "$(basename "$0") $*" >>"$SAID"\n'


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def run(tmp_path):
    """tests/run in a folder where all that it starts only says that it was started: run(*flags) -> (exit code, output, said)."""
    for name in ("tests/run", "tests/requirements.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(TOP / name, tmp_path / name)
    for name in ("deploy/local/install-packages", "bin/cmake", "bin/ctest", "tests/fuzz/run"):
        executable(tmp_path / name, SAYS)
    executable(tmp_path / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shutil.copy(TOP / "tests/requirements.txt", tmp_path / ".venv/installed-requirements.txt")
    (tmp_path / "build/debug").mkdir(parents=True)

    def start(*flags):
        said = tmp_path / "said"
        environment = dict(os.environ, SAID=str(said), PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
        done = subprocess.run([tmp_path / "tests/run", *flags], env=environment, text=True, capture_output=True, timeout=60)
        return done.returncode, done.stdout + done.stderr, said.read_text() if said.exists() else ""
    return start


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_run_says_what_it_takes(run, flag):
    code, output, said = run(flag)
    assert (code, said) == (0, "")
    assert output.startswith("Runs everything") and "Usage: tests/run" in output and "--schedule-random" in output
    assert "set -" not in output


@pytest.mark.parametrize("flags", [["--quik"], ["--quick", "test_sink"], ["-R"], ["-R", "sink", "--halp"]])
def test_run_refuses_what_it_does_not_know(run, flags):
    code, output, said = run(*flags)
    assert (code, said) == (2, ""), output
    assert output.startswith("tests/run: ") and "see --help" in output and output.count("\n") == 1


def test_run_passes_a_choice_of_tests_on(run):
    _, output, said = run("-R", "test sink", "--quick", "-VV")
    ran = [line for line in said.splitlines() if line.startswith("ctest")]
    assert len(ran) == 1 and ran[0].endswith("-R test sink -VV") and "--preset debug" in ran[0], output


def test_run_builds_what_is_tested_later_while_it_tests(run):
    code, output, said = run()
    said = [re.sub(r"/\S*/|--output-junit \S+ |--test-output-size-passed \d+ |-j \d+ ", "", line) for line in said.splitlines()]
    ahead = ["cmake --preset tsan -DBATON_PYTHON=python3 -DBATON_INNER_FROM=debug", "cmake --build --preset tsan --target threaded_tests", "run --build"]
    begun, test, later = said.index("cmake --build --preset debug"), said.index("ctest --preset debug --no-tests=error"), said.index("ctest --preset tsan --no-tests=error -L threads")
    assert code == 0 and output.endswith("0 passed, 0 failed\n") and "build ahead" in output, output
    assert begun < test < later and [line for line in said[begun:later] if line in ahead][:3] == ahead, said
    assert said[-1].startswith("run --seconds 1 --junit ")


SUITE = """#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
static int runs; /* a test that ran before in this process would be seen */
static void test_it_is_the_first(void **state) { (void)state; assert_int_equal(runs++, 0); }
static void test_it_is_wrong(void **state) { (void)state; assert_int_equal(runs++, 1); }
static void test_it_crashes(void **state) { (void)state; abort(); }
static void test_it_ends_early(void **state) { (void)state; _exit(3); }
static void test_it_is_in_two_groups(void **state) { (void)state; assert_in_range(runs++, 0, 1); }
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_is_the_first), cmocka_unit_test(test_it_is_wrong), cmocka_unit_test(test_it_crashes),
        cmocka_unit_test(test_it_ends_early), cmocka_unit_test(test_it_is_in_two_groups)}, again[] = {cmocka_unit_test(test_it_is_in_two_groups)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + cmocka_run_group_tests(again, NULL, NULL);
}
"""


def test_the_runner_of_cmocka_files_runs_each_test_in_a_process_of_its_own(tmp_path):
    (tmp_path / "a.c").write_text(SUITE)
    (tmp_path / "files.c").write_text("int a(int, char **);\n#include \"tests/runner.h\"\nconst struct test_file TEST_FILES[] = {{\"test_a\", a}, {0}};\n")
    compiler = ["cc", "-D_GNU_SOURCE", f"-I{TOP}", "-c"]
    subprocess.run([*compiler, "-DTEST_FILE_MAIN=a", "-include", "tests/test_file.h", "a.c"], cwd=tmp_path, check=True)
    subprocess.run([*compiler, "files.c", TOP / "tests/runner.c"], cwd=tmp_path, check=True)
    subprocess.run(["cc", "a.o", "files.o", "runner.o", "-lcmocka", "-o", "suite"], cwd=tmp_path, check=True)

    def suite(*words):
        done = subprocess.run([tmp_path / "suite", *words], text=True, capture_output=True, timeout=60)
        return done.returncode, done.stdout + done.stderr
    for words in ([], ["test_a"]):
        code, output = suite(*words)
        assert code == 1 and re.findall(r"^test_a\.test_it_(\w+): (\w+)$", output, re.M) == [
            ("is_the_first", "ok"), ("is_wrong", "FAILED"), ("crashes", "FAILED"), ("ends_early", "FAILED"), ("is_in_two_groups", "ok")], output
        assert "0 != 0x1" in output and output.count("Running 1 test(s)") == 3  # a failed test alone shows what it printed
    assert suite("test_a.test_it_is_the_first")[0] == 0 and suite("test_a.test_it_is_wrong")[0] == 1
    assert suite("test_a.test_none")[0] == 1


@pytest.mark.parametrize("minutes", ["1", "0", "-3", "nan"])
def test_a_soak_that_nothing_could_come_of_is_refused(tmp_path, minutes):
    done = subprocess.run([sys.executable, TOP / "tests/fault/soak", "--minutes", minutes], env=dict(os.environ, BATON_BUILD=str(tmp_path)), text=True, capture_output=True, timeout=60)
    assert done.returncode == 2 and f"--minutes must be at least 2, but is {minutes}" in done.stderr, done.stderr


def test_a_fault_case_that_is_not_there_is_told():
    for flags, why in [(["--case", "nosuch"], "there is no case whose name contains 'nosuch'"),
                       (["--case", "refusals.pause", "--lane", "shm"], "none of these cases is run over shm")]:
        done = subprocess.run([sys.executable, TOP / "tests/fault/run", *flags], text=True, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"tests/fault/run: {why} (see --list)\n")


FAKE_BATON = """#!/bin/sh
echo "baton $*" >>"$SAID"
[ "$1" = up ] || { [ ! "$REFUSAL" ] || { echo "$REFUSAL" >&2; exit 1; }; exit 0; }
while [ $# -gt 0 ]; do [ "$1" = --ready-file ] && ready=$2; shift; done
trap 'exit 0' TERM
echo '{"pid": 1, "grpc": "host:1", "models": [{"name": "m", "dir": ""}, {"name": "n", "dir": ""}]}' >"$ready"
while :; do sleep 0.05; done
"""


@pytest.fixture
def quickstart(tmp_path):
    """deploy/local/quickstart in a folder where all that it starts only says so: quickstart(*flags) -> (exit code, output, said). refusal: what a passage ends with."""
    (tmp_path / "deploy/local").mkdir(parents=True)
    shutil.copy(TOP / "deploy/local/quickstart", tmp_path / "deploy/local/quickstart")
    for name in ("deploy/local/install-packages", "bin/cmake"):
        executable(tmp_path / name, SAYS)
    executable(tmp_path / "build/release/bin/baton", FAKE_BATON)
    for folder in ("with", "without", "deploy/local/tiny-shakespeare", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").touch()
        (tmp_path / folder / "model.safetensors").touch()
    (tmp_path / "with/tokenizer.json").touch()

    def start(*flags, refusal="", at=".", top=tmp_path):
        said = tmp_path / "said"
        environment = dict(os.environ, SAID=str(said), REFUSAL=refusal, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
        done = subprocess.run([top / "deploy/local/quickstart", *flags], env=environment, cwd=tmp_path / at, text=True, capture_output=True, timeout=60)
        return done.returncode, done.stdout + done.stderr, said.read_text() if said.exists() else ""
    return start


def test_a_linked_environment_is_ignored_too(tmp_path):
    """A folder of packages that several checkouts share."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    shutil.copy(TOP / ".gitignore", tmp_path)
    (tmp_path / ".venv").symlink_to("/tmp")
    assert subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, text=True, capture_output=True, check=True).stdout == "?? .gitignore\n"


@pytest.mark.parametrize("flags", [["--ready-file", "F"], ["--ready-file=F"], ["--decode", "2", "--ready-file", "F"]])
def test_quickstart_keeps_its_ready_file(quickstart, flags):
    code, output, said = quickstart("--once", "--", *flags)
    assert (code, said) == (2, "") and output.startswith("quickstart: --ready-file is how it learns") and output.count("\n") == 1


@pytest.mark.parametrize("flag,why", [("--weights", "; flags of baton up stand behind --"), ("weights", "")])
def test_quickstart_says_where_flags_of_up_stand(quickstart, flag, why):
    assert quickstart(flag, "int8") == (2, f"quickstart: unknown argument '{flag}'{why} (see --help)\n", "")


def test_quickstart_asks_a_model_in_what_it_takes(quickstart):
    code, output, said = quickstart("--once", "--model", "with", "--prompt", "Now is")
    assert code == 0 and said.splitlines()[-1].endswith("--seed 7 Now is"), output + said
    code, output, said = quickstart("--once", "--model", "without")
    assert code == 0 and said.splitlines()[-1].endswith("--seed 7 --prompt-ids 1,2,3"), output + said
    assert "without has no tokenizer.json: it is asked, and answers, in token ids." in output


@pytest.mark.parametrize("model", ["../with", "n=../with"])
def test_quickstart_finds_a_folder_from_where_it_was_called(quickstart, model):
    code, output, said = quickstart("--once", "--model", model, at="elsewhere")
    assert code == 0 and f"baton up --model {model} " in said and said.splitlines()[-1].endswith("--seed 7 ROMEO:"), output + said


@pytest.mark.parametrize("model", ["a,b", "n=a,b", ""])
def test_quickstart_serves_a_folder_with_a_comma_through_a_link(quickstart, tmp_path, model):
    """Also where it lies in one itself."""
    (tmp_path / "a,b").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "a,b" / name).touch()
    top = shutil.copytree(tmp_path, tmp_path.parent / "c,d") if not model else tmp_path
    code, output, said = quickstart("--once", *(["--model", model] if model else []), top=top)
    name = "n=" if model.startswith("n=") else ""
    assert code == 0 and re.search(rf"baton up --model {name}/[^ ,]*/model --ready-file", said), output + said


def test_quickstart_has_a_model_of_its_own(quickstart):
    code, output, said = quickstart("--once", at="elsewhere")
    assert code == 0 and "/deploy/local/tiny-shakespeare --ready-file" in said, output + said


@pytest.mark.parametrize("model", ["nosuch", "n=nosuch", "/nosuch"])
def test_quickstart_looks_for_a_model_before_it_builds(quickstart, model):
    assert quickstart("--model", model) == (2, f"quickstart: --model {model}: no such folder; nothing is downloaded, give the folder of a model that is here (see --help)\n", "")


@pytest.mark.parametrize("given,holds,told", [
    ("models--a--b", "models--a--b/snapshots/0f", "give models--a--b/snapshots/0f, which has one"), ("n=models--a--b", "models--a--b/snapshots/0f", "give models--a--b/snapshots/0f, which has one"),
    ("models--a--b/snapshots", "models--a--b/snapshots/0f", "give models--a--b/snapshots/0f, which has one"), ("hub", "hub/models--a--b/snapshots/0f", "give hub/models--a--b/snapshots/0f, which has one"),
    ("empty", "empty/a/b/c", "give a folder in Hugging Face's layout"), ("model.gguf", "", "give a folder in Hugging Face's layout")])
def test_quickstart_says_at_once_that_a_folder_is_no_model(quickstart, tmp_path, given, holds, told):
    """Before minutes of building; and which folder of a cache is one."""
    (tmp_path / (holds or ".")).mkdir(parents=True, exist_ok=True)
    (tmp_path / (f"{holds}/config.json" if holds else given)).touch()
    code, output, said = quickstart("--model", given)
    assert (code, said) == (2, "") and output.startswith(f"quickstart: --model {given}: no config.json in it; {told}") and output.count("\n") == 1, output


def test_quickstart_looks_for_weights_before_it_builds(quickstart, tmp_path):
    (tmp_path / "with/model.safetensors").unlink()
    told = "quickstart: --model with: no model.safetensors in it, nor model.safetensors.index.json (*.bin and *.gguf aren't read) (see --help)\n"
    assert quickstart("--model", "with") == (2, told, "")
    (tmp_path / "with/model.safetensors.index.json").touch()
    assert quickstart("--once", "--model", "with")[0] == 0


def test_quickstart_asks_the_first_of_several_models(quickstart):
    code, output, said = quickstart("--once", "--model", "with", "--", "--model", "n=other")
    assert code == 0 and "--server host:1 --model m " in said, output + said


@pytest.mark.parametrize("flags", [["--api-keys", "keys"], ["--tls-cert=c", "--tls-key=k"]])
def test_quickstart_asks_nothing_where_it_may_not(quickstart, flags):
    code, output, said = quickstart("--once", "--model", "with", "--", *flags)
    assert code == 0 and "generate" not in said and "No passage: a client needs a key (--api-key-file FILE)" in output, output + said


@pytest.mark.parametrize("refusal,code", [("UNAUTHENTICATED (invalid_api_key): an API key is needed", 0), ("Socket closed (a server listens there: if it speaks TLS, give --tls-ca)", 0), ("UNAVAILABLE: no", 1)])
def test_quickstart_learns_from_a_refusal_that_it_may_not_ask(quickstart, refusal, code):
    """Keys and certificates of a file of settings aren't seen before."""
    got, output, _ = quickstart("--once", "--model", "with", "--", "--config", "f", refusal=refusal)
    assert got == code and ("No passage: a client needs a key" in output, refusal in output) == (code == 0, code != 0), output
