/* Serves requests in virtual time: the real schedule, steps of a device that reads its weights once
 * a step. Shows what tenants that share a worker, and clients with deadlines, get. */
#include "tests/schedule/schedule_sim.h"

#include <stdlib.h>
#include <string.h>

/* Microseconds, about those of a model with 8 billion weights on one device. */
#define STEP_US       8000
#define PROMPT_ROW_US 20
#define DECODE_ROW_US 20
#define SWAP_BLOCK_US 20
#define BLOCK_TOKENS  16
#define CONTEXT       4096
#define REQUESTS      4096 /* at most, of one run */
#define LIGHT_TENANT  1
#define HEAVY_TENANT  2
#define NEVER         UINT64_MAX

struct asked { /* by number, which is the key */
    uint64_t arrives_us, deadline_us, tenant;
    uint32_t prompt_count, max_tokens;
    uint64_t rest_us; /* its answer takes so long on another worker; 0: it is drawn here */
    /* as it was served: */
    uint64_t first_us, end_us; /* NEVER: not */
    uint64_t work_us;
    uint32_t tokens;
    bool given_up;
};

struct service {
    struct scheduler *scheduler;
    uint64_t now_us;
    struct asked asked[REQUESTS]; /* by arrival */
    uint32_t count, next;         /* [next .. count) are still to come */
};

static struct service service;

static void start(struct scheduler_config config)
{
    config.block_tokens = BLOCK_TOKENS;
    config.context = CONTEXT;
    config.chunk_tokens = 512;
    config.overtake_us = POLICY_STARVE_US;
    config.cost = cost_model_default();
    config.cost.prefill_row_us = PROMPT_ROW_US;
    config.cost.decode_row_us = DECODE_ROW_US;
    config.cost.step_us = STEP_US;
    if (scheduler_create(&config, &service.scheduler) != STATUS_OK)
        abort();
    service.now_us = 1;
    service.count = service.next = 0;
}

static void ask(uint64_t arrives_us, uint64_t left_us, uint64_t tenant, uint32_t prompt_count,
                uint32_t max_tokens)
{
    if (service.count == REQUESTS)
        abort();
    service.asked[service.count++] =
        (struct asked){.arrives_us = arrives_us,
                       .deadline_us = left_us ? arrives_us + left_us : NEVER,
                       .tenant = tenant,
                       .prompt_count = prompt_count,
                       .max_tokens = max_tokens,
                       .first_us = NEVER,
                       .end_us = NEVER};
}

static int by_arrival(const void *a, const void *b)
{
    const struct asked *x = a, *y = b;
    return (x->arrives_us > y->arrives_us) - (x->arrives_us < y->arrives_us);
}

static void arrive(void)
{
    for (; service.next < service.count; service.next++) {
        const struct asked *asked = &service.asked[service.next];
        if (asked->arrives_us > service.now_us)
            return;
        struct sequence_spec spec = {.key = {service.next, 1},
                                     .plan = PLAN_LOCAL,
                                     .arrived_us = asked->arrives_us,
                                     .token_count = asked->prompt_count,
                                     .tenant = asked->tenant,
                                     .sampling = sampling_default()};
        if (asked->deadline_us != NEVER)
            spec.deadline_left_us = asked->deadline_us - asked->arrives_us;
        if (asked->rest_us) {
            spec.plan = PLAN_HAND_OFF;
            spec.due_left_us = spec.deadline_left_us - asked->rest_us / 4 * 5;
            spec.deadline_left_us -= asked->rest_us / 4 * 3; /* both as the router */
        }
        spec.sampling.max_tokens = asked->max_tokens;
        spec.sampling.ignore_eos = true;
        spec.tokens = calloc(spec.token_count, sizeof *spec.tokens);
        if (scheduler_add(service.scheduler, &spec, NULL) != STATUS_OK)
            abort();
    }
}

static struct asked *asked_of(const struct sequence *sequence)
{
    return &service.asked[sequence->key.request];
}

