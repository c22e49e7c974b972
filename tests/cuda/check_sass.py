#!/usr/bin/env python3
"""Usage: check_sass.py FOLDER_OF_FATBINS. Examines the machine code of the CUDA kernels: linear layers for sm_90a multiply by HGMMA (bf16), IGMMA
(int8) and QGMMA (fp8), all others by HMMA and IMMA. No kernel of a default build that multiplies touches local memory, and spills are errors of that build,
too (-warn-spills); code for the architectures that tests/run --long adds may spill.
The main loops of linear layers for sm_90a have neither a barrier of the block nor a fence of the device: rings of mbarriers alone keep their groups in step.

It needs NVIDIA's cuobjdump, of the toolkit or of tests/requirements.txt. Without a folder it ends with 77: the build has no kernels, and
ctest shows it as not run."""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

FUNCTION = re.compile(r"Function : (\w+)")
ARCHITECTURE = re.compile(r"arch = (sm_\w+)")
PRODUCTS = re.compile(r"\b(HGMMA|IGMMA|QGMMA|HMMA|IMMA)\b")
LOCAL = re.compile(r"\b(LDL|STL)\b")
PLACE = re.compile(r"/\*([0-9a-f]{4,})\*/")
BRANCH = re.compile(r"\bBRA(?:\.\S+)? (?:\S+, )?0x([0-9a-f]+)")
MAY_NOT_SPILL = ("sm_80", "sm_90a")
STOPS = re.compile(r"\b(BAR\.SYNC|MEMBAR\.\w+\.(?:GPU|SYS)|UCGABAR_\w+)")
READ = "Function : |arch = |MMA|LDL|STL|BRA|BAR"  # all that is read; the whole text has 150 MB


def disassemble(cuobjdump, fatbin):
    """The lines that are read; grep finds them in a tenth of Python's time."""
    with subprocess.Popen([cuobjdump, "-sass", fatbin], stdout=subprocess.PIPE) as dump:
        kept = subprocess.run(["grep", "-E", READ], stdin=dump.stdout, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    if dump.returncode:
        sys.exit(f"cuobjdump {fatbin}: exit code {dump.returncode}")
    return kept


def read(text):
    """(architecture, kernel) -> how often it has each kind of product, and local accesses."""
    kernels = collections.defaultdict(lambda: {"products": collections.Counter(), "local": 0, "code": []})
    architecture = kernel = None
    for line in text.splitlines():
        if found := ARCHITECTURE.search(line):
            architecture = found.group(1)
        elif found := FUNCTION.search(line):
            kernel = kernels[architecture, found.group(1)]
        elif kernel and (place := PLACE.search(line)) and (found := PRODUCTS.search(line) or STOPS.search(line) or BRANCH.search(line)):
            kernel["code"].append((int(place.group(1), 16), found.re, found.group(1)))
            if found.re is PRODUCTS:
                kernel["products"][found.group(1)] += 1
        elif kernel and LOCAL.search(line):
            kernel["local"] += 1
    return kernels


def stops_in_loops(code):
    """The barriers and fences inside the innermost loop around each product; None where a product is in no loop."""
    loops = [(int(target, 16), place) for place, kind, target in code if kind is BRANCH and int(target, 16) <= place]
    stops = set()
    for place in {place for place, kind, _ in code if kind is PRODUCTS}:
        around = min((end - begin, begin, end) for begin, end in loops + [(0, 1 << 40)] if begin <= place <= end)
        if around[2] == 1 << 40:
            return None
        stops |= {what for at, kind, what in code if kind is STOPS and around[1] <= at <= around[2]}
    return stops


def wanted(name):
    if name.endswith("_sm90"):
        return "QGMMA" if "_e4m3_" in name else "IGMMA" if "_s8_" in name else "HGMMA"
    if name.startswith("linear_"):
        return "IMMA" if "_s8_" in name else "HMMA"
    return "HMMA" if re.match(r"attention_(decode_)?(bf16|int8)_", name) else None


def mistakes(kernels):
    if not any(name.endswith("_sm90") and kernel["products"] for (_, name), kernel in kernels.items()):
        yield "no kernel for sm_90a"
    for (architecture, name), kernel in sorted(kernels.items()):
        if name.endswith("_sm90") and architecture != "sm_90a":
            if kernel["products"]:
                yield f"{architecture} {name}: isn't empty"
            continue
        want = wanted(name)
        if set(kernel["products"]) != ({want} if want else set()):
            yield f"{architecture} {name}: has {dict(kernel['products'])}, not {want}"
        stops = stops_in_loops(kernel["code"]) if name.startswith("linear_") and name.endswith("_sm90") else set()
        if stops or stops is None:
            yield f"{architecture} {name}: its main loop has {sorted(stops) if stops else 'no end'}"
        if want and kernel["local"] and architecture in MAY_NOT_SPILL:
            yield f"{architecture} {name}: {kernel['local']} accesses of local memory"


def main():
    if not sys.argv[1:]:
        print("not run: built without the CUDA kernels")
        sys.exit(77)
    fatbins = sorted(pathlib.Path(sys.argv[1]).glob("*.fatbin"))
    package = sysconfig.get_path("purelib") + "/nvidia/cu13/bin"
    places = os.pathsep.join([os.environ.get("PATH", ""), os.environ.get("CUDA_HOME", "") + "/bin", "/usr/local/cuda/bin", package])
    cuobjdump = shutil.which("cuobjdump", path=places)
    if not fatbins:
        sys.exit(f"{sys.argv[1]} has no fat binaries: the build isn't complete")
    if not cuobjdump:
        sys.exit("there is no cuobjdump: pip install -r tests/requirements.txt")
    kernels = read("".join(disassemble(cuobjdump, fatbin) for fatbin in fatbins))
    for (architecture, name), kernel in sorted(kernels.items()):
        if kernel["products"]:
            print(f"{architecture} {name}: {dict(kernel['products'])}")
    found = list(mistakes(kernels))
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
