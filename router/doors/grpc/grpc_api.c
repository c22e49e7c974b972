#include "router/doors/grpc/grpc_api.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "proto/baton.pb-c.h"
#include "proto/proto_text.h"
#include "proto/proto_unpack.h"
#include "router/dispatch/constraint_checks.h"
#include "router/doors/body_readers.h"
#include "router/doors/grpc/reply.h"
#include "router/doors/request_constraint.h"
#include "router/doors/tokenize.h"
#include "router/ops/access_log.h"
#include "router/ops/slo_books.h"
#include "router/request_id.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DETOKENIZED_BYTES (4u << 20)

struct grpc_call;

/* Reads the one message of a call, and answers it or submits the call. */
typedef void message_read(struct grpc_call *self, struct rpc_call *call, struct rpc_bytes bytes,
                          uint64_t arrival_us);

/* The readers and the handler `closed` may come to the end of a call in any order: the second one
 * takes it apart. */
enum { LARGE_READING = 1, LARGE_CLOSED = 2 };

/* A large message while it waits and is read beside the rpc threads. */
struct large {
    struct body_job job;
    struct rpc_call *rpc; /* a reference; NULL: there is no large message */
    message_read *read;
    void *copy; /* job.bytes of it; NULL: freed, for the answer comes next */
    uint64_t arrival_us;
    atomic_uint state;  /* LARGE_READING, LARGE_CLOSED */
    enum rpc_code code; /* the end of a call that was closed meanwhile, and its reason */
    char reason[64];
};

/* A call of any method, from its opening to its end. The context of its rpc_call. */
struct grpc_call {
    struct grpc_api *api;
    const char *method;         /* in its line of the access log; "": generating */
    bool refused;               /* when it opened: it has its status */
    bool once;                  /* GenerateOnce */
    bool submitted;             /* to the dispatcher, which writes its lines in the access log */
    size_t model;               /* index of served_models; ROUTER_NO_MODEL: not known */
    struct access_grant *grant; /* for generating, until `call` has it; NULL: none */
    struct call *call;          /* the dispatcher's; NULL: not admitted */
    struct large large;         /* its message, if that is read beside the rpc threads */
    char name[REQUEST_ID_BYTES];
    char tenant[API_KEY_NAME_BYTES], key[API_KEY_NAME_BYTES]; /* "": none */
    uint64_t owner; /* the tenant, or the client's address: it has their turns */
};

static const struct served_model *model_of(const struct grpc_call *self)
{
    return &self->api->models->items[self->model];
}

/* Names the call, before the first send or the end; the client is told as response header
 * x-request-id. `of_message`: an id that the message has, or NULL. */
static void name_call(struct grpc_call *self, struct rpc_call *call, const char *of_message)
{
    request_id_choose(of_message, rpc_call_metadata(call, "x-request-id"), self->name);
    /* Fails only for a call that is over. */
    (void)!rpc_call_add_metadata(call, "x-request-id", self->name);
}

/* Checks the key, and sets the grant. Two entries are refused, as over HTTP: a proxy in front and
 * this server might each take another one. */
static enum reason check_key(struct grpc_call *self, struct rpc_call *call, struct grpc_api *api,
                             bool uncounted, struct access_refusal *refusal)
{
    *refusal = (struct access_refusal){.retry_after_s = 0};
    if (rpc_call_metadata_count(call, "authorization") > 1) {
        error_set(&refusal->why, STATUS_INVALID,
                  "the call has more than one metadata entry 'authorization'");
        return REASON_MALFORMED;
    }
    const char *token = access_token(rpc_call_metadata(call, "authorization"));
    return uncounted ? access_know(api->access, token, &self->grant, refusal) /* a list of models */
                     : access_check(api->access, token, clock_now_us(), &self->grant, refusal);
}

/* Makes the call's context, and checks its key before anything of it is read. NULL: no memory, and
 * the call has ended. A refused call has ended, too. */
