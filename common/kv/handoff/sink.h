/* The decode side of a handoff: pulls the blocks of a prompt, has them confirmed, and only then
 * lets the sequence run. PURE.
 *
 * A sink lives from Decode to the end of its sequence:
 * - QUEUED: it waits for room. Its lease is extended already.
 * - READING: it has room and has subscribed. It reads the blocks that are ready, and compares them
 *   with their sums, as far as it knows them.
 * - VERIFYING: all bytes are here; the last ones are compared.
 * - CONFIRMING: it has asked whether the handle was held throughout. Nothing is read again.
 * - RUNNING: admitted; the step thread has it.
 * A Decode without a handle skips the middle: its prompt is computed here. A sink that ends while a
 * read is in flight becomes an ORPHAN: its blocks are landing, and stay its own until the read has
 * ended.
 *
 * The first blocks of a prompt may be here already, whole (from the prefix cache). They are neither
 * read nor compared, and the sink never writes into them, because others may read them. Confirm
 * works as for any other prompt.
 *
 * Every end of a sink is exactly one UNRESERVE action, unless the step thread ended the sequence
 * itself. The step thread then drops all that it holds for (request, attempt): a place in the
 * queue, blocks, a running sequence. A repeated UNRESERVE would do no harm.
 *
 * A sink that gives up by itself sends RELEASE to the peer and LOST to the router. A sink that the
 * router ended, or that ends with the Session, sends nothing: the router may have given the handle
 * to another reader.
 *
 * `peer` names a prefill worker by address, for as long as the process lives. For each the layer
 * keeps one Peer stream and one transport pairing, as the actions say. handoff.h has the rules for
 * all calls. */
#ifndef BATON_KV_HANDOFF_SINK_H
#define BATON_KV_HANDOFF_SINK_H

#include "common/kv/handoff/handoff.h"

struct sink_table;

struct sink_config {
    uint64_t model_hash, layout_hash, numerics_id; /* a handle with others is refused */
    bool mixed_numerics;                           /* one with another numerics_id isn't */
    bool host_path; /* bytes pass host memory: a Complete must have sums */
    uint32_t vocab; /* token ids are below it */
    uint32_t block_tokens;
    uint64_t block_bytes;
    uint32_t max_sinks;  /* with orphans; no more reads than this are in flight */
    uint32_t max_blocks; /* blocks of one prompt */
    uint32_t max_peers;
    uint32_t max_read_blocks; /* blocks of one READ */
    uint64_t heartbeat_us;    /* between two questions of one sink */
    /* A sink is lost if it hears nothing about its handle for silence_limit_us, or if its peer
     * can't be reached for peer_down_limit_us. */
    uint64_t silence_limit_us, peer_down_limit_us;
    uint64_t reconnect_us; /* between two tries */
};

/* The reason why a sink gave up, or was refused. Names are stable: they go into Lost, logs and
 * metrics. */
enum sink_reason {
    SINK_REASON_NONE,
    SINK_REASON_GONE,            /* the peer no longer holds the handle for this attempt */
    SINK_REASON_PEER_DOWN,       /* no Peer stream */
    SINK_REASON_SILENT,          /* a Peer stream, but no answer */
    SINK_REASON_READ,            /* a read failed twice */
    SINK_REASON_CHECKSUM,        /* the bytes were wrong twice */
    SINK_REASON_PAIRING,         /* no byte path to the peer */
    SINK_REASON_MADE_ROOM,       /* the peer's places are of other readers */
    SINK_REASON_PROTOCOL,        /* the peer's answer contradicts the handle */
    SINK_REASON_LAYOUT_MISMATCH, /* model or layout differ */
    SINK_REASON_NUMERICS_MISMATCH,
    SINK_REASON_LIMIT,   /* this worker's table, or its pool, is full */
    SINK_REASON_INVALID, /* a prompt that never fits here, or a handle that contradicts itself */
};
const char *sink_reason_name(enum sink_reason reason); /* "gone", "peer_down", ... */

