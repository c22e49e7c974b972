/* Replies over HTTP in OpenAI's shape, with the headers that clients look at.
 * Any thread. */
#ifndef BATON_ROUTER_OPENAI_OPENAI_REPLY_H
#define BATON_ROUTER_OPENAI_OPENAI_REPLY_H

#include "common/http/http_exchange.h"
#include "router/openai/openai_error.h"

/* The body is moved out of `body`. `request_id` may be NULL. */
void openai_reply_json(struct http_exchange *exchange, const char *request_id, struct str *body);
/* `param` may be NULL. */
void openai_reply_error(struct http_exchange *exchange, const char *request_id, enum reason reason,
                        const char *param, const char *sentence);
/* The head of a stream; STATUS_CANCELLED: the client has left. */
enum status openai_reply_stream(struct http_exchange *exchange, const char *request_id) WARN_UNUSED;

#endif
