/* The arithmetic contract: what a backend (reference, cpu) must compute, and how it is told.
 *
 * Letters: T rows (tokens of all sequences of this step), D hidden, H query heads, G kv heads, E
 * head_dim, F ffn, V vocab, N outputs and K inputs of a linear layer, S sequences.
 *
 * A backend owns a device. Everything an operation reads or writes lives in `struct buffer`s of
 * that device; the host reaches them through upload/download/view only. Operations are queued on a
 * stream in order; nothing blocks but download, view and sync. A launcher checks shapes, allocates
 * nothing and returns a status. So a CUDA backend fits behind this unchanged: no signature holds a
 * host pointer that a kernel would read.
 *
 * Numerics (docs/architecture.md, "the same bytes"): a row's result depends on that row's inputs
 * alone. Linear layers add K in fixed segments at absolute positions; attention cuts the context
 * into fixed segments of whole blocks, merged in ascending order; nothing depends on T, S, on the
 * chunking or on the number of threads.
 */
#ifndef BATON_KERNELS_KERNELS_H
#define BATON_KERNELS_KERNELS_H

#include "common/base/domain/kv_layout.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Fixed for all backends of this version; part of the numerics id, and of what packed weights that
 * are kept are known by. */
#define KERNELS_VERSION          4
#define ATTENTION_SEGMENT_TOKENS 256 /* a whole number of blocks of every allowed size */

/* Instruction set of the bf16 path. PORTABLE, AVX2 and AVX512 give the same bits; AVX512BF16 and
 * AMX give others. */
enum isa { ISA_AUTO, ISA_PORTABLE, ISA_AVX2, ISA_AVX512, ISA_AVX512BF16, ISA_AMX };
extern const char *const isa_names[]; /* in the order of the enum, NULL behind the last */

#define KERNELS_MAX_THREADS 256

struct kernels_config {
    bool f32;     /* the portable fp32 reference: fp32 weights, activations and KV */
    enum isa isa; /* AUTO takes the fastest of those that this CPU reports; f32: AUTO or PORTABLE */
    uint32_t threads; /* compute threads, 1 .. KERNELS_MAX_THREADS */
    const int *cpus;  /* pin thread i to cpus[i]; NULL: not pinned */
    bool
        /* false: idle compute threads sleep at once, as they do where they outnumber CPUs */
        may_spin;
};

/* The types of weights. Each linear layer has its own; a backend computes with layers of its own
 * float type (kernels_info.weight_type) and with both quantized ones.
 *
 * INT8: s8 [k], symmetric, one f32 scale a row. INT4: -8 .. 7, symmetric, one scale for each
 * WEIGHT_GROUP neighbours along K (the last group of a row may be shorter); the scale is a number
 * that bf16 holds. Rows of INT4 are packed, two numbers a byte: number + 8, the earlier one in the
 * low half; an odd row ends with a half that isn't read.
 *
 * Arithmetic of a quantized layer, the same bits in every backend: a row of inputs becomes s8 by
 * one scale of its own,
 *     a = max |x| / 127 and q[k] = round_to_even(x[k] * (127 / max |x|)), in fp32,
 * all zero where max |x| < 2^-100, and NaN where an input isn't finite: then every output of the
 * row is NaN. Then, with int32 sums, which are exact (K <= WEIGHT_MAX_QUANTIZED_K),
 *     INT8:  (sum of q * w) * (a * scale[n])
 *     INT4:  (0 + (sum of group 0) * scale[n, 0] + (sum of group 1) * scale[n, 1] + ...) * a, from left to right
 * in fp32 without contraction. */
