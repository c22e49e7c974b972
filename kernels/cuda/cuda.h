/* Inside kernels/cuda: an open device. driver.c finds the driver, cuda.c opens the device and runs
 * operations as launches of plans (launch.h), memory.c has its memory and transfers, blocks.c what
 * runs beside a step and memory that processes share, queues.c its streams and events, graphs.c its
 * passes, limits.c measures its speed, and monitor.c watches it.
 *
 * Queued work of a device fails for good: CUDA ends the process's context. The first such result is
 * logged with its name and meaning, and every later call returns STATUS_UNAVAILABLE.
 *
 * Several threads may call, as kernels.h says: shared fields are constants after opening, or
 * atomic. */
#ifndef BATON_KERNELS_CUDA_CUDA_H
#define BATON_KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"
#include "kernels/cpu/pool.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"

#include <stdatomic.h>

#define CUDA_KERNELS_MAX 128 /* different kernels */
#define CUDA_ISA_BYTES   16
#define CUDA_NAME_BYTES  32

/* A kernel that was launched before. */
struct cuda_kernel {
    const char *name;
    struct cuda_function *function;
    uint32_t shared_bytes; /* allowed */
};

struct cuda_stream {
    struct cuda_stream_handle *handle;
    struct cuda_event *events[KERNELS_TIMED_EVENTS]; /* event n is at n % KERNELS_TIMED_EVENTS */
    _Atomic kernels_event passed;                    /* events up to it have been seen to pass */
    int signal; /* the eventfd plus 1 that passed events write to; 0: none */
};

/* Kernels that run beside a step (blocks.c). */
enum cuda_beside { CUDA_BESIDE_SUMS, CUDA_BESIDE_GATHER, CUDA_BESIDE_KERNELS };

/* Memory that other processes may map. */
struct cuda_shared {
    uint64_t address, handle;
    size_t bytes; /* 0: there is none */
};

/* The device by NVML. Opening is of the main thread, all else of the one that watches. */
struct cuda_monitor {
    struct nvml_library nvml;
    struct nvml_device *device;
    struct nvml_event_set *events; /* NULL: none can be waited for */
    bool is_open;
    bool counts_errors;             /* it counts errors of its memory: */
    unsigned long long uncorrected; /* when it was opened */
    uint64_t xids;
};

struct cuda {
    struct cuda_driver driver;
    int device; /* CUdevice */
    struct cuda_context *context;
    uint64_t id; /* different for each open device of the process */
    struct cuda_module *modules[CUDA_IMAGES_MAX];
    uint32_t module_count;
    struct cuda_target target;
    struct cuda_kernel kernels[CUDA_KERNELS_MAX];
    uint32_t kernel_count;
    struct cuda_plan plan; /* the operation under way */
    struct buffer staging; /* rows on their way to the packed form */
    struct cuda_stream streams[KERNELS_STREAMS];
    struct cuda_graph_exec *passes[KERNELS_MAX_PASSES]; /* NULL: none */
    struct cuda_shared shared;
    /* Used by the thread of KERNELS_TRANSFERS alone. */
    struct cuda_function *beside[CUDA_BESIDE_KERNELS];
    struct cuda_plan beside_plan;
    struct pool *pool; /* host work at set-up */
    void **adopted;    /* host memory that is registered */
    size_t adopted_count, adopted_room;
    _Atomic int lost; /* the result that ended the context, or stands for it; CUDA_OK: none */
    struct cuda_monitor monitor;
    char isa[CUDA_ISA_BYTES];
    char name[CUDA_NAME_BYTES], quantized_name[CUDA_NAME_BYTES]; /* for the numerics id */
    char measured[64]; /* the shape of the last measured peak */
};

/* Makes the context current for the calling thread. STATUS_UNAVAILABLE: the device is lost. */
enum status cuda_enter(struct cuda *self) WARN_UNUSED;
/* Turns a result into a status, and logs it if it is none of a caller's. Notes a lost device.
 * STATUS_LIMIT: no memory; STATUS_UNAVAILABLE: lost; STATUS_INTERNAL: all others. */
enum status cuda_check(struct cuda *self, int result, const char *call) WARN_UNUSED;
/* Finds the kernel of this name in the modules. */
enum status cuda_find_function(struct cuda *self, const char *kernel,
                               struct cuda_function **function) WARN_UNUSED;

/* --- memory.c --- */

size_t cuda_available_bytes(const struct kernels *kernels);
size_t cuda_whole_bytes(const struct kernels *kernels);
enum status cuda_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer) WARN_UNUSED;
void cuda_free(struct kernels *kernels, struct buffer *buffer);
enum status cuda_adopt(struct kernels *kernels, void *address, size_t bytes,
                       struct buffer *buffer) WARN_UNUSED;
void cuda_disown(struct cuda *self); /* ends what cuda_adopt has registered */
void *cuda_host_alloc(struct kernels *kernels, size_t bytes);
void cuda_host_free(struct kernels *kernels, void *memory);
enum status cuda_upload(struct kernels *kernels, enum kernels_stream stream, struct buffer *target,
                        size_t offset, const void *host, size_t bytes) WARN_UNUSED;
enum status cuda_read_back(struct kernels *kernels, enum kernels_stream stream,
                           const struct buffer *source, size_t offset, void *host,
                           size_t bytes) WARN_UNUSED;
enum status cuda_copy(struct kernels *kernels, enum kernels_stream stream,
                      const struct buffer *source, size_t source_offset, struct buffer *target,
                      size_t target_offset, size_t bytes) WARN_UNUSED;

/* --- limits.c --- */

double cuda_measure_peak(struct kernels *kernels, enum weight_type type, const char **instruction);
uint64_t cuda_measure_read(struct kernels *kernels, const struct buffer *memory);

/* --- blocks.c --- */

extern const struct kernels_sharing cuda_sharing;
enum status cuda_block_sums(struct kernels *kernels, const struct buffer *pool,
                            const struct kv_sum_job *job, struct buffer *sums) WARN_UNUSED;
void cuda_free_shared(struct cuda *self); /* without any: nothing */

/* --- queues.c --- */

extern const struct kernels_queues cuda_queues;
enum status cuda_sync(struct kernels *kernels) WARN_UNUSED;
/* Creates the streams and their events. `sleeps`: waits sleep, and don't spin. After an error
 * cuda_queues_deinit is due. */
enum status cuda_queues_init(struct cuda *self, bool sleeps) WARN_UNUSED;
void cuda_queues_deinit(struct cuda *self);

/* --- graphs.c --- */

extern const struct kernels_passes cuda_passes;
void cuda_passes_deinit(struct cuda *self); /* none may be under way */

/* --- monitor.c --- */

/* Finds NVML and the device in it. A device without it is only not watched: that is logged. */
void cuda_monitor_open(struct cuda *self);
void cuda_monitor_close(struct cuda *self);
enum status cuda_watch(struct kernels *kernels, uint32_t timeout_ms,
                       struct device_health *health) WARN_UNUSED;

#endif
