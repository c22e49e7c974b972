/* A worker without network, engine and threads, for the targets of both roles. The role, its
 * streams, state machines, scheduler and transport (in this process) are real. The input decides
 * which messages come, which results are computed, and when. See worker_happen for the meaning of
 * its bytes. */
#ifndef BATON_TESTS_FUZZ_WORKER_WORLD_H
#define BATON_TESTS_FUZZ_WORKER_WORLD_H

#include "common/worker/worker.h"
#include "tests/fuzz/fake_rpc.h"

#define WORLD_BLOCK_TOKENS 16
#define WORLD_BLOCK_BYTES  256 /* make_seeds.py knows the checksum of so many zeros */
#define WORLD_BLOCK_COUNT  64
#define WORLD_CONTEXT      256
#define WORLD_VOCAB        600
#define WORLD_SEQUENCES    6
#define WORLD_EVENTS       64 /* at most in one input */

/* Plays the input on a new worker, then lets everything end. No request and no block may be
 * left. */
void worker_world_play(const struct worker_role_ops *ops, struct fuzz_input *input);

#endif
