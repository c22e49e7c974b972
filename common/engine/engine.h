/* One model on one device: loads it, then runs steps. Owner: the step thread; nothing here locks.
 *
 * A step takes rows of any mix of sequences: chunks of prompts and single decode rows. It appends
 * their keys and values to the KV pool blocks that the caller names, and draws the next token where
 * asked. The caller (sched/) decides about sequences and blocks; the engine only computes. A step
 * allocates nothing.
 *
 * engine_submit hands a step to the device, engine_wait gives its results. If engine_runs_ahead, a
 * second step may be handed over before that: the device goes on while the host works. A row of it
 * may be fed a token that the step before draws. Steps end in order.
 */
#ifndef BATON_ENGINE_ENGINE_H
#define BATON_ENGINE_ENGINE_H

#include "common/base/domain/kv_copier.h"
#include "common/base/domain/kv_layout.h"
#include "common/base/domain/model_shape.h"
#include "common/base/domain/sampling.h"
#include "common/base/status.h"
#include "common/engine/engine_choices.h"
#include "common/engine/step_buckets.h"
#include "kernels/kernels.h"

struct engine;
struct step_profile;

/* MODEL computes. MOCK computes nothing and reads no weights: its rows are hashes of tokens, and
 * its steps take the time that a profile says (mock/mock_engine.h). */
enum engine_kind { ENGINE_MODEL, ENGINE_MOCK };
extern const char *const engine_kind_names[]; /* in the order of the enum, then NULL */

struct engine_config {
    enum engine_kind kind;
    const struct step_profile *profile; /* MOCK: copied; NULL: steps take no time */
    const char *model_dir;              /* Hugging Face folder */
    bool random_weights; /* benchmarks: reads only config.json; weights N(0, 0.02), fixed seed */
    enum weight_choice weights;
    enum kv_choice kv;
    const char *weight_cache; /* a place that keeps packed weights (weight_cache.h); NULL: none */
    struct kernels_config kernels;
    uint32_t block_tokens;
    uint32_t block_count; /* blocks of the KV pool */
    uint32_t swap_blocks; /* host slots for swapped blocks; 0: none */
    /* The most of the device's whole memory that the engine takes, so that processes can share a
     * device; 0: as much as is available. */
    double memory_share;
    uint32_t max_rows;      /* rows of one step at most: the prefill chunk plus the decode batch */
    uint32_t gpu_rows;      /* if more: a GPU's max_rows, fewer if they don't fit; 0: max_rows */
    uint32_t max_sequences; /* sequences of one step at most */
    uint32_t draft_tokens;  /* a sequence draws at most so many tokens more than one in a step */
    uint32_t context_limit; /* 0: the model's own */
    /* Decode steps of these shapes are recorded when the pool is attached, if the device records
     * (kernels_info.records) and the pool is the engine's own. */
    struct step_bucket_sizes recorded;
    const char *smaller; /* advice how to need less memory; NULL: a smaller pool, shorter chunks */
};

/* Opening has two halves, since a transport allocates the pool so that peers can read it.
 * engine_open loads the model; engine_pool_bytes then says how many bytes the pool needs.
 * engine_attach_pool hands over that memory, which the caller keeps until engine_close. NULL: the
 * engine allocates a pool of its own. Failures have a sentence. */
enum status engine_open(const struct engine_config *config, struct engine **engine,
                        struct error *err) WARN_UNUSED;
size_t engine_pool_bytes(const struct engine *engine);
size_t engine_weight_bytes(const struct engine *engine); /* packed, and the rope table */
/* No step will have more rows: the memory of the others is free again. Before the pool is
 * attached. If it fails, the engine can only be closed. */
enum status engine_keep_rows(struct engine *engine, uint32_t rows, struct error *err) WARN_UNUSED;
enum status engine_attach_pool(struct engine *engine, void *pool, struct error *err) WARN_UNUSED;
void engine_close(struct engine *engine);
/* Ends the sleep of a step under way, and of all that follow. Any thread. */
void engine_interrupt(struct engine *engine);

