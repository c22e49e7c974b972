/* The seam between the host side of the CUDA backend and its kernels: pure plans that turn an
 * operation of kernels.h into launches. The driver runs the launches, or an emulator on the CPU
 * does. PURE: a plan looks at shapes and addresses, never at device memory.
 *
 * A plan decides tile shapes, grids, splits and shared memory. No bit of a result depends on it:
 * each plan of a table gives the same ones, on both paths (numerics in README.md).
 *
 * Rows. Scratch memory has a fixed size, so that an operation of many rows is planned in turns. The
 * caller begins with a zeroed struct cuda_plan. It runs the launches of each call in order, all in
 * one stream, and calls again until `done`.
 *
 * Scratch and tickets. Launches of one stream share them. Tickets hold zeros before the first
 * launch; kernels leave zeros behind. A failed launch leaves neither, so that its context ends.
 *
 * Errors. STATUS_UNSUPPORTED: a shape that has no kernel; cuda_refusal_... says why.
 * STATUS_LIMIT: one row doesn't fit into the scratch memory. kernels.c has checked the rest. */
#ifndef BATON_KERNELS_CUDA_LAUNCH_H
#define BATON_KERNELS_CUDA_LAUNCH_H

#include "kernels/kernels.h"

#include <stdalign.h>

/* kernels_info.name and quantized_name begin with these: the family of kernels and the version of
 * its order of sums. Both paths (sm_90a and portable) belong to one family. The compute capability
 * follows ("cuda-bf16-sm90"): tensor cores of another generation may add in another order. */
#define CUDA_NUMERICS_NAME           "cuda-bf16"
#define CUDA_QUANTIZED_NUMERICS_NAME "cuda-int8"
/* kernels_info.packing: changes with the packed form. */
#define CUDA_PACKING "cuda-2"

#define CUDA_MAX_LAUNCHES    5
#define CUDA_PARAMETER_BYTES 1024
/* Kernels take 16 bytes at a time: scratch begins on a multiple of this, and so do the buffers of
 * kernels_alloc. */
#define CUDA_ALIGN_BYTES 256
/* Less is refused at start. More rows go through a layer at once if there is more. */
#define CUDA_LEAST_SCRATCH_BYTES (1u << 20)
#define CUDA_SCRATCH_BYTES       (256u << 20)
#define CUDA_TICKETS             16384 /* u32 each */

/* One launch: the kernel's name in the module, and its only parameter, a struct of parameters.h by
 * value. */
struct cuda_launch {
    const char *kernel;
    uint32_t grid[3];
    uint32_t threads;      /* [threads, 1, 1] a block */
    uint32_t cluster;      /* blocks of a cluster along x; 1: none */
    uint32_t shared_bytes; /* dynamic shared memory; above 48 KiB the function must allow it */
    /* May start before the kernel ahead of it ends (programmatic dependent launch): it waits
     * (griddepcontrol.wait) before it touches what earlier ones write. Only with target.hopper. */
    bool early;
    uint32_t parameter_bytes;
    alignas(64) uint8_t parameters[CUDA_PARAMETER_BYTES];
};

struct cuda_plan {
    uint32_t next_row; /* rows before it are planned */
    bool done;
    uint32_t count;
    struct cuda_launch launches[CUDA_MAX_LAUNCHES];
};

/* The device, and the memory that plans use. */
struct cuda_target {
    bool hopper;           /* compute capability 9.0: kernels named ..._sm90 may be launched */
    uint32_t sms;          /* multiprocessors */
    uint32_t shared_bytes; /* most dynamic shared memory of a block, after opting in */
    struct buffer scratch; /* >= CUDA_LEAST_SCRATCH_BYTES, on CUDA_ALIGN_BYTES */
    struct buffer tickets; /* CUDA_TICKETS u32, zeros */
    /* 0: the plan that is thought fastest. Otherwise plans are drawn from their tables, for tests
     * of equality. */
    uint64_t draw;
    uint32_t gather_blocks; /* kernels_config's */
    /* Linear layers take this one of cuda_linear_plans; 0: the chosen one. For measurements. */
    uint32_t linear_plan;
};

/* --- packed weights --- */

/* Says why the layer type has no kernel here; NULL: it has one. hopper: cuda_target.hopper. */
const char *cuda_refusal_weights(enum weight_type type, bool hopper);
/* Says why attention of this head_dim has no kernel; NULL: it has one. */
const char *cuda_refusal_head_dim(uint32_t head_dim);
/* Bytes of a packed layer [n, k], a multiple of CUDA_ALIGN_BYTES. 0: a type without a kernel. */
size_t cuda_linear_bytes(enum weight_type type, uint32_t n, uint32_t k);
/* Bytes of packed inputs, a multiple of CUDA_ALIGN_BYTES. Their memory begins on 16. */
size_t cuda_inputs_bytes(enum weight_type type, uint32_t rows, uint32_t k);
/* Byte `byte` of row n before packing lies here; scales follow behind all rows (parameters.h). */
size_t cuda_packed_offset(const struct linear *linear, uint32_t n, size_t byte);

