/* What clients are sent: a request's deltas, its end, and the messages around them. Any thread that owns the request. */
#ifndef BATON_ROUTER_REPLY_H
#define BATON_ROUTER_REPLY_H

#include "router/request.h"

#include <protobuf-c/protobuf-c.h>

/* Sends what came free since the last time (Generate only). STATUS_LIMIT: the client doesn't read; STATUS_CANCELLED: it left. */
enum status reply_delta(struct request *request) WARN_UNUSED;

/* Of the prompt's tokens from `first` on, which request->prompt_out has taken (Generate only). As reply_delta. */
enum status reply_prompt_logprobs(struct request *request, uint32_t first,
                                  const struct token_logprobs *logprobs,
                                  uint32_t count) WARN_UNUSED;

/* One choice is complete: the rest of it and its Finished (of GenerateOnce nothing yet). STATUS_LIMIT: it doesn't fit any more. */
enum status reply_choice(struct request *request, enum finish_reason finish) WARN_UNUSED;
/* All choices of the call are: Usage and Timing, or the whole answer; all but the status. As above. */
enum status reply_end(struct request *first) WARN_UNUSED;

/* Ends a call that is answered at once: its one message and OK, or ANSWER_TOO_LARGE, with the sizes, where that doesn't fit:
 * `limit_bytes` may wait to be sent. */
void reply_answer(struct rpc_call *call, const ProtobufCMessage *message, size_t limit_bytes);

/* Ends a call: OK for REASON_NONE, which has no sentence. */
void reply_status(struct rpc_call *call, enum reason reason, const char *sentence);

#endif
