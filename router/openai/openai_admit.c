#include "router/openai/openai_admit.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/access_log.h"
#include "router/openai/openai_reply.h"
#include "router/openai/openai_submit.h"
#include "router/router_metrics.h"

#include <string.h>

/* Whoever asks whether we are alive has no key. */
static const char *const open_paths[] = {"/health", "/ready", "/live", "/version"};
/* What runs, and counts as running until its end. */
static const char *const running_paths[] = {"/v1/completions", "/v1/chat/completions"};

static bool is_one_of(const char *const *paths, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(paths[i], path))
            return true;
    return false;
}

static void settle(void *grant)
{
    access_settle(grant, 0, clock_now_us());
}

static void refuse(struct openai_api *api, struct http_exchange *exchange, enum reason reason,
                   const struct access_refusal *refusal, struct http_reply *reply)
{
    char name[REQUEST_MAX_ID_BYTES + 1], peer[HTTP_PEER_BYTES];
    openai_request_name(exchange, name);
    http_exchange_peer(exchange, peer);
    log_debug("openai", "req=%s reason=%s peer=%s msg=\"refused\"", name, reason_name(reason),
              peer);
    access_log_refused(api->access_log, &(struct access_line_refusal){.reason = reason_name(reason),
                                                                      .name = name,
                                                                      .tenant = refusal->tenant,
                                                                      .key = refusal->key,
                                                                      .peer = peer});
    openai_fill_refusal(reply, name,
                        &(struct openai_why){.reason = reason,
                                             .sentence = refusal->why.text,
                                             .retry_after_s = refusal->retry_after_s});
    router_metrics_ended(api->metrics, ROUTER_NO_MODEL, reason);
}

bool openai_admit(void *context, struct http_exchange *exchange, struct http_reply *reply)
{
    struct openai_api *api = context;
    const char *path = http_exchange_path(exchange);
    const char *header = http_exchange_header(exchange, "authorization");
    struct access_grant *grant;
    struct access_refusal refusal;
    if (is_one_of(open_paths, sizeof open_paths / sizeof *open_paths, path))
        return true;
    enum reason reason = access_check(api->access, access_token(header ? header : ""),
                                      clock_now_us(), &grant, &refusal);
    if (reason)
        refuse(api, exchange, reason, &refusal, reply);
    else if (is_one_of(running_paths, sizeof running_paths / sizeof *running_paths, path) && grant)
        http_exchange_attach(exchange, grant, settle);
    else
        settle(grant); /* a request of the minute, and done at once */
    return !reason;
}

struct access_grant *openai_take_grant(struct http_exchange *exchange)
{
    return http_exchange_take_attached(exchange);
}
