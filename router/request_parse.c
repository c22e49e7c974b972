#include "router/request_parse.h"

#include "proto/proto_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum reason refuse(struct error *err, enum reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum reason refuse(struct error *err, enum reason reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vset(err, STATUS_INVALID, format, args);
    va_end(args);
    return reason;
}

bool request_id_valid(const char *id)
{
    size_t length = strlen(id);
    for (size_t i = 0; i < length; i++)
        if (id[i] <= ' ' || id[i] > '~')
            return false;
    return length <= REQUEST_MAX_ID_BYTES;
}

enum reason request_check_text(const struct request_model *model, struct text text,
                               struct error *err)
{
    if (!model->has_tokenizer)
        return refuse(err, REASON_NO_TOKENIZER,
                      "model \"%s\" has no tokenizer.json: send token ids", model->name);
    uint64_t limit = model->max_text_bytes ? model->max_text_bytes : REQUEST_MAX_TEXT_BYTES;
    if (text.length > limit)
        return refuse(err, REASON_TEXT_TOO_LONG, "text may have at most %" PRIu64 " bytes, got %zu",
                      limit, text.length);
    return REASON_NONE;
}

enum reason request_check_ids(const struct request_model *model, const char *field,
                              const uint32_t *ids, size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= model->vocab)
            return refuse(err, REASON_INVALID_TOKEN_ID,
                          "%s[%zu] is %u, but the model's ids end at %u", field, i, ids[i],
                          model->vocab - 1);
    return REASON_NONE;
}

static enum reason parse_input(const Baton__V1__GenerateRequest *message, const char *ids,
                               const struct request_model *model, struct request_params *params,
                               struct error *err)
{
    switch (message->input_case) {
    case BATON__V1__GENERATE_REQUEST__INPUT_TEXT:
        params->text = proto_text(message->text);
        return request_check_text(model, params->text, err);
    case BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS:
        params->token_ids = message->token_ids->ids;
        params->token_count = message->token_ids->n_ids;
        /* Comes before the check of each id, as there may be many. */
        if (params->token_count > model->context)
            return refuse(err, REASON_CONTEXT_LENGTH_EXCEEDED,
                          "the prompt has %zu tokens, but the model's context is %u",
                          params->token_count, model->context);
        return request_check_ids(model, ids, params->token_ids, params->token_count, err);
    default: return refuse(err, REASON_MISSING_INPUT, "the request has neither text nor token_ids");
    }
}

/* A value of the request comes before the model's default, and that before sampling_default. */
static void parse_sampling(const Baton__V1__Sampling *message,
                           const struct generation_defaults *defaults,
                           struct request_params *params)
{
    struct sampling *sampling = &params->sampling;
    *sampling = sampling_default();
    if (defaults->has_temperature)
        sampling->temperature = defaults->temperature;
    if (defaults->has_top_k)
        sampling->top_k = defaults->top_k;
    if (defaults->has_top_p)
        sampling->top_p = defaults->top_p;
    if (defaults->has_min_p)
        sampling->min_p = defaults->min_p;
    if (!message)
        return;
    if (message->temperature_presence_case)
        sampling->temperature = message->temperature;
    if (message->top_k_presence_case)
        sampling->top_k = message->top_k;
    if (message->top_p_presence_case)
        sampling->top_p = message->top_p;
    if (message->min_p_presence_case)
        sampling->min_p = message->min_p;
    params->seed_given = message->seed_presence_case != 0;
    if (params->seed_given)
        sampling->seed = message->seed;
    if (message->min_tokens_presence_case)
        sampling->min_tokens = message->min_tokens;
    params->max_tokens_given = message->max_tokens_presence_case != 0;
    if (params->max_tokens_given)
        sampling->max_tokens = message->max_tokens;
    else if (sampling->min_tokens > sampling->max_tokens)
        sampling->max_tokens = sampling->min_tokens;
    if (message->ignore_eos_presence_case)
        sampling->ignore_eos = message->ignore_eos;
    if (message->presence_penalty_presence_case)
        sampling->presence_penalty = message->presence_penalty;
    if (message->frequency_penalty_presence_case)
        sampling->frequency_penalty = message->frequency_penalty;
    if (message->repetition_penalty_presence_case)
        sampling->repetition_penalty = message->repetition_penalty;
}

