"""Mutants of pure code, for the tests that must catch them all: the real files with one rule left out or reversed.

The files and the tests that look at them are compiled once, without sanitizers. A mutant's changed files are compiled anew, each text once
whatever mutants have it, and linked with the other objects. Compilers and programs run side by side, one a core."""
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import threading

TOP = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "mutants"
LONG = bool(os.environ.get("BATON_LONG"))
COMPILER = [*(["ccache"] if shutil.which("ccache") else []), "cc", "-std=gnu17", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-w"]


def in_parallel(function, items):
    """What the function returns for each item, in order."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def chosen(mutants, every=5):
    """All of them with --long (BATON_LONG=1), otherwise every fifth, or so."""
    return mutants if LONG else mutants[::every]


class Code:
    """The unchanged `sources`, compiled, in a folder of its own. Names of files are relative to the repository."""

    def __init__(self, name, sources, *, optimize="-O0", libraries=()):
        self.folder, self.optimize, self.libraries = BUILD / name, optimize, libraries
        shutil.rmtree(self.folder, ignore_errors=True)
        self.sources = [str(pathlib.Path(source).relative_to(TOP)) if pathlib.Path(source).is_absolute() else source for source in sources]
        self.made, self.lock = {}, threading.Lock()
        self.objects = dict(zip(self.sources, in_parallel(self.compile_one, self.sources)))

    def compile_one(self, source, folder=None):
        """The object of `source`, or of the text that `folder` has in its place; headers of `folder` come first."""
        path = folder / source if folder and (folder / source).exists() else TOP / source
        headers = sorted(folder.rglob("*.h")) if folder else []
        key = hashlib.sha256(b"\0".join([source.encode(), path.read_bytes(), *(header.read_bytes() for header in headers)])).hexdigest()[:24]
        with self.lock:
            alone = self.made.setdefault(key, threading.Lock())
        target = self.folder / "objects" / f"{path.stem}_{key}.o"
        with alone:
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                include = [f"-I{place}" for place in ([folder, TOP] if headers else [TOP])]
                done = subprocess.run([*COMPILER, self.optimize, *include, "-c", str(path), "-o", str(target)], cwd=TOP, capture_output=True, text=True)
                assert done.returncode == 0, f"{path} does not compile:\n{done.stderr}"
        return target

    def mutate(self, name, edits):
        """The objects with `edits` (file, old text, new text) made; an old text occurs exactly once."""
        folder, texts = self.folder / name, {}
        for file, old, new in edits:
            text = texts.get(file) or (TOP / file).read_text()
            assert text.count(old) == 1, f"{name}: {file} has this {text.count(old)} times, not once:\n{old}"
            texts[file] = text.replace(old, new)
        for file, text in texts.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        headers = {pathlib.Path(file).parent for file in texts if file.endswith(".h")}  # any file beside one may include it
        changed = {file for file in texts if file.endswith(".c")} | {source for source in self.sources if pathlib.Path(source).parent in headers}
        return {**self.objects, **{source: self.compile_one(source, folder) for source in changed}}

    def link(self, name, objects=None, sources=None):
        """A program of the objects, of `sources` alone if given."""
        program = self.folder / name / "program"
        program.parent.mkdir(parents=True, exist_ok=True)
        objects = objects or self.objects
        subprocess.run(["cc", *(str(objects[source]) for source in sources or self.sources), *self.libraries, "-o", str(program)], check=True)
        return program


def run(program, *, timeout=300, **environment):
    """Its end; a program that never ends has None as its exit code."""
    environment = {"PATH": os.environ["PATH"], **{name: str(value) for name, value in environment.items()}}
    try:
        return subprocess.run([program], capture_output=True, text=True, errors="replace", env=environment, timeout=timeout, cwd=TOP)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(program, None, "", "")


def first_failure(done):
    """The first test of a cmocka program that failed, or how it died. None: all passed."""
    names = [line.split()[-1] for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("[  FAILED  ] test_")]
    if names or not done.returncode:
        return names[0] if names else "never ends" if done.returncode is None else None
    return f"ends with {done.returncode}"


def survivors(verdicts, capsys):
    """Prints what caught each mutant, (mutant, what) in `verdicts`, and returns a sentence for each that nothing caught."""
    with capsys.disabled():
        print("\n" + "\n".join(f"{mutant.name:24} {found or 'survives'}" for mutant, found in verdicts))
    return [f"{mutant.name} ({mutant.why}) survives" for mutant, found in verdicts if not found]
