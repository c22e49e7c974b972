/* Decides which rows a worker computes next: its sequences, their KV blocks, and the plan of each
 * step. PURE: the step loop and the simulator call the same functions; nothing here knows a model,
 * a clock or a thread. The caller hands in the time, which never goes back.
 *
 * One step:
 *   1. scheduler_reserve, until it returns NULL, gives blocks to sequences that wait.
 *   2. scheduler_plan returns the moves of blocks and the rows of the step.
 *   3. The caller moves the blocks and computes the rows.
 *   4. scheduler_step_done reports the time, scheduler_rows_done the token of each part.
 *
 * With draft_tokens the step of an answer may have more rows, of tokens that a drafter proposes
 * (speculative decoding: Leviathan et al., ICML 23). Each row draws the token that it draws without
 * drafts. As long as a draft is what the row before it drew, its own row counts, too:
 * scheduler_draft_done takes the token. Rows behind the first draft that isn't are computed again.
 * Drafts only have rows that nothing else needs, in blocks that the sequence has. No row follows
 * them before their tokens are known.
 *
 * A device computes while the host plans. With `runs_ahead` the caller hands the rows over, calls
 * scheduler_rows_issued, and plans the next step before this one has ended. Steps end in order,
 * each with 4 and scheduler_step_ended; at most one more is in flight then. A row may come one step
 * after a token that isn't known here: the device feeds it (planned_rows.token_from). If that token
 * ends the answer, the row's result is dropped. Meanwhile sequences may end, fail or be removed. No
 * block of a step in flight is given away: a removed sequence's blocks are free once its steps have
 * ended, and nothing is preempted, or scored, while a step is in flight.
 *
 * Owner: one thread. After scheduler_create only scheduler_add allocates.
 */
#ifndef BATON_ENGINE_SCHED_SCHEDULER_H
#define BATON_ENGINE_SCHED_SCHEDULER_H

#include "common/base/domain/constraint_source.h"
#include "common/engine/sched/batch_plan.h"
#include "common/engine/sched/kv_blocks.h"
#include "common/engine/sched/policy.h"
#include "common/engine/sched/prefix_cache.h"
#include "common/engine/sched/sequence.h"

struct scheduler;

#define SCHEDULER_SIBLING_US 100000 /* the longest wait for a prompt that is received */

/* Proposes tokens, as sequence_lookup does. */
typedef uint32_t scheduler_drafter(void *context, const struct sequence *sequence, uint32_t skip,
                                   uint32_t most, uint32_t *drafts);

/* block_tokens, block_count, max_sequences, chunk_tokens and context are required. In the other
 * fields 0 selects the value that the field's comment gives. */
struct scheduler_config {
    uint32_t block_tokens, block_count;
    uint32_t max_sequences;  /* in any state */
    uint32_t chunk_tokens;   /* prompt rows of one step at most */
    uint32_t context;        /* tokens of prompt + answer at most */
    const uint32_t *end_ids; /* copied */
    uint32_t end_id_count;

    uint64_t chunk_us;            /* time of prompt rows beside decodes; 0: any (batch_plan.h) */
    bool prompts_first;           /* decodes wait for prompts (batch_plan.h) */
    uint32_t max_batch_sequences; /* in one step; 0: max_sequences */
    uint32_t max_batch_tokens;    /* rows of one step; 0: max_batch_sequences + chunk_tokens */
    enum policy_kind policy;
    uint64_t starve_us; /* the policy promotes a sequence that starved that long; 0: at once */
    uint64_t
        overtake_us; /* a sequence that waits for blocks may be overtaken that long; 0: never */
    /* false: a sequence that decodes here has room for its whole answer from the start, and none is
     * preempted. true: it has room for its prompt and one token, grows block by block, and may be
     * preempted for that. The caller must then carry out swaps. */
    bool grow;
    uint32_t host_slots;    /* blocks of host memory for swapping out; 0: preempted means dropped */
    struct cost_model cost; /* prefill_row_us 0: cost_model_default */
    /* true: whole blocks stay when their sequences end, and prompts that begin alike skip those
     * rows. A RESERVED sequence's rows before `computed` may then belong to others: the caller
     * receives only the rows from `computed` on. */
    bool prefix_cache;
    enum eviction_policy eviction;
    struct eviction_cost eviction_cost;
    uint32_t turn_tokens;       /* service of a tenant's turn; 0: TENANT_TURN_TOKENS */
    uint64_t table_seed;        /* random in a worker */
    uint32_t event_capacity;    /* waiting events of the cache; 0: 1024 */
    bool runs_ahead;            /* a step may be planned while another one is in flight */
    uint32_t draft_tokens;      /* drafts of one answer in a step, at most */
    scheduler_drafter *drafter; /* NULL: sequence_lookup */
    void *drafter_context;
};