static struct grpc_call *open_call(struct rpc_call *call, struct grpc_api *api, const char *method)
{
    struct access_refusal refusal;
    struct grpc_call *self = calloc(1, sizeof *self);
    if (!self) {
        reply_status(call, REASON_INTERNAL, "out of memory");
        return NULL;
    }
    enum reason reason = check_key(self, call, api, !strcmp(method, "models"), &refusal);
    self->api = api;
    self->method = method;
    self->model = ROUTER_NO_MODEL;
    self->refused = reason != REASON_NONE;
    str_copy(self->tenant, sizeof self->tenant,
             reason ? refusal.tenant : access_tenant(self->grant));
    str_copy(self->key, sizeof self->key, reason ? refusal.key : access_key_id(self->grant));
    self->owner = constraint_owner_of(self->tenant, rpc_call_peer(call));
    if (reason) {
        if (!*method)
            router_metrics_ended(api->metrics, ROUTER_NO_MODEL, reason);
        name_call(self, call, NULL);
        reply_refusal(call, reason, refusal.why.text, refusal.retry_after_s);
    }
    rpc_call_set_context(call, self);
    return self;
}

static void settle_grant(struct grpc_call *self)
{
    access_settle(self->grant, 0, clock_now_us());
    self->grant = NULL;
}

/* Unpacks the message of a call into the arena. REASON_MALFORMED: err. */
static enum reason unpack(const ProtobufCMessageDescriptor *type, struct rpc_bytes bytes,
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

/* Writes the access log's line of a call that the dispatcher didn't get. */
static void log_closed(const struct grpc_call *self, const struct rpc_call *call,
                       const struct rpc_end *end)
{
    char name[REQUEST_ID_BYTES];
    /* A call that ended before its message came has no name yet. */
    request_id_choose(self->name, rpc_call_metadata(call, "x-request-id"), name);
    log_debug("grpc_api", "req=%s status=%s peer=%s msg=\"answered at once\"", name, status_of(end),
              rpc_call_peer(call));
    access_log_brief(self->api->access_log,
                     &(struct access_line_brief){
                         .status = status_of(end),
                         .name = name,
                         .method = self->method,
                         .model = self->model == ROUTER_NO_MODEL ? NULL : model_of(self)->name,
                         .tenant = self->tenant,
                         .key = self->key,
                         .peer = rpc_call_peer(call),
                         .stranger = self->refused && !*self->key});
}

/* Takes a call apart that is over, and that nothing reads any more. */
static void close_call(struct grpc_call *self, struct rpc_call *call, const struct rpc_end *end)
{
    if (!self->submitted)
        log_closed(self, call, end);
    settle_grant(self);
    if (self->call) {
        dispatch_close(self->api->dispatch, self->call, end->code);
        call_unref(self->call);
    }
    free(self);
}

static void on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct grpc_call *self = rpc_call_context(call);
    if (!self)
        return;
    struct large *large = &self->large;
    bool unread = large->rpc && body_readers_take_back(self->api->readers, &large->job);
    if (unread) {
        free(large->copy);
    } else if (large->rpc) {
        large->code = end->code;
        str_copy(large->reason, sizeof large->reason, end->reason);
        if (atomic_fetch_or(&large->state, LARGE_CLOSED) & LARGE_READING)
            return;
    }
    close_call(self, call, end);
    if (unread)
        rpc_call_unref(call);
}

/* --------------------------------------------------------------------------- messages of calls */

/* Frees the copy of a large message that is read. Before its answer is sent, or it is submitted: a
 * client that has its answer finds the room free. */
static void free_copy(struct grpc_call *self)
{
    if (!self->large.rpc)
        return;
    free(self->large.copy);
    self->large.copy = NULL;
    body_readers_give_room(self->api->readers, &self->large.job);
}

/* On a reader's thread. */
static void on_turn(struct body_job *job)
{
    struct large *large = (struct large *)((char *)job - offsetof(struct large, job));
    struct grpc_call *self =
        (struct grpc_call *)((char *)large - offsetof(struct grpc_call, large));
    struct rpc_call *call = large->rpc;
    large->read(self, call, (struct rpc_bytes){large->copy, job->bytes}, large->arrival_us);
    if (atomic_fetch_and(&large->state, ~(unsigned)LARGE_READING) & LARGE_CLOSED)
        close_call(self, call,
                   &(struct rpc_end){.code = large->code, .reason = large->reason, .message = ""});
    rpc_call_unref(call);
}

