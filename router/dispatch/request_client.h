/* Whom a request is answered: what the dispatch thread needs of a front door, so that it knows
 * neither calls of gRPC nor HTTP. reply.h is that of gRPC, openai/ that of HTTP.
 *
 * The dispatch thread alone calls these, but for ref and unref. `status` comes last, exactly once,
 * at the end of a turn; `delta` and `prompt_logprobs` only of a request that isn't answered at once
 * (request->once). None of them blocks. */
#ifndef BATON_ROUTER_DISPATCH_REQUEST_CLIENT_H
#define BATON_ROUTER_DISPATCH_REQUEST_CLIENT_H

#include "common/base/domain/logprobs.h"
#include "common/base/domain/sampling.h"
#include "common/base/status.h"
#include "router/reasons.h"

#include <stdbool.h>

struct request;

struct request_client_ops {
    /* Sends what came free since the last time. STATUS_LIMIT: the client doesn't read;
     * STATUS_CANCELLED: it left. So do the next three. */
    enum status (*delta)(struct request *request);
    /* Of the prompt's tokens from `first` on, which request->prompt_echo has taken. */
    enum status (*prompt_logprobs)(struct request *request, uint32_t first,
                                   const struct token_logprobs *logprobs, uint32_t count);
    /* One choice is complete: the rest of it. */
    enum status (*choice)(struct request *request, enum finish_reason finish);
    /* All choices are: what follows them, but for the status. */
    enum status (*end)(struct request *first);
    /* The end, of which all books tell already; the sentence is looked at where there is a
     * reason. */
    void (*status)(struct request *first, enum reason reason, const char *sentence);
    /* Asked when one of the above has returned STATUS_CANCELLED, and at a cancel: why, where the
     * client didn't leave but was told that another request of the same call failed. REASON_NONE
     * otherwise. NULL: there are no others. */
    enum reason (*why)(const struct request *first);
    /* Asked when all went well, before `status`: does the client hear of it only together with
     * other requests of the same call? Then it is shown as having ended when that is told
     * (dispatch_settle), or when its call is over. NULL: no. */
    bool (*told_later)(const struct request *first);
    /* Asked when the request begins, and whenever that comes which it returned: has a client that
     * has heard nothing for long told that its request is alive. UINT64_MAX: don't ask again. NULL:
     * nobody is told. */
    uint64_t (*keep_alive)(struct request *first, uint64_t now_us);
    /* What waits to be sent and isn't on its way. */
    void (*drop_queued)(void *handle);
    size_t (*queued_bytes)(void *handle);
    /* Now, after the status, although it doesn't read. */
    void (*break_off)(void *handle, enum reason reason, const char *sentence);
    void (*ref)(void *handle);
    void (*unref)(void *handle);
};

struct request_client {
    const struct request_client_ops *ops;
    void *handle;
};

#endif
