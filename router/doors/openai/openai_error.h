/* Errors as OpenAI's clients read them: an HTTP status, {"error": {message, type, param, code}},
 * and whether to try again. PURE.
 *
 * `code` is the reason of reasons.h, the same on gRPC. No 408 and no 409, which the packages of
 * OpenAI would send again, and no 501, which they don't know; x-should-retry says of each error
 * whether the same request may do better later. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_ERROR_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_ERROR_H

#include "common/base/str.h"
#include "router/reasons.h"

#include <stdbool.h>

#define OPENAI_PARAM_BYTES 80

/* Why a body is not a request. */
struct openai_refusal {
    enum reason reason;             /* REASON_NONE: none so far */
    char param[OPENAI_PARAM_BYTES]; /* "messages[2].content"; "": none in particular */
    struct error err;
};

struct openai_status {
    int http;                /* 400 .. 504 */
    const char *type;        /* "invalid_request_error" */
    bool should_retry;       /* x-should-retry: true or false */
    unsigned retry_after_ms; /* retry-after-ms, and retry-after in whole seconds; 0: neither */
};

/* Not of REASON_NONE. */
struct openai_status openai_status_of(enum reason reason);
/* The same of a refusal that knows when to try again: after `retry_after_s`; 0: it doesn't know. */
struct openai_status openai_status_after(enum reason reason, uint32_t retry_after_s);

/* {"error":{...}}; `param` may be "" or NULL. Not cut: the sentence is bounded. */
void openai_error_json(struct str *out, enum reason reason, const char *param,
                       const char *sentence);
/* For what isn't a reason of ours: a path that isn't there, a method that isn't taken, a head that
 * can't be read. */
void openai_error_json_of(struct str *out, const char *type, const char *code,
                          const char *sentence);

/* Keeps the first one. Returns false, so that `return openai_refuse(...)` reads well. */
bool openai_refuse(struct openai_refusal *refusal, enum reason reason, const char *param,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
