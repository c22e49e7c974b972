"""The settings of all programs together: the names that the environment may hold, and what each program's --help shows."""
import functools
import os
import pathlib
import re
import socket
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
PROGRAMS = ["baton-router", "baton-prefill", "baton-decode", "baton up", "baton generate", "baton chat", "baton status", "baton top", "baton trace", "baton tokenize",
            "baton detokenize", "baton quantize", "baton key new", "baton perplexity", "baton bench engine",
            "baton bench prefix-cache", "baton bench schedule", "baton bench serve",
            "baton bench transfer"]
NO_SETTINGS = {"BATON_CUDA_DRIVER", "BATON_CUDA_EMULATED", "BATON_FAILPOINTS", "BATON_FAILPOINT_LOG", "BATON_FAILPOINTS_ALLOW"}


def run(program, *arguments, **environment):
    words = program.split()
    clean = {key: value for key, value in os.environ.items() if not key.startswith("BATON_")}
    return subprocess.run([BUILD / "bin" / words[0], *words[1:], *arguments], env=dict(clean, **environment), text=True,
                          capture_output=True, timeout=60)


@functools.cache
def rows(program):
    """{name: help} of one program."""
    text = run(program, "--help").stdout
    return {name: line for line in re.split(r"\n(?=  --)", text) for name in re.findall(r"^  --(?:\[no-\])?([a-z0-9-]+)", line)}


def test_every_setting_is_a_name_that_the_environment_may_hold():
    """A new setting needs its line in common/base/config/config_names.c, in alphabetical order."""
    source = (TOP / "common/base/config/config_names.c").read_text()
    known = re.findall(r'^    "(BATON_\w+)",$', source, re.M)
    assert known == sorted(known)
    rows_in_one_text = {"slo-class"}  # a flag adds to it; other settings that may be repeated are flags only
    settings = rows_in_one_text | {name for program in PROGRAMS for name, line in rows(program).items()
                                   if "may be repeated" not in line and "not from the environment" not in line}
    wanted = {"BATON_" + name.upper().replace("-", "_") for name in settings - {"help"}} | NO_SETTINGS
    assert set(known) == wanted, f"missing: {sorted(wanted - set(known))}, too many: {sorted(set(known) - wanted)}"


@pytest.mark.parametrize("variable,told", [
    ("BATON_KV_TOKEN", ", did you mean BATON_KV_TOKENS?\n"),
    ("BATON_MAX_SEQENCES", ", did you mean BATON_MAX_SEQUENCES?\n"),
    ("BATON_OVERTAKE", ", did you mean BATON_OVERTAKE_LIMIT?\n"),
    ("BATON_OTLP_T", "BATON_OTLP_T is not a setting of Baton\n"),  # some begin so
    ("BATON_MODE", ", did you mean BATON_MODEL?\n"),
    ("BATON_FOO", "BATON_FOO is not a setting of Baton\n"),
    ("BATON_WORKER_", "is not a setting of Baton\n"),
    ("BATON_", "BATON_ is not a setting of Baton\n"),
    ("BATON_SOMETHING_ELSE_ALTOGETHER", "is not a setting of Baton\n"),
])
def test_a_misspelt_variable_is_warned_of(variable, told):
    done = run("baton generate", "--server", "127.0.0.1:1", "x", **{variable: "1"})
    assert f"baton generate: warning: the environment's {variable} is not a setting of Baton" in done.stderr
    assert told in done.stderr


def test_right_variables_are_not_warned_of():
    done = run("baton generate", "--server", "127.0.0.1:1", "x", BATON_KV_TOKENS="4096", BATON_MODEL="/a/folder", BATON_BUILD="x", BATON_LONG="1",
               BATON_DATA="/data")
    assert "warning" not in done.stderr and "cannot reach a router at 127.0.0.1:1: Connection refused" in done.stderr


@pytest.mark.parametrize("flag,told", [
    ("--max-token", ", did you mean --max-tokens?"), ("--temp", ", did you mean --temperature?"), ("--verbosity", ""), ("-n", ""),
])
@pytest.mark.parametrize("rest", [["3", "x"], ["-3", "x"], ["x"], ["3"]])
def test_a_misspelt_flag_is_told_alone_and_with_a_hint(flag, told, rest):
    done = run("baton generate", flag, *rest)
    assert done.returncode == 2 and done.stderr == f"baton generate: unknown flag {flag}{told}\nTry: baton generate --help\n"


