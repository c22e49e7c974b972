/* NVIDIA's driver, found at run time: the program never links it, so that one binary runs on every
 * machine. driver.c loads libcuda.so.1 (or the library that BATON_CUDA_DRIVER names: a check
 * without a GPU, see docs/cuda.md), looks its functions up, and says in plain words what it found.
 *
 * The types stand for those of NVIDIA's cuda.h, which a build doesn't need: tests/cuda compares
 * them where the toolkit is installed. Results are CUresult numbers. The library stays loaded until
 * the process ends. */
#ifndef BATON_KERNELS_CUDA_DRIVER_H
#define BATON_KERNELS_CUDA_DRIVER_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_LIBRARY_VARIABLE "BATON_CUDA_DRIVER"

/* The kernels of this program: a fat binary of nvcc for each source of kernels. `cuda_image_count`
 * 0: it was built without nvcc, and the only image is empty. */
#define CUDA_IMAGES_MAX 16
extern const unsigned char *const cuda_images[];
extern const size_t cuda_image_count;

/* The oldest driver: CUDA 13.0, which are drivers from 580 on. The kernels are made for compute
 * capability 9.0 (sm_90a), and one portable kind from 8.0 on. */
#define CUDA_LEAST_VERSION    13000
#define CUDA_LEAST_CAPABILITY 80

struct cuda_context;
struct cuda_stream_handle;
struct cuda_event;
struct cuda_module;
struct cuda_function;
struct cuda_graph;
struct cuda_graph_exec;

/* CUlaunchAttribute: the size of a cluster, and programmatic stream serialization. */
struct cuda_launch_attribute {
    uint32_t id, pad;
    union {
        char room[64];
        struct {
            uint32_t x, y, z;
        } cluster;
        int early;
    } value;
};
#define CUDA_ATTRIBUTE_CLUSTER 4
#define CUDA_ATTRIBUTE_EARLY   6

/* CUlaunchConfig */
struct cuda_launch_config {
    uint32_t grid[3], block[3], shared_bytes;
    struct cuda_stream_handle *stream;
    struct cuda_launch_attribute *attributes;
    uint32_t attribute_count;
};

/* CUdevice_attribute */
#define CUDA_DEVICE_SMS              16
#define CUDA_DEVICE_CAPABILITY_MAJOR 75
#define CUDA_DEVICE_CAPABILITY_MINOR 76
#define CUDA_DEVICE_SHARED_BYTES     97
#define CUDA_DEVICE_MAPS_MEMORY      102
#define CUDA_DEVICE_EXPORTS          103 /* memory, by a file descriptor */
#define CUDA_DEVICE_CARDS            110 /* network cards can be let at such memory */
/* CUfunction_attribute */
#define CUDA_FUNCTION_SHARED_BYTES 8

/* CUmemLocation, CUmemAllocationProp, CUmemAccessDesc */
struct cuda_location {
    int type, id;
};
struct cuda_memory_kind {
    int type, handle_types;
    struct cuda_location location;
    void *windows;
    uint8_t compression, rdma;
    uint16_t usage;
    uint8_t reserved[4];
};
struct cuda_access {
    struct cuda_location location;
    int rights;
};
#define CUDA_MEMORY_PINNED     1
#define CUDA_HANDLE_DESCRIPTOR 1
#define CUDA_LOCATION_DEVICE   1
#define CUDA_READS             1
#define CUDA_READS_AND_WRITES  3

/* Flags: memory for all contexts of the process, memory that the device sees, streams that don't
 * wait for the default one, and waits that sleep. */
#define CUDA_HOST_PORTABLE       1
#define CUDA_HOST_MAPPED         2
#define CUDA_STREAM_NON_BLOCKING 1
#define CUDA_EVENT_SLEEPS        1
/* CUstreamCaptureMode: the thread may call anything meanwhile, as a load of a kernel does. */
#define CUDA_CAPTURE_RELAXED 2

/* CUresult */
enum cuda_result {
    CUDA_OK = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NO_DEVICE_FOUND = 100,
    CUDA_INVALID_DEVICE = 101,
    CUDA_INVALID_IMAGE = 200,
    CUDA_INVALID_CONTEXT = 201,
    CUDA_ECC_UNCORRECTABLE = 214,
    CUDA_OPERATING_SYSTEM = 304,
    CUDA_SYMBOL_NOT_FOUND = 500,
    CUDA_NOT_READY = 600,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_ALREADY_REGISTERED = 712,
    CUDA_LAUNCH_FAILED = 719,
    CUDA_CAPTURE_UNSUPPORTED = 900,
    CUDA_CAPTURE_INVALIDATED = 901,
    CUDA_UNKNOWN = 999,
};

