"""check_spills.py OBJDUMP LIBRARY: the tile products keep their sums in registers.

A compiler that spills them to the stack costs half the speed and fails no other test. For each instruction set: the inner
loops are there (so many multiply instructions, for 1 to 12 rows), and the product moves no vector register to or from
the stack.
"""
import re
import subprocess
import sys

EXPECTED = {  # (object file, function): (instruction, how many at least: 2 vectors x (1 + ... + 12) rows, twice where pairs are split,
    # twice more for widened panels)
    ("avx2.c.o", "attend_multiply"): ("vfmadd", 84),
    ("avx2.c.o", "scan_keys"): ("vfmadd", 1248),  # (8 numbers of bf16 + 16 of int8) x (4 x 1, 4 x 2, 2 x 3, 2 x 4, 5, 6, 7, 8)
    ("avx2.c.o", "scan_values"): ("vfmadd", 216),  # a pair of tokens, of bf16 and of int8, x (4 x (1 + 2 + 3), 2 x (4 + 5 + 6))
    ("avx512.c.o", "multiply"): ("vfmadd", 624),
    ("avx512.c.o", "attend_multiply"): ("vfmadd", 312),
    ("avx512.c.o", "scan_keys"): ("vfmadd", 2736),  # (8 numbers of bf16 + 16 of int8) x (2 vectors x (1 + ... + 8) rows, 9 + ... + 12 rows)
    ("avx512.c.o", "scan_values"): ("vfmadd", 624),  # a pair of tokens, of bf16 and of int8
    ("amx.c.o", "attend_multiply"): ("vfmadd", 312),
    ("amx.c.o", "scan_keys"): ("vfmadd", 2736),
    ("amx.c.o", "scan_values"): ("vfmadd", 624),
    ("avx512bf16.c.o", "multiply"): ("vdpbf16ps", 156),
    ("avx512bf16.c.o", "attend_multiply"): ("vdpbf16ps", 156),
    ("avx512bf16.c.o", "scan_keys"): ("vdpbf16ps", 1272),  # (4 pairs of bf16 + 8 of int8) x (2 vectors x (1 + ... + 7) rows, 8 + ... + 12 rows)
    ("avx512bf16.c.o", "scan_values"): ("vdpbf16ps", 312),
    ("avx2.c.o", "multiply_rows"): ("vfmadd", 108),  # 2 vectors x (4 + 5 + 6) rows, 4 x (1 + 2 + 3), of odd and even k
    # 2 vectors x (1 + ... + 6) rows, of even and odd k, or of low and high halves
    ("quantized_avx2.c.o", "int8_packed_part"): ("vpmaddwd", 84),
    ("quantized_avx2.c.o", "int8_wide"): ("vpmaddwd", 84),
    ("quantized_avx2.c.o", "int4_packed"): ("vpmaddubsw", 84),
    ("quantized_avx2.c.o", "int4_wide"): ("vpmaddubsw", 84),
    ("quantized_avx512vnni.c.o", "multiply_int8"): ("vpdpbusd", 328),
    ("quantized_avx512vnni.c.o", "multiply_int4"): ("vpdpbusd", 952),  # packed, packed and kept wide, wide
}


def functions(listing):
    """(object file, function, lines) of an objdump of a static library."""
    member = function = None
    lines = []
    for line in listing.splitlines():
        start = re.match(r"[0-9a-f]+ <(.+)>:$", line)
        if start or re.match(r"\S+:\s+file format", line):
            if function:
                yield member, function, lines
            function, lines = (start.group(1) if start else None), []
            member = member if start else line.split(":")[0]
        else:
            lines.append(line)
    if function:
        yield member, function, lines


def main(objdump, library):
    listing = subprocess.run([objdump, "-d", "--no-show-raw-insn", library], check=True, capture_output=True, text=True)
    seen = set()
    for member, function, lines in functions(listing.stdout):
        if (member, function) not in EXPECTED:
            continue
        instruction, least = EXPECTED[member, function]
        count = sum(instruction in line for line in lines)
        spills = [line for line in lines if re.search(r"\(%r[sb]p", line) and re.search(r"%[yz]mm", line)]  # general registers may go by way of xmm
        if count < least or spills:
            sys.exit(f"{member}, {function}: {count} {instruction} (expected {least}), vector registers on the stack: {spills[:3]}")
        seen.add((member, function))
    if seen != set(EXPECTED):
        sys.exit(f"{library}: no tile product found in {sorted(set(EXPECTED) - seen)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