@pytest.mark.parametrize("command,told", [
    ("baton up --model m --host 0.0.0.0", "unknown flag --host, did you mean --http-listen?"), ("baton up --model m --gpu-memory-utilization 0.9", "unknown flag --gpu-memory-utilization, did you mean --kv-tokens?"), ("baton up --model m --max-model-len 4096", "unknown flag --max-model-len, did you mean --context?"),
    ("baton up --model m --api-key k", "unknown flag --api-key, did you mean --api-keys?"),
    ("baton-router --model m --host 0.0.0.0", "unknown flag --host, did you mean --listen?"), ("baton-decode --max-num-seqs 8 --name n --router h:1 --model m", "unknown flag --max-num-seqs, did you mean --max-sequences?"),
    ("baton generate --host h:1 x", "unknown flag --host, did you mean --server?"), ("baton chat --url h:1", "unknown flag --url, did you mean --server?"),
    ("baton status --max-model-len 1", "unknown flag --max-model-len"), ("baton generate two words", "unexpected argument 'words': what has blanks stands between quotes"),
    ("baton status now", "unexpected argument 'now'"),
])
def test_what_other_servers_say_is_understood(command, told):
    program, = (one for one in PROGRAMS if command.startswith(one + " "))
    done = run(program, *command[len(program):].split())
    assert done.returncode == 2 and done.stderr == f"{program}: {told}\nTry: {program} --help\n"


ROWS = ",".join(f"name=c{i},ttft=1s" for i in range(33))
WRONG_CLASSES = {
    (ROWS,): ["slo-class: 33 classes: at most 32 (slo_too_many)"],
    ("name=a,ttft=0", "name=b,ttft=1s,p=101", "name=b,tpot=4"): [
        "slo-class: class a: ttft=0 must be in 1us .. 24h; leave it out if it doesn't matter (slo_time_range)",
        "slo-class: class b: p=101 must be a number in 50 .. 99.99: percent of its requests that are meant to attain (slo_percentile)",
        "slo-class: two classes have the name b (slo_name_twice)", "slo-class: class b: tpot=4 must be a whole number with a unit"],
    ("name=a", "name=b,offline"): ["slo-class: class a has no objective: give ttft, tpot, itl or e2e, or offline"],
}


@pytest.mark.parametrize("classes", WRONG_CLASSES, ids=range(len(WRONG_CLASSES)))
def test_mistakes_of_slo_classes_are_told_at_once(classes):
    """All of them, beside the mistakes of other settings. The same text in the environment has the same mistakes."""
    flags = [word for row in classes for word in ("--slo-class", row)]
    for flags, environment in ((flags, {}), ([], {"BATON_SLO_CLASS": ", ".join(classes)})):
        for program in ("baton-router", "baton up"):
            done = run(program, "--model", "m", "--slo-default", "nobody", "--log-level", "loud", *flags, **environment)
            assert done.returncode == 2
            lines = done.stderr.splitlines()
            told = [*WRONG_CLASSES[classes], "--log-level must be one of debug, ", "slo-default nobody is no class: there are "]
            assert len(lines) == len(told) + 1, done.stderr
            for sentence in told:
                assert any(line.startswith(f"{program}: {sentence}") for line in lines), (sentence, done.stderr)


@pytest.mark.parametrize("word,told", [("serve", ", did you mean up?"), ("run", ", did you mean chat?"), ("nothing", "")])
def test_a_command_of_another_server(word, told):
    done = run("baton", word, "x")
    assert done.returncode == 2 and done.stderr.startswith(f"baton: unknown command '{word}'{told}\nUsage: ")


@pytest.mark.parametrize("command", ["up", "key", "chat-template"])
def test_help_of_a_command(command):
    asked, told = run("baton", "help", command), run("baton", command, "--help")
    assert asked.returncode == told.returncode == 0 and asked.stdout == told.stdout != run("baton", "help").stdout
    unknown = run("baton", "help", "nothing")
    assert unknown.returncode == 2 and unknown.stderr.startswith("baton: unknown command 'nothing'\nUsage: ")


@pytest.mark.parametrize("program,flag", [("baton bench schedule", "--json"), ("baton tokenize", "--model"), ("baton quantize", "--weights")])
def test_the_environment_is_no_way_into_a_program_without_the_setting(program, flag):
    done = run(program, flag, "x")
    assert done.returncode == 2 and done.stderr.startswith(f"{program}: unknown flag {flag}\n") and "environment" not in done.stderr


