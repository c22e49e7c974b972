#include "router/doors/grpc/grpc_api.h"

#include "common/base/clock.h"
#include "common/base/str.h"
#include "proto/baton.pb-c.h"
#include "proto/proto_unpack.h"
#include "router/doors/grpc/grpc_call.h"
#include "router/doors/grpc/grpc_tokens.h"
#include "router/doors/grpc/reply.h"
#include "router/doors/prompt_tokens.h"
#include "router/doors/request_constraint.h"

#include <stdlib.h>
#include <string.h>

/* One Generate or GenerateOnce. */
struct client_call {
    struct client_gone gone; /* first */
    struct grpc_call call;
    bool once, admitted, model_known;
    size_t model;               /* index of served_models, where it is known */
    struct access_grant *grant; /* until a request has it */
};

/* What an rpc thread makes of one message, and frees when it has been handled. */
struct reading {
    struct arena arena;
    struct token_ids prompt; /* of a text */
    const uint32_t *ids;     /* the prompt's, wherever they lie */
    size_t id_count;
    struct constraint_source *constraint;
    struct error err;
    uint32_t retry_after_s; /* of a refusal; 0: it doesn't help */
};

static void reading_init(struct reading *reading, size_t bytes)
{
    reading->err.text[0] = 0;
    reading->retry_after_s = 0;
    reading->constraint = NULL;
    arena_init(&reading->arena, proto_arena_bytes(bytes));
    token_ids_init(&reading->prompt, 0); /* the model says how many */
}

static void reading_deinit(struct reading *reading)
{
    arena_deinit(&reading->arena);
    token_ids_deinit(&reading->prompt);
    free(reading->constraint);
}

/* ------------------------------------------------------------------------------------
 * generating */

static void client_call_free(struct client_gone *gone)
{
    free(gone);
}

static void generate_open(struct rpc_call *call, void *service, bool once)
{
    struct grpc_api *api = service;
    struct client_call *client = calloc(1, sizeof *client);
    if (!client) {
        reply_status(call, REASON_INTERNAL, "out of memory");
        return;
    }
    client->gone.free = client_call_free;
    client->once = once;
    (void)grpc_call_open(&client->call, api, "", call, &client->grant);
    rpc_call_set_context(call, client);
}

static void on_generate_open(struct rpc_call *call, void *service)
{
    generate_open(call, service, false);
}

static void on_generate_once_open(struct rpc_call *call, void *service)
{
    generate_open(call, service, true);
}

static uint64_t deadline_of(const struct grpc_api *api, const struct rpc_call *call,
                            uint64_t now_us)
{
    uint64_t left_us = rpc_call_deadline_left_us(call);
    if (left_us == UINT64_MAX && api->default_deadline_us)
        left_us = api->default_deadline_us;
    return left_us > UINT64_MAX - now_us ? UINT64_MAX : now_us + left_us;
}

/* Which model the message asks for, and whether there is room for one more request of it: before
 * the work of reading on. */
static enum reason admit_to_model(struct client_call *client,
                                  const Baton__V1__GenerateRequest *message,
                                  struct reading *reading)
{
    struct grpc_api *api = client->call.api;
    enum reason reason =
        served_models_find(api->models, message->model, &client->model, &reading->err);
    if (reason)
        return reason;
    client->model_known = true;
    client->call.model = api->models->items[client->model].name;
    reason =
        dispatch_admit_to(api->dispatch, &client->gone, client->model, request_choices(message));
    if (reason)
        served_models_say_full(api->models, client->model, &reading->err);
    return reason;
}

/* The prompt's tokens: the message's own, or what its text becomes. */
static enum reason read_prompt(const struct served_model *model,
                               const struct request_params *params, struct reading *reading)
{
    reading->ids = params->token_ids;
    reading->id_count = params->token_count;
    if (!params->text)
        return REASON_NONE;
    reading->prompt.limit_count = (size_t)model->limits.context + 1;
    enum reason reason = prompt_tokens_make(model, params->text, params->add_special_tokens,
                                            &reading->prompt, &reading->err);
    reading->ids = reading->prompt.data;
    reading->id_count = reading->prompt.count;
    return reason;
}

