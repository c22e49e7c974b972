#include "router/doors/openai/openai_submit.h"

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/str.h"
#include "router/dispatch/constraint_checks.h"
#include "router/doors/openai/openai_admit.h"
#include "router/doors/openai/openai_call.h"
#include "router/doors/openai/openai_chat.h"
#include "router/doors/openai/openai_reply.h"
#include "router/doors/request_constraint.h"
#include "router/doors/tokenize.h"
#include "router/ops/router_metrics.h"
#include "router/ops/slo_books.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* A body on its way in. */
struct submission {
    struct openai_api *api;
    struct http_exchange *exchange;
    struct openai_request request;
    size_t model; /* index of served_models; ROUTER_NO_MODEL: not known yet */
    struct openai_call *call;
    struct constraint_source *constraint; /* NULL: none */
    size_t made;                          /* calls that are filled */
    struct access_grant *grant;           /* until the calls have their shares of it */
    enum priority priority;
    uint64_t most_tokens; /* all calls together may use so many */
    uint32_t retry_after_s;
    uint64_t arrival_us, deadline_us;
    uint32_t slo_class;         /* index of the model's; SLO_NONE: none */
    const char *slo_class_name; /* for a refusal's count; NULL: the default class */
    char name[REQUEST_ID_BYTES];
    struct openai_refusal refusal;
};

void openai_request_id(struct http_exchange *exchange, char name[REQUEST_ID_BYTES])
{
    request_id_choose(NULL, http_exchange_header(exchange, "x-request-id"), name);
}

bool openai_body_plain(struct http_exchange *exchange, struct openai_refusal *refusal)
{
    const char *coding = http_exchange_header(exchange, "content-encoding");
    *refusal = (struct openai_refusal){.reason = REASON_NONE};
    if (!coding || !*coding || !strcasecmp(coding, "identity"))
        return true;
    return openai_refuse(refusal, REASON_UNSUPPORTED_PARAMETER, "",
                         "the body is compressed (content-encoding %.20s): send it as it is",
                         coding);
}

/* False: the client's deadline is wrong; s->refusal. */
static bool read_deadline(struct submission *s)
{
    const char *header = http_exchange_header(s->exchange, "x-request-timeout-ms");
    uint64_t milliseconds, default_us = s->api->default_deadline_us;
    s->deadline_us = default_us ? s->arrival_us + default_us : UINT64_MAX;
    if (!header)
        return true;
    if (!str_to_u64(header, 1, UINT32_MAX, &milliseconds))
        return openai_refuse(&s->refusal, REASON_MALFORMED, "",
                             "x-request-timeout-ms must be milliseconds, between 1 and %u, got "
                             "\"%.40s\"",
                             UINT32_MAX, header);
    s->deadline_us = s->arrival_us + milliseconds * 1000;
    return true;
}

static const struct served_model *model_of(const struct submission *s)
{
    return &s->api->models->items[s->model];
}

/* Fills the call of one prompt from its ids. */
static enum reason make_request(struct submission *s, struct request_params *params,
                                const uint32_t *ids, size_t count)
{
    const struct served_model *model = model_of(s);
    char peer[HTTP_PEER_BYTES];
    http_exchange_peer(s->exchange, peer);
    openai_request_fill(&model->limits, count, params);
    enum reason reason = request_fit(&model->limits, count, params, &s->refusal.err);
    if (!reason && !s->request.stream)
        reason = request_fit_once(count, params, &s->refusal.err);
    if (reason)
        return reason;
    if (!s->made || snprintf(params->id, sizeof params->id, "%s-%zu", s->name, s->made) >=
                        (int)sizeof params->id)
        str_copy(params->id, sizeof params->id, s->name);
    struct call_source source = {.params = params,
                                 .tokenizer = model->tokenizer,
                                 .prompt = ids,
                                 .prompt_count = count,
                                 .constraint = s->constraint,
                                 .reasoning = &s->request.reasoning,
                                 .model_name = model->name,
                                 .peer = peer,
                                 .traceparent = http_exchange_header(s->exchange, "traceparent"),
                                 .grant = access_share(s->grant),
                                 .once = !s->request.stream,
                                 .arrival_us = s->arrival_us,
                                 .deadline_us = s->deadline_us};
    if (call_fill(s->call->calls[s->made], &source)) {
        s->made++;
        s->priority = params->priority;
        s->slo_class = params->slo_class;
        s->most_tokens += request_most_tokens(&model->limits, count, params);
        return REASON_NONE;
    }
    access_settle(source.grant, 0, s->arrival_us);
    error_set(&s->refusal.err, STATUS_LIMIT, "out of memory");
    return REASON_INTERNAL;
}

