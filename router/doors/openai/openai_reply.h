/* Replies over HTTP in OpenAI's shape, with the headers that clients look at. Any thread. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_REPLY_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_REPLY_H

#include "common/net/http/http_exchange.h"
#include "router/doors/openai/openai_error.h"

/* Replies with JSON, which is moved out of `body`. `request_id` may be NULL. */
void openai_reply_json(struct http_exchange *exchange, const char *request_id, struct str *body);
/* Why a request is refused. */
struct openai_why {
    enum reason reason;
    const char *param; /* NULL and "": none in particular */
    const char *sentence;
    uint32_t retry_after_s; /* 0: as is usual for the reason */
};
void openai_reply_refusal(struct http_exchange *exchange, const char *request_id,
                          const struct openai_why *why);
/* Fills an existing reply with the refusal. */
void openai_fill_refusal(struct http_reply *reply, const char *request_id,
                         const struct openai_why *why);
/* `param` may be NULL. */
void openai_reply_error(struct http_exchange *exchange, const char *request_id, enum reason reason,
                        const char *param, const char *sentence);
/* Sends the head of a stream. STATUS_CANCELLED: the client has left. */
enum status openai_reply_stream(struct http_exchange *exchange, const char *request_id) WARN_UNUSED;

#endif
