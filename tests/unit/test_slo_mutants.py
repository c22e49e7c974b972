"""test_slo and test_slo_books catch each mutant of slo.c and slo_books.c: the real code with one rule left out or reversed."""
import concurrent.futures
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[2]
SLO, BOOKS = TOP / "common/base/domain/slo.c", TOP / "router/ops/slo_books.c"
FLAGS = ["-std=gnu17", "-O1", "-D_GNU_SOURCE", "-w", '-DBATON_VERSION="x"', '-DBATON_COMMIT="x"', f"-I{TOP}"]
OTHERS = [f"common/base/{name}.c" for name in ("str", "status", "utf8", "assert", "log", "clock", "file_read", "domain/api_key", "domain/placement_policy", "domain/priority", "observe/metrics",
                                               "json/json")] + ["router/reasons.c"]
LONG = bool(os.environ.get("BATON_LONG"))

# name: file, what it leaves out, old text, new text; the old text occurs exactly once.
MUTANTS = {
    "late_is_fine": (SLO, "an objective is never missed", "took_us[kind] > most_us[kind]) << kind", "false) << kind"),
    "on_time_is_late": (SLO, "an answer right at its objective misses", "took_us[kind] > most_us[kind]", "took_us[kind] >= most_us[kind]"),
    "none_is_0": (SLO, "without an objective each answer misses", "(most_us[kind] && took_us[kind]", "(took_us[kind]"),
    "failed_attains": (SLO, "a failed request attains", "if (!outcome->ok)", "if (false)"),
    "tpot_of_all": (SLO, "TPOT counts the first token as a gap", "? outcome->answer_tokens - 1 : 0", "? outcome->answer_tokens : 0"),
    "tpot_rounds_down": (SLO, "TPOT is rounded down", "(after_first_us + gaps - 1) / gaps", "after_first_us / gaps"),
    "tpot_with_ttft": (SLO, "TPOT counts the time of the first token", "? outcome->e2e_us - outcome->ttft_us : 0", "? outcome->e2e_us : 0"),
    "endless": (SLO, "a request may loosen without bound", "if (wanted > SLO_MAX_US)", "if (false)"),
    "tightens": (SLO, "a request may tighten its class", "if (wanted < *us)", "if (false)"),
    "adds": (SLO, "a request may add an objective", "if (!*us)\n", "if (false)\n"),
    "nothing": (SLO, "no rule less: the code itself passes", "struct slo_objective loosened = *objective;", "struct slo_objective loosened;\n    loosened = *objective;"),
    "33": (SLO, "33 classes are fine", "if (parse.rows > SLO_MAX_CLASSES)", "if (false)"),
    "twice": (SLO, "two classes may have one name", "if (slo_find(&parse->classes, text_from(parse->row.name)) != SLO_NONE)", "if (false)"),
    "first_mistake": (SLO, "an objective of 0 is none", "else if (*us == 0 || *us > SLO_MAX_US)", "else if (*us > SLO_MAX_US)"),
    "no_default": (SLO, "the only class isn't the default", "classes->count == 1 ? 0 : SLO_NONE", "SLO_NONE"),
    "unknown_default": (SLO, "an unknown default is fine", "else if (classes->standard == SLO_NONE)", "else if (false)"),
    "offline_normal": (SLO, "an offline class has priority normal", "        row->priority = PRIORITY_OFFLINE;\n", ""),
    "prefix_name": (SLO, "a prefix of a name is the name", "strlen(classes->items[i].name) == name.length && name.length", "name.length"),
    "rejected_uncounted": (BOOKS, "rejected requests don't count", "outcome.ok = !is_ours(ending->reason);", "outcome.ok = true;"),
    "rejected_failed": (BOOKS, "a rejected request counts as failed", "if (!outcome.ok && reason_code(ending->reason) == RPC_RESOURCE_EXHAUSTED)", "if (false)"),
    "row_goes_on": (SLO, "a further flag goes on with the class before it", "if (!*at || *at == SLO_ROWS_JOINT)", "if (!*at)"),
    "clients_fault": (BOOKS, "a client's fault is a miss", ".counts = !ending->reason || !outcome.ok || left_late,", ".counts = true,"),
    "quota_is_ours": (BOOKS, "a used-up quota is a miss", "return reason != REASON_RATE_LIMITED && reason != REASON_QUOTA &&", "return reason != REASON_QUOTA &&"),
    "left_in_time": (BOOKS, "a client that leaves in time counts", "ending->reason == REASON_CANCELLED && missed;", "ending->reason == REASON_CANCELLED;"),
    "left_late": (BOOKS, "a client that leaves late doesn't count", "ending->reason == REASON_CANCELLED && missed;", "false;"),
    "never_forgets": (BOOKS, "a window keeps what is older", "        window->slots[i % SLOTS] = (struct slo_count){0};\n", "        ;\n"),
    "long_silence": (BOOKS, "a window keeps what is older than a round", "i <= slot && i <= window->newest + SLOTS;", "i <= slot && i < window->newest + SLOTS;"),
    "time_goes_back": (BOOKS, "an earlier clock moves the window back", "    if (slot > window->newest)\n", ""),
    "no_percentile": (BOOKS, "the error budget is all misses", "* (1 - class->percentile / 100)", ""),
    "lengths_for_ever": (BOOKS, "tenths by length forget nothing", "    if (++of->ended <= LENGTHS_REQUESTS)\n", "    if (++of->ended > 0)\n"),
    "unpredicted": (BOOKS, "a prediction that isn't known counts", "    if (!predicted_us)\n        return;\n", ""),
    "errors_for_ever": (BOOKS, "old errors of predictions stay", "if (sums->count > ACCURACY_ANSWERS)", "if (false)"),
    "failed_measured": (BOOKS, "a failed request is a measurement", "    if (!ending->reason) {\n", "    if (true) {\n"),
}
EQUAL = {"nothing"}
DEFAULT = ("tpot_of_all", "left_late")  # without --long


