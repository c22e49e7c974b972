/* The arithmetic contract: the operations of a model, and how a backend (reference, cpu) is given
 * its data. Operations are listed in the order of a forward pass.
 *
 * Letters: T rows (tokens of all sequences of this step), D hidden, H query heads, G KV heads, E
 * head_dim, F ffn, V vocab, N outputs and K inputs of a linear layer, S sequences.
 *
 * Memory. A backend owns one device. Operations read and write `struct buffer`s of that device
 * only. The host reaches them through upload, download and view. No operation takes a host pointer
 * that a kernel would read, so a GPU backend fits behind this header unchanged.
 *
 * Order. A device has three queues (enum kernels_stream). Operations are of KERNELS_STEPS;
 * transfers name their stream. Each stream runs in call order. Nothing but kernels_order orders two
 * of them. Only wait, sync, download and view wait for queued work. host_work and the two
 * measurements return when their own work is done. All other calls may return earlier, if
 * kernels_info.runs_ahead. Without it their work is done when they return. A backend reads the
 * structs of a call during the call only.
 *
 * Memory of queued work. The caller keeps device memory that it names until the stream has passed
 * an event behind it, or a sync. Until then host memory of kernels_upload and kernels_linear_load
 * stays unchanged, and that of kernels_read_back isn't read.
 *
 * Errors. An operation checks shapes, allocates nothing and returns a status. STATUS_INVALID:
 * shapes don't fit each other or a buffer. STATUS_UNSUPPORTED: a valid shape that no backend
 * computes. An operation that refuses its arguments writes nothing. Queued work that fails later
 * (STATUS_INTERNAL) fails its whole stream. The stream skips what is queued, its events pass, and
 * each wait on it reports the failure, until a sync has reported it and ended it.
 * STATUS_UNAVAILABLE: the device is lost to this process. It fails all streams for good, and only
 * closing the backend is left.
 *
 * Threads. One thread at a time calls into an open backend (the step thread, which swaps blocks by
 * KERNELS_MOVES). If it leaves KERNELS_MOVES alone, another one may use that beside it, and another
 * one may always use KERNELS_TRANSFERS: each as the only caller of its stream, by upload, copy,
 * read_back, block_sums, gather, record, passed, wait and event_us. One more may watch the device.
 * Only weight_quantize, draws on the host and the functions on names and sizes may run on any
 * thread.
 *
 * Numerics (docs/architecture.md, "the same bytes"): a row's result depends on that row's inputs
 * alone. Linear layers add K in fixed segments at absolute positions. Attention cuts the context
 * into fixed segments of whole blocks and merges them in ascending order. No result depends on T,
 * S, the chunking or the number of threads. */
#ifndef BATON_KERNELS_KERNELS_H
#define BATON_KERNELS_KERNELS_H

#include "common/base/domain/device_health.h"
#include "common/base/domain/kv_copier.h"
#include "common/base/domain/kv_layout.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The same for all backends of this version. It is a part of the numerics id and of the key of
 * packed weights that are kept in files. */
#define KERNELS_VERSION          4
#define ATTENTION_SEGMENT_TOKENS 256 /* a whole number of blocks of every allowed size */

/* Instruction set of the bf16 backends. PORTABLE, AVX2 and AVX512 give the same bits. AVX512BF16
 * gives others, and so does AMX. */
enum isa { ISA_AUTO, ISA_PORTABLE, ISA_AVX2, ISA_AVX512, ISA_AVX512BF16, ISA_AMX };
extern const char *const isa_names[]; /* in the order of the enum; NULL ends the list */

#define KERNELS_MAX_THREADS 256

/* The device that computes. CPU is done when a call returns. DEFERRED is a check of programs
 * without a GPU: the CPU backend behind two queues, with threads of their own, and device memory
 * that ends a process which touches it on the host (SIGSEGV). It gives the CPU's bytes. Its queues
 * run beside the host; those of DEFERRED_LATE stand still until the host waits for an event, asks
 * for it (kernels_passed), or a queue is full. Every second event of KERNELS_MOVES passes at once.
 * So reading or changing memory too early is seen in every run. CUDA: a GPU of NVIDIA, which
 * computes bf16 (kernels/cuda). AUTO: the first GPU that can, else the CPU. It is the CPU, too, for
 * the fp32 reference, and if an instruction set is chosen. */
enum device { DEVICE_AUTO, DEVICE_CPU, DEVICE_DEFERRED, DEVICE_DEFERRED_LATE, DEVICE_CUDA };
extern const char *const device_names[]; /* in the order of the enum; NULL ends the list */
#define DEVICE_FORMS "auto|cpu|cuda:N|deferred|deferred-late"

/* Reads one of DEVICE_FORMS. "cuda" is "cuda:0". *ordinal is 0 without a number. STATUS_INVALID:
 * another text. PURE. */
enum status device_parse(const char *text, enum device *device, uint32_t *ordinal,
                         struct error *err) WARN_UNUSED;

