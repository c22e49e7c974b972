#include "kernels/cuda/driver.h"

#include "kernels/backend.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

const char *const cuda_finding_codes[] = {
    "cuda_usable",         "cuda_not_built",      "cuda_no_driver",
    "cuda_driver_partial", "cuda_driver_old",     "cuda_driver_fails",
    "cuda_no_device",      "cuda_no_such_device", "cuda_device_old",
};

/* --- decisions --- */

enum cuda_finding cuda_judge(const struct cuda_facts *facts)
{
    if (!facts->built)
        return CUDA_NOT_BUILT;
    if (!facts->loaded)
        return CUDA_NO_DRIVER;
    if (facts->version && facts->version < CUDA_LEAST_VERSION)
        return CUDA_DRIVER_TOO_OLD;
    if (facts->lacking)
        return CUDA_DRIVER_PARTIAL;
    if (facts->init != CUDA_OK && facts->init != CUDA_NO_DEVICE_FOUND)
        return CUDA_DRIVER_FAILS;
    if (facts->devices == 0)
        return CUDA_NO_DEVICE;
    if (facts->ordinal >= facts->devices)
        return CUDA_NO_SUCH_DEVICE;
    return facts->capability < CUDA_LEAST_CAPABILITY ? CUDA_DEVICE_TOO_OLD : CUDA_USABLE;
}

enum status cuda_explain(enum cuda_finding finding, const struct cuda_facts *facts,
                         struct error *err)
{
    const char *code = cuda_finding_codes[finding];
    enum status status = STATUS_NOT_FOUND;
    switch (finding) {
    case CUDA_USABLE: return STATUS_OK;
    case CUDA_NOT_BUILT:
        return error_set(err, status,
                         "this program holds no kernels for GPUs: it was built without nvcc. Build "
                         "it with CUDA 13, or use device cpu (%s)",
                         code);
    case CUDA_NO_DRIVER:
        return error_set(err, status,
                         "%s can't be loaded: this machine has no NVIDIA driver, or a container "
                         "wasn't given it. Install one, or use device cpu (%s)",
                         facts->file, code);
    case CUDA_DRIVER_PARTIAL:
        return error_set(err, status,
                         "%s lacks the function %s: it isn't a whole NVIDIA driver. Install it "
                         "again, or use device cpu (%s)",
                         facts->file, facts->lacking, code);
    case CUDA_DRIVER_TOO_OLD:
        return error_set(err, status,
                         "the NVIDIA driver is of CUDA %d.%d, and %d.%d is needed: install driver "
                         "580 or newer, or use device cpu (%s)",
                         facts->version / 1000, facts->version % 1000 / 10,
                         CUDA_LEAST_VERSION / 1000, CUDA_LEAST_VERSION % 1000 / 10, code);
    case CUDA_DRIVER_FAILS:
        return error_set(err, status,
                         "the NVIDIA driver doesn't start: cuInit returns %d (%s: %s). Look at "
                         "nvidia-smi, or use device cpu (%s)",
                         facts->init, cuda_fault_of(facts->init).name,
                         cuda_fault_of(facts->init).meaning, code);
    case CUDA_NO_DEVICE:
        return error_set(err, status,
                         "the NVIDIA driver shows no GPU to this process. Look at nvidia-smi and "
                         "CUDA_VISIBLE_DEVICES, or use device cpu (%s)",
                         code);
    case CUDA_NO_SUCH_DEVICE:
        return error_set(
            err, status,
            "there is no device cuda:%u: this process sees %u, the last is cuda:%u (%s)",
            facts->ordinal, facts->devices, facts->devices - 1, code);
    case CUDA_DEVICE_TOO_OLD:
        return error_set(err, status,
                         "cuda:%u (%s) has compute capability %d.%d, and %d.%d is needed: use "
                         "another GPU or device cpu (%s)",
                         facts->ordinal, facts->device, facts->capability / 10,
                         facts->capability % 10, CUDA_LEAST_CAPABILITY / 10,
                         CUDA_LEAST_CAPABILITY % 10, code);
    }
    return STATUS_INTERNAL;
}

/* Results of queued work, and some that set-up may meet. Meanings of XID numbers: NVIDIA's "XID
 * Errors". */
