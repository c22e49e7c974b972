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
    uint32_t *tables; /* [sizes.tables] bytes, kernels_host_alloc */
    float *logits;    /* [samples, vocab] read back; NULL: logits are read in place */
    /* The device draws the tokens of the first drawn_count rows of logits. Rows from first_read on
     * are read back. */
    uint32_t *places; /* [samples] each sample's row, in the order of the sequences */
    uint32_t drawn_count, first_read, sample_count;
    struct kernels_drawn *drawn; /* [samples] read back; NULL: the host draws all tokens */
    struct buffer draws, from; /* in the tables on the device; from without address: none is fed */
    /* begun: its tables are there. computed: its operations are done. ended: its results are on the
     * host. computed_before: of the step before it, if the device may go on from there at once; 0:
     * no. moved: of KERNELS_MOVES, the blocks that it needs. */
    kernels_event begun, computed, ended, computed_before, moved;
    uint32_t rows;
    uint32_t bucket; /* STEP_BUCKETS_NONE: its operations are queued one by one */
};

/* Host memory of a pool's copier: what a transport stages at once. */
#define ENGINE_COPIER_BYTES ((size_t)8 << 20)

/* Bytes of what the engine allocates beside weights and activations. */
struct engine_sizes {
    size_t tables;         /* a step's: on the device, and on the host for each in flight */
    size_t logits;         /* a flight's, on the host; 0: they are read in place */
    size_t scored;         /* rows of logits that score a prompt: on both */
    size_t drawn;          /* a step's draws: on both; 0: the host draws */
    size_t sample_scratch; /* for these draws, on the device */
    size_t pool;           /* with the probe and the padding rows' block behind it */
    size_t sums;           /* the copier's, on the device; 0: there is none */
};

/* Bytes that the engine takes, on the device and beside it on the host. */
struct engine_memory {
    uint64_t device, weights, pool, steps; /* device: the others */
    uint64_t recorded;         /* the most that recordings may take, a part of `steps` */
    uint64_t host, host_steps; /* host: these, the slots of swapped blocks, the copier's */
};

struct model_engine {
    struct engine base;
    struct engine_sizes sizes;
    struct engine_memory memory;
    uint32_t least_rows; /* max_rows may be so few if more don't fit */
    struct weight_types weight_types;
    struct kernels *kernels;
    struct weights weights;
    struct llama llama;
    struct sampler sampler;
    struct buffer pool;
    bool pool_is_ours;
    struct error shares_nothing; /* why the pool is alone; "": it is shared */
    struct buffer sums;          /* u32 [KV_SUMS_AT_ONCE, runs of a block] of the copier */
    struct queued_step flights[ENGINE_TICKETS]; /* the first one alone if it doesn't run ahead */
    struct buffer tables;                       /* the computed step's */
    struct buffer drawn, sample_scratch;        /* the last step's draws; only if base.feeds */
    uint32_t *score_rows;                       /* [max_sequences] kernels_host_alloc */
    struct buffer score_table;
    kernels_event moved; /* behind the last move of a block */
    bool has_moved;      /* blocks were moved since the last step was submitted */
    bool failed;         /* the device, before the steps in flight ended: they fail, too */
    /* Decode steps that the device has recorded; bucket i is its pass i. Padding rows write to a
     * block behind the pool's last, and only they read it. */
    struct step_buckets buckets;
    uint32_t padding_block;
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

/* Records the buckets, once the pool is there: as many as memory and time allow. A device that
 * refuses one is used without it, and the log says so. STATUS_UNAVAILABLE: it is lost. */
enum status model_engine_record(struct model_engine *engine) WARN_UNUSED;
/* Fills in the engine's copier, over its own pool: its functions run in KERNELS_TRANSFERS. */
enum status model_engine_open_copier(struct model_engine *engine) WARN_UNUSED;

#endif
