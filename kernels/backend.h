/* Inside kernels/ only: struct kernels_backend, the table of functions that is a backend. The fp32
 * reference is one, the CPU has three (one for each name of kernels_info), and kernels_defer makes
 * one that wraps another. kernels_cuda is a GPU.
 *
 * To add a backend: fill the table, declare it at the end of this file, and choose it in kernels.c.
 * Every function is needed. A function named like one of kernels.h has its signature and promises.
 *
 * Duties of kernels.c: it checks arguments and shapes once, keeps the profile, numbers events,
 * counts, and then calls through the table. A backend trusts shapes, ranges and types. The contents
 * of device memory (positions, block ids) are the caller's promise.
 *
 * Duties of a backend: it sizes scratch memory in `open` from constants (tiles, segments, threads),
 * never from the number of rows, so that no operation allocates. It computes any number of
 * sequences, rows and tokens in tiles. It keeps no pointer to a struct of a call: a backend that
 * queues work copies what it needs. It reports a queued operation that fails later in a later
 * call, and in `sync` at the latest. */
#ifndef BATON_KERNELS_BACKEND_H
#define BATON_KERNELS_BACKEND_H

#include "kernels/cpu/placement.h"
#include "kernels/kernels.h"

/* The queues of a backend that runs ahead (kernels_info.runs_ahead). kernels.c has numbered the
 * event of `record`. */
struct kernels_queues {
    enum status (*record)(struct kernels *kernels, enum kernels_stream stream,
                          kernels_event event) WARN_UNUSED;
    void (*signal)(struct kernels *kernels, enum kernels_stream stream, int fd);
    bool (*passed)(struct kernels *kernels, enum kernels_stream stream, kernels_event event);
    enum status (*wait)(struct kernels *kernels, enum kernels_stream stream,
                        kernels_event event) WARN_UNUSED;
    enum status (*order)(struct kernels *kernels, enum kernels_stream behind,
                         enum kernels_stream before, kernels_event event) WARN_UNUSED;
    uint64_t (*event_us)(struct kernels *kernels, enum kernels_stream stream, kernels_event begin,
                         kernels_event end);
};

/* Memory that processes share (kernels_alloc_shared and the calls behind it). `free` of the backend
 * frees it. */
struct kernels_sharing {
    size_t (*bytes)(struct kernels *kernels, size_t bytes); /* kernels_shared_bytes */
    enum status (*alloc)(struct kernels *kernels, size_t bytes, struct buffer *buffer,
                         struct error *err) WARN_UNUSED;
    enum status (*share)(struct kernels *kernels, int *fd, struct error *err) WARN_UNUSED;
    enum status (*map)(struct kernels *kernels, int fd, size_t bytes, struct buffer *buffer,
                       struct error *err) WARN_UNUSED;
    void (*unmap)(struct kernels *kernels, struct buffer *buffer);
    enum status (*gather)(struct kernels *kernels, const struct buffer *source,
                          struct buffer *target, const struct kv_move *moves,
                          uint32_t count) WARN_UNUSED;
};

/* The fused operations of a backend that has such kernels. They see shapes that kernels.c has
 * checked, too. */
struct kernels_fusion {
    size_t (*inputs_bytes)(enum weight_type type, uint32_t rows, uint32_t k);
    enum status (*rmsnorm)(struct kernels *kernels, const struct buffer *x,
                           const struct buffer *weight, double eps, const struct buffer *rows,
                           uint32_t row_count, struct inputs *out) WARN_UNUSED;
    enum status (*attention)(struct kernels *kernels, const struct step_batch *batch,
                             const struct attention_shape *shape, const struct kv_layout *layout,
                             uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                             struct inputs *out) WARN_UNUSED;
    enum status (*linear)(struct kernels *kernels, const struct linear *linear,
                          const struct inputs *in, uint32_t rows,
                          const struct epilogue *epilogue) WARN_UNUSED;
};

/* The passes of a backend that can record operations. kernels.c calls nothing else between begin
 * and end, and knows that `pass` is in range. */
