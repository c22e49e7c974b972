/* The weights of a Llama-family model on the device, in the backend's packed form.
 *
 * Letters as in kernels.h: D hidden, H query heads, G kv heads, E head_dim, F ffn, V vocab. Linear
 * layers are [outputs, inputs]; layers that read the same input are one (q, k, v and gate, up).
 * Everything is made by weights_load and freed by weights_unload; the files are not needed
 * afterwards. Owner: the step thread. */
#ifndef BATON_ENGINE_MODEL_WEIGHTS_H
#define BATON_ENGINE_MODEL_WEIGHTS_H

#include "common/base/domain/model_shape.h"
#include "common/engine/model/packed_file.h"
#include "common/engine/model/weight_types.h"
#include "kernels/kernels.h"

struct safetensors;

struct layer_weights {
    struct buffer attention_norm; /* f32 [D] */
    struct linear qkv;            /* [(H + 2G) E, D]: query heads, key heads, value heads */
    struct buffer qkv_bias;       /* f32 [(H + 2G) E], where the shape has qkv_bias */
    struct buffer q_norm, k_norm; /* f32 [E] each, where the shape has qk_norm */
    struct linear attention_out;  /* [D, H E] */
    struct buffer ffn_norm;       /* f32 [D] */
    struct linear gate_up;        /* [2F, D]: gate, up */
    struct linear down;           /* [D, F] */
};

struct weights {
    struct linear embedding;      /* [V, D] */
    struct layer_weights *layers; /* [layers] */
    struct buffer final_norm;     /* f32 [D] */
    struct linear lm_head;        /* [V, D]; tied: nothing, the embedding is it */
    struct buffer rope;           /* f32 [positions, E]: cos E/2, sin E/2 */
    uint64_t rope_hash;           /* of its first rows: what this machine made of them */
    uint32_t layer_count;
    struct buffer layer_memory; /* where all linear layers lie: ours, or */
    struct packed_map packed;   /* a file's */
};

/* Is every tensor there, of its shape and of a type that can be read, and none beside them? Takes
 * no memory. `bytes`: what weights_load will take at its peak. files == NULL: random weights, only
 * the bytes. */
enum status weights_check(struct kernels *kernels, const struct model_shape *shape,
                          struct weight_types types, uint32_t positions, struct safetensors *files,
                          uint64_t *bytes, struct error *err) WARN_UNUSED;

/* After weights_check. From files; or, with files == NULL, random ones for benchmarks: N(0, 0.02)
 * from a fixed seed, norms 1. `positions`: rows of the rope table. `cache_path` (weight_cache_path;
 * empty: none): packed layers are taken from that file, if it is of these files and whole, and kept
 * there otherwise. Tells how far it is, and logs a line when done. On failure nothing is left
 * behind. */
enum status weights_load(struct kernels *kernels, const struct model_shape *shape,
                         struct weight_types types, uint32_t positions, struct safetensors *files,
                         const char *cache_path, struct weights *weights,
                         struct error *err) WARN_UNUSED;
void weights_unload(struct kernels *kernels, struct weights *weights);

/* The layer that makes logits: lm_head, or the embedding that it is tied to. */
const struct linear *weights_head(const struct weights *weights);

size_t weights_bytes(const struct weights *weights); /* on the device */
/* Of those, what a step reads whatever its rows are: the linear layers and the head. */
size_t weights_step_bytes(const struct weights *weights);
/* Nanoseconds of one sequential pass over them (kernels_measure_read). */
uint64_t weights_measure_read(struct kernels *kernels, const struct weights *weights);
/* Values of all tensors. */
uint64_t weights_count(const struct model_shape *shape);

#endif
