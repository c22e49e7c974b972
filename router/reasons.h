/* The reasons for which a call ends without OK. Each has a stable code, which clients get in the
 * trailing metadata `baton-reason`, and a gRPC status. docs/api.md prints this table. A code never
 * changes its meaning; new ones may be added. */
#ifndef BATON_ROUTER_REASONS_H
#define BATON_ROUTER_REASONS_H

#include "common/net/rpc/rpc.h"

/* X(symbol, code on the wire, gRPC status, the situation) */
#define ROUTER_REASONS(X)                                                                          \
    X(MALFORMED, "malformed", INVALID_ARGUMENT, "not the message it should be, or not UTF-8")      \
    X(INVALID_REQUEST_ID, "invalid_request_id", INVALID_ARGUMENT,                                  \
      "longer than 128 bytes, or not printable ASCII without blanks")                              \
    X(MISSING_INPUT, "missing_input", INVALID_ARGUMENT, "neither text nor token_ids")              \
    X(EMPTY_PROMPT, "empty_prompt", INVALID_ARGUMENT, "the prompt has no tokens")                  \
    X(TEXT_TOO_LONG, "text_too_long", INVALID_ARGUMENT, "more bytes of text than are read")        \
    X(INVALID_TOKEN_ID, "invalid_token_id", INVALID_ARGUMENT, "an id that the model doesn't have") \
    X(INVALID_SAMPLING, "invalid_sampling", INVALID_ARGUMENT, "a value out of its range")          \
    X(INVALID_STOP, "invalid_stop", INVALID_ARGUMENT, "too many stops, or one too long or empty")  \
    X(INVALID_PRIORITY, "invalid_priority", INVALID_ARGUMENT, "a priority that doesn't exist")     \
    X(INVALID_CONSTRAINT, "invalid_constraint", INVALID_ARGUMENT,                                  \
      "a schema, expression, list of choices or tools that is malformed, too big or not "          \
      "supported")                                                                                 \
    X(NO_TOKEN_ALLOWED, "no_token_allowed", INVALID_ARGUMENT,                                      \
      "no token is left that the answer may go on with")                                           \
    X(UNSUPPORTED_PARAMETER, "unsupported_parameter", UNIMPLEMENTED,                               \
      "something that is not offered")                                                             \
    X(CONTEXT_LENGTH_EXCEEDED, "context_length_exceeded", INVALID_ARGUMENT,                        \
      "prompt and max_tokens don't fit into the model's context, or into a worker's KV pool")      \
    X(MODEL_NOT_FOUND, "model_not_found", NOT_FOUND, "not a model that is served")                 \
    X(MISSING_MODEL, "missing_model", INVALID_ARGUMENT, "no model named, and several are served")  \
    X(NO_TOKENIZER, "no_tokenizer", FAILED_PRECONDITION, "text for a model without tokenizer")     \
    X(NO_CHAT_TEMPLATE, "no_chat_template", FAILED_PRECONDITION,                                   \
      "a chat for a model without a chat template")                                                \
    X(CHAT_REFUSED, "chat_refused", INVALID_ARGUMENT,                                              \
      "the model's chat template does not take this conversation")                                 \
    X(INVALID_API_KEY, "invalid_api_key", UNAUTHENTICATED, "no API key, or an unknown one")        \
    X(PRIORITY_NOT_ALLOWED, "priority_not_allowed", PERMISSION_DENIED,                             \
      "a priority that the API key may not ask for")                                               \
    X(SLO_CLASS_UNKNOWN, "slo_class_unknown", INVALID_ARGUMENT,                                    \
      "an SLO class that the router doesn't have")                                                 \
    X(SLO_CLASS_CONFLICT, "slo_class_conflict", INVALID_ARGUMENT,                                  \
      "one SLO class in the request, and another in x-baton-slo-class")                            \
    X(SLO_TIGHTENED, "slo_tightened", INVALID_ARGUMENT,                                            \
      "an objective that is tighter than its class's, or that its class doesn't have")             \
    X(SLO_CLASS_NOT_ALLOWED, "slo_class_not_allowed", PERMISSION_DENIED,                           \
      "an SLO class that the API key may not use")                                                 \
    X(RATE_LIMITED, "rate_limited", RESOURCE_EXHAUSTED,                                            \
      "the API key has used up its requests or tokens of this minute, or its requests at once")    \
    X(QUOTA, "quota", RESOURCE_EXHAUSTED,                                                          \
      "more tokens than the API key may use in a whole minute, or more choices than it may "       \
      "have running at once")                                                                      \
    X(REFUSED, "refused", INVALID_ARGUMENT, "a worker can't serve this request")                   \
    X(OVERLOADED, "overloaded", RESOURCE_EXHAUSTED, "the queue is full; try again later")          \
    X(SLO_UNATTAINABLE, "slo_unattainable", RESOURCE_EXHAUSTED,                                    \
      "it would miss the objectives of its SLO class; try again later")                            \
    X(SLOW_READER, "slow_reader", RESOURCE_EXHAUSTED, "the client doesn't read its stream")        \
    X(ANSWER_TOO_LARGE, "answer_too_large", RESOURCE_EXHAUSTED,                                    \
      "too much for one message; use Generate")                                                    \
    X(NO_WORKERS, "no_workers", UNAVAILABLE,                                                       \
      "no worker of a role that is needed is there, or none that fit together")                    \
    X(WORKERS_LOST, "workers_lost", UNAVAILABLE, "workers died under the request too often")       \
    X(DRAINING, "draining", UNAVAILABLE, "this router is shutting down")                           \
    X(DEADLINE, "deadline", DEADLINE_EXCEEDED, "the deadline passed, or can't be met any more")    \
    X(CANCELLED, "cancelled", CANCELLED, "the client left")                                        \
    X(INTERNAL, "internal", INTERNAL, "a fault of this program")                                   \
    X(STEP_FAILED, "step_failed", INTERNAL, "workers could not compute a step of it")              \
    X(WRONG_VERSION, "wrong_version", FAILED_PRECONDITION, "the worker is of another version")     \
    X(WRONG_MODEL, "wrong_model", FAILED_PRECONDITION, "the worker serves another model")          \
    X(NAME_IN_USE, "name_in_use", FAILED_PRECONDITION, "another live worker has this name")        \
    X(TOO_MANY_WORKERS, "too_many_workers", RESOURCE_EXHAUSTED, "no room for one more worker")

enum reason {
    REASON_NONE,
#define REASON_SYMBOL(symbol, text, code, when) REASON_##symbol,
    ROUTER_REASONS(REASON_SYMBOL)
#undef REASON_SYMBOL
        REASON_COUNT
};

const char *reason_name(enum reason reason); /* "" for REASON_NONE */
enum rpc_code reason_code(enum reason reason);
const char *reason_when(enum reason reason); /* the situation, as in the table */

#endif