/* Gives a copy of the message to the readers. False: too much waits there. */
static bool read_beside(struct grpc_call *self, struct rpc_call *call, struct rpc_bytes bytes,
                        message_read *read, uint64_t arrival_us)
{
    struct large *large = &self->large;
    void *copy = malloc(bytes.size);
    if (!copy)
        return false;
    memcpy(copy, bytes.data, bytes.size);
    rpc_call_ref(call);
    *large = (struct large){.job = {.read = on_turn, .bytes = bytes.size},
                            .rpc = call,
                            .read = read,
                            .copy = copy,
                            .arrival_us = arrival_us,
                            .state = LARGE_READING};
    if (body_readers_give(self->api->readers, &large->job, self->owner))
        return true;
    free(copy);
    large->rpc = NULL;
    rpc_call_unref(call);
    return false;
}

/* Reads the message: on this thread, or, if it is large, beside it in its tenant's turn. */
static void take_message(struct rpc_call *call, struct rpc_bytes bytes, message_read *read)
{
    struct grpc_call *self = rpc_call_context(call);
    uint64_t arrival_us = clock_now_us();
    if (!self || self->refused)
        return;
    if (!body_readers_wanted(self->api->readers, bytes.size)) {
        read(self, call, bytes, arrival_us);
    } else if (!read_beside(self, call, bytes, read, arrival_us)) {
        name_call(self, call, NULL);
        if (!*self->method)
            router_metrics_ended(self->api->metrics, ROUTER_NO_MODEL, REASON_OVERLOADED);
        slo_books_refused(self->api->metrics->slo, rpc_call_metadata(call, REQUEST_SLO_CLASS),
                          REASON_OVERLOADED, arrival_us);
        settle_grant(self);
        reply_status(call, REASON_OVERLOADED,
                     "too many large requests wait to be read: try again later");
    }
}

/* ---------------------------------------------------------------------------------- generating */

/* One message of a client while it is read. */
struct reading {
    struct arena arena;
    struct token_ids tokens; /* made of a text */
    const uint32_t *ids;     /* the prompt's, wherever they lie */
    size_t id_count;
    struct constraint_source *constraint;
    struct error err;
    uint32_t retry_after_s; /* when it is refused; 0: waiting doesn't help */
    const char *slo_class;  /* for its refusal's count; NULL: the default class */
};

static void on_generate_open(struct rpc_call *call, void *service)
{
    (void)open_call(call, service, "");
}

static void on_generate_once_open(struct rpc_call *call, void *service)
{
    struct grpc_call *self = open_call(call, service, "");
    if (self)
        self->once = true;
}

/* Finds the model that the message asks for, and reserves places of it before more is read. */
static enum reason reserve_places(struct grpc_call *self, const Baton__V1__GenerateRequest *message,
                                  struct error *err)
{
    struct grpc_api *api = self->api;
    size_t model;
    enum reason reason = served_models_find(api->models, message->model, &model, err);
    if (reason)
        return reason;
    self->model = model;
    self->call->tenant = self->owner;
    reason = dispatch_reserve(api->dispatch, self->call, model, request_choices(message));
    if (reason)
        served_models_say_full(api->models, model, err);
    return reason;
}

/* Counts the choices against the key's limit, before more is read. */
static enum reason run_choices(const struct grpc_call *self,
                               const Baton__V1__GenerateRequest *message, struct reading *reading)
{
    struct access_refusal refusal;
    enum reason reason = access_run(self->grant, request_choices(message), &refusal);
    if (reason) {
        reading->err = refusal.why;
        reading->retry_after_s = refusal.retry_after_s;
    }
    return reason;
}

