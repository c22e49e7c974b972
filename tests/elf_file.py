"""Reads the facts of a 64-bit little-endian ELF program that the tests ask about: its headers, libraries and symbols."""
import pathlib
import struct

ET_DYN = 3
PT_DYNAMIC, PT_INTERP, PT_GNU_STACK, PT_GNU_RELRO = 2, 3, 0x6474E551, 0x6474E552
PF_X = 1
SHT_SYMTAB, SHT_DYNSYM = 2, 11
DT_NEEDED, DT_STRTAB, DT_BIND_NOW, DT_FLAGS, DT_FLAGS_1 = 1, 5, 24, 30, 0x6FFFFFFB
DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 8, 1, 0x08000000
EM_X86_64 = 62


class ElfFile:
    """`segments`: {type: flags}; `needed`: sonames; `imported`: undefined dynamic symbols; `bytes_of(name, n)`: a function's first."""

    def __init__(self, path):
        self.data = pathlib.Path(path).read_bytes()
        if self.data[:4] != b"\x7fELF" or self.data[4:6] != b"\x02\x01":
            raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
        self.type, self.machine = struct.unpack_from("<HH", self.data, 16)
        program_offset, section_offset = struct.unpack_from("<QQ", self.data, 32)
        program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", self.data, 54)
        self.programs = [struct.unpack_from("<IIQQQQQQ", self.data, program_offset + i * program_size) for i in range(program_count)]
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, section_offset + i * section_size) for i in range(section_count)]
        self.segments = {program[0]: program[1] for program in self.programs}
        self.dynamic = self._dynamic()
        strings = next((value for tag, value in self.dynamic if tag == DT_STRTAB), 0)
        self.needed = [self._string(self._offset(strings) + value) for tag, value in self.dynamic if tag == DT_NEEDED]
        self.imported = {name for name, section, _ in self._symbols(SHT_DYNSYM) if section == 0}

    def _string(self, offset):
        return self.data[offset:self.data.index(b"\0", offset)].decode()

    def _offset(self, address):
        for kind, _, offset, start, _, size, _, _ in self.programs:
            if kind == 1 and start <= address < start + size:
                return offset + address - start
        return 0

    def _dynamic(self):
        for kind, _, offset, _, _, size, _, _ in self.programs:
            if kind == PT_DYNAMIC:
                return [struct.unpack_from("<QQ", self.data, at) for at in range(offset, offset + size, 16)]
        return []

    def _symbols(self, kind):
        for _, section_kind, _, _, offset, size, link, _, _, _ in self.sections:
            if section_kind == kind:
                strings = self.sections[link][4]
                for at in range(offset, offset + size, 24):
                    name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.data, at)
                    yield self._string(strings + name), section, value

    def flags(self, tag):
        return next((value for found, value in self.dynamic if found == tag), 0)

    def has(self, tag):
        return any(found == tag for found, _ in self.dynamic)

    def bytes_of(self, function, count):
        """The first bytes of a function; None: the program has no symbol of that name (it is stripped)."""
        for name, _, address in self._symbols(SHT_SYMTAB):
            if name == function and address:
                offset = self._offset(address)
                return self.data[offset:offset + count]
        return None
