"""The shape of the tree, held against the table in docs/architecture.md: which folder may include which, which folders are
pure, where each outside library is known, and a few rules of the house style that a compiler doesn't check."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]

BASE = {"common/base"}
DOMAIN = BASE | {"common/base/domain"}
JSON = {"common/base/json"}
PLUMBING = DOMAIN | JSON | {"common/base/config", "common/base/observe", "common/net/crypto", "common/net/http"}
RPC = PLUMBING | {"common/net/rpc", "proto"}
ENGINE = {"common/engine", "common/engine/sched", "common/engine/model", "common/engine/mock", "kernels", "common/language/model_config"}
WORKER = RPC | ENGINE | {"common/net/rpc/grpc", "common/net/membership", "common/kv/transport", "common/kv/handoff", "common/worker"}
LANGUAGE = {"common/language/text", "common/language/chat", "common/language/constrain", "common/language/model_config"}
ROUTER = RPC | {"router", "router/planner"}

# Folder -> folders it may include, besides itself. Arrows point down only. A folder that isn't named here may not exist.
MAY_INCLUDE = {
    "common/base": set(),
    "common/base/domain": BASE,
    "common/base/json": BASE,
    "common/base/config": BASE,
    "common/base/observe": BASE,
    "common/net/crypto": BASE,
    "common/net/http": BASE | {"common/net/crypto"},
    "common/net/rpc": BASE | {"common/net/crypto"},
    "common/net/rpc/grpc": BASE | {"common/net/rpc", "common/net/crypto", "proto"},
    "common/net/membership": DOMAIN | {"common/net/rpc", "proto"},
    "common/language/text": BASE | JSON,
    "common/language/template": BASE | {"common/language/text"},
    "common/language/chat": BASE | JSON | {"common/language/template", "common/language/text"},
    "common/language/constrain": DOMAIN | JSON,
    "common/language/model_config": DOMAIN | JSON,
    "common/kv/transport": DOMAIN,
    "common/kv/handoff": DOMAIN,
    "common/engine/sched": DOMAIN,
    "common/engine/model": DOMAIN | JSON | {"kernels", "common/language/model_config"},
    "common/engine/mock": DOMAIN | JSON | {"common/engine", "common/language/model_config", "common/language/text"},
    "common/engine": DOMAIN | {"common/engine/model", "common/engine/mock", "kernels", "common/language/model_config"},
    "common/worker": WORKER | {"common/language/text", "common/language/constrain"},
    "common/cli": WORKER | {"common/language/text", "common/language/chat"},
    "proto": BASE,
    "kernels": DOMAIN | {"kernels/cpu", "kernels/deferred", "kernels/reference"},  # kernels.c: the table of backends
    "kernels/reference": DOMAIN | {"kernels", "kernels/cpu", "kernels/reference/inner"},
    "kernels/reference/inner": BASE | {"kernels/cpu"},
    "kernels/cpu": DOMAIN | {"kernels", "kernels/cpu/inner"},
    "kernels/cuda": DOMAIN | {"kernels", "kernels/cpu"},  # the pool for host work at set-up
    "kernels/cuda/device": DOMAIN | {"kernels", "kernels/cuda"},
    "kernels/deferred": DOMAIN | {"kernels"},
    "kernels/cpu/inner": BASE | {"kernels/cpu"},
    "prefill_worker": WORKER,
    "decode_worker": WORKER,
    # The rooms of the router, bottom to top. All may include router/ itself: the request's fields, its reasons, the served models.
    "router/planner": DOMAIN | {"common/kv/handoff", "common/engine/sched", "proto"},
    "router/ops": ROUTER | LANGUAGE | {"common/net/membership"},
    "router/dispatch": ROUTER | LANGUAGE | {"common/net/membership", "common/kv/handoff", "router/ops"},
    "router/doors": ROUTER | LANGUAGE | {"router/ops", "router/dispatch"},
    "router/doors/grpc": ROUTER | LANGUAGE | {"common/net/membership", "router/ops", "router/dispatch", "router/doors"},
    "router/doors/openai": ROUTER | LANGUAGE | {"router/ops", "router/dispatch", "router/doors"},
    "router": ROUTER | LANGUAGE | {"common/net/membership", "common/net/rpc/grpc", "router/ops", "router/dispatch", "router/doors", "router/doors/grpc",
                                   "router/doors/openai"},
}

# Folders (and single files) that decide and never act: no clock, no I/O, no locks, no threads.
PURE = ["common/base/domain", "common/kv/handoff", "common/engine/sched", "router/planner", "common/language/template", "common/language/constrain",
        *(f"common/net/http/http_{noun}.{kind}" for kind in "ch" for noun in ("request", "route", "url")),
        *(f"{module}.{kind}" for kind in "ch" for module in (
            "router/planner/request_life", "router/ops/request_trace", "router/ops/access_line", "router/ops/quota", "router/dispatch/constraint_queue", "common/cli/chat", "common/cli/load_answer", "common/cli/load_plan", "common/cli/load_report", "common/kv/transport/kv_frame",
            "common/language/text/unicode", "common/base/peer_places", "common/net/rpc/frame_gate", "proto/proto_text"))]
# A parsed document is a value like any other.
PURE_SEES = DOMAIN | {"common/kv/handoff", "common/engine/sched", "router/planner", "common/language/template", "common/language/constrain", "common/base/json"}
IMPURE_BASE = {"common/base/clock.h", "common/base/log.h", "common/base/ring.h", "common/base/failpoint.h", "common/base/file_watch.h",
               "common/base/reload.h", "common/base/file_read.h"}
PURE_SYSTEM = {"math.h", "stdbool.h", "stddef.h", "stdint.h", "stdlib.h", "string.h", "stdio.h", "inttypes.h", "limits.h",
               "float.h", "stdarg.h", "errno.h", "xxhash.h", "xxh_x86dispatch.h", "utf8proc.h", "arpa/inet.h", "netinet/in.h", "sys/queue.h"}
IMPURE_CALLS = re.compile(r"\b(f?printf|fopen|puts|getenv|rand|time|clock_gettime|rng_entropy|open|read|write)\s*\(")

# Outside library: what its headers look like -> the only files that may name them (tests apart).
LIBRARIES = {
    r"grpc/": r"common/net/rpc/grpc/",
    r"(protobuf-c/|.*\.pb-c\.h)": r"(proto|common/(net/rpc|net/membership|worker|cli)|prefill_worker|decode_worker|router)/",
    r"uc[pstm]/": r"common/kv/transport/ucx[a-z_]*\.[ch]",
    r"pcre2\.h": r"common/language/text/\w+\.c",
    r"utf8proc\.h": r"common/language/text/\w+\.c",
    r"(json-c/.*|json\.h|json_\w+\.h)": r"common/base/json/json\.c",
    r"cyaml/": r"common/base/config/config_file\.c",
    r"event2/": r"common/net/http/http_\w+\.[ch]",
    r"openssl/": r"common/net/crypto/\w+\.c",
    r"curl/": r"common/net/http/http_(transfer\.h|client\.c|streams\.c)",
    r"histedit\.h": r"common/cli/line_(editor|recall)\.c",
    r"isa-l": r"common/kv/transport/kv_checksum\.c",
    r"xxh(ash|_x86dispatch)\.h": r"common/base/domain/(prefix|content)_hash\.c",
    r"cuda|nccl": r"kernels/cuda/",
    r"cmocka\.h": r"tests/",
}
ONE_FILE = ["pcre2.h", "utf8proc.h"]

# Sources that other files include, each once: the same loops compiled for several instruction sets.
INCLUDED_SOURCES = {f"kernels/cpu/inner/{name}.h" for name in ("inner_body", "product_fma", "quantized_madd", "quantizer_body")}


def tracked(*suffixes):
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=TOP, text=True,
                           capture_output=True, check=True).stdout.splitlines()
    return [n for n in names if n.endswith(suffixes) and (TOP / n).is_file()]


SOURCES = tracked(".c", ".h", ".cu", ".cuh")
CODE = [n for n in SOURCES if not n.startswith("tests/")]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)


def text_of(name):
    return (TOP / name).read_text(encoding="utf-8")


def includes(name):
    return INCLUDE.findall(text_of(name))


def folder_of(name):
    return str(pathlib.PurePosixPath(name).parent)


def without_comments(text):
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)


def test_arrows_point_down():
    wrong = []
    for name in CODE:
        folder = folder_of(name)
        assert folder in MAY_INCLUDE, f"{name}: the folder {folder} is not in the table of arrows"
        for quote, path in includes(name):
            if quote == '"' and folder_of(path) not in MAY_INCLUDE[folder] | {folder}:
                wrong.append(f"{name} includes {path}")
    assert not wrong, "\n".join(wrong)


def test_no_two_folders_include_each_other():
    for folder, below in MAY_INCLUDE.items():
        for other in below - {folder}:
            inside = other.startswith(folder + "/") or folder.startswith(other + "/")  # a folder and a part of it
            assert inside or folder not in MAY_INCLUDE[other], f"{folder} <-> {other}"


def test_own_includes_are_rooted_and_exist():
    wrong = []
    for name in SOURCES:
        for quote, path in includes(name):
            generated = path.endswith(".pb-c.h")
            beside = name.startswith("tests/") and (TOP / folder_of(name) / path).is_file()
            if quote == '"' and not generated and not beside and not (TOP / path).is_file():
                wrong.append(f"{name} includes {path}")
    assert not wrong, "\n".join(wrong)


def test_own_header_comes_first():
    wrong = []
    for name in CODE:
        own, listed = name[:-2] + ".h", [path for _, path in includes(name)]
        if name.endswith(".c") and own in listed and listed[0] != own:
            wrong.append(name)
    assert not wrong, wrong


def test_pure_code_has_no_clock_io_or_locks():
    wrong = []
    for name in CODE:
        if not any(name == p or name.startswith(p + "/") for p in PURE):
            continue
        for quote, path in includes(name):
            allowed = path in PURE_SYSTEM if quote == "<" else (
                path not in IMPURE_BASE and (folder_of(path) in PURE_SEES or path in PURE or path.endswith(".pb-c.h")))
            if not allowed:
                wrong.append(f"{name} includes {path}")
        for call in IMPURE_CALLS.finditer(without_comments(text_of(name))):
            wrong.append(f"{name} calls {call.group(1)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("header,places", LIBRARIES.items())
def test_an_outside_library_is_known_in_one_place(header, places):
    wrong = []
    for name in SOURCES:
        for quote, path in includes(name):
            own = quote == '"' and (TOP / path).is_file()
            if not own and re.match(header, path) and not re.match(places, name) and not name.startswith("tests/"):
                wrong.append(f"{name} includes {path}")
    assert not wrong, "\n".join(wrong)


def test_cuda_is_known_in_one_folder():
    """Calls of NVIDIA's libraries, their types and names: others see kernels/kernels.h, and the name of a device."""
    known = re.compile(r"\b(cu[A-Z]\w*|cuda[A-Z]\w*|CU[a-z]\w*|CU_[A-Z]\w*|CUDA_ERROR_\w*|nv(rtc|ml)[A-Z]\w*)\b")
    wrong = [f"{name}: {found.group(0)}" for name in CODE if not name.startswith("kernels/cuda/")
             for found in known.finditer(without_comments(text_of(name)))]
    wrong += [name for name in CODE if not name.startswith("kernels/cuda/") and re.search(r'"[^"\n]*libcuda', text_of(name))]
    assert not wrong, wrong


