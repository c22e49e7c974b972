#include "router/doors/openai/openai_error.h"

#include "common/base/assert.h"
#include "common/base/json/json_quote.h"

#include <stdarg.h>
#include <string.h>

/* The default for a gRPC status; openai_status_of has the reasons that differ. */
static struct openai_status status_of_code(enum rpc_code code)
{
    switch (code) {
    case RPC_NOT_FOUND: return (struct openai_status){404, "not_found_error", false, 0};
    case RPC_UNAUTHENTICATED: return (struct openai_status){401, "authentication_error", false, 0};
    case RPC_PERMISSION_DENIED: return (struct openai_status){403, "permission_error", false, 0};
    case RPC_RESOURCE_EXHAUSTED: return (struct openai_status){429, "rate_limit_error", true, 1000};
    case RPC_UNAVAILABLE: return (struct openai_status){503, "service_unavailable", true, 1000};
    case RPC_DEADLINE_EXCEEDED: return (struct openai_status){504, "timeout_error", false, 0};
    case RPC_INTERNAL:
    case RPC_UNKNOWN:
    case RPC_DATA_LOSS: return (struct openai_status){500, "server_error", false, 0};
    /* The client left and doesn't read this. 499 is for logs. */
    case RPC_CANCELLED: return (struct openai_status){499, "server_error", false, 0};
    case RPC_OK:
    case RPC_INVALID_ARGUMENT:
    case RPC_ALREADY_EXISTS:
    case RPC_FAILED_PRECONDITION:
    case RPC_ABORTED:
    case RPC_OUT_OF_RANGE:
    case RPC_UNIMPLEMENTED: break;
    }
    return (struct openai_status){400, "invalid_request_error", false, 0};
}

struct openai_status openai_status_of(enum reason reason)
{
    ASSERT(reason != REASON_NONE);
    switch (reason) {
    /* The client didn't cause it, so no 429. */
    case REASON_OVERLOADED: return (struct openai_status){503, "overloaded_error", true, 1000};
    /* The same request would get an answer of the same size. */
    case REASON_ANSWER_TOO_LARGE:
    case REASON_SLOW_READER: return (struct openai_status){400, "invalid_request_error", false, 0};
    /* Waiting doesn't help: no retry. */
    case REASON_QUOTA: return (struct openai_status){429, "rate_limit_error", false, 0};
    case REASON_TEXT_TOO_LONG:
        return (struct openai_status){413, "invalid_request_error", false, 0};
    default: return status_of_code(reason_code(reason));
    }
}

struct openai_status openai_status_after(enum reason reason, uint32_t retry_after_s)
{
    struct openai_status status = openai_status_of(reason);
    if (retry_after_s)
        status.retry_after_ms = retry_after_s * 1000;
    return status;
}

static void add_member(struct str *out, const char *key, const char *value)
{
    str_add(out, key);
    if (value && *value)
        json_quote(out, value, strlen(value));
    else
        str_add(out, "null");
}

void openai_error_json_of(struct str *out, const char *type, const char *code, const char *param,
                          const char *sentence)
{
    str_add(out, "{\"error\":{\"message\":");
    json_quote(out, sentence, strlen(sentence));
    add_member(out, ",\"type\":", type);
    add_member(out, ",\"param\":", param);
    add_member(out, ",\"code\":", code);
    str_add(out, "}}");
}

void openai_error_json(struct str *out, enum reason reason, const char *param, const char *sentence)
{
    openai_error_json_of(out, openai_status_of(reason).type, reason_name(reason), param, sentence);
}

bool openai_refuse(struct openai_refusal *refusal, enum reason reason, const char *param,
                   const char *format, ...)
{
    va_list args;
    if (refusal->reason)
        return false;
    refusal->reason = reason;
    str_copy(refusal->param, sizeof refusal->param, param);
    va_start(args, format);
    error_vset(&refusal->err, STATUS_INVALID, format, args);
    va_end(args);
    return false;
}
