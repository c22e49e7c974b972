/* The shape of a decoder-only transformer, which sizes everything else. PURE.
 * common/language/model_config fills it from config.json and validates it, so that every field is
 * in its range. */
#ifndef BATON_BASE_DOMAIN_MODEL_SHAPE_H
#define BATON_BASE_DOMAIN_MODEL_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

/* The schemes that stretch a rotary embedding to longer contexts, by their names in config.json. */
enum rope_type {
    ROPE_DEFAULT,  /* none */
    ROPE_LINEAR,   /* all frequencies / factor */
    ROPE_DYNAMIC,  /* none within the context, which is the trained one (docs/decisions/0046) */
    ROPE_LLAMA3,   /* long wavelengths / factor, short ones as they are, a blend between */
    ROPE_YARN,     /* the same by rotations within the trained context; and `attention` */
    ROPE_LONGROPE, /* each frequency / a factor of its own; and `attention` */
};
const char *rope_type_name(enum rope_type type);

#define ROPE_MAX_FREQUENCIES 128 /* half of the largest head_dim */

struct rope_scaling {
    enum rope_type type;
    double factor;                            /* 1 or more */
    double low_freq_factor, high_freq_factor; /* ROPE_LLAMA3 */
    double beta_fast, beta_slow;              /* ROPE_YARN: rotations at the ends of the blend */
    bool truncate;                            /* ROPE_YARN: the ends are whole dimensions */
    double attention;          /* cosines and sines are multiplied by it; 0: they are not */
    uint32_t original_context; /* positions that the model was trained with */
    /* ROPE_LONGROPE: [head_dim / 2], for contexts up to the original one, and for longer ones */
    float short_factors[ROPE_MAX_FREQUENCIES], long_factors[ROPE_MAX_FREQUENCIES];
};

struct model_shape {
    uint32_t layers;   /* num_hidden_layers */
    uint32_t hidden;   /* hidden_size, D */
    uint32_t ffn;      /* intermediate_size */
    uint32_t heads;    /* num_attention_heads, H */
    uint32_t kv_heads; /* num_key_value_heads; heads % kv_heads == 0 */
    uint32_t head_dim; /* explicit, or hidden / heads */
    uint32_t vocab;    /* rows of the embedding */
    uint32_t context;  /* max_position_embeddings */
    /* positions that a row sees in every layer, with itself as the last; 0: all */
    uint32_t window;
    double rms_eps;
    double rope_theta;
    struct rope_scaling rope_scaling;
    bool tied_embeddings; /* lm_head is the embedding */
    bool qkv_bias;        /* q, k and v have a bias */
    bool qk_norm;         /* query and key heads have an RMS norm of their own */
};

/* The element type of the KV cache. INT8: whole numbers, and one fp32 scale for each token of a
 * head (kernels.h). */
enum kv_type { KV_F32, KV_BF16, KV_INT8 };
uint32_t kv_type_bytes(enum kv_type type); /* bytes of one key or value element */
/* bytes of the scale of one token's key or value */
uint32_t kv_type_scale_bytes(enum kv_type type);
const char *kv_type_name(enum kv_type type);

#endif