static enum reason make_prompt(struct submission *s, const struct openai_prompt *prompt)
{
    const struct served_model *model = model_of(s);
    struct request_params *params = malloc(sizeof *params);
    struct token_ids ids;
    if (!params)
        return REASON_INTERNAL;
    token_ids_init(&ids, (size_t)model->limits.context + 1);
    const Baton__V1__GenerateRequest *message = openai_request_message(&s->request, prompt);
    enum reason reason =
        request_parse(message, &s->request.fields, &model->limits, params, &s->refusal.err);
    if (!reason && params->text.bytes)
        reason = prompt_tokens_make(model, params->text, params->add_special_tokens, &ids,
                                    &s->refusal.err);
    if (!reason && params->text.bytes)
        reason = make_request(s, params, ids.data, ids.count);
    else if (!reason)
        reason = make_request(s, params, params->token_ids, params->token_count);
    token_ids_deinit(&ids);
    free(params);
    return reason;
}

static enum reason find_model(struct submission *s)
{
    size_t index;
    enum reason reason =
        served_models_find(s->api->models, s->request.message.model, &index, &s->refusal.err);
    if (!reason)
        s->model = index;
    return reason;
}

/* Reserves the tokens that all prompts together may use, once they are tokenized. */
static enum reason reserve(struct submission *s)
{
    struct access_refusal refusal;
    const struct slo_class *class =
        s->slo_class == SLO_NONE ? NULL : &model_of(s)->limits.slo->items[s->slo_class];
    enum reason reason = access_use_class(s->grant, class, &refusal);
    if (!reason)
        reason = access_reserve(s->grant, s->most_tokens, s->priority, s->arrival_us, &refusal);
    if (reason) {
        s->refusal.err = refusal.why;
        s->retry_after_s = refusal.retry_after_s;
    }
    return reason;
}

/* Counts all choices of all prompts against the key's limit. */
static enum reason run_choices(struct submission *s)
{
    struct access_refusal refusal;
    enum reason reason =
        access_run(s->grant, s->call->prompt_count * s->call->choices_each, &refusal);
    if (reason) {
        s->refusal.err = refusal.why;
        s->retry_after_s = refusal.retry_after_s;
    }
    return reason;
}

static enum reason read_constraint(struct submission *s)
{
    const struct openai_request *request = &s->request;
    /* Without an answer the constraint is never compiled: its remembered verdict doesn't matter. */
    struct constraint_checks *checks =
        request_prompt_only(&request->message) ? NULL : s->api->checks;
    enum reason reason = request_constraint_read(
        checks, request->message.constraint, &model_of(s)->limits, &s->constraint, &s->refusal.err);
    if (reason)
        str_copy(s->refusal.param, sizeof s->refusal.param, request->constraint_param);
    return reason;
}

static enum reason make_chat(struct submission *s)
{
    struct token_ids ids;
    struct openai_rendered rendered = {.ids = &ids};
    const struct served_model *model = model_of(s);
    token_ids_init(&ids, (size_t)model->limits.context + 1);
    enum reason reason = openai_render(model, &s->request, &rendered, &s->refusal.err);
    if (!reason) { /* the prompt decides where the constraint starts */
        openai_begin_reasoning(model, rendered.reasoning, &s->request);
        reason = read_constraint(s);
    }
    struct openai_prompt prompt = {.ids = ids.data, .id_count = ids.count};
    if (!reason)
        reason = make_prompt(s, &prompt);
    token_ids_deinit(&ids);
    return reason;
}

