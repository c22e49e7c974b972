/* Steps in flight: the next step is planned and handed over before the last one's tokens are
 * known. The played device computes a step at once, or not before it ends. It has the tables of the
 * step as they were when the rows were handed over, as a real device has. */
#include "tests/schedule/schedule_sim.h"

#include <string.h>

/* Returns the step that is in flight while the next one is planned. */
static struct flight *flying(struct life *life)
{
    return life->flights[0].plan ? &life->flights[0] : NULL;
}

bool flight_drafts(const struct life *life, const struct sequence *sequence)
{
    const struct flight *before = &life->flights[0];
    for (uint32_t i = 0; before->plan && i < before->plan->part_count; i++)
        if (before->parts[i].sequence == sequence && before->parts[i].part->draft_count)
            return true;
    return false;
}

static uint32_t samples_of(const struct planned_rows *part)
{
    return part->samples ? 1 + part->draft_count : 0;
}

/* --- handing over --- */

void check_fed(struct life *life, const struct step_plan *plan)
{
    const struct flight *before = flying(life);
    life->happened[DID_DRAIN] += plan->drain;
    if (plan->drain && (!before || plan->part_count || plan->swap_out_count))
        life_fail(life, HOLDS_FLIGHT, "a plan that drains has rows, or nothing to wait for");
    if (before && plan->swap_out_count)
        life_fail(life, HOLDS_FLIGHT, "a block is swapped out while a step is in flight");
    /* Moves have a stream of their own, which doesn't wait for the steps'. */
    for (uint32_t i = 0; before && i < plan->swap_in_count; i++)
        if (before->holds[plan->swap_ins[i].to])
            life_fail(life, HOLDS_FLIGHT, "block %u of a step in flight is swapped into",
                      plan->swap_ins[i].to);
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        const struct sequence *sequence = part->sequence;
        unsigned long long request = sequence->key.request;
        uint32_t scored;
        if (before && sequence_rows_to_score(sequence, part->row_count, &scored))
            life_fail(life, HOLDS_FLIGHT, "%llu has logprobs of a prompt behind a step", request);
        if (life_is_barred(life, sequence))
            life_fail(life, HOLDS_TOKEN, "%llu must have its last token first, or needs no row",
                      request);
        if (part->first + part->row_count - part->draft_count <= sequence->token_count) {
            if (part->token_from != PLANNED_TOKENS_KNOWN)
                life_fail(life, HOLDS_TOKEN, "%llu is fed a token that is known", request);
            continue;
        }
        uint32_t sample = 0, at = 0;
        while (before && at < before->plan->part_count && before->parts[at].sequence != sequence)
            sample += samples_of(before->parts[at++].part);
        if (!before || at == before->plan->part_count || !before->parts[at].part->samples ||
            part->token_from != sample || part->row_count != 1 + part->draft_count)
            life_fail(life, HOLDS_TOKEN, "%llu has a row before its token is known", request);
        life->happened[DID_FEED]++;
    }
}

static void take_off(struct life *life, struct flight *flight, const struct step_plan *plan)
{
    *flight = (struct flight){.plan = plan, .took_us = 1 + life_below(life, 30000)};
    flight->fails = rng_at(life->seed, 9, life->now_us) % 200 == 0;
    for (uint32_t i = 0; i < plan->part_count; i++) {
        struct sequence *sequence = plan->parts[i].sequence;
        struct flight_part *part = &flight->parts[i];
        *part = (struct flight_part){.part = &plan->parts[i],
                                     .sequence = sequence,
                                     .known = sequence->token_count,
                                     .block_count = sequence->block_count,
                                     .seed = (uint32_t)sequence->sampling.seed};
        uint32_t end = plan->parts[i].first + plan->parts[i].row_count;
        memcpy(part->tokens, sequence->tokens, end * sizeof *part->tokens);
        memcpy(part->blocks, sequence->blocks, part->block_count * sizeof *part->blocks);
        for (uint32_t k = 0; k < part->block_count; k++)
            flight->holds[part->blocks[k]] = true;
    }
    for (uint32_t i = 0; i < plan->swap_in_count; i++)
        flight->holds[plan->swap_ins[i].to] = true;
    scheduler_rows_issued(life->scheduler, plan);
}

void flight_lost(struct life *life, struct sequence *sequence, bool removed)
{
    for (struct flight *flight = life->flights; flight < life->flights + 2; flight++) {
        bool has = false;
        for (uint32_t i = 0; flight->plan && i < flight->plan->part_count; i++)
            if (flight->parts[i].sequence == sequence)
                flight->parts[i].ended = has = true;
        for (uint32_t i = 0; flight->plan && i < flight->plan->swap_in_count; i++)
            has |= flight->plan->swap_ins[i].sequence == sequence;
        for (uint32_t k = 0; has && removed && k < sequence->block_count; k++)
            flight->holds[sequence->blocks[k]] = true;
        life->happened[DID_DEFER] += has && removed;
    }
}

/* --- computing --- */

