/* The engine's struct. For engine.c, which opens and closes it, and engine_step.c, which computes;
 * no other file includes this. */
#ifndef BATON_ENGINE_ENGINE_STATE_H
#define BATON_ENGINE_ENGINE_STATE_H

#include "common/engine/engine.h"
#include "common/engine/model/llama.h"
#include "common/engine/model/sampler.h"
#include "common/language/model_config/model_config.h"

/* A table of a step: filled on the host, used on the device. */
struct table {
    uint32_t *host;
    struct buffer device;
};

struct engine {
    struct engine_config config; /* without its pointers, except `smaller` */
    struct model_config model;
    struct weight_types weight_types;
    struct kernels *kernels;
    struct kv_layout layout;
    uint32_t context;
    size_t pool_bytes;
    struct weights weights;
    struct llama llama;
    struct sampler sampler;
    struct buffer pool;
    bool pool_is_ours;
    char *slots; /* [swap_blocks] blocks on the host */
    size_t slot_bytes;
    struct table tokens, positions, row_sequence; /* [max_rows] */
    struct table sequence_rows;                   /* [max_sequences + 1] */
    struct table block_tables;                    /* [max_sequences, blocks of the context] */
    struct table sample_rows, score_rows;         /* [max_sequences] */
    float *logits; /* [max_sequences, vocab] for downloads; NULL: logits are read in place */
    struct engine_counters counters;
    uint64_t model_hash, numerics_id;
    char numerics_name[128];
};

#endif
