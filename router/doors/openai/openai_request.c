#include "router/doors/openai/openai_request.h"

#include "common/base/domain/priority.h"
#include "proto/proto_text.h"
#include "router/doors/openai/openai_chat.h"
#include "router/doors/openai/openai_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------- parameters that aren't offered */

/* Values that ask for nothing, besides null, false, "" and []. */
enum neutral {
    NEUTRAL_EMPTY = 0, /* {} */
    NEUTRAL_ONE,       /* {} and 1 */
    NEUTRAL_ZERO,      /* {} and 0 */
    NEUTRAL_NO_OBJECT, /* {} asks for something too */
};

/* A parameter that other servers take. Ignoring it would change the answer. */
struct refused {
    const char *key;
    const char *why;
    enum neutral neutral;
};

static const struct refused both[] = {
    {"lora", "LoRA adapters are not offered", NEUTRAL_EMPTY},
    {"lora_request", "LoRA adapters are not offered", NEUTRAL_EMPTY},
    {"adapter_id", "LoRA adapters are not offered", NEUTRAL_EMPTY},
    {"prompt_logprobs", "not offered: echo with logprobs scores the prompt of a completion",
     NEUTRAL_EMPTY},
    {"logits_processors", "not offered", NEUTRAL_EMPTY},
    {"truncate_prompt_tokens", "prompts are not cut: send a shorter one", NEUTRAL_EMPTY},
    {"include_stop_str_in_output", "a stop string is never part of the text", NEUTRAL_EMPTY},
    {"use_beam_search", "beam search is not offered", NEUTRAL_EMPTY},
    {"mm_processor_kwargs", "only text is offered", NEUTRAL_EMPTY},
    {"kv_transfer_params", "prefill and decode are placed by the router", NEUTRAL_EMPTY},
    {"typical_p", "not offered: temperature, top_k, top_p and min_p are", NEUTRAL_ONE},
    {"n_predict", "not offered: use max_tokens", NEUTRAL_EMPTY},
    {"repeat_penalty", "not offered: use repetition_penalty", NEUTRAL_ONE},
    {"n_probs", "not offered: use logprobs", NEUTRAL_ZERO},
    {"length_penalty", "beam search is not offered", NEUTRAL_ONE},
    {"bad_words", "not offered: logit_bias can ban tokens", NEUTRAL_EMPTY},
    {"allowed_token_ids", "not offered: structured output can bound an answer", NEUTRAL_EMPTY},
    {"grammar", "grammars are not offered: response_format or structured_outputs bound an answer",
     NEUTRAL_EMPTY},
    {"json_schema", "not offered: use response_format", NEUTRAL_NO_OBJECT},
    {"regex", "not offered: use structured_outputs", NEUTRAL_EMPTY},
    {"ebnf", "grammars are not offered: response_format or structured_outputs bound an answer",
     NEUTRAL_EMPTY},
    {"structural_tag", "not offered: use response_format", NEUTRAL_EMPTY},
    {"return_tokens_as_token_ids", "not offered: tokens of logprobs are their text", NEUTRAL_EMPTY},
    {"mirostat", "not offered: temperature, top_k, top_p and min_p are", NEUTRAL_ZERO},
    {"dry_multiplier", "not offered: repetition_penalty is", NEUTRAL_ZERO},
    {"web_search_options", "not offered", NEUTRAL_NO_OBJECT},
    {NULL, NULL, NEUTRAL_EMPTY},
};

static const struct refused of_completion[] = {
    {"suffix", "text behind the answer is not offered", NEUTRAL_EMPTY},
    {"prompt_embeds", "embeddings as prompts are not offered", NEUTRAL_EMPTY},
    {NULL, NULL, NEUTRAL_EMPTY},
};

static const struct refused of_chat[] = {
    {"audio", "only text is offered", NEUTRAL_EMPTY},
    {"functions", "deprecated: use tools", NEUTRAL_EMPTY},
    {"function_call", "deprecated: use tool_choice", NEUTRAL_EMPTY},
    {"chat_template", "the model's own template is used", NEUTRAL_EMPTY},
    {"echo", "not offered for chats", NEUTRAL_EMPTY},
    {NULL, NULL, NEUTRAL_EMPTY},
};

