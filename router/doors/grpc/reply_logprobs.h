/* The logprobs of a delta as messages of the public interface, which point into it. */
#ifndef BATON_ROUTER_DOORS_GRPC_REPLY_LOGPROBS_H
#define BATON_ROUTER_DOORS_GRPC_REPLY_LOGPROBS_H

#include "common/base/domain/logprobs.h"
#include "proto/baton.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

struct reply_logprobs {
    size_t count;
    Baton__V1__Logprobs **pointers; /* [count]; NULL where there are none */
    Baton__V1__Logprobs *messages;
};

/* False: no memory. Otherwise, and only then, deinit. */
bool reply_logprobs_init(struct reply_logprobs *reply, const struct token_logprobs *logprobs,
                         size_t count);
void reply_logprobs_deinit(struct reply_logprobs *reply);

#endif
