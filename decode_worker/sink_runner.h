/* Carries out what the sinks (common/kv/handoff/sink.h) decide: has the step thread begin, admit
 * and end sequences, has kv_import connect, pair and read, and tells the router. An event is one
 * sink_on_...(runner->sinks, ..., &runner->actions), then sink_runner_run(runner); what an action
 * brings about at once (a read that can't start, a checksum) is told to the sinks by the same run.
 * Transfer thread only. */
#ifndef BATON_DECODE_WORKER_SINK_RUNNER_H
#define BATON_DECODE_WORKER_SINK_RUNNER_H

#include "common/kv/handoff/sink.h"
#include "common/worker/request_notes.h"
#include "common/worker/worker.h"
#include "decode_worker/kv_import.h"

struct sink_runner {
    struct worker *worker;
    struct kv_import *imports; /* the owner's */
    struct sink_table *sinks;
    struct sink_actions actions;
    struct request_notes notes;
    struct sink_outcome *outcomes; /* [actions.capacity]: not told yet */
    uint32_t outcome_count;

    /* What the event under way has for its actions, and nothing between two events: */
    struct sequence_spec
        pending;              /* of a Decode: what SINK_RESERVE queues, which takes its tokens */
    const char *pending_name; /* likewise, what its client calls it */
    enum kv_failure read_failure; /* of the read that has ended */
    const char *sentence;         /* of a failure, for SINK_SEND_REFUSED; NULL: none */
};

/* `imports` is set by the owner before the first event. On failure nothing is left to deinit. */
enum status sink_runner_init(struct sink_runner *runner, struct worker *worker,
                             const struct sink_config *config, struct error *err) WARN_UNUSED;
void sink_runner_deinit(struct sink_runner *runner);

void sink_runner_run(struct sink_runner *runner);

/* Logs how a sequence ended, once, and forgets what its client calls it. */
void sink_runner_log_end(struct sink_runner *runner, struct sequence_key key, const char *how);

#endif