const struct model_shape *engine_shape(const struct engine *engine);
const struct kv_layout *engine_layout(const struct engine *engine);
uint32_t engine_context(const struct engine *engine);  /* tokens of prompt + answer at most */
uint32_t engine_max_rows(const struct engine *engine); /* rows of a step at most */
/* A hash of config.json's numbers, tensor names and shapes, sampled bytes. */
uint64_t engine_model_hash(const struct engine *engine);
/* A hash of engine_numerics_name and the rope table: workers with equal ids compute equal bits. */
uint64_t engine_numerics_id(const struct engine *engine);
enum device engine_device(const struct engine *engine); /* never AUTO; a mock's is the CPU */
const char *
engine_isa(const struct engine *engine); /* its kernels' instruction set, of isa_names */
/* The numerics in words: "bf16-portable/w-bf16/kv-int8/k4/...". */
const char *engine_numerics_name(const struct engine *engine);
/* The pool's address on the host; NULL on a device. */
void *engine_pool_address(const struct engine *engine);
/* Whether the device has memory of its own. Then the pool is best the engine's (engine_attach_pool
 * with NULL), and the way to its bytes is engine_pool_copier: valid until engine_close. NULL: there
 * is no such pool. */
bool engine_has_device_memory(const struct engine *engine);
const struct kv_copier *engine_pool_copier(const struct engine *engine);
/* The end-of-sequence ids of generation_config.json (or config.json). */
const uint32_t *engine_end_ids(const struct engine *engine, uint32_t *count);

/* A row's result. STATUS_INTERNAL: a logit is NaN. STATUS_INVALID: every id is banned, or none is
 * allowed. Then there is no token. */
struct engine_draw {
    enum status status;
    uint32_t token;
    uint64_t logits_hash; /* 64-bit hash of the row's fp32 logits, if asked for; otherwise 0 */
};

/* One sequence's part of a step. */
struct engine_sequence {
    const uint32_t *tokens;         /* [token_count] ids, each < vocab; not read if `fed` */
    uint32_t token_count, position; /* position: the first token's; the others follow */
    const uint32_t *blocks;         /* ids that cover positions 0 .. position + token_count - 1 */
    uint32_t block_count;
    uint32_t prompt_rows; /* rows of a prompt (or a replay) among them: for the counters */
    /* Its first token is the one that the step before draws as its sample token_from, counted in
     * the order of its samples. Only while that step is in flight, and if engine_feeds its
     * settings. */
    bool fed;
    uint32_t token_from;
    /* Each of its last sample_count rows draws a token. 0: in the middle of a prompt. More than 1:
     * the tokens of the rows behind the first of them are drafts. Each row draws as if they were
     * the answer. At most 1 + draft_tokens, and only if engine_drafts the settings, without
     * `allowed`, ban_end and reads_logits. */
    uint32_t sample_count;
    const struct sampling *sampling;
    /* The first drawn token's in the answer, from 0: the random numbers' counter. The others' are
     * the next ones. */
    uint32_t index;
    /* [position + token_count] prompt and answer, which end with `tokens`: for penalties */
    const uint32_t *history;
    /* [(vocab + 31) / 32] a bit for each id that may be drawn; NULL: all may */
    const uint32_t *allowed;
    bool ban_end;      /* min_tokens is not reached: end ids and stop ids can't be drawn */
    bool reads_logits; /* the caller wants `logits` */
    /* Logprobs of tokens that are given (a prompt's): row score_first + i, counted in its own rows,
     * gives those of score_tokens[i], which follows it. */
    uint32_t score_first, score_count, score_top; /* score_top: likeliest tokens beside it */
    const uint32_t *score_tokens;                 /* [score_count] ids, each < vocab */
    struct token_logprobs *scores;                /* [score_count] the caller's memory, filled */
    /* May be set before engine_wait: no result is wanted any more, nothing is drawn. */
    bool dropped;
    /* Results of the rows that draw: the first one's, and the others' in the caller's memory. The
     * status is also valid with score_count. */
    struct engine_draw drawn;
    struct engine_draw *more;       /* [sample_count - 1] */
    struct token_logprobs logprobs; /* the token's, if `sampling` asks */
    /* [vocab] until the next engine_submit; NULL: the host doesn't have them. It has them if
     * reads_logits, or `sampling` asks for their hash. */
    const float *logits;
};

/* True: a step may be submitted before the one before it was waited for. False: a step is computed
 * when engine_submit returns, and must be waited for before the next one. */
bool engine_runs_ahead(const struct engine *engine);
/* True: the device draws tokens by these settings, and can feed them to the next step. False: the
 * host draws them in engine_wait. */
