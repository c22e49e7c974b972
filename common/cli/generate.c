#include "common/cli/generate.h"

#include "common/base/assert.h"
#include "common/base/domain/priority.h"
#include "common/base/domain/sampling.h"
#include "common/base/json/json_quote.h"
#include "common/base/str.h"
#include "common/net/rpc/rpc.h"
#include "proto/proto_text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define MAX_PART_BYTES (32u << 20) /* one part of an answer */
#define MAX_TOKENS     "1048576"
static_assert(SAMPLING_MAX_TOKENS_LIMIT == 1048576, "MAX_TOKENS is this limit");

#define AT(field) CONFIG_AT(struct generate_settings, field)
static const struct config_setting settings_table[] = {
    {"server", CONFIG_STRING, AT(server), "", .value = "HOST:PORT",
     .help = "gRPC address of the router; empty: the cluster started here last",
     .check = rpc_check_target},
    CREDENTIAL_ROWS(struct generate_settings, credentials),
    /* No variable: `baton up` takes BATON_MODEL for a folder. */
    {"model", CONFIG_STRING, AT(model), "", .value = "NAME",
     .help = "Name of the model; empty: the only one", .flag_only = true},
    {"prompt-ids", CONFIG_LIST, AT(prompt_ids), .value = "ID,ID,...",
     .help = "Token ids instead of PROMPT, as 1,2,3"},
    /* common/base/domain/sampling.c has the limits of sampling, except for numbers of tokens. */
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
     .help = "Taken once from the logits of the answer's tokens, -2 .. 2; 0: off"},
    {"frequency-penalty", CONFIG_DOUBLE, AT(frequency_penalty),
     .help = "Taken from them for each time that they occur, -2 .. 2; 0: off"},
    {"repetition-penalty", CONFIG_DOUBLE, AT(repetition_penalty),
     .help = "Divides the logits of tokens in prompt and answer (multiplies negative ones), "
             "0.01 .. 100; 1: off"},
    {"logit-bias", CONFIG_LIST, AT(logit_bias), .value = "ID:BIAS",
     .help = "Added to a token's logit, -100 .. 100; -100: it can't be drawn"},
    {"choices", CONFIG_U64, AT(n), "1", "1", "16",
     .help = "Answers, each drawn apart (more than 1: with --json)"},
    {"seed", CONFIG_U64, AT(seed), NULL, .help = "The same seed and request give the same answer"},
    {"stop", CONFIG_LIST, AT(stop), .max = "16", /* the server's limit */
     .help = "End before this text"},
    {"stop-id", CONFIG_LIST, AT(stop_ids), .value = "ID", .help = "End at this token id"},
    {"ignore-eos", CONFIG_BOOL, AT(ignore_eos), "false",
     .help = "The model's end ids are ordinary tokens"},
    {"priority", CONFIG_ENUM, AT(priority), "normal", .choices = priority_names,
     .help =
         "Order on the workers; offline requests get the room that others leave. Not given: its "
         "SLO class's"},
    {"slo-class", CONFIG_STRING, AT(slo_class), "", .value = "NAME",
     .help = "SLO class, one of the router's; empty: the router's default", .flag_only = true},
    {"special", CONFIG_BOOL, AT(special), "true",
     .help = "Add the tokenizer's special tokens to PROMPT"},
    {"skip-special", CONFIG_BOOL, AT(skip_special), "true",
     .help = "Leave special tokens out of the text"},
    {"logits-hash", CONFIG_BOOL, AT(logits_hash), "false",
     .help = "Also a hash of each step's logits (with --json)"},
    {"logprobs", CONFIG_U64, AT(logprobs), NULL, "0",
     .help = "Also each token's logprob, and those of the 0 to 20 likeliest (with --json)"},
    {"prompt-logprobs", CONFIG_U64, AT(prompt_logprobs), NULL, "0",
     .help = "The same for the prompt's tokens except the first (with --json)"},
    {"echo", CONFIG_BOOL, AT(echo), "false", .help = "The prompt, before the answer"},
    {"json", CONFIG_BOOL, AT(json), "false",
     .help = "One JSON object at the end instead of the stream"},
    {"request-id", CONFIG_STRING, AT(request_id), "",
     .help =
         "Name of the request in all logs, for baton trace and explain; empty: a new one, which "
         "--json shows"},
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

/* Parses the ids of all items; an item is one id, or several with commas. */
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