static int by_id(const void *a, const void *b)
{
    const struct logit_bias *one = a, *other = b;
    return (one->id > other->id) - (one->id < other->id);
}

static enum reason parse_biases(const Baton__V1__Sampling *message,
                                const struct request_model *model, struct request_params *params,
                                struct error *err)
{
    size_t count = message ? message->n_logit_bias : 0;
    if (count > SAMPLING_MAX_BIASES)
        return refuse(err, REASON_INVALID_SAMPLING,
                      "logit_bias may name at most %d tokens, got %zu", SAMPLING_MAX_BIASES, count);
    for (size_t i = 0; i < count; i++) {
        const Baton__V1__Sampling__LogitBiasEntry *entry = message->logit_bias[i];
        if (entry->key >= model->vocab)
            return refuse(err, REASON_INVALID_TOKEN_ID,
                          "logit_bias names token %u, but the model's ids end at %u", entry->key,
                          model->vocab - 1);
        params->biases[i] = (struct logit_bias){entry->key, entry->value};
    }
    if (count)
        qsort(params->biases, count, sizeof *params->biases, by_id);
    params->sampling.bias_count = (uint32_t)count;
    params->sampling.biases = params->biases;
    return REASON_NONE;
}

static enum reason parse_stop(const Baton__V1__Stop *message, const struct request_fields *fields,
                              const struct request_model *model, struct request_params *params,
                              struct error *err)
{
    if (!message)
        return REASON_NONE;
    if (message->n_strings > REQUEST_MAX_STOP_STRINGS)
        return refuse(err, REASON_INVALID_STOP, "%s may hold at most %d strings, got %zu",
                      fields->stops, REQUEST_MAX_STOP_STRINGS, message->n_strings);
    if (message->n_token_ids > SAMPLING_MAX_STOP_IDS)
        return refuse(err, REASON_INVALID_STOP, "%s may hold at most %d ids, got %zu",
                      fields->stop_ids, SAMPLING_MAX_STOP_IDS, message->n_token_ids);
    if (message->n_strings && !model->has_tokenizer)
        return refuse(err, REASON_NO_TOKENIZER,
                      "model \"%s\" has no tokenizer.json, so there is no text to stop at",
                      model->name);
    for (size_t i = 0; i < message->n_strings; i++) {
        params->stops[i] = proto_text(message->strings[i]);
        size_t bytes = params->stops[i].length;
        if (!bytes || bytes > REQUEST_MAX_STOP_BYTES)
            return refuse(err, REASON_INVALID_STOP, "%s[%zu] must have 1 to %d bytes, got %zu",
                          fields->stops, i, REQUEST_MAX_STOP_BYTES, bytes);
    }
    params->stop_count = message->n_strings;
    params->sampling.stop_id_count = (uint32_t)message->n_token_ids;
    if (message->n_token_ids)
        memcpy(params->sampling.stop_ids, message->token_ids,
               message->n_token_ids * sizeof *message->token_ids);
    return request_check_ids(model, fields->stop_ids, message->token_ids, message->n_token_ids,
                             err);
}

static void parse_output(const Baton__V1__Output *message, struct request_params *params)
{
    params->return_token_ids = params->skip_special_tokens = true;
    if (!message)
        return;
    if (message->return_token_ids_presence_case)
        params->return_token_ids = message->return_token_ids;
    if (message->skip_special_tokens_presence_case)
        params->skip_special_tokens = message->skip_special_tokens;
    if (message->return_timing_presence_case)
        params->return_timing = message->return_timing;
    if (message->return_logits_hash_presence_case)
        params->return_logits_hash = message->return_logits_hash;
    params->sampling.logprobs = message->logprobs_presence_case != 0;
    if (params->sampling.logprobs)
        params->sampling.top_logprobs = message->logprobs;
    params->sampling.prompt_logprobs = message->prompt_logprobs_presence_case != 0;
    if (params->sampling.prompt_logprobs)
        params->sampling.top_prompt_logprobs = message->prompt_logprobs;
    params->sampling.prompt_logprobs_from = 1;
    if (message->echo_presence_case)
        params->echo = message->echo;
}

