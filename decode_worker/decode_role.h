/* The decode role: takes Decode commands, pulls the prompt's KV blocks from a prefill worker (or
 * computes the prompt here if there is no handle), and has the step thread write the answer.
 * common/kv/handoff/sink.h decides; sink_runner carries that out. Transfer thread only. */
#ifndef BATON_DECODE_WORKER_DECODE_ROLE_H
#define BATON_DECODE_WORKER_DECODE_ROLE_H

#include "common/worker/worker.h"

extern const struct worker_role_ops decode_role_ops;

#endif