bool engine_feeds(const struct engine *engine, const struct sampling *sampling);
/* True: several rows of a sequence with these settings may draw in one step. */
bool engine_drafts(const struct sampling *sampling);

/* A step in flight; at most ENGINE_TICKETS are. */
typedef uint32_t engine_ticket;
#define ENGINE_TICKETS 2

/* Hands over one step. Sum of token_count <= max_rows, count <= max_sequences. STATUS_INVALID
 * (nothing is computed): a limit is broken or an id is out of range. STATUS_INTERNAL: the device
 * failed, and a step in flight fails, too. STATUS_UNAVAILABLE: it is lost for good. After a failure
 * there is no ticket. The sequences, and all that they point to, stay as they are until
 * engine_wait; where the engine runs ahead, `tokens` and `blocks` may change. */
enum status engine_submit(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                          engine_ticket *ticket, struct error *err) WARN_UNUSED;
/* Waits for the oldest step in flight and fills the results of its sequences, the ones of
 * engine_submit in the same order. STATUS_INTERNAL: the device failed; a step behind it fails, too.
 * STATUS_UNAVAILABLE: the device is lost for good, and so is every later step.
 * Bad logits of one sequence show in its own `status`; the step is STATUS_OK for the others. */
enum status engine_wait(struct engine *engine, engine_ticket ticket,
                        struct engine_sequence *sequences, uint32_t count,
                        struct error *err) WARN_UNUSED;
/* The device's time for the step that was waited for last, without that of its moves. 0: not
 * known, take the time of the calls. */
uint64_t engine_step_us(const struct engine *engine);
/* Both, for callers that have nothing to do meanwhile. */
enum status engine_step(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                        struct error *err) WARN_UNUSED;

/* A move of a whole block between two steps, from and to ids of the pool or of the host slots.
 * Moves happen in the order of the calls, before the steps that are submitted later.
 * engine_moves_done waits for them. A failure that comes later shows there, and steps in flight
 * fail, too; or it shows in engine_wait of a later step. No step in flight may use the block of a
 * SWAP_OUT, or the target of another move. */
enum engine_move {
    ENGINE_COPY,     /* block to block */
    ENGINE_SWAP_OUT, /* block to slot */
    ENGINE_SWAP_IN,  /* slot to block */
};
/* STATUS_INVALID: an id is out of range, or a block is copied onto itself. STATUS_INTERNAL: the
 * device failed. In both cases don't use the target's content. */
enum status engine_move_block(struct engine *engine, enum engine_move move, uint32_t from,
                              uint32_t to, struct error *err) WARN_UNUSED;
enum status engine_moves_done(struct engine *engine, struct error *err) WARN_UNUSED;

/* decode_steps: each row of them draws. recorded_steps: of them, run as a recording. device_us: of
 * steps that were handed over while the one before was in flight, their time; idle_us: the time
 * between the last operation of the step before and their first one. Moves of blocks are no part of
 * it: steps that wait for some aren't counted. */
struct engine_counters {
    uint64_t steps, prompt_rows, decode_rows; /* rows computed, by kind */
    uint64_t decode_steps, recorded_steps;
    uint64_t device_us, idle_us;
};
struct engine_counters engine_counters(const struct engine *engine);

/* For benchmarks: the best that steps could reach on this engine's threads, or on its device. The
 * call measures it; call it between two steps. */
struct engine_limits {
    const char *isa;         /* the instruction set in use, of isa_names */
    const char *instruction; /* the best for linear layers, or a GPU's shape; "": not known */
    double peak_gflops;      /* its peak, 10^9 operations a second; a multiply-add is two */
    uint64_t weight_bytes;   /* packed weights that a step reads, however few rows it has */
    double read_gbs;         /* one sequential pass over them, 10^9 bytes a second; a GPU's: a copy
                              * inside it, bytes that are read and written */
    uint64_t device_bytes;   /* memory that the engine takes of a device's own; 0: it has none */
};
struct engine_limits engine_measure_limits(struct engine *engine);
/* kernels_watch_device of the engine's device. A mock has none. One thread of its own calls this,
 * beside all others, until engine_close. */
enum status engine_watch_device(struct engine *engine, uint32_t timeout_ms,
                                struct device_health *health) WARN_UNUSED;
/* From now on steps add their time, by operation, to `profile`; NULL: stops that. */
void engine_profile_to(struct engine *engine, struct kernels_profile *profile);

#endif
