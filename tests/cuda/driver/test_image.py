"""The fat binaries that the program embeds hold each kernel that a plan may launch, for both architectures: the emulated driver takes
kernels from the emulator, so that it can't see one that is missing."""
import os
import pathlib
import re
import struct

import pytest

TOP = pathlib.Path(__file__).resolve().parents[3]
IMAGES = sorted((pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug")) / "kernels/cuda").glob("*.fatbin"))


def images(data):
    """(architecture, kernels) of each ELF image: its flags' second byte, and the sections .text.NAME."""
    at = data.find(b"\x7fELF")
    while at >= 0:
        sections, = struct.unpack_from("<Q", data, at + 40)
        flags, = struct.unpack_from("<I", data, at + 48)
        size, count, names_index = struct.unpack_from("<HHH", data, at + 58)
        headers = [struct.unpack_from("<IIQQQQ", data, at + sections + i * size) for i in range(count)]
        names = at + headers[names_index][4]
        found = [data[names + header[0]:data.index(b"\0", names + header[0])].decode() for header in headers]
        yield flags >> 8 & 0xff, {name.removeprefix(".text.") for name in found if name.startswith(".text.")}
        at = data.find(b"\x7fELF", at + 64)


@pytest.mark.skipif(not IMAGES, reason="built without nvcc")
def test_every_kernel_of_the_plans_is_in_an_image():
    plans = "".join(path.read_text() for path in [*sorted((TOP / "kernels/cuda").glob("*plans.c")), TOP / "kernels/cuda/blocks.c"])
    planned = set(re.findall(r'"([a-z]+\d?_[a-z0-9_]*[a-z0-9])"', plans))
    # Names of linear layers are made of a type and a tile.
    plain = ("bf16", "s8")
    for types, kind, end in ((plain, "PORTABLE", ""), (plain, "SM90_PLAIN", "_sm90"), ((*plain, "e4m3", "e4m3_blocks"), "SM90", "_sm90")):
        tiles = re.findall(rf'= {kind}_SHAPE\("(\w+)",', plans)
        planned |= {f"linear_{type}_{tile}{end}" for type in types for tile in tiles}
    assert {"pack_rows", "attention_merge", "gather_moves", "block_sums", "linear_bf16_64x16", "linear_s8_128x256_sm90", "linear_e4m3_64x8_sm90"} <= planned, planned
    held = {}
    for image in IMAGES:
        for architecture, kernels in images(image.read_bytes()):
            held[architecture] = held.get(architecture, set()) | kernels
    assert {80, 90} <= set(held), sorted(held)
    for architecture, kernels in held.items():
        assert not planned - kernels, f"sm_{architecture} lacks {sorted(planned - kernels)}"
