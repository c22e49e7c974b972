"""What the driver says of a GPU, by its own library: no program of ours is asked, and none is needed."""
import ctypes
import shutil
import subprocess

FOLDERS = ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib")  # the driver's, in some containers
EMULATED = {"name": "emulated GPU 0", "sentence": "the emulated driver (tests/cuda/driver): no GPU"}
ATTRIBUTES = {"sms": 16, "clock_khz": 13, "memory_clock_khz": 36, "bus_bits": 37, "cache_bytes": 38, "major": 75, "minor": 76}


def find(number):
    """Facts of GPU `number`, or {"why": a sentence}."""
    driver = None
    for folder in ("", *(f"{folder}/" for folder in FOLDERS)):
        try:
            driver = driver or ctypes.CDLL(f"{folder}libcuda.so.1")
        except OSError:
            continue
    if not driver:
        return {"why": "this machine has no NVIDIA driver (libcuda.so.1)"}
    if code := driver.cuInit(0):
        return {"why": f"the NVIDIA driver doesn't start: cuInit returns {code}" if code != 100 else "the NVIDIA driver shows no GPU"}
    count, version, handle, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(128)
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    if number >= count.value:
        return {"why": f"there is no GPU {number}: the driver shows {count.value}"}
    driver.cuDeviceGet(ctypes.byref(handle), number)
    driver.cuDeviceGetName(name, 128, handle)
    facts = {"name": name.value.decode(), "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}"}
    for key, attribute in ATTRIBUTES.items():
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle) == 0:
            facts[key] = value.value
    facts |= smi(number)
    facts["sentence"] = (f"{facts['name']}, sm_{facts.get('major', '?')}{facts.get('minor', '?')}, {facts.get('sms', '?')} SMs, CUDA {facts['cuda']}"
                         + "".join(f", {key} {facts[key]}" for key in ("driver_version", "clocks.max.sm", "clocks.sm", "memory.total") if key in facts))
    return facts


def smi(number):
    """Clocks, power and the driver's version, where nvidia-smi is there."""
    keys = ["driver_version", "clocks.max.sm", "clocks.sm", "clocks.mem", "power.limit", "temperature.gpu", "memory.total"]
    if not shutil.which("nvidia-smi"):
        return {}
    try:
        done = subprocess.run(["nvidia-smi", f"--id={number}", f"--query-gpu={','.join(keys)}", "--format=csv,noheader"], text=True,
                              capture_output=True, timeout=15)
    except subprocess.TimeoutExpired:
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(keys, values)) if done.returncode == 0 and len(values) == len(keys) else {}