/* Sets the prompt's tokens: those of the message, or those of its text. */
static enum reason read_prompt(const struct served_model *model,
                               const struct request_params *params, struct reading *reading)
{
    reading->ids = params->token_ids;
    reading->id_count = params->token_count;
    if (!params->text.bytes)
        return REASON_NONE;
    reading->tokens.limit_count = (size_t)model->limits.context + 1;
    enum reason reason = prompt_tokens_make(model, params->text, params->add_special_tokens,
                                            &reading->tokens, &reading->err);
    reading->ids = reading->tokens.data;
    reading->id_count = reading->tokens.count;
    return reason;
}

/* Reads and checks all of the message, except against the key's quota. */
static enum reason read_fields(const struct grpc_call *self,
                               const Baton__V1__GenerateRequest *message,
                               struct request_params *params, struct reading *reading)
{
    const struct request_model *limits = &model_of(self)->limits;
    /* Without an answer the constraint is never compiled: its remembered verdict doesn't matter. */
    struct constraint_checks *checks = request_prompt_only(message) ? NULL : self->api->checks;
    enum reason reason =
        request_parse(message, &request_fields_grpc, limits, params, &reading->err);
    if (!reason)
        reason = request_constraint_read(checks, message->constraint, limits, &reading->constraint,
                                         &reading->err);
    if (!reason)
        reason = read_prompt(model_of(self), params, reading);
    if (!reason)
        reason = request_fit(limits, reading->id_count, params, &reading->err);
    if (!reason && self->once)
        reason = request_fit_once(reading->id_count, params, &reading->err);
    return reason;
}

static enum reason reserve_tokens(const struct grpc_call *self, const struct request_params *params,
                                  uint64_t arrival_us, struct reading *reading)
{
    struct access_refusal refusal;
    const struct request_model *limits = &model_of(self)->limits;
    uint64_t tokens = request_most_tokens(limits, reading->id_count, params);
    const struct slo_class *class =
        params->slo_class == SLO_NONE ? NULL : &limits->slo->items[params->slo_class];
    enum reason reason = access_use_class(self->grant, class, &refusal);
    if (!reason)
        reason = access_reserve(self->grant, tokens, params->priority, arrival_us, &refusal);
    if (reason) {
        reading->err = refusal.why;
        reading->retry_after_s = refusal.retry_after_s;
    }
    return reason;
}

/* Fills the dispatcher's call, which has the grant then. False: no memory. */
static bool fill_call(struct grpc_call *self, struct rpc_call *call,
                      const struct request_params *params, uint64_t arrival_us,
                      const struct reading *reading)
{
    uint64_t left_us = rpc_call_deadline_left_us(call);
    if (left_us == UINT64_MAX && self->api->default_deadline_us)
        left_us = self->api->default_deadline_us;
    const struct call_source source = {
        .params = params,
        .tokenizer = model_of(self)->tokenizer,
        .prompt = reading->ids,
        .prompt_count = reading->id_count,
        .constraint = reading->constraint,
        .grant = self->grant,
        .model_name = model_of(self)->name,
        .peer = rpc_call_peer(call),
        .traceparent = rpc_call_metadata(call, "traceparent"),
        .once = self->once,
        .arrival_us = arrival_us,
        .deadline_us = left_us > UINT64_MAX - arrival_us ? UINT64_MAX : arrival_us + left_us};
    if (!call_fill(self->call, &source))
        return false;
    self->grant = NULL;
    return true;
}

