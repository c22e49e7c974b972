/* The state behind sink.h, private to its two files: sink.c (a sink's life, the links to prefill
 * workers, memory, numbers, the list of actions) and sink_pull.c (the way of its bytes: Peer
 * streams and reads). */
#ifndef BATON_KV_HANDOFF_SINK_STATE_H
#define BATON_KV_HANDOFF_SINK_STATE_H

#include "common/base/map.h"
#include "common/kv/handoff/sink.h"

enum sink_state {
    SINK_UNUSED,
    SINK_QUEUED,     /* decode */
    SINK_READING,    /* reserved, or verified bad */
    SINK_VERIFYING,  /* read_done of the last block, if it is complete */
    SINK_CONFIRMING, /* verified good, to the last block */
    SINK_RUNNING,    /* held; without a handle: reserved */
    SINK_ORPHAN,     /* ended while a read was in flight; waits for read_done */
};

enum stream_state { STREAM_DOWN, STREAM_CONNECTING, STREAM_UP };
enum pair_state { PAIR_NONE, PAIR_ASKED, PAIR_UP, PAIR_CLOSING };

struct sink_peer {
    bool used;
    uint64_t key;
    enum stream_state stream;
    uint64_t incarnation; /* the latest Welcome's */
    uint64_t newest;      /* the incarnation of the latest handle */
    uint64_t dialled;     /* the incarnation that the latest CONNECT named */
    uint64_t retry_us;    /* a DOWN stream isn't opened again before this */
    bool refused;         /* at the last attempt to connect; UP clears it */
    bool full;            /* at the last end of the stream: no place for it; UP clears it */
    uint64_t broke_us;    /* when the stream, or a try, last ended in another way; 0: never */
    enum pair_state pair;
    uint64_t pair_incarnation;
    /* the peer closed the pairing and has not answered since: pair with it later */
    bool link_ended;
    uint64_t link_ended_us;
};

struct sink {
    enum sink_state state;
    uint32_t generation; /* counts the uses of the slot; part of the cookie */
    uint64_t request;
    uint32_t attempt;
    bool has_handle;
    struct handle_ref ref;
    struct sink_peer *peer;
    uint32_t token_count, block_count; /* the handle's */
    uint32_t emitted_count;
    enum sink_reason reason; /* ORPHAN: why it ended */

    /* Counts of blocks. All begin with those that were here before, which are never written. */
    uint32_t ready_blocks;    /* blocks that may be read */
    uint32_t read_blocks;     /* a prefix that is here */
    uint32_t reading;         /* blocks in flight after them: landing */
    uint32_t summed_blocks;   /* a prefix that has sums */
    uint32_t verified_blocks; /* a prefix of them was compared */
    uint32_t verifying;       /* blocks after them that are compared now */
    bool spoiled;             /* bad blocks are read again once the read in flight has ended */
    bool crc;                 /* sums are checksums of before protocol 7 */
    bool complete;            /* Complete came, with: */
    uint32_t first_token;
    uint64_t logits_hash;
    struct token_logprobs logprobs;
    bool again;        /* its one repetition is used up */
    bool refused_once; /* a read was refused: one more refusal is a failure */
    bool in_doubt;     /* it reads nothing until the peer says again what is ready */
    uint64_t pulled_bytes, early_bytes; /* in all, and before Complete */

    uint32_t asked;     /* Extends and Subscribes of this stream without an answer so far */
    uint32_t old_asked; /* sent before the link ended: an answer is no proof of life */
    uint64_t heard_us;  /* when the peer last answered for this handle */
    uint64_t beat_us;   /* when to ask again */
    uint64_t
        down_since_us; /* since when this sink has waited for the stream; UINT64_MAX: it is up */

    uint32_t *remote, *local; /* [max_blocks], the slot's part of the table's array */
    uint64_t *sums;           /* the same */
};

struct sink_table {
    struct sink_config config;
    struct sink *slots;   /* [max_sinks] */
    uint32_t *free_slots; /* stack */
    uint32_t free_count;
    struct map *by_request;  /* request -> slot; orphans are in no map */
    struct sink_peer *peers; /* [max_peers] */
    uint32_t *block_ids;     /* remote and local of all slots */
    uint64_t *sums;          /* sums of all slots */
    struct past_attempts past;
    struct sink_counters counters;
};

/* Returns true while the sink depends on its peer. */
static inline bool sink_pulls(const struct sink *sink)
{
    return sink->has_handle && sink->state >= SINK_QUEUED && sink->state <= SINK_CONFIRMING;
}

/* Returns the time b_us after a_us; UINT64_MAX (never) stays never. */
static inline uint64_t sink_later_us(uint64_t a_us, uint64_t b_us)
{
    return a_us > UINT64_MAX - b_us ? UINT64_MAX : a_us + b_us;
}

/* --- sink.c --- */
/* Returns the sink of exactly this attempt. Otherwise counts a dropped message, and returns
 * NULL. */
struct sink *sink_of(struct sink_table *table, uint64_t request, uint32_t attempt);
/* Asks the peer. While the stream is down it asks nothing: the question follows when it is up. */
void sink_ask(struct sink_table *table, uint64_t now_us, struct sink *sink,
              enum peer_down_kind kind, struct sink_actions *out);
/* Returns the question that a sink repeats with every heartbeat and on a new stream. Each answer
 * has all that the sink waits for, so no single message has to arrive. Once Confirm was sent
 * nothing else is asked, so nothing is read again. */
enum peer_down_kind sink_question_of(const struct sink *sink);
/* Ends a sink, for any reason except the sequence's own end. */
void sink_end(struct sink_table *table, struct sink *sink, enum sink_reason reason,
              struct sink_actions *out);
void sink_free_slot(struct sink_table *table, struct sink *sink);
/* Gives up: the peer may free the blocks, and the router tries again. */
void sink_give_up(struct sink_table *table, uint64_t now_us, struct sink *sink,
                  enum sink_reason reason, struct sink_actions *out);
/* Sends the refusal to the router. The caller ends the sink, if there is one. */
void sink_refuse(struct sink_table *table, uint64_t request, uint32_t attempt,
                 enum sink_reason reason, bool retry, struct sink_actions *out);

/* --- sink.c: links to prefill workers --- */
/* returns NULL for an unknown peer */
struct sink_peer *sink_peer_of(struct sink_table *table, uint64_t key);
/* Returns the peer. A new one gets a free place, or the place of a peer that nothing uses. Returns
 * NULL if there is no place. */
struct sink_peer *sink_peer_take(struct sink_table *table, uint64_t key, struct sink_actions *out);
/* Returns true while a sink depends on the peer. */
bool sink_peer_needed(const struct sink_table *table, const struct sink_peer *peer);
/* Dials the process of the newest handle that a sink waits for. */
void sink_peer_connect(const struct sink_table *table, struct sink_peer *peer,
                       struct sink_actions *out);
/* Both do nothing if the state is reached or pending. */
void sink_peer_pair(struct sink_peer *peer, struct sink_actions *out);
void sink_peer_unpair(struct sink_peer *peer, struct sink_actions *out);

/* --- sink.c: actions --- */
struct sink_action *sink_append(struct sink_actions *out, enum sink_action_kind kind,
                                uint64_t request, uint32_t attempt);
/* Appends an action with the sink's request, attempt and peer. */
struct sink_action *sink_append_for(struct sink_actions *out, enum sink_action_kind kind,
                                    const struct sink *sink);

#endif
