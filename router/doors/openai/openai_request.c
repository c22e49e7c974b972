#include "router/doors/openai/openai_request.h"

#include "common/base/domain/priority.h"
#include "common/base/str.h"
#include "router/doors/openai/openai_request_parts.h"

#include <stdio.h>
#include <string.h>

/* Negative is sooner, as vLLM has it; or one of our words. */
static void read_priority(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *value = openai_field(fields, "priority");
    const char *word;
    int64_t number;
    if (!value)
        return;
    if (json_kind(value) != JSON_STRING) {
        if (openai_field_integer(fields, "priority", INT32_MIN, INT32_MAX, &number))
            request->message.priority = number < 0   ? BATON__V1__PRIORITY__PRIORITY_HIGH
                                        : number > 0 ? BATON__V1__PRIORITY__PRIORITY_OFFLINE
                                                     : BATON__V1__PRIORITY__PRIORITY_NORMAL;
        return;
    }
    if (!openai_field_text(fields, "priority", &word))
        return;
    enum priority priority;
    if (priority_find(word, strlen(word), &priority))
        request->message.priority = (Baton__V1__Priority)priority; /* the same numbers */
    else
        openai_field_refuse(fields, "priority", REASON_INVALID_PRIORITY,
                            "must be a number, \"normal\", \"high\" or \"offline\"");
}

static void read_stream(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *options;
    openai_field_bool(fields, "stream", &request->stream);
    if (!openai_field_object(fields, "stream_options", &options))
        return; /* those of a request that doesn't stream are passed over */
    struct openai_fields inside = {options, "stream_options.", fields->refusal};
    openai_field_bool(&inside, "include_usage", &request->include_usage);
    openai_field_bool(&inside, "continuous_usage_stats", &request->continuous_usage);
    request->continuous_usage &= request->include_usage;
}

/* Tolerated, and of the right type if there: they change no answer. */
static void read_tolerated(const struct openai_fields *fields)
{
    const char *text;
    const struct json_value *object;
    bool flag;
    openai_field_text(fields, "user", &text);
    openai_field_object(fields, "metadata", &object);
    openai_field_bool(fields, "store", &flag);
}

static void read_body(const struct openai_fields *fields, struct openai_request *request)
{
    const char *model = "";
    if (json_kind(fields->object) != JSON_OBJECT) {
        openai_refuse(fields->refusal, REASON_MALFORMED, "",
                      "the body must be a JSON object, found %s", json_kind_name(fields->object));
        return;
    }
    if (openai_field_text(fields, "model", &model))
        request->message.model = (char *)model; /* the message is only read */
    openai_read_refused(fields, request->kind);
    if (request->kind == OPENAI_CHAT)
        openai_read_chat(fields, request);
    else
        openai_read_prompt(fields, request);
    openai_read_sampling(fields, request);
    openai_read_format(fields, request);
    read_priority(fields, request);
    read_stream(fields, request);
    read_tolerated(fields);
    if (request->tools && !request->output.skip_special_tokens_presence_case) {
        /* Some markers of calls are special tokens. */
        request->output.skip_special_tokens_presence_case =
            BATON__V1__OUTPUT__SKIP_SPECIAL_TOKENS_PRESENCE_SKIP_SPECIAL_TOKENS;
        request->output.skip_special_tokens = false;
    }
    if (!fields->refusal->reason && request->prompt_count * request->choices > OPENAI_MAX_CHOICES)
        openai_refuse(fields->refusal, REASON_INVALID_SAMPLING, "n",
                      "n is %u for %zu prompts, together %zu answers: at most %d at once",
                      request->choices, request->prompt_count,
                      request->prompt_count * request->choices, OPENAI_MAX_CHOICES);
}

static void init(struct openai_request *request, enum openai_kind kind, size_t max_bytes)
{
    *request = (struct openai_request){
        .kind = kind, .prompt_count = 1, .choices = 1, .add_generation_prompt = true};
    /* An id takes two bytes of text or more, and four here. */
    arena_init(&request->arena, 4 * max_bytes + (64u << 10));
    baton__v1__generate_request__init(&request->message);
    baton__v1__sampling__init(&request->sampling);
    baton__v1__stop__init(&request->stop);
    baton__v1__output__init(&request->output);
    baton__v1__token_ids__init(&request->ids);
    request->message.sampling = &request->sampling;
    request->message.stop = &request->stop;
    request->message.output = &request->output;
    /* A template spells out its special tokens itself. */
    request->message.add_special_tokens_presence_case =
        BATON__V1__GENERATE_REQUEST__ADD_SPECIAL_TOKENS_PRESENCE_ADD_SPECIAL_TOKENS;
    request->message.add_special_tokens = kind == OPENAI_COMPLETION;
}

