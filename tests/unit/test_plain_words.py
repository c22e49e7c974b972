"""The lint of plain words finds planted sentences, and finds nothing in the tree."""
import pathlib
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests"))
import plain_words  # noqa: E402

PLANTED = [
    ("a.h", "/* What is left over is freed. */\n", "begins with 'What'"),
    ("a.h", "/* Of a call that was admitted, at most once. */\n", "begins with 'Of'"),
    ("a.c", "/* Frees it. Who waits for it is woken. */\n", "begins with 'Who'"),
    ("a.c", "int count; /* those that wait */\n", "begins with 'those'"),
    ("a.h", "// Nobody owns it.\n", "begins with 'Nobody'"),
    ("a.c", "/* The request is woken when he has a place. */\n", "'he' is for people"),
    ("a.md", "- The thread whose turn it is.\n", "'whose' is for people"),
    ("a.md", "# Where requests wait\n", "begins with 'Where'"),
    ("a.c", '    error_set(err, "no room for one more request but for the first");\n', "'but for'; say 'except'"),
    ("a.c", '    error_set(err, "a worker who left is not asked");\n', "'who' is for people"),
    ("a.c", f"/* {'word ' * 25}*/\n", "columns, at most 100"),
    ("a.md", f"{'word ' * 30}\n", "columns, at most 120"),
]
SOUND = [
    ("a.h", "/* Returns the block that holds `token`. The caller owns it. */\n"),
    ("a.c", 'printf("who"); /* a string of one word is no sentence */\n'),
    ("a.md", "| What is a class? | one line |\n|---|---|\n\n```\nwho\n```\n"),
]


def faults(name, text):
    read = plain_words.findings_of_code if name.endswith((".c", ".h")) else plain_words.findings_of_markdown
    return [fault for _, _, fault in read(name, text)]


@pytest.mark.parametrize("name,text,fault", PLANTED)
def test_a_planted_sentence_is_found(name, text, fault):
    assert any(fault in found for found in faults(name, text)), faults(name, text)


@pytest.mark.parametrize("name,text", SOUND)
def test_a_sound_sentence_is_not_found(name, text):
    assert not faults(name, text)


def test_the_tree_is_plain():
    wrong = [f"{name}:{line}: {fault}" for name, line, _, fault in plain_words.findings(plain_words.tracked())]
    assert not wrong, f"{len(wrong)} findings (tests/plain_words.py lists all):\n" + "\n".join(wrong[:40])