/* Everything in the message that can be looked at without the key's quota. */
static enum reason read_fields(const struct client_call *client,
                               const Baton__V1__GenerateRequest *asked,
                               struct request_params *params, struct reading *reading)
{
    const struct served_model *model = &client->call.api->models->items[client->model];
    /* Of a prompt alone it is never compiled, so what others found of it is nothing to it. */
    struct constraint_checks *checks = request_prompt_only(asked) ? NULL : client->call.api->checks;
    enum reason reason =
        request_parse(asked, &request_fields_grpc, &model->limits, params, &reading->err);
    if (!reason)
        reason = request_constraint_read(checks, asked->constraint, &model->limits,
                                         &reading->constraint, &reading->err);
    if (!reason)
        reason = read_prompt(model, params, reading);
    if (!reason)
        reason = request_fit(&model->limits, reading->id_count, params, &reading->err);
    if (!reason && client->once)
        reason = request_fit_once(reading->id_count, params, &reading->err);
    return reason;
}

static enum reason reserve(const struct client_call *client, const struct request_params *params,
                           uint64_t arrival_us, struct reading *reading)
{
    const struct served_model *model = &client->call.api->models->items[client->model];
    struct access_refusal refusal;
    uint64_t tokens = request_most_tokens(&model->limits, reading->id_count, params);
    enum reason reason =
        access_reserve(client->grant, tokens, params->priority, arrival_us, &refusal);
    if (reason) {
        reading->err = refusal.why;
        reading->retry_after_s = refusal.retry_after_s;
    }
    return reason;
}

/* The grant is the request's then. NULL: no memory. */
static struct request *make_request(struct client_call *client, struct rpc_call *call,
                                    const struct request_params *params, uint64_t arrival_us,
                                    const struct reading *reading)
{
    const struct served_model *model = &client->call.api->models->items[client->model];
    struct request_source source = {.params = params,
                                    .model = client->model,
                                    .tokenizer = model->tokenizer,
                                    .prompt = reading->ids,
                                    .prompt_count = reading->id_count,
                                    .constraint = reading->constraint,
                                    .client = reply_client(call),
                                    .model_name = model->name,
                                    .peer = rpc_call_peer(call),
                                    .traceparent = rpc_call_metadata(call, "traceparent"),
                                    .grant = client->grant,
                                    .call = &client->gone,
                                    .once = client->once,
                                    .arrival_us = arrival_us,
                                    .deadline_us = deadline_of(client->call.api, call, arrival_us)};
    struct request *request = request_create(&source);
    if (request)
        client->grant = NULL;
    return request;
}

/* A valid request, or the reason why there is none. */
static enum reason read_request(struct client_call *client, struct rpc_call *call,
                                struct rpc_bytes bytes, uint64_t arrival_us,
                                struct reading *reading, struct request **request)
{
    struct request_params params;
    ProtobufCMessage *message = NULL;
    enum reason reason = grpc_call_read(&baton__v1__generate_request__descriptor, bytes,
                                        &reading->arena, &message, &reading->err);
    const Baton__V1__GenerateRequest *asked = (const Baton__V1__GenerateRequest *)message;
    grpc_call_name(&client->call, call, reason ? NULL : asked->request_id);
    if (!reason)
        reason = admit_to_model(client, asked, reading);
    if (!reason)
        reason = read_fields(client, asked, &params, reading);
    if (!reason)
        reason = reserve(client, &params, arrival_us, reading);
    if (reason)
        return reason;
    str_copy(params.id, sizeof params.id, client->call.name);
    *request = make_request(client, call, &params, arrival_us, reading);
    if (*request)
        return REASON_NONE;
    error_set(&reading->err, STATUS_LIMIT, "out of memory");
    return REASON_INTERNAL;
}

/* Its message isn't looked at. */
static void refuse_unread(struct client_call *client, struct rpc_call *call, enum reason reason,
                          struct error *err)
{
    grpc_call_name(&client->call, call, NULL);
    error_set(err, STATUS_LIMIT, "%s", reason_when(reason));
}