static bool is_neutral(const struct json_value *value, enum neutral neutral)
{
    const char *text;
    bool flag;
    double number;
    switch (json_kind(value)) {
    case JSON_NULL: return true;
    case JSON_BOOL: return json_as_bool(value, &flag, NULL) == STATUS_OK && !flag;
    case JSON_STRING: return json_as_string(value, &text, NULL, NULL) == STATUS_OK && !*text;
    case JSON_ARRAY: return json_count(value) == 0;
    case JSON_OBJECT: return json_count(value) == 0 && neutral != NEUTRAL_NO_OBJECT;
    case JSON_INTEGER:
    case JSON_NUMBER:
        return json_as_double(value, -1, 1, &number, NULL) == STATUS_OK &&
               ((neutral == NEUTRAL_ONE && number == 1) ||
                (neutral == NEUTRAL_ZERO && number == 0));
    }
    return false;
}

static void check(const struct openai_fields *fields, const struct refused *table)
{
    for (; table->key; table++) {
        const struct json_value *value = openai_field(fields, table->key);
        if (value && !is_neutral(value, table->neutral))
            openai_field_refuse(fields, table->key, REASON_UNSUPPORTED_PARAMETER, "%s", table->why);
    }
}

static void read_refused(const struct openai_fields *fields, enum openai_kind kind)
{
    const struct json_value *modalities;
    check(fields, both);
    check(fields, kind == OPENAI_CHAT ? of_chat : of_completion);
    /* Some clients always send ["text"]. */
    if (!openai_field_array(fields, "modalities", &modalities))
        return;
    for (size_t i = 0; i < json_count(modalities); i++) {
        const char *name;
        if (json_as_string(json_at(modalities, i), &name, NULL, NULL) != STATUS_OK ||
            strcmp(name, "text") != 0)
            openai_field_refuse(fields, "modalities", REASON_UNSUPPORTED_PARAMETER,
                                "only text is offered");
    }
}

/* ------------------------------------------------------------------------ a completion's prompt */

static bool read_ids(const struct openai_fields *fields, const char *name,
                     const struct json_value *array, struct openai_request *request,
                     struct openai_prompt *prompt)
{
    struct openai_ids ids;
    if (!openai_array_ids(fields, name, REASON_INVALID_TOKEN_ID, array, &request->arena, &ids))
        return false;
    *prompt = (struct openai_prompt){.ids = ids.ids, .id_count = ids.count};
    return true;
}

static bool read_text(const struct openai_fields *fields, const char *name,
                      const struct json_value *value, struct openai_prompt *prompt)
{
    struct error why;
    struct text text;
    if (json_as_string(value, &text.bytes, &text.length, &why) != STATUS_OK)
        return openai_field_refuse(fields, name, REASON_MALFORMED, "%s", why.text);
    *prompt = (struct openai_prompt){.text = text};
    return true;
}

static void read_several(const struct openai_fields *fields, const struct json_value *array,
                         struct openai_request *request, struct openai_prompt *prompts)
{
    bool fine = true;
    request->prompt_count = json_count(array);
    for (size_t i = 0; fine && i < request->prompt_count; i++) {
        const struct json_value *value = json_at(array, i);
        char name[32];
        snprintf(name, sizeof name, "prompt[%zu]", i);
        fine = json_kind(value) == JSON_ARRAY ? read_ids(fields, name, value, request, &prompts[i])
                                              : read_text(fields, name, value, &prompts[i]);
    }
}