enum weight_type { WEIGHT_BF16, WEIGHT_F32, WEIGHT_INT8, WEIGHT_INT4 };
#define WEIGHT_GROUP 128
/* 65536 * 255 * 127 < 2^31: the sum of u8 weights (w + 128) and s8 inputs at their largest. */
#define WEIGHT_MAX_QUANTIZED_K 65536
extern const char *const weight_type_names[]; /* in the order of the enum, NULL behind the last */
bool weight_type_is_quantized(enum weight_type type);
size_t weight_row_bytes(enum weight_type type, uint32_t k);    /* of a row as it is loaded */
uint32_t weight_row_scales(enum weight_type type, uint32_t k); /* scales of a row; floats: none */
/* Of a weight that is quantized, and of a scale, in magnitude. */
#define WEIGHT_MAX_QUANTIZED 0x1p100f

/* Float rows to quantized ones, the same bytes on every machine. PURE; any thread.
 *
 * INT8: scale = max |x| / 127, numbers to nearest, ties to even. INT4: for each group the scale,
 * among a few around the one that maps the number of largest magnitude to -8, that gives the least
 * squared error; then the least-squares scale for those numbers, if it does better. A row, or
 * group, whose largest magnitude is below 2^-100 becomes zeros with scale 0.
 *
 * rows: f32 [row_count, k]; numbers: [row_count, weight_row_bytes]; scales: [row_count,
 * weight_row_scales]. STATUS_INVALID: an input isn't finite, or is beyond WEIGHT_MAX_QUANTIZED;
 * `bad_row` is its row. Other bytes are another KERNELS_VERSION. */
enum status weight_quantize(enum weight_type type, const float *rows, uint32_t row_count,
                            uint32_t k, uint8_t *numbers, float *scales,
                            uint32_t *bad_row) WARN_UNUSED;

struct kernels; /* an open backend; one step thread uses it */

/* Memory of the device. `address` may be dereferenced by the backend only. */
struct buffer {
    void *address;
    size_t bytes;
};

/* A linear layer's weights in the backend's packed form: [N, K], one layout for every T. */
struct linear {
    struct buffer packed;
    enum weight_type type;
    uint32_t n, k;
};

/* One step's rows, on the device. Rows of one sequence are neighbours, in ascending position. */
struct step_batch {
    uint32_t rows, sequences;
    struct buffer tokens;        /* u32 [T] */
    struct buffer positions;     /* u32 [T] absolute position of the row in its sequence */
    struct buffer row_sequence;  /* u32 [T] index into the tables below */
    struct buffer sequence_rows; /* u32 [S+1] first row of each sequence */
    struct buffer block_tables;  /* u32 [S, table_stride] block ids of the KV pool, in order */
    uint32_t table_stride;
};

/* The pool's type is the backend's float type or KV_INT8, as the layout says. In KV_INT8 each
 * token's key and value of a head become s8 by a scale of their own, like a row of inputs of a
 * quantized layer (above), when they are appended; to attention a key is number * scale. The fp32
 * reference computes with these products. A bf16 backend multiplies a row's scores, and its weights
 * before they are rounded to bf16, by the scales instead, and its products of bf16 and s8 numbers
 * are exact. */
struct attention_shape {
    uint32_t heads, kv_heads, head_dim;
    uint32_t window; /* a row sees so many positions, itself the last of them; 0: all */
    float scale;     /* 1 / sqrt(head_dim) */
};

/* What becomes of q, k and v between their linear layer and the attention; a buffer without address
 * leaves its part out. */
struct head_parameters {
    struct buffer bias;   /* f32 [(H + 2G) E], added to q, k and v */
    struct buffer q_norm; /* f32 [E]: RMS norm of each query head; both norms or neither */
    struct buffer k_norm; /* f32 [E]: of each key head */
    double norm_eps;
    struct buffer rope; /* f32 [context, E] = cos (E/2) then sin (E/2) */
};

/* Who computes. `name` is part of the numerics id: "f32", "bf16-portable" (whichever of the sets of
 * equal bits runs), "bf16-avx512bf16", "bf16-amx". */
