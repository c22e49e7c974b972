#include "common/engine/sched/scheduler.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

struct scheduler {
    struct scheduler_config config;
    struct kv_blocks *blocks;
    uint64_t next_order;
    uint32_t count;
    uint32_t blocks_per_sequence; /* of the longest one */
    uint32_t *end_ids;
    uint32_t *block_ids;          /* [max_sequences, blocks_per_sequence] */
    struct sequence *sequences;   /* [max_sequences]; tokens == NULL: an empty slot */
    struct sequence **by_arrival; /* [max_sequences]: the live ones, first come first */
};

static uint32_t blocks_for(const struct scheduler *scheduler, uint32_t tokens)
{
    uint32_t per = scheduler->config.block_tokens;
    return tokens / per + (tokens % per != 0);
}

enum status scheduler_create(const struct scheduler_config *config, struct scheduler **out)
{
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return STATUS_LIMIT;
    s->config = *config;
    s->blocks_per_sequence = blocks_for(s, config->context);
    size_t n = config->max_sequences;
    s->sequences = calloc(n, sizeof *s->sequences);
    s->by_arrival = calloc(n, sizeof *s->by_arrival);
    s->block_ids = calloc(n * s->blocks_per_sequence, sizeof *s->block_ids);
    s->end_ids = calloc(config->end_id_count + 1, sizeof *s->end_ids);
    if (!s->sequences || !s->by_arrival || !s->block_ids || !s->end_ids ||
        kv_blocks_create(config->block_count, &s->blocks) != STATUS_OK) {
        scheduler_destroy(s);
        return STATUS_LIMIT;
    }
    if (config->end_id_count)
        memcpy(s->end_ids, config->end_ids, config->end_id_count * sizeof *s->end_ids);
    s->config.end_ids = s->end_ids;
    for (size_t i = 0; i < n; i++)
        s->sequences[i].blocks = s->block_ids + i * s->blocks_per_sequence;
    *out = s;
    return STATUS_OK;
}

void scheduler_destroy(struct scheduler *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; s->sequences && i < s->config.max_sequences; i++)
        free(s->sequences[i].tokens);
    kv_blocks_destroy(s->blocks);
    free(s->sequences);
    free(s->by_arrival);
    free(s->block_ids);
    free(s->end_ids);
    free(s);
}

/* Tokens that the sequence's blocks must hold: the last drawn token's keys and values are never needed. */
static uint32_t tokens_to_hold(const struct sequence_spec *spec, uint32_t context)
{
    if (spec->plan == PLAN_HAND_OFF)
        return spec->token_count;
    uint64_t answer = spec->sampling.max_tokens - spec->emitted_count;
    uint64_t total = spec->token_count + answer;
    return total < context ? (uint32_t)total : context;
}

static enum status check_fits(const struct scheduler *s, const struct sequence_spec *spec,
                              struct error *err)
{
    if (spec->token_count == 0 || spec->token_count >= s->config.context)
        return error_set(
            err, STATUS_INVALID,
            "%u tokens of prompt do not fit the context of %u tokens with room for an answer",
            spec->token_count, s->config.context);
    if (spec->emitted_count >= spec->token_count ||
        spec->emitted_count >= spec->sampling.max_tokens)
        return error_set(err, STATUS_INVALID,
                         "%u emitted tokens leave nothing to do: %u tokens in all, max_tokens %u",
                         spec->emitted_count, spec->token_count, spec->sampling.max_tokens);
    uint32_t need = blocks_for(s, tokens_to_hold(spec, s->config.context));
    if (need > s->config.block_count)
        return error_set(
            err, STATUS_INVALID,
            "the request needs %u KV blocks of %u tokens, the worker has %u: shorten the prompt or "
            "max_tokens, or start the worker with more --kv-tokens",
            need, s->config.block_tokens, s->config.block_count);
    return STATUS_OK;
}

enum status scheduler_add(struct scheduler *s, const struct sequence_spec *spec, struct error *err)
{
    TRY(check_fits(s, spec, err));
    if (s->count == s->config.max_sequences)
        return error_set(err, STATUS_LIMIT, "all %u sequence slots of the worker are in use",
                         s->config.max_sequences);
    struct sequence *slot = s->sequences;
    while (slot->tokens)
        slot++;
    uint32_t capacity = tokens_to_hold(spec, s->config.context) + 1;
    uint32_t *tokens = realloc(spec->tokens, capacity * sizeof *tokens);
    if (!tokens)
        return error_set(err, STATUS_LIMIT, "out of memory for %u tokens", capacity);
    uint32_t *blocks = slot->blocks;
    *slot = (struct sequence){.key = spec->key,
                              .plan = spec->plan,
                              .state = SEQUENCE_WAITING,
                              .order = s->next_order++,
                              .tokens = tokens,
                              .token_count = spec->token_count,
                              .token_capacity = capacity,
                              .prompt_count = spec->token_count,
                              .emitted_count = spec->emitted_count,
                              .sampling = spec->sampling,
                              .blocks = blocks};
    s->by_arrival[s->count++] = slot;
    return STATUS_OK;
}