static const struct cuda_fault faults[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", "a call had a wrong argument", "", false},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "the device's memory is used up", "", false},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "the driver isn't started", "", true},
    {4, "CUDA_ERROR_DEINITIALIZED", "the driver is being stopped", "", true},
    {34, "CUDA_ERROR_STUB_LIBRARY", "a library for linking was loaded, not a driver", "", true},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is taken by another process or gone", "79",
     true},
    {100, "CUDA_ERROR_NO_DEVICE", "no device is left", "79", true},
    {200, "CUDA_ERROR_INVALID_IMAGE", "the kernels can't be read", "", false},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "the context is gone", "", true},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the program holds no kernels for this GPU", "", false},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "the device's memory has an error that ECC can't correct",
     "48, 94, 95", true},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "an NVLink has an error that can't be corrected", "74",
     true},
    {226, "CUDA_ERROR_CONTAINED", "an error of the device's memory was contained to this process",
     "94", true},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "the operating system refused", "", false},
    {500, "CUDA_ERROR_NOT_FOUND", "a kernel isn't in this program", "", false},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel touched memory that isn't there", "31", true},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "a kernel needs more than the device has", "",
     false},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran too long and was ended", "8", true},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context is gone", "", true},
    {710, "CUDA_ERROR_ASSERT", "a check in a kernel failed", "", true},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel's stack is broken", "13", true},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel met an instruction that isn't one", "13",
     true},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel used an address that isn't aligned", "13",
     true},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used memory of another kind", "13", true},
    {718, "CUDA_ERROR_INVALID_PC", "a kernel left its code", "13", true},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed, or the device fell off its bus",
     "13, 31, 79", true},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system's fabric manager isn't ready", "", false},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the driver's library and its kernel module differ",
     "", false},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "a call can't be a part of a graph", "", false},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "a graph wasn't recorded whole", "", false},
    {999, "CUDA_ERROR_UNKNOWN", "the driver doesn't say", "79, 119", true},
};

struct cuda_fault cuda_fault_of(int result)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (faults[i].result == result)
            return faults[i];
    return (struct cuda_fault){result, "CUDA_ERROR", "a result that this version doesn't know", "",
                               false};
}

enum nvml_finding nvml_judge(const struct nvml_facts *facts)
{
    if (!facts->loaded)
        return NVML_NO_LIBRARY;
    if (facts->lacking)
        return NVML_PARTIAL;
    if (facts->init != NVML_OK)
        return NVML_FAILS;
    return facts->device == NVML_OK ? NVML_USABLE : NVML_NO_DEVICE;
}

enum status nvml_explain(enum nvml_finding finding, const struct nvml_facts *facts,
                         struct error *err)
{
    switch (finding) {
    case NVML_USABLE: break;
    case NVML_NO_LIBRARY:
        return error_set(err, STATUS_NOT_FOUND,
                         "%s can't be loaded: give the container the driver's utilities "
                         "(NVIDIA_DRIVER_CAPABILITIES=compute,utility) (nvml_no_library)",
                         facts->file);
    case NVML_PARTIAL:
        return error_set(err, STATUS_NOT_FOUND,
                         "%s lacks the function %s: install driver 580 or newer (nvml_partial)",
                         facts->file, facts->lacking);
    case NVML_FAILS:
        return error_set(err, STATUS_NOT_FOUND,
                         "nvmlInit returns %d: look at nvidia-smi (nvml_fails)", facts->init);
    case NVML_NO_DEVICE:
        return error_set(err, STATUS_NOT_FOUND,
                         "NVML doesn't show the device to this process (%d): look at nvidia-smi "
                         "(nvml_no_device)",
                         facts->device);
    }
    return STATUS_OK;
}

/* NVIDIA's "XID Errors", in other words. */
static const struct cuda_xid xids[] = {
    {8, "a kernel ran too long and was ended", false},
    {13, "a kernel met an instruction or address that isn't sound", false},
    {31, "a kernel touched memory that isn't there", false},
    {32, "the device was given broken commands", false},
    {38, "the driver's firmware failed", true},
    {43, "a process's work was stopped after its own error", false},
    {45, "a process's work was ended, after another error or with the process", false},
    {48, "its memory has an error that ECC can't correct", true},
    {61, "its microcontroller has met a breakpoint or gave a warning", true},
    {62, "its microcontroller has stopped", true},
    {63, "a bad row of its memory will be replaced at the next reset", false},
    {64, "a bad row of its memory can't be replaced", true},
    {68, "its video decoder failed", false},
    {69, "a process used an engine wrongly", false},
    {74, "an NVLink failed", false},
    {79, "it fell off its bus", true},
    {92, "its memory has many errors that ECC corrects", false},
    {94, "an error of its memory was contained to the process that met it", true},
    {95, "an error of its memory wasn't contained", true},
    {109, "a process's work couldn't be switched out in time", false},
    {119, "its system processor doesn't answer", true},
    {120, "its system processor failed", true},
    {140, "its memory has an error that wasn't recovered", true},
    {143, "it couldn't be started", true},
    {154, "it asks for an action, which nvidia-smi names", false},
};

