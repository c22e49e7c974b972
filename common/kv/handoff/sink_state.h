/* The state behind sink.h, private to its four files: sink.c (a sink's life: Session, step thread,
 * time), sink_pull.c (how its bytes come: Peer streams and reads), sink_peers.c (the link to each
 * prefill worker), sink_table.c (memory, times, numbers, and the list of actions). */
#ifndef BATON_KV_HANDOFF_SINK_STATE_H
#define BATON_KV_HANDOFF_SINK_STATE_H

#include "common/base/map.h"
#include "common/kv/handoff/sink.h"

enum sink_state {
    SINK_UNUSED,
    SINK_QUEUED,     /* decode */
    SINK_READING,    /* reserved, or verified bad */
    SINK_VERIFYING,  /* read_done of the last block */
    SINK_CONFIRMING, /* verified good */
    SINK_RUNNING,    /* held; without a handle: reserved */
    SINK_ORPHAN,     /* ended while a read was in flight; waits for read_done */
};

enum stream_state { STREAM_DOWN, STREAM_CONNECTING, STREAM_UP };
enum pair_state { PAIR_NONE, PAIR_ASKED, PAIR_UP, PAIR_CLOSING };

struct sink_peer {
    bool used;
    uint64_t key;
    enum stream_state stream;
    uint64_t incarnation; /* of the latest Welcome */
    uint64_t retry_us;    /* not before this is a DOWN stream opened again */
    bool refused;         /* the latest try to open it, since it was last UP */
    uint64_t broke_us;    /* when it, or a try, last ended otherwise; 0: never */
    enum pair_state pair;
    uint64_t pair_incarnation;
    bool link_ended; /* the peer closed the pairing, and has not answered since: no new one yet */
    uint64_t link_ended_us;
};

struct sink {
    enum sink_state state;
    uint32_t generation; /* of the slot: counts its uses; part of the cookie */
    uint64_t request;
    uint32_t attempt;
    bool has_handle;
    struct handle_ref ref;
    struct sink_peer *peer;
    uint32_t token_count, block_count; /* of the handle */
    uint32_t emitted_count;
    enum sink_reason reason; /* ORPHAN: why it has ended */

    uint32_t held_blocks;  /* were here before: a prefix; never written */
    uint32_t ready_blocks; /* may be read */
    uint32_t read_blocks;  /* are here: a prefix, with the held ones */
    uint32_t reading;      /* blocks in flight behind them: landing */
    bool complete;         /* Complete came: */
    uint32_t first_token;
    uint64_t logits_hash;
    struct token_logprobs logprobs;
    uint32_t checksum_count;
    bool again;                         /* its one repetition is used up */
    uint64_t pulled_bytes, early_bytes; /* in all, and before Complete */

    uint32_t asked;     /* of this stream, and not answered: Extend, Subscribe */
    uint32_t old_asked; /* of those, before the link ended: their answers are no sign of life */
    uint64_t heard_us;  /* when the peer last answered for this handle */
    uint64_t beat_us;   /* when to ask again */
    uint64_t
        down_since_us; /* of the stream, as far as this sink has waited for it; UINT64_MAX: up */

    uint32_t *remote, *local, *checksums; /* [max_blocks], this slot's part of the table's arrays */
};

struct sink_table {
    struct sink_config config;
    struct sink *slots;   /* [max_sinks] */
    uint32_t *free_slots; /* stack */
    uint32_t free_count;
    struct map *by_request;  /* request -> slot; orphans are in no map */
    struct sink_peer *peers; /* [max_peers] */
    uint32_t *block_ids;     /* remote, local and checksums of all slots */
    struct past_attempts past;
    struct sink_counters counters;
};

/* Whether it still depends on its peer. */
static inline bool sink_pulls(const struct sink *sink)
{
    return sink->has_handle && sink->state >= SINK_QUEUED && sink->state <= SINK_CONFIRMING;
}

/* A point in time later by b_us; UINT64_MAX stays never. */
static inline uint64_t sink_later_us(uint64_t a_us, uint64_t b_us)
{
    return a_us > UINT64_MAX - b_us ? UINT64_MAX : a_us + b_us;
}

/* --- sink.c --- */
/* The sink of exactly this attempt, or NULL and counted. */
struct sink *sink_of(struct sink_table *table, uint64_t request, uint32_t attempt);
/* Asks its peer, or waits with that until the stream is up. */
void sink_ask(struct sink_table *table, uint64_t now_us, struct sink *sink,
              enum peer_down_kind kind, struct sink_actions *out);
/* What a sink asks again, with every heartbeat and on a new stream. Each answer tells all that it
 * waits for, so that no single message has to arrive; and once Confirm was sent nothing else is
 * asked, so that nothing is read again. */
enum peer_down_kind sink_question_of(const struct sink *sink);
/* The same for every way out but a sequence's own end. */
void sink_end(struct sink_table *table, struct sink *sink, enum sink_reason reason,
              struct sink_actions *out);
void sink_free_slot(struct sink_table *table, struct sink *sink);
/* Gives up by itself: the peer may free, the router tries again. */
void sink_give_up(struct sink_table *table, uint64_t now_us, struct sink *sink,
                  enum sink_reason reason, struct sink_actions *out);
/* Tells the router only; the sink, if there is one, is to be ended. */
void sink_refuse(struct sink_table *table, uint64_t request, uint32_t attempt,
                 enum sink_reason reason, bool retry, struct sink_actions *out);

/* --- sink_peers.c --- */
struct sink_peer *sink_peer_of(struct sink_table *table, uint64_t key); /* NULL: not known */
/* Known, or put in a free place, or in that of one that nothing uses. NULL: no place. */
struct sink_peer *sink_peer_take(struct sink_table *table, uint64_t key, struct sink_actions *out);
/* Whether a sink still waits for something from it. */
bool sink_peer_needed(const struct sink_table *table, const struct sink_peer *peer);
void sink_peer_connect(struct sink_peer *peer, struct sink_actions *out);
/* Both change nothing where it is so already, or on the way. */
void sink_peer_pair(struct sink_peer *peer, struct sink_actions *out);
void sink_peer_unpair(struct sink_peer *peer, struct sink_actions *out);

/* --- sink_table.c --- */
struct sink_action *sink_append(struct sink_actions *out, enum sink_action_kind kind,
                                uint64_t request, uint32_t attempt);
/* With the sink's request, attempt and peer. */
struct sink_action *sink_append_for(struct sink_actions *out, enum sink_action_kind kind,
                                    const struct sink *sink);

#endif
