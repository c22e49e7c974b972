/* What a connection sends: the answers of exchanges, and refusals. Belongs to the loop's thread.
 * Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_ANSWER_H
#define BATON_NET_HTTP_HTTP_ANSWER_H

#include "common/net/http/http_connection.h"

/* Sends what was written to the exchange, and goes on when all of an answer has left. The
 * connection may be dead behind it. */
void http_answer_flush(struct http_connection *connection);
/* Whether something is to be sent yet. */
bool http_answer_waits(const struct http_connection *connection);
void http_answer_say_continue(struct http_connection *connection);

/* What isn't to be understood, too large or too slow: says why, and closes behind it. */
void http_answer_refuse(struct http_connection *connection, const struct http_refusal *why);

/* What is understood and not served: kept until its body has come. `allow`: of a 405, or NULL. */
void http_answer_keep_refusal(struct http_connection *connection, const struct http_refusal *why,
                              const char *allow);
void http_answer_keep_reply(struct http_connection *connection, const struct http_reply *reply);
void http_answer_tell_refusal(struct http_connection *connection);

#endif
