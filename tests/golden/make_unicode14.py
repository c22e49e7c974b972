"""Writes unicode14.py: the characters that are assigned in Unicode 14. Needs a Python whose unicodedata is of that version (3.11).

Usage: python3.11 make_unicode14.py > unicode14.py
"""
import unicodedata

assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
ranges, total = [], 0
for code in range(0x110000):
    if unicodedata.category(chr(code)) in ("Cn", "Cs", "Co"):
        continue
    total += 1
    if ranges and ranges[-1][1] == code - 1:
        ranges[-1][1:] = [code, total]
    else:
        ranges.append([code, code, total])
print('"""Made by make_unicode14.py: (first, last, how many characters up to and with this range)."""')
print("RANGES = [")
for at in range(0, len(ranges), 6):
    print("    " + " ".join(f"({a:#x}, {b:#x}, {c})," for a, b, c in ranges[at:at + 6]))
print("]")