struct kernels_passes {
    enum status (*begin)(struct kernels *kernels) WARN_UNUSED;
    enum status (*end)(struct kernels *kernels, uint32_t pass, size_t most_bytes,
                       size_t *bytes) WARN_UNUSED;
    enum status (*run)(struct kernels *kernels, uint32_t pass) WARN_UNUSED;
};

struct kernels_backend {
    const char *name;             /* kernels_info.name */
    const char *quantized_name;   /* kernels_info.quantized_name; NULL: `name` */
    const char *packing;          /* kernels_info.packing */
    enum weight_type weight_type; /* kernels_info.weight_type */
    enum kv_type kv_type;         /* kernels_info.kv_type; all backends take KV_INT8, too */
    bool device_is_host;          /* kernels_info.device_is_host; kernels_view then calls `sync` */
    const struct kernels_queues *queues;   /* NULL: a call's work is done when it returns */
    const struct kernels_sharing *sharing; /* NULL: its memory is of this process alone */
    const struct kernels_fusion *fusion;   /* NULL: kernels.c runs the sequences, on f32 rows */
    const struct kernels_passes *passes;   /* NULL: kernels_info.records is false */

    /* Sets kernels->state, which `close` frees. kernels->threads and kernels->placement are set
     * already. After an error kernels.c doesn't call `close`. */
    enum status (*open)(struct kernels *kernels, const struct kernels_config *config,
                        struct error *err) WARN_UNUSED;
    void (*close)(struct kernels *kernels);
    const char *(*isa)(const struct kernels *kernels);    /* kernels_info.isa */
    uint32_t (*pass_rows)(const struct kernels *kernels); /* kernels_info.pass_rows */
    size_t (*available_bytes)(const struct kernels *kernels);
    size_t (*whole_bytes)(const struct kernels *kernels);
    size_t (*own_bytes)(const struct kernels *kernels); /* NULL: none */
    /* kernels_check_model; NULL: all are computed */
    enum status (*lacks)(const struct kernels *kernels, enum weight_type type, uint32_t head_dim,
                         struct error *err) WARN_UNUSED;

    enum status (*alloc)(struct kernels *kernels, size_t bytes, struct buffer *buffer) WARN_UNUSED;
    void (*free)(struct kernels *kernels, struct buffer *buffer);
    enum status (*adopt)(struct kernels *kernels, void *address, size_t bytes,
                         struct buffer *buffer) WARN_UNUSED;
    void *(*host_alloc)(struct kernels *kernels, size_t bytes); /* NULL: no memory */
    void (*host_free)(struct kernels *kernels, void *memory);

    /* kernels_linear_bytes and kernels_linear_load; `scales` is NULL exactly if `type` is a float
     * type. Layers begin at zeros. */
    size_t (*linear_bytes)(enum weight_type type, uint32_t n, uint32_t k);
    enum status (*linear_load)(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                               uint32_t row_count, const void *rows,
                               const float *scales) WARN_UNUSED;

    /* kernels_host_work */
    void (*work)(struct kernels *kernels, uint32_t count, uint32_t grain, kernels_work *work,
                 void *context);
    enum status (*upload)(struct kernels *kernels, enum kernels_stream stream,
                          struct buffer *target, size_t offset, const void *host,
                          size_t bytes) WARN_UNUSED;
    enum status (*read_back)(struct kernels *kernels, enum kernels_stream stream,
                             const struct buffer *source, size_t offset, void *host,
                             size_t bytes) WARN_UNUSED;
    enum status (*copy)(struct kernels *kernels, enum kernels_stream stream,
                        const struct buffer *source, size_t source_offset, struct buffer *target,
                        size_t target_offset, size_t bytes) WARN_UNUSED;
    enum status (*block_sums)(struct kernels *kernels, const struct buffer *pool,
                              const struct kv_sum_job *job, struct buffer *sums) WARN_UNUSED;
    enum status (*sync)(struct kernels *kernels) WARN_UNUSED;

