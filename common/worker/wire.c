#include "common/worker/wire.h"

#include "common/base/str.h"
#include "common/language/constrain/constraint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SALT_BYTES 256

static_assert((int)PRIORITY_HIGH == (int)BATON__WORKER__V1__PRIORITY__PRIORITY_HIGH &&
                  (int)PRIORITY_OFFLINE == (int)BATON__WORKER__V1__PRIORITY__PRIORITY_OFFLINE,
              "enum priority has the protocol's numbers");

static enum status check_ids(const uint32_t *ids, size_t count, uint32_t vocab, struct error *err)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= vocab)
            return error_set(err, STATUS_INVALID,
                             "token id %u at position %zu is not below the vocabulary's %u", ids[i],
                             i, vocab);
    return STATUS_OK;
}

/* On success its biases are malloc'ed. */
static enum status read_biases(const Baton__Worker__V1__Sampling *in, uint32_t vocab,
                               struct sampling *out, struct error *err)
{
    if (in->n_bias_ids > SAMPLING_MAX_BIASES || in->n_bias_ids != in->n_biases)
        return error_set(err, STATUS_INVALID, "at most %d biases, one an id, got %zu ids and %zu",
                         SAMPLING_MAX_BIASES, in->n_bias_ids, in->n_biases);
    TRY(check_ids(in->bias_ids, in->n_bias_ids, vocab, err));
    if (!in->n_bias_ids)
        return STATUS_OK;
    struct logit_bias *biases = malloc(in->n_bias_ids * sizeof *biases);
    if (!biases)
        return error_set(err, STATUS_LIMIT, "out of memory for %zu biases", in->n_bias_ids);
    for (size_t i = 0; i < in->n_bias_ids; i++)
        biases[i] = (struct logit_bias){in->bias_ids[i], in->biases[i]};
    out->bias_count = (uint32_t)in->n_bias_ids;
    out->biases = biases;
    return STATUS_OK;
}

static enum status read_sampling(const Baton__Worker__V1__Sampling *in, uint32_t vocab,
                                 struct sampling *out, struct error *err)
{
    if (!in)
        return error_set(err, STATUS_INVALID, "the command has no sampling");
    if (in->n_stop_ids > SAMPLING_MAX_STOP_IDS)
        return error_set(err, STATUS_INVALID, "at most %d stop ids, got %zu", SAMPLING_MAX_STOP_IDS,
                         in->n_stop_ids);
    *out = (struct sampling){
        .temperature = in->temperature,
        .top_k = in->top_k,
        .top_p = in->top_p,
        .min_p = in->min_p,
        .presence_penalty = in->presence_penalty,
        .frequency_penalty = in->frequency_penalty,
        .repetition_penalty = in->repetition_penalty != 0 ? in->repetition_penalty : 1.0f,
        .seed = in->seed,
        .choice = in->choice,
        .max_tokens = in->max_tokens,
        .min_tokens = in->min_tokens,
        .ignore_eos = in->ignore_eos,
        .logits_hash = in->logits_hash,
        .logprobs = in->logprobs,
        .top_logprobs = in->top_logprobs,
        .prompt_logprobs = in->prompt_logprobs,
        .top_prompt_logprobs = in->top_prompt_logprobs,
        .prompt_logprobs_from = in->prompt_logprobs_from,
        .stop_id_count = (uint32_t)in->n_stop_ids,
    };
    if (in->n_stop_ids)
        memcpy(out->stop_ids, in->stop_ids, in->n_stop_ids * sizeof *out->stop_ids);
    TRY(read_biases(in, vocab, out, err));
    enum status status = sampling_validate(out, err);
    if (status != STATUS_OK)
        free((void *)out->biases);
    return status;
}

/* On success *out is malloc'ed, or NULL where there is none. */
static enum status read_constraint(const Baton__Worker__V1__Constraint *in,
                                   struct constraint_source **out, struct error *err)
{
    *out = NULL;
    if (!in)
        return STATUS_OK;
    size_t length = strlen(in->text);
    if ((uint32_t)in->kind >= CONSTRAINT_KINDS || length > CONSTRAINT_MAX_TEXT_BYTES)
        return error_set(err, STATUS_INVALID, "a constraint of kind %d and %zu bytes",
                         (int)in->kind, length);
    *out = constraint_source_create((enum constraint_kind)in->kind, in->text, length);
    return *out ? STATUS_OK : error_set(err, STATUS_LIMIT, "out of memory for a constraint");
}

