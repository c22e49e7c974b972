/* The state behind source.h, private to its two files: source.c (a source's life: Session, step
 * thread, Peer streams, leases) and source_table.c (memory, times, numbers). */
#ifndef BATON_KV_HANDOFF_SOURCE_STATE_H
#define BATON_KV_HANDOFF_SOURCE_STATE_H

#include "common/base/map.h"
#include "common/kv/handoff/source.h"

enum source_state {
    SOURCE_UNUSED,
    SOURCE_QUEUED,   /* prefill */
    SOURCE_OPENED,   /* reserved */
    SOURCE_COMPLETE, /* completed */
};

struct source {
    enum source_state state;
    uint32_t generation; /* of the slot: counts its uses, survives them */
    uint64_t request;
    uint32_t attempt;
    uint32_t reader;     /* the newest attempt that has subscribed; its own attempt before */
    uint64_t subscriber; /* that reader's stream */
    bool subscribed;     /* false again when the stream is lost */
    uint32_t token_count, block_count, ready_tokens;
    uint64_t prompt_hash;
    uint64_t lease_end_us;
    struct source_completion completion; /* its checksums are this slot's */
    uint32_t *blocks, *checksums;        /* [max_blocks], this slot's part of the table's arrays */
};

struct memo { /* that this attempt of this handle was answered HELD */
    struct handle_ref ref;
    uint64_t request;
    uint32_t attempt;
};

struct source_table {
    struct source_config config;
    struct source *slots; /* [max_sources] */
    uint32_t *free_slots; /* stack */
    uint32_t free_count;
    struct map *by_request; /* request -> slot */
    uint32_t *block_ids, *checksums;
    struct memo *memos; /* [memo_count], a ring */
    uint64_t memos_made;
    struct past_attempts past;
    struct source_counters counters;
};

#endif