/* clang-format off */
/* X(field, symbol, parameters); all return a CUresult. */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(init, cuInit, (unsigned flags))                                                            \
    X(device_count, cuDeviceGetCount, (int *count))                                              \
    X(device_get, cuDeviceGet, (int *device, int ordinal))                                       \
    X(device_name, cuDeviceGetName, (char *name, int bytes, int device))                         \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))           \
    X(device_bus, cuDeviceGetPCIBusId, (char *bus, int bytes, int device))                       \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct cuda_context **context, int device))     \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                               \
    X(context_use, cuCtxSetCurrent, (struct cuda_context *context))                              \
    X(priorities, cuCtxGetStreamPriorityRange, (int *least, int *greatest))                      \
    X(memory_info, cuMemGetInfo_v2, (size_t *free, size_t *total))                               \
    X(memory_alloc, cuMemAlloc_v2, (uint64_t *address, size_t bytes))                            \
    X(memory_free, cuMemFree_v2, (uint64_t address))                                             \
    X(memory_granularity, cuMemGetAllocationGranularity,                                         \
      (size_t *bytes, const struct cuda_memory_kind *kind, int option))                           \
    X(memory_create, cuMemCreate,                                                                \
      (uint64_t *handle, size_t bytes, const struct cuda_memory_kind *kind,                        \
       unsigned long long flags))                                                                  \
    X(memory_release, cuMemRelease, (uint64_t handle))                                           \
    X(memory_export, cuMemExportToShareableHandle,                                               \
      (void *shareable, uint64_t handle, int type, unsigned long long flags))                      \
    X(memory_import, cuMemImportFromShareableHandle,                                             \
      (uint64_t *handle, void *shareable, int type))                                               \
    X(address_reserve, cuMemAddressReserve,                                                      \
      (uint64_t *address, size_t bytes, size_t alignment, uint64_t wanted,                         \
       unsigned long long flags))                                                                  \
    X(address_free, cuMemAddressFree, (uint64_t address, size_t bytes))                          \
    X(memory_map, cuMemMap,                                                                      \
      (uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags))  \
    X(memory_unmap, cuMemUnmap, (uint64_t address, size_t bytes))                                \
    X(memory_access, cuMemSetAccess,                                                             \
      (uint64_t address, size_t bytes, const struct cuda_access *access, size_t count))            \
    X(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                 \
    X(host_free, cuMemFreeHost, (void *memory))                                                  \
    X(host_register, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags))         \
    X(host_unregister, cuMemHostUnregister, (void *memory))                                      \
    X(host_device_address, cuMemHostGetDevicePointer_v2,                                         \
      (uint64_t *address, void *memory, unsigned flags))                                           \
    X(fill, cuMemsetD8Async,                                                                     \
      (uint64_t address, unsigned char byte, size_t bytes, struct cuda_stream_handle *stream))     \
    X(copy, cuMemcpyAsync,                                                                       \
      (uint64_t target, uint64_t source, size_t bytes, struct cuda_stream_handle *stream))         \
    X(stream_create, cuStreamCreateWithPriority,                                                 \
      (struct cuda_stream_handle **stream, unsigned flags, int priority))                          \
    X(stream_destroy, cuStreamDestroy_v2, (struct cuda_stream_handle *stream))                   \
    X(stream_sync, cuStreamSynchronize, (struct cuda_stream_handle *stream))                     \
    X(stream_wait, cuStreamWaitEvent,                                                            \
      (struct cuda_stream_handle *stream, struct cuda_event *event, unsigned flags))               \
    X(stream_call, cuLaunchHostFunc,                                                             \
      (struct cuda_stream_handle *stream, void (*function)(void *), void *context))                \
    X(event_create, cuEventCreate, (struct cuda_event **event, unsigned flags))                  \
    X(event_destroy, cuEventDestroy_v2, (struct cuda_event *event))                              \
    X(event_record, cuEventRecord,                                                               \
      (struct cuda_event *event, struct cuda_stream_handle *stream))                               \
    X(event_query, cuEventQuery, (struct cuda_event *event))                                     \
    X(event_sync, cuEventSynchronize, (struct cuda_event *event))                                \
    X(event_elapsed, cuEventElapsedTime_v2,                                                      \
      (float *milliseconds, struct cuda_event *begin, struct cuda_event *end))                     \
    X(module_load, cuModuleLoadData, (struct cuda_module **module, const void *image))           \
    X(module_unload, cuModuleUnload, (struct cuda_module *module))                               \
    X(module_function, cuModuleGetFunction,                                                      \
      (struct cuda_function **function, struct cuda_module *module, const char *name))             \
    X(function_set, cuFuncSetAttribute,                                                          \
      (struct cuda_function *function, int attribute, int value))                                  \
    X(launch, cuLaunchKernelEx,                                                                  \
      (const struct cuda_launch_config *config, struct cuda_function *function,                    \
       void **parameters, void **extra))                                                           \
    X(capture_begin, cuStreamBeginCapture_v2, (struct cuda_stream_handle *stream, int mode))       \
    X(capture_end, cuStreamEndCapture,                                                             \
      (struct cuda_stream_handle *stream, struct cuda_graph **graph))                              \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                              \
      (struct cuda_graph_exec **made, struct cuda_graph *graph, unsigned long long flags))         \
    X(graph_upload, cuGraphUpload,                                                                 \
      (struct cuda_graph_exec *graph, struct cuda_stream_handle *stream))                          \
    X(graph_launch, cuGraphLaunch,                                                                 \
      (struct cuda_graph_exec *graph, struct cuda_stream_handle *stream))                          \
    X(graph_destroy, cuGraphDestroy, (struct cuda_graph *graph))                                   \
    X(graph_exec_destroy, cuGraphExecDestroy, (struct cuda_graph_exec *graph))
