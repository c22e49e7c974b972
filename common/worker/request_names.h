/* What clients call the requests that a worker has at this moment, for its log lines. Transfer
 * thread only. Bounded: what has no room is logged without its name. */
#ifndef BATON_WORKER_REQUEST_NAMES_H
#define BATON_WORKER_REQUEST_NAMES_H

#include "common/base/status.h"
#include "common/engine/sched/scheduler.h"
#include "common/worker/step_loop.h"

#include <stdbool.h>

struct request_names {
    struct request_name *items;
    uint32_t capacity;
};

enum status request_names_init(struct request_names *names, uint32_t capacity) WARN_UNUSED;
void request_names_deinit(struct request_names *names);

/* `name` is outside bytes: it is kept as log_word() has it. */
void request_names_put(struct request_names *names, struct sequence_key key, const char *name);
bool request_names_has(const struct request_names *names, struct sequence_key key);
/* "unknown" where there is none; valid until it is dropped. */
const char *request_names_get(const struct request_names *names, struct sequence_key key);
void request_names_drop(struct request_names *names, struct sequence_key key);

/* STEP_REFUSED or STEP_FAILED: a limited line that says what was refused, or not computed, and
 * why. */
void request_names_log_failed(const struct request_names *names, const char *module,
                              const struct step_event *event);

#endif
