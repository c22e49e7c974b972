"""The flags of a release harden a program, each flag for a thing of its own; the release preset gives all of them to every file."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["BATON_BUILD"])
sys.path.insert(0, str(TOP / "tests"))
import hardened  # noqa: E402

COMPILER, COMPILE, LINK = [shlex.split(line) for line in (BUILD / "tests/hardening.txt").read_text().splitlines()]
PROGRAMS = ["baton", "baton-router", "baton-prefill", "baton-decode"]
# Its buffer is on the stack, and the compiler knows the buffer's size but not the text's.
SOURCE = """#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    char text[64];
    strcpy(text, argv[argc - 1]);
    return puts(text);
}
"""
# A flag of the list -> what takes its place, and the one thing that the program then lacks.
WITHOUT = {
    "-fstack-protector-strong": (["-fno-stack-protector"], "__stack_chk_fail"),
    "-D_FORTIFY_SOURCE=2": ([], "_chk)"),
    "-fPIE": (["-fno-pie"], "position independent"),
    "-Wl,-z,relro": (["-Wl,-z,norelro"], "GNU_RELRO"),
    "-Wl,-z,now": (["-Wl,-z,lazy"], "BIND_NOW"),
    "-fcf-protection": (["-fcf-protection=none"], "endbr64"),
}


def lacks(folder, flags, link):
    source, program = folder / "sample.c", folder / "sample"
    source.write_text(SOURCE)
    subprocess.run([*COMPILER, "-O2", *flags, str(source), "-o", str(program), *link], check=True)
    return hardened.lacks(program)


def test_the_flags_harden_a_program(tmp_path):
    assert lacks(tmp_path, COMPILE, LINK) == []


@pytest.mark.parametrize("flag", [flag for flag in WITHOUT if flag in COMPILE + LINK])
def test_each_flag_is_needed(tmp_path, flag):
    instead, lack = WITHOUT[flag]
    flags, link = [[f for f in given if f != flag] for given in (COMPILE, LINK)]
    if flag == "-fPIE":  # the linker refuses to make a program position independent whose code isn't
        link = ["-no-pie" if f == "-pie" else f for f in link]
    (flags if flag in COMPILE else link).extend(instead)
    found = lacks(tmp_path, flags, link)
    assert len(found) == 1 and lack in found[0], found


def test_an_executable_stack_is_found(tmp_path):
    found = lacks(tmp_path, COMPILE, [*LINK, "-Wl,-z,execstack"])
    assert len(found) == 1 and "GNU_STACK" in found[0], found


def is_release():
    return "CMAKE_BUILD_TYPE:STRING=Release\n" in (BUILD / "CMakeCache.txt").read_text()


def test_the_release_preset_gives_all_flags_to_every_file(tmp_path):
    folder = BUILD
    if not is_release():
        folder = tmp_path / "release"
        subprocess.run(["cmake", "--preset", "release", "-B", str(folder), "-DBUILD_TESTING=OFF"], cwd=TOP, check=True, capture_output=True)
    commands = json.loads((folder / "compile_commands.json").read_text())
    assert len(commands) > 200
    for command in commands:
        given = shlex.split(command["command"])
        assert [f for f in COMPILE if f not in given] == [], command["file"]
        undone = [f for f in given if re.match(r"-fno-(stack-protector|pie|PIE)$|-fcf-protection=none$|-U_FORTIFY_SOURCE$", f) and f not in COMPILE]
        loops = re.search(r"kernels/(cpu|reference)/inner/|tests/kernels/naive\.c", command["file"])  # measured: slower with guards
        assert undone == (["-fno-stack-protector"] if loops else []), command["file"]
    ninja = (folder / "build.ninja").read_text()
    for name in PROGRAMS:
        rule = re.search(rf"^build bin/{name}: .*?(?=^build )", ninja, re.M | re.S).group(0)
        given = shlex.split(re.search(r"^  LINK_FLAGS = (.*)$", rule, re.M).group(1))
        assert [f for f in LINK if f not in given] == [], name


def test_the_programs_of_a_release_are_hardened():
    """Those of this build, if it is a release; .ci/run looks at the quick start's."""
    if is_release():
        assert {name: hardened.lacks(BUILD / "bin" / name) for name in PROGRAMS} == {name: [] for name in PROGRAMS}