struct kernels_config {
    enum device device;
    uint32_t ordinal; /* CUDA: the device's number, from 0 */
    bool f32;         /* the portable fp32 reference: fp32 weights, activations and KV */
    enum isa isa;     /* AUTO takes the fastest that this CPU reports; f32: AUTO or PORTABLE */
    uint32_t threads; /* compute threads, 1 .. KERNELS_MAX_THREADS */
    const int *cpus;  /* [threads] thread i is pinned to cpus[i]; NULL: not pinned */
    /* Idle compute threads spin for a short time, if each has a CPU of its own. false: they sleep
     * at once. */
    bool may_spin;
    /* CUDA: blocks of a gather's launch; 0: a quarter of the multiprocessors, 16 to 32. */
    uint32_t gather_blocks;
};

/* The types of weights. Each linear layer has its own type. A backend computes with layers of its
 * own float type (kernels_info.weight_type) and with INT8 and INT4. FP8 is of the fp32 reference
 * and of GPUs with tensor cores for it (kernels_check_model).
 *
 * INT8: s8 [k], symmetric, one f32 scale a row. INT4: -8 .. 7, symmetric, one scale for each group
 * of WEIGHT_GROUP neighbours along K (the last group of a row may be shorter). An INT4 scale is a
 * number that bf16 holds. Rows of INT4 are packed, two numbers a byte, as number + 8: the earlier
 * one is in the low half. The last half of an odd row isn't read.
 *
 * The arithmetic of a quantized layer gives the same bits in every backend. First a row of inputs
 * becomes s8 by one scale of its own, in fp32:
 *     a = max |x| / 127 and q[k] = round_to_even(x[k] * (127 / max |x|))
 * All q are zero where max |x| < 2^-100. If an input isn't finite, every output of the row is NaN.
 * Then products are added in int32, which is exact (K <= WEIGHT_MAX_QUANTIZED_K), and scaled in
 * fp32 without contraction. s[g] is the sum of q * w over group g; INT4 adds from left to right:
 *     INT8:  (sum of q * w) * (a * scale[n])
 *     INT4:  (0 + s[0] * scale[n, 0] + s[1] * scale[n, 1] + ...) * a
 *
 * FP8: e4m3 [k] (kernels/cpu/e4m3.h), one f32 scale a row. FP8_BLOCK: one for each WEIGHT_GROUP
 * neighbours along K. Inputs become e4m3 by a scale of their own, in fp32: of the row, or of the
 * same group of the row (FP8_BLOCK):
 *     a = max |x| / 448 and q[k] = to nearest(x[k] / a), at most 448
 * All q and `a` are zero where max |x| < 2^-100. `a` is NaN, and q zeros, if an input of the row or
 * group isn't finite. FP8 with linear.input_scale takes that as `a` of all rows; there q[k] is NaN
 * where x[k] isn't finite, and so is every output of the row.
 *
 * Products are added as the tensor core of sm_90 adds them, 32 of k a step. After each group the
 * sum is added to fp32 (promotion) and starts anew. K is cut into segments of weight_segment_k;
 * p[g] is the sum of group g:
 *     FP8:        segment = 0 + p[0] + p[1] + ...; (segment + segment + ...) * (a * scale[n])
 *     FP8_BLOCK:  segment = fma(p[g], a[g] * scale[n, g], segment), from 0; segment + segment + ...
 * WEIGHT_FP8_NUMERICS stands behind the type in names of numerics. */
enum weight_type {
    WEIGHT_BF16,
    WEIGHT_F32,
    WEIGHT_INT8,
    WEIGHT_INT4,
    WEIGHT_FP8,
    WEIGHT_FP8_BLOCK
};
#define WEIGHT_GROUP          128
#define WEIGHT_SEGMENT_K_MOST 3584
#define WEIGHT_FP8_NUMERICS   "-p128-s3584" /* WEIGHT_GROUP, WEIGHT_SEGMENT_K_MOST */
/* 65536 * 255 * 127 < 2^31: the largest sum of u8 weights (w + 128) times s8 inputs fits. */
#define WEIGHT_MAX_QUANTIZED_K 65536
extern const char *const weight_type_names[]; /* in the order of the enum; NULL ends the list */
bool weight_type_is_quantized(enum weight_type type);
bool weight_type_is_fp8(enum weight_type type);
/* Returns the K of a segment of a layer of K inputs (FP8, and all layers of kernels/cuda): the
 * fewest segments of at most WEIGHT_SEGMENT_K_MOST, all but the last alike, multiples of 128. */
uint32_t weight_segment_k(uint32_t k);
size_t weight_row_bytes(enum weight_type type, uint32_t k); /* bytes of a row before it is packed */
uint32_t weight_row_scales(enum weight_type type, uint32_t k); /* scales of a row; floats: 0 */
/* Largest magnitude of a float that can be quantized, and of a scale. */
#define WEIGHT_MAX_QUANTIZED     0x1p100f
#define WEIGHT_LEAST_INPUT_SCALE 0x1p-90f

