"""The pages hold what they promise: every error code, every metric, every file of the walk, every folder."""
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]


def page(name):
    return (TOP / name).read_text(encoding="utf-8")


def sources(*folders):
    return [path for folder in folders for path in sorted((TOP / folder).rglob("*.[ch]"))]


def test_api_lists_every_reason_with_its_status():
    reasons = re.findall(r'X\(\w+, "(\w+)", (\w+),', page("router/reasons.h").replace("\\\n", ""))
    assert len(reasons) > 20
    missing = [f"{reason} {code}" for reason, code in reasons if f"| `{reason}` | {code} |" not in page("docs/api.md")]
    assert not missing, missing


def test_api_lists_every_reason_of_the_rpc_layer():
    found = {reason: code for path in sources("common/net/rpc/grpc")
             for code, reason in re.findall(r'RPC_([A-Z_]+),\s*"([a-z_]+)"', path.read_text(encoding="utf-8"))}
    assert len(found) >= 8
    missing = [reason for reason, code in found.items() if f"| `{reason}` | {code} |" not in page("docs/api.md")]
    assert not missing, missing


def test_operations_lists_every_metric():
    text = page("docs/operations/observability.md")
    for prefix, suffixes in re.findall(r"`(baton_router_)queue_seconds`((?:, `_\w+`)+)", text):
        text += " ".join(prefix + s for s in re.findall(r"`_(\w+)`", suffixes))
    names = {name for path in sources("router", "common/worker", "prefill_worker", "decode_worker")
             for name in re.findall(r'"(baton_[a-z0-9_]+)"', path.read_text(encoding="utf-8"))}
    assert len(names) > 15
    missing = sorted(name for name in names if not re.search(rf"\b{name}\b", text))
    assert not missing, missing


def test_the_walk_is_true():
    files = re.findall(r"`((?:router|prefill_worker|decode_worker|common|kernels)/[\w/]+\.[ch])`", page("README.md"))
    assert len(files) >= 10
    missing = [name for name in files if not (TOP / name).is_file()]
    assert not missing, missing


@pytest.mark.parametrize("name", ["README.md", *sorted(str(p.relative_to(TOP)) for p in (TOP / "docs").rglob("*.md"))])
def test_links_lead_somewhere(name):
    folder = (TOP / name).parent
    broken = [link for link in re.findall(r"\]\(([^)#:]+)\)", page(name)) if not (folder / link).exists()]
    assert not broken, broken


def test_the_folder_map_is_whole():
    here = {p.name for p in TOP.iterdir() if p.is_dir() and not p.name.startswith(".") and p.name not in ("build", "cmake")}
    missing = sorted(name for name in here if f"`{name}/`" not in page("README.md"))
    assert not missing, missing


def test_the_programs_that_the_pages_name_are_executable():
    for name in ("deploy/local/quickstart", "tests/run", ".ci/run", "deploy/local/install-packages"):
        assert (TOP / name).stat().st_mode & 0o111, name


def test_decisions_are_numbered_one_by_one():
    pages = sorted((TOP / "docs/decisions").glob("0*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    untrue = [page.name for page in pages if not page.read_text(encoding="utf-8").startswith(f"# {int(page.name[:4])}. ")]
    assert not untrue, untrue


def test_tests_lists_every_family():
    missing = sorted(p.name for p in (TOP / "tests").iterdir() if p.is_dir() and not p.name.startswith(("_", ".")) and f"- `{p.name}/" not in page("tests/README.md"))
    assert not missing, missing