static enum reason make_requests(struct submission *s)
{
    char peer[HTTP_PEER_BYTES];
    enum reason reason = find_model(s);
    if (reason)
        return reason;
    s->request.separate_reasoning &= s->api->reasoning;
    s->call = openai_call_create(s->api, s->exchange, &s->request, s->model, s->name);
    if (!s->call) {
        error_set(&s->refusal.err, STATUS_LIMIT, "out of memory");
        return REASON_INTERNAL;
    }
    http_exchange_peer(s->exchange, peer);
    s->call->tenant = constraint_owner_of(access_tenant(s->grant), peer);
    /* Before the work of tokenizing: an overloaded router must refuse cheaply. */
    reason = run_choices(s);
    if (!reason)
        reason = openai_call_admit(s->call, &s->refusal.err);
    if (reason == REASON_OVERLOADED)
        s->retry_after_s = dispatch_retry_after_s(s->api->dispatch, s->model);
    if (!reason && !openai_constrain_tools(model_of(s), &s->request, &s->refusal))
        reason = s->refusal.reason;
    s->call->constraint_param = s->request.constraint_param; /* a tool_choice has made one */
    if (!reason)
        reason = s->request.kind == OPENAI_CHAT ? make_chat(s) : read_constraint(s);
    for (size_t i = 0; s->request.kind != OPENAI_CHAT && i < s->request.prompt_count && !reason;
         i++)
        reason = make_prompt(s, &s->request.prompts[i]);
    return reason ? reason : reserve(s);
}

/* Settles the key's own grant, before the answer can come. */
static void give_back_grant(struct submission *s)
{
    access_settle(s->grant, 0, clock_now_us());
    s->grant = NULL;
}

/* Submits all calls of the body. The exchange is watched after that: on a reader's thread it can be
 * over at any time, and a call must not be closed before it is submitted. */
static void submit(struct submission *s)
{
    struct openai_call *call = s->call;
    give_back_grant(s); /* the calls have their shares */
    FAILPOINT("doors.submit");
    dispatch_submit(s->api->dispatch, call->calls, s->made);
    FAILPOINT("doors.submitted");
    if (!openai_call_watch(call)) /* also if the answer was sent meanwhile */
        openai_call_leave(call, RPC_CANCELLED);
}

static void note_refused(const struct submission *s, enum reason reason)
{
    openai_log(
        s->api, s->exchange,
        &(struct access_line_brief){.status = reason_name(reason),
                                    .name = s->name,
                                    .model = s->model != ROUTER_NO_MODEL ? model_of(s)->name : NULL,
                                    .tenant = access_tenant(s->grant),
                                    .key = access_key_id(s->grant)});
    router_metrics_ended(s->api->metrics, s->model, reason);
    slo_books_refused(s->api->metrics->slo, s->slo_class_name, reason, s->arrival_us);
}

static void refuse(struct submission *s, enum reason reason)
{
    struct openai_refusal *refusal = &s->refusal;
    if (!*refusal->param)
        openai_request_param(s->request.kind, reason, refusal->err.text, refusal->param);
    note_refused(s, reason);
    if (s->call)
        openai_call_give_back(s->call);
    give_back_grant(s);
    openai_reply_refusal(s->exchange, s->name,
                         &(struct openai_why){.reason = reason,
                                              .param = refusal->param,
                                              .sentence = refusal->err.text,
                                              .retry_after_s = s->retry_after_s});
    if (s->call)
        openai_call_leave(s->call, RPC_OK);
}

void openai_submit(struct openai_api *api, struct http_exchange *exchange, enum openai_kind kind,
                   uint64_t arrival_us)
{
    struct submission s = {.api = api,
                           .exchange = exchange,
                           .model = ROUTER_NO_MODEL,
                           .grant = openai_take_grant(exchange),
                           .slo_class = SLO_NONE,
                           .slo_class_name = http_exchange_header(exchange, REQUEST_SLO_CLASS),
                           .arrival_us = arrival_us};
    const struct str *body = http_exchange_body(exchange);
    openai_request_id(exchange, s.name);
    s.request.kind = kind;
    if (!openai_body_plain(exchange, &s.refusal) || !read_deadline(&s) ||
        !openai_request_read(&s.request, kind, body->data, body->length, api->max_body_bytes,
                             &s.refusal)) {
        refuse(&s, s.refusal.reason);
        return;
    }
    enum reason reason =
        request_take_class(&s.request.message, s.slo_class_name, 1, &s.refusal.err);
    s.slo_class_name = s.request.message.slo_class;
    if (!reason)
        reason = make_requests(&s);
    if (reason)
        refuse(&s, reason);
    else
        submit(&s);
    if (s.call)
        openai_call_unref(s.call);
    free(s.constraint);
    openai_request_deinit(&s.request);
}