/* Makes a valid request of the message, or returns the reason why there is none. */
static enum reason read_request(struct grpc_call *self, struct rpc_call *call,
                                struct rpc_bytes bytes, uint64_t arrival_us,
                                struct reading *reading)
{
    struct request_params params;
    ProtobufCMessage *message = NULL;
    enum reason reason = unpack(&baton__v1__generate_request__descriptor, bytes, &reading->arena,
                                &message, &reading->err);
    Baton__V1__GenerateRequest *request = (Baton__V1__GenerateRequest *)message;
    name_call(self, call, reason ? NULL : request->request_id);
    if (!reason)
        reason =
            request_take_class(request, rpc_call_metadata(call, REQUEST_SLO_CLASS),
                               rpc_call_metadata_count(call, REQUEST_SLO_CLASS), &reading->err);
    if (!reason)
        reading->slo_class = request->slo_class;
    if (!reason)
        reason = run_choices(self, request, reading);
    if (!reason)
        reason = reserve_places(self, request, &reading->err);
    if (reason == REASON_OVERLOADED)
        reading->retry_after_s = dispatch_retry_after_s(self->api->dispatch, self->model);
    if (!reason)
        reason = read_fields(self, request, &params, reading);
    if (!reason)
        reason = reserve_tokens(self, &params, arrival_us, reading);
    if (reason)
        return reason;
    str_copy(params.id, sizeof params.id, self->name);
    if (fill_call(self, call, &params, arrival_us, reading))
        return REASON_NONE;
    error_set(&reading->err, STATUS_LIMIT, "out of memory");
    return REASON_INTERNAL;
}

static void generate(struct grpc_call *self, struct rpc_call *call, struct rpc_bytes bytes,
                     uint64_t arrival_us)
{
    struct grpc_api *api = self->api;
    struct reading reading = {.err = {""}, .slo_class = rpc_call_metadata(call, REQUEST_SLO_CLASS)};
    arena_init(&reading.arena, proto_arena_bytes(bytes.size));
    token_ids_init(&reading.tokens, 0); /* read_prompt sets the limit */
    /* Before the work of reading: an overloaded router must refuse cheaply. */
    enum reason reason = dispatch_admit(api->dispatch, reply_client(call), &self->call);
    if (reason) {
        name_call(self, call, NULL);
        error_set(&reading.err, STATUS_LIMIT, "%s", reason_when(reason));
    } else {
        reason = read_request(self, call, bytes, arrival_us, &reading);
    }
    free_copy(self);
    if (!reason) {
        self->submitted = true;
        dispatch_submit(api->dispatch, &self->call, 1);
    } else {
        router_metrics_ended(api->metrics, self->model, reason);
        slo_books_refused(api->metrics->slo, reading.slo_class, reason, arrival_us);
        settle_grant(self);
        if (self->call)
            dispatch_give_back(api->dispatch, self->call);
        reply_refusal(call, reason, reading.err.text, reading.retry_after_s);
    }
    arena_deinit(&reading.arena);
    token_ids_deinit(&reading.tokens);
    free(reading.constraint);
}

static void on_generate(struct rpc_call *call, struct rpc_bytes bytes)
{
    take_message(call, bytes, generate);
}

/* ---------------------------------------------------------------------- calls answered at once */

static void open_simple(struct rpc_call *call, void *service, const char *method)
{
    struct grpc_call *self = open_call(call, service, method);
    if (self)
        settle_grant(self);
}

static void on_tokenize_open(struct rpc_call *call, void *service)
{
    open_simple(call, service, "tokenize");
}

static void on_detokenize_open(struct rpc_call *call, void *service)
{
    open_simple(call, service, "detokenize");
}

static void on_list_models_open(struct rpc_call *call, void *service)
{
    open_simple(call, service, "models");
}

/* Ends a call with its one message, or with the reason why there is none. */
static void answer(struct grpc_call *self, struct rpc_call *call, enum reason reason,
                   const ProtobufCMessage *message, const char *sentence)
{
    free_copy(self);
    name_call(self, call, NULL);
    if (reason)
        reply_status(call, reason, sentence);
    else
        reply_answer(call, message, self->api->client_buffer_bytes);
}

static enum reason tokenize(struct grpc_call *self, const Baton__V1__TokenizeRequest *request,
                            struct token_ids *ids, struct error *err)
{
    size_t model;
    bool add_special = !request->add_special_tokens_presence_case || request->add_special_tokens;
    enum reason reason = served_models_find(self->api->models, request->model, &model, err);
    if (reason)
        return reason;
    self->model = model;
    ids->limit_count = tokenize_most_tokens(model_of(self));
    return tokenize_text(model_of(self), proto_text(request->text), add_special, ids, err);
}

