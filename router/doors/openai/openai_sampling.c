#include "common/base/domain/logprobs.h"
#include "common/base/json/json_write.h"
#include "common/base/str.h"
#include "proto/proto_text.h"
#include "router/doors/openai/openai_fields.h"
#include "router/doors/openai/openai_request.h"

#include <string.h>

/* The seed may be any integer of 64 bits, signed or not. */
static void read_seed(const struct openai_fields *fields, Baton__V1__Sampling *sampling)
{
    const struct json_value *value = openai_field(fields, "seed");
    struct error why;
    int64_t number;
    if (!value)
        return;
    if (openai_value_integer(value, INT64_MIN, INT64_MAX, &number, NULL))
        sampling->seed = (uint64_t)number;
    else if (json_as_u64(value, 0, UINT64_MAX, &sampling->seed, &why) != STATUS_OK) {
        openai_field_refuse(fields, "seed", REASON_MALFORMED, "%s", why.text);
        return;
    }
    sampling->seed_presence_case = BATON__V1__SAMPLING__SEED_PRESENCE_SEED;
}

/* `may_be_none`: 0 is allowed, which asks a completion for its prompt only. request_parse then
 * checks whether this request may do so. */
static void read_most(const struct openai_fields *fields, const char *key, bool may_be_none,
                      Baton__V1__Sampling *sampling)
{
    int64_t none;
    const struct json_value *most = openai_field(fields, key);
    bool is_none = most && openai_value_integer(most, 0, 0, &none, NULL);
    if (openai_field_range(fields, key, may_be_none && is_none ? 0 : 1, SAMPLING_MAX_TOKENS_LIMIT,
                           &sampling->max_tokens))
        sampling->max_tokens_presence_case = BATON__V1__SAMPLING__MAX_TOKENS_PRESENCE_MAX_TOKENS;
}

static void read_integers(const struct openai_fields *fields, enum openai_kind kind,
                          Baton__V1__Sampling *sampling)
{
    bool completion = kind == OPENAI_COMPLETION, echo = false, flag;
    int64_t top_k;
    if (openai_field_integer(fields, "top_k", INT32_MIN, UINT32_MAX, &top_k)) {
        sampling->top_k = top_k > 0 ? (uint32_t)top_k : 0; /* 0 and negative: off */
        sampling->top_k_presence_case = BATON__V1__SAMPLING__TOP_K_PRESENCE_TOP_K;
    }
    if (completion)
        openai_field_bool(fields, "echo", &echo);
    /* The newer name wins if both are given, as with OpenAI. request_parse knows only the older. */
    read_most(fields, "max_tokens", completion, sampling);
    read_most(fields, "max_completion_tokens", echo, sampling);
    if (openai_field_range(fields, "min_tokens", 0, SAMPLING_MAX_TOKENS_LIMIT,
                           &sampling->min_tokens))
        sampling->min_tokens_presence_case = BATON__V1__SAMPLING__MIN_TOKENS_PRESENCE_MIN_TOKENS;
    if (openai_field_bool(fields, "ignore_eos", &flag)) {
        sampling->ignore_eos = flag;
        sampling->ignore_eos_presence_case = BATON__V1__SAMPLING__IGNORE_EOS_PRESENCE_IGNORE_EOS;
    }
    read_seed(fields, sampling);
}

/* `stop` is a text or a list. Nulls in the list are ignored. request_parse refuses "", as vLLM
 * does. */
static void read_stop_strings(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *value = openai_field(fields, "stop");
    size_t count = json_kind(value) == JSON_ARRAY ? json_count(value) : 1;
    if (!value)
        return;
    ProtobufCBinaryData *strings = arena_take(&request->arena, (count + 1) * sizeof *strings);
    for (size_t i = 0; strings && i < count; i++) {
        const struct json_value *one = json_kind(value) == JSON_ARRAY ? json_at(value, i) : value;
        struct error why;
        struct text text;
        if (!one)
            continue;
        if (json_as_string(one, &text.bytes, &text.length, &why) != STATUS_OK) {
            openai_field_refuse(fields, "stop", REASON_INVALID_STOP, "[%zu]: %s", i, why.text);
            return;
        }
        strings[request->stop.n_strings++] = proto_bytes(text);
    }
    request->stop.strings = strings;
}

static void read_stop_ids(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *array;
    struct openai_ids ids;
    if (!openai_field_array(fields, "stop_token_ids", &array) ||
        !openai_array_ids(fields, "stop_token_ids", REASON_INVALID_STOP, array, &request->arena,
                          &ids))
        return;
    request->stop.token_ids = ids.ids;
    request->stop.n_token_ids = ids.count;
}

