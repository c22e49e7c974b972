/* The prefill role: takes Prefill commands, has the step thread compute them, and lets decode
 * workers pull the KV blocks. common/kv/handoff/source.h decides; this module carries that out.
 * Transfer thread only. */
#ifndef BATON_PREFILL_WORKER_PREFILL_ROLE_H
#define BATON_PREFILL_WORKER_PREFILL_ROLE_H

#include "common/worker/worker.h"

extern const struct worker_role_ops prefill_role_ops;

#endif