/* clang-format on */

/* The functions: fields are set if cuda_driver_find returned CUDA_USABLE. */
struct cuda_driver {
#define CUDA_FIELD(NAME, SYMBOL, PARAMETERS) int(*NAME) PARAMETERS;
    CUDA_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
};

/* A machine is usable, or lacks something: each finding but CUDA_USABLE has a sentence. */
enum cuda_finding {
    CUDA_USABLE,
    CUDA_NOT_BUILT,      /* this program holds no kernels: it was built without nvcc */
    CUDA_NO_DRIVER,      /* no library */
    CUDA_DRIVER_PARTIAL, /* the library lacks a function */
    CUDA_DRIVER_TOO_OLD,
    CUDA_DRIVER_FAILS, /* cuInit */
    CUDA_NO_DEVICE,
    CUDA_NO_SUCH_DEVICE,
    CUDA_DEVICE_TOO_OLD,
};
extern const char *const cuda_finding_codes[]; /* in the order of the enum: stable, for logs */

/* The facts behind a finding. */
struct cuda_facts {
    const char *file; /* its path or name */
    bool built;       /* the program holds kernels, or the library is one of BATON_CUDA_DRIVER */
    bool loaded;
    const char *lacking; /* a function that the library lacks; NULL: none */
    int version;         /* 13000: CUDA 13.0 */
    int init;            /* the result of cuInit */
    uint32_t devices, ordinal;
    int capability; /* 90: sm_90 */
    char device[64];
};

/* Decides; PURE. */
enum cuda_finding cuda_judge(const struct cuda_facts *facts);
/* Says a finding in a sentence that ends with its code. Returns STATUS_NOT_FOUND, or STATUS_OK for
 * CUDA_USABLE. PURE. */
enum status cuda_explain(enum cuda_finding finding, const struct cuda_facts *facts,
                         struct error *err);

/* Loads the library and looks at device `ordinal`. Fills *facts in any case, and `driver` and
 * *device (CUdevice) for CUDA_USABLE. */
enum cuda_finding cuda_driver_find(uint32_t ordinal, struct cuda_driver *driver, int *device,
                                   struct cuda_facts *facts);

/* Describes a result that isn't CUDA_OK. `lost`: the context is gone for good, and with it all of
 * the process's work on the device. */
struct cuda_fault {
    int result;
    const char *name;    /* "CUDA_ERROR_ECC_UNCORRECTABLE" */
    const char *meaning; /* in plain words */
    const char *xid;     /* XID numbers of the driver's line in the system's log; "": none */
    bool lost;
};
struct cuda_fault cuda_fault_of(int result); /* PURE */

/* Looks functions up in a library. Returns the first one that is missing, or NULL. */
struct cuda_symbol {
    const char *name;
    void *place; /* holds a pointer to a function */
};
const char *cuda_look_up(void *library, const struct cuda_symbol *symbols, size_t count);

/* --- NVML, the library of the driver that tells numbers and events of a device (monitor.c). It is
 * libnvidia-ml.so.1; a library that BATON_CUDA_DRIVER names stands for both. Results are
 * nvmlReturn_t numbers. --- */

struct nvml_device;
struct nvml_event_set;

/* nvmlMemory_t */
struct nvml_memory {
    unsigned long long total, free, used;
};

