/* rpc.h without a network and without threads: what a target receives is what the target's driver
 * hands in, and handlers run inside fake_* functions. Linked instead of common/net/rpc/grpc's
 * server, channel and calls. It keeps the promises of rpc.h and checks its callers: `closed` comes
 * once, nothing comes behind it or behind an own end, statuses have a sentence, references
 * balance. */
#ifndef BATON_TESTS_FUZZ_FAKE_RPC_H
#define BATON_TESTS_FUZZ_FAKE_RPC_H

#include "common/net/rpc/rpc.h"
#include "tests/fuzz/fuzz.h"

#define FAKE_MAX_CALLS 192 /* that were not forgotten */

struct fake_rpc {
    /* What our side sends; may be NULL. */
    void (*sent)(void *observer, struct rpc_call *call, struct rpc_bytes bytes);
    void *observer;
    bool full;          /* nobody reads: sending ends with STATUS_LIMIT, and no status leaves */
    const char *header; /* what every call's metadata says; NULL: nothing */
    size_t count;       /* of calls: all that were started since the last forgetting */
    struct rpc_call *calls[FAKE_MAX_CALLS];
};
extern struct fake_rpc fake_rpc;

/* A client calls. NULL: FAKE_MAX_CALLS are there. */
struct rpc_call *fake_call_open(const struct rpc_method *method);
/* The other side sends, half-closes, or is gone; nothing happens where our side ended the call
 * already. */
void fake_call_receive(struct rpc_call *call, struct fuzz_bytes bytes);
void fake_call_half_close(struct rpc_call *call);
void fake_call_end(struct rpc_call *call, enum rpc_code code);
/* Runs the `closed` handlers that are due. */
void fake_rpc_settle(void);

bool fake_call_closed(const struct rpc_call *call);
bool fake_call_is_client(const struct rpc_call *call); /* our side dialled */
bool fake_call_is_to(const struct rpc_call *call, const char *path);
enum rpc_code fake_call_code(const struct rpc_call *call); /* with which it ended */

/* Ends and settles what is left, and forgets it; references must have been given back by then. */
void fake_rpc_forget(void);

#endif
