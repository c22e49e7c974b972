/* One model on one device: load it, then run steps. The step thread owns it; nothing here locks.
 *
 * A step takes rows of any mix of sequences (chunks of prompts and single decode rows), appends
 * their keys and values to the KV pool blocks that the caller names, and draws the next token where
 * asked. Which sequences, which blocks: the caller's decision (sched/); the engine only computes.
 * After engine_open a step allocates nothing.
 */
#ifndef BATON_ENGINE_ENGINE_H
#define BATON_ENGINE_ENGINE_H

#include "common/base/domain/kv_layout.h"
#include "common/base/domain/model_shape.h"
#include "common/base/domain/sampling.h"
#include "common/base/status.h"
#include "common/engine/kv_choice.h"
#include "common/engine/model/weight_types.h"
#include "kernels/kernels.h"

struct engine;

struct engine_config {
    const char *model_dir; /* Hugging Face folder */
    bool random_weights;   /* benchmarks: config.json alone; weights N(0, 0.02) from a fixed seed */
    enum weight_choice weights;
    enum kv_choice kv;
    const char *weight_cache; /* where packed weights are kept (weight_cache.h); NULL: nowhere */
    struct kernels_config kernels;
    uint32_t block_tokens;
    uint32_t block_count;   /* of the KV pool */
    uint32_t swap_blocks;   /* host slots for blocks that are swapped out; 0: none */
    uint32_t max_rows;      /* rows of one step at most: the prefill chunk plus the decode batch */
    uint32_t max_sequences; /* sequences of one step at most */
    uint32_t context_limit; /* 0: the model's own */
    const char *smaller;    /* what takes less memory, for people; NULL: the pool, chunks */
};

/* The pool's memory is the caller's (a transport allocates it so that peers can read it), so
 * opening has two halves: engine_open loads the model and says how many bytes the pool needs;
 * engine_attach_pool hands it over. With NULL the engine allocates a pool of its own. The caller
 * keeps the memory alive until engine_close. */
enum status engine_open(const struct engine_config *config, struct engine **engine,
                        struct error *err) WARN_UNUSED;
size_t engine_pool_bytes(const struct engine *engine);
size_t engine_weight_bytes(const struct engine *engine); /* packed, with the rope table */
enum status engine_attach_pool(struct engine *engine, void *pool, struct error *err) WARN_UNUSED;
void engine_close(struct engine *engine);

const struct model_shape *engine_shape(const struct engine *engine);
const struct kv_layout *engine_layout(const struct engine *engine);
uint32_t engine_context(const struct engine *engine); /* tokens of prompt + answer at most */
/* Of config, tensor names and shapes, sampled bytes. */
uint64_t engine_model_hash(const struct engine *engine);
/* Of the kernels' name and version, types, segments. */
uint64_t engine_numerics_id(const struct engine *engine);
const char *engine_isa(const struct engine *engine); /* what its kernels run on, of isa_names */
/* The numerics for people: "bf16-portable/w-bf16/kv-int8/k4/...". */
const char *engine_numerics_name(const struct engine *engine);
/* Of the pool, on the host; NULL on a device. */
void *engine_pool_address(const struct engine *engine);
/* End-of-sequence ids of generation_config.json (or config.json). */
const uint32_t *engine_end_ids(const struct engine *engine, uint32_t *count);

/* One sequence's part of a step. */
struct engine_sequence {
    const uint32_t *tokens;         /* [token_count] ids, each < vocab */
    uint32_t token_count, position; /* of the first; the others' follow */
    const uint32_t *blocks;         /* ids that cover positions 0 .. position + token_count - 1 */
    uint32_t block_count;
    uint32_t prompt_rows; /* of its rows, those of a prompt (or a replay): for the counters */
    /* Sampling at the last row: */
    bool sample; /* false in the middle of a prompt */
    const struct sampling *sampling;
    uint32_t index; /* of the token to draw in the answer, from 0: the random numbers' counter */
    /* [position + token_count] prompt and answer, `tokens` their end: for penalties */
    const uint32_t *history;
    /* [(vocab + 31) / 32] a bit for each id that may be drawn; NULL: all */
    const uint32_t *allowed;
    bool ban_end; /* min_tokens isn't reached: end ids and stop ids can't be drawn */
    /* Logprobs of tokens that are there already (prompts'): row score_first + i is asked about
     * score_tokens[i], which follows it. */
    uint32_t score_first, score_count, score_top; /* rows of its own; score_top as top_logprobs */
    const uint32_t *score_tokens;                 /* [score_count] ids, each < vocab */
    struct token_logprobs *scores;                /* [score_count], the caller's: filled */
    /* Results, valid where `sample`, and `status` where it scores, too. STATUS_INTERNAL: a NaN
     * among its logits, STATUS_INVALID: every id is banned, or none allowed; no token then. */
    enum status status;
    uint32_t token;
    uint64_t logits_hash; /* 64-bit hash of the row's fp32 logits, if `sampling` asks; else 0 */
    struct token_logprobs logprobs; /* of the token, if `sampling` asks */
    const float *logits;            /* [vocab], until the next step */
};

/* Runs one step. STATUS_INVALID (nothing computed) if a limit is broken or an id is out of range;
 * STATUS_INTERNAL if the device fails. Sum of token_count <= max_rows, count <= max_sequences. One
 * sequence's bad logits are its own `status`: the step is STATUS_OK for the others. */
enum status engine_step(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                        struct error *err) WARN_UNUSED;

/* Whole blocks that change their places between two steps: ids of the pool and of the host slots.
 * Carried out in the order of the calls; a SWAP_OUT's bytes are in its slot when the call returns,
 * the others when engine_moves_done has. */
enum engine_move {
    ENGINE_COPY,     /* block to block */
    ENGINE_SWAP_OUT, /* block to slot */
    ENGINE_SWAP_IN,  /* slot to block */
};
/* STATUS_INVALID: an id is out of range, or a block is copied onto itself; STATUS_INTERNAL: the
 * device failed. Either way the target's content is not to be used. */
enum status engine_move_block(struct engine *engine, enum engine_move move, uint32_t from,
                              uint32_t to, struct error *err) WARN_UNUSED;
enum status engine_moves_done(struct engine *engine, struct error *err) WARN_UNUSED;

struct engine_counters {
    uint64_t steps, prompt_rows, decode_rows; /* forward rows computed, by kind */
};
struct engine_counters engine_counters(const struct engine *engine);

/* For benchmarks: what steps could reach at best on this engine's threads, measured by the call,
 * between two steps. */
struct engine_limits {
    const char *isa;         /* the instruction set that runs, of isa_names */
    const char *instruction; /* that linear layers are made of at best; "": not known here */
    double peak_gflops;      /* of it, 10^9 operations a second; a multiply-add is two */
    uint64_t weight_bytes;   /* packed weights that a step reads, however few rows it has */
    double read_gbs;         /* of one sequential pass over them, 10^9 bytes a second */
};
struct engine_limits engine_measure_limits(struct engine *engine);
/* From now on steps add their time to `profile`, by operation; NULL: to nothing. */
void engine_profile_to(struct engine *engine, struct kernels_profile *profile);

#endif
