"""docs/limits.md against the code: every name and value is true, every test is there, and no constant of the rooms that serve is missing."""
import pathlib
import re

import pytest
from test_settings import PROGRAMS, rows

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs/limits.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("|--", "| what"))]
SERVING = ("router", "prefill_worker", "decode_worker", "proto", "common/worker", "common/net/rpc", "common/net/http", "common/net/membership")


def sources(*folders):
    return [path for folder in folders for path in sorted((TOP / folder).rglob("*.[ch]"))]


def constants():
    """{name: {values}}, evaluated where they are numbers."""
    found = {}
    for path in sources("router", "prefill_worker", "decode_worker", "proto", "common", "kernels"):
        text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
        for name, value in re.findall(r"^#define +(\w+) +(.+?) *(?:/\*.*)?$", text, re.M):
            found.setdefault(name, set()).add(value)
    known = {name: next(iter(values)) for name, values in found.items() if len(values) == 1}

    def evaluate(text, depth=0):
        text = re.sub(r"\((?:size_t|uint64_t|uint32_t)\)|(?<=\d)[uUlL]+", "", text)
        text = re.sub(r"[A-Z]\w+", lambda m: str(evaluate(known.get(m[0], "x"), depth + 1)) if depth < 4 else "x", text)
        return eval(text, {"__builtins__": {}}) if re.fullmatch(r"[\d\s()+*<x-]+", text) and "x" not in text else None

    return {name: {evaluate(value) for value in values} for name, values in found.items()}


CONSTANTS = constants()


def shown(value):
    """Both ways in which a value may stand on the page."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value and value % size == 0:
            return {str(value), f"{value // size} {unit}"}
    return {str(value)}


def test_the_page_is_a_table():
    assert len(ROWS) > 70 and all(len(row) == 5 and all(row) for row in ROWS), [row for row in ROWS if len(row) != 5]


def test_settings_and_constants_have_the_values_that_the_page_says():
    settings = {name: line for program in PROGRAMS for name, line in rows(program).items()
                if program != "baton up" or "(default" in line}  # which has no defaults of its own for what it passes on
    wrong = []
    for what, names, values, _, _ in ROWS:
        values = [value.strip() for value in values.split(",")]
        for name in re.findall(r"`([\w-]+)`", names):
            if name in settings:
                default = re.search(r"\(default ([^)]*)\)", settings[name])
                good = default and default[1] in values
            elif name in CONSTANTS:
                good = all(value is None or shown(value) & set(values) for value in CONSTANTS[name])
            else:
                good = any(re.search(rf"\b{name}\(", path.read_text(encoding="utf-8")) for path in sources("router", "common", "proto"))
            if not good:
                wrong.append(f"{what}: {name} is {CONSTANTS.get(name) or settings.get(name)}, the page says {values}")
    assert not wrong, "\n".join(wrong)


def test_the_tests_that_the_page_names_are_there():
    text = "".join(path.read_text(encoding="utf-8") for path in (TOP / "tests").rglob("test_*.[cp]*") if path.suffix in (".c", ".py"))
    named = {name for row in ROWS for name in re.findall(r"`(test_\w+)`", row[4])}
    missing = sorted(name for name in named if not re.search(rf"(?:static void|def) {name}\(", text))
    assert not missing, missing
    assert all("`test_" in row[4] for row in ROWS)


@pytest.mark.parametrize("folder", SERVING)
def test_no_limit_of_the_rooms_that_serve_is_missing(folder):
    """A new limit needs a row in docs/limits.md, with a test of limit + 1."""
    names = {name for path in sources(folder) for name in re.findall(r"^#define +(\w*(?:MAX|LIMIT|CAPACITY|AT_ONCE)\w*) +\S", path.read_text(encoding="utf-8"), re.M)}
    missing = sorted(name for name in names if f"`{name}`" not in PAGE)
    assert not missing, missing