/* The schedule gives up those that can't be in time. Clients leave when their deadlines pass. */
static void give_up(void)
{
    for (struct sequence *missed;
         (missed = scheduler_next_missed(service.scheduler, service.now_us));) {
        asked_of(missed)->given_up = asked_of(missed)->deadline_us > service.now_us;
        scheduler_remove(service.scheduler, missed);
    }
    size_t cursor = 0;
    for (struct sequence *sequence; (sequence = scheduler_next(service.scheduler, &cursor));) {
        if (sequence->deadline_us > service.now_us)
            continue;
        scheduler_remove(service.scheduler, sequence);
        cursor--;
    }
}

static void step(void)
{
    arrive();
    give_up();
    while (scheduler_reserve(service.scheduler, service.now_us))
        ;
    const struct step_plan *plan = scheduler_plan(service.scheduler, service.now_us);
    uint32_t moved = plan->swap_out_count + plan->swap_in_count;
    if (!plan->part_count && !moved && !plan->freed) {
        service.now_us = service.next < service.count ? service.asked[service.next].arrives_us
                                                      : service.now_us + 1000;
        return;
    }
    uint64_t took_us = plan->part_count ? STEP_US : 0, swap_us = (uint64_t)moved * SWAP_BLOCK_US;
    for (uint32_t i = 0; i < plan->part_count; i++)
        took_us += plan->parts[i].sequence->state == SEQUENCE_DECODE
                       ? DECODE_ROW_US
                       : (uint64_t)PROMPT_ROW_US * plan->parts[i].row_count;
    service.now_us += took_us + swap_us;
    scheduler_step_done(service.scheduler, plan, took_us, swap_us);
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        struct asked *asked = asked_of(part->sequence);
        asked->work_us += took_us / plan->part_count;
        enum finish_reason finish = scheduler_rows_done(service.scheduler, part, 5);
        asked->tokens += part->samples;
        if (part->samples && asked->first_us == NEVER)
            asked->first_us = service.now_us;
        if (finish == FINISH_NONE && !(part->samples && asked->rest_us))
            continue;
        asked->end_us = service.now_us + asked->rest_us;
        scheduler_remove(service.scheduler, part->sequence);
    }
}

/* Until `until_us`, or all have ended. */
static void run(uint64_t until_us)
{
    size_t cursor = 0;
    uint32_t steps_left = 200000; /* a schedule that is stuck ends, too */
    qsort(service.asked, service.count, sizeof *service.asked, by_arrival);
    while (service.now_us < until_us && steps_left-- &&
           (service.next < service.count || scheduler_next(service.scheduler, &cursor))) {
        step();
        cursor = 0;
    }
    scheduler_destroy(service.scheduler);
}

/* ---------------------------------------------------------------- tenants */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns the light tenant's. An answer without a first token counts as waiting until now. */
static uint64_t first_token_p99_us(void)
{
    static uint64_t waits_us[REQUESTS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < service.count; i++) {
        const struct asked *asked = &service.asked[i];
        uint64_t end_us = asked->first_us < service.now_us ? asked->first_us : service.now_us;
        if (asked->tenant == LIGHT_TENANT)
            waits_us[count++] = end_us - asked->arrives_us;
    }
    qsort(waits_us, count, sizeof *waits_us, by_number);
    return waits_us[(count * 99 + 99) / 100 - 1];
}

static uint32_t ended_count(uint64_t tenant)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < service.count; i++)
        count += service.asked[i].tenant == tenant && service.asked[i].end_us != NEVER;
    return count;
}

/* Five a second, each of 64 tokens and 16 of an answer. */
static void ask_light(void)
{
    struct rng rng = rng_seeded(7);
    uint64_t at_us = 1;
    for (int i = 0; i < 300; i++)
        ask(at_us += 1 + rng_below(&rng, 400000), 0, LIGHT_TENANT, 64, 16);
}