/* max_tokens 0 without output about the prompt is left to sampling_validate, which refuses it. */
bool request_prompt_only(const Baton__V1__GenerateRequest *message)
{
    const Baton__V1__Sampling *sampling = message->sampling;
    const Baton__V1__Output *output = message->output;
    if (!sampling || !sampling->max_tokens_presence_case || sampling->max_tokens ||
        (sampling->min_tokens_presence_case && sampling->min_tokens))
        return false;
    return output &&
           (output->prompt_logprobs_presence_case || (output->echo_presence_case && output->echo));
}

/* The dropped token of prompt_only is drawn greedily. With the client's values it could end, wait
 * or fail. */
static void draw_plainly(struct sampling *sampling)
{
    struct sampling plain = sampling_default();
    plain.temperature = 0;
    plain.max_tokens = 1;
    plain.seed = sampling->seed; /* the answer shows it */
    plain.prompt_logprobs = sampling->prompt_logprobs;
    plain.top_prompt_logprobs = sampling->top_prompt_logprobs;
    plain.prompt_logprobs_from = sampling->prompt_logprobs_from;
    *sampling = plain;
}

enum reason request_take_class(Baton__V1__GenerateRequest *message, const char *header,
                               size_t count, struct error *err)
{
    if (count > 1)
        return refuse(err, REASON_MALFORMED, "there is more than one '" REQUEST_SLO_CLASS "'");
    if (!header || !*header || !strcmp(header, message->slo_class))
        return REASON_NONE;
    if (*message->slo_class)
        return refuse(err, REASON_SLO_CLASS_CONFLICT,
                      "slo_class is \"%.40s\", but " REQUEST_SLO_CLASS " is \"%.40s\": send one of "
                      "them",
                      message->slo_class, header);
    message->slo_class = (char *)header; /* the message is only read */
    return REASON_NONE;
}

static enum reason refuse_class(const char *name, const struct slo_classes *slo, struct error *err)
{
    struct str names;
    if (!slo || !slo->count)
        return refuse(err, REASON_SLO_CLASS_UNKNOWN,
                      "slo_class \"%.40s\": this router has no SLO classes", name);
    str_init(&names, 400);
    slo_add_names(slo, &names);
    refuse(err, REASON_SLO_CLASS_UNKNOWN, "slo_class \"%.40s\" is none of the router's: %s%s", name,
           names.data, names.truncated ? "..." : "");
    str_deinit(&names);
    return REASON_SLO_CLASS_UNKNOWN;
}

/* Reads the class, its objective as the request loosens it, and the priority. */
static enum reason parse_class(const Baton__V1__GenerateRequest *message,
                               const struct slo_classes *slo, struct request_params *params,
                               struct error *err)
{
    const Baton__V1__SloObjective *asked = message->slo_objective;
    params->slo_class = slo ? slo_choose(slo, message->slo_class) : SLO_NONE;
    if (*message->slo_class && params->slo_class == SLO_NONE)
        return refuse_class(message->slo_class, slo, err);
    const struct slo_class *class =
        params->slo_class == SLO_NONE ? NULL : &slo->items[params->slo_class];
    params->objective = class ? class->objective : (struct slo_objective){0};
    params->priority = class ? class->priority : PRIORITY_NORMAL;
    struct slo_objective wanted = {0};
    if (asked)
        wanted = (struct slo_objective){.ttft_us = asked->ttft_us,
                                        .tpot_us = asked->tpot_us,
                                        .itl_us = asked->itl_us,
                                        .e2e_us = asked->e2e_us};
    enum status status = slo_loosen(&params->objective, &wanted, err);
    if (status != STATUS_OK)
        return status == STATUS_LIMIT ? REASON_MALFORMED : REASON_SLO_TIGHTENED;
    if (!message->priority_presence_case)
        return REASON_NONE;
    if ((uint32_t)message->priority >= PRIORITIES)
        return refuse(err, REASON_INVALID_PRIORITY,
                      "priority must be 0 (normal), 1 (high) or 2 (offline), got %d",
                      (int)message->priority);
    params->priority = (enum priority)message->priority;
    return REASON_NONE;
}

const struct request_fields request_fields_grpc = {
    .ids = "token_ids", .stops = "stop.strings", .stop_ids = "stop.token_ids"};

