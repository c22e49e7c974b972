#!/usr/bin/env python3
"""Says of each program what it lacks of the hardening that cmake/BatonTargets.cmake asks for; nothing, and exit code 0, if all have
all of it. Usage: tests/hardened.py PROGRAM...      e.g. tests/hardened.py build/release/bin/baton*"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import elf_file as elf  # noqa: E402

ENDBR64 = b"\xf3\x0f\x1e\xfa"


def lacks(path):
    """Returns a sentence for each thing that the program lacks."""
    program = elf.ElfFile(path)
    found = []
    if program.type != elf.ET_DYN or not program.flags(elf.DT_FLAGS_1) & elf.DF_1_PIE:
        found.append("it isn't position independent (-fPIE, -pie)")
    if elf.PT_GNU_RELRO not in program.segments:
        found.append("no table becomes read-only (-z relro: GNU_RELRO)")
    now = program.has(elf.DT_BIND_NOW) or program.flags(elf.DT_FLAGS) & elf.DF_BIND_NOW or program.flags(elf.DT_FLAGS_1) & elf.DF_1_NOW
    if not now:
        found.append("library calls are bound late, in writable memory (-z now: BIND_NOW)")
    if program.segments.get(elf.PT_GNU_STACK, elf.PF_X) & elf.PF_X:
        found.append("its stack can be executed (GNU_STACK)")
    if "__stack_chk_fail" not in program.imported:
        found.append("no function guards its stack (-fstack-protector-strong: __stack_chk_fail)")
    if not any(name.endswith("_chk") for name in program.imported):
        found.append("no call checks the size of its buffer (_FORTIFY_SOURCE: *_chk)")
    if program.machine == elf.EM_X86_64 and program.bytes_of("main", 4) not in (None, ENDBR64):
        found.append("functions don't begin with endbr64 (-fcf-protection)")
    return found


def main(paths):
    if not paths or paths[0].startswith("-"):
        print(__doc__)
        return 2
    try:
        found = [f"{path}: {lack}" for path in paths for lack in lacks(path)]
    except (OSError, ValueError) as error:
        print(f"hardened.py: {error}")
        return 2
    print("\n".join(found) if found else f"{len(paths)} programs are hardened")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