bool openai_request_read(struct openai_request *request, enum openai_kind kind, const char *body,
                         size_t length, size_t max_bytes, struct openai_refusal *refusal)
{
    *refusal = (struct openai_refusal){.reason = REASON_NONE};
    init(request, kind, max_bytes);
    struct json_limits limits = {.max_bytes = max_bytes, .max_depth = OPENAI_MAX_DEPTH};
    struct error why;
    if (json_parse(body, length, limits, &request->json, &why) != STATUS_OK) {
        openai_refuse(refusal, REASON_MALFORMED, "", "the body: %s", why.text);
    } else {
        struct openai_fields fields = {json_root(request->json), "", refusal};
        read_body(&fields, request);
    }
    if (refusal->reason)
        openai_request_deinit(request);
    return !refusal->reason;
}

void openai_request_deinit(struct openai_request *request)
{
    json_destroy(request->json);
    arena_deinit(&request->arena);
    request->json = NULL;
}

static void name_fields(struct openai_request *request, const struct openai_prompt *prompt)
{
    if (request->kind == OPENAI_COMPLETION && request->prompt_count > 1)
        snprintf(request->ids_field, sizeof request->ids_field, "prompt[%zu]",
                 (size_t)(prompt - request->prompts));
    else
        str_copy(request->ids_field, sizeof request->ids_field, "prompt");
    request->fields = (struct request_fields){
        .ids = request->ids_field, .stops = "stop", .stop_ids = "stop_token_ids"};
}

const Baton__V1__GenerateRequest *openai_request_message(struct openai_request *request,
                                                         const struct openai_prompt *prompt)
{
    Baton__V1__GenerateRequest *message = &request->message;
    name_fields(request, prompt);
    if (prompt->text) {
        message->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        message->text = (char *)prompt->text;
    } else {
        request->ids.ids = (uint32_t *)prompt->ids;
        request->ids.n_ids = prompt->id_count;
        message->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
        message->token_ids = &request->ids;
    }
    return message;
}

void openai_request_fill(const struct openai_request *request, const struct request_model *model,
                         size_t prompt_tokens, struct request_params *params)
{
    if (request->kind != OPENAI_CHAT || params->max_tokens_given || prompt_tokens >= model->context)
        return;
    size_t room = model->context - prompt_tokens;
    uint32_t most = room < SAMPLING_MAX_TOKENS_LIMIT ? (uint32_t)room : SAMPLING_MAX_TOKENS_LIMIT;
    if (most > params->sampling.min_tokens)
        params->sampling.max_tokens = most;
}

void openai_request_param(enum openai_kind kind, enum reason reason, const char *sentence,
                          char param[OPENAI_PARAM_BYTES])
{
    /* Its sentences begin with the field, or an element of it, where they are about one. */
    size_t length = strspn(sentence, "abcdefghijklmnopqrstuvwxyz_");
    bool begins = length && length < OPENAI_PARAM_BYTES &&
                  (sentence[length] == ' ' || sentence[length] == '[');
    const char *prompt = kind == OPENAI_CHAT ? "messages" : "prompt";
    param[0] = 0;
    switch (reason) {
    case REASON_MISSING_INPUT:
    case REASON_EMPTY_PROMPT:
    case REASON_TEXT_TOO_LONG:
    case REASON_CONTEXT_LENGTH_EXCEEDED: str_copy(param, OPENAI_PARAM_BYTES, prompt); break;
    case REASON_MISSING_MODEL:
    case REASON_MODEL_NOT_FOUND: str_copy(param, OPENAI_PARAM_BYTES, "model"); break;
    case REASON_PRIORITY_NOT_ALLOWED:
    case REASON_INVALID_PRIORITY: str_copy(param, OPENAI_PARAM_BYTES, "priority"); break;
    case REASON_INVALID_TOKEN_ID:
    case REASON_INVALID_STOP:
    case REASON_INVALID_SAMPLING:
        if (!strncmp(sentence, "tokenized ", strlen("tokenized "))) /* what the text became */
            str_copy(param, OPENAI_PARAM_BYTES, prompt);
        else
            snprintf(param, OPENAI_PARAM_BYTES, "%.*s", begins ? (int)length : 0, sentence);
        break;
    default: break;
    }
}