def test_a_flag_of_another_program_is_told_as_such():
    done = run("baton up", "--model", "nowhere", "--block-tokens", "16")
    told = "baton up: unknown flag --block-tokens; programs that have it take BATON_BLOCK_TOKENS from the environment\nTry: baton up --help\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.parametrize("flag,instead", [
    ("--listen", "--port is the router's, on 127.0.0.1"), ("--metrics-listen", "all except clients come to free ports"), ("--registry-listen", "with certificates or keys it is a free port of 127.0.0.1, otherwise the router takes BATON_REGISTRY_LISTEN from the environment\n"),
    ("--name", "its workers are prefill-0"), ("--router", "its workers are prefill-0"), ("--cpus", "--threads and --pin say which cores workers get; with --no-pin, --env"),
    ("--spin", "--threads and --pin say"), ("--no-spin", "--threads and --pin say"), ("--ready-fd", "--ready-file names a file"),
])
def test_what_up_says_to_its_processes_itself_is_not_of_the_environment(tmp_path, flag, instead):
    """A place at which it would be overruled."""
    done = run("baton up", "--model", "nowhere", flag, *([] if flag == "--no-spin" else ["127.0.0.1:5000"]))
    assert done.returncode == 2 and done.stderr.startswith(f"baton up: unknown flag {flag}: {instead}") and done.stderr.count("\n") == 2, done.stderr
    (tmp_path / "up.yaml").write_text(f"model: nowhere\n{flag[2:]}: x\n")
    done = run("baton up", "--config", str(tmp_path / "up.yaml"))
    assert done.returncode == 2 and f"unknown setting '{flag[2:]}': {instead}" in done.stderr, done.stderr


def test_a_setting_of_another_program_in_a_file_is_told_as_such(tmp_path):
    (tmp_path / "up.yaml").write_text("model: nowhere\nblock-tokens: 16\n")
    done = run("baton up", "--config", str(tmp_path / "up.yaml"))
    assert done.returncode == 2 and "unknown setting 'block-tokens'; programs that have it take BATON_BLOCK_TOKENS from the environment\n" in done.stderr, done.stderr


WORDS = {"HOST:PORT": {"listen", "metrics-listen", "registry-listen", "router", "server", "http"}, "DIR": {"model", "log-dir"}, "FILE": {"tokenizer", "ready-file", "config"},
         "debug|info|warn|error": {"log-level"}}


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_says_what_kind_of_value_is_meant(program):
    """The same in all programs, except --model if it is a name, or folders of several models."""
    shown = rows(program)
    other = {("baton generate", "model"): "NAME", ("baton chat", "model"): "NAME", ("baton bench serve", "model"): "NAME", **{(several, "model"): "[NAME=]DIR,..." for several in ("baton-router", "baton up")}}
    untrue = [line.splitlines()[0] for word, names in WORDS.items() for name, line in shown.items()
              if name in names and line.split()[1] != other.get((program, name), word)]
    assert not untrue, untrue
    for name in {"top-k", "decode"} & set(shown):
        assert "in tokens" not in shown[name], shown[name]


def test_workers_show_what_is_of_their_role_and_take_what_is_of_the_other():
    of_decode = {"heartbeat", "read-timeout", "peer-timeout", "chunk-time", "prompts-first"}
    assert of_decode <= set(rows("baton-decode"))
    assert not of_decode & set(rows("baton-prefill"))
    done = run("baton-prefill", "--heartbeat", "2s", "--name", "w", "--router", "127.0.0.1:1", "--model", "nowhere")
    assert done.returncode == 1 and "nowhere" in done.stderr


