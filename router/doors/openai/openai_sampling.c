#include "common/base/domain/logprobs.h"
#include "common/base/str.h"
#include "router/doors/openai/openai_request_parts.h"

static void read_floats(const struct openai_fields *fields, Baton__V1__Sampling *sampling)
{
    if (openai_field_float(fields, "temperature", &sampling->temperature))
        sampling->temperature_presence_case = BATON__V1__SAMPLING__TEMPERATURE_PRESENCE_TEMPERATURE;
    if (openai_field_float(fields, "top_p", &sampling->top_p))
        sampling->top_p_presence_case = BATON__V1__SAMPLING__TOP_P_PRESENCE_TOP_P;
    if (openai_field_float(fields, "min_p", &sampling->min_p))
        sampling->min_p_presence_case = BATON__V1__SAMPLING__MIN_P_PRESENCE_MIN_P;
}

/* Any integer of 64 bits, signed or not. */
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

/* 0, of a completion: only the prompt. Whether it may be is for request_parse to say. */
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

/* The later name wins, as with OpenAI, whatever the other says. request_parse knows the earlier one
 * only. */
static void read_max_tokens(const struct openai_fields *fields, enum openai_kind kind,
                            Baton__V1__Sampling *sampling)
{
    bool completion = kind == OPENAI_COMPLETION, echo = false;
    if (completion)
        openai_field_bool(fields, "echo", &echo);
    read_most(fields, "max_tokens", completion, sampling);
    read_most(fields, "max_completion_tokens", completion && echo, sampling);
}

static void read_integers(const struct openai_fields *fields, enum openai_kind kind,
                          Baton__V1__Sampling *sampling)
{
    int64_t top_k;
    if (openai_field_integer(fields, "top_k", INT32_MIN, UINT32_MAX, &top_k)) {
        sampling->top_k = top_k > 0 ? (uint32_t)top_k : 0; /* -1 is off, too */
        sampling->top_k_presence_case = BATON__V1__SAMPLING__TOP_K_PRESENCE_TOP_K;
    }
    read_max_tokens(fields, kind, sampling);
    if (openai_field_range(fields, "min_tokens", 0, SAMPLING_MAX_TOKENS_LIMIT,
                           &sampling->min_tokens))
        sampling->min_tokens_presence_case = BATON__V1__SAMPLING__MIN_TOKENS_PRESENCE_MIN_TOKENS;
    bool flag;
    if (openai_field_bool(fields, "ignore_eos", &flag)) {
        sampling->ignore_eos = flag;
        sampling->ignore_eos_presence_case = BATON__V1__SAMPLING__IGNORE_EOS_PRESENCE_IGNORE_EOS;
    }
    read_seed(fields, sampling);
}

/* One text, or a list; nulls in it stop nothing. request_parse refuses "", as vLLM does. */
static void read_stop_strings(const struct openai_fields *fields, struct openai_request *request)
{
    const struct json_value *value = openai_field(fields, "stop");
    size_t count = json_kind(value) == JSON_ARRAY ? json_count(value) : 1;
    if (!value)
        return;
    char **strings = arena_take(&request->arena, (count + 1) * sizeof *strings);
    for (size_t i = 0; strings && i < count; i++) {
        const struct json_value *one = json_kind(value) == JSON_ARRAY ? json_at(value, i) : value;
        struct error why;
        const char *text;
        if (!one)
            continue;
        if (json_as_string(one, &text, NULL, &why) != STATUS_OK) {
            openai_field_refuse(fields, "stop", REASON_INVALID_STOP, "[%zu]: %s", i, why.text);
            return;
        }
        strings[request->stop.n_strings++] = (char *)text;
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

/* How many of the likeliest. */
static bool read_top(const struct openai_fields *fields, const char *key, uint32_t *count)
{
    return openai_field_range(fields, key, 0, LOGPROBS_MAX_TOP, count);
}

/* A completion says how many, a chat whether, and how many. */
static void read_logprobs(const struct openai_fields *fields, struct openai_request *request)
{
    if (request->kind == OPENAI_COMPLETION) {
        request->logprobs = read_top(fields, "logprobs", &request->top_logprobs);
        return;
    }
    openai_field_bool(fields, "logprobs", &request->logprobs);
    if (read_top(fields, "top_logprobs", &request->top_logprobs) && request->top_logprobs &&
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

/* One member of logit_bias: ids are strings in JSON. */
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

/* Logprobs are told with what their tokens are as text, so the ids are needed. */
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
    read_floats(fields, &request->sampling);
    read_integers(fields, request->kind, &request->sampling);
    read_penalties(fields, &request->sampling);
    read_biases(fields, request);
    read_stop_strings(fields, request);
    read_stop_ids(fields, request);
    read_output(fields, request);
    read_choices(fields, request);
    read_logprobs(fields, request);
    ask_for_output(request);
}
