#include "router/doors/grpc/registry_service.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/membership/worker_message.h"
#include "proto/proto_unpack.h"
#include "router/doors/grpc/reply.h"

#include <inttypes.h>
#include <string.h>

static void on_open(struct rpc_call *call, void *service)
{
    rpc_call_set_context(call, service);
}

static void on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    (void)call;
    (void)end;
}

/* True also where one hash is 0: the folder of a worker may have no tokenizer. */
static bool same_file(uint64_t hash, uint64_t other)
{
    return !hash || !other || hash == other;
}

static enum reason no_folder(const struct served_models *models, const struct worker_info *info,
                             struct error *err)
{
    char names[300];
    served_models_names(models, names, sizeof names);
    error_set(
        err, STATUS_INVALID,
        "worker %s serves model %s, for which this router has no folder: it serves %s; start "
        "the router with --model NAME=DIR for it too, or the worker with another --model-name",
        info->name, info->model, names);
    return REASON_WRONG_MODEL;
}

/* Checks that worker and router have the same files of the model: the router makes ids of text, and
 * text of the ids that the worker computes. */
static enum reason check_model(const struct served_models *models, const struct worker_info *info,
                               struct error *err)
{
    size_t index = served_models_index(models, info->model);
    if (index == models->count)
        return no_folder(models, info, err);
    const struct served_model *model = &models->items[index];
    if (info->vocab == model->limits.vocab && same_file(info->config_hash, model->config_hash) &&
        same_file(info->tokenizer_hash, model->tokenizer_hash))
        return REASON_NONE;
    error_set(err, STATUS_INVALID,
              "worker %s serves model %s (%u ids, config.json %016" PRIx64
              ", tokenizer.json %016" PRIx64 "), but this router serves %s (%u ids, %016" PRIx64
              ", %016" PRIx64 "): start both with the same --model and --model-name",
              info->name, info->model, info->vocab, info->config_hash, info->tokenizer_hash,
              model->name, model->limits.vocab, model->config_hash, model->tokenizer_hash);
    return REASON_WRONG_MODEL;
}

static enum reason join(const struct registry_service *service, const struct worker_info *info,
                        bool *held, struct error *err)
{
    enum reason reason = check_model(service->models, info, err);
    if (reason)
        return reason;
    switch (membership_join(service->membership, info, clock_now_us(), err)) {
    case STATUS_OK: break;
    case STATUS_LIMIT: return REASON_TOO_MANY_WORKERS;
    default: return REASON_NAME_IN_USE;
    }
    *held = membership_held(service->membership, info->name, info->incarnation);
    return REASON_NONE;
}

static enum reason take_in(const struct registry_service *service,
                           const Baton__Worker__V1__RegisterRequest *request, bool *held,
                           struct error *err)
{
    struct worker_info info;
    if (!request->info) {
        error_set(err, STATUS_INVALID, "the registration has no info");
        return REASON_MALFORMED;
    }
    enum status status = worker_message_read(request->info, &info, err);
    if (status == STATUS_UNSUPPORTED && *info.name) /* the status page names it */
        status_board_registered(service->board, &info, REASON_WRONG_VERSION, err->text,
                                clock_now_us());
    if (status != STATUS_OK)
        return status == STATUS_UNSUPPORTED ? REASON_WRONG_VERSION : REASON_MALFORMED;
    if (request->leaving) {
        membership_leave(service->membership, info.name, info.incarnation);
        return REASON_NONE;
    }
    enum reason reason = join(service, &info, held, err);
    status_board_registered(service->board, &info, reason, reason ? err->text : "", clock_now_us());
    return reason;
}

static void on_register(struct rpc_call *call, struct rpc_bytes bytes)
{
    const struct registry_service *service = rpc_call_context(call);
    struct arena arena;
    struct error err;
    ProtobufCMessage *message;
    Baton__Worker__V1__RegisterResponse response = BATON__WORKER__V1__REGISTER_RESPONSE__INIT;
    response.router_incarnation = service->incarnation;
    bool held = false;
    enum reason reason = REASON_MALFORMED;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    if (proto_unpack(&baton__worker__v1__register_request__descriptor, bytes.data, bytes.size,
                     &arena, &message, &err) == STATUS_OK)
        reason = take_in(service, (const Baton__Worker__V1__RegisterRequest *)message, &held, &err);
    response.session_up = held;
    if (reason) {
        char quoted[600];
        log_warn_limited("registry", "peer=%s reason=%s why=%s msg=\"registration refused\"",
                         rpc_call_peer(call), reason_name(reason),
                         log_quote(err.text, quoted, sizeof quoted));
        reply_status(call, reason, err.text);
    } else {
        reply_answer(call, &response.base, SIZE_MAX); /* a few bytes */
    }
    arena_deinit(&arena);
}

struct rpc_method registry_service_method(struct registry_service *service)
{
    return (struct rpc_method){.path = "/" REGISTRY_SERVICE "/RegisterWorker",
                               .handlers = {on_open, on_register, NULL, on_closed},
                               .service = service};
}
