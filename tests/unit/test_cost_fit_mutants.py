"""test_cost_fit catches each mutant of cost_fit.c: the real code with one rule left out or reversed."""
import concurrent.futures
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]
FIT = TOP / "common/base/domain/cost_fit.c"
FLAGS = ["-std=gnu17", "-O1", "-D_GNU_SOURCE", "-w", f"-I{TOP}"]
LONG = bool(os.environ.get("BATON_LONG"))

# name: what it leaves out, (old text, new text)...; the old text occurs exactly once.
MUTANTS = {
    "negative": ("parameters may be negative", ("left > 0 ? left / own : 0", "left / own")),
    "outliers_count": ("a step far beyond the usual error counts in full", ("return beyond ? side * bound : error;", "return error;")),
    "no_change": ("several steps beyond the bound are no change", ("#define CHANGE            3 ", "#define CHANGE            1000000000 ")),
    "step_kept": ("the step's own cost is never forgotten, nor followed", ("changes ? FORGETS_AT_CHANGE : FORGETS_STEP", "0")),
    "all_forgotten": ("slopes are forgotten in all directions",
                      ("    forget(fit, rows, FORGETS_SLOPES);\n",
                       "    for (int i = 0; i < N; i++) {\n        fit->evidence[i] *= 0.99;\n        for (int j = 0; j < N; j++)\n"
                       "            fit->information[i][j] *= 0.99;\n    }\n")),
    "no_ratios": ("predictions are the fitted mean", ("double own = ratio *", "double own = (ratio > 0) *")),
    "falls": ("a larger batch may be predicted to take less", ("return own > most ? own : most;", "return own;")),
    "decodes_left_out": ("prompt rows may make a step shorter", ("return all > decodes ? all : decodes;", "return all > 0 ? all : decodes;")),
    "no_prior": ("a prior says nothing", ("prior && steps > NO_PRIOR ? steps : NO_PRIOR", "NO_PRIOR")),
    "prior_for_ever": ("a prior is never left behind", ("prior && steps > NO_PRIOR ? steps : NO_PRIOR", "prior ? steps * 1000 : NO_PRIOR")),
    "old_ratios": ("ratios are never forgotten, and overflow", ("ratios->total >= SAMPLES * SAMPLE", "false")),
    "absolute": ("long steps weigh more than short ones", ("target = 1 + error, scale = predicted;", "target = predicted * (1 + error), scale = 1;")),
    "first_scale": ("the first step doesn't give the scale", ("fit->unit[i] *= ratio;", "fit->unit[i] *= 1;")),
}
DEFAULT = ("all_forgotten",)  # without --long


def compiled(source, target):
    subprocess.run(["cc", *FLAGS, "-c", str(source), "-o", str(target)], check=True, cwd=TOP)
    return target


def survives(folder, name, edits, objects):
    text = FIT.read_text()
    for old, new in edits:
        assert text.count(old) == 1, f"{name}: cost_fit.c has this {text.count(old)} times, not once:\n{old}"
        text = text.replace(old, new)
    source, program = folder / f"{name}.c", folder / name
    source.write_text(text)
    mutant = compiled(source, folder / f"{name}.o")
    subprocess.run(["cc", str(mutant), *map(str, objects), "-lcmocka", "-lm", "-o", str(program)], check=True)
    return subprocess.run([str(program)], capture_output=True, cwd=TOP, timeout=300).returncode == 0


def test_every_mutant_is_caught(tmp_path):
    objects = [compiled(TOP / name, tmp_path / f"{pathlib.Path(name).stem}_.o") for name in ("tests/unit/test_cost_fit.c", "common/base/rng.c", "common/base/assert.c")]
    assert not LONG or survives(tmp_path, "unchanged", (), objects), "the code itself passes"
    names = sorted(MUTANTS) if LONG else DEFAULT
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        left = list(pool.map(lambda name: survives(tmp_path, name, MUTANTS[name][1:], objects), names))
    survivors = [f"{name}: {MUTANTS[name][0]}" for name, lives in zip(names, left) if lives]
    assert not survivors, "\n".join(survivors)
