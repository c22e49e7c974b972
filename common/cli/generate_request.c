#include "common/cli/generate_request.h"

#include "common/base/assert.h"
#include "common/base/domain/priority.h"
#include "common/base/domain/sampling.h"
#include "common/base/str.h"
#include "common/net/rpc/rpc.h"

#include <assert.h>
#include <string.h>

#define MAX_TOKENS "1048576"
static_assert(SAMPLING_MAX_TOKENS_LIMIT == 1048576, "MAX_TOKENS follows");

#define AT(field) CONFIG_AT(struct generate_settings, field)
static const struct config_setting settings_table[] = {
    {"server", CONFIG_STRING, AT(server), "", .value = "HOST:PORT",
     .help = "gRPC address of the router; empty: the cluster started here last",
     .check = rpc_check_target},
    CREDENTIAL_ROWS(struct generate_settings, credentials),
    /* To `baton up` BATON_MODEL is a folder. */
    {"model", CONFIG_STRING, AT(model), "", .value = "NAME",
     .help = "Name of the model; empty: the only one", .flag_only = true},
    {"prompt-ids", CONFIG_LIST, AT(prompt_ids), .value = "ID,ID,...",
     .help = "Token ids instead of PROMPT, as 1,2,3"},
    /* What sampling may be is said in one place, common/base/domain/sampling.c; of numbers of
     * tokens in the words of settings. */
    {"max-tokens", CONFIG_U64, AT(max_tokens), NULL, "0", MAX_TOKENS, .unit = "tokens",
     .help =
         "Length of the answer at most; left out: 16; 0, with --echo or --prompt-logprobs: none"},
    {"min-tokens", CONFIG_U64, AT(min_tokens), NULL, "0", MAX_TOKENS, .unit = "tokens",
     .help = "The answer can't end before"},
    {"temperature", CONFIG_DOUBLE, AT(temperature), .help = "0 .. 100; 0: greedy"},
    {"top-k", CONFIG_U64, AT(top_k), NULL, "0", .help = "Draw among the k likeliest; 0: off"},
    {"top-p", CONFIG_DOUBLE, AT(top_p),
     .help = "Draw among the likeliest that make up this share, above 0 and up to 1; 1: off"},
    {"min-p", CONFIG_DOUBLE, AT(min_p),
     .help =
         "Draw among those at least this share as likely as the likeliest, from 0 to below 1; 0: "
         "off"},
    {"presence-penalty", CONFIG_DOUBLE, AT(presence_penalty),
     .help = "What tokens of the answer lose of their logits once, -2 .. 2; 0: off"},
    {"frequency-penalty", CONFIG_DOUBLE, AT(frequency_penalty),
     .help = "And for each time that they are in it, -2 .. 2; 0: off"},
    {"repetition-penalty", CONFIG_DOUBLE, AT(repetition_penalty),
     .help =
         "What logits of tokens of prompt and answer are divided by (negative ones: multiplied), "
         "0.01 .. 100; 1: off"},
    {"logit-bias", CONFIG_LIST, AT(logit_bias), .value = "ID:BIAS",
     .help = "Added to a token's logit, -100 .. 100; -100: it can't be drawn"},
    {"choices", CONFIG_U64, AT(n), "1", "1", "16",
     .help = "Answers, each drawn apart (more than 1: with --json)"},
    {"seed", CONFIG_U64, AT(seed), NULL, .help = "The same seed and request give the same answer"},
    {"stop", CONFIG_LIST, AT(stop), .max = "16",
     .help = "End before this text"}, /* as the server */
    {"stop-id", CONFIG_LIST, AT(stop_ids), .value = "ID", .help = "End at this token id"},
    {"ignore-eos", CONFIG_BOOL, AT(ignore_eos), "false",
     .help = "The model's end ids are ordinary tokens"},
    {"priority", CONFIG_ENUM, AT(priority), "normal", .choices = priority_names,
     .help = "Who goes first on the workers; offline takes what the others leave"},
    {"special", CONFIG_BOOL, AT(special), "true",
     .help = "Add the tokenizer's special tokens to PROMPT"},
    {"skip-special", CONFIG_BOOL, AT(skip_special), "true",
     .help = "Leave special tokens out of the text"},
    {"logits-hash", CONFIG_BOOL, AT(logits_hash), "false",
     .help = "Also a hash of each step's logits (with --json)"},
    {"logprobs", CONFIG_U64, AT(logprobs), NULL, "0",
     .help = "Also each token's logprob, and those of the 0 to 20 likeliest (with --json)"},
    {"prompt-logprobs", CONFIG_U64, AT(prompt_logprobs), NULL, "0",
     .help = "The same of the prompt's tokens but the first (with --json)"},
    {"echo", CONFIG_BOOL, AT(echo), "false", .help = "The prompt, before the answer"},
    {"json", CONFIG_BOOL, AT(json), "false",
     .help = "One JSON object at the end instead of the stream"},
    {"request-id", CONFIG_STRING, AT(request_id), "", .help = "Name of the request in all logs"},
    {"timeout", CONFIG_DURATION, AT(timeout_us), "10m", "1ms", "24h", .help = "Deadline"},
};
static void check(const void *settings, struct str *mistakes)
{
    struct error err;
    const struct generate_settings *asked = settings;
    config_mistake(mistakes, call_credentials_check(&asked->credentials, &err), &err);
}

