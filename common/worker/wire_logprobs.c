#include "common/worker/wire_logprobs.h"

bool wire_logprobs(const Baton__Worker__V1__Logprobs *message, struct token_logprobs *out)
{
    if (!message) {
        *out = (struct token_logprobs){.given = false};
        return true;
    }
    struct logprobs_lists lists = {message->drawn, message->top_ids, message->top,
                                   message->n_top_ids, message->n_top};
    return token_logprobs_read(&lists, out);
}

Baton__Worker__V1__Logprobs *wire_logprobs_pack(const struct token_logprobs *logprobs,
                                                Baton__Worker__V1__Logprobs *message)
{
    if (!logprobs->given)
        return NULL;
    baton__worker__v1__logprobs__init(message);
    message->drawn = logprobs->logprob;
    message->n_top_ids = message->n_top = logprobs->top_count;
    message->top_ids = (uint32_t *)logprobs->top_ids; /* packing only reads */
    message->top = (float *)logprobs->top_logprobs;
    return message;
}