struct kernels_info {
    const char *name;
    const char *
        /* instead of `name` where all linear layers are quantized: that of equal bits */
        quantized_name;
    const char *isa;              /* the instruction set that runs, of isa_names */
    const char *packing;          /* form and version of packed weights: equal names, equal bytes */
    enum weight_type weight_type; /* of layers that aren't quantized */
    enum kv_type kv_type;         /* of floats */
    bool device_is_host; /* KV pool addresses are host addresses (transports may read them) */
    uint32_t threads;
    /* Rows of a linear layer that go past its weights together; more may take several passes. */
    uint32_t pass_rows;
};

/* For settings, before anything is opened. STATUS_INVALID: instructions of the fast path for fp32
 * arithmetic. */
enum status kernels_check_isa(bool f32, enum isa isa, struct error *err) WARN_UNUSED;
enum status kernels_open(const struct kernels_config *config, struct kernels **kernels,
                         struct error *err) WARN_UNUSED;
void kernels_close(struct kernels *kernels);
struct kernels_info kernels_info(const struct kernels *kernels);

/* --- memory: set-up time only; what is allocated is zeros --- */
/* What this process may still take on the device, by what can be known now; SIZE_MAX where nothing
 * can. */
size_t kernels_available_bytes(const struct kernels *kernels);
enum status kernels_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer) WARN_UNUSED;
void kernels_free(struct kernels *kernels, struct buffer *buffer);
/* Makes memory that somebody else allocated (the transport's KV pool) usable as a buffer; not for
 * kernels_free. */
enum status kernels_adopt(struct kernels *kernels, void *address, size_t bytes,
                          struct buffer *buffer) WARN_UNUSED;

/* Weights come in rows, row-major [n, k], in the layer's type; may be called in row ranges so that
 * fused layers (q|k|v, gate|up) are one `linear`. The source is host memory. `scales`: of quantized
 * rows, [row_count, weight_row_scales], none beyond WEIGHT_MAX_QUANTIZED, which the caller checks;
 * else NULL. STATUS_UNSUPPORTED: a float type that isn't the backend's, or quantized and longer
 * than WEIGHT_MAX_QUANTIZED_K. */
size_t kernels_linear_bytes(const struct kernels *kernels, enum weight_type type, uint32_t n,
                            uint32_t k); /* packed */
enum status kernels_linear_create(struct kernels *kernels, enum weight_type type, uint32_t n,
                                  uint32_t k, struct linear *linear) WARN_UNUSED;
enum status kernels_linear_load(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                                uint32_t row_count, const void *rows,
                                const float *scales) WARN_UNUSED;
void kernels_linear_destroy(struct kernels *kernels, struct linear *linear);
/* A layer in the caller's memory, of kernels_alloc or kernels_adopt, from `offset` on, a multiple
 * of LINEAR_ALIGN_BYTES: zeros, which kernels_linear_load fills, or what a layer of this type and
 * shape had packed before, under the same kernels_info.packing. linear: type, n and k are given.
 * Not for kernels_linear_destroy. STATUS_INVALID: it doesn't lie there. */
#define LINEAR_ALIGN_BYTES 4096
enum status kernels_linear_adopt(struct kernels *kernels, const struct buffer *memory,
                                 size_t offset, struct linear *linear) WARN_UNUSED;

/* Work of the host while it sets up, by all compute threads: items 0 .. count - 1 in chunks of
 * `grain`, in any order; `thread` < kernels_info.threads. Returns when all are done. Items write
 * disjoint results. */
typedef void kernels_work(void *context, uint32_t thread, uint32_t first, uint32_t last);
void kernels_host_work(struct kernels *kernels, uint32_t count, uint32_t grain, kernels_work *work,
                       void *context);

/* --- queue: ordered, on the backend's one stream --- */
enum status kernels_upload(struct kernels *kernels, struct buffer *target, size_t offset,
                           const void *host, size_t bytes) WARN_UNUSED;
enum status kernels_download(struct kernels *kernels, const struct buffer *source, size_t offset,
                             void *host, size_t bytes) WARN_UNUSED;
/* What the host reads once: where the device is the host (kernels_info.device_is_host), *seen is
 * the buffer's own bytes, until an operation writes there, and `host` isn't looked at, so may be
 * NULL; else *seen = host, where they are downloaded to. */
