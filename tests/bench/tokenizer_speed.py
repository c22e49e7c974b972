"""Baton's tokenizer beside the `tokenizers` package, one thread each, in turns: 1 MB of English, of code and of mixed Unicode, and 100 kB
without a space. Medians of the CPU time of the encoding thread.

Usage: tokenizer_speed.py [--build build/release] [--english FILE] [--rounds 5] [--family NAME ...]
English is this repository's pages unless a file is given, code its sources; the mixed text is made (tests/golden/random_texts.py).
"""
import argparse
import gzip
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/golden"))
from random_texts import texts  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

FOLDER = TOP / "tests/golden/tokenizers"
FAMILIES = ["gpt-2", "deepseek-llm", "llama-spm", "llama3", "qwen2", "tekken", "llama2", "mistral-metaspace"]
MEGABYTE = 1_000_000


def filled(pieces, size):
    """Pieces one after another, from the start again if need be, cut at a character."""
    data = "".join(pieces)
    assert data
    data *= -(-size // len(data.encode()))
    return data.encode()[:size].decode(errors="ignore")


def make_texts(english):
    rnd = random.Random(1)
    pages = [path.read_text() for path in sorted(TOP.glob("**/*.md")) if "build" not in path.parts and ".venv" not in path.parts]
    code = [path.read_text() for folder in ("common", "kernels", "router") for path in sorted((TOP / folder).rglob("*.[ch]"))]
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "English": filled([Path(english).read_text()] if english else pages, MEGABYTE),
        "code": filled(code, MEGABYTE),
        "mixed": filled([" ".join(texts(1, 8000))], MEGABYTE),
        "letters": "".join(rnd.choice(letters) for _ in range(100_000)),
        "one letter": "a" * 100_000,
        "Han": filled([chr(rnd.randrange(0x4E00, 0x9FA5)) for _ in range(34_000)], 100_000),
        "signs": "".join(rnd.choice("+-*/=<>(){}[];:,.!?") for _ in range(100_000)),
        "digits": "".join(rnd.choice("0123456789") for _ in range(100_000)),
    }


class Ours:
    def __init__(self, build, tokenizer, text):
        self.program = subprocess.Popen([build / "bin/tokenizer_speed", tokenizer, text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self):
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        microseconds, count = self.program.stdout.readline().split()
        return int(microseconds) / 1000, int(count)

    def close(self):
        self.program.stdin.close()
        self.program.wait()


class Theirs:
    """The quicker of the package's two ways: without offsets."""

    def __init__(self, tokenizer, text):
        self.tokenizer, self.text = Tokenizer.from_file(str(tokenizer)), text

    def run(self):
        start = time.thread_time()
        encoding = self.tokenizer.encode_batch_fast([self.text], add_special_tokens=False)[0]
        return (time.thread_time() - start) * 1000, len(encoding)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build/release")
    parser.add_argument("--english")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--family", action="append")
    options = parser.parse_args()
    inputs = make_texts(options.english)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name, text in inputs.items():
            (folder / name).write_text(text, newline="")
        print("| tokenizer | text | kB | tokens | Baton ms | tokenizers ms | ratio |\n|---|---|---|---|---|---|---|")
        for family in options.family or FAMILIES:
            path = FOLDER / f"{family}.json"
            if not path.exists():
                path = FOLDER / f"{family}.tokenizer.json"
            if not path.exists():
                path = folder / family
                path.write_bytes(gzip.decompress((FOLDER / f"{family}.tokenizer.json.gz").read_bytes()))
            for name, text in inputs.items():
                both = Ours(options.build, path, folder / name), Theirs(path, text)
                times = [[], []]
                for turn in range(options.rounds + 1):
                    got = [one.run() for one in both]
                    assert got[0][1] == got[1][1], (family, name, got)
                    for at, (milliseconds, _) in enumerate(got):
                        times[at] += [milliseconds] * (turn > 0)  # the first warms up
                both[0].close()
                ours, theirs = map(statistics.median, times)
                print(f"| {family} | {name} | {len(text.encode()) // 1000} | {got[0][1]} | {ours:.1f} | {theirs:.0f} | {theirs / ours:.1f} |", flush=True)


main()
