"""The list of failpoints holds what the sources ask for, and the operations page tells all of it."""
import pathlib
import re

TOP = pathlib.Path(__file__).resolve().parents[2]
LIST = TOP / "common/base/failpoint_names.h"
FOLDERS = ("common", "router", "prefill_worker", "decode_worker", "kernels")


def listed():
    """{name: (can_fail, what)}"""
    text = LIST.read_text(encoding="utf-8").replace("\\\n", " ")
    return {name: (can == "true", what) for name, can, what in re.findall(r'X\("([^"]+)",\s*(true|false),\s*"([^"]+)"\)', text)}


def sources():
    return {path: path.read_text(encoding="utf-8") for folder in FOLDERS for path in sorted((TOP / folder).rglob("*.c"))}


def test_every_name_is_listed_once():
    text = LIST.read_text(encoding="utf-8")
    names = re.findall(r'X\("([^"]+)"', text)
    assert len(names) > 30 and len(names) == len(set(names)) == len(listed())


def test_sources_ask_for_what_is_listed():
    asked = {name for text in sources().values() for name in re.findall(r'FAILPOINT(?:_FAILS)?(?:_OF)?\("([^"]+)"', text)}
    assert not asked - set(listed()), "not in the list"


def test_what_is_listed_stands_in_the_sources_where_it_can_fail_if_it_says_so():
    texts = sources().values()
    for name, (can_fail, _) in listed().items():
        assert any(f'"{name}"' in text for text in texts), f"{name} is nowhere"
        plain = sum(text.count(f'FAILPOINT("{name}")') for text in texts)
        assert not (can_fail and plain), f"{name} is said to fail, but is asked with FAILPOINT"
        asked = sum(text.count(f'FAILPOINT_FAILS("{name}")') for text in texts)
        assert can_fail or not asked, f"{name} is asked with FAILPOINT_FAILS, but is not said to fail"


def test_the_operations_page_tells_all():
    page = (TOP / "docs/operations/failpoints.md").read_text(encoding="utf-8")
    missing = [name for name, (_, what) in listed().items() if f"| `{name}` | {what} |" not in page]
    assert not missing, missing