enum reason request_parse(const Baton__V1__GenerateRequest *message,
                          const struct request_fields *fields, const struct request_model *model,
                          struct request_params *out, struct error *err)
{
    struct request_params params = {.add_special_tokens = true};
    if (!request_id_valid(message->request_id))
        return refuse(err, REASON_INVALID_REQUEST_ID,
                      "request_id must be at most %d bytes of printable ASCII without blanks",
                      REQUEST_MAX_ID_BYTES);
    str_copy(params.id, sizeof params.id, message->request_id);
    if (message->add_special_tokens_presence_case)
        params.add_special_tokens = message->add_special_tokens;
    parse_sampling(message->sampling, &model->defaults, &params);
    parse_output(message->output, &params);
    params.prompt_only = request_prompt_only(message);
    if (params.prompt_only)
        params.sampling.max_tokens = 1; /* to compute a prompt, a worker draws the next token */

    enum reason reason = parse_input(message, fields->ids, model, &params, err);
    if (!reason)
        reason = parse_stop(message->stop, fields, model, &params, err);
    const Baton__V1__Sampling *sampling = message->sampling;
    params.choices = sampling && sampling->n_presence_case ? sampling->n : 1;
    if (!reason && (params.choices < 1 || params.choices > REQUEST_MAX_CHOICES))
        reason = refuse(err, REASON_INVALID_SAMPLING, "n must be between 1 and %d, got %u",
                        REQUEST_MAX_CHOICES, params.choices);
    if (!reason)
        reason = parse_biases(sampling, model, &params, err);
    if (!reason)
        reason = parse_class(message, model->slo, &params, err);
    if (!reason && sampling_validate(&params.sampling, err) != STATUS_OK)
        reason = REASON_INVALID_SAMPLING;
    if (!reason && params.prompt_only)
        draw_plainly(&params.sampling);
    if (!reason) {
        *out = params;
        out->sampling.biases = out->biases;
    }
    return reason;
}

uint32_t request_choices(const Baton__V1__GenerateRequest *message)
{
    const Baton__V1__Sampling *sampling = message->sampling;
    uint32_t asked = sampling && sampling->n_presence_case ? sampling->n : 1;
    return asked < 1 ? 1 : asked > REQUEST_MAX_CHOICES ? REQUEST_MAX_CHOICES : asked;
}

enum reason request_fit(const struct request_model *model, size_t prompt_tokens,
                        struct request_params *params, struct error *err)
{
    struct sampling *sampling = &params->sampling;
    if (!prompt_tokens)
        return refuse(err, REASON_EMPTY_PROMPT, "the prompt has no tokens");
    size_t room = prompt_tokens < model->context ? model->context - prompt_tokens : 0;
    if (!params->max_tokens_given && room && sampling->min_tokens <= room)
        return REASON_NONE; /* the context ends the answer */
    if (params->prompt_only && !room)
        return refuse(
            err, REASON_CONTEXT_LENGTH_EXCEEDED,
            "the prompt has %zu token%s, and to compute it takes room for 1 more, but the "
            "model's context is %u",
            prompt_tokens, prompt_tokens == 1 ? "" : "s", model->context);
    if (sampling->max_tokens > room)
        return refuse(err, REASON_CONTEXT_LENGTH_EXCEEDED,
                      "the prompt has %zu token%s and max_tokens is %u, together %zu, but the "
                      "model's context is %u",
                      prompt_tokens, prompt_tokens == 1 ? "" : "s", sampling->max_tokens,
                      prompt_tokens + sampling->max_tokens, model->context);
    return REASON_NONE;
}

uint64_t request_most_tokens(const struct request_model *model, size_t prompt_tokens,
                             const struct request_params *params)
{
    uint64_t room = model->context - prompt_tokens;
    uint64_t most = params->prompt_only ? 0 : params->sampling.max_tokens;
    return prompt_tokens + params->choices * (most < room ? most : room);
}

enum reason request_fit_once(size_t prompt_tokens, const struct request_params *params,
                             struct error *err)
{
    if (!params->sampling.prompt_logprobs || prompt_tokens <= REQUEST_MAX_ONCE_SCORED)
        return REASON_NONE;
    return refuse(err, REASON_ANSWER_TOO_LARGE,
                  "prompt_logprobs of %zu tokens in one message, at most of %d: use Generate",
                  prompt_tokens, REQUEST_MAX_ONCE_SCORED);
}