def compiled(source, target):
    subprocess.run(["cc", *FLAGS, "-c", str(source), "-o", str(target)], check=True, cwd=TOP)
    return target


def survives(folder, name, objects):
    file, _, old, new = MUTANTS[name]
    text = file.read_text()
    assert text.count(old) == 1, f"{name}: {file.name} has this {text.count(old)} times, not once:\n{old}"
    source, program = folder / f"{name}.c", folder / name
    source.write_text(text.replace(old, new))
    mutant = compiled(source, folder / f"{name}.o")
    test = objects["test_slo" if file == SLO else "test_slo_books"]
    other = objects["slo" if file == BOOKS else "slo_books"]
    subprocess.run(["cc", str(mutant), str(test), str(other), *map(str, objects["others"]), "-lcmocka", "-ljson-c", "-lm", "-lpthread", "-o", str(program)], check=True)
    return subprocess.run([str(program)], capture_output=True, cwd=TOP, timeout=300).returncode == 0


def test_every_mutant_is_caught(tmp_path):
    names = sorted(MUTANTS) if LONG else DEFAULT
    sources = [SLO, BOOKS, TOP / "tests/unit/test_slo.c", TOP / "tests/unit/test_slo_books.c", *(TOP / name for name in OTHERS)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip([source.stem for source in sources], pool.map(lambda source: compiled(source, tmp_path / f"{source.stem}_.o"), sources)))
        objects = {name: made.pop(name) for name in ("slo", "slo_books", "test_slo", "test_slo_books")}
        objects["others"] = list(made.values())
        left = list(pool.map(lambda name: survives(tmp_path, name, objects), names))
    wrong = [f"{name}: {MUTANTS[name][1]}" for name, lives in zip(names, left) if lives != (name in EQUAL)]
    assert not wrong, "\n".join(wrong)