/* Quantizes float rows. Gives the same bytes on every machine; a change of those bytes needs a new
 * KERNELS_VERSION. PURE; any thread.
 *
 * INT8: scale = max |x| / 127, numbers to nearest, ties to even. INT4 tries, for each group, a few
 * scales around the one that maps the number of largest magnitude to -8. It keeps the scale of
 * least squared error, or the least-squares scale for those numbers if that one is better. FP8: as
 * inputs above. If the largest magnitude of a row (INT8, FP8) or group is below 2^-100, it becomes
 * zeros with scale 0.
 *
 * rows: f32 [row_count, k]; numbers: [row_count, weight_row_bytes]; scales: [row_count,
 * weight_row_scales]. STATUS_INVALID: an input isn't finite or exceeds WEIGHT_MAX_QUANTIZED;
 * *bad_row is its row. */
enum status weight_quantize(enum weight_type type, const float *rows, uint32_t row_count,
                            uint32_t k, uint8_t *numbers, float *scales,
                            uint32_t *bad_row) WARN_UNUSED;

/* Writes FP8 rows as floats, number * scale in fp32: out [row_count, k]. `type` is FP8 or
 * FP8_BLOCK. PURE; any thread. */
void weight_widen(enum weight_type type, const uint8_t *numbers, const float *scales,
                  uint32_t row_count, uint32_t k, float *out);

struct kernels; /* an open backend */

/* Memory of the device. Only the backend may dereference `address`. */
struct buffer {
    void *address;
    size_t bytes;
};

/* The weights of a linear layer in the backend's packed form: [N, K], one layout for every T. */
struct linear {
    struct buffer packed;
    enum weight_type type;
    uint32_t n, k;
    /* FP8: of all inputs, WEIGHT_LEAST_INPUT_SCALE and more; 0: each row has its own. The caller's
     * to set. */
    float input_scale;
    /* An epilogue (below) joins rows r and r + pair of each 2 pair rows. pair is E/2 of
     * queries, keys and values, and F of gate and up; 0: none. A backend may pack such rows side by
     * side. So it is set before rows are loaded. It leaves no trace in results. */
    uint32_t pair;
};

/* Inputs of linear layers of one type: rows of K numbers in the form that such layers take, which
 * is the backend's own (f32 rows on the CPU). Fused operations write and read them, and nothing
 * else does. */
struct inputs {
    struct buffer memory; /* kernels_inputs_bytes */
    enum weight_type type;
    uint32_t k;
    float input_scale; /* as of the layers */
};

/* The rows of one step, on the device. Rows of one sequence are neighbours, in ascending
 * position. */
struct step_batch {
    uint32_t rows, sequences;
    struct buffer tokens;        /* u32 [T] */
    struct buffer positions;     /* u32 [T] absolute position of the row in its sequence */
    struct buffer row_sequence;  /* u32 [T] index into the tables below */
    struct buffer sequence_rows; /* u32 [S+1] first row of each sequence */
    struct buffer block_tables;  /* u32 [S, table_stride] block ids of the KV pool, in order */
    uint32_t table_stride;
};

/* The shape of attention, the same for all layers of a model.
 *
 * The layout gives the type of the KV pool: the backend's float type or KV_INT8. In KV_INT8 each
 * token's key and value of a head become s8 by a scale of their own when they are appended, like a
 * row of inputs of a quantized layer (above). Attention then sees number * scale. The fp32
 * reference computes with these products. A bf16 backend multiplies by the scales elsewhere: by key
 * scales a row's scores, and by value scales its weights before they are rounded to bf16. Its
 * products of bf16 and s8 numbers are exact. */
struct attention_shape {
    uint32_t heads, kv_heads, head_dim;
    uint32_t window; /* positions that a row sees, its own is the last of them; 0: all */
    float scale;     /* 1 / sqrt(head_dim) */
};

/* Parameters of kernels_rope_append. A buffer without address leaves its step out; `rope` is
 * needed. */
struct head_parameters {
    struct buffer bias;   /* f32 [(H + 2G) E], added to q, k and v */
    struct buffer q_norm; /* f32 [E]: RMS norm of each query head; both norms or neither */
    struct buffer k_norm; /* f32 [E]: RMS norm of each key head */
    double norm_eps;
    struct buffer rope; /* f32 [context, E] = cos (E/2) then sin (E/2) */
};