/* STATUS_LIMIT: out of memory. */
enum status scheduler_create(const struct scheduler_config *config,
                             struct scheduler **scheduler) WARN_UNUSED;
void scheduler_destroy(struct scheduler *scheduler);

struct sequence_spec {
    struct sequence_key key;
    enum sequence_plan plan;
    enum priority priority;
    uint64_t arrived_us; /* on the clock of now_us */
    uint32_t *tokens;    /* malloc'ed: prompt + emitted */
    uint32_t token_count, emitted_count;
    struct sampling sampling; /* its biases are malloc'ed */
    /* malloc'ed; NULL: none. The caller of scheduler_add turns it into the number `constraint`; the
     * scheduler takes over no source. */
    struct constraint_source *constraint_source;
    uint32_t constraint;
    /* Tenants take turns, also where constraints are compiled. 0 is one tenant, too. */
    uint64_t tenant;
    uint64_t deadline_left_us; /* from arrived_us until its answer must be whole; 0: no deadline */
    /* HAND_OFF with a deadline: from arrived_us until its prompt should be there, as its reader
     * will likely need the rest. 0, or later than the deadline: the deadline. */
    uint64_t due_left_us;
    struct prefix_hash root; /* prefix_hash_root of model, numerics and tenant */
    bool needs_token;        /* the host must know each token before the next row */
    bool may_draft;          /* several rows of its answer may draw tokens in one step */
};
/* Frees all that the spec owns. Not after scheduler_add took it over. */
void sequence_spec_free(const struct sequence_spec *spec);

/* Queues a sequence for blocks. On success takes over `tokens` and the biases of `sampling`.
 * STATUS_INVALID: it can never fit, even alone and with its whole answer (the sentence has the
 * numbers). STATUS_LIMIT: all slots are in use, or out of memory. The key must be new: a newer
 * attempt has another key. */
enum status scheduler_add(struct scheduler *scheduler, const struct sequence_spec *spec,
                          struct error *err) WARN_UNUSED;

/* Gives blocks to the next sequence that waits and fits now. NULL: none does. Call until NULL. The
 * sequence is then RESERVED (plan RECEIVE: another worker may write blocks[0..block_count) at once)
 * or PREFILL.
 *
 * Order: by class; then those that will likely meet their deadlines; then by the turns of their
 * tenants (tenants.h); then preempted sequences; then those that have waited overtake_us, by
 * arrival; then the policy's. A sequence that doesn't fit may be overtaken by those behind it,
 * until it has waited overtake_us (a preempted one: never). From then on it has a reservation: no
 * sequence of its class or below gets blocks before it, except those of tenants that were served
 * less. With overtake_us 0 all have a reservation, in the policy's order: starved sequences first.
 * Offline sequences get none while another waits.
 *
 * While others are here, or were lately, a tenant that holds blocks gets no more than its share
 * (tenant_share). Its sequences wait then, and those behind them don't.
 *
 * A sequence that fits waits while a sibling on the worker, which came before it, computes or
 * receives the prefix of both, if that saves at least half of its prompt's rows: the cache has them
 * then. It isn't the later for that where both are computed here, as the sibling's rows go first.
 * If one is received, it waits at most SCHEDULER_SIBLING_US. It goes on by itself once the
 * sibling ends, fails or is preempted. It holds up no other, except offline ones.
 *
 * With `grow`, one free block is left for each sequence that runs, and a preempted sequence doesn't
 * come back while one of a higher class waits. Preempted sequences that fit get blocks on the way
 * and are not returned: the caller knows them. */
struct sequence *scheduler_reserve(struct scheduler *scheduler, uint64_t now_us);

/* A RESERVED sequence's prompt has arrived: appends its first token. It decodes from the next step
 * on, unless that token ends it. */
enum finish_reason scheduler_admit(struct scheduler *scheduler, struct sequence *sequence,
                                   uint32_t first_token);

/* Returns a sequence that waits or computes, and can't be whole at its deadline any more; NULL: no
 * further one now. Remove each, or fail it, before the next call. Call it before each step. An
 * answer that may end at any token is only missed when its deadline has passed, or its prompt takes
 * too long. RESERVED sequences are left alone: another worker writes their blocks. */
struct sequence *scheduler_next_missed(struct scheduler *scheduler, uint64_t now_us);

/* Ends a sequence in any state: its blocks are free again, the struct is gone. If it is in flight,
 * that happens when its steps have ended; until then only parts of their plans name it. Not between
 * a plan and scheduler_rows_issued, or the plan's end if that isn't called. */
