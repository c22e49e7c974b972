/* The played engine: a row's content is a hash of its sequence's tokens up to it. */
#include "tests/schedule/schedule_sim.h"

#include <string.h>

uint64_t life_content(uint64_t before, uint32_t token)
{
    return rng_at(before, 1, token);
}

uint32_t life_draw(uint64_t content, uint64_t seed)
{
    return (uint32_t)(rng_at(content, 2, seed) % 24);
}

static void write_row(struct life *life, const struct sequence *sequence, uint32_t position,
                      uint64_t content)
{
    uint32_t per = life->config.block_tokens;
    check_write(life, sequence, position);
    life->blocks[sequence->blocks[position / per]][position % per] = content;
}

void played_land(struct life *life, const struct sequence *sequence, uint32_t rows)
{
    uint32_t *landed = &life_shadow(life, sequence->key)->landed;
    uint64_t content = 0;
    for (uint32_t i = 0; i < rows; i++) {
        content = life_content(content, sequence->tokens[i]);
        if (i >= sequence->computed && i >= *landed) /* earlier rows are cached here, or came */
            write_row(life, sequence, i, content);
    }
    if (rows > *landed)
        *landed = rows;
}

void played_moves(struct life *life, const struct step_plan *plan)
{
    size_t bytes = sizeof life->blocks[0];
    for (uint32_t i = 0; i < plan->swap_out_count; i++)
        memcpy(life->slots[plan->swap_outs[i].to], life->blocks[plan->swap_outs[i].from], bytes);
    for (uint32_t i = 0; i < plan->swap_in_count; i++)
        memcpy(life->blocks[plan->swap_ins[i].to], life->slots[plan->swap_ins[i].from], bytes);
}

void played_rows(struct life *life, const struct planned_rows *part, uint32_t *drawn)
{
    const struct sequence *sequence = part->sequence;
    check_reads(life, sequence, sequence->computed);
    uint64_t content = 0;
    uint32_t end = part->first + part->row_count, sampled = end - 1 - part->draft_count;
    for (uint32_t i = 0; i < end; i++) {
        content = life_content(content, sequence->tokens[i]);
        if (i >= sequence->computed)
            write_row(life, sequence, i, content);
        if (i >= sampled)
            drawn[i - sampled] = life_draw(content, sequence->sampling.seed);
    }
}

uint32_t played_drafts(void *context, const struct sequence *sequence, uint32_t skip, uint32_t most,
                       uint32_t *drafts)
{
    struct life *life = context;
    if (skip != sequence->pending)
        life_fail(life, HOLDS_TOKEN, "drafts behind %u tokens, %u are in flight", skip,
                  sequence->pending);
    uint64_t content = 0, luck = rng_at(life->seed, 12, life->now_us + sequence->key.request);
    uint32_t count = (uint32_t)(luck % (most + 1));
    for (uint32_t i = 0; i < sequence->token_count; i++)
        content = life_content(content, sequence->tokens[i]);
    for (uint32_t i = 0; i < skip + count; i++) {
        uint32_t token = life_draw(content, sequence->sampling.seed);
        content = life_content(content, token);
        if (i >= skip)
            drafts[i - skip] = rng_at(luck, 1, i) % 4 ? token : token + 1;
    }
    life->happened[DID_DRAFT] += count > 0;
    life->happened[DID_DRAFT_FED] += count > 0 && skip;
    return count;
}