/* Describes an open backend. Strings are constants. */
struct kernels_info {
    /* A part of the numerics id: "f32", "bf16-portable" (PORTABLE, AVX2 and AVX512),
     * "bf16-avx512bf16", "bf16-amx", or a name of kernels/cuda. */
    const char *name;
    const char *quantized_name; /* replaces `name` if all linear layers are quantized */
    const char *isa;    /* the instruction set that runs, one of isa_names, or the GPU's: "sm_90" */
    enum device device; /* never AUTO */
    const char *packing;          /* form and version of packed weights: equal names, equal bytes */
    enum weight_type weight_type; /* float type of layers that aren't quantized */
    enum kv_type kv_type;         /* float type of the KV pool */
    bool device_is_host;    /* KV pool addresses are host addresses (transports may read them) */
    bool takes_host_memory; /* the device's memory is a part of the host's, as with DEFERRED */
    bool runs_ahead;        /* calls return before their work is done: events say when it is */
    bool fuses;             /* fused operations leave out what lies between their parts */
    bool records;           /* passes can be recorded (kernels_pass_begin) */
    uint32_t threads;
    uint32_t
        pass_rows; /* rows that one pass over a layer's weights serves; more rows, more passes */
};

/* Checks settings before anything is opened. STATUS_INVALID: f32 with an instruction set other than
 * AUTO or PORTABLE. */
enum status kernels_check_isa(bool f32, enum isa isa, struct error *err) WARN_UNUSED;
/* Opens the backend that `config` chooses and starts its compute threads. `config` is read during
 * the call only. The caller ends it with kernels_close. STATUS_INVALID: a bad setting or CPU;
 * STATUS_UNSUPPORTED: this CPU lacks the instruction set; STATUS_NOT_FOUND: CUDA, and no device
 * that it can use; STATUS_LIMIT: no memory; STATUS_IO: no thread. */
enum status kernels_open(const struct kernels_config *config, struct kernels **kernels,
                         struct error *err) WARN_UNUSED;
void kernels_close(struct kernels *kernels); /* NULL is fine */
struct kernels_info kernels_info(const struct kernels *kernels);
/* Checks whether the backend computes layers of the type, and attention of the head size.
 * STATUS_UNSUPPORTED, with a sentence: it doesn't (a GPU: int4, or a size without a kernel; a CPU's
 * bf16: FP8). */
enum status kernels_check_model(const struct kernels *kernels, enum weight_type type,
                                uint32_t head_dim, struct error *err) WARN_UNUSED;

/* --- memory: at set-up only; allocated memory holds zeros --- */
/* Estimates the bytes that this process may still allocate on the device. SIZE_MAX: not known. */
size_t kernels_available_bytes(const struct kernels *kernels);
/* All memory of the device, or as much as this process may have of the host's. SIZE_MAX: not
 * known. */
size_t kernels_whole_bytes(const struct kernels *kernels);
/* Device memory that the backend took for itself when it was opened: scratch of its kernels. */
size_t kernels_own_bytes(const struct kernels *kernels);
/* The available bytes of the host's memory. */
size_t kernels_host_available_bytes(const struct kernels *kernels);
/* STATUS_LIMIT: no memory. */
enum status kernels_alloc(struct kernels *kernels, size_t bytes, struct buffer *buffer) WARN_UNUSED;
void kernels_free(struct kernels *kernels, struct buffer *buffer); /* without address: nothing */
/* Makes the caller's host memory (the transport's KV pool) usable as a buffer, on a device too:
 * both sides reach it. The caller keeps owning it; not for kernels_free. */
enum status kernels_adopt(struct kernels *kernels, void *address, size_t bytes,
                          struct buffer *buffer) WARN_UNUSED;
/* Allocates host memory for transfers: pinned where the device wants that. STATUS_LIMIT: no
 * memory. On a lost device it stays until kernels_close: copies may still be queued. */
enum status kernels_host_alloc(struct kernels *kernels, size_t bytes, void **memory) WARN_UNUSED;
void kernels_host_free(struct kernels *kernels, void *memory); /* NULL is fine */

/* --- memory that processes share: allocated at set-up by the step thread, all else by the thread
 * of KERNELS_TRANSFERS --- */
/* Allocates memory that other processes may map, for kernels_free. One at a time. STATUS_LIMIT: no
 * memory. STATUS_UNSUPPORTED, with a sentence: this device shares none; take kernels_alloc. */
enum status kernels_alloc_shared(struct kernels *kernels, size_t bytes, struct buffer *buffer,
                                 struct error *err) WARN_UNUSED;
/* Returns the bytes of the device that so large an allocation takes: whole units of the driver. */
size_t kernels_shared_bytes(struct kernels *kernels, size_t bytes);
/* Makes a descriptor, the caller's, by which another process can map the shared memory. */
enum status kernels_share(struct kernels *kernels, int *fd, struct error *err) WARN_UNUSED;
/* Maps the first `bytes` of another process's memory, for reading alone: a kernel that writes there
 * fails. It stays valid after that process has ended. STATUS_UNAVAILABLE, with a sentence: this
 * device can't. `fd` stays the caller's. */
enum status kernels_map(struct kernels *kernels, int fd, size_t bytes, struct buffer *buffer,
                        struct error *err) WARN_UNUSED;
/* Ends a mapping of kernels_map. No gather from it may be under way. */
void kernels_unmap(struct kernels *kernels, struct buffer *buffer);
/* Queues in KERNELS_TRANSFERS: copies each move's bytes of `source` (of kernels_map, or not) to
 * `target`. count <= KV_MOVES_AT_ONCE; targets don't overlap. STATUS_INVALID: a move outside the
 * buffers, or no multiple of 16. STATUS_UNSUPPORTED: as kernels_alloc_shared. */