static void on_generate(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct client_call *client = rpc_call_context(call);
    if (!client || client->call.refused)
        return;
    struct grpc_api *api = client->call.api;
    uint64_t arrival_us = clock_now_us();
    struct reading reading;
    struct request *request = NULL;
    reading_init(&reading, bytes.size);
    /* Before the work of reading: an overloaded router must refuse cheaply. */
    enum reason reason = dispatch_admit(api->dispatch);
    client->admitted = !reason;
    if (reason)
        refuse_unread(client, call, reason, &reading.err);
    else
        reason = read_request(client, call, bytes, arrival_us, &reading, &request);
    if (!reason) {
        client->call.handed_on = true;
        dispatch_submit(api->dispatch, request);
    } else {
        router_metrics_ended(api->metrics, client->model_known ? client->model : ROUTER_NO_MODEL,
                             reason);
        access_settle(client->grant, 0, clock_now_us());
        client->grant = NULL;
        dispatch_give_back(api->dispatch, &client->gone);
        reply_refusal(call, reason, reading.err.text, reading.retry_after_s);
    }
    reading_deinit(&reading);
}

static void on_generate_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct client_call *client = rpc_call_context(call);
    if (!client)
        return;
    grpc_call_closed(&client->call, call, end);
    client->gone.code = end->code;
    access_settle(client->grant, 0, clock_now_us());
    if (client->admitted)
        dispatch_client_gone(client->call.api->dispatch, &client->gone);
    else
        free(client);
}

/* -------------------------------------------------------------------------- answered at once */

static void simple_open(struct rpc_call *call, void *service, const char *method)
{
    struct access_grant *grant = NULL;
    struct grpc_call *self = calloc(1, sizeof *self);
    if (!self) {
        reply_status(call, REASON_INTERNAL, "out of memory");
        return;
    }
    if (!grpc_call_open(self, service, method, call, &grant))
        access_settle(grant, 0, clock_now_us()); /* done at once */
    rpc_call_set_context(call, self);
}

static void on_tokenize_open(struct rpc_call *call, void *service)
{
    simple_open(call, service, "tokenize");
}

static void on_detokenize_open(struct rpc_call *call, void *service)
{
    simple_open(call, service, "detokenize");
}

static void on_list_models_open(struct rpc_call *call, void *service)
{
    simple_open(call, service, GRPC_CALL_MODELS);
}

static void on_simple_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct grpc_call *self = rpc_call_context(call);
    if (self)
        grpc_call_closed(self, call, end);
    free(self);
}

static void on_list_models(struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)bytes; /* an empty message; whatever else it holds is of a later version */
    struct grpc_call *self = rpc_call_context(call);
    if (!self || self->refused)
        return;
    const struct grpc_api *api = self->api;
    struct model_workers workers[SERVED_MODELS_MAX];
    Baton__V1__Model models[SERVED_MODELS_MAX], *list[SERVED_MODELS_MAX];
    grpc_call_name(self, call, NULL);
    status_board_count_workers(api->board, workers);
    for (size_t i = 0; i < api->models->count; i++) {
        const struct served_model *model = &api->models->items[i];
        baton__v1__model__init(&models[i]);
        models[i].name = (char *)model->name;
        models[i].context = status_board_context(api->board, api->models, i);
        models[i].vocab = model->limits.vocab;
        models[i].has_tokenizer = model->limits.has_tokenizer;
        models[i].prefill_workers = workers[i].prefill;
        models[i].decode_workers = workers[i].decode;
        list[i] = &models[i];
    }
    Baton__V1__ListModelsResponse response = BATON__V1__LIST_MODELS_RESPONSE__INIT;
    response.n_models = api->models->count;
    response.models = list;
    reply_answer(call, &response.base, api->client_buffer_bytes);
}

void grpc_api_methods(struct grpc_api *api, struct rpc_method *methods)
{
    const struct rpc_method table[GRPC_API_METHODS] = {
        {.path = "/" GRPC_API_SERVICE "/Generate",
         .handlers = {on_generate_open, on_generate, NULL, on_generate_closed}},
        {.path = "/" GRPC_API_SERVICE "/GenerateOnce",
         .handlers = {on_generate_once_open, on_generate, NULL, on_generate_closed}},
        {.path = "/" GRPC_API_SERVICE "/Tokenize",
         .handlers = {on_tokenize_open, grpc_tokens_tokenize, NULL, on_simple_closed}},
        {.path = "/" GRPC_API_SERVICE "/Detokenize",
         .handlers = {on_detokenize_open, grpc_tokens_detokenize, NULL, on_simple_closed}},
        {.path = "/" GRPC_API_SERVICE "/ListModels",
         .handlers = {on_list_models_open, on_list_models, NULL, on_simple_closed}},
    };
    memcpy(methods, table, sizeof table);
    for (size_t i = 0; i < GRPC_API_METHODS; i++)
        methods[i].service = api;
}
