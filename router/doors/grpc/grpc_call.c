#include "router/doors/grpc/grpc_call.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "router/doors/grpc/reply.h"
#include "router/ops/access_log.h"

#include <string.h>

void grpc_call_name(struct grpc_call *self, struct rpc_call *call, const char *of_message)
{
    request_id_choose(of_message, rpc_call_metadata(call, "x-request-id"), self->name);
    /* Fails only for a call that is over. */
    (void)!rpc_call_add_metadata(call, "x-request-id", self->name);
}

enum reason grpc_call_open(struct grpc_call *self, struct grpc_api *api, const char *method,
                           struct rpc_call *call, struct access_grant **grant)
{
    struct access_refusal refusal;
    const char *token = access_token(rpc_call_metadata(call, "authorization"));
    enum reason reason = strcmp(method, GRPC_CALL_MODELS)
                             ? access_check(api->access, token, clock_now_us(), grant, &refusal)
                             : access_know(api->access, token, grant, &refusal);
    *self = (struct grpc_call){.api = api, .method = method, .refused = reason != REASON_NONE};
    str_copy(self->tenant, sizeof self->tenant, reason ? refusal.tenant : access_tenant(*grant));
    str_copy(self->key, sizeof self->key, reason ? refusal.key : access_key_id(*grant));
    if (reason) {
        if (!*method)
            router_metrics_ended(api->metrics, ROUTER_NO_MODEL, reason);
        grpc_call_name(self, call, NULL);
        reply_refusal(call, reason, refusal.why.text, refusal.retry_after_s);
    }
    return reason;
}

enum reason grpc_call_read(const ProtobufCMessageDescriptor *type, struct rpc_bytes bytes,
                           struct arena *arena, ProtobufCMessage **message, struct error *err)
{
    enum status status = proto_unpack(type, bytes.data, bytes.size, arena, message, err);
    return status == STATUS_OK ? REASON_NONE : REASON_MALFORMED;
}

static const char *status_of(const struct rpc_end *end)
{
    if (*end->reason)
        return end->reason;
    switch (end->code) {
    case RPC_OK: return "ok";
    case RPC_DEADLINE_EXCEEDED: return reason_name(REASON_DEADLINE);
    default: return reason_name(REASON_CANCELLED);
    }
}

void grpc_call_closed(const struct grpc_call *self, const struct rpc_call *call,
                      const struct rpc_end *end)
{
    if (self->handed_on)
        return;
    char name[REQUEST_ID_BYTES];
    /* One that ended before its message came has none yet. */
    request_id_choose(self->name, rpc_call_metadata(call, "x-request-id"), name);
    log_debug("grpc_api", "req=%s status=%s peer=%s msg=\"answered at once\"", name, status_of(end),
              rpc_call_peer(call));
    access_log_brief(self->api->access_log,
                     &(struct access_line_brief){.status = status_of(end),
                                                 .name = name,
                                                 .method = self->method,
                                                 .model = self->model,
                                                 .tenant = self->tenant,
                                                 .key = self->key,
                                                 .peer = rpc_call_peer(call)});
}
