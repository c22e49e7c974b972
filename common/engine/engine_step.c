/* A step and moves of blocks: checks what the caller asks for, then has the engine's kind do it. */
#include "common/base/assert.h"
#include "common/engine/engine_state.h"
#include "common/engine/model/logits.h"

#include <inttypes.h>

/* --- the input --- */

static enum status check_scores(const struct engine *engine, const struct engine_sequence *s,
                                uint32_t number, struct error *err)
{
    if (s->score_count > s->token_count || s->score_first > s->token_count - s->score_count ||
        s->score_top > LOGPROBS_MAX_TOP)
        return error_set(err, STATUS_INVALID,
                         "sequence %u: %u rows to score from %u on of %u, the %u likeliest", number,
                         s->score_count, s->score_first, s->token_count, s->score_top);
    for (uint32_t i = 0; i < s->score_count; i++)
        if (s->score_tokens[i] >= engine->model.shape.vocab)
            return error_set(err, STATUS_INVALID,
                             "sequence %u: token id %u to score, the vocabulary has %u", number,
                             s->score_tokens[i], engine->model.shape.vocab);
    return STATUS_OK;
}

static enum status check_sequence(const struct engine *engine, const struct engine_sequence *s,
                                  uint32_t number, struct error *err)
{
    if (s->token_count < 1 || s->token_count > engine->context ||
        s->position > engine->context - s->token_count)
        return error_set(err, STATUS_INVALID,
                         "sequence %u: %u tokens at position %u do not fit a context of %u", number,
                         s->token_count, s->position, engine->context);
    uint32_t blocks = kv_layout_blocks_for(&engine->layout, s->position + s->token_count);
    if (s->block_count < blocks)
        return error_set(err, STATUS_INVALID, "sequence %u: needs %u blocks, got %u", number,
                         blocks, s->block_count);
    for (uint32_t i = 0; i < blocks; i++)
        if (s->blocks[i] >= engine->config.block_count)
            return error_set(err, STATUS_INVALID, "sequence %u: block id %u, the pool has %u",
                             number, s->blocks[i], engine->config.block_count);
    if (s->fed && (!engine->in_flight || s->token_from >= engine->samples || !s->sampling ||
                   s->sample_count != s->token_count || !engine_feeds(engine, s->sampling)))
        return error_set(err, STATUS_INVALID,
                         "sequence %u: sample %u of the step before can't be fed to %u rows",
                         number, s->token_from, s->token_count);
    for (uint32_t i = s->fed; i < s->token_count; i++)
        if (s->tokens[i] >= engine->model.shape.vocab)
            return error_set(err, STATUS_INVALID, "sequence %u: token id %u, the vocabulary has %u",
                             number, s->tokens[i], engine->model.shape.vocab);
    if (s->prompt_rows > s->token_count || (s->sample_count && !s->sampling))
        return error_set(err, STATUS_INVALID,
                         "sequence %u: %u prompt rows of %u, sampling parameters %s", number,
                         s->prompt_rows, s->token_count, s->sampling ? "given" : "missing");
    bool drafts = s->sample_count > 1;
    if (s->sample_count > s->token_count || s->sample_count > 1 + engine->config.draft_tokens ||
        (drafts && (!engine_drafts(s->sampling) || s->allowed || s->ban_end || s->reads_logits)))
        return error_set(err, STATUS_INVALID,
                         "sequence %u: %u of %u rows draw tokens, with %u drafts at most", number,
                         s->sample_count, s->token_count, engine->config.draft_tokens);
    if (s->sample_count && logit_edits_penalizes(s->sampling) &&
        (!s->history || s->index > s->position + s->token_count))
        return error_set(err, STATUS_INVALID, "sequence %u: penalties for %u tokens without them",
                         number, s->index);
    return check_scores(engine, s, number, err);
}

