/* The weights of a Llama-family model on the device, in the backend's packed form.
 *
 * Letters as in kernels.h: D hidden, H query heads, G kv heads, E head_dim, F ffn, V vocab. Linear
 * layers are [outputs, inputs]. Layers with the same input are one: q, k, v; and gate, up.
 * weights_load makes everything and weights_unload frees it; the files are not needed in between.
 * Owner: the step thread. */
#ifndef BATON_ENGINE_MODEL_WEIGHTS_H
#define BATON_ENGINE_MODEL_WEIGHTS_H

#include "common/base/domain/model_shape.h"
#include "common/engine/model/weight_cache.h"
#include "common/engine/model/weight_types.h"
#include "kernels/kernels.h"

struct safetensors;

struct layer_weights {
    struct buffer attention_norm; /* f32 [D] */
    struct linear qkv;            /* [(H + 2G) E, D]: query heads, key heads, value heads */
    struct buffer qkv_bias;       /* f32 [(H + 2G) E], if the shape has qkv_bias */
    struct buffer q_norm, k_norm; /* f32 [E] each, if the shape has qk_norm */
    struct linear attention_out;  /* [D, H E] */
    struct buffer ffn_norm;       /* f32 [D] */
    struct linear gate_up;        /* [2F, D]: gate, up */
    struct linear down;           /* [D, F] */
};

struct weights {
    struct linear embedding;      /* [V, D] */
    struct layer_weights *layers; /* [layer_count] */
    struct buffer final_norm;     /* f32 [D] */
    struct linear lm_head;        /* [V, D]; empty if tied to the embedding */
    struct buffer rope;           /* f32 [positions, E]: rope_rows */
    uint64_t rope_hash;           /* hash of its first rows, as this machine computed them */
    uint32_t layer_count;
    struct buffer layer_memory; /* the memory of all linear layers: ours, or */
    struct packed_map packed;   /* a file's */
};

/* Checks that every tensor is there, has its shape and a readable type, and that there is no other.
 * Takes no memory. `bytes`: the peak that weights_load will take. files == NULL: random weights;
 * only the bytes. */
enum status weights_check(struct kernels *kernels, const struct model_shape *shape,
                          struct weight_types types, uint32_t positions, struct safetensors *files,
                          uint64_t *bytes, struct error *err) WARN_UNUSED;

/* Loads the weights. Call weights_check first. files == NULL: random ones for benchmarks, N(0,
 * 0.02) from a fixed seed, norms 1. `positions`: rows of the rope table. `cache_path`
 * (weight_cache_path; empty: none): takes packed layers from that file if it is whole and made
 * of these files, otherwise keeps them there. Shows its progress and logs a line at the end. On
 * failure nothing is left behind. */
enum status weights_load(struct kernels *kernels, const struct model_shape *shape,
                         struct weight_types types, uint32_t positions, struct safetensors *files,
                         const char *cache_path, struct weights *weights,
                         struct error *err) WARN_UNUSED;
void weights_unload(struct kernels *kernels, struct weights *weights);

/* Returns the layer that makes logits: lm_head, or the embedding that it is tied to. */
const struct linear *weights_head(const struct weights *weights);

size_t weights_bytes(const struct weights *weights); /* on the device */
/* Returns the bytes that a step reads, however many rows it has: the linear layers and the head. */
size_t weights_step_bytes(const struct weights *weights);
/* Returns the nanoseconds of one sequential pass over those bytes (kernels_measure_read; on a
 * device, their share of a pass over all layers). 0: it failed. */
uint64_t weights_measure_read(struct kernels *kernels, const struct weights *weights);

/* Returns whether ROPE_LONGROPE takes the factors of long contexts: for all positions alike, by the
 * `context` that is served (docs/decisions/0046). PURE. */
bool rope_is_long(const struct model_shape *shape, uint32_t context);

/* Fills rows [first, last) of a rotary embedding table (Su et al., RoFormer) with the scaling of
 * the shape. PURE. table: [positions, head_dim], each row cos (head_dim / 2), then sin (head_dim /
 * 2). `context`: positions that are served. A row depends on its position, never on the length of
 * a request: cached keys stay right. Angles are computed in fp32 in the steps of transformers: at
 * position 3000 an exact angle would differ from the reference by more than any other rounding.
 * Sines and cosines are our own (fixed_math.h), with equal bits everywhere. */
void rope_rows(const struct model_shape *shape, uint32_t context, uint32_t first, uint32_t last,
               float *table);

#endif
