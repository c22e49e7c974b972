#!/usr/bin/env python3
"""The rate of cuBLASLt's bf16 product of 8192 x 8192 x 8192 on drawn numbers, by its library and the driver's alone (no toolkit, no
PyTorch). Prints a JSON line; {"why": ...} where the library isn't there."""
import ctypes
import glob
import json
import random
import struct
import sys
import sysconfig

N, RUNS, ROUNDS, WORKSPACE = 8192, 8, 5, 32 << 20
R_16BF, R_32F, COMPUTE_32F, OP_T = 14, 0, 68, 1  # cudaDataType, cublasComputeType_t, cublasOperation_t
DESC_TRANSA, PREF_WORKSPACE = 3, 1  # cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t
HEURISTIC_BYTES, ALGO_BYTES = 96, 64  # sizeof cublasLtMatmulHeuristicResult_t, cublasLtMatmulAlgo_t


def leave(why):
    print(json.dumps({"why": why}))
    sys.exit(0)


def find_library():
    places = [f"{sysconfig.get_paths()['purelib']}/nvidia/*/lib/libcublasLt.so.*", "/usr/local/cuda/lib64/libcublasLt.so.*",
              "/usr/local/cuda/targets/x86_64-linux/lib/libcublasLt.so.*"]
    for name in ["libcublasLt.so.13", *(path for place in places for path in sorted(glob.glob(place)))]:
        try:
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return None


def check(code, call):
    if code:
        sys.exit(f"cublas.py: {call} returns {code}")


class Driver:
    """The calls of libcuda that are needed, on the first device."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        check(getattr(self.lib, name)(*arguments), name)

    def memory(self, count):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
        return address

    def fill(self, address, count, seed):
        """bf16 numbers in (-2, -1/2) and (1/2, 2): products of zeros would be too fast."""
        rng, piece = random.Random(seed), 1 << 20
        drawn = rng.randbytes(piece)
        block = bytes(byte if i % 2 == 0 else (byte & 0x80) | 0x3f for i, byte in enumerate(drawn))
        for at in range(0, count, piece):
            self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address.value + at), block, ctypes.c_size_t(min(piece, count - at)))

    def event(self):
        event = ctypes.c_void_p()
        self.call("cuEventCreate", ctypes.byref(event), 0)
        return event

    def ms(self, work):
        begin, end, took = self.event(), self.event(), ctypes.c_float()
        self.call("cuEventRecord", begin, None)
        work()
        self.call("cuEventRecord", end, None)
        self.call("cuEventSynchronize", end)
        self.call("cuEventElapsedTime", ctypes.byref(took), begin, end)
        return took.value


def product(lib, driver):
    """A function that queues one product, by the first choice of the library's own heuristic."""
    handle, description, preference = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    layouts = [ctypes.c_void_p() for _ in range(3)]
    check(lib.cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate")
    check(lib.cublasLtMatmulDescCreate(ctypes.byref(description), COMPUTE_32F, R_32F), "cublasLtMatmulDescCreate")
    transposed = ctypes.c_int(OP_T)
    check(lib.cublasLtMatmulDescSetAttribute(description, DESC_TRANSA, ctypes.byref(transposed), ctypes.c_size_t(4)), "transa")
    for layout in layouts:
        check(lib.cublasLtMatrixLayoutCreate(ctypes.byref(layout), R_16BF, ctypes.c_uint64(N), ctypes.c_uint64(N), ctypes.c_int64(N)), "layout")
    check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "preference")
    room = ctypes.c_uint64(WORKSPACE)
    check(lib.cublasLtMatmulPreferenceSetAttribute(preference, PREF_WORKSPACE, ctypes.byref(room), ctypes.c_size_t(8)), "workspace")
    found, count = ctypes.create_string_buffer(HEURISTIC_BYTES), ctypes.c_int()
    a, b, d = layouts
    check(lib.cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, d, d, preference, 1, found, ctypes.byref(count)), "heuristic")
    if not count.value or struct.unpack_from("<i", found, ALGO_BYTES + 8)[0]:
        leave("cuBLASLt has no algorithm for this product")
    memory = [driver.memory(2 * N * N) for _ in range(3)]
    for seed, address in enumerate(memory[:2]):
        driver.fill(address, 2 * N * N, seed)
    workspace, alpha, beta = driver.memory(WORKSPACE), ctypes.c_float(1), ctypes.c_float(0)

    def run():
        check(lib.cublasLtMatmul(handle, description, ctypes.byref(alpha), memory[0], a, memory[1], b, ctypes.byref(beta), memory[2], d, memory[2], d,
                                 found, workspace, ctypes.c_size_t(WORKSPACE), None), "cublasLtMatmul")
    return run


def main():
    if "--dry" in sys.argv:
        leave("the emulated driver has no cuBLASLt")
    lib = find_library()
    if not lib:
        leave("libcublasLt isn't on this machine")
    driver = Driver()
    run = product(lib, driver)
    driver.ms(run)
    best = min(driver.ms(lambda: [run() for _ in range(RUNS)]) / RUNS for _ in range(ROUNDS))
    gflops = 2 * N ** 3 / best / 1e6
    print(json.dumps({"name": "product", "gflops": gflops, "ms": best, "told": f"{gflops / 1e3:.0f} TFLOP/s"}))


if __name__ == "__main__":
    main()