static enum status build_input(const struct generate_settings *settings, struct text prompt,
                               struct arena *arena, Baton__V1__GenerateRequest *request,
                               struct error *err)
{
    if ((prompt.bytes != NULL) == (settings->prompt_ids.count > 0))
        return error_set(err, STATUS_INVALID, "give either PROMPT or --prompt-ids");
    if (prompt.bytes) {
        request->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        request->text = proto_bytes(prompt);
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

/* Checks sampling like the server, before a cluster is looked for. Settings that weren't given keep
 * valid values. */
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
    if (!asks_for_none || (about_prompt && !sampling.min_tokens))
        return status;
    struct error others = {""};
    if (status != STATUS_OK)
        others = *err;
    return error_set(err, STATUS_INVALID,
                     "--max-tokens must be in 1 .. %u, but is '0', which is for --echo or "
                     "--prompt-logprobs, without --min-tokens%s%s",
                     SAMPLING_MAX_TOKENS_LIMIT, *others.text ? "; " : "", others.text);
}

/* Parses ID:BIAS. The server checks the bias, and the number of them. */
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
    stop->strings = take(arena, (settings->stop.count + 1) * sizeof *stop->strings);
    for (size_t i = 0; i < settings->stop.count; i++)
        stop->strings[i] = proto_bytes(text_from(settings->stop.items[i]));
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
                                   const struct config_result *result, struct text prompt,
                                   struct arena *arena, Baton__V1__GenerateRequest **out,
                                   struct error *err)
{
    Baton__V1__GenerateRequest *request = take(arena, sizeof *request);
    baton__v1__generate_request__init(request);
    request->model = (char *)settings->model;
    request->request_id = (char *)settings->request_id;
    request->slo_class = (char *)settings->slo_class;
    if (given(result, "priority")) {
        request->priority_presence_case = BATON__V1__GENERATE_REQUEST__PRIORITY_PRESENCE_PRIORITY;
        request->priority = (Baton__V1__Priority)settings->priority;
    }
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
    const struct config_list *biases = &settings->logit_bias;
    Baton__V1__Sampling *sampling = request->sampling;
    sampling->n_logit_bias = biases->count;
    sampling->logit_bias = take(arena, (biases->count + 1) * sizeof *sampling->logit_bias);
    for (size_t i = 0; i < biases->count; i++) {
        sampling->logit_bias[i] = take(arena, sizeof **sampling->logit_bias);
        TRY(parse_bias(biases->items[i], sampling->logit_bias[i], err));
    }
    request->output = build_output(settings, result, arena);
    *out = request;
    return STATUS_OK;
}

/* --- the answer --- */

void generate_answer_init(struct generate_answer *answer)
{
    *answer = (struct generate_answer){0};
    str_init(&answer->text, MAX_PART_BYTES);
    str_init(&answer->matched, MAX_PART_BYTES);
    str_init(&answer->token_ids, MAX_PART_BYTES);
    str_init(&answer->logits_hashes, MAX_PART_BYTES);
    str_init(&answer->logprobs, MAX_PART_BYTES);
    str_init(&answer->prompt_logprobs, MAX_PART_BYTES);
    for (int i = 0; i < GENERATE_MAX_OTHERS; i++) {
        str_init(&answer->others[i].text, MAX_PART_BYTES);
        str_init(&answer->others[i].token_ids, MAX_PART_BYTES);
    }
}

void generate_answer_deinit(struct generate_answer *answer)
{
    str_deinit(&answer->text);
    str_deinit(&answer->matched);
    str_deinit(&answer->token_ids);
    str_deinit(&answer->logits_hashes);
    str_deinit(&answer->logprobs);
    str_deinit(&answer->prompt_logprobs);
    for (int i = 0; i < GENERATE_MAX_OTHERS; i++) {
        str_deinit(&answer->others[i].text);
        str_deinit(&answer->others[i].token_ids);
    }
}

static void add_logprobs(struct str *out, const Baton__V1__Logprobs *logprobs)
{
    str_addf(out, "%s{\"drawn\": %.9g, \"top\": [", out->length ? ", " : "",
             (double)logprobs->drawn);
    for (size_t i = 0; i < logprobs->n_top_ids && i < logprobs->n_top; i++)
        str_addf(out, "%s[%" PRIu32 ", %.9g]", i ? ", " : "", logprobs->top_ids[i],
                 (double)logprobs->top[i]);
    str_add(out, "]}");
}