static void check_block(struct life *life, const struct flight_part *part, uint32_t block)
{
    size_t cursor = 0;
    if (!kv_blocks_writable(scheduler_blocks(life->scheduler), block))
        life_fail(life, HOLDS_FLIGHT, "a step in flight writes block %u, which others may read",
                  block);
    for (struct sequence *other; (other = scheduler_next(life->scheduler, &cursor));)
        for (uint32_t i = 0; other != part->sequence && i < other->block_count; i++)
            if (other->blocks[i] == block)
                life_fail(life, HOLDS_FLIGHT, "a step in flight writes block %u, which %llu has",
                          block, (unsigned long long)other->key.request);
}

static void compute_part(struct life *life, const struct flight *before, struct flight_part *part)
{
    uint32_t per = life->config.block_tokens, end = part->part->first + part->part->row_count;
    uint32_t sampled = end - 1 - part->part->draft_count;
    uint64_t content = 0;
    for (uint32_t i = 0; i < end; i++) {
        bool fed = i == part->known && part->part->token_from != PLANNED_TOKENS_KNOWN;
        content =
            life_content(content, fed ? before->samples[part->part->token_from] : part->tokens[i]);
        uint32_t block = part->blocks[i / per];
        if (i < part->part->first && life->blocks[block][i % per] != content)
            life_fail(life, HOLDS_CONTENT, "row %u of block %u is another's in a step in flight", i,
                      block);
        if (i < part->part->first)
            continue;
        check_block(life, part, block);
        life->blocks[block][i % per] = content;
        if (i >= sampled)
            part->drawn[i - sampled] = life_draw(content, part->seed);
    }
}

/* `before`: the step before it, with its samples. */
static void compute(struct life *life, const struct flight *before, struct flight *flight)
{
    uint32_t samples = 0;
    if (flight->computed)
        return;
    flight->computed = true;
    for (uint32_t i = 0; i < flight->plan->swap_in_count; i++)
        memcpy(life->blocks[flight->plan->swap_ins[i].to],
               life->slots[flight->plan->swap_ins[i].from], sizeof life->blocks[0]);
    for (uint32_t i = 0; i < flight->plan->part_count; i++) {
        compute_part(life, before, &flight->parts[i]);
        for (uint32_t k = 0; k < samples_of(flight->parts[i].part); k++)
            flight->samples[samples++] = flight->parts[i].drawn[k];
    }
}

uint32_t flight_blocks(struct life *life, const uint32_t *holds)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < life->config.block_count; id++) {
        bool in_flight = false;
        for (struct flight *flight = life->flights; flight < life->flights + 2; flight++)
            in_flight |= flight->plan && flight->holds[id];
        if (in_flight && !kv_blocks_held(scheduler_blocks(life->scheduler), id))
            life_fail(life, HOLDS_FLIGHT, "block %u of a step in flight is free", id);
        count += in_flight && !holds[id];
    }
    return count;
}

/* --- the end of a step --- */

/* Ends the older step. If it fails, the one behind it fails, too. */
static void land(struct life *life)
{
    struct flight *flight = &life->flights[0], *behind = &life->flights[1];
    compute(life, NULL, flight);
    if (behind->plan && life_chance(life, 2))
        compute(life, flight, behind);
    check_learns(life, flight->plan, flight->took_us);
    scheduler_step_done(life->scheduler, flight->plan, flight->took_us, 100);
    if (flight->fails)
        scheduler_distrust(life->scheduler);
    for (uint32_t i = 0; i < flight->plan->part_count; i++) {
        struct flight_part *part = &flight->parts[i];
        if (scheduler_wants(part->part) == part->ended)
            life_fail(life, HOLDS_TOKEN, "a result is %s", part->ended ? "late" : "lost");
        life->happened[DID_LATE] += part->ended;
        if (part->ended)
            continue;
        if (!flight->fails) {
            life_tell(life, part->part, part->drawn);
            continue;
        }
        flight_lost(life, part->sequence, false);
        scheduler_fail(life->scheduler, part->sequence);
    }
    scheduler_step_ended(life->scheduler, flight->plan);
    life->happened[DID_BREAK] += flight->fails && behind->plan;
    behind->fails |= flight->fails;
    if (behind->plan)
        compute(life, flight, behind); /* at the latest: samples of the step before are gone now */
    *flight = *behind;
    behind->plan = NULL;
}

void flight_step(struct life *life, const struct step_plan *plan)
{
    bool issues = plan->part_count + plan->swap_in_count > 0;
    bool waits = life_chance(life, issues ? 8 : 2);
    for (uint32_t i = 0; i < plan->swap_out_count; i++)
        memcpy(life->slots[plan->swap_outs[i].to], life->blocks[plan->swap_outs[i].from],
               sizeof life->blocks[0]);
    bool was_flying = flying(life) != NULL;
    if (issues)
        take_off(life, &life->flights[was_flying], plan);
    life->now_us += life_below(life, 10000);
    if (was_flying && (issues || waits))
        land(life);
    if (waits && flying(life))
        land(life);
}
