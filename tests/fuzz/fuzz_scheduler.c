/* A schedule's life: sequences come, get blocks, compute, are admitted and removed, in any order.
 * After every event no block has two owners and none is lost; a plan keeps its budget; no block of
 * a step in flight is given away; at the end all blocks are free. Input: a byte (steps run ahead or
 * not), then for each event a byte (its kind) and its arguments. */
#include "common/engine/sched/scheduler.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS  8
#define BLOCK_COUNT   24
#define MAX_SEQUENCES 6
#define CHUNK_TOKENS  20
#define CONTEXT       100
#define MAX_EVENTS    256

static const uint32_t end_ids[] = {2};

/* A step in flight: its rows were handed over and have not ended. */
struct flight {
    const struct step_plan *plan;
    const struct sequence *owners[BLOCK_COUNT]; /* its sequences, by block; NULL: none */
};

struct life {
    struct scheduler *scheduler;
    bool runs_ahead;
    struct flight flights[2]; /* the older one first */
    uint32_t flight_count;
};

/* `owners` by block: NULL is none. */
static void check_flights(const struct life *life, const struct sequence *const *owners)
{
    const struct kv_blocks *blocks = scheduler_blocks(life->scheduler);
    for (uint32_t f = 0; f < life->flight_count; f++)
        for (uint32_t id = 0; id < BLOCK_COUNT; id++) {
            const struct sequence *owner = life->flights[f].owners[id];
            FUZZ_CHECK(!owner || kv_blocks_held(blocks, id));
            FUZZ_CHECK(!owner || !owners[id] || owners[id] == owner);
        }
}

static void check_blocks(const struct life *life)
{
    struct scheduler *scheduler = life->scheduler;
    const struct sequence *owners[BLOCK_COUNT] = {0};
    uint32_t held = 0, sequences = 0;
    size_t cursor = 0;
    for (struct sequence *s; (s = scheduler_next(scheduler, &cursor)); sequences++) {
        for (uint32_t i = 0; i < s->block_count; i++) {
            FUZZ_CHECK(s->blocks[i] < BLOCK_COUNT && !owners[s->blocks[i]]);
            owners[s->blocks[i]] = s;
            held++;
        }
        FUZZ_CHECK(s->computed <= s->block_count * BLOCK_TOKENS && s->token_count <= CONTEXT);
        FUZZ_CHECK(s->state != SEQUENCE_WAITING || s->block_count == 0);
    }
    struct scheduler_load load = scheduler_load(scheduler);
    uint32_t all = 0, available = load.blocks[KV_BLOCK_FREE];
    for (int i = 0; i < KV_BLOCK_STATES; i++)
        all += load.blocks[i];
    /* Removed sequences hold theirs until their steps have ended. */
    FUZZ_CHECK(all == BLOCK_COUNT && (life->flight_count ? available <= BLOCK_COUNT - held
                                                         : available == BLOCK_COUNT - held));
    FUZZ_CHECK(sequences <= MAX_SEQUENCES && load.waiting + load.running <= sequences);
    check_flights(life, owners);
}

static void add(struct scheduler *scheduler, struct fuzz_input *input)
{
    struct sequence_spec spec = {.key = {fuzz_take_below(input, 16), 1},
                                 .plan = (enum sequence_plan)fuzz_take_below(input, 3),
                                 .token_count = 1 + (uint32_t)fuzz_take_below(input, 120),
                                 .sampling = sampling_default()};
    spec.emitted_count = (uint32_t)fuzz_take_below(input, spec.token_count);
    spec.sampling.max_tokens = 1 + (uint32_t)fuzz_take_below(input, 120);
    if (scheduler_find(scheduler, spec.key))
        return; /* keys are new */
    spec.tokens = calloc(spec.token_count, sizeof *spec.tokens);
    FUZZ_CHECK(spec.tokens);
    struct error err;
    enum status status = scheduler_add(scheduler, &spec, &err);
    if (status == STATUS_OK)
        return;
    FUZZ_CHECK(status == STATUS_INVALID || status == STATUS_LIMIT);
    fuzz_check_sentence(err.text);
    free(spec.tokens);
}

static void check_plan(const struct step_plan *plan)
{
    uint32_t prompt_rows = 0;
    FUZZ_CHECK(plan->part_count <= MAX_SEQUENCES);
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        FUZZ_CHECK(part->row_count > 0);
        FUZZ_CHECK(part->sequence->state == SEQUENCE_DECODE ||
                   part->sequence->state == SEQUENCE_PREFILL);
        if (part->sequence->state == SEQUENCE_PREFILL)
            prompt_rows += part->row_count;
        else
            FUZZ_CHECK(part->row_count == 1 && part->samples);
    }
    FUZZ_CHECK(prompt_rows <= CHUNK_TOKENS);
}

