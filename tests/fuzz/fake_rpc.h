/* Implements rpc.h without a network and without threads: the target's driver passes in all
 * received messages, and handlers run inside fake_* functions. Linked instead of
 * common/net/rpc/grpc's server, channel and calls. It keeps the promises of rpc.h and checks its
 * callers: `closed` comes once, nothing comes after it or after an end by our side, statuses have a
 * sentence, references balance. */
#ifndef BATON_TESTS_FUZZ_FAKE_RPC_H
#define BATON_TESTS_FUZZ_FAKE_RPC_H

#include "common/net/rpc/rpc.h"
#include "tests/fuzz/fuzz.h"

#define FAKE_MAX_CALLS 192 /* calls since the last fake_rpc_forget */

struct fake_rpc {
    /* Called with each message that our side sends; may be NULL. */
    void (*sent)(void *observer, struct rpc_call *call, struct rpc_bytes bytes);
    void *observer;
    /* the peer doesn't read: sending returns STATUS_LIMIT, and no status leaves */
    bool full;
    const char *header; /* value in every call's metadata; NULL: none */
    size_t count;       /* calls started since the last fake_rpc_forget */
    struct rpc_call *calls[FAKE_MAX_CALLS];
};
extern struct fake_rpc fake_rpc;

/* Plays a client that calls. NULL: FAKE_MAX_CALLS are there. */
struct rpc_call *fake_call_open(const struct rpc_method *method);
/* The other side sends, half-closes, or is gone. Nothing happens if our side has ended the call
 * already. */
void fake_call_receive(struct rpc_call *call, struct fuzz_bytes bytes);
void fake_call_half_close(struct rpc_call *call);
void fake_call_end(struct rpc_call *call, enum rpc_code code);
/* Runs the `closed` handlers that are due. */
void fake_rpc_settle(void);

bool fake_call_closed(const struct rpc_call *call);
bool fake_call_is_client(const struct rpc_call *call); /* our side dialled */
bool fake_call_is_to(const struct rpc_call *call, const char *path);
enum rpc_code fake_call_code(const struct rpc_call *call); /* the code that it ended with */

/* Ends and settles all calls that are left, and forgets them. All references must have been given
 * back. */
void fake_rpc_forget(void);

#endif