void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence);
struct sequence *scheduler_find(struct scheduler *scheduler, struct sequence_key key);
/* Iterates by arrival: start with *cursor 0; NULL: the end. */
struct sequence *scheduler_next(struct scheduler *scheduler, size_t *cursor);

/* The content of `from` goes to `to`. `sequence`: its rows are moved. */
struct block_move {
    uint32_t from, to;
    struct sequence *sequence;
};
/* The caller carries out all swap-outs, then all swap-ins, then the rows: a block that a swap-out
 * frees may be the target of a swap-in. */
struct step_plan {
    const struct block_move *swap_outs; /* block to host slot */
    const struct block_move *swap_ins;  /* host slot to block */
    const struct planned_rows *parts;   /* at most max_batch_sequences */
    uint32_t swap_out_count, swap_in_count, part_count;
    bool freed; /* blocks were freed: waiting sequences may fit now, without any other event */
    /* End the step in flight, then plan again: blocks must be taken from sequences, or a row of a
     * prompt gives logprobs, for which the host waits in the middle of the step. */
    bool drain;
    /* Plan again by then: a sequence waits for its sibling no longer. UINT64_MAX: none does. */
    uint64_t wake_us;
};
/* Plans the next step; valid until the next call, or, in flight, until its step has ended. There is
 * nothing to do if part_count is 0 and nothing is swapped. Then sleep only if `freed` and `drain`
 * are false, too, and no step is in flight. Not while two are. */
const struct step_plan *scheduler_plan(struct scheduler *scheduler, uint64_t now_us);

/* The rows and swap-ins of the plan were handed to the device: the next plan goes on behind them.
 * Its swap-outs are done already. Only with `runs_ahead`. */
void scheduler_rows_issued(struct scheduler *scheduler, const struct step_plan *plan);

/* The engine needed took_us for the rows of the plan and swap_us for its swaps (0: not known).
 * Charges the rows to the policy and teaches the cost model both. Optional. */
void scheduler_step_done(struct scheduler *scheduler, const struct step_plan *plan,
                         uint64_t took_us, uint64_t swap_us);
/* False: the part's sequence ended, failed or was removed after its rows were issued. Drop the
 * result. */
bool scheduler_wants(const struct planned_rows *part);

/* The rows of `part` are in their blocks. `token` was drawn if the part samples, otherwise it is
 * ignored. Returns why the sequence ended (it is then HELD until removed), or FINISH_NONE. A
 * HAND_OFF sequence is HELD after its token. Not for a part that isn't wanted. */
enum finish_reason scheduler_rows_done(struct scheduler *scheduler, const struct planned_rows *part,
                                       uint32_t token);
/* True: the token that was taken last is the part's next draft, so that the draft's row counts:
 * scheduler_draft_done takes the token that this row drew, as scheduler_rows_done. False: all
 * tokens that the part drew were taken, or its other rows don't count. */
bool scheduler_draft_holds(const struct planned_rows *part);
enum finish_reason scheduler_draft_done(struct scheduler *scheduler,
                                        const struct planned_rows *part, uint32_t token);

/* The step of a plan that was issued has ended, well or not. Call it after the results: removed
 * sequences and their blocks go with it. */
void scheduler_step_ended(struct scheduler *scheduler, const struct step_plan *plan);

/* The sequence can't go on: its rows or its token could not be computed. It is HELD until
 * removed. */
void scheduler_fail(struct scheduler *scheduler, struct sequence *sequence);
/* All that was computed so far may be wrong (the device failed, a logit is NaN). The prefix cache
 * forgets everything, also blocks in use, and running sequences add nothing to it any more. */
void scheduler_distrust(struct scheduler *scheduler);

struct scheduler_load {
    uint32_t waiting, running;
    uint32_t preempted;     /* waiting sequences that ran before: swapped out or dropped */
    uint64_t queued_tokens; /* prompt rows still to compute */
    uint32_t sequences;     /* in any state */
    /* Tokens that these may come to hold, prompts and answers at their longest; tokens of the ones
     * with a handoff, to this worker or from it, that is not done. */
    uint64_t reserved_tokens, unconfirmed_tokens;
    uint32_t blocks[KV_BLOCK_STATES];
    uint32_t host_slots;           /* in use */
    uint64_t swapped_out, dropped; /* preemptions so far, by kind */
    uint64_t dropped_rows;         /* computed rows that drops have lost */
};
struct scheduler_load scheduler_load(const struct scheduler *scheduler);
struct prefix_cache *scheduler_prefix_cache(struct scheduler *scheduler); /* NULL: none */
const struct kv_blocks *scheduler_blocks(const struct scheduler *scheduler);

#endif
