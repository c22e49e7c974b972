/* The engine that computes a model on kernels. For model_engine.c, which opens and closes it,
 * model_engine_step.c, which computes, and engine.c, which chooses it; no other file includes
 * this. */
#ifndef BATON_ENGINE_MODEL_ENGINE_H
#define BATON_ENGINE_MODEL_ENGINE_H

#include "common/engine/engine_state.h"
#include "common/engine/model/llama.h"
#include "common/engine/model/sampler.h"

/* A table of a step: filled on the host, used on the device. */
struct table {
    uint32_t *host;
    struct buffer device;
};

struct model_engine {
    struct engine base;
    struct weight_types weight_types;
    struct kernels *kernels;
    struct weights weights;
    struct llama llama;
    struct sampler sampler;
    struct buffer pool;
    bool pool_is_ours;
    struct table tokens, positions, row_sequence; /* [max_rows] */
    struct table sequence_rows;                   /* [max_sequences + 1] */
    struct table block_tables;                    /* [max_sequences, blocks of the context] */
    struct table sample_rows, score_rows;         /* [max_sequences] */
    float *logits; /* [max_sequences, vocab] for downloads; NULL: logits are read in place */
};

/* As engine_open. */
enum status model_engine_open(const struct engine_config *config, struct engine **engine,
                              struct error *err) WARN_UNUSED;

/* Operations (model_engine_step.c). */
enum status model_engine_step(struct engine *engine, struct engine_sequence *sequences,
                              uint32_t count, struct error *err);
enum status model_engine_move_block(struct engine *engine, enum engine_move move, uint32_t from,
                                    uint32_t to);
enum status model_engine_moves_done(struct engine *engine);

#endif
