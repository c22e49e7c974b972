"""check_sass.py sees what it looks for in machine code. A script stands for cuobjdump: it prints the file that it is given."""
import os
import pathlib
import subprocess
import sys

import pytest

CHECK = pathlib.Path(__file__).resolve().parent / "check_sass.py"
NAME = "linear_bf16_128x256_sm90"
# A loop from 0040 to 0080 with the product of a layer; a barrier of the block ahead of it.
LAYER = ["0030 BAR.SYNC.DEFER_BLOCKING 0x0", "0040 HGMMA.64x256x16.F32.BF16 R24, gdesc[UR20], R24", "0050 SYNCS.ARRIVE.TRANS64 RZ, [UR4], RZ", "0080 @P0 BRA 0x40"]


def sass(code, architecture="sm_90a", name=NAME):
    words = (line.split(" ", 1) for line in code)
    return f"arch = {architecture}\n\t\tFunction : {name}\n" + "".join(f"        /*{place}*/                   {rest} ;   /* 0x03e0 */\n" for place, rest in words)


def check(folder, text, has_cuobjdump=True, has_kernels=True):
    folders = [folder] if has_kernels else []  # as CMake calls it
    tools = folder / "bin"
    tools.mkdir()
    if has_cuobjdump:
        (tools / "cuobjdump").write_text('#!/bin/sh\n[ "$1" = -sass ] && cat "$2"\n')
        (tools / "cuobjdump").chmod(0o755)
    if text:
        (folder / "linear.fatbin").write_text(text)
    # It finds no other cuobjdump than ours: the first folder of the path is the only one that it looks into.
    program = ("import os, runpy, shutil, sys; which = shutil.which; shutil.which = lambda name, path: which(name, path=path.split(os.pathsep)[0]); "
               "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")
    path = f"{tools}:{os.environ['PATH']}"
    return subprocess.run([sys.executable, "-c", program, CHECK, *folders], text=True, capture_output=True, env={**os.environ, "PATH": path})


@pytest.mark.parametrize("code, found", [
    (LAYER, ""),
    ([*LAYER[:2], "0060 STL [R1], R2", LAYER[-1]], "1 accesses of local memory"),
    ([*LAYER[:2], "0060 BAR.SYNC.DEFER_BLOCKING 0x1, 0x80", LAYER[-1]], "its main loop has ['BAR.SYNC']"),
    ([*LAYER[:2], "0060 MEMBAR.ALL.GPU", LAYER[-1]], "its main loop has ['MEMBAR.ALL.GPU']"),
    ([*LAYER[:2], "0060 UCGABAR_WAIT", LAYER[-1]], "its main loop has ['UCGABAR_WAIT']"),
    (LAYER[:3], "its main loop has no end"),
    ([LAYER[0], "0040 IGMMA.64x256x32.S8.S8 R24, gdesc[UR20], R24", LAYER[-1]], "has {'IGMMA': 1}, not HGMMA"),
])
def test_what_is_wrong_with_a_layer(tmp_path, code, found):
    done = check(tmp_path, sass(code))
    assert (done.returncode, done.stderr) == (1 if found else 0, ""), done.stdout + done.stderr
    assert not found or done.stdout.splitlines()[-1] == f"sm_90a {NAME}: {found}"


def test_other_architectures_have_empty_layers(tmp_path):
    done = check(tmp_path, sass(LAYER) + sass(LAYER, "sm_80"))
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == f"sm_80 {NAME}: isn't empty"


def test_only_code_of_a_default_build_may_not_spill(tmp_path):
    code, name = ["0040 HMMA.16816.F32.BF16 R24, R20, R2, R24", "0060 STL [R1], R2"], "attention_bf16_128"
    done = check(tmp_path, sass(LAYER) + sass(code, "sm_80", name) + sass(code, "sm_100", name))
    assert done.returncode == 1 and [line for line in done.stdout.splitlines() if "local" in line] == [f"sm_80 {name}: 1 accesses of local memory"]


def test_without_kernels_it_is_not_run(tmp_path):
    done = check(tmp_path, "", has_kernels=False)
    assert (done.returncode, done.stdout) == (77, "not run: built without the CUDA kernels\n")


def test_a_build_that_lacks_its_kernels_fails(tmp_path):
    done = check(tmp_path, "")
    assert done.returncode == 1 and done.stderr == f"{tmp_path} has no fat binaries: the build isn't complete\n"


def test_without_cuobjdump_it_fails(tmp_path):
    done = check(tmp_path, sass(LAYER), has_cuobjdump=False)
    assert done.returncode == 1 and "pip install -r tests/requirements.txt" in done.stderr