enum status kernels_gather(struct kernels *kernels, const struct buffer *source,
                           struct buffer *target, const struct kv_move *moves,
                           uint32_t count) WARN_UNUSED;

/* --- linear layers: at set-up only --- */
/* Bytes of a layer's packed weights. */
size_t kernels_linear_bytes(const struct kernels *kernels, enum weight_type type, uint32_t n,
                            uint32_t k);
/* Allocates a layer of zeros; the caller ends it with kernels_linear_destroy. STATUS_INVALID: n or
 * k is 0. STATUS_UNSUPPORTED: a float type that isn't the backend's, a type that it doesn't
 * compute, or a quantized layer with k > WEIGHT_MAX_QUANTIZED_K. STATUS_LIMIT: no memory. */
enum status kernels_linear_create(struct kernels *kernels, enum weight_type type, uint32_t n,
                                  uint32_t k, struct linear *linear) WARN_UNUSED;
/* Packs rows first_row .. first_row + row_count - 1 of a layer. Fused layers (q|k|v, gate|up) are
 * one `linear`, loaded in several row ranges. rows: host memory, row-major [row_count, k] in the
 * layer's type. scales: [row_count, weight_row_scales] of a quantized layer, none beyond
 * WEIGHT_MAX_QUANTIZED (the caller checks that); NULL for floats. STATUS_INVALID: rows outside the
 * layer, or scales missing or not expected. */
enum status kernels_linear_load(struct kernels *kernels, struct linear *linear, uint32_t first_row,
                                uint32_t row_count, const void *rows,
                                const float *scales) WARN_UNUSED;
void kernels_linear_destroy(struct kernels *kernels, struct linear *linear);
/* Places a layer in the caller's memory (of kernels_alloc or kernels_adopt) at `offset`, a multiple
 * of LINEAR_ALIGN_BYTES. The memory holds zeros, which kernels_linear_load fills, or the packed
 * weights of a layer of this type and shape under the same kernels_info.packing. The caller fills
 * linear->type, n and k. Not for kernels_linear_destroy. STATUS_INVALID: a bad offset, or the layer
 * exceeds the memory; STATUS_UNSUPPORTED: as of kernels_linear_create. */
#define LINEAR_ALIGN_BYTES 4096
enum status kernels_linear_adopt(struct kernels *kernels, const struct buffer *memory,
                                 size_t offset, struct linear *linear) WARN_UNUSED;

/* --- the device's health, as its driver tells it --- */

/* Waits for an event of the device, at most timeout_ms, and fills *health, unless it is NULL. The
 * driver may take long, or hang where the device does: one thread of its own calls this.
 * STATUS_UNSUPPORTED, at once: the device has no such driver. STATUS_UNAVAILABLE: an error of the
 * device was told, which is logged; it is lost, as for a call that fails so. */
enum status kernels_watch_device(struct kernels *kernels, uint32_t timeout_ms,
                                 struct device_health *health) WARN_UNUSED;

/* Runs host work at set-up on all compute threads: items 0 .. count - 1 in chunks of `grain`, in
 * any order. A call computes items first .. last - 1; `thread` < kernels_info.threads. Items write
 * disjoint results. Returns when all are done. */
typedef void kernels_work(void *context, uint32_t thread, uint32_t first, uint32_t last);
void kernels_host_work(struct kernels *kernels, uint32_t count, uint32_t grain, kernels_work *work,
                       void *context);

/* --- streams and events --- */

enum kernels_stream {
    KERNELS_STEPS,    /* operations, and the transfers of a step */
    KERNELS_MOVES,    /* transfers beside the steps: blocks that are swapped */
    KERNELS_TRANSFERS /* another thread's: blocks on their way from or to another process */
};
#define KERNELS_STREAMS 3

/* A place in a stream. Each stream counts its events up from 1. 0 is before all work: it has
 * passed. */
typedef uint64_t kernels_event;

/* Marks the place behind all that the stream has queued. After a failure nothing is queued any
 * more: it has waited. */
enum status kernels_record(struct kernels *kernels, enum kernels_stream stream,
                           kernels_event *event) WARN_UNUSED;
/* From now on each event of the stream that passes writes to `fd`, an eventfd of the caller's. Call
 * it before the first one. */
void kernels_signal(struct kernels *kernels, enum kernels_stream stream, int fd);
/* Returns whether all work before the event is done. */
bool kernels_passed(struct kernels *kernels, enum kernels_stream stream, kernels_event event);
/* Waits for the event. Reports a failure of the stream. */
enum status kernels_wait(struct kernels *kernels, enum kernels_stream stream,
                         kernels_event event) WARN_UNUSED;
/* Queued work of `behind`, from now on, begins after the event of `before`. The host doesn't
 * wait. */
