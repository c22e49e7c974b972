#!/usr/bin/env python3
"""Prints how the product's C code is cut: files, headers, headers with one user, lines, functions, and static functions of under 8
lines that are called once. `tests/structure.py --list [FOLDER]` names the headers with one user and those functions, as places to
look at: which of them a reader is better off without is for a person to decide.

A header's users are the product's files that include it, other than its own .c. Tests don't count."""
import argparse
import collections
import pathlib
import re
import subprocess

TOP = pathlib.Path(__file__).resolve().parents[1]
PRODUCT = ("common/", "router/", "prefill_worker/", "decode_worker/", "kernels/", "proto/")
SMALL_LINES = 8

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
FUNCTION = re.compile(r"^(?P<head>(?:[a-z_][^\n;{}()#=]*?)\b(?P<name>[a-z_]\w*)\((?:[^;{}]*)\)[^;{}=\n]*)\n\{\n(?P<body>.*?)^\}", re.M | re.S)


def tracked():
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=TOP, text=True, capture_output=True,
                           check=True).stdout.split("\n")
    return [n for n in names if n.endswith((".c", ".h", ".cu", ".cuh")) and (TOP / n).is_file()]


def without_noise(text):
    return NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def measure():
    sources = {name: (TOP / name).read_text(encoding="utf-8") for name in tracked()}
    product = [n for n in sources if n.startswith(PRODUCT)]
    users = collections.defaultdict(set)
    for name in product:
        for path in INCLUDE.findall(sources[name]):
            if path in sources and path.rsplit(".", 1)[0] != name.rsplit(".", 1)[0]:
                users[path].add(name)
    headers = [n for n in product if n.endswith((".h", ".cuh"))]
    functions, small = [], []
    for name in product:
        code = without_noise(sources[name])
        for found in FUNCTION.finditer(code):
            lines = found.group("body").count("\n")
            functions.append(lines)
            static = found.group("head").startswith("static") and name.endswith((".c", ".cu"))
            uses = len(re.findall(rf"\b{found.group('name')}\b", code))
            declared = len(re.findall(rf"^static[^;{{}}=]*\b{found.group('name')}\([^;{{}}]*\);", code, re.M))
            called = re.search(rf"\b{found.group('name')}\s*\((?!.*\n\{{)", code[found.end():] + code[:found.start()])
            # A name without parentheses is a callback: a table or a call needs the function.
            if static and called and uses - declared == 2 and lines < SMALL_LINES:
                small.append(f"{name}:{code[:found.start()].count(chr(10)) + 1}: {found.group('name')}, {lines} lines")
    return {
        "product": product,
        "headers": headers,
        "lonely": sorted(h for h in headers if len(users[h]) <= 1),
        "longest": max((sources[n].count("\n"), n) for n in product),
        "lines": sum(sources[n].count("\n") for n in product),
        "functions": sorted(functions),
        "small": small,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", nargs="?", const="", metavar="FOLDER", help="name the headers and functions (of FOLDER)")
    options = parser.parse_args()
    found = measure()
    if options.list is not None:
        for title, places in (("headers with one user", found["lonely"]), ("small static functions called once", found["small"])):
            print(f"{title}:")
            for place in places:
                if place.startswith(options.list):
                    print(f"  {place}")
    functions = found["functions"]
    print(f"files {len(found['product'])}, headers {len(found['headers'])}, headers with one user {len(found['lonely'])}")
    print(f"lines {found['lines']}, longest file {found['longest'][0]} ({found['longest'][1]})")
    print(f"functions {len(functions)}, median {functions[len(functions) // 2]} lines, "
          f"static, under {SMALL_LINES} lines and called once {len(found['small'])}")


if __name__ == "__main__":
    main()