/* The prompt is a text, texts, ids, or lists of ids. */
static void read_prompt(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *value = openai_field(fields, "prompt");
    size_t count = json_kind(value) == JSON_ARRAY ? json_count(value) : 0;
    enum json_kind first = json_kind(count ? json_at(value, 0) : NULL);
    bool ids = first == JSON_INTEGER || first == JSON_NUMBER;
    if (fields->refusal->reason)
        return;
    if (!value || (json_kind(value) == JSON_ARRAY && !count)) {
        openai_field_refuse(
            fields, "prompt", value ? REASON_EMPTY_PROMPT : REASON_MISSING_INPUT,
            "%s: give a text, a list of texts, a list of token ids, or a list of those",
            value ? "is empty" : "is missing");
        return;
    }
    if (!ids && count > OPENAI_MAX_PROMPTS) {
        openai_field_refuse(fields, "prompt", REASON_MALFORMED, "%zu prompts: at most %d at once",
                            count, OPENAI_MAX_PROMPTS);
        return;
    }
    struct openai_prompt *prompts =
        arena_take(&request->arena, (ids || !count ? 1 : count) * sizeof *prompts);
    if (!prompts) {
        openai_field_refuse(fields, "prompt", REASON_MALFORMED, "too large");
        return;
    }
    request->prompts = prompts;
    if (ids)
        read_ids(fields, "prompt", value, request, prompts);
    else if (count)
        read_several(fields, value, request, prompts);
    else
        read_text(fields, "prompt", value, prompts);
}

/* ------------------------------------------------------------------------------------- the body */

static void set_priority(struct openai_request *request, enum priority priority)
{
    request->message.priority_presence_case =
        BATON__V1__GENERATE_REQUEST__PRIORITY_PRESENCE_PRIORITY;
    request->message.priority = (Baton__V1__Priority)priority; /* the same numbers */
}

/* The priority is a number, negative ones first as in vLLM, or one of Baton's words. */
static void read_priority(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *value = openai_field(fields, "priority");
    const char *word;
    int64_t number;
    if (!value)
        return;
    if (json_kind(value) != JSON_STRING) {
        if (openai_field_integer(fields, "priority", INT32_MIN, INT32_MAX, &number))
            set_priority(request, number < 0   ? PRIORITY_HIGH
                                  : number > 0 ? PRIORITY_OFFLINE
                                               : PRIORITY_NORMAL);
        return;
    }
    if (!openai_field_text(fields, "priority", &word))
        return;
    enum priority priority;
    if (priority_find(word, strlen(word), &priority))
        set_priority(request, priority);
    else
        openai_field_refuse(fields, "priority", REASON_INVALID_PRIORITY,
                            "must be a number, \"normal\", \"high\" or \"offline\"");
}

static void read_class(const struct openai_fields *fields, struct openai_request *request)
{
    Baton__V1__SloObjective *objective = &request->objective;
    const struct {
        const char *key;
        uint64_t *us;
    } kinds[] = {{"ttft_ms", &objective->ttft_us},
                 {"tpot_ms", &objective->tpot_us},
                 {"itl_ms", &objective->itl_us},
                 {"e2e_ms", &objective->e2e_us}};
    const struct json_value *object;
    const char *name;
    if (openai_field_text(fields, "slo_class", &name))
        request->message.slo_class = (char *)name; /* the message is only read */
    if (!openai_field_object(fields, "slo_objective", &object))
        return;
    struct openai_fields inside = {object, "slo_objective.", fields->refusal};
    for (struct json_member member = {0}; json_next(object, &member);) {
        size_t kind = 0;
        while (kind < sizeof kinds / sizeof *kinds && strcmp(member.key, kinds[kind].key) != 0)
            kind++;
        if (kind == sizeof kinds / sizeof *kinds) /* an objective that is misspelt would be lost */
            openai_field_refuse(fields, "slo_objective", REASON_UNSUPPORTED_PARAMETER,
                                "\"%.40s\" is none of ttft_ms, tpot_ms, itl_ms, e2e_ms",
                                member.key);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        float ms;
        if (!openai_field_float(&inside, kinds[i].key, &ms))
            continue;
        if (ms >= 0.001f && ms <= (float)SLO_MAX_US / 1e3f)
            *kinds[i].us = (uint64_t)llround((double)ms * 1e3);
        else
            openai_field_refuse(&inside, kinds[i].key, REASON_MALFORMED,
                                "must be milliseconds, between 0.001 and %.0f",
                                (double)SLO_MAX_US / 1e3);
    }
    request->message.slo_objective = objective;
}

