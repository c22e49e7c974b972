#!/usr/bin/env python3
"""Finds comments, docs and error sentences that a hurried reader has to decode. docs/style.md has the rules ("Plain words"); this checks
what a machine can:

- the first word of a comment, sentence, heading or list item is never What, Of, Who, Whose, Where, Those, That, Nobody or Somebody
  (a question in Markdown may begin with one);
- code, requests and threads are "it": no who, whom, whose, whoever, he, him, his, himself, nobody, somebody;
- "except" instead of "but for";
- at most 100 columns in code and comments, 120 in Markdown (tables, code blocks and links aside).

Usage: tests/plain_words.py [PATH...]     prints the findings of these files or folders (default: everything), then a count per folder"""
import collections
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]

FIRST = re.compile(r"(What|Of|Who|Whose|Where|Those|That|Nobody|Somebody)\b")
FIRST_OF_COMMENT = re.compile(FIRST.pattern, re.I)
PEOPLE = re.compile(r"\b(who|whom|whose|whoever|he|him|his|himself|nobody|somebody)\b", re.I)
BUT_FOR = re.compile(r"\bbut for\b", re.I)
SENTENCE_END = re.compile(r"(?<=[a-z0-9)\]`'\"][.!?:])\s+(?=[A-Z])")

COMMENT = re.compile(r'(?P<text>"(?:\\.|[^"\\\n])*")|/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)|\'(?:\\.|[^\'\\\n])\'', re.S)
# A string with four words or more is a sentence that a person reads: an error, a log line, the help of a setting.
SENTENCE = re.compile(r"^(?:[^\s]+\s+){3,}[^\s]+", re.S)


def tracked():
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=TOP, text=True, capture_output=True,
                           check=True).stdout.split("\n")
    return [n for n in names if n and (TOP / n).is_file() and kind_of(n)]


def kind_of(name):
    if name.endswith((".c", ".h", ".cu", ".cuh", ".proto")):
        return "code"
    return "markdown" if name.endswith(".md") else None


def faults_of_prose(prose, questions, comment=False):
    """The findings of a piece of prose, as words: `comment`, its first word counts in any case."""
    for number, sentence in enumerate(SENTENCE_END.split(prose.strip())):
        sentence = sentence.strip().lstrip("*_`\"'([ ")
        first = (FIRST_OF_COMMENT if comment and number == 0 else FIRST).match(sentence)
        if first and not (questions and "?" in sentence):
            yield f"begins with '{first.group(1)}'"
    for found in PEOPLE.finditer(prose):
        yield f"'{found.group(1)}' is for people"
    for found in BUT_FOR.finditer(prose):
        yield "'but for'; say 'except'"


def findings_of_code(name, text):
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > 100:
            yield number, "comment", f"{len(line)} columns, at most 100"
    for found in COMMENT.finditer(text):
        number = text.count("\n", 0, found.start()) + 1
        if found.group("text") is not None:
            sentence = found.group("text")[1:-1]
            if name.startswith("tests/") or not SENTENCE.match(sentence):
                continue
            prose, place = re.sub(r'\\[nt"]|%[-.*0-9lzh]*[a-zA-Z]', " ", sentence), "sentence"
        elif found.group("block") is not None or found.group("line") is not None:
            prose = re.sub(r"\n\s*\*? ?", "\n", found.group("block") or found.group("line") or "")
            prose, place = re.sub(r'"[^"\n]*"|`[^`\n]*`', '""', prose), "comment"
        else:
            continue
        for paragraph in re.split(r"\n\s*\n|\n\s*(?=[-*] )", prose):
            for fault in faults_of_prose(" ".join(paragraph.split()), False, place == "comment"):
                yield number, place, fault


def findings_of_markdown(name, text):
    fenced, paragraph, begins = False, [], 1

    def settle():
        prose = " ".join(paragraph)
        paragraph.clear()
        yield from ((begins, "prose", fault) for fault in faults_of_prose(re.sub(r"`[^`]*`|\"[^\"]*\"", "``", prose), True))

    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            yield from settle()
            fenced = not fenced
            continue
        if fenced or line.startswith("    ") and not paragraph:
            continue
        if line.startswith("|"):
            yield from settle()
            begins = number
            for cell in line.strip("|").split("|"):
                paragraph.append(cell.strip())
                yield from settle()
            continue
        if len(line) > 120 and not re.search(r"\]\([^)]{40,}\)|https?://", line):
            yield number, "prose", f"{len(line)} columns, at most 120"
        item = re.match(r"\s*(#+|[-*+]|\d+\.)\s+(.*)", line)
        if not line.strip() or item:
            yield from settle()
        if line.strip():
            if not paragraph:
                begins = number
            paragraph.append(item.group(2) if item else line.strip())
    yield from settle()


def findings(names):
    """(name, line, place, fault) for each finding of the files; the place is "comment", "sentence" (a string) or "prose" (Markdown)."""
    for name in names:
        text = (TOP / name).read_text(encoding="utf-8")
        for found in (findings_of_code if kind_of(name) == "code" else findings_of_markdown)(name, text):
            yield name, *found


def folder_of(name):
    return str(pathlib.PurePosixPath(name).parent)


def main():
    if "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__)
        return
    wanted = [str(pathlib.Path(a).resolve().relative_to(TOP)) for a in sys.argv[1:]]
    names = [n for n in tracked() if not wanted or any(n == w or n.startswith(w + "/") or w == "." for w in wanted)]
    counts = collections.Counter()
    for name, number, place, fault in findings(names):
        print(f"{name}:{number}: {fault}")
        counts[(folder_of(name), pathlib.PurePosixPath(name).suffix + (" strings" if place == "sentence" else ""))] += 1
    for (folder, suffix), count in sorted(counts.items()):
        print(f"{count:5} {folder} ({suffix})")
    print(f"{sum(counts.values())} findings in {len(names)} files")


if __name__ == "__main__":
    main()