/* nvmlTemperature_t, version 1 */
struct nvml_temperature {
    unsigned version;
    int sensor, celsius;
};
#define NVML_TEMPERATURE_VERSION ((unsigned)sizeof(struct nvml_temperature) | 1u << 24)

/* nvmlEventData_t */
struct nvml_event {
    struct nvml_device *device;
    unsigned long long type, data; /* data: the number of an XID */
    unsigned gpu_instance, compute_instance;
};
#define NVML_EVENT_DOUBLE_BIT 2ull
#define NVML_EVENT_XID        8ull

#define NVML_SM_CLOCK         1 /* nvmlClockType_t */
#define NVML_GPU_TEMPERATURE  0 /* nvmlTemperatureSensors_t */
#define NVML_ECC_CORRECTED    0 /* nvmlMemoryErrorType_t */
#define NVML_ECC_UNCORRECTED  1
#define NVML_ECC_SINCE_LOADED 0 /* nvmlEccCounterType_t: volatile */

/* nvmlReturn_t */
enum nvml_result {
    NVML_OK = 0,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMEOUT = 10,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_UNKNOWN = 999,
};

/* clang-format off */
/* X(field, symbol, parameters); all return an nvmlReturn_t. */
#define NVML_FUNCTIONS(X)                                                                          \
    X(init, nvmlInit_v2, (void))                                                                 \
    X(shutdown, nvmlShutdown, (void))                                                            \
    X(device_at, nvmlDeviceGetHandleByPciBusId_v2,                                               \
      (const char *bus, struct nvml_device **device))                                            \
    X(memory, nvmlDeviceGetMemoryInfo,                                                           \
      (struct nvml_device *device, struct nvml_memory *memory))                                  \
    X(clock, nvmlDeviceGetClockInfo,                                                             \
      (struct nvml_device *device, int clock, unsigned *megahertz))                              \
    X(power, nvmlDeviceGetPowerUsage, (struct nvml_device *device, unsigned *milliwatts))        \
    X(temperature, nvmlDeviceGetTemperatureV,                                                    \
      (struct nvml_device *device, struct nvml_temperature *temperature))                        \
    X(slowdowns, nvmlDeviceGetCurrentClocksEventReasons,                                         \
      (struct nvml_device *device, unsigned long long *reasons))                                 \
    X(ecc_errors, nvmlDeviceGetTotalEccErrors,                                                   \
      (struct nvml_device *device, int kind, int counter, unsigned long long *count))            \
    X(events_create, nvmlEventSetCreate, (struct nvml_event_set **set))                          \
    X(events_free, nvmlEventSetFree, (struct nvml_event_set *set))                               \
    X(events_supported, nvmlDeviceGetSupportedEventTypes,                                        \
      (struct nvml_device *device, unsigned long long *types))                                   \
    X(events_register, nvmlDeviceRegisterEvents,                                                 \
      (struct nvml_device *device, unsigned long long types, struct nvml_event_set *set))        \
    X(events_wait, nvmlEventSetWait_v2,                                                          \
      (struct nvml_event_set *set, struct nvml_event *event, unsigned timeout_ms))
/* clang-format on */

struct nvml_library {
#define NVML_FIELD(NAME, SYMBOL, PARAMETERS) int(*NAME) PARAMETERS;
    NVML_FUNCTIONS(NVML_FIELD)
#undef NVML_FIELD
};

/* A device is watched, or it isn't: each finding but NVML_USABLE has a sentence. */
enum nvml_finding {
    NVML_USABLE,
    NVML_NO_LIBRARY,
    NVML_PARTIAL,   /* the library lacks a function */
    NVML_FAILS,     /* nvmlInit */
    NVML_NO_DEVICE, /* it doesn't know the device, or doesn't show it to this process */
};
struct nvml_facts {
    const char *file;
    bool loaded;
    const char *lacking; /* NULL: none */
    int init, device;    /* results */
};
enum nvml_finding nvml_judge(const struct nvml_facts *facts); /* PURE */
/* Says a finding as cuda_explain does. PURE. */
enum status nvml_explain(enum nvml_finding finding, const struct nvml_facts *facts,
                         struct error *err);

/* Describes an XID. `ends`: the device can't be trusted any more, or its memory has lost bits.
 * Otherwise it is of one process (a fault of a kernel: that process's own calls fail), or a note.
 * So a fault of one process doesn't end another one on the same device. */
struct cuda_xid {
    unsigned long long number;
    const char *meaning; /* in plain words */
    bool ends;
};
struct cuda_xid cuda_xid_of(unsigned long long number); /* PURE */
/* Turns NVML's reasons for a lower clock into bits of enum device_slowdown. PURE. */
uint32_t cuda_slowdowns_of(unsigned long long reasons);

#endif
