/* Parts that the plans of all operations (launch.h) share. PURE. */
#ifndef BATON_KERNELS_CUDA_PLAN_H
#define BATON_KERNELS_CUDA_PLAN_H

#include "kernels/cuda/launch.h"
#include "kernels/cuda/parameters.h"

/* Adds a launch of `blocks` blocks; the caller may change its grid. */
struct cuda_launch *plan_launch(struct cuda_plan *plan, const char *kernel, uint32_t blocks,
                                uint32_t threads, uint32_t shared_bytes, const void *parameters,
                                size_t bytes);
/* Adds a launch of a kernel that has a block for a row. */
#define PLAN_ROWS(PLAN, KERNEL, BLOCKS, P)                                                         \
    plan_launch(PLAN, KERNEL, BLOCKS, CUDA_ROW_THREADS, CUDA_ROW_THREADS / 32 * sizeof(double), P, \
                sizeof *(P))
/* Begins a call: no launches, and done if there are no rows left. Returns whether there are. */
bool plan_begin(struct cuda_plan *plan, uint32_t rows);
/* Ends a call that planned the rows before next_row. */
enum status plan_end(const struct cuda_target *target, struct cuda_plan *plan, uint32_t next_row,
                     uint32_t rows) WARN_UNUSED;
/* Draws a number below `bound` for a test's plan; `what` tells draws of one plan apart. */
uint32_t plan_drawn(const struct cuda_target *target, const struct cuda_plan *plan, uint32_t what,
                    uint32_t bound);

struct cuda_kv plan_kv(const struct step_batch *batch, const struct kv_layout *layout,
                       uint32_t layer, const struct buffer *pool);
struct cuda_heads plan_heads(const struct step_batch *batch, const struct attention_shape *shape,
                             const struct head_parameters *parameters,
                             const struct kv_layout *layout, uint32_t layer,
                             const struct buffer *pool);
struct cuda_weights plan_weights(const struct linear *linear);

/* The memory of inputs: cells; with quantized types also scales, and f32 rows. Operations leave
 * their rows there that are quantized only once they are whole. */
struct plan_inputs {
    struct cuda_inputs inputs;
    float *scales, *whole; /* NULL: bf16 */
    uint32_t rows, k;
    struct cuda_scale fixed; /* shared by all rows, in FP8; {0, 0}: none */
    const char *kernel;      /* makes inputs of f32 rows */
    size_t bytes;
};
struct plan_inputs plan_inputs(const struct inputs *inputs, uint32_t rows);
/* Adds the launch that makes them. p: `in`, and a norm. */
void plan_launch_inputs(struct cuda_plan *plan, const struct plan_inputs *to,
                        struct inputs_parameters p);

#endif