/* Returns choice `choice` (from 1 on). NULL: it is over the limit. */
static struct generate_choice *other_of(struct generate_answer *answer, uint32_t choice)
{
    if (choice > GENERATE_MAX_OTHERS)
        return NULL;
    if (choice > answer->other_count)
        answer->other_count = choice;
    return &answer->others[choice - 1];
}

static void add_proto(struct str *out, ProtobufCBinaryData field)
{
    str_append(out, field.data, field.len);
}

static enum status take_other(struct generate_answer *answer, const Baton__V1__Delta *delta,
                              struct error *err)
{
    struct generate_choice *other = other_of(answer, delta->choice);
    if (!other)
        return error_set(err, STATUS_INTERNAL, "a part of choice %u came", delta->choice);
    add_proto(&other->text, delta->text);
    for (size_t i = 0; i < delta->n_token_ids; i++)
        str_addf(&other->token_ids, "%s%" PRIu32, other->tokens++ ? ", " : "", delta->token_ids[i]);
    if (other->text.truncated || other->token_ids.truncated)
        return error_set(err, STATUS_LIMIT, "choice %u is too long to keep", delta->choice);
    return STATUS_OK;
}

static enum status take_delta(struct generate_answer *answer, const Baton__V1__Delta *delta,
                              struct error *err)
{
    if (delta->choice)
        return take_other(answer, delta, err);
    if (delta->n_token_ids && delta->first_index != answer->tokens)
        return error_set(err, STATUS_INTERNAL, "token %u came where token %u was due",
                         delta->first_index, answer->tokens);
    add_proto(&answer->text, delta->text);
    for (size_t i = 0; i < delta->n_token_ids; i++)
        str_addf(&answer->token_ids, "%s%" PRIu32, answer->tokens++ ? ", " : "",
                 delta->token_ids[i]);
    for (size_t i = 0; i < delta->n_logits_hashes; i++)
        str_addf(&answer->logits_hashes, "%s\"%016" PRIx64 "\"",
                 answer->logits_hashes.length ? ", " : "", delta->logits_hashes[i]);
    for (size_t i = 0; i < delta->n_logprobs; i++)
        add_logprobs(&answer->logprobs, delta->logprobs[i]);
    if (answer->text.truncated || answer->token_ids.truncated || answer->logits_hashes.truncated ||
        answer->logprobs.truncated || answer->prompt_logprobs.truncated)
        return error_set(err, STATUS_LIMIT, "the answer is too long to keep");
    return STATUS_OK;
}

static void take_finished(struct generate_answer *answer, const Baton__V1__Finished *finished)
{
    if (finished->choice) {
        struct generate_choice *other = other_of(answer, finished->choice);
        if (other)
            other->reason = finished->reason;
        return;
    }
    answer->finished = true;
    answer->reason = finished->reason;
    str_clear(&answer->matched);
    if (finished->matched_case == BATON__V1__FINISHED__MATCHED_STOP_STRING)
        add_proto(&answer->matched, finished->stop_string);
    else if (finished->matched_case == BATON__V1__FINISHED__MATCHED_STOP_TOKEN)
        str_addf(&answer->matched, "%" PRIu32, finished->stop_token);
}

static void take_timing(struct generate_answer *answer, const Baton__V1__Timing *timing)
{
    answer->timed = true;
    answer->queue_us = (double)timing->queue_us;
    answer->ttft_us = (double)timing->ttft_us;
    answer->total_us = (double)timing->total_us;
    answer->tpot_us = timing->tpot_us;
    answer->token_1_to_2_us = (double)timing->token_1_to_2_us;
    str_copy(answer->prefill_worker, sizeof answer->prefill_worker, timing->prefill_worker);
    str_copy(answer->decode_worker, sizeof answer->decode_worker, timing->decode_worker);
    str_copy(answer->lane, sizeof answer->lane, timing->lane);
    answer->kv_bytes = timing->kv_bytes;
    answer->kv_bytes_before_complete = timing->kv_bytes_before_complete;
    answer->prefills = timing->prefills;
    answer->seed = timing->seed;
}

enum status generate_answer_take(struct generate_answer *answer,
                                 const Baton__V1__GenerateResponse *message, struct error *err)
{
    switch (message->event_case) {
    case BATON__V1__GENERATE_RESPONSE__EVENT_DELTA: return take_delta(answer, message->delta, err);
    case BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT:
        add_proto(&answer->text, message->prompt->text);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT_LOGPROBS:
        for (size_t i = 0; i < message->prompt_logprobs->n_logprobs; i++)
            add_logprobs(&answer->prompt_logprobs, message->prompt_logprobs->logprobs[i]);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED:
        take_finished(answer, message->finished);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_USAGE:
        answer->prompt_tokens = message->usage->prompt_tokens;
        answer->completion_tokens = message->usage->completion_tokens;
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_TIMING: take_timing(answer, message->timing); break;
    default: break; /* a newer server's */
    }
    return STATUS_OK;
}