const struct config_program generate_program = {
    .name = "baton generate",
    .summary =
        "Asks the cluster to go on from PROMPT (\"-\": from standard input) and streams the "
        "answer.\n"
        "Then, on standard error: tokens, TTFT, TPOT, the workers and the lane of the KV bytes.",
    .usage = "[PROMPT]",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
    .check = check,
    .max_positionals = 1,
};

static bool given(const struct config_result *result, const char *name)
{
    return config_given(&generate_program, result, name);
}

static void *take(struct arena *arena, size_t bytes)
{
    void *memory = arena_take(arena, bytes);
    ASSERT(memory);
    return memory;
}

/* Ids of all items, each one id or several with commas. */
static enum status parse_ids(const struct config_list *list, const char *flag, struct arena *arena,
                             uint32_t **ids, size_t *count, struct error *err)
{
    size_t capacity = 0;
    for (size_t i = 0; i < list->count; i++)
        capacity += strlen(list->items[i]) / 2 + 1;
    *ids = take(arena, (capacity + 1) * sizeof **ids);
    *count = 0;
    for (size_t i = 0; i < list->count; i++) {
        for (const char *p = list->items[i];;) {
            char number[16];
            uint64_t id;
            size_t length = strcspn(p, ",");
            bool fits = length < sizeof number;
            memcpy(number, p, fits ? length : 0);
            number[fits ? length : 0] = 0;
            if (!fits || !str_to_u64(number, 0, UINT32_MAX, &id))
                return error_set(err, STATUS_INVALID, "%s: '%.*s' is not a token id", flag,
                                 (int)(length < 40 ? length : 40), p);
            (*ids)[(*count)++] = (uint32_t)id;
            if (!p[length])
                break;
            p += length + 1;
        }
    }
    return STATUS_OK;
}

static enum status build_input(const struct generate_settings *settings, const char *prompt,
                               struct arena *arena, Baton__V1__GenerateRequest *request,
                               struct error *err)
{
    if ((prompt != NULL) == (settings->prompt_ids.count > 0))
        return error_set(err, STATUS_INVALID, "give either PROMPT or --prompt-ids");
    if (prompt) {
        request->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        request->text = (char *)prompt;
        request->add_special_tokens_presence_case =
            BATON__V1__GENERATE_REQUEST__ADD_SPECIAL_TOKENS_PRESENCE_ADD_SPECIAL_TOKENS;
        request->add_special_tokens = settings->special;
        return STATUS_OK;
    }
    Baton__V1__TokenIds *ids = take(arena, sizeof *ids);
    baton__v1__token_ids__init(ids);
    request->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    request->token_ids = ids;
    return parse_ids(&settings->prompt_ids, "--prompt-ids", arena, &ids->ids, &ids->n_ids, err);
}

/* Sets field and presence of one sampling scalar if its flag was given. */
#define SET_GIVEN(flag, field, PRESENCE)                                                           \
    do {                                                                                           \
        if (given(result, flag)) {                                                                 \
            sampling->field##_presence_case = BATON__V1__SAMPLING__##PRESENCE;                     \
            sampling->field = settings->field;                                                     \
        }                                                                                          \
    } while (0)

