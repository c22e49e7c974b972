#include "router/doors/grpc/reply_logprobs.h"

#include <stdlib.h>

bool reply_logprobs_init(struct reply_logprobs *reply, const struct token_logprobs *logprobs,
                         size_t count)
{
    *reply = (struct reply_logprobs){.count = count};
    if (!count)
        return true;
    reply->pointers = calloc(count, sizeof(Baton__V1__Logprobs *));
    reply->messages = calloc(count, sizeof *reply->messages);
    if (!reply->pointers || !reply->messages) {
        reply_logprobs_deinit(reply);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        Baton__V1__Logprobs *message = reply->pointers[i] = &reply->messages[i];
        baton__v1__logprobs__init(message);
        message->drawn = logprobs[i].logprob;
        message->n_top_ids = message->n_top = logprobs[i].top_count;
        message->top_ids = (uint32_t *)logprobs[i].top_ids; /* packing only reads */
        message->top = (float *)logprobs[i].top_logprobs;
    }
    return true;
}

void reply_logprobs_deinit(struct reply_logprobs *reply)
{
    free(reply->pointers);
    free(reply->messages);
}
