/* When this worker did what for the requests that it has at this moment, told to the router with
 * their first tokens and pulls, as durations: nobody else's clock is asked. Transfer thread only;
 * `now_us` is its caller's. Bounded: what has no room isn't told. */
#ifndef BATON_WORKER_REQUEST_TIMES_H
#define BATON_WORKER_REQUEST_TIMES_H

#include "common/base/status.h"
#include "common/engine/sched/sequence.h"
#include "proto/worker.pb-c.h"

#include <stdbool.h>

#define REQUEST_TIMES_MAX_CHUNKS 16 /* of more, the first ones and the last are kept */

struct request_times {
    struct request_time *items;
    uint32_t capacity;
    uint32_t
        untold; /* that request_times_prefilled has not told yet: others need not be looked for */
};

enum status request_times_init(struct request_times *times, uint32_t capacity) WARN_UNUSED;
void request_times_deinit(struct request_times *times);

/* Its command came. `computes`: the prompt is computed here. */
void request_times_begin(struct request_times *times, struct sequence_key key, bool computes,
                         uint64_t now_us);
void request_times_reserved(struct request_times *times, struct sequence_key key,
                            uint32_t cached_tokens, uint64_t now_us);
void request_times_chunk(struct request_times *times, struct sequence_key key, uint64_t now_us);
/* A read of its KV bytes begins: the first one counts. */
void request_times_read(struct request_times *times, struct sequence_key key, uint64_t now_us);
void request_times_drop(struct request_times *times, struct sequence_key key);

/* Once for a request that computes its prompt here. The message's list points into it, until it is
 * dropped. */
bool request_times_prefilled(struct request_times *times, struct sequence_key key,
                             Baton__Worker__V1__Prefilled *prefilled);
/* Fills the times of a pull that is done. */
void request_times_pulled(const struct request_times *times, struct sequence_key key,
                          uint64_t now_us, Baton__Worker__V1__Pulled *pulled);

#endif