/* What the sequence holds its blocks for. */
static enum kv_hold hold_of(const struct sequence *sequence)
{
    if (sequence->plan == PLAN_HAND_OFF)
        return KV_HOLD_PINNED;
    bool arrives = sequence->plan == PLAN_RECEIVE &&
                   (sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_RESERVED);
    return arrives ? KV_HOLD_LANDING : KV_HOLD_USED;
}

struct sequence *scheduler_reserve(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        if (sequence->state != SEQUENCE_WAITING)
            continue;
        uint32_t need = blocks_for(s, sequence->token_capacity - 1);
        if (kv_blocks_take(s->blocks, need, hold_of(sequence), sequence->blocks) != STATUS_OK)
            return NULL; /* first come, first served: nobody overtakes */
        sequence->block_count = need;
        sequence->state = sequence->plan == PLAN_RECEIVE ? SEQUENCE_RESERVED : SEQUENCE_PREFILL;
        return sequence;
    }
    return NULL;
}

static enum finish_reason finish_of(struct scheduler *s, struct sequence *sequence)
{
    enum finish_reason reason =
        sequence_finish(sequence, s->end_ids, s->config.end_id_count, s->config.context);
    if (reason != FINISH_NONE)
        sequence->state = SEQUENCE_HELD;
    return reason;
}

static void append_token(struct sequence *sequence, uint32_t token)
{
    ASSERT(sequence->token_count < sequence->token_capacity);
    sequence->tokens[sequence->token_count++] = token;
}

enum finish_reason scheduler_admit(struct scheduler *s, struct sequence *sequence,
                                   uint32_t first_token)
{
    ASSERT(sequence->state == SEQUENCE_RESERVED);
    kv_blocks_change(s->blocks, sequence->blocks, sequence->block_count, KV_HOLD_LANDING,
                     KV_HOLD_USED);
    sequence->computed = sequence->prompt_count;
    sequence->state = SEQUENCE_DECODE;
    append_token(sequence, first_token);
    return finish_of(s, sequence);
}

void scheduler_remove(struct scheduler *s, struct sequence *sequence)
{
    uint32_t at = 0;
    while (at < s->count && s->by_arrival[at] != sequence)
        at++;
    ASSERT(at < s->count);
    memmove(s->by_arrival + at, s->by_arrival + at + 1,
            (s->count - at - 1) * sizeof *s->by_arrival);
    s->count--;
    kv_blocks_give(s->blocks, sequence->blocks, sequence->block_count, hold_of(sequence));
    free(sequence->tokens);
    sequence->tokens = NULL;
    sequence->block_count = 0;
}

struct sequence *scheduler_find(struct scheduler *s, struct sequence_key key)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->by_arrival[i]->key.request == key.request &&
            s->by_arrival[i]->key.attempt == key.attempt)
            return s->by_arrival[i];
    return NULL;
}

struct sequence *scheduler_next(struct scheduler *s, size_t *cursor)
{
    return *cursor < s->count ? s->by_arrival[(*cursor)++] : NULL;
}

uint32_t scheduler_plan(struct scheduler *s, struct planned_rows *parts)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->by_arrival[i]->state == SEQUENCE_DECODE)
            parts[used++] = (struct planned_rows){s->by_arrival[i], 1, true};
    uint32_t budget = s->config.chunk_tokens;
    for (uint32_t i = 0; i < s->count && budget; i++) {
        struct sequence *sequence = s->by_arrival[i];
        if (sequence->state != SEQUENCE_PREFILL)
            continue;
        uint32_t left = sequence->prompt_count - sequence->computed;
        uint32_t rows = left < budget ? left : budget;
        parts[used++] = (struct planned_rows){sequence, rows, rows == left};
        budget -= rows;
    }
    return used;
}

enum finish_reason scheduler_rows_done(struct scheduler *s, const struct planned_rows *part,
                                       uint32_t token)
{
    struct sequence *sequence = part->sequence;
    sequence->computed += part->row_count;
    if (!part->samples)
        return FINISH_NONE;
    append_token(sequence, token);
    if (sequence->state == SEQUENCE_PREFILL)
        sequence->state = sequence->plan == PLAN_HAND_OFF ? SEQUENCE_HELD : SEQUENCE_DECODE;
    return finish_of(s, sequence);
}

struct scheduler_load scheduler_load(const struct scheduler *s)
{
    struct scheduler_load load = {0};
    for (uint32_t i = 0; i < s->count; i++) {
        const struct sequence *sequence = s->by_arrival[i];
        load.waiting += sequence->state == SEQUENCE_WAITING;
        load.running += sequence->state == SEQUENCE_PREFILL || sequence->state == SEQUENCE_DECODE;
        if (sequence->plan != PLAN_RECEIVE &&
            (sequence->state == SEQUENCE_WAITING || sequence->state == SEQUENCE_PREFILL))
            load.queued_tokens += sequence->prompt_count - sequence->computed;
    }
    for (int state = 0; state < KV_BLOCK_STATES; state++)
        load.blocks[state] = kv_blocks_count(s->blocks, (enum kv_block_state)state);
    return load;
}
