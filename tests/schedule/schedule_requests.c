/* Moves requests through their lives, whatever the schedule does: they come, land, are admitted,
 * cancelled, read, and end. */
#include "common/base/u32.h"
#include "tests/schedule/schedule_sim.h"

#include <stdlib.h>
#include <string.h>

static void remember(struct life *life, const struct sequence *sequence)
{
    struct shadow *shadow = life->shadows;
    while (shadow->live)
        shadow++;
    *shadow =
        (struct shadow){.live = true, .key = sequence->key, .token_count = sequence->token_count};
    memcpy(shadow->tokens, sequence->tokens, sequence->token_count * sizeof *shadow->tokens);
}

void requests_remove(struct life *life, struct sequence *sequence)
{
    life_shadow(life, sequence->key)->live = false;
    flight_lost(life, sequence, true);
    scheduler_remove(life->scheduler, sequence);
}

static struct sequence *any(struct life *life)
{
    size_t cursor = 0;
    uint32_t count = 0;
    while (scheduler_next(life->scheduler, &cursor))
        count++;
    if (count == 0)
        return NULL;
    cursor = life_below(life, count);
    return scheduler_next(life->scheduler, &cursor);
}

static void arrive(struct life *life)
{
    static const enum priority priorities[] = {PRIORITY_NORMAL, PRIORITY_NORMAL, PRIORITY_HIGH,
                                               PRIORITY_OFFLINE};
    struct sequence_spec spec = {
        .key = {life->next_request, 1},
        .plan = (enum sequence_plan)life_below(life, 3),
        .priority = priorities[life_below(life, 4)],
        .arrived_us = life->now_us,
        .token_count = 1 + life_below(life, life_chance(life, 3) ? 50 : 12),
        .tenant = life->tenants < 2 ? 0 : life_below(life, life->tenants),
        .deadline_left_us =
            life->deadlines && life_chance(life, 3) ? 1 + life_below(life, 2000000) : 0,
        .sampling = sampling_default(),
        .needs_token = rng_at(life->seed, 8, life->next_request) % 4 == 0,
        .may_draft = rng_at(life->seed, 11, life->next_request) % 4 > 0};
    spec.sampling.prompt_logprobs = rng_at(life->seed, 14, life->next_request) % 8 == 0;
    spec.sampling.prompt_logprobs_from = 1;
    spec.emitted_count = life_chance(life, 4) ? life_below(life, spec.token_count) : 0;
    spec.sampling.max_tokens = spec.emitted_count + 1 + life_below(life, 30);
    spec.sampling.seed = life_below(life, 1000);
    spec.sampling.ignore_eos = spec.deadline_left_us && life_chance(life, 2);
    spec.tokens = calloc(spec.token_count, sizeof *spec.tokens);
    uint32_t family = life_below(life, 3), common = life_below(life, spec.token_count + 1);
    for (uint32_t i = 0; i < spec.token_count; i++)
        spec.tokens[i] = 3 + (i < common ? i * family % 5 : life_below(life, 5));
    spec.root.low = life_chance(life, 8);
    struct error err;
    if (scheduler_add(life->scheduler, &spec, &err) != STATUS_OK) {
        free(spec.tokens);
        life->happened[DID_REFUSE]++;
        return;
    }
    life->next_request++;
    life->happened[DID_ADD]++;
    remember(life, scheduler_find(life->scheduler, spec.key));
    life_trace(life, "%llu comes: plan %d class %u, %u tokens, max %u",
               (unsigned long long)spec.key.request, spec.plan, priority_class(spec.priority),
               spec.token_count, spec.sampling.max_tokens);
}

void requests_land(struct life *life)
{
    size_t cursor = 0;
    for (struct sequence *sequence; (sequence = scheduler_next(life->scheduler, &cursor));)
        if (sequence->state == SEQUENCE_RESERVED && life_chance(life, 2))
            played_land(life, sequence, life_below(life, sequence->prompt_count + 1));
}

void requests_finished(struct life *life, struct sequence *sequence)
{
    check_answer(life, sequence);
    flight_lost(life, sequence, false);
    life->happened[DID_FINISH]++;
    life_trace(life, "%llu.%u ends", (unsigned long long)sequence->key.request,
               sequence->key.attempt);
    if (sequence->plan != PLAN_HAND_OFF)
        requests_remove(life, sequence);
}

static void admit(struct life *life, struct sequence *sequence)
{
    played_land(life, sequence, sequence->prompt_count);
    uint64_t content = 0;
    for (uint32_t i = 0; i < sequence->prompt_count; i++)
        content = life_content(content, sequence->tokens[i]);
    life->happened[DID_ADMIT]++;
    life_trace(life, "%llu is admitted", (unsigned long long)sequence->key.request);
    uint32_t first = life_draw(content, sequence->sampling.seed);
    if (scheduler_admit(life->scheduler, sequence, first) != FINISH_NONE)
        requests_finished(life, sequence);
}

static void happen_to(struct life *life, struct sequence *sequence)
{
    if (sequence->state == SEQUENCE_RESERVED && life_chance(life, 2)) {
        admit(life, sequence);
    } else if (sequence->state == SEQUENCE_HELD && life_chance(life, 2)) {
        if (!sequence->in_flight) /* a reader's last look */
            check_reads(life, sequence, min_u32(sequence->computed, sequence->token_count));
        requests_remove(life, sequence);
    } else if (!life->draining && life_chance(life, 20)) {
        life->happened[DID_CANCEL]++;
        life_trace(life, "%llu.%u is cancelled", (unsigned long long)sequence->key.request,
                   sequence->key.attempt);
        requests_remove(life, sequence);
    }
}

void requests_happen(struct life *life)
{
    life->now_us += life_below(life, 2) ? life_below(life, 3000) : life_below(life, 60000);
    for (uint32_t i = life_below(life, 3); i > 0 && !life->draining; i--)
        arrive(life);
    uint32_t tries = life->draining ? LIFE_SEQUENCES : 4;
    for (uint32_t i = 0; i < tries; i++) {
        struct sequence *sequence = any(life);
        if (sequence)
            happen_to(life, sequence);
    }
    requests_land(life);
}