    enum status (*embed)(struct kernels *kernels, const struct step_batch *batch,
                         const struct linear *embedding, struct buffer *x) WARN_UNUSED;
    enum status (*rmsnorm)(struct kernels *kernels, const struct buffer *x,
                           const struct buffer *weight, double eps, const struct buffer *rows,
                           uint32_t row_count, uint32_t hidden, struct buffer *out) WARN_UNUSED;
    enum status (*linear)(struct kernels *kernels, const struct linear *linear,
                          const struct buffer *in, uint32_t rows, bool accumulate,
                          struct buffer *out) WARN_UNUSED;
    enum status (*rope_append)(struct kernels *kernels, const struct step_batch *batch,
                               const struct attention_shape *shape,
                               const struct head_parameters *parameters,
                               const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                               struct buffer *pool) WARN_UNUSED;
    enum status (*attention)(struct kernels *kernels, const struct step_batch *batch,
                             const struct attention_shape *shape, const struct kv_layout *layout,
                             uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                             struct buffer *out) WARN_UNUSED;
    enum status (*swiglu)(struct kernels *kernels, const struct buffer *gate_up, uint32_t rows,
                          uint32_t ffn, struct buffer *out) WARN_UNUSED;

    size_t (*sample_bytes)(const struct kernels *kernels, uint32_t vocab);
    enum status (*sample)(struct kernels *kernels, const struct buffer *logits, uint32_t rows,
                          uint32_t vocab, const struct buffer *draws, struct buffer *scratch,
                          struct buffer *drawn) WARN_UNUSED;
    enum status (*take_tokens)(struct kernels *kernels, const struct buffer *from, uint32_t rows,
                               const struct buffer *drawn, struct buffer *tokens) WARN_UNUSED;

    /* kernels_watch_device; NULL: no driver tells anything */
    enum status (*watch)(struct kernels *kernels, uint32_t timeout_ms,
                         struct device_health *health) WARN_UNUSED;

    double (*measure_peak)(struct kernels *kernels, enum weight_type type,
                           const char **instruction);
    uint64_t (*measure_read)(struct kernels *kernels, const struct buffer *memory);
};

/* Castagnoli's polynomial, reflected: bit 31 is x^0 (kernels_block_sums). */
#define CRC32C_POLYNOMIAL 0x82f63b78u

/* Largest head_dim: kernels.c refuses more (STATUS_UNSUPPORTED), and backends size their scratch
 * for it. */
#define KERNELS_MAX_HEAD_DIM 256

/* An open backend. kernels.c makes and frees it. */
struct kernels {
    const struct kernels_backend *backend;
    enum device device; /* kernels_info.device */
    /* kernels_info.name and quantized_name, if `open` sets them, else NULL: the backend's. */
    const char *name, *quantized_name;
    uint32_t threads;
    struct placement placement;      /* NUMA nodes of host memory; host backends only */
    struct kernels_profile *profile; /* the caller's; NULL: none */
    struct kernels_counts counts;
    kernels_event recorded[KERNELS_STREAMS];
    int signals[KERNELS_STREAMS]; /* without queues: the eventfd plus 1; 0: none */
    /* Without queues: when each of the last events passed. */
    uint64_t passed_us[KERNELS_STREAMS][KERNELS_TIMED_EVENTS];
    void *state; /* the backend's own; only its functions look at it */
};

/* Floats of a row of queries, keys and values: (H + 2G) E. */
static inline size_t qkv_width(const struct attention_shape *shape)
{
    return ((size_t)shape->heads + 2 * (size_t)shape->kv_heads) * shape->head_dim;
}

extern const struct kernels_backend kernels_reference;
extern const struct kernels_backend kernels_cpu_portable;
extern const struct kernels_backend kernels_cpu_avx512bf16;
extern const struct kernels_backend kernels_cpu_amx;
extern const struct kernels_backend kernels_cuda;

/* Returns whether kernels_cuda would find device 0. Otherwise *err says in a sentence why not. */
bool kernels_cuda_usable(struct error *err);

/* Wraps an open CPU backend (kernels/deferred), which kernels_close then ends too. After an error
 * `inner` is as before. STATUS_LIMIT: no memory or threads. */
enum status kernels_defer(struct kernels *inner, bool late, struct kernels **kernels,
                          struct error *err) WARN_UNUSED;

#endif
