"""Hard texts at random: characters assigned in Unicode 14, mixed scripts, spaces, digits, controls, marks, long runs, and the added
tokens of a tokenizer. The same seed gives the same texts."""
import random

from unicode14 import RANGES

POOLS = [
    "abcdefghijklmnopqrstuvwxyz ", "ABC'sdt'LL'Re ,.!?\n", "0123456789 .,", " \t\n\r\u00a0\u3000\u2028\x0b\x85",
    "éèüßñçÅåØ", "漢字かなカナ한국어。、", "русскийТЕКСТ", "العربية١٢٣", "हिन्दी४५", "ไทยกำ", "🙂👩\u200d👧🏳️\ufe0f👍🏽",
    "\u0300\u0301\u0316\u0327\u0345\u05b0\u094d\u3099\u1161\u11a8가", "\x00\x01\x07\x1b\x7f\u0080\u200b\ufeff\ufffd\uffff",
    "½Ⅷ①²٣๓", "{}()[]<>=+-*/&|^%$#@!~`\"'\\;:_", "ſKİıŒǅⒶ𝐀𝟘", "▁_ĠĊ<0x41></s>",
]
WORDS = ["the", " the", "def f(x):\n    return", "Hello", " world", "don't", "we'LL", "  \n\n", "https://a.b/c?d=e", "1234567", "\r\n", "straße", "x" * 40]


def character(rnd):
    """One of all that are assigned."""
    at = rnd.randrange(RANGES[-1][2])
    low, high = 0, len(RANGES) - 1
    while low < high:
        middle = (low + high) // 2
        if RANGES[middle][2] <= at:
            low = middle + 1
        else:
            high = middle
    first, last, until = RANGES[low]
    return chr(last - (until - 1 - at))


def text(rnd, added):
    parts = []
    for _ in range(rnd.randint(1, 12)):
        kind = rnd.randrange(8)
        if kind < 3:
            pool = rnd.choice(POOLS)
            parts.append("".join(rnd.choice(pool) for _ in range(rnd.randint(1, 12))))
        elif kind == 3:
            parts.append("".join(character(rnd) for _ in range(rnd.randint(1, 6))))
        elif kind == 4:
            parts.append(rnd.choice(WORDS))
        elif kind == 5 and added:
            parts.append(rnd.choice(["", " ", "  ", "\n"]) + rnd.choice(added) + rnd.choice(["", " ", "a"]))
        elif kind == 6:
            parts.append(rnd.choice(rnd.choice(POOLS)) * rnd.randint(1, 30))
        else:
            parts.append(chr(rnd.randrange(1, 0x250)) if rnd.random() < 0.5 else " ")
    return "".join(parts)


def texts(seed, count, added=()):
    rnd = random.Random(seed)
    return [text(rnd, list(added)) for _ in range(count)]