struct fair_result fair_run(bool grow)
{
    /* All of the heavy tenant's answers need five times as many blocks. */
    const struct scheduler_config config = {
        .block_count = 4096, .max_sequences = 256, .grow = grow, .host_slots = grow ? 8192 : 0};
    struct fair_result result = {.alone_us = 0};
    start(config);
    ask_light();
    run(120000000);
    result.alone_us = first_token_p99_us();
    start(config);
    ask_light();
    for (int i = 0; i < 128; i++)
        ask(1000000, 0, HEAVY_TENANT, 100, 2000);
    run(120000000);
    result.beside_us = first_token_p99_us();
    result.light_count = ended_count(LIGHT_TENANT);
    result.heavy_count = ended_count(HEAVY_TENANT);
    return result;
}

bool fair_alternates(void)
{
    static const uint64_t in_turns[] = {0, 3, 1, 4, 2, 5};
    bool alternates = true;
    start((struct scheduler_config){.block_count = 4096, .max_sequences = 16, .turn_tokens = 1});
    for (int i = 0; i < 6; i++)
        ask(1, 0, i < 3 ? LIGHT_TENANT : HEAVY_TENANT, 64, 16);
    arrive();
    for (int i = 0; i < 6; i++) {
        const struct sequence *sequence = scheduler_reserve(service.scheduler, service.now_us);
        alternates &= sequence && sequence->key.request == in_turns[i];
    }
    scheduler_destroy(service.scheduler);
    return alternates;
}

/* ---------------------------------------------------------------- deadlines */

#define BATCH         16
#define ANSWER_TOKENS 64
#define PROMPT_TOKENS 256

struct overload_result overload_run(double load, uint64_t rest_us)
{
    /* A full batch takes so long for each answer, with its part of the prompts. */
    double answer_us = (ANSWER_TOKENS * (STEP_US + BATCH * DECODE_ROW_US)) / (double)BATCH;
    /* Two prompts share a step. All of them have blocks at once. */
    double prompt_us = PROMPT_TOKENS * PROMPT_ROW_US;
    uint32_t tokens = rest_us ? 64 * PROMPT_TOKENS : PROMPT_TOKENS + ANSWER_TOKENS;
    answer_us = prompt_us + (rest_us ? STEP_US / 2.0 : answer_us);
    struct rng rng = rng_seeded(11);
    uint64_t at_us = 1;
    struct overload_result result = {.work_us = 0};
    start((struct scheduler_config){.block_count = BATCH * tokens / BLOCK_TOKENS,
                                    .max_sequences = REQUESTS});
    for (int i = 0; i < (rest_us ? 4000 : 3000); i++) {
        ask(at_us += 1 + rng_below(&rng, (uint64_t)(2 * answer_us / load)), 3000000, LIGHT_TENANT,
            PROMPT_TOKENS, ANSWER_TOKENS);
        service.asked[service.count - 1].rest_us = rest_us;
    }
    run(NEVER);
    for (uint32_t i = 0; i < service.count; i++) {
        const struct asked *asked = &service.asked[i];
        bool in_time = asked->end_us <= asked->deadline_us;
        result.work_us += asked->work_us;
        result.wasted_us += in_time ? 0 : asked->work_us;
        result.in_time += in_time;
        result.missed += !in_time;
        result.given_up_early += asked->given_up;
        if (in_time)
            result.in_time_until_us =
                asked->end_us > result.in_time_until_us ? asked->end_us : result.in_time_until_us;
    }
    result.capacity = (uint32_t)((double)result.in_time_until_us / answer_us);
    return result;
}

uint32_t deadline_alone(double part, uint32_t max_tokens)
{
    uint64_t needs_us = (uint64_t)STEP_US * max_tokens + DECODE_ROW_US * (max_tokens - 1) +
                        PROMPT_ROW_US * PROMPT_TOKENS;
    start((struct scheduler_config){.block_count = 4096, .max_sequences = 16});
    /* From the first one the schedule learns how long steps take. */
    ask(1, 0, LIGHT_TENANT, PROMPT_TOKENS, max_tokens);
    ask(1 + 2 * needs_us, (uint64_t)(part * (double)needs_us), LIGHT_TENANT, PROMPT_TOKENS,
        max_tokens);
    run(NEVER);
    return service.asked[1].tokens;
}
