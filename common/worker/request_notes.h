/* Notes of a worker about the requests that it has at this moment: the name that the client gave
 * (for log lines), and when the worker did what (for the router). Times are durations by this
 * worker's own clock, from the command on; they go to the router with first tokens and pulls.
 *
 * Transfer thread only; `now_us` is the caller's clock. Bounded: a request for which there is no
 * room is logged as "unknown", and its times are not sent. */
#ifndef BATON_WORKER_REQUEST_NOTES_H
#define BATON_WORKER_REQUEST_NOTES_H

#include "common/base/status.h"
#include "common/engine/sched/scheduler.h"
#include "common/worker/step_loop.h"
#include "proto/worker.pb-c.h"

#include <stdbool.h>

#define REQUEST_NOTES_MAX_CHUNKS 16 /* the first ones and the last are kept */

struct request_notes {
    struct request_note *items;
    uint32_t capacity;
    uint32_t unsent; /* requests without a Prefilled so far; 0: no need to look for one */
};

/* Room for `capacity` requests. STATUS_LIMIT: out of memory. */
enum status request_notes_init(struct request_notes *notes, uint32_t capacity) WARN_UNUSED;
void request_notes_deinit(struct request_notes *notes);

/* The request's command came. `name` is outside bytes and is kept as log_word() gives it.
 * `computes`: the prompt is computed here. A known key begins anew. */
void request_notes_begin(struct request_notes *notes, struct sequence_key key, const char *name,
                         bool computes, uint64_t now_us);
void request_notes_drop(struct request_notes *notes, struct sequence_key key);
bool request_notes_has(const struct request_notes *notes, struct sequence_key key);
/* Returns the client's name, or "unknown"; valid until the request is dropped. */
const char *request_notes_name(const struct request_notes *notes, struct sequence_key key);

void request_notes_reserved(struct request_notes *notes, struct sequence_key key,
                            uint32_t cached_tokens, uint64_t now_us);
/* A chunk of the prompt is computed. */
void request_notes_chunk(struct request_notes *notes, struct sequence_key key, uint64_t now_us);
/* A read of its KV bytes begins. Only the first one counts. */
void request_notes_read(struct request_notes *notes, struct sequence_key key, uint64_t now_us);

/* Fills the message and returns true, once for each request that computes its prompt here. The
 * message's list points into the notes, and is valid until the request is dropped. */
bool request_notes_prefilled(struct request_notes *notes, struct sequence_key key,
                             Baton__Worker__V1__Prefilled *prefilled);
/* As above, any number of times. */
bool request_notes_times(const struct request_notes *notes, struct sequence_key key,
                         Baton__Worker__V1__Prefilled *prefilled);
/* Fills the times of a pull that is done. */
void request_notes_pulled(const struct request_notes *notes, struct sequence_key key,
                          uint64_t now_us, Baton__Worker__V1__Pulled *pulled);

/* Logs a STEP_REFUSED or STEP_FAILED, with its status and reason. The number of lines is
 * limited. */
void request_notes_log_failed(const struct request_notes *notes, const char *module,
                              const struct step_event *event);

#endif