enum sink_action_kind {
    /* For the step thread.
     * RESERVE: room for the prompt at least, in order of arrival.
     * UNRESERVE: drop all of (request, attempt).
     * ADMIT: into the batch, with first_token, or with compute_prompt. */
    SINK_RESERVE,
    SINK_UNRESERVE,
    SINK_ADMIT,
    /* For the peer.
     * CONNECT: open a Peer stream to the process of `incarnation`. Answer with peer_up,
     *   peer_refused, peer_replaced, peer_lost or connect_failed, well within peer_down_limit_us.
     * CLOSE: close stream and pairing. No sink uses them; report nothing more of them.
     * PAIR: with the pool of the latest Welcome. Answer with pair_up or peer_refused.
     * UNPAIR: close the pairing by force. Answer with pair_closed after its last read has ended.
     * SEND_PEER: message. EXTENDs of one list to one peer may travel in one message. */
    SINK_CONNECT,
    SINK_CLOSE,
    SINK_PAIR,
    SINK_UNPAIR,
    SINK_SEND_PEER,
    /* For the bytes.
     * READ: remote[i] -> local[i]. Answer with read_done(cookie) once, however it ends.
     * VERIFY: compare local[block_count] with their sums (kv_block_sum; with `crc` the CRC32C of
     *   the whole block). Answer with verified(cookie). It may take several turns, beside a READ:
     *   both arrays stay until the answer, or until sink_is_verifying says that nothing waits for
     *   it any more. */
    SINK_READ,
    SINK_VERIFY,
    /* For the router.
     * TOKEN: the answer ends with its first token.
     * REFUSED: the handle, if any, is still good for another reader. */
    SINK_SEND_TOKEN,
    SINK_SEND_LOST,
    SINK_SEND_REFUSED,
    SINK_SEND_PULLED,
};

struct sink_action {
    enum sink_action_kind kind;
    uint64_t request;
    uint32_t attempt;
    /* RESERVE: prompt, emitted and all that may still be generated; it never needs more */
    uint32_t reserve_tokens;
    bool compute_prompt;                /* ADMIT: no handle; nothing of the prompt is here */
    uint32_t first_token;               /* ADMIT unless compute_prompt, SEND_TOKEN */
    uint64_t logits_hash;               /* the same */
    struct token_logprobs logprobs;     /* the same */
    uint32_t index;                     /* SEND_TOKEN: 1-based over the whole answer */
    enum finish_reason finish;          /* SEND_TOKEN */
    uint64_t peer;                      /* CONNECT .. VERIFY */
    uint64_t incarnation;               /* CONNECT */
    struct peer_down message;           /* SEND_PEER */
    uint64_t cookie;                    /* READ, VERIFY */
    uint64_t grant;                     /* READ: the claim to the remote blocks */
    uint32_t block_count;               /* READ, VERIFY */
    const uint32_t *remote, *local;     /* READ, VERIFY: [block_count] */
    const uint64_t *sums;               /* VERIFY: [block_count] */
    bool crc;                           /* VERIFY */
    enum sink_reason reason;            /* SEND_LOST, SEND_REFUSED, UNRESERVE */
    bool retry;                         /* SEND_REFUSED: another worker might take it */
    uint64_t pulled_bytes, early_bytes; /* SEND_PULLED: in all, and before Complete came */
};

struct sink_actions {
    struct sink_action *items; /* [capacity] */
    uint32_t count, capacity;
};

struct sink_counters {
    uint64_t admitted, admitted_local, ended_with_first_token;
    uint64_t given_up[SINK_REASON_INVALID + 1]; /* LOST and REFUSED, by reason */
    uint64_t rereads;
    uint64_t pulled_bytes, early_bytes;
    uint64_t dropped; /* messages of an older attempt or state, events of a sink that has ended */
};

/* STATUS_INVALID: a size or a time is 0. STATUS_LIMIT: no memory. */
enum status sink_table_create(const struct sink_config *config, struct sink_table **table,
                              struct error *err) WARN_UNUSED;
void sink_table_destroy(struct sink_table *table);

/* Makes a list with room for all actions that one event can cause. STATUS_LIMIT: no memory. */
enum status sink_actions_init(struct sink_actions *list,
                              const struct sink_table *table) WARN_UNUSED;
void sink_actions_deinit(struct sink_actions *list);

/* --- from the router's Session --- */

struct sink_decode {
    uint64_t request;
    uint32_t attempt;
    bool has_handle;      /* false: the prompt is computed here */
    struct handle handle; /* outside bytes: checked here; its blocks are copied */
    uint64_t peer;        /* has_handle: the prefill worker */
    uint32_t emitted_count;
    uint32_t reserve_tokens; /* >= handle.token_count */
};
/* A newer attempt ends the older one. A repeated one changes nothing. One that has ended is
 * answered LOST. */
void sink_on_decode(struct sink_table *table, uint64_t now_us, const struct sink_decode *decode,
                    struct sink_actions *out);
/* Ends attempts <= attempt. */
void sink_on_release(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                     struct sink_actions *out);
/* Ends everything: the router counts this worker as dead. */
void sink_on_session_lost(struct sink_table *table, uint64_t now_us, struct sink_actions *out);

/* --- from the step thread. They change nothing for a sink that has ended: its UNRESERVE is on the
 * way. --- */

