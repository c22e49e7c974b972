#include "router/doors/openai/openai_call.h"

#include "common/base/log.h"
#include "router/doors/openai/openai_call_choice.h"
#include "router/doors/openai/openai_call_out.h"
#include "router/doors/openai/openai_chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The names of the tools, for the parsers, in one piece of memory. */
static bool copy_names(const struct json_value *tools, const char ***out, size_t *count)
{
    size_t bytes = 0, at = 0;
    *count = json_count(tools);
    const char **names = malloc(*count * (sizeof *names + OPENAI_MAX_NAME + 1) + 1);
    if (!names)
        return false;
    char *texts = (char *)(names + *count);
    for (size_t i = 0; i < *count; i++, at++) {
        const char *name = "";
        enum status status =
            json_get_string(json_find(json_at(tools, i), "function"), "name", &name, NULL, NULL);
        names[at] = texts + bytes;
        str_copy(texts + bytes, OPENAI_MAX_NAME + 1, status == STATUS_OK ? name : "");
        bytes += OPENAI_MAX_NAME + 1;
    }
    *out = names;
    return true;
}

static void init_choice(struct openai_call *call, uint32_t index, size_t names)
{
    struct openai_call_choice *choice = &call->choices[index];
    choice->call = call;
    call->wholes[index] = &choice->whole;
    openai_whole_init(&choice->whole, index, call->api->max_answer_bytes);
    if (!call->has_parser)
        return;
    struct tool_parser_config config = {.format = call->answer.tools,
                                        .names = call->tool_names,
                                        .name_count = names,
                                        .event = openai_call_choice_event,
                                        .context = choice};
    tool_parser_init(&choice->parser, &config);
}

static void init_prompts(struct openai_call *call, const struct openai_request *request)
{
    call->choices_each = request->choices;
    call->open_count = call->prompt_count = (uint32_t)request->prompt_count;
    call->choice_count = call->prompt_count * call->choices_each;
    for (uint32_t i = 0; i < call->prompt_count; i++) {
        call->prompts[i].call = call;
        call->prompts[i].index = i;
        call->prompts[i].gone.free = openai_call_gone;
    }
}

/* False: no memory, and nothing is left of what was taken. */
static bool take_memory(struct openai_call *call, const struct openai_request *request,
                        size_t *names)
{
    size_t count = request->prompt_count * request->choices;
    call->has_parser = request->kind == OPENAI_CHAT && request->tools;
    call->choices = calloc(count, sizeof *call->choices);
    call->wholes = calloc(count, sizeof *call->wholes);
    if (call->choices && call->wholes &&
        (!call->has_parser || copy_names(request->tools, &call->tool_names, names)))
        return true;
    free(call->choices);
    free(call->wholes);
    return false;
}

struct openai_call *openai_call_create(struct openai_api *api, struct http_exchange *exchange,
                                       const struct openai_request *request, size_t model,
                                       const char *name)
{
    const struct served_model *served = &api->models->items[model];
    size_t names = 0;
    struct openai_call *call =
        calloc(1, sizeof *call + request->prompt_count * sizeof *call->prompts);
    if (!call || !take_memory(call, request, &names)) {
        free(call);
        return NULL;
    }
    atomic_init(&call->references, 1);
    call->api = api;
    call->model = model;
    call->exchange = exchange;
    http_exchange_keep(exchange);
    str_copy(call->name, sizeof call->name, name);
    call->stream = request->stream;
    call->one_tool_call = request->one_call;
    call->constraint_param = request->constraint_param;
    call->has_bias = request->sampling.n_logit_bias > 0;
    call->answer = (struct openai_answer){.kind = request->kind,
                                          .request_id = call->name,
                                          .model = served->name,
                                          .created_s = (uint64_t)time(NULL),
                                          .include_usage = request->include_usage,
                                          .continuous_usage = request->continuous_usage,
                                          .logprobs = request->logprobs,
                                          .token_ids = request->return_token_ids,
                                          .tool_named = request->tool_choice == OPENAI_TOOLS_NAMED,
                                          .tools = call->has_parser ? openai_tool_format(served)
                                                                    : TOOL_FORMAT_NONE};
    str_init(&call->frames, api->max_answer_bytes);
    str_init(&call->body, api->max_answer_bytes);
    init_prompts(call, request);
    for (uint32_t i = 0; i < call->choice_count; i++)
        init_choice(call, i, names);
    return call;
}

void openai_call_ref(struct openai_call *call)
{
    atomic_fetch_add(&call->references, 1);
}

void openai_call_unref(struct openai_call *call)
{
    if (atomic_fetch_sub(&call->references, 1) > 1)
        return;
    for (uint32_t i = 0; i < call->choice_count; i++) {
        openai_whole_deinit(&call->choices[i].whole);
        if (call->has_parser)
            tool_parser_deinit(&call->choices[i].parser);
    }
    http_exchange_drop(call->exchange);
    str_deinit(&call->frames);
    str_deinit(&call->body);
    free(call->choices);
    free(call->wholes);
    free(call->tool_names);
    free(call);
}

void openai_call_gone(struct client_gone *gone)
{
    openai_call_unref(((struct openai_call_prompt *)gone)->call);
}

void openai_call_release(struct openai_call_prompt *prompt)
{
    prompt->held = false;
    if (atomic_exchange(&prompt->admitted, false))
        dispatch_let_go(prompt->call->api->dispatch, &prompt->gone);
}

enum reason openai_call_admit(struct openai_call *call, struct error *err)
{
    /* More choices than a request may have are refused when it is parsed. */
    uint32_t choices =
        call->choices_each < REQUEST_MAX_CHOICES ? call->choices_each : REQUEST_MAX_CHOICES;
    for (uint32_t i = 0; i < call->prompt_count; i++) {
        struct openai_call_prompt *prompt = &call->prompts[i];
        enum reason reason = dispatch_admit(call->api->dispatch);
        if (reason) {
            error_set(err, STATUS_LIMIT, "%s", reason_when(reason));
            return reason;
        }
        openai_call_ref(call);
        atomic_store(&prompt->admitted, true);
        reason = dispatch_admit_to(call->api->dispatch, &prompt->gone, call->model, choices);
        if (reason) {
            served_models_say_full(call->api->models, call->model, err);
            return reason;
        }
    }
    return REASON_NONE;
}

void openai_call_give_back(struct openai_call *call)
{
    for (uint32_t i = 0; i < call->prompt_count; i++)
        dispatch_give_back(call->api->dispatch, &call->prompts[i].gone);
}

void openai_call_leave(struct openai_call *call, enum rpc_code code)
{
    for (uint32_t i = 0; i < call->prompt_count; i++) {
        struct openai_call_prompt *prompt = &call->prompts[i];
        if (!atomic_exchange(&prompt->admitted, false))
            continue;
        prompt->gone.code = code;
        dispatch_client_gone(call->api->dispatch, &prompt->gone);
    }
}

/* On the loop's thread, after all that the handler did. */
static void on_over(void *context, struct http_exchange *exchange, enum http_outcome outcome)
{
    struct openai_call *call = context;
    (void)exchange;
    atomic_store(&call->client_left, true);
    if (outcome != HTTP_SENT)
        log_debug("openai", "req=%s outcome=%d msg=\"client left\"", call->name, (int)outcome);
    openai_call_leave(call, RPC_CANCELLED);
    openai_call_unref(call);
}

bool openai_call_watch(struct openai_call *call)
{
    openai_call_ref(call);
    if (http_exchange_watch(call->exchange, on_over, call))
        return true;
    openai_call_unref(call);
    return false;
}
