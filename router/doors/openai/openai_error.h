/* Errors in the form that OpenAI's clients read: an HTTP status, {"error": {message, type, param,
 * code}}, and whether to try again. PURE.
 *
 * `code` is the reason of reasons.h, the same as on gRPC. Never 408 or 409: OpenAI's packages would
 * send such a request again. Never 501: they don't know it. The header x-should-retry says for each
 * error whether the same request may succeed later. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_ERROR_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_ERROR_H

#include "common/base/str.h"
#include "router/reasons.h"

#include <stdbool.h>

#define OPENAI_PARAM_BYTES 80

/* The reason why a body is refused. */
struct openai_refusal {
    enum reason reason;             /* REASON_NONE: not refused */
    char param[OPENAI_PARAM_BYTES]; /* "messages[2].content"; "": no single parameter */
    struct error err;
};

struct openai_status {
    int http;                /* 400 .. 504 */
    const char *type;        /* "invalid_request_error" */
    bool should_retry;       /* x-should-retry: true or false */
    unsigned retry_after_ms; /* retry-after-ms, and retry-after in whole seconds; 0: neither */
};

/* `reason` must not be REASON_NONE. */
struct openai_status openai_status_of(enum reason reason);
/* The same with a known time to wait: `retry_after_s` seconds; 0: unknown. */
struct openai_status openai_status_after(enum reason reason, uint32_t retry_after_s);

/* Appends {"error":{...}}. `param` may be "" or NULL. `sentence` is bounded, and never cut. */
void openai_error_json(struct str *out, enum reason reason, const char *param,
                       const char *sentence);
/* The same for an error without a reason in reasons.h: an unknown path, a method that the path
 * doesn't take, an unreadable head. */
void openai_error_json_of(struct str *out, const char *type, const char *code, const char *param,
                          const char *sentence);

/* Sets *refusal if it isn't set yet. Returns false, so that `return openai_refuse(...)` reads
 * well. */
bool openai_refuse(struct openai_refusal *refusal, enum reason reason, const char *param,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