static enum status check_prompt(const struct wire_prompt *in, uint32_t vocab, struct error *err)
{
    TRY(check_ids(in->prompt, in->prompt_count, vocab, err));
    TRY(check_ids(in->emitted, in->emitted_count, vocab, err));
    if (in->cache_salt_bytes > MAX_SALT_BYTES)
        return error_set(err, STATUS_INVALID, "a cache salt of %zu bytes, at most %d are taken",
                         in->cache_salt_bytes, MAX_SALT_BYTES);
    if ((uint32_t)in->priority >= PRIORITIES)
        return error_set(err, STATUS_INVALID, "priority %d is none that is known",
                         (int)in->priority);
    uint64_t total = (uint64_t)in->prompt_count + in->emitted_count;
    if (in->prompt_count == 0 || total > UINT32_MAX / 8)
        return error_set(err, STATUS_INVALID,
                         "a prompt of %zu tokens and %zu emitted ones can't be served",
                         in->prompt_count, in->emitted_count);
    return STATUS_OK;
}

enum status wire_sequence_spec(const struct wire_prompt *in, const struct worker_info *info,
                               struct sequence_spec *spec, struct error *err)
{
    struct sampling sampling;
    TRY(check_prompt(in, info->vocab, err));
    TRY(read_sampling(in->sampling, info->vocab, &sampling, err));
    size_t total = in->prompt_count + in->emitted_count;
    struct constraint_source *constraint = NULL;
    uint32_t *tokens = malloc(total * sizeof *tokens);
    enum status status = tokens
                             ? read_constraint(in->sampling->constraint, &constraint, err)
                             : error_set(err, STATUS_LIMIT, "out of memory for %zu tokens", total);
    if (status != STATUS_OK) {
        free(tokens);
        free((void *)sampling.biases);
        return status;
    }
    memcpy(tokens, in->prompt, in->prompt_count * sizeof *tokens);
    if (in->emitted_count)
        memcpy(tokens + in->prompt_count, in->emitted, in->emitted_count * sizeof *tokens);
    spec->tokens = tokens;
    spec->token_count = (uint32_t)total;
    spec->emitted_count = (uint32_t)in->emitted_count;
    spec->sampling = sampling;
    spec->constraint_source = constraint;
    spec->priority = (enum priority)in->priority;
    if (in->cache_salt_bytes)
        spec->tenant = hash_bytes(in->cache_salt, in->cache_salt_bytes, HASH_SEED) | 1;
    spec->root =
        prefix_hash_root(info->model_hash, info->numerics_id, in->cache_salt, in->cache_salt_bytes);
    return STATUS_OK;
}

uint64_t wire_prompt_hash(const struct sequence_spec *spec)
{
    return hash_bytes(spec->tokens, spec->token_count * sizeof *spec->tokens, HASH_SEED);
}

bool wire_handle_fits(const struct handle *handle, const struct sequence_spec *spec)
{
    return handle->token_count == spec->token_count &&
           handle->prompt_hash == wire_prompt_hash(spec);
}

struct handle wire_handle(const Baton__Worker__V1__Handle *message)
{
    return (struct handle){
        .ref = {message->incarnation, message->id, message->generation},
        .model_hash = message->model_hash,
        .layout_hash = message->layout_hash,
        .numerics_id = message->numerics_id,
        .token_count = message->token_count,
        .prompt_hash = message->prompt_hash,
        .block_count = message->n_blocks > UINT32_MAX ? UINT32_MAX : (uint32_t)message->n_blocks,
        .blocks = message->blocks,
    };
}

void wire_handle_pack(const struct handle *handle, Baton__Worker__V1__Handle *message)
{
    baton__worker__v1__handle__init(message);
    message->incarnation = handle->ref.incarnation;
    message->id = handle->ref.id;
    message->generation = handle->ref.generation;
    message->model_hash = handle->model_hash;
    message->layout_hash = handle->layout_hash;
    message->numerics_id = handle->numerics_id;
    message->token_count = handle->token_count;
    message->prompt_hash = handle->prompt_hash;
    message->n_blocks = handle->block_count;
    message->blocks = (uint32_t *)handle->blocks; /* packing only reads */
}

struct handle_ref wire_ref(const Baton__Worker__V1__HandleRef *message)
{
    if (!message)
        return (struct handle_ref){0};
    return (struct handle_ref){message->incarnation, message->id, message->generation};
}

void wire_ref_pack(struct handle_ref ref, Baton__Worker__V1__HandleRef *message)
{
    baton__worker__v1__handle_ref__init(message);
    message->incarnation = ref.incarnation;
    message->id = ref.id;
    message->generation = ref.generation;
}
