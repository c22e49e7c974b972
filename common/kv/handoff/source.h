/* The prefill side of a handoff: decides which reader may read the blocks of a prompt, and when
 * they are free again. PURE.
 *
 * A source lives from Prefill to its end:
 * - QUEUED: the step thread has no room yet.
 * - OPENED: it holds blocks for the whole prompt and computes. The router knows its handle.
 * - COMPLETE: the first token is drawn, all blocks are published.
 * It ends by Confirm, by Release, by a newer attempt, or when its lease runs out. Every end is
 * exactly one FREE action: the step thread then drops all that it holds for (request, attempt). A
 * repeated FREE would do no harm.
 *
 * A handle has one reader: the newest attempt that has subscribed. Only that one is answered HELD.
 * The answer is remembered, so a Confirm that is repeated after a lost stream gets it again. All
 * others are answered GONE. Only the reader's stream may read the blocks, from its Subscribe until
 * the stream or the source ends. handoff.h has the rules for all calls. */
#ifndef BATON_KV_HANDOFF_SOURCE_H
#define BATON_KV_HANDOFF_SOURCE_H

#include "common/kv/handoff/handoff.h"

struct source_table;

struct source_config {
    uint64_t incarnation, model_hash, layout_hash, numerics_id;
    uint32_t block_tokens;
    uint32_t max_sources;
    uint32_t max_blocks; /* blocks of one prompt */
    /* HELD answers that are remembered. The oldest one is forgotten first, which fails closed
     * (GONE). */
    uint32_t memo_count;
    uint64_t lease_us; /* from each Extend or Subscribe; without one, from Complete */
};

enum source_end {
    SOURCE_CONFIRMED,  /* the reader has the bytes */
    SOURCE_RELEASED,   /* the router or the reader released it */
    SOURCE_SUPERSEDED, /* a newer attempt of the request came */
    SOURCE_EXPIRED,    /* the lease ran out */
    SOURCE_SESSION,    /* the session was lost while it was queued, or another router came */
    SOURCE_FAILED,     /* the step thread could not compute it */
};
const char *source_end_name(enum source_end end);

enum source_action_kind {
    SOURCE_START, /* step thread: queue the prompt, reserve blocks for all of it, then compute */
    SOURCE_FREE,  /* step thread: stop, and free all blocks of (request, attempt) */
    SOURCE_SEND_OPENED,  /* router: handle */
    SOURCE_SEND_REFUSED, /* router: reason, retry */
    SOURCE_SEND_LOST,    /* router: a step failed after Opened */
    SOURCE_SEND_PEER,    /* peer: message */
};

struct source_action {
    enum source_action_kind kind;
    uint64_t request;
    uint32_t attempt;
    enum source_end end;    /* FREE */
    struct handle handle;   /* SEND_OPENED */
    const char *reason;     /* SEND_REFUSED: a static word, "limit", "invalid" or "gone" */
    bool retry;             /* SEND_REFUSED: another worker might take it */
    uint64_t peer;          /* SEND_PEER */
    struct peer_up message; /* SEND_PEER */
};

struct source_actions {
    struct source_action *items; /* [capacity] */
    uint32_t count, capacity;
};

struct source_counters {
    uint64_t opened, completed;
    uint64_t ended[SOURCE_FAILED + 1]; /* by enum source_end */
    uint64_t held, gone;               /* answers */
    uint64_t dropped; /* messages of an older attempt, and events of a source that has ended */
};

/* STATUS_INVALID: a size or the lease is 0. STATUS_LIMIT: no memory. */
enum status source_table_create(const struct source_config *config, struct source_table **table,
                                struct error *err) WARN_UNUSED;
void source_table_destroy(struct source_table *table);

/* Makes a list with room for all actions that one event can cause. STATUS_LIMIT: no memory. */
enum status source_actions_init(struct source_actions *list,
                                const struct source_table *table) WARN_UNUSED;
void source_actions_deinit(struct source_actions *list);

/* --- from the router's Session --- */