static void read_output(const struct openai_fields *fields, struct openai_request *request)
{
    bool flag;
    if (openai_field_bool(fields, "skip_special_tokens", &flag)) {
        request->output.skip_special_tokens = flag;
        request->output.skip_special_tokens_presence_case =
            BATON__V1__OUTPUT__SKIP_SPECIAL_TOKENS_PRESENCE_SKIP_SPECIAL_TOKENS;
    }
    if (openai_field_bool(fields, "add_special_tokens", &flag))
        request->message.add_special_tokens = flag;
    openai_field_bool(fields, "return_token_ids", &request->return_token_ids);
    if (request->kind == OPENAI_COMPLETION)
        openai_field_bool(fields, "echo", &request->echo);
}

static void read_choices(const struct openai_fields *fields, struct openai_request *request)
{
    uint32_t best = 0;
    if (openai_field_range(fields, "n", 1, REQUEST_MAX_CHOICES, &request->choices)) {
        request->sampling.n = request->choices;
        request->sampling.n_presence_case = BATON__V1__SAMPLING__N_PRESENCE_N;
    }
    if (openai_field_range(fields, "best_of", 1, REQUEST_MAX_CHOICES, &best) &&
        best != request->choices)
        openai_field_refuse(fields, "best_of", REASON_UNSUPPORTED_PARAMETER,
                            "is %u, and n is %u: all answers are given, so they must be equal",
                            best, request->choices);
}

/* A completion's logprobs is the count of the likeliest; a chat has a flag and a count. */
static void read_logprobs(const struct openai_fields *fields, struct openai_request *request)
{
    uint32_t *count = &request->top_logprobs;
    if (request->kind == OPENAI_COMPLETION) {
        request->logprobs = openai_field_range(fields, "logprobs", 0, LOGPROBS_MAX_TOP, count);
        return;
    }
    openai_field_bool(fields, "logprobs", &request->logprobs);
    if (openai_field_range(fields, "top_logprobs", 0, LOGPROBS_MAX_TOP, count) && *count &&
        !request->logprobs)
        openai_field_refuse(fields, "top_logprobs", REASON_INVALID_SAMPLING,
                            "needs logprobs to be true");
}

static void read_penalties(const struct openai_fields *fields, Baton__V1__Sampling *sampling)
{
    if (openai_field_float(fields, "presence_penalty", &sampling->presence_penalty))
        sampling->presence_penalty_presence_case =
            BATON__V1__SAMPLING__PRESENCE_PENALTY_PRESENCE_PRESENCE_PENALTY;
    if (openai_field_float(fields, "frequency_penalty", &sampling->frequency_penalty))
        sampling->frequency_penalty_presence_case =
            BATON__V1__SAMPLING__FREQUENCY_PENALTY_PRESENCE_FREQUENCY_PENALTY;
    if (openai_field_float(fields, "repetition_penalty", &sampling->repetition_penalty))
        sampling->repetition_penalty_presence_case =
            BATON__V1__SAMPLING__REPETITION_PENALTY_PRESENCE_REPETITION_PENALTY;
}

/* One member of logit_bias; its key is a token id. */
static bool read_bias(const struct openai_fields *fields, const struct json_member *member,
                      Baton__V1__Sampling__LogitBiasEntry *entry)
{
    struct error why;
    uint64_t id;
    double bias;
    if (!str_to_u64(member->key, 0, UINT32_MAX, &id))
        return openai_field_refuse(fields, "logit_bias", REASON_INVALID_TOKEN_ID,
                                   "\"%.40s\" is not a token id", member->key);
    if (json_as_double(member->value, -100, 100, &bias, &why) != STATUS_OK)
        return openai_field_refuse(fields, "logit_bias", REASON_INVALID_SAMPLING, "\"%s\": %s",
                                   member->key, why.text);
    baton__v1__sampling__logit_bias_entry__init(entry);
    entry->key = (uint32_t)id;
    entry->value = (float)bias;
    return true;
}

static void read_biases(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *object;
    if (!openai_field_object(fields, "logit_bias", &object))
        return;
    size_t count = json_count(object), at = 0;
    if (count > SAMPLING_MAX_BIASES) {
        openai_field_refuse(fields, "logit_bias", REASON_INVALID_SAMPLING,
                            "may name at most %d tokens, got %zu", SAMPLING_MAX_BIASES, count);
        return;
    }
    Baton__V1__Sampling__LogitBiasEntry *entries =
        arena_take(&request->arena, (count + 1) * sizeof *entries);
    Baton__V1__Sampling__LogitBiasEntry **pointers =
        arena_take(&request->arena, (count + 1) * sizeof *pointers);
    if (!entries || !pointers) {
        openai_field_refuse(fields, "logit_bias", REASON_MALFORMED, "too large");
        return;
    }
    for (struct json_member m = {0}; json_next(object, &m); at++) {
        if (!read_bias(fields, &m, &entries[at]))
            return;
        pointers[at] = &entries[at];
    }
    request->sampling.logit_bias = pointers;
    request->sampling.n_logit_bias = count;
}