/* blocks[block_count] are for the prompt at least; the prompt's are copied. The first held_blocks
 * have their bytes already. They are fewer than the prompt's blocks, because the last row of a
 * prompt is always computed. Without a handle none of these counts. */
void sink_on_reserved(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                      const uint32_t *blocks, uint32_t block_count, uint32_t held_blocks,
                      struct sink_actions *out);
/* There will never be room (retry false), or there is none now (retry true). */
void sink_on_reserve_failed(struct sink_table *table, uint64_t now_us, uint64_t request,
                            uint32_t attempt, bool retry, struct sink_actions *out);
/* The sequence has ended by itself and its blocks are free. */
void sink_on_finished(struct sink_table *table, uint64_t now_us, uint64_t request, uint32_t attempt,
                      struct sink_actions *out);

/* --- from Peer streams and the transport --- */

/* A stream is up and welcomed; `incarnation` is the Welcome's. */
void sink_on_peer_up(struct sink_table *table, uint64_t now_us, uint64_t peer, uint64_t incarnation,
                     struct sink_actions *out);
/* The peer can't be used: LAYOUT_MISMATCH or NUMERICS_MISMATCH (the stream was refused), or PAIRING
 * (no byte path; the stream stays). Its sinks are refused, except for those that have all their
 * bytes and need no path. */
void sink_on_peer_refused(struct sink_table *table, uint64_t now_us, uint64_t peer,
                          enum sink_reason reason, struct sink_actions *out);
/* The stream broke, or could not be opened. `refused`: the machine answered that no process listens
 * there. Its sinks wait for the next stream: they subscribe and ask again, and read nothing again.
 * They give up at once only if all signs say that the process has ended: a connection to it broke,
 * dialling again is refused, and its end closed the pairing too, if there was one. */
void sink_on_peer_lost(struct sink_table *table, uint64_t now_us, uint64_t peer, bool refused,
                       struct sink_actions *out);
/* The same, of a live peer that has no place for this worker's stream. Its sinks wait as long, and
 * then give up with MADE_ROOM: neither end has failed. */
void sink_on_peer_full(struct sink_table *table, uint64_t now_us, uint64_t peer,
                       struct sink_actions *out);
/* Another process listens at the peer's address than the one that CONNECT named. The sinks of the
 * named incarnation give up, for it has ended; for others it is dialled again. */
void sink_on_peer_replaced(struct sink_table *table, uint64_t now_us, uint64_t peer,
                           struct sink_actions *out);
/* This worker could not even try to open the stream; it says nothing about the peer. */
void sink_on_connect_failed(struct sink_table *table, uint64_t now_us, uint64_t peer,
                            struct sink_actions *out);
void sink_on_pair_up(struct sink_table *table, uint64_t now_us, uint64_t peer,
                     struct sink_actions *out);
/* The pairing has closed, asked for or not. Each of its reads was reported before. A pairing that
 * closed by itself while nothing was read is made anew when there is something to read. `gone`: the
 * peer closed it, or ended. Then the peer is asked for a sign of life, and paired again when it has
 * answered. If it died, its stream ends instead. */
void sink_on_pair_closed(struct sink_table *table, uint64_t now_us, uint64_t peer, bool gone,
                         struct sink_actions *out);
void sink_on_message(struct sink_table *table, uint64_t now_us, uint64_t peer,
                     const struct peer_up *message, struct sink_actions *out);
/* `status` NOT_FOUND: the peer refused this read alone, because the handle has ended there, or
 * because it takes this worker for another reader. The sink asks before it reads again. Any other
 * failure closes the pairing. */
void sink_on_read_done(struct sink_table *table, uint64_t now_us, uint64_t cookie,
                       enum status status, struct sink_actions *out);
void sink_on_verified(struct sink_table *table, uint64_t now_us, uint64_t cookie, bool good,
                      struct sink_actions *out);

bool sink_is_verifying(const struct sink_table *table, uint64_t cookie);

/* Does the heartbeats, limits and reconnects that are due by now_us. Call it at sink_table_next_us
 * or later. */
void sink_on_tick(struct sink_table *table, uint64_t now_us, struct sink_actions *out);
uint64_t sink_table_next_us(const struct sink_table *table); /* UINT64_MAX: nothing to wait for */

/* Sinks of any state; a drain waits for 0. */
uint32_t sink_table_count(const struct sink_table *table);
bool sink_table_uses_peer(const struct sink_table *table, uint64_t peer); /* by any sink */
uint32_t sink_table_landing_blocks(const struct sink_table *table);
struct sink_counters sink_table_counters(const struct sink_table *table);

#endif