/* A newer attempt ends the older one. A repeated one is answered Opened if its handle is open, with
 * nothing while it waits, and refused as "gone" if it has ended. Other refusals: "limit" if the
 * table is full, "invalid" if the prompt is empty or longer than max_blocks. */
void source_on_prefill(struct source_table *table, uint64_t now_us, uint64_t request,
                       uint32_t attempt, uint32_t token_count, uint64_t prompt_hash,
                       struct source_actions *out);
/* Ends attempts <= attempt. */
void source_on_release(struct source_table *table, uint64_t now_us, uint64_t request,
                       uint32_t attempt, struct source_actions *out);
/* Drops the queued sources. Open handles stay, under their lease. */
void source_on_session_lost(struct source_table *table, uint64_t now_us,
                            struct source_actions *out);
/* Ends everything: another router is connected, and no reader can ask for the old one's handles. */
void source_on_router_changed(struct source_table *table, uint64_t now_us,
                              struct source_actions *out);

/* --- from the step thread. They change nothing for a source that has ended: its FREE is on the
 * way. --- */

/* Blocks for the whole prompt are reserved; blocks[block_count] is copied. The lease begins with
 * the first reader, or with Complete. */
void source_on_reserved(struct source_table *table, uint64_t now_us, uint64_t request,
                        uint32_t attempt, const uint32_t *blocks, uint32_t block_count,
                        struct source_actions *out);
/* There will never be room for this prompt, or the step failed. `reason` is static text. From
 * Opened on the router gets LOST, and the reader GONE. */
void source_on_failed(struct source_table *table, uint64_t now_us, uint64_t request,
                      uint32_t attempt, const char *reason, bool retry, struct source_actions *out);
/* The sums of a prompt's blocks, from the first one on, both kinds. They are copied. NULL: none. */
struct source_sums {
    const uint64_t *sums;
    const uint32_t *checksums;
};
/* The keys and values of the first `tokens` tokens are in their blocks. `sums`: those of the whole
 * ones. */
void source_on_computed(struct source_table *table, uint64_t now_us, uint64_t request,
                        uint32_t attempt, uint32_t tokens, struct source_sums sums,
                        struct source_actions *out);

struct source_completion {
    uint32_t first_token;
    uint64_t logits_hash;
    struct token_logprobs logprobs;
    enum finish_reason finish;
    struct source_sums sums; /* all blocks have theirs */
};
/* All of the prompt is computed and the first token is drawn. */
void source_on_completed(struct source_table *table, uint64_t now_us, uint64_t request,
                         uint32_t attempt, const struct source_completion *completion,
                         struct source_actions *out);

/* --- from Peer streams. `peer` names one stream, and is never used again for another one. --- */

void source_on_message(struct source_table *table, uint64_t now_us, uint64_t peer,
                       const struct peer_down *message, struct source_actions *out);
/* Handles stay: the reader subscribes again on a new stream. */
void source_on_peer_lost(struct source_table *table, uint64_t now_us, uint64_t peer,
                         struct source_actions *out);

/* True: the peer reads a handle, or may: it is the subscriber of one. */
bool source_table_uses_peer(const struct source_table *table, uint64_t peer);

/* Decides whether the reader on stream `peer` may read `count` neighbouring blocks of the pool from
 * `first` on, which it claims by handle_grant(). It may if it is the handle's subscriber, the
 * handle lists them one after another, and they are ready. Changes nothing. */
bool source_may_read(const struct source_table *table, uint64_t peer, uint64_t grant,
                     uint64_t first, uint64_t count);

/* Ends the sources with leases that have run out by now_us. Call it at source_table_next_us or
 * later. */
void source_on_tick(struct source_table *table, uint64_t now_us, struct source_actions *out);
/* UINT64_MAX: nothing to wait for. */
uint64_t source_table_next_us(const struct source_table *table);

/* Sources of any state; a drain waits for 0. */
uint32_t source_table_count(const struct source_table *table);
uint32_t source_table_queued(const struct source_table *table);
uint32_t source_table_pinned_blocks(const struct source_table *table);
struct source_counters source_table_counters(const struct source_table *table);

#endif