enum status kernels_order(struct kernels *kernels, enum kernels_stream behind,
                          enum kernels_stream before, kernels_event event) WARN_UNUSED;
/* Returns the microseconds of device time between two events that have passed, of the last
 * KERNELS_TIMED_EVENTS of the stream. */
#define KERNELS_TIMED_EVENTS 64
uint64_t kernels_event_us(struct kernels *kernels, enum kernels_stream stream, kernels_event begin,
                          kernels_event end);
/* Waits for all that is queued in KERNELS_STEPS and KERNELS_MOVES. Work that failed after its call
 * returned OK is reported here at the latest. KERNELS_TRANSFERS is another thread's: its failure
 * stays. */
enum status kernels_sync(struct kernels *kernels) WARN_UNUSED;

/* --- transfers, in order with their stream. STATUS_INVALID: a range outside its buffer --- */
/* Copies host memory into a buffer, `offset` bytes from its start. */
enum status kernels_upload(struct kernels *kernels, enum kernels_stream stream,
                           struct buffer *target, size_t offset, const void *host,
                           size_t bytes) WARN_UNUSED;
/* Copies a buffer's bytes into host memory, which holds them once an event behind has passed. */
enum status kernels_read_back(struct kernels *kernels, enum kernels_stream stream,
                              const struct buffer *source, size_t offset, void *host,
                              size_t bytes) WARN_UNUSED;
/* Copies inside the device. Source and target may be one buffer. STATUS_INVALID: the ranges
 * overlap. */
enum status kernels_copy(struct kernels *kernels, enum kernels_stream stream,
                         const struct buffer *source, size_t source_offset, struct buffer *target,
                         size_t target_offset, size_t bytes) WARN_UNUSED;
/* Queues in KERNELS_TRANSFERS: sums[i, r] = the CRC32C (RFC 3720, B.4) of run r of block blocks[i]
 * of the pool (struct kv_sum_job; run_bytes is a multiple of 4, as that of kv_layout_head_run_bytes
 * is). sums: u32 [count, block_bytes / run_bytes]. All backends give the same. STATUS_INVALID: more
 * blocks than KV_SUMS_AT_ONCE, or a block outside the pool. */
enum status kernels_block_sums(struct kernels *kernels, const struct buffer *pool,
                               const struct kv_sum_job *job, struct buffer *sums) WARN_UNUSED;
/* Reads back by KERNELS_STEPS and waits for all that is queued. */
enum status kernels_download(struct kernels *kernels, const struct buffer *source, size_t offset,
                             void *host, size_t bytes) WARN_UNUSED;
/* Gives the host `bytes` to read once. Waits for all that is queued. With
 * kernels_info.device_is_host, *seen points into the buffer and is valid until an operation writes
 * there; `host` may be NULL. Otherwise downloads into `host`, and *seen = host. */
enum status kernels_view(struct kernels *kernels, const struct buffer *source, size_t offset,
                         size_t bytes, void *host, const void **seen) WARN_UNUSED;

/* Counts calls since kernels_open, for tests. waits: of wait, sync, download and view. allocations:
 * of device and of host memory. passes: run. */
struct kernels_counts {
    uint64_t operations, uploads, read_backs, copies, gathers, sums, records, waits, allocations,
        passes;
};
struct kernels_counts kernels_counts(const struct kernels *kernels);

/* --- operations. Activations between them are f32 buffers; x is the residual stream, f32 [T, D]. A
 * bf16 backend rounds inputs of linear layers, q, k, v and softmax weights. --- */

/* x[t] = row tokens[t] of `embedding`, the weights [V, D] of a linear layer, widened (quantized:
 * number * scale, in fp32). So a model that ties its head to its embedding holds them once. The
 * caller checks that ids are < V. STATUS_UNSUPPORTED: an embedding in FP8. */
enum status kernels_embed(struct kernels *kernels, const struct step_batch *batch,
                          const struct linear *embedding, struct buffer *x) WARN_UNUSED;
/* out[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * weight; weight: f32 [D]; t < row_count. With `rows`
 * (u32 [row_count], else NULL), row i of `out` is made from x[rows[i]]: the last rows before the LM
 * head. */
enum status kernels_rmsnorm(struct kernels *kernels, const struct buffer *x,
                            const struct buffer *weight, double eps, const struct buffer *rows,
                            uint32_t row_count, uint32_t hidden, struct buffer *out) WARN_UNUSED;
/* out[t, n] = sum_k in[t, k] * W[n, k] (+ out[t, n] if accumulate: the residual add). in: f32
 * [rows, K]; out: f32 [rows, N]. */
enum status kernels_linear(struct kernels *kernels, const struct linear *linear,
                           const struct buffer *in, uint32_t rows, bool accumulate,
                           struct buffer *out) WARN_UNUSED;
/* Changes qkv, f32 [T, (H + 2G) E], in place: adds the bias, normalises q and k head by head, and
 * rotates both by rope[position], where i pairs with i + E/2 ("rotate half"). Then appends k and v
 * of the given layer to the pool. */