struct cuda_xid cuda_xid_of(unsigned long long number)
{
    for (size_t i = 0; i < sizeof xids / sizeof *xids; i++)
        if (xids[i].number == number)
            return xids[i];
    return (struct cuda_xid){number, "a number that this version doesn't know", false};
}

uint32_t cuda_slowdowns_of(unsigned long long reasons)
{
    /* nvmlClocksEventReasons; left out: idle, clocks that were set, boost with other devices */
    static const unsigned char bits[DEVICE_SLOWDOWNS] = {
        [DEVICE_POWER_CAP] = 0x04,        [DEVICE_HARDWARE] = 0x08,    [DEVICE_THERMAL] = 0x20,
        [DEVICE_HARDWARE_THERMAL] = 0x40, [DEVICE_POWER_BRAKE] = 0x80,
    };
    uint32_t slowdowns = 0;
    for (uint32_t i = 0; i < DEVICE_SLOWDOWNS; i++)
        slowdowns |= (reasons & bits[i] ? 1u : 0) << i;
    return slowdowns;
}

/* --- looking --- */

const char *cuda_look_up(void *library, const struct cuda_symbol *symbols, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found)
            return symbols[i].name;
        memcpy(symbols[i].place, &found, sizeof found);
    }
    return NULL;
}

static void look_at_device(const struct cuda_driver *driver, int *device, struct cuda_facts *facts)
{
    int count = 0, major = 0, minor = 0;
    facts->init = driver->init(0);
    if (facts->init != CUDA_OK || driver->device_count(&count) != CUDA_OK || count <= 0)
        return;
    facts->devices = (uint32_t)count;
    if (facts->ordinal >= facts->devices || driver->device_get(device, (int)facts->ordinal))
        return;
    if (driver->device_attribute(&major, CUDA_DEVICE_CAPABILITY_MAJOR, *device) == CUDA_OK &&
        driver->device_attribute(&minor, CUDA_DEVICE_CAPABILITY_MINOR, *device) == CUDA_OK)
        facts->capability = 10 * major + minor;
    if (driver->device_name(facts->device, sizeof facts->device, *device) != CUDA_OK)
        facts->device[0] = '\0';
}

enum cuda_finding cuda_driver_find(uint32_t ordinal, struct cuda_driver *driver, int *device,
                                   struct cuda_facts *facts)
{
    const char *named = getenv(CUDA_LIBRARY_VARIABLE);
    bool is_named = named && *named;
    *facts = (struct cuda_facts){.file = is_named ? named : LIBRARY,
                                 .built = is_named || cuda_image_count > 0,
                                 .ordinal = ordinal};
    void *library = facts->built ? dlopen(facts->file, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return cuda_judge(facts);
    facts->loaded = true;
    int (*version)(int *);
    const struct cuda_symbol first = {"cuDriverGetVersion", &version};
    const struct cuda_symbol symbols[] = {
#define CUDA_ROW(NAME, SYMBOL, PARAMETERS) {#SYMBOL, &driver->NAME},
        CUDA_FUNCTIONS(CUDA_ROW)
#undef CUDA_ROW
    };
    facts->lacking = cuda_look_up(library, &first, 1);
    if (!facts->lacking) {
        if (version(&facts->version) != CUDA_OK)
            facts->version = 0;
        facts->lacking = cuda_look_up(library, symbols, sizeof symbols / sizeof *symbols);
    }
    if (!facts->lacking && facts->version >= CUDA_LEAST_VERSION)
        look_at_device(driver, device, facts);
    return cuda_judge(facts);
}

bool kernels_cuda_usable(struct error *err)
{
    struct cuda_driver driver;
    struct cuda_facts facts;
    int device;
    return cuda_explain(cuda_driver_find(0, &driver, &device, &facts), &facts, err) == STATUS_OK;
}
