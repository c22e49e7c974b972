/* The engine that computes a model on kernels. For model_engine.c, which opens and closes it,
 * model_engine_step.c, which computes, and engine.c, which chooses it; no other file includes
 * this. */
#ifndef BATON_ENGINE_MODEL_ENGINE_H
#define BATON_ENGINE_MODEL_ENGINE_H

#include "common/engine/engine_state.h"
#include "common/engine/model/llama.h"
#include "common/engine/model/sampler.h"

/* A step from engine_submit to engine_wait. Its tables lie one behind the other, as long as the
 * step needs them, and are uploaded together. Their places depend on the numbers of rows,
 * sequences, blocks and samples alone. */
struct queued_step {
    uint32_t *tables; /* [table_words] kernels_host_alloc */
    float *logits;    /* [max_sequences, vocab] read back; NULL: logits are read in place */
    /* The device draws the tokens of the first drawn_count rows of logits. Rows from first_read on
     * are read back. */
    uint32_t *places; /* [max_sequences] each sample's row, in the order of the sequences */
    uint32_t drawn_count, first_read, sample_count;
    struct kernels_drawn *drawn; /* [max_sequences] read back; NULL: the host draws all tokens */
    struct buffer draws, from; /* in the tables on the device; from without address: none is fed */
    kernels_event begun, ended, moved; /* moved: of KERNELS_MOVES, the blocks that it needs */
    uint32_t rows;
};

/* Bytes that the engine takes, on the device and beside it on the host. */
struct engine_memory {
    uint64_t device, weights, steps; /* device: these, and the pool */
    uint64_t host, host_steps;       /* host: these, and the slots of swapped blocks */
};

struct model_engine {
    struct engine base;
    struct engine_memory memory;
    struct weight_types weight_types;
    struct kernels *kernels;
    struct weights weights;
    struct llama llama;
    struct sampler sampler;
    struct buffer pool;
    bool pool_is_ours;
    struct queued_step flights[ENGINE_TICKETS]; /* the first one alone if it doesn't run ahead */
    struct buffer tables;                       /* [table_words] of the step that is computed */
    size_t table_words;
    struct buffer drawn, sample_scratch; /* the last step's draws; only if base.feeds */
    uint32_t *score_rows;                /* [max_sequences] kernels_host_alloc */
    struct buffer score_table;
    kernels_event moved; /* behind the last move of a block */
    bool has_moved;      /* blocks were moved since the last step was submitted */
    bool failed;         /* the device, before the steps in flight ended: they fail, too */
};

/* As engine_open. */
enum status model_engine_open(const struct engine_config *config, struct engine **engine,
                              struct error *err) WARN_UNUSED;

/* Operations (model_engine_step.c). */
enum status model_engine_submit(struct engine *engine, struct engine_sequence *sequences,
                                uint32_t count, engine_ticket ticket, struct error *err);
enum status model_engine_wait(struct engine *engine, engine_ticket ticket,
                              struct engine_sequence *sequences, uint32_t count, struct error *err);
enum status model_engine_move_block(struct engine *engine, enum engine_move move, uint32_t from,
                                    uint32_t to);
enum status model_engine_moves_done(struct engine *engine);

#endif