/* Logprobs need the token ids too, as they show each token's text. */
static void ask_for_output(struct openai_request *request)
{
    Baton__V1__Output *output = &request->output;
    output->return_token_ids = request->logprobs || request->return_token_ids;
    output->return_token_ids_presence_case =
        BATON__V1__OUTPUT__RETURN_TOKEN_IDS_PRESENCE_RETURN_TOKEN_IDS;
    output->echo = request->echo;
    output->echo_presence_case = BATON__V1__OUTPUT__ECHO_PRESENCE_ECHO;
    if (!request->logprobs)
        return;
    output->logprobs = request->top_logprobs;
    output->logprobs_presence_case = BATON__V1__OUTPUT__LOGPROBS_PRESENCE_LOGPROBS;
    if (!request->echo)
        return;
    output->prompt_logprobs = request->top_logprobs;
    output->prompt_logprobs_presence_case =
        BATON__V1__OUTPUT__PROMPT_LOGPROBS_PRESENCE_PROMPT_LOGPROBS;
}

void openai_read_sampling(const struct openai_fields *fields, struct openai_request *request)
{
    Baton__V1__Sampling *sampling = &request->sampling;
    if (openai_field_float(fields, "temperature", &sampling->temperature))
        sampling->temperature_presence_case = BATON__V1__SAMPLING__TEMPERATURE_PRESENCE_TEMPERATURE;
    if (openai_field_float(fields, "top_p", &sampling->top_p))
        sampling->top_p_presence_case = BATON__V1__SAMPLING__TOP_P_PRESENCE_TOP_P;
    if (openai_field_float(fields, "min_p", &sampling->min_p))
        sampling->min_p_presence_case = BATON__V1__SAMPLING__MIN_P_PRESENCE_MIN_P;
    read_integers(fields, request->kind, sampling);
    read_penalties(fields, sampling);
    read_biases(fields, request);
    read_stop_strings(fields, request);
    read_stop_ids(fields, request);
    read_output(fields, request);
    read_choices(fields, request);
    read_logprobs(fields, request);
    ask_for_output(request);
}

/* ------------------------------------------------------------------ the structure of the answer */

#define MAX_FORMAT_TEXT (1u << 20) /* bytes; the validator's own limit is lower */

/* Begins the constraint that `key` asks for. False: the body asks for another one too. */
static bool begin(const struct openai_fields *fields, const char *key, const char *param,
                  struct openai_request *request)
{
    if (request->message.constraint)
        return openai_field_refuse(
            fields, key, REASON_MALFORMED,
            "an answer can have one structure, and another is asked for already");
    baton__v1__constraint__init(&request->constraint);
    request->message.constraint = &request->constraint;
    request->constraint_param = param;
    return true;
}

/* Returns the JSON as text, in the request's arena. NULL: refused. */
static char *write(const struct openai_fields *fields, const char *key,
                   const struct json_value *value, struct openai_request *request)
{
    struct str text;
    str_init(&text, MAX_FORMAT_TEXT);
    json_write(&text, value);
    char *copy = text.truncated ? NULL : arena_copy(&request->arena, text.data, text.length + 1);
    if (!copy)
        openai_field_refuse(fields, key, REASON_INVALID_CONSTRAINT, "it is too long");
    str_deinit(&text);
    return copy;
}

static void set_schema(const struct openai_fields *fields, const char *key, const char *param,
                       const struct json_value *value, struct openai_request *request)
{
    char *text = write(fields, key, value, request);
    if (!text || !begin(fields, key, param, request))
        return;
    request->constraint.kind_case = BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA;
    request->constraint.json_schema = text;
}

static void set_object(const struct openai_fields *fields, const char *key, const char *param,
                       struct openai_request *request)
{
    if (!begin(fields, key, param, request))
        return;
    request->constraint.kind_case = BATON__V1__CONSTRAINT__KIND_JSON_OBJECT;
    request->constraint.json_object = true;
}

static void set_text(const struct openai_fields *fields, const char *key, bool schema,
                     struct openai_request *request)
{
    const char *text;
    if (!openai_field_text(fields, key, &text) || !begin(fields, key, key, request))
        return;
    request->constraint.kind_case =
        schema ? BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA : BATON__V1__CONSTRAINT__KIND_REGEX;
    if (schema)
        request->constraint.json_schema = (char *)text; /* the message is only read */
    else
        request->constraint.regex = (char *)text;
}

