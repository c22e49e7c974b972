/* A layer of a model, run by fused operations or by the plain ones that they stand for. */
#ifndef BATON_TESTS_KERNELS_LAYER_FIXTURE_H
#define BATON_TESTS_KERNELS_LAYER_FIXTURE_H

#include "tests/kernels/fixture.h"

struct layer_case {
    uint32_t hidden, heads, kv_heads, head_dim, ffn;
    uint32_t rows[2];         /* two sequences, from position 0 on */
    enum weight_type weights; /* WEIGHT_BF16: the float type of the backend */
    bool int8_pool, biased, normed;
    float input_scale; /* FP8: about that of each layer's inputs; 0: rows have their own */
};

struct layer_rig {
    struct kernels *kernels;
    struct layer_case shape;
    struct kv_layout layout;
    struct linear qkv, attention_out, gate_up, down;
    struct buffer norms[2], pool;
    struct head_parameters heads;
    float *x; /* [rows, hidden]: what the layer begins with */
};

/* The same weights and inputs for every backend. */
struct layer_rig layer_rig_make(struct kernels *kernels, const struct layer_case *shape);
void layer_rig_free(struct layer_rig *rig);

/* Rows [first, first + rows) of both sequences side by side, as one step: rows of a sequence before
 * `first` are in the pool. */
struct layer_step {
    uint32_t first[2], rows[2];
    bool fused;
};
/* Returns the residual stream of the step's rows behind the layer; free(). */
float *layer_run(struct layer_rig *rig, const struct layer_step *step);
/* The bytes of the pool; free(). */
void *layer_pool(struct layer_rig *rig);

#endif