/* Packs rows first_row .. of a layer that holds zeros. rows: [row_count, k] on the device, in the
 * layer's type; scales: f32 [row_count, weight_row_scales], ignored of bf16. */
enum status cuda_plan_pack(const struct cuda_target *target, const struct linear *linear,
                           uint32_t first_row, uint32_t row_count, const struct buffer *rows,
                           const struct buffer *scales, struct cuda_plan *plan) WARN_UNUSED;

/* --- the operations of kernels.h, with its arguments --- */

enum status cuda_plan_embed(const struct cuda_target *target, const struct step_batch *batch,
                            const struct linear *embedding, const struct buffer *x,
                            struct cuda_plan *plan) WARN_UNUSED;
/* rows: NULL for all. */
enum status cuda_plan_rmsnorm(const struct cuda_target *target, const struct buffer *x,
                              const struct buffer *weight, double eps, const struct buffer *rows,
                              uint32_t row_count, uint32_t hidden, const struct buffer *out,
                              struct cuda_plan *plan) WARN_UNUSED;
enum status cuda_plan_linear(const struct cuda_target *target, const struct linear *linear,
                             const struct buffer *in, uint32_t rows, bool accumulate,
                             const struct buffer *out, struct cuda_plan *plan) WARN_UNUSED;
enum status cuda_plan_rope_append(const struct cuda_target *target, const struct step_batch *batch,
                                  const struct attention_shape *shape,
                                  const struct head_parameters *parameters,
                                  const struct kv_layout *layout, uint32_t layer,
                                  const struct buffer *qkv, const struct buffer *pool,
                                  struct cuda_plan *plan) WARN_UNUSED;
enum status cuda_plan_attention(const struct cuda_target *target, const struct step_batch *batch,
                                const struct attention_shape *shape, const struct kv_layout *layout,
                                uint32_t layer, const struct buffer *qkv, const struct buffer *pool,
                                const struct buffer *out, struct cuda_plan *plan) WARN_UNUSED;
enum status cuda_plan_swiglu(const struct cuda_target *target, const struct buffer *gate_up,
                             uint32_t rows, uint32_t ffn, const struct buffer *out,
                             struct cuda_plan *plan) WARN_UNUSED;

/* Both have one launch. Their plans keep no bits of anything: none are drawn. */
enum status cuda_plan_block_sums(const struct cuda_target *target, const struct buffer *pool,
                                 const struct kv_sum_job *job, const struct buffer *sums,
                                 struct cuda_plan *plan) WARN_UNUSED;
/* STATUS_INVALID: offsets or bytes that are no multiples of 16. moves: as of kernels_gather. */
enum status cuda_plan_gather(const struct cuda_target *target, const struct buffer *source,
                             const struct buffer *pool, const struct kv_move *moves, uint32_t count,
                             struct cuda_plan *plan) WARN_UNUSED;

/* How many plans a layer of so many rows can be launched by that may be fast; 0 without kernels for
 * sm_90a. They are numbered from 1 on. */
uint32_t cuda_linear_plans(const struct cuda_target *target, const struct linear *linear,
                           uint32_t rows);
/* Names the plan that target->linear_plan chooses: tile, c2 for clusters of 2, the split (s: all,
 * t: the last tiles), blocks an SM (u: a block a unit) and those that its memory is cut for, as in
 * "128x256c2:1/1". */
#define CUDA_PLAN_NAME_BYTES 48
void cuda_linear_plan_name(const struct cuda_target *target, const struct linear *linear,
                           uint32_t rows, char name[CUDA_PLAN_NAME_BYTES]);

/* --- the fused operations --- */

enum status cuda_plan_fused_rmsnorm(const struct cuda_target *target, const struct buffer *x,
                                    const struct buffer *weight, double eps,
                                    const struct buffer *rows, uint32_t row_count,
                                    const struct inputs *out, struct cuda_plan *plan) WARN_UNUSED;
enum status cuda_plan_fused_attention(const struct cuda_target *target,
                                      const struct step_batch *batch,
                                      const struct attention_shape *shape,
                                      const struct kv_layout *layout, uint32_t layer,
                                      const struct buffer *qkv, const struct buffer *pool,
                                      const struct inputs *out, struct cuda_plan *plan) WARN_UNUSED;
enum status cuda_plan_fused_linear(const struct cuda_target *target, const struct linear *linear,
                                   const struct inputs *in, uint32_t rows,
                                   const struct epilogue *epilogue,
                                   struct cuda_plan *plan) WARN_UNUSED;

size_t cuda_sample_bytes(uint32_t vocab); /* scratch of cuda_plan_sample */
enum status cuda_plan_sample(const struct cuda_target *target, const struct buffer *logits,
                             uint32_t rows, uint32_t vocab, const struct buffer *draws,
                             const struct buffer *scratch, const struct buffer *drawn,
                             struct cuda_plan *plan) WARN_UNUSED;
enum status cuda_plan_take_tokens(const struct cuda_target *target, const struct buffer *from,
                                  uint32_t rows, const struct buffer *drawn,
                                  const struct buffer *tokens, struct cuda_plan *plan) WARN_UNUSED;

#endif