static enum status check_step(const struct engine *engine, const struct engine_sequence *sequences,
                              uint32_t count, struct error *err)
{
    if (!engine->has_pool)
        return error_set(err, STATUS_INVALID, "no KV pool is attached");
    if (count < 1 || count > engine->config.max_sequences)
        return error_set(err, STATUS_INVALID, "%u sequences in a step of 1 to %u", count,
                         engine->config.max_sequences);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        TRY(check_sequence(engine, &sequences[i], i, err));
        rows += sequences[i].token_count;
    }
    if (rows > engine->config.max_rows)
        return error_set(err, STATUS_INVALID, "%" PRIu64 " rows in a step of at most %u", rows,
                         engine->config.max_rows);
    return STATUS_OK;
}

bool engine_runs_ahead(const struct engine *engine)
{
    return engine->runs_ahead;
}

bool engine_feeds(const struct engine *engine, const struct sampling *sampling)
{
    return engine->feeds && engine_drafts(sampling);
}

bool engine_drafts(const struct sampling *sampling)
{
    return !logit_edits_penalizes(sampling) && !sampling->bias_count && !sampling->min_tokens &&
           !sampling->logprobs;
}

enum status engine_submit(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                          engine_ticket *ticket, struct error *err)
{
    ASSERT(engine->in_flight < (engine->runs_ahead ? ENGINE_TICKETS : 1));
    TRY(check_step(engine, sequences, count, err));
    if (engine->ops->submit)
        TRY(engine->ops->submit(engine, sequences, count, engine->next, err));
    *ticket = engine->next;
    engine->next = (engine->next + 1) % ENGINE_TICKETS;
    engine->in_flight++;
    engine->samples = 0;
    for (uint32_t i = 0; i < count; i++)
        engine->samples += sequences[i].sample_count;
    return STATUS_OK;
}

enum status engine_wait(struct engine *engine, engine_ticket ticket,
                        struct engine_sequence *sequences, uint32_t count, struct error *err)
{
    ASSERT(engine->in_flight &&
           ticket == (engine->next + ENGINE_TICKETS - engine->in_flight) % ENGINE_TICKETS);
    engine->in_flight--;
    TRY(engine->ops->wait(engine, ticket, sequences, count, err));
    bool decodes = true;
    for (uint32_t i = 0; i < count; i++) {
        decodes &= sequences[i].sample_count == sequences[i].token_count;
        engine->counters.prompt_rows += sequences[i].prompt_rows;
        engine->counters.decode_rows += sequences[i].token_count - sequences[i].prompt_rows;
    }
    engine->counters.steps++;
    engine->counters.decode_steps += decodes;
    return STATUS_OK;
}

uint64_t engine_step_us(const struct engine *engine)
{
    return engine->step_us;
}

enum status engine_step(struct engine *engine, struct engine_sequence *sequences, uint32_t count,
                        struct error *err)
{
    engine_ticket ticket;
    TRY(engine_submit(engine, sequences, count, &ticket, err));
    return engine_wait(engine, ticket, sequences, count, err);
}

/* --- moves of blocks --- */

enum status engine_move_block(struct engine *engine, enum engine_move move, uint32_t from,
                              uint32_t to, struct error *err)
{
    uint32_t blocks = engine->has_pool ? engine->config.block_count : 0;
    uint32_t slots = engine->config.swap_blocks;
    if (from >= (move == ENGINE_SWAP_IN ? slots : blocks) ||
        to >= (move == ENGINE_SWAP_OUT ? slots : blocks))
        return error_set(err, STATUS_INVALID,
                         "block %u to %u: there are %u KV blocks and %u slots for swapped ones",
                         from, to, blocks, slots);
    enum status status = engine->ops->move_block(engine, move, from, to);
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_set(err, status == STATUS_INVALID ? STATUS_INVALID : STATUS_INTERNAL,
                     "KV block %u could not be moved to %u (%s)", from, to, status_name(status));
}

enum status engine_moves_done(struct engine *engine, struct error *err)
{
    enum status status = engine->ops->moves_done(engine);
    if (status == STATUS_OK)
        return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "the device failed in a move of KV blocks (%s)",
                     status_name(status));
}
