"""test_findings catches each mutant of the decisions in kernels/cuda/driver.c."""
import collections
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import mutants  # noqa: E402

DRIVER = "kernels/cuda/driver.c"

# name: what it leaves out, old text, new text; the old text occurs exactly once.
MUTANTS = {
    "built": ("a program without kernels looks for a driver", "if (!facts->built)\n        return", "if (false)\n        return"),
    "loaded": ("a library that isn't there is looked at", "if (!facts->loaded)\n        return CUDA", "if (false)\n        return CUDA"),
    "old": ("any driver will do", "facts->version < CUDA_LEAST_VERSION)", "facts->version < 0)"),
    "lacking": ("a driver may lack functions", "if (facts->lacking)\n        return CUDA", "if (false)\n        return CUDA"),
    "init": ("a driver that fails is one without a device", "if (facts->init != CUDA_OK && facts->init != CUDA_NO_DEVICE_FOUND)", "if (false)"),
    "no_device": ("no device is a driver that fails", " && facts->init != CUDA_NO_DEVICE_FOUND)", ")"),
    "none": ("no device is one too few", "if (facts->devices == 0)\n        return CUDA_NO_DEVICE", "if (false)\n        return CUDA_NO_DEVICE"),
    "count": ("one device more than there are", "facts->ordinal >= facts->devices)\n        return CUDA", "facts->ordinal > facts->devices)\n        return CUDA"),
    "capability": ("any device will do", "facts->capability < CUDA_LEAST_CAPABILITY ?", "facts->capability < 0 ?"),
    "just": ("the least capability is too little", "facts->capability < CUDA_LEAST_CAPABILITY ?", "facts->capability <= CUDA_LEAST_CAPABILITY ?"),
    "unknown": ("an unknown result loses the device", "a result that this version doesn't know\", \"\",\n                               false};",
                "a result that this version doesn't know\", \"\",\n                               true};"),
    "watch_loaded": ("a library of NVML that isn't there is asked", "if (!facts->loaded)\n        return NVML", "if (false)\n        return NVML"),
    "watch_lacking": ("NVML may lack functions", "if (facts->lacking)\n        return NVML", "if (false)\n        return NVML"),
    "watch_init": ("NVML that doesn't start has the device", "if (facts->init != NVML_OK)", "if (false)"),
    "watch_device": ("a device that NVML doesn't show is watched", "facts->device == NVML_OK ?", "true ?"),
    "xid_others": ("a fault of another process's kernel ends a worker", "memory that isn't there\", false}", "memory that isn't there\", true}"),
    "xid_bus": ("a device that fell off its bus serves on", "{79, \"it fell off its bus\", true}", "{79, \"it fell off its bus\", false}"),
    "xid_unknown": ("an XID that isn't known ends a worker", "a number that this version doesn't know\", false}", "a number that this version doesn't know\", true}"),
    "slow_idle": ("an idle device is slow", "[DEVICE_POWER_CAP] = 0x04", "[DEVICE_POWER_CAP] = 0x05"),
}
DEFAULT = ("count",)  # without --long
Mutant = collections.namedtuple("Mutant", "name why edits")


def test_every_mutant_is_caught(capsys):
    code = mutants.Code("cuda_findings", ["tests/cuda/driver/test_findings.c", DRIVER, "kernels/cuda/image.c", "common/base/status.c", "common/base/utf8.c", "common/base/assert.c"],
                        optimize="-O1", libraries=["-lcmocka", "-ldl"])

    def verdict(mutant):
        return mutant, mutants.first_failure(mutants.run(code.link(mutant.name, code.mutate(mutant.name, mutant.edits))))
    assert not mutants.LONG or not verdict(Mutant("unchanged", "", ()))[1]
    chosen = [Mutant(name, MUTANTS[name][0], [(DRIVER, *MUTANTS[name][1:])]) for name in (MUTANTS if mutants.LONG else DEFAULT)]
    assert not mutants.survivors(mutants.in_parallel(verdict, chosen), capsys)