enum status kernels_rope_append(struct kernels *kernels, const struct step_batch *batch,
                                const struct attention_shape *shape,
                                const struct head_parameters *parameters,
                                const struct kv_layout *layout, uint32_t layer, struct buffer *qkv,
                                struct buffer *pool) WARN_UNUSED;
/* out: f32 [T, H E]. Causal: a row at position p sees positions 0 .. p of its sequence (the last
 * `window` of them) through its block table. Keys and values of these positions, its own too, are
 * in the pool. */
enum status kernels_attention(struct kernels *kernels, const struct step_batch *batch,
                              const struct attention_shape *shape, const struct kv_layout *layout,
                              uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                              struct buffer *out) WARN_UNUSED;
/* out[t, f] = silu(gate_up[t, f]) * gate_up[t, F + f]. gate_up: f32 [rows, 2 F]; out: f32 [rows,
 * F]. */
enum status kernels_swiglu(struct kernels *kernels, const struct buffer *gate_up, uint32_t rows,
                           uint32_t ffn, struct buffer *out) WARN_UNUSED;

/* --- fused operations: sequences of the above, with the same results. A backend that has none runs
 * the sequence. --- */

/* Bytes of the inputs of `rows` rows of a layer. */
size_t kernels_inputs_bytes(const struct kernels *kernels, enum weight_type type, uint32_t rows,
                            uint32_t k);
/* kernels_rmsnorm of rows of out->k, which become inputs. */
enum status kernels_fused_rmsnorm(struct kernels *kernels, const struct buffer *x,
                                  const struct buffer *weight, double eps,
                                  const struct buffer *rows, uint32_t row_count,
                                  struct inputs *out) WARN_UNUSED;
/* kernels_attention; its results become inputs. out->k is H E. */
enum status kernels_fused_attention(struct kernels *kernels, const struct step_batch *batch,
                                    const struct attention_shape *shape,
                                    const struct kv_layout *layout, uint32_t layer,
                                    const struct buffer *qkv, const struct buffer *pool,
                                    struct inputs *out) WARN_UNUSED;

/* The way on of a linear layer's results, f32 [rows, N]. */
enum epilogue_kind {
    EPILOGUE_STORE,  /* to out */
    EPILOGUE_ADD,    /* added to out: the residual add */
    EPILOGUE_APPEND, /* to out, then kernels_rope_append of the layer's own rows */
    EPILOGUE_SWIGLU, /* to out, then kernels_swiglu; its results become inputs */
};
struct epilogue {
    enum epilogue_kind kind;
    /* f32 [rows, N]. APPEND leaves the queries in their places, and the rest isn't to be read.
     * SWIGLU with kernels_info.fuses doesn't use it. */
    struct buffer out;
    /* APPEND: as of kernels_rope_append; linear->pair is E / 2 */
    const struct step_batch *batch;
    const struct attention_shape *shape;
    const struct head_parameters *heads;
    const struct kv_layout *layout;
    uint32_t layer;
    struct buffer pool;
    struct inputs gated; /* SWIGLU: of k = linear->pair = N / 2 */
};
/* kernels_linear of rows that are inputs, and what `epilogue` says. rows: as many as were made.
 * STATUS_INVALID: also if the inputs are of another type or K than the layer. */
enum status kernels_fused_linear(struct kernels *kernels, const struct linear *linear,
                                 const struct inputs *in, uint32_t rows,
                                 const struct epilogue *epilogue) WARN_UNUSED;

/* --- drawing tokens --- */

/* A draw is PURE: its token is a function of (logits, settings) alone. It uses IEEE operations in
 * one fixed order (not even libm), so that it never depends on the batch, the machine or earlier
 * draws. All backends draw the same tokens.
 *
 * With temperature 0 the greatest logit is drawn; of equals, the lower id. Otherwise p[i] =
 * exp((logits[i] - max) / temperature) in fp32. Then each filter works on the tokens that the
 * one before it kept (temperature, top_k, top_p, min_p: the order of transformers):
 *   top_k  keeps the k greatest; of equals, the lower ids.
 *   top_p  keeps the shortest prefix in descending order (of equals, lower ids first) that holds at
 *          least top_p of the mass.
 *   min_p  keeps p[i] >= min_p times the greatest.
 * A unit random number, keyed by (seed, choice, index), picks from the rest: masses are added in
 * fp64 in ascending id order. Tokens more than 87 temperatures below the greatest have p = 0 and
 * are never drawn. A backend may add in another order where the token is surely the same
 * (cpu/sampler_masses.h); otherwise it adds in this one. */
#define SAMPLER_VERSION 1 /* part of the numerics id: changes when any draw could change */

/* The settings of a draw. */
struct kernels_draw {
    float temperature;      /* 0: the greatest */
    float top_p, min_p;     /* 1, and 0: off */
    uint32_t top_k;         /* 0: off */
    uint64_t seed;          /* seed, choice and index choose the random number: */
    uint32_t choice, index; /* a prompt's answer and its token, from 0 */
};