@pytest.mark.parametrize("arguments,told", [
    (("--top-p", "0"), "top_p must be above 0 and at most 1, got 0"),
    (("--top-p", "1.5"), "top_p must be above 0"),
    (("--min-p", "1"), "min_p must be at least 0 and below 1, got 1"),
    (("--temperature", "-1"), "temperature must be between 0 and 100"),
    (("--max-tokens", "0"), "generate: --max-tokens must be in 1 .. 1048576, but is '0', which is for --echo or --prompt-logprobs, without --min-tokens\n"),
    (("--max-tokens", "-1"), "generate: --max-tokens must be in 0 .. 1048576, but is '-1'\n"),
    (("--max-tokens", "1048577"), "generate: --max-tokens must be in 0 .. 1048576, but is '1048577'\n"),
    (("--min-tokens", "2000000"), "generate: --min-tokens must be in 0 .. 1048576, but is '2000000'\n"),
    (("--max-tokens", "0", "--min-tokens", "2000000"), "generate: --min-tokens must be in 0 .. 1048576, but is '2000000'\nTry: baton generate --help\n"),
    (("--max-tokens", "0", "--echo", "--min-tokens", "1"), "--max-tokens must be in 1 .. 1048576, but is '0'"),
    (("--max-tokens", "0", "--top-p", "0"), "which is for --echo or --prompt-logprobs, without --min-tokens; top_p must be above 0 and at most 1, got 0\n"),
    (("--min-tokens", "5", "--max-tokens", "4"), "min_tokens (5) must not be above max_tokens (4)"),
    (("--temperature", "101", "--top-p", "0", "--min-p", "1"),
     "temperature must be between 0 and 100, got 101; top_p must be above 0 and at most 1, got 0; min_p must be at least 0 and below 1, got 1\n"),
    (("--stop=x",) * 17, "--stop is given more than 16 times, but is 'x'"),
    (("--seed", "18446744073709551616"), "--seed must be at most 18446744073709551615"),
    (("--logits-hash",), "--logits-hash needs --json"),
    (("--server", "nonsense"), '--server: "nonsense" is not host:port of a server'),
    (("--server", "host:0"), '--server: "host:0" is not host:port of a server'),
    (("--server", ":99"), '--server: ":99" is not host:port of a server'),
])
def test_generate_refuses_what_the_server_would(arguments, told):
    done = run("baton generate", *arguments, "x")
    assert done.returncode == 2 and told in done.stderr, done.stderr


WORKER = {"name": "w", "router": "127.0.0.1:1", "model": "nowhere"}


def arguments_of(program, **settings):
    given = dict({"baton-router": {"model": "nowhere"}, "baton-prefill": WORKER, "baton-decode": WORKER}.get(program, {}), **settings)
    return [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]


@pytest.mark.parametrize("program,setting,value,told", [
    ("baton-router", "listen", "127.0.0.1", 'address "127.0.0.1" is not host:port'),
    ("baton-router", "metrics_listen", "127.0.0.1", "cannot listen on '127.0.0.1' for HTTP: give a numeric host, or localhost, and a port"),
    ("baton-router", "http_listen", ":8000", "cannot listen on ':8000' for HTTP: give a numeric host, or localhost, and a port, like 127.0.0.1:9090"),
    ("baton-router", "http_cors_origins", "https://a.example, app.example", "'app.example' is no origin: give * for all"),
    ("baton-router", "http_cors_origins", "https://a.example/", "'https://a.example/' is no origin"),
    ("baton-router", "http_cors_origins", "https://" + "a" * 249, "is no origin"),
    ("baton-router", "http_cors_origins", "https://App.Example", "'https://App.Example' is an origin that no browser sends: they write it in lower case"),
    ("baton-router", "http_cors_origins", "https://a.example:443", "they leave out the port that is usual for its scheme"),
    ("baton-router", "http_cors_origins", "http://a.example:443,http://a.example:80", "'http://a.example:80' is an origin that no browser sends: they leave out the port"),
    ("baton-router", "http_listen", "localhost", "cannot listen on 'localhost' for HTTP"),
    ("baton-router", "model", "", "must not be empty"),
    ("baton up", "model", "", "must not be empty"),
    ("baton tokenize", "tokenizer", "", "must not be empty"),
    ("baton-prefill", "listen", "nowhere", 'address "nowhere" is not host:port'),
    ("baton-prefill", "metrics_listen", "here:1", "cannot listen on 'here:1' for HTTP"),
    ("baton-prefill", "interface", "nosuch0", "the network interface nosuch0 has no address"),
    ("baton-decode", "router", "127.0.0.1", '"127.0.0.1" is not host:port of a server'),
    ("baton-decode", "router", "foo", '"foo" is not host:port of a server'),
    ("baton-decode", "router", "127.0.0.1:0", '"127.0.0.1:0" is not host:port of a server'),
    ("baton-decode", "name", "bad name!", "the worker's name may hold only printable ASCII without blanks and quotes"),
    ("baton-decode", "name", "w\nlevel=error", "the worker's name may hold only printable ASCII"),
    ("baton-decode", "kv_faults", "nonsense", "nonsense"),
    ("baton status", "http", "127.0.0.1", '"127.0.0.1" is not host:port of a server'),
])
def test_a_wrong_setting_is_told_before_anything_is_done(program, setting, value, told):
    done = run(program, *arguments_of(program, **{setting: value}))
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and told in lines[0] and setting.replace("_", "-") in lines[0], done.stderr
    assert lines[1:] == [f"Try: {program} --help"], done.stderr