enum status kernels_view(struct kernels *kernels, const struct buffer *source, size_t offset,
                         size_t bytes, void *host, const void **seen) WARN_UNUSED;
/* Inside the device; the ranges don't overlap. Source and target may be one buffer. */
enum status kernels_copy(struct kernels *kernels, const struct buffer *source, size_t source_offset,
                         struct buffer *target, size_t target_offset, size_t bytes) WARN_UNUSED;
enum status kernels_sync(struct kernels *kernels) WARN_UNUSED;

/* --- operations. x: residual stream, f32 [T, D] in every backend. Activations between operations
 * are f32 buffers; a bf16 backend rounds them where numerics says (inputs of linear layers, q, k,
 * v, and the softmax weights). --- */

/* x[t] = row tokens[t] of `embedding`, a linear layer's weights [V, D], widened (quantized: number
 * * scale, in fp32): a model that ties its head to its embedding holds them once. Ids are < V
 * (checked by the caller). */
enum status kernels_embed(struct kernels *kernels, const struct step_batch *batch,
                          const struct linear *embedding, struct buffer *x) WARN_UNUSED;
/* out[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * weight; weight: f32 [D]. If `rows` is not NULL (u32
 * [row_count]), row i of out is made from x[rows[i]] (the last rows before the LM head). */
enum status kernels_rmsnorm(struct kernels *kernels, const struct buffer *x,
                            const struct buffer *weight, double eps, const struct buffer *rows,
                            uint32_t row_count, uint32_t hidden, struct buffer *out) WARN_UNUSED;
/* out[t, n] = sum_k in[t, k] * W[n, k] (+ out[t, n] if accumulate: the residual add). */
enum status kernels_linear(struct kernels *kernels, const struct linear *linear,
                           const struct buffer *in, uint32_t rows, bool accumulate,
                           struct buffer *out) WARN_UNUSED;
/* qkv: f32 [T, (H + 2G) E], changed in place: adds the bias, normalises q and k head by head,
 * rotates both by rope[position] ("rotate half" pairing (i, i + E/2)), and appends k, v of the
 * given layer to the pool. */
enum status kernels_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                const struct attention_shape *shape,
                                const struct head_parameters *parameters,
                                const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                                struct buffer *pool) WARN_UNUSED;
/* out: f32 [T, H E]. Causal: row at position p sees positions 0..p of its sequence (the last
 * `window` of them), through its block table. */
enum status kernels_attention(struct kernels *kernels, const struct step_batch *batch,
                              const struct attention_shape *shape, const struct kv_layout *layout,
                              uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                              struct buffer *out) WARN_UNUSED;
/* out[t, f] = silu(gate_up[t, f]) * gate_up[t, F + f]. */
enum status kernels_swiglu(struct kernels *kernels, const struct buffer *gate_up, uint32_t rows,
                           uint32_t ffn, struct buffer *out) WARN_UNUSED;

/* --- for benchmarks: where time goes, and what it could be at best --- */

/* Nanoseconds in the operations above, by kind. A backend that only queues them spends the time
 * elsewhere. */
struct kernels_profile {
    uint64_t embed, rmsnorm, linear, rope_append, attention, swiglu;
};
/* From now on operations add their time to `profile`; NULL: to nothing. */
void kernels_profile_to(struct kernels *kernels, struct kernels_profile *profile);

/* 10^9 operations a second (a multiply-add is two) of all compute threads side by side, in the time
 * that they ran: independent instructions from register to register, of the kind that layers of
 * this type are made of here. Takes some 20 to 60 ms. 0 and "": not known here. */
double kernels_measure_peak(struct kernels *kernels, enum weight_type type,
                            const char **instruction);
/* Nanoseconds, of those that it ran, that the slowest compute thread takes to read its part of
 * `memory` once, from front to back. */
uint64_t kernels_measure_read(struct kernels *kernels, const struct buffer *memory);

#endif