/* A draw's result. token: 0 if `status`, an enum status, isn't STATUS_OK. STATUS_INTERNAL: a logit
 * is NaN or +infinity. STATUS_INVALID: all are -infinity. */
struct kernels_drawn {
    uint32_t token, status;
};

/* Bytes of device memory that kernels_sample works in. */
size_t kernels_sample_bytes(const struct kernels *kernels, uint32_t vocab);
/* drawn[t] = a draw from logits[t] by draws[t]. logits: f32 [rows, V]; draws: struct kernels_draw
 * [rows]; drawn: struct kernels_drawn [rows]; scratch: kernels_sample_bytes, which overlaps none of
 * them. */
enum status kernels_sample(struct kernels *kernels, const struct buffer *logits, uint32_t rows,
                           uint32_t vocab, const struct buffer *draws, struct buffer *scratch,
                           struct buffer *drawn) WARN_UNUSED;
/* tokens[t] = drawn[from[t]].token where from[t] isn't KERNELS_TOKEN_GIVEN. from, tokens: u32
 * [rows]. The caller checks that places are < the number of draws. */
#define KERNELS_TOKEN_GIVEN UINT32_MAX
enum status kernels_take_tokens(struct kernels *kernels, const struct buffer *from, uint32_t rows,
                                const struct buffer *drawn, struct buffer *tokens) WARN_UNUSED;

/* The same draw on the host, of a row that the host has (logits: [vocab], vocab > 0). Any thread.
 * memory: kernels_draw_bytes, on a multiple of 8 bytes. The logits may lie at its beginning and
 * are overwritten then. Errors: as in struct kernels_drawn. */
enum status kernels_draw_row(const float *logits, uint32_t vocab, const struct kernels_draw *draw,
                             void *memory, uint32_t *token) WARN_UNUSED;
size_t kernels_draw_bytes(uint32_t vocab);
/* Returns the id of the greatest value; of equals, the first. count > 0. *sound becomes false if a
 * value is NaN or +infinity. PURE; any thread. */
uint32_t kernels_greatest(const float *values, uint32_t count, bool *sound);

/* --- passes: operations that are recorded once and run again and again. The step thread's --- */

/* A pass reads and writes the buffers that were named when it was recorded, whatever they hold by
 * then: lengths, block ids, tokens and draws may differ each time, numbers of rows can't. It gives
 * the bits that its operations give when they are called one by one. */
#define KERNELS_MAX_PASSES 192
#define KERNELS_NO_PASS    UINT32_MAX

/* From now on operations are recorded instead of queued, until kernels_pass_end; no other call may
 * come between. Buffers of recorded operations stay until the backend is closed.
 * STATUS_UNSUPPORTED: the backend doesn't record (kernels_info.records). */
enum status kernels_pass_begin(struct kernels *kernels) WARN_UNUSED;
/* Makes pass number `pass` (< KERNELS_MAX_PASSES, a new one) of what was recorded, and gives the
 * device memory that it took. KERNELS_NO_PASS: forgets it. Set-up only: it waits for all that is
 * queued. STATUS_LIMIT: no memory, or it takes more than most_bytes. STATUS_INTERNAL: the device
 * refuses. In both cases there is no such pass, and all else is as before. */
enum status kernels_pass_end(struct kernels *kernels, uint32_t pass, size_t most_bytes,
                             size_t *bytes) WARN_UNUSED;
/* Queues the pass behind all that KERNELS_STEPS has queued. */
enum status kernels_pass_run(struct kernels *kernels, uint32_t pass) WARN_UNUSED;

/* --- for benchmarks: the time that operations take, and the limits of the machine --- */

/* Nanoseconds that the calls of the operations took, by kind, without draws. A backend that only
 * queues its work spends its time elsewhere. */
struct kernels_profile {
    uint64_t embed, rmsnorm, linear, rope_append, attention, swiglu;
};
/* Makes operations add their time to `profile` from now on, which the caller keeps. NULL: stops. */
void kernels_profile_to(struct kernels *kernels, struct kernels_profile *profile);

/* Measures 10^9 operations a second (a multiply-add is two) of all compute threads side by side, by
 * their CPU time. They run independent instructions from register to register, of the kind that
 * layers of this type use here. *instruction names it. Takes some 20 to 60 ms. A GPU multiplies a
 * large layer by many rows instead, timed by its events; *instruction names the shape and is valid
 * until the next call. Returns 0, with "": not known here. */
double kernels_measure_peak(struct kernels *kernels, enum weight_type type,
                            const char **instruction);
/* Measures one pass over `memory`, of which each compute thread reads its part from front to back.
 * Returns the CPU time of the slowest thread in nanoseconds. A GPU copies the first half, by its
 * events: that moves as many bytes, read and written. 0: it failed. */
uint64_t kernels_measure_read(struct kernels *kernels, const struct buffer *memory);

#endif