static void add_text(struct str *out, const char *key, const char *value, size_t length)
{
    str_addf(out, ", \"%s\": ", key);
    json_quote(out, value, length);
}

static void add_others(struct str *out, const struct generate_answer *answer)
{
    str_add(out, ", \"others\": [");
    for (uint32_t i = 0; i < answer->other_count; i++) {
        const struct generate_choice *other = &answer->others[i];
        const char *reason = finish_reason_name((enum finish_reason)other->reason);
        str_addf(out, "%s{\"token_ids\": [%s]", i ? ", " : "", other->token_ids.data);
        add_text(out, "text", other->text.data, other->text.length);
        add_text(out, "finish_reason", reason, strlen(reason));
        str_add(out, "}");
    }
    str_add(out, "]");
}

void generate_answer_json(const struct generate_answer *answer, struct str *out)
{
    str_add(out, "{\"text\": ");
    json_quote(out, answer->text.data, answer->text.length);
    if (answer->request_id)
        add_text(out, "request_id", answer->request_id, strlen(answer->request_id));
    str_addf(out, ", \"token_ids\": [%s]", answer->token_ids.data);
    const char *reason = finish_reason_name((enum finish_reason)answer->reason);
    add_text(out, "finish_reason", reason, strlen(reason));
    add_text(out, "matched", answer->matched.data, answer->matched.length);
    str_addf(out, ", \"logits_hashes\": [%s]", answer->logits_hashes.data);
    if (answer->logprobs.length)
        str_addf(out, ", \"logprobs\": [%s]", answer->logprobs.data);
    if (answer->other_count)
        add_others(out, answer);
    if (answer->prompt_logprobs.length)
        str_addf(out, ", \"prompt_logprobs\": [%s]", answer->prompt_logprobs.data);
    str_addf(out, ", \"ttft_ms\": %.3f, \"tpot_ms\": %.3f, \"total_ms\": %.3f, \"queue_ms\": %.3f",
             answer->ttft_us * 1e-3, answer->tpot_us * 1e-3, answer->total_us * 1e-3,
             answer->queue_us * 1e-3);
    str_addf(out, ", \"token_1_to_2_ms\": %.3f", answer->token_1_to_2_us * 1e-3);
    add_text(out, "prefill_worker", answer->prefill_worker, strlen(answer->prefill_worker));
    add_text(out, "decode_worker", answer->decode_worker, strlen(answer->decode_worker));
    add_text(out, "lane", answer->lane, strlen(answer->lane));
    str_addf(out, ", \"kv_bytes\": %" PRIu64 ", \"kv_bytes_before_complete\": %" PRIu64,
             answer->kv_bytes, answer->kv_bytes_before_complete);
    str_addf(out, ", \"prefills\": %" PRIu32 ", \"seed\": %" PRIu64, answer->prefills,
             answer->seed);
    str_addf(out,
             ", \"usage\": {\"prompt_tokens\": %" PRIu32 ", \"completion_tokens\": %" PRIu32 "}}\n",
             answer->prompt_tokens, answer->completion_tokens);
}

void generate_answer_figures(const struct generate_answer *answer, struct str *out)
{
    str_addf(out, "%" PRIu32 " + %" PRIu32 " tokens (%s)", answer->prompt_tokens,
             answer->completion_tokens, finish_reason_name((enum finish_reason)answer->reason));
    if (!answer->timed)
        return;
    str_addf(out, ", TTFT %.1f ms", answer->ttft_us * 1e-3);
    if (answer->completion_tokens > 1)
        str_addf(out, ", TPOT %.2f ms", answer->tpot_us * 1e-3);
    const char *between = *answer->prefill_worker && *answer->decode_worker ? " -> " : "";
    str_addf(out, ", %s%s%s", answer->prefill_worker, between, answer->decode_worker);
    if (*answer->lane)
        str_addf(out, " over %s (%.1f KiB of KV)", answer->lane, (double)answer->kv_bytes / 1024);
    if (answer->prefills > 1)
        str_addf(out, ", %" PRIu32 " prefills", answer->prefills);
}