@pytest.mark.parametrize("header", ONE_FILE)
def test_an_outside_library_of_one_file(header):
    users = [name for name in CODE if ("<", header) in includes(name)]
    assert len(users) <= 1, users


def test_headers_have_guards_named_after_their_path():
    wrong = []
    for name in CODE:
        if name.endswith(".h") and name not in INCLUDED_SOURCES:
            parts = re.sub(r"^common/", "", name)
            guard = "BATON_" + re.sub(r"\W", "_", parts).upper()
            if f"#ifndef {guard}\n#define {guard}\n" not in text_of(name):
                wrong.append(f"{name}: {guard}")
    assert not wrong, "\n".join(wrong)


def test_no_file_and_no_function_is_too_long():
    wrong = []
    for name in SOURCES:
        lines = text_of(name).split("\n")
        if len(lines) > 800:
            wrong.append(f"{name}: {len(lines)} lines")
        start = None
        for number, line in enumerate(lines, 1):
            if line == "{":
                start = number
            elif line == "}" and start is not None:
                if number - start - 1 > 70:
                    wrong.append(f"{name}:{start}: a function of {number - start - 1} lines")
                start = None
    assert not wrong, "\n".join(wrong)


def test_no_public_function_is_declared_twice():
    seen, wrong = {}, []
    declaration = re.compile(r"^(?!static|typedef|return|else)[a-z_][\w \*]*?\b(\w+)\([^;{}]*\)[^;{}=]*;", re.M)
    for name in SOURCES:
        if name.endswith(".h"):
            for function in declaration.findall(re.sub(r"^#.*(\\\n.*)*", "", without_comments(text_of(name)), flags=re.M)):
                if function in seen and function != "__attribute__":
                    wrong.append(f"{function}: {seen[function]} and {name}")
                seen[function] = name
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_undone():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK|placeholder|not implemented|stub)\b", re.I)
    wrong = [f"{name}:{text_of(name)[:m.start()].count(chr(10)) + 1}: {m.group(0)}"
             for name in SOURCES for m in marks.finditer(text_of(name))]
    assert not wrong, "\n".join(wrong)


def test_tests_do_not_sleep():
    wrong = [name for name in SOURCES if name.startswith("tests/")
             and re.search(r"\b(sleep|usleep|nanosleep)\s*\(", without_comments(text_of(name)))]
    assert not wrong, wrong


def test_every_folder_says_what_it_is():
    folders = {folder_of(name) for name in SOURCES} | {"common", "deploy/local", "docs", "tests", "tests/e2e"}
    missing = [f for f in sorted(folders) if not (TOP / f / "README.md").is_file()]
    assert not missing, missing


def test_clang_format():
    """All files with --long, otherwise what differs from 200 commits ago, where so many are known: the rest was looked at then."""
    program = shutil.which("clang-format-14")
    assert program, "clang-format-14 is missing: deploy/local/install-packages tests"
    git = lambda *words: subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True)  # noqa: E731
    changed = git("diff", "--name-only", "HEAD~200")
    recent = {*changed.stdout.splitlines(), *git("ls-files", "--others", "--exclude-standard").stdout.splitlines()}
    every = os.environ.get("BATON_LONG") or changed.returncode or ".clang-format" in recent
    files = [n for n in SOURCES if n.endswith((".c", ".h")) and (every or n in recent)]
    assert files
    done = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