static void set_choice(const struct openai_fields *fields, const char *key,
                       struct openai_request *request)
{
    const struct json_value *list;
    if (!openai_field_array(fields, key, &list))
        return;
    size_t count = json_count(list);
    ProtobufCBinaryData *texts = arena_take(&request->arena, (count + 1) * sizeof *texts);
    for (size_t i = 0; i < count && texts; i++) {
        struct text text;
        if (json_as_string(json_at(list, i), &text.bytes, &text.length, NULL) != STATUS_OK) {
            openai_field_refuse(fields, key, REASON_MALFORMED, "element %zu is not a string", i);
            return;
        }
        texts[i] = proto_bytes(text);
    }
    if (!texts || !begin(fields, key, key, request))
        return;
    baton__v1__choices__init(&request->choices_of_text);
    request->choices_of_text.n_texts = count;
    request->choices_of_text.texts = texts;
    request->constraint.kind_case = BATON__V1__CONSTRAINT__KIND_CHOICE;
    request->constraint.choice = &request->choices_of_text;
}

static void read_schema(const struct openai_fields *fields, struct openai_request *request)
{
    struct openai_fields inside = {NULL, "response_format.json_schema.", fields->refusal};
    const struct json_value *schema = NULL;
    const char *text;
    bool strict; /* ignored: the schema is always enforced */
    if (!openai_field_object(fields, "json_schema", &inside.object)) {
        openai_field_refuse(fields, "json_schema", REASON_MALFORMED, "is missing");
        return;
    }
    openai_field_text(&inside, "name", &text);
    openai_field_text(&inside, "description", &text);
    openai_field_bool(&inside, "strict", &strict);
    if (!openai_field_object(&inside, "schema", &schema))
        openai_field_refuse(&inside, "schema", REASON_MALFORMED, "is missing");
    else
        set_schema(fields, "json_schema", "response_format", schema, request);
}

static void read_response_format(const struct openai_fields *fields, struct openai_request *request)
{
    struct openai_fields inside = {NULL, "response_format.", fields->refusal};
    const char *type;
    if (!openai_field_object(fields, "response_format", &inside.object))
        return;
    if (!openai_field_text(&inside, "type", &type))
        openai_field_refuse(&inside, "type", REASON_MALFORMED, "is missing");
    else if (!strcmp(type, "json_object"))
        set_object(&inside, "type", "response_format", request);
    else if (!strcmp(type, "json_schema"))
        read_schema(&inside, request);
    else if (strcmp(type, "text") != 0)
        openai_field_refuse(&inside, "type", REASON_UNSUPPORTED_PARAMETER,
                            "\"%.40s\" is none of text, json_object, json_schema", type);
}

/* Reads vLLM's names: members of the body (guided_json) or of structured_outputs (json). A schema
 * may be an object or a text. */
static void read_members(const struct openai_fields *fields, bool guided,
                         struct openai_request *request)
{
    const char *json = guided ? "guided_json" : "json",
               *grammar = guided ? "guided_grammar" : "grammar";
    const char *object = guided ? "guided_json_object" : "json_object", *text;
    const struct json_value *schema = openai_field(fields, json);
    bool wanted = false;
    if (schema && json_kind(schema) == JSON_STRING)
        set_text(fields, json, true, request);
    else if (schema)
        set_schema(fields, json, json, schema, request);
    if (openai_field_bool(fields, object, &wanted) && wanted)
        set_object(fields, object, object, request);
    set_text(fields, guided ? "guided_regex" : "regex", false, request);
    set_choice(fields, guided ? "guided_choice" : "choice", request);
    if (openai_field_text(fields, grammar, &text))
        openai_field_refuse(fields, grammar, REASON_UNSUPPORTED_PARAMETER,
                            "grammars are not offered: schemas, expressions and choices are");
    if (openai_field(fields, "structural_tag"))
        openai_field_refuse(fields, "structural_tag", REASON_UNSUPPORTED_PARAMETER, "not offered");
    const char *blanks = guided ? "guided_whitespace_pattern" : "whitespace_pattern";
    if (openai_field(fields, blanks))
        openai_field_refuse(fields, blanks, REASON_UNSUPPORTED_PARAMETER,
                            "white space has one form");
}

void openai_read_format(const struct openai_fields *fields, struct openai_request *request)
{
    struct openai_fields inside = {NULL, "structured_outputs.", fields->refusal};
    read_response_format(fields, request);
    read_members(fields, true, request);
    const Baton__V1__Constraint *before = request->message.constraint;
    if (!openai_field_object(fields, "structured_outputs", &inside.object))
        return;
    read_members(&inside, false, request);
    if (request->message.constraint != before)
        request->constraint_param = "structured_outputs";
}
