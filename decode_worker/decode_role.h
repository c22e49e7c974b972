/* The decode role: takes Decode commands, pulls the prompt's KV blocks from a prefill worker (or
 * computes the prompt here when there is no handle), and has the step thread write the answer. The
 * decisions are common/kv/handoff/sink.h's; sink_runner carries them out. Transfer thread only.
 */
#ifndef BATON_DECODE_WORKER_DECODE_ROLE_H
#define BATON_DECODE_WORKER_DECODE_ROLE_H

#include "common/worker/worker.h"

extern const struct worker_role_ops decode_role_ops;

#endif