/* The tokens of a step are known. */
static void take_results(struct life *life, const struct step_plan *plan, struct fuzz_input *input)
{
    for (uint32_t i = 0; i < plan->part_count; i++) {
        uint32_t token = (uint32_t)fuzz_take_below(input, 4);
        if (life->runs_ahead && !scheduler_wants(&plan->parts[i]))
            continue;
        struct sequence *sequence = plan->parts[i].sequence;
        bool kept = sequence->plan == PLAN_HAND_OFF;
        enum finish_reason finish = scheduler_rows_done(life->scheduler, &plan->parts[i], token);
        if (finish != FINISH_NONE && !kept)
            scheduler_remove(life->scheduler, sequence);
    }
}

static void end_flight(struct life *life, struct fuzz_input *input)
{
    const struct step_plan *plan = life->flights[0].plan;
    take_results(life, plan, input);
    scheduler_step_ended(life->scheduler, plan);
    life->flights[0] = life->flights[1];
    life->flight_count--;
}

static void compute(struct life *life, struct fuzz_input *input)
{
    if (life->flight_count == 2) {
        end_flight(life, input);
        return;
    }
    const struct step_plan *plan = scheduler_plan(life->scheduler, 0);
    check_plan(plan);
    if (!life->runs_ahead) {
        take_results(life, plan, input);
    } else if (plan->part_count > 0) {
        struct flight *flight = &life->flights[life->flight_count++];
        *flight = (struct flight){.plan = plan};
        for (uint32_t i = 0; i < plan->part_count; i++) {
            const struct sequence *sequence = plan->parts[i].sequence;
            for (uint32_t b = 0; b < sequence->block_count; b++)
                flight->owners[sequence->blocks[b]] = sequence;
        }
        scheduler_rows_issued(life->scheduler, plan);
    } else if (life->flight_count) {
        end_flight(life, input);
    }
}

static void happen(struct life *life, struct fuzz_input *input)
{
    struct scheduler *scheduler = life->scheduler;
    size_t what = fuzz_take_below(input, 6);
    if (what == 0) {
        add(scheduler, input);
    } else if (what == 1) {
        struct sequence *reserved = scheduler_reserve(scheduler, 0);
        FUZZ_CHECK(!reserved || reserved->block_count > 0);
    } else if (what == 3 && life->flight_count) {
        end_flight(life, input);
    } else if (what == 2 || what == 3) {
        compute(life, input);
    } else {
        struct sequence_key key = {fuzz_take_below(input, 16), 1};
        struct sequence *sequence = scheduler_find(scheduler, key);
        if (sequence && what == 4)
            scheduler_remove(scheduler, sequence);
        else if (sequence && sequence->state == SEQUENCE_RESERVED &&
                 scheduler_admit(scheduler, sequence, (uint32_t)fuzz_take_below(input, 4)))
            scheduler_remove(scheduler, sequence);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, data + size};
    struct life life = {.runs_ahead = fuzz_take_below(&input, 2)};
    struct scheduler_config config = {.block_tokens = BLOCK_TOKENS,
                                      .block_count = BLOCK_COUNT,
                                      .max_sequences = MAX_SEQUENCES,
                                      .chunk_tokens = CHUNK_TOKENS,
                                      .chunk_us = 5000, /* 5 rows: the least ones are more */
                                      .context = CONTEXT,
                                      .end_ids = end_ids,
                                      .end_id_count = 1,
                                      .runs_ahead = life.runs_ahead};
    FUZZ_CHECK(scheduler_create(&config, &life.scheduler) == STATUS_OK);
    for (int i = 0; i < MAX_EVENTS && input.at < input.end; i++) {
        happen(&life, &input);
        check_blocks(&life);
    }
    while (life.flight_count)
        end_flight(&life, &input);
    size_t cursor = 0;
    for (struct sequence *s; (s = scheduler_next(life.scheduler, &cursor)); cursor = 0)
        scheduler_remove(life.scheduler, s);
    FUZZ_CHECK(scheduler_load(life.scheduler).blocks[KV_BLOCK_FREE] == BLOCK_COUNT);
    scheduler_destroy(life.scheduler);
    return 0;
}