def test_wrong_texts_and_wrong_numbers_are_told_together():
    done = run("baton-decode", *arguments_of("baton-decode", router="foo", name="a b", threads=0))
    assert done.returncode == 2 and [line.split()[1] for line in done.stderr.splitlines()] == ["--name:", "--router:", "--threads", "baton-decode"]


def test_a_prompt_that_is_too_long_is_told():
    command = [BUILD / "bin/baton", "generate", "--server", "127.0.0.1:1", "-"]
    done = subprocess.run(command, input=b"a" * (4 * 2**20 + 1), capture_output=True, timeout=60)
    assert done.stderr.decode() == "baton generate: standard input has over 4194304 bytes, the longest prompt\n"


def test_a_prompt_without_an_end_is_refused():
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([BUILD / "bin/baton", "generate", "--server", "127.0.0.1:1", "-"], stdin=endless, capture_output=True, timeout=60)
    assert done.stderr == b"baton generate: standard input has over 4194304 bytes, the longest prompt\n"


def test_a_deadline_says_whose_it_was():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = run("baton generate", "--server", "127.0.0.1:%d" % silent.getsockname()[1], "--timeout", "50ms", "x")
    assert done.returncode == 1 and "was not complete within 0.05 s (--timeout)" in done.stderr, done.stderr


def test_a_batch_without_a_row_for_prompts_is_refused():
    named = ("--name", "w", "--router", "127.0.0.1:1", "--model", "nowhere", "--max-batch-sequences", "16")
    for rows_of_a_step, code in (("17", 1), ("16", 2), ("1", 2)):
        done = run("baton-decode", *named, "--max-batch-tokens", rows_of_a_step)
        assert done.returncode == code, done.stderr
        assert (f"--max-batch-tokens is {rows_of_a_step}, and a step of 16 answers (--max-batch-sequences) would leave no row for prompts" in done.stderr) == (code == 2)


def test_what_does_not_fit_together_is_told_together():
    """Once each setting is fine by itself."""
    wrong = {"block_tokens": 24, "max_batch_sequences": 16, "max_batch_tokens": 16, "log_level": "loud", "cpus": "0", "threads": 2}
    done = run("baton-decode", *arguments_of("baton-decode", **wrong))
    assert done.returncode == 2 and [line.split()[1] for line in done.stderr.splitlines()] == ["--block-tokens", "--max-batch-tokens", "--log-level", "--cpus", "baton-decode"], done.stderr
    done = run("baton-decode", *arguments_of("baton-decode", **wrong, name="a b"))
    assert done.returncode == 2 and [line.split()[1] for line in done.stderr.splitlines()] == ["--name:", "baton-decode"], done.stderr


@pytest.mark.parametrize("command", ["baton up --model m", "baton-decode --name w --router h:1 --model m", "baton perplexity --model m t", "baton bench engine --model m --no-pin"])
def test_types_that_the_arithmetic_does_not_have_are_a_mistake_of_settings(command):
    program, = (one for one in PROGRAMS if command.startswith(one + " "))
    given = command[len(program):].split()
    done = run(program, *given, "--compute", "f32", "--weights", "bf16", "--kv", "bf16")
    assert done.returncode == 2 and done.stderr.splitlines() == [
        f"{program}: weights bf16: compute f32 holds float weights as f32; take auto, int8 or int4",
        f"{program}: kv bf16: compute f32 holds keys and values as f32; take auto or int8", f"Try: {program} --help"], done.stderr
    done = run(program, *given, "--compute", "f32", "--weights", "int8", "--kv", "int8")
    assert done.returncode == 1, done.stderr


def test_a_core_more_than_there_may_be():
    named = ("--name", "w", "--router", "127.0.0.1:1", "--model", "nowhere")
    done = run("baton-decode", *named, "--cpus", ",".join(["0"] * 255))
    assert done.returncode == 1 and "nowhere" in done.stderr  # 510 bytes are what the setting takes
    done = run("baton-decode", *named, "--cpus", ",".join(["0"] * 257))
    assert done.returncode == 2 and "--cpus" in done.stderr


def test_the_pages_of_settings_and_limits_are_of_these_programs():
    """docs/generate writes them anew."""
    done = subprocess.run([TOP / "docs/generate", "--build", BUILD, "--check"], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