static void read_stream(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *options;
    openai_field_bool(fields, "stream", &request->stream);
    if (!openai_field_object(fields, "stream_options", &options))
        return;
    struct openai_fields inside = {options, "stream_options.", fields->refusal};
    openai_field_bool(&inside, "include_usage", &request->include_usage);
    openai_field_bool(&inside, "continuous_usage_stats", &request->continuous_usage);
    request->continuous_usage &= request->include_usage;
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
    read_refused(fields, request->kind);
    if (request->kind == OPENAI_CHAT)
        openai_read_chat(fields, request);
    else
        read_prompt(fields, request);
    openai_read_sampling(fields, request);
    openai_read_format(fields, request);
    read_priority(fields, request);
    read_class(fields, request);
    read_stream(fields, request);
    const struct json_value *metadata;
    const char *user;
    bool store; /* these three change no answer: only their types are checked */
    openai_field_text(fields, "user", &user);
    openai_field_object(fields, "metadata", &metadata);
    openai_field_bool(fields, "store", &store);
    if (request->tools && !request->output.skip_special_tokens_presence_case) {
        /* The parser must see the markers of calls, and some are special tokens. */
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
    /* A token id takes 2 bytes or more in the body, and 4 in the arena. */
    arena_init(&request->arena, 4 * max_bytes + (64u << 10));
    baton__v1__generate_request__init(&request->message);
    baton__v1__sampling__init(&request->sampling);
    baton__v1__stop__init(&request->stop);
    baton__v1__output__init(&request->output);
    baton__v1__slo_objective__init(&request->objective);
    baton__v1__token_ids__init(&request->ids);
    request->message.sampling = &request->sampling;
    request->message.stop = &request->stop;
    request->message.output = &request->output;
    /* A chat template writes its special tokens itself. */
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

const Baton__V1__GenerateRequest *openai_request_message(struct openai_request *request,
                                                         const struct openai_prompt *prompt)
{
    Baton__V1__GenerateRequest *message = &request->message;
    if (request->kind == OPENAI_COMPLETION && request->prompt_count > 1)
        snprintf(request->ids_field, sizeof request->ids_field, "prompt[%zu]",
                 (size_t)(prompt - request->prompts));
    else
        str_copy(request->ids_field, sizeof request->ids_field, "prompt");
    request->fields = (struct request_fields){
        .ids = request->ids_field, .stops = "stop", .stop_ids = "stop_token_ids"};
    if (prompt->text.bytes) {
        message->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        message->text = proto_bytes(prompt->text);
    } else {
        request->ids.ids = (uint32_t *)prompt->ids;
        request->ids.n_ids = prompt->id_count;
        message->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
        message->token_ids = &request->ids;
    }
    return message;
}

void openai_request_fill(const struct request_model *model, size_t prompt_tokens,
                         struct request_params *params)
{
    if (params->max_tokens_given || prompt_tokens >= model->context)
        return;
    size_t room = model->context - prompt_tokens;
    uint32_t most = room < SAMPLING_MAX_TOKENS_LIMIT ? (uint32_t)room : SAMPLING_MAX_TOKENS_LIMIT;
    if (most > params->sampling.min_tokens)
        params->sampling.max_tokens = most;
}

void openai_request_param(enum openai_kind kind, enum reason reason, const char *sentence,
                          char param[OPENAI_PARAM_BYTES])
{
    /* A sentence of the validator that is about a field begins with its name. */
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
    case REASON_SLO_CLASS_UNKNOWN:
    case REASON_SLO_CLASS_CONFLICT:
    case REASON_SLO_CLASS_NOT_ALLOWED: str_copy(param, OPENAI_PARAM_BYTES, "slo_class"); break;
    case REASON_SLO_TIGHTENED: str_copy(param, OPENAI_PARAM_BYTES, "slo_objective"); break;
    case REASON_INVALID_TOKEN_ID:
    case REASON_INVALID_STOP:
    case REASON_INVALID_SAMPLING:
        if (!strncmp(sentence, "tokenized ", strlen("tokenized "))) /* "tokenized text: ..." */
            str_copy(param, OPENAI_PARAM_BYTES, prompt);
        else
            snprintf(param, OPENAI_PARAM_BYTES, "%.*s", begins ? (int)length : 0, sentence);
        break;
    default: break;
    }
}
