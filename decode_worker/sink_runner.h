/* Carries out the decisions of the sinks (common/kv/handoff/sink.h): has the step thread begin,
 * admit and end sequences, has kv_import connect, pair and read, and reports to the router.
 *
 * An event is one sink_on_...(runner->sinks, ..., &runner->actions), then sink_runner_run(runner).
 * Some actions have an outcome at once (a read that can't start); the same run reports it to the
 * sinks. Checksums are compared in turns, by sink_runner_work. Transfer thread only. */
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
    struct sink_outcome *outcomes; /* [actions.capacity]: not reported to the sinks yet */
    uint32_t outcome_count;
    struct verification *verifications; /* [2 * max_sinks], the next one first */
    uint32_t verification_count, verification_limit;

    /* Inputs of the event under way for its actions; empty between two events: */
    struct sequence_spec
        pending;              /* a Decode's sequence; SINK_RESERVE queues it and takes its tokens */
    const char *pending_name; /* the client's name for it */
    enum kv_failure read_failure; /* why the read ended */
    const char *sentence;         /* why it failed, for SINK_SEND_REFUSED; NULL: unknown */
    const char *refused_by;       /* the word for a SINK_SEND_REFUSED; NULL: the sink's reason */
};

/* The owner sets `imports` before the first event. On failure nothing is left to deinit. */
enum status sink_runner_init(struct sink_runner *runner, struct worker *worker,
                             const struct sink_config *config, struct error *err) WARN_UNUSED;
void sink_runner_deinit(struct sink_runner *runner);

/* Carries out the list that a sink_on_... call has left, then reports the outcomes, which leave
 * lists of their own. */
void sink_runner_run(struct sink_runner *runner);

/* Compares the checksums of a few blocks, of one sink after the other. Returns false if none
 * waits. */
bool sink_runner_work(struct sink_runner *runner);

/* Logs how a sequence ended, once, and drops its notes. */
void sink_runner_log_end(struct sink_runner *runner, struct sequence_key key, const char *how);

#endif
