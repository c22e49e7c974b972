/* The prefill role: takes Prefill commands, has the step thread compute them, and hands the KV
 * blocks to whoever pulls them. The decisions are common/kv/handoff/source.h's; this carries them
 * out. Transfer thread only.
 */
#ifndef BATON_PREFILL_WORKER_PREFILL_ROLE_H
#define BATON_PREFILL_WORKER_PREFILL_ROLE_H

#include "common/worker/worker.h"

extern const struct worker_role_ops prefill_role_ops;

#endif
