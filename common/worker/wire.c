#include "common/worker/wire.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/language/constrain/constraint.h"
#include "common/net/membership/worker_message.h"

#include <assert.h>
#include <inttypes.h>
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

/* On success out->biases is malloc'ed, or NULL. */
static enum status read_biases(const Baton__Worker__V1__Sampling *in, uint32_t vocab,
                               struct sampling *out, struct error *err)
{
    if (in->n_bias_ids > SAMPLING_MAX_BIASES || in->n_bias_ids != in->n_biases)
        return error_set(err, STATUS_INVALID,
                         "at most %d biases, one for each id; got %zu ids and %zu biases",
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

/* On success *out is malloc'ed, or NULL without a constraint. */
static enum status read_constraint(const Baton__Worker__V1__Constraint *in,
                                   struct constraint_source **out, struct error *err)
{
    *out = NULL;
    if (!in)
        return STATUS_OK;
    size_t length = strlen(in->text), most = CONSTRAINT_MAX_TEXT_BYTES;
    if ((int)in->kind == CONSTRAINT_BEHIND_REASONING)
        most += CONSTRAINT_MAX_LINE_BYTES;
    if ((uint32_t)in->kind >= CONSTRAINT_KINDS || length > most)
        return error_set(err, STATUS_INVALID,
                         "a constraint of kind %d and %zu bytes can't be taken", (int)in->kind,
                         length);
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
        return error_set(err, STATUS_INVALID, "priority %d is unknown", (int)in->priority);
    if (in->deadline_left_us > WORKER_MAX_DEADLINE_US)
        return error_set(err, STATUS_INVALID,
                         "a deadline in %" PRIu64 " us can't be kept, at most a year is taken",
                         in->deadline_left_us);
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
    spec->deadline_left_us = in->deadline_left_us;
    spec->tenant = in->tenant;
    if (!in->tenant && in->cache_salt_bytes)
        spec->tenant = hash_bytes(in->cache_salt, in->cache_salt_bytes, HASH_SEED) | 1;
    spec->root =
        prefix_hash_root(info->model_hash, info->numerics_id, in->cache_salt, in->cache_salt_bytes);
    return STATUS_OK;
}

void wire_mark_received(const struct wire_prompt *in, const struct worker_info *info,
                        uint64_t numerics_id, struct sequence_spec *spec)
{
    const uint64_t both[] = {numerics_id, info->numerics_id}; /* a prompt of theirs, rows of ours */
    if (numerics_id != info->numerics_id)
        spec->root = prefix_hash_root(info->model_hash, hash_bytes(both, sizeof both, HASH_SEED),
                                      in->cache_salt, in->cache_salt_bytes);
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
    message->blocks = (uint32_t *)handle->blocks; /* packing only reads it */
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

bool wire_logprobs(const Baton__Worker__V1__Logprobs *message, struct token_logprobs *out)
{
    if (!message) {
        *out = (struct token_logprobs){.given = false};
        return true;
    }
    struct logprobs_lists lists = {message->drawn, message->top_ids, message->top,
                                   message->n_top_ids, message->n_top};
    return token_logprobs_read(&lists, out);
}

Baton__Worker__V1__Logprobs *wire_logprobs_pack(const struct token_logprobs *logprobs,
                                                Baton__Worker__V1__Logprobs *message)
{
    if (!logprobs->given)
        return NULL;
    baton__worker__v1__logprobs__init(message);
    message->drawn = logprobs->logprob;
    message->n_top_ids = message->n_top = logprobs->top_count;
    message->top_ids = (uint32_t *)logprobs->top_ids; /* packing only reads it */
    message->top = (float *)logprobs->top_logprobs;
    return message;
}

/* ---------------------------------------------------------------- Peer streams */

size_t wire_peer_down_count(const Baton__Worker__V1__PeerDown *message)
{
    switch (message->message_case) {
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_SUBSCRIBE:
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_CONFIRM:
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_RELEASE: return 1;
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_EXTEND: return message->extend->n_handles;
    default: return 0;
    }
}

struct peer_down wire_peer_down(const Baton__Worker__V1__PeerDown *message, size_t index)
{
    ASSERT(index < wire_peer_down_count(message));
    if (message->message_case == BATON__WORKER__V1__PEER_DOWN__MESSAGE_CONFIRM) {
        const Baton__Worker__V1__Confirm *confirm = message->confirm;
        return (struct peer_down){PEER_CONFIRM, confirm->request, confirm->attempt,
                                  wire_ref(confirm->handle)};
    }
    if (message->message_case == BATON__WORKER__V1__PEER_DOWN__MESSAGE_RELEASE) {
        const Baton__Worker__V1__PeerRelease *release = message->release;
        return (struct peer_down){PEER_RELEASE, release->request, release->attempt,
                                  wire_ref(release->handle)};
    }
    bool extends = message->message_case == BATON__WORKER__V1__PEER_DOWN__MESSAGE_EXTEND;
    const Baton__Worker__V1__Subscribe *named =
        extends ? message->extend->handles[index] : message->subscribe;
    return (struct peer_down){extends ? PEER_EXTEND : PEER_SUBSCRIBE, named->request,
                              named->attempt, wire_ref(named->handle)};
}

bool wire_peer_up(const Baton__Worker__V1__PeerUp *message, struct peer_up *up)
{
    static const struct token_logprobs none;
    struct token_logprobs logprobs;
    bool sound;
    switch (message->message_case) {
    case BATON__WORKER__V1__PEER_UP__MESSAGE_READY:
        *up = (struct peer_up){.kind = PEER_READY,
                               .request = message->ready->request,
                               .attempt = message->ready->attempt,
                               .ready_tokens = message->ready->tokens,
                               .sum_first = message->ready->first_sum,
                               .sum_count = (uint32_t)message->ready->n_sums,
                               .sums = message->ready->sums};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_COMPLETE:
        sound = wire_logprobs(message->complete->logprobs, &logprobs);
        *up = (struct peer_up){.kind = PEER_COMPLETE,
                               .request = message->complete->request,
                               .attempt = message->complete->attempt,
                               .first_token = sound ? message->complete->first_token : UINT32_MAX,
                               .logits_hash = message->complete->logits_hash,
                               .logprobs = sound ? logprobs : none,
                               .finish = (enum finish_reason)message->complete->finish,
                               .checksum_count = (uint32_t)message->complete->n_checksums,
                               .checksums = message->complete->checksums,
                               .sum_count = (uint32_t)message->complete->n_sums,
                               .sums = message->complete->sums};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_HELD:
        *up = (struct peer_up){.kind = PEER_HELD,
                               .request = message->held->request,
                               .attempt = message->held->attempt};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_GONE:
        *up = (struct peer_up){.kind = PEER_GONE,
                               .request = message->gone->request,
                               .attempt = message->gone->attempt};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_EXTENDED:
        *up = (struct peer_up){.kind = PEER_EXTENDED,
                               .request = message->extended->request,
                               .attempt = message->extended->attempt,
                               .left_us = message->extended->left_us};
        return true;
    default: return false;
    }
}

/* Packs a Subscribe, or an Extend with one handle. */
static void pack_named(const struct peer_down *down, struct wire_peer_down_room *room)
{
    baton__worker__v1__subscribe__init(&room->subscribe);
    room->subscribe.request = down->request;
    room->subscribe.attempt = down->attempt;
    room->subscribe.handle = &room->ref;
    if (down->kind == PEER_SUBSCRIBE) {
        room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_SUBSCRIBE;
        room->message.subscribe = &room->subscribe;
        return;
    }
    baton__worker__v1__extend__init(&room->extend);
    room->handles[0] = &room->subscribe;
    room->extend.n_handles = 1;
    room->extend.handles = room->handles;
    room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_EXTEND;
    room->message.extend = &room->extend;
}

void wire_peer_down_pack(const struct peer_down *down, struct wire_peer_down_room *room)
{
    baton__worker__v1__peer_down__init(&room->message);
    wire_ref_pack(down->ref, &room->ref);
    switch (down->kind) {
    case PEER_SUBSCRIBE:
    case PEER_EXTEND: pack_named(down, room); break;
    case PEER_CONFIRM:
        baton__worker__v1__confirm__init(&room->confirm);
        room->confirm.request = down->request;
        room->confirm.attempt = down->attempt;
        room->confirm.handle = &room->ref;
        room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_CONFIRM;
        room->message.confirm = &room->confirm;
        break;
    case PEER_RELEASE:
        baton__worker__v1__peer_release__init(&room->release);
        room->release.request = down->request;
        room->release.attempt = down->attempt;
        room->release.handle = &room->ref;
        room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_RELEASE;
        room->message.release = &room->release;
        break;
    }
}

static void pack_complete(const struct peer_up *up, uint32_t version,
                          struct wire_peer_up_room *room)
{
    Baton__Worker__V1__Complete *complete = &room->complete;
    baton__worker__v1__complete__init(complete);
    complete->request = up->request;
    complete->attempt = up->attempt;
    complete->first_token = up->first_token;
    complete->logits_hash = up->logits_hash;
    complete->logprobs = wire_logprobs_pack(&up->logprobs, &room->logprobs);
    complete->finish = up->finish;
    bool sums = version >= WORKER_PROTOCOL_SUMS;
    complete->n_sums = sums ? up->sum_count : 0;
    complete->sums = (uint64_t *)up->sums; /* packing only reads it */
    complete->n_checksums = sums ? 0 : up->checksum_count;
    complete->checksums = (uint32_t *)up->checksums;
}

static void pack_ready(const struct peer_up *up, uint32_t version, struct wire_peer_up_room *room)
{
    Baton__Worker__V1__Ready *ready = &room->ready;
    baton__worker__v1__ready__init(ready);
    ready->request = up->request;
    ready->attempt = up->attempt;
    ready->tokens = up->ready_tokens;
    if (version < WORKER_PROTOCOL_SUMS)
        return;
    ready->first_sum = up->sum_first;
    ready->n_sums = up->sum_count;
    ready->sums = (uint64_t *)up->sums; /* packing only reads it */
}

void wire_peer_up_pack(const struct peer_up *up, uint32_t version, struct wire_peer_up_room *room)
{
    Baton__Worker__V1__PeerUp *message = &room->message;
    baton__worker__v1__peer_up__init(message);
    switch (up->kind) {
    case PEER_COMPLETE:
        pack_complete(up, version, room);
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_COMPLETE;
        message->complete = &room->complete;
        break;
    case PEER_READY:
        pack_ready(up, version, room);
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_READY;
        message->ready = &room->ready;
        break;
    case PEER_HELD:
        baton__worker__v1__held__init(&room->held);
        room->held.request = up->request;
        room->held.attempt = up->attempt;
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_HELD;
        message->held = &room->held;
        break;
    case PEER_GONE:
        baton__worker__v1__gone__init(&room->gone);
        room->gone.request = up->request;
        room->gone.attempt = up->attempt;
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_GONE;
        message->gone = &room->gone;
        break;
    case PEER_EXTENDED:
        baton__worker__v1__extended__init(&room->extended);
        room->extended.request = up->request;
        room->extended.attempt = up->attempt;
        room->extended.left_us = up->left_us;
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_EXTENDED;
        message->extended = &room->extended;
        break;
    }
}