/* No answer; what else is wrong is told behind it. */
static enum status refuse_none(enum status status, struct error *err)
{
    struct error others = {""};
    if (status != STATUS_OK)
        others = *err;
    return error_set(err, STATUS_INVALID,
                     "--max-tokens must be in 1 .. %u, but is '0', which is for --echo or "
                     "--prompt-logprobs, without --min-tokens%s%s",
                     SAMPLING_MAX_TOKENS_LIMIT, *others.text ? "; " : "", others.text);
}

/* As the server will: a mistake is better told before a cluster is looked for. What isn't given
 * takes values that can't be wrong. */
static enum status check_sampling(const struct generate_settings *settings,
                                  const struct config_result *result, struct error *err)
{
    struct sampling sampling = sampling_default();
    bool about_prompt = settings->echo || given(result, "prompt-logprobs");
    if (given(result, "min-tokens"))
        sampling.min_tokens = settings->min_tokens;
    bool asks_for_none = given(result, "max-tokens") && !settings->max_tokens;
    sampling.max_tokens = SAMPLING_MAX_TOKENS_LIMIT;
    if (given(result, "max-tokens") && settings->max_tokens)
        sampling.max_tokens = settings->max_tokens;
    if (given(result, "temperature"))
        sampling.temperature = settings->temperature;
    if (given(result, "top-p"))
        sampling.top_p = settings->top_p;
    if (given(result, "min-p"))
        sampling.min_p = settings->min_p;
    if (given(result, "presence-penalty"))
        sampling.presence_penalty = settings->presence_penalty;
    if (given(result, "frequency-penalty"))
        sampling.frequency_penalty = settings->frequency_penalty;
    if (given(result, "repetition-penalty"))
        sampling.repetition_penalty = settings->repetition_penalty;
    if (given(result, "logprobs"))
        sampling.top_logprobs = settings->logprobs;
    if (given(result, "prompt-logprobs"))
        sampling.top_prompt_logprobs = settings->prompt_logprobs;
    enum status status = sampling_validate(&sampling, err);
    bool may_ask_for_none = about_prompt && !sampling.min_tokens;
    return asks_for_none && !may_ask_for_none ? refuse_none(status, err) : status;
}

/* ID:BIAS; what BIAS may be, and how many of them, the server says. */
static enum status parse_bias(const char *item, Baton__V1__Sampling__LogitBiasEntry *entry,
                              struct error *err)
{
    char number[16];
    uint64_t id;
    size_t length = strcspn(item, ":");
    bool fits = item[length] && length < sizeof number;
    memcpy(number, item, fits ? length : 0);
    number[fits ? length : 0] = 0;
    double bias;
    if (!fits || !str_to_u64(number, 0, UINT32_MAX, &id) ||
        !str_to_double(item + length + 1, -1e30, 1e30, &bias))
        return error_set(err, STATUS_INVALID, "--logit-bias: '%.40s' is not ID:BIAS", item);
    baton__v1__sampling__logit_bias_entry__init(entry);
    entry->key = (uint32_t)id;
    entry->value = (float)bias;
    return STATUS_OK;
}

static enum status build_biases(const struct config_list *list, struct arena *arena,
                                Baton__V1__Sampling *sampling, struct error *err)
{
    sampling->n_logit_bias = list->count;
    sampling->logit_bias = take(arena, (list->count + 1) * sizeof *sampling->logit_bias);
    for (size_t i = 0; i < list->count; i++) {
        sampling->logit_bias[i] = take(arena, sizeof **sampling->logit_bias);
        TRY(parse_bias(list->items[i], sampling->logit_bias[i], err));
    }
    return STATUS_OK;
}

