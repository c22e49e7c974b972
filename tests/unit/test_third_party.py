"""THIRD_PARTY.md is true: its libraries are the ones that CMake links and the built programs name, its packages are the ones that are
installed, their versions are in range; and deploy/baton.spdx.json is made from it and is SPDX 2.3."""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["BATON_BUILD"])
sys.path.insert(0, str(TOP / "tests"))
import elf_file  # noqa: E402

loader = importlib.machinery.SourceFileLoader("sbom", str(TOP / "deploy/sbom"))
sbom = importlib.util.module_from_spec(importlib.util.spec_from_loader("sbom", loader))
loader.exec_module(sbom)

LIBRARIES = sbom.table("Libraries")
TOOLS = sbom.table("Tools of the build")
PROGRAMS = ["baton", "baton-router", "baton-prefill", "baton-decode"]
# The sanitizers' and gcc's own, and the loader.
NOT_OURS = re.compile(r"lib(asan|ubsan|tsan|gcc_s|gcov)$|ld-linux")


def listed(rows, column):
    return {word for row in rows for word in re.split(r",\s*", row[column])}


def numbers(version):
    return [int(n) for n in re.findall(r"\d+", re.match(r"[\d.]+", version)[0])]


def test_the_libraries_are_those_that_cmake_links():
    linked = set()
    for path in [*TOP.glob("**/CMakeLists.txt"), *TOP.glob("cmake/*.cmake")]:
        folder = path.relative_to(TOP).parts[0]
        if folder not in ("tests", "build"):
            linked |= set(re.findall(r"PkgConfig::\w+|\bbaton_ext_\w+|Threads::Threads|(?<=Threads::Threads )m\b", path.read_text(encoding="utf-8")))
    assert linked == listed(LIBRARIES, "CMake")


def test_the_libraries_are_those_that_the_programs_name():
    needed = set()
    for name in PROGRAMS:
        needed |= {re.sub(r"(-\d+\.\d+)?\.so\b.*", "", soname) for soname in elf_file.ElfFile(BUILD / "bin" / name).needed}
    needed = {name if name != "libyaml-0" else "libyaml" for name in needed if not NOT_OURS.search(name)}
    # libyaml is called by libcyaml alone: whether a program names it, too, is the linker's choice.
    assert listed(LIBRARIES, "Linked as") - {"libyaml"} <= needed <= listed(LIBRARIES, "Linked as")


def test_the_packages_are_those_that_a_build_installs():
    words = [line.split() for line in (TOP / "deploy/local/packages").read_text().splitlines() if not line.startswith("#")]
    assert {package for group, package in words if group == "build"} == listed(LIBRARIES + TOOLS, "Package")


@pytest.mark.parametrize("row", LIBRARIES + TOOLS, ids=lambda row: row["name"])
def test_the_installed_version_is_in_range(row):
    found = sbom.installed(row["Package"])
    assert found, f"{row['Package']} isn't installed"
    assert numbers(sbom.upstream(found)) >= numbers(row["lowest"]), found
    below = re.search(r"< (\d+)$", row["Versions"])
    assert not below or numbers(sbom.upstream(found))[0] < int(below[1]), found


def test_the_sbom_is_that_of_the_tables():
    asked = subprocess.run([TOP / "deploy/sbom", "--check"], text=True, capture_output=True)
    assert asked.returncode == 0, asked.stdout + asked.stderr


def test_a_changed_table_is_found(tmp_path):
    """The file of a copy whose table has another licence differs, and is written anew with another namespace."""
    for name in ("THIRD_PARTY.md", "CMakeLists.txt", "deploy/sbom", "deploy/baton.spdx.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((TOP / name).read_bytes())
    page, copy = tmp_path / "THIRD_PARTY.md", [sys.executable, tmp_path / "deploy/sbom"]
    assert subprocess.run([*copy, "--check"]).returncode == 0
    page.write_text(page.read_text().replace("| ISC | files of settings", "| MIT | files of settings"))
    assert subprocess.run([*copy, "--check"]).returncode == 1
    assert subprocess.run(copy).returncode == 0
    before, after = (json.loads((folder / "deploy/baton.spdx.json").read_text()) for folder in (TOP, tmp_path))
    assert before["documentNamespace"] != after["documentNamespace"]
    assert [p["licenseDeclared"] for p in after["packages"] if p["name"] == "libcyaml"] == ["MIT"]


@pytest.mark.parametrize("here", [None, sbom.distribution()], ids=["ranges", "installed"])
def test_the_sbom_is_spdx(here):
    made = sbom.document(here)
    assert made["spdxVersion"] == "SPDX-2.3" and made["dataLicense"] == "CC0-1.0" and made["SPDXID"] == "SPDXRef-DOCUMENT"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", sbom.now())
    assert re.fullmatch(r"https://[^#]+", made["documentNamespace"])
    ids = [package["SPDXID"] for package in made["packages"]]
    assert len(set(ids)) == len(ids) == 1 + len(LIBRARIES) + len(TOOLS)
    for package in made["packages"]:
        assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"])
        assert {"name", "downloadLocation", "filesAnalyzed", "licenseConcluded", "licenseDeclared", "copyrightText"} <= package.keys()
        assert re.fullmatch(r"[A-Za-z0-9.-]+( (AND|OR|WITH) [A-Za-z0-9.-]+)*", package["licenseDeclared"])
        for ref in package.get("externalRefs", []):
            assert re.fullmatch(r"pkg:deb/\w+/[a-z0-9.+-]+(@[\w.~%:-]+\?distro=[\w.-]+)?", ref["referenceLocator"]), ref
            assert ("@" in ref["referenceLocator"]) == bool(here)
    assert ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-baton") in {
        (r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"]) for r in made["relationships"]}
    ends = {r[end] for r in made["relationships"] for end in ("spdxElementId", "relatedSpdxElement")}
    assert ends == {*ids, "SPDXRef-DOCUMENT"}  # no package without a relationship, and none of one that isn't there
