#include "router/doors/openai/openai_admit.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "router/dispatch/constraint_checks.h"
#include "router/doors/openai/openai_reply.h"
#include "router/doors/openai/openai_submit.h"
#include "router/ops/access_log.h"
#include "router/ops/router_metrics.h"

#include <stdlib.h>
#include <string.h>

/* Probes have no key. */
static const char *const open_paths[] = {"/", "/health", "/ready", "/live", "/version"};
/* Requests that count as running until their end. */
static const char *const running_paths[] = {"/v1/completions", "/v1/chat/completions"};

static bool is_one_of(const char *const *paths, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(paths[i], path))
            return true;
    return false;
}

/* Attached to the exchange of a request that has a key. */
struct caller {
    struct access_grant *grant; /* while it runs; NULL: settled */
    char tenant[API_KEY_NAME_BYTES], key[API_KEY_NAME_BYTES];
};

static void drop_caller(void *thing)
{
    struct caller *caller = thing;
    access_settle(caller->grant, 0, clock_now_us());
    free(caller);
}

/* False: no memory. */
static bool attach_caller(struct http_exchange *exchange, struct access_grant *grant, bool runs)
{
    struct caller *caller = calloc(1, sizeof *caller);
    if (!caller)
        return false;
    caller->grant = runs ? grant : NULL;
    str_copy(caller->tenant, sizeof caller->tenant, access_tenant(grant));
    str_copy(caller->key, sizeof caller->key, access_key_id(grant));
    http_exchange_attach(exchange, caller, drop_caller);
    return true;
}

static void refuse(struct openai_api *api, struct http_exchange *exchange, enum reason reason,
                   const struct access_refusal *refusal, struct http_reply *reply)
{
    char name[REQUEST_ID_BYTES];
    openai_request_id(exchange, name);
    openai_log(api, exchange,
               &(struct access_line_brief){.status = reason_name(reason),
                                           .name = name,
                                           .tenant = refusal->tenant,
                                           .key = refusal->key,
                                           .stranger = reason == REASON_INVALID_API_KEY});
    openai_fill_refusal(reply, name,
                        &(struct openai_why){.reason = reason,
                                             .sentence = refusal->why.text,
                                             .retry_after_s = refusal->retry_after_s});
    router_metrics_ended(api->metrics, ROUTER_NO_MODEL, reason);
}

/* False for the lists of models. As with other servers no quota counts them: clients ask for them
 * before each session, and to see whether a key is valid. */
static bool is_counted(const char *path)
{
    static const char models[] = "/v1/models";
    size_t length = strlen(models);
    return strncmp(path, models, length) != 0 || (path[length] && path[length] != '/');
}

bool openai_admit(void *context, struct http_exchange *exchange, struct http_reply *reply)
{
    struct openai_api *api = context;
    const char *path = http_exchange_path(exchange);
    const char *header = http_exchange_header(exchange, "authorization");
    struct access_grant *grant;
    struct access_refusal refusal = {.retry_after_s = 0};
    if (is_one_of(open_paths, sizeof open_paths / sizeof *open_paths, path))
        return true;
    const char *token = access_token(header ? header : "");
    enum reason reason = is_counted(path)
                             ? access_check(api->access, token, clock_now_us(), &grant, &refusal)
                             : access_know(api->access, token, &grant, &refusal);
    bool runs = is_one_of(running_paths, sizeof running_paths / sizeof *running_paths, path);
    bool kept = !reason && (!grant || attach_caller(exchange, grant, runs));
    if (!reason && (!runs || !kept))
        access_settle(grant, 0, clock_now_us()); /* done at once */
    if (!reason && !kept) {
        error_set(&refusal.why, STATUS_LIMIT, "out of memory");
        reason = REASON_INTERNAL;
    }
    if (reason)
        refuse(api, exchange, reason, &refusal, reply);
    return !reason;
}

struct access_grant *openai_take_grant(struct http_exchange *exchange)
{
    struct caller *caller = http_exchange_take_attached(exchange);
    struct access_grant *grant = caller ? caller->grant : NULL;
    free(caller);
    return grant;
}

uint64_t openai_owner(struct http_exchange *exchange)
{
    char peer[HTTP_PEER_BYTES];
    struct caller *caller = http_exchange_take_attached(exchange);
    http_exchange_peer(exchange, peer);
    uint64_t owner = constraint_owner_of(caller ? caller->tenant : "", peer);
    if (caller)
        http_exchange_attach(exchange, caller, drop_caller);
    return owner;
}

void openai_log(const struct openai_api *api, struct http_exchange *exchange,
                const struct access_line_brief *line)
{
    char peer[HTTP_PEER_BYTES] = "";
    struct access_line_brief whole = *line;
    struct caller *caller = exchange ? http_exchange_take_attached(exchange) : NULL;
    if (exchange)
        http_exchange_peer(exchange, peer);
    if (!whole.peer)
        whole.peer = peer;
    if (caller && !whole.key) {
        whole.key = caller->key;
        whole.tenant = caller->tenant;
        whole.stranger = false;
    }
    log_debug("openai", "req=%s status=%s peer=%s msg=\"answered at once\"", whole.name,
              whole.status, whole.peer);
    access_log_brief(api->access_log, &whole);
    if (caller)
        drop_caller(caller);
}

void openai_log_answer(const struct openai_api *api, struct http_exchange *exchange,
                       const char *method, const char *name, const char *model, enum reason reason)
{
    openai_log(api, exchange,
               &(struct access_line_brief){.status = reason ? reason_name(reason) : "ok",
                                           .method = method,
                                           .name = name,
                                           .model = model});
}