static void read_tokenize(struct grpc_call *self, struct rpc_call *call, struct rpc_bytes bytes,
                          uint64_t arrival_us)
{
    (void)arrival_us;
    struct arena arena;
    struct token_ids ids;
    struct error err = {""};
    ProtobufCMessage *message;
    Baton__V1__TokenizeResponse response = BATON__V1__TOKENIZE_RESPONSE__INIT;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    token_ids_init(&ids, 0); /* tokenize sets the limit */
    enum reason reason =
        unpack(&baton__v1__tokenize_request__descriptor, bytes, &arena, &message, &err);
    if (!reason)
        reason = tokenize(self, (const Baton__V1__TokenizeRequest *)message, &ids, &err);
    response.n_ids = ids.count;
    response.ids = ids.data;
    answer(self, call, reason, &response.base, err.text);
    token_ids_deinit(&ids);
    arena_deinit(&arena);
}

static void on_tokenize(struct rpc_call *call, struct rpc_bytes bytes)
{
    take_message(call, bytes, read_tokenize);
}

static enum reason detokenize(struct grpc_call *self, const Baton__V1__DetokenizeRequest *request,
                              struct str *text, struct error *err)
{
    size_t model;
    bool skip_special = request->skip_special_tokens_presence_case && request->skip_special_tokens;
    enum reason reason = served_models_find(self->api->models, request->model, &model, err);
    if (reason)
        return reason;
    self->model = model;
    return detokenize_ids(model_of(self), request->ids, request->n_ids, skip_special, text, err);
}

static void read_detokenize(struct grpc_call *self, struct rpc_call *call, struct rpc_bytes bytes,
                            uint64_t arrival_us)
{
    (void)arrival_us;
    struct arena arena;
    struct str text;
    struct error err = {""};
    ProtobufCMessage *message;
    Baton__V1__DetokenizeResponse response = BATON__V1__DETOKENIZE_RESPONSE__INIT;
    arena_init(&arena, proto_arena_bytes(bytes.size));
    str_init(&text, MAX_DETOKENIZED_BYTES);
    enum reason reason =
        unpack(&baton__v1__detokenize_request__descriptor, bytes, &arena, &message, &err);
    if (!reason)
        reason = detokenize(self, (const Baton__V1__DetokenizeRequest *)message, &text, &err);
    response.text = proto_bytes((struct text){text.data, text.length});
    answer(self, call, reason, &response.base, err.text);
    str_deinit(&text);
    arena_deinit(&arena);
}

static void on_detokenize(struct rpc_call *call, struct rpc_bytes bytes)
{
    take_message(call, bytes, read_detokenize);
}

static void on_list_models(struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)bytes; /* the message has no fields in this version */
    struct grpc_call *self = rpc_call_context(call);
    if (!self || self->refused)
        return;
    const struct grpc_api *api = self->api;
    struct model_workers workers[SERVED_MODELS_MAX];
    Baton__V1__Model models[SERVED_MODELS_MAX], *list[SERVED_MODELS_MAX];
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
    answer(self, call, REASON_NONE, &response.base, NULL);
}

void grpc_api_methods(struct grpc_api *api, struct rpc_method *methods)
{
    const struct rpc_method table[GRPC_API_METHODS] = {
        {.path = "/" GRPC_API_SERVICE "/Generate",
         .handlers = {on_generate_open, on_generate, NULL, on_closed}},
        {.path = "/" GRPC_API_SERVICE "/GenerateOnce",
         .handlers = {on_generate_once_open, on_generate, NULL, on_closed}},
        {.path = "/" GRPC_API_SERVICE "/Tokenize",
         .handlers = {on_tokenize_open, on_tokenize, NULL, on_closed}},
        {.path = "/" GRPC_API_SERVICE "/Detokenize",
         .handlers = {on_detokenize_open, on_detokenize, NULL, on_closed}},
        {.path = "/" GRPC_API_SERVICE "/ListModels",
         .handlers = {on_list_models_open, on_list_models, NULL, on_closed}},
    };
    memcpy(methods, table, sizeof table);
    for (size_t i = 0; i < GRPC_API_METHODS; i++)
        methods[i].service = api;
}