static Baton__V1__Sampling *build_sampling(const struct generate_settings *settings,
                                           const struct config_result *result, struct arena *arena)
{
    Baton__V1__Sampling *sampling = take(arena, sizeof *sampling);
    baton__v1__sampling__init(sampling);
    SET_GIVEN("temperature", temperature, TEMPERATURE_PRESENCE_TEMPERATURE);
    SET_GIVEN("top-k", top_k, TOP_K_PRESENCE_TOP_K);
    SET_GIVEN("top-p", top_p, TOP_P_PRESENCE_TOP_P);
    SET_GIVEN("min-p", min_p, MIN_P_PRESENCE_MIN_P);
    SET_GIVEN("presence-penalty", presence_penalty, PRESENCE_PENALTY_PRESENCE_PRESENCE_PENALTY);
    SET_GIVEN("frequency-penalty", frequency_penalty, FREQUENCY_PENALTY_PRESENCE_FREQUENCY_PENALTY);
    SET_GIVEN("repetition-penalty", repetition_penalty,
              REPETITION_PENALTY_PRESENCE_REPETITION_PENALTY);
    SET_GIVEN("choices", n, N_PRESENCE_N);
    SET_GIVEN("seed", seed, SEED_PRESENCE_SEED);
    SET_GIVEN("max-tokens", max_tokens, MAX_TOKENS_PRESENCE_MAX_TOKENS);
    SET_GIVEN("min-tokens", min_tokens, MIN_TOKENS_PRESENCE_MIN_TOKENS);
    SET_GIVEN("ignore-eos", ignore_eos, IGNORE_EOS_PRESENCE_IGNORE_EOS);
    return sampling;
}

static enum status build_stop(const struct generate_settings *settings, struct arena *arena,
                              Baton__V1__Stop **out, struct error *err)
{
    Baton__V1__Stop *stop = take(arena, sizeof *stop);
    baton__v1__stop__init(stop);
    stop->n_strings = settings->stop.count;
    stop->strings = arena_copy(arena, settings->stop.items,
                               settings->stop.count * sizeof *settings->stop.items);
    TRY(parse_ids(&settings->stop_ids, "--stop-id", arena, &stop->token_ids, &stop->n_token_ids,
                  err));
    *out = stop;
    return STATUS_OK;
}

static Baton__V1__Output *build_output(const struct generate_settings *settings,
                                       const struct config_result *result, struct arena *arena)
{
    Baton__V1__Output *output = take(arena, sizeof *output);
    baton__v1__output__init(output);
    output->return_timing_presence_case = BATON__V1__OUTPUT__RETURN_TIMING_PRESENCE_RETURN_TIMING;
    output->return_timing = true;
    output->return_logits_hash_presence_case =
        BATON__V1__OUTPUT__RETURN_LOGITS_HASH_PRESENCE_RETURN_LOGITS_HASH;
    output->return_logits_hash = settings->logits_hash;
    if (given(result, "logprobs")) {
        output->logprobs_presence_case = BATON__V1__OUTPUT__LOGPROBS_PRESENCE_LOGPROBS;
        output->logprobs = settings->logprobs;
    }
    if (given(result, "prompt-logprobs")) {
        output->prompt_logprobs_presence_case =
            BATON__V1__OUTPUT__PROMPT_LOGPROBS_PRESENCE_PROMPT_LOGPROBS;
        output->prompt_logprobs = settings->prompt_logprobs;
    }
    output->echo_presence_case = BATON__V1__OUTPUT__ECHO_PRESENCE_ECHO;
    output->echo = settings->echo;
    output->skip_special_tokens_presence_case =
        BATON__V1__OUTPUT__SKIP_SPECIAL_TOKENS_PRESENCE_SKIP_SPECIAL_TOKENS;
    output->skip_special_tokens = settings->skip_special;
    return output;
}

enum status generate_request_build(const struct generate_settings *settings,
                                   const struct config_result *result, const char *prompt,
                                   struct arena *arena, Baton__V1__GenerateRequest **out,
                                   struct error *err)
{
    Baton__V1__GenerateRequest *request = take(arena, sizeof *request);
    baton__v1__generate_request__init(request);
    request->model = (char *)settings->model;
    request->request_id = (char *)settings->request_id;
    request->priority = (Baton__V1__Priority)settings->priority;
    if (settings->logits_hash && !settings->json)
        return error_set(err, STATUS_INVALID, "--logits-hash needs --json");
    if ((given(result, "logprobs") || given(result, "prompt-logprobs")) && !settings->json)
        return error_set(err, STATUS_INVALID, "--logprobs and --prompt-logprobs need --json");
    if (settings->n > 1 && !settings->json)
        return error_set(err, STATUS_INVALID, "--choices above 1 need --json");
    TRY(check_sampling(settings, result, err));
    TRY(build_input(settings, prompt, arena, request, err));
    TRY(build_stop(settings, arena, &request->stop, err));
    request->sampling = build_sampling(settings, result, arena);
    TRY(build_biases(&settings->logit_bias, arena, request->sampling, err));
    request->output = build_output(settings, result, arena);
    *out = request;
    return STATUS_OK;
}
