/* A schedule's life: sequences come, get blocks, compute, are admitted and removed, in any order.
 * After every event no block has two owners and none is lost; a plan keeps its budget; at the end
 * all blocks are free. Input: a byte (the event) and the event's arguments. */
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

static void check_blocks(struct scheduler *scheduler)
{
    bool owned[BLOCK_COUNT] = {0};
    uint32_t held = 0, sequences = 0;
    size_t cursor = 0;
    for (struct sequence *s; (s = scheduler_next(scheduler, &cursor)); sequences++) {
        for (uint32_t i = 0; i < s->block_count; i++) {
            FUZZ_CHECK(s->blocks[i] < BLOCK_COUNT && !owned[s->blocks[i]]);
            owned[s->blocks[i]] = true;
            held++;
        }
        FUZZ_CHECK(s->computed <= s->block_count * BLOCK_TOKENS && s->token_count <= CONTEXT);
        FUZZ_CHECK(s->state != SEQUENCE_WAITING || s->block_count == 0);
    }
    struct scheduler_load load = scheduler_load(scheduler);
    uint32_t all = 0;
    for (int i = 0; i < KV_BLOCK_STATES; i++)
        all += load.blocks[i];
    FUZZ_CHECK(all == BLOCK_COUNT && load.blocks[KV_BLOCK_FREE] == BLOCK_COUNT - held);
    FUZZ_CHECK(sequences <= MAX_SEQUENCES && load.waiting + load.running <= sequences);
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

static void compute(struct scheduler *scheduler, struct fuzz_input *input)
{
    const struct step_plan *plan = scheduler_plan(scheduler, 0);
    const struct planned_rows *parts = plan->parts;
    uint32_t count = plan->part_count, prompt_rows = 0;
    FUZZ_CHECK(count <= MAX_SEQUENCES);
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *sequence = parts[i].sequence;
        FUZZ_CHECK(parts[i].row_count > 0);
        FUZZ_CHECK(sequence->state == SEQUENCE_DECODE || sequence->state == SEQUENCE_PREFILL);
        if (sequence->state == SEQUENCE_PREFILL)
            prompt_rows += parts[i].row_count;
        else
            FUZZ_CHECK(parts[i].row_count == 1 && parts[i].samples);
    }
    FUZZ_CHECK(prompt_rows <= CHUNK_TOKENS);
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *sequence = parts[i].sequence;
        bool kept = sequence->plan == PLAN_HAND_OFF;
        enum finish_reason finish =
            scheduler_rows_done(scheduler, &parts[i], (uint32_t)fuzz_take_below(input, 4));
        if (finish != FINISH_NONE && !kept)
            scheduler_remove(scheduler, sequence);
    }
}

static void happen(struct scheduler *scheduler, struct fuzz_input *input)
{
    size_t what = fuzz_take_below(input, 6);
    if (what == 0) {
        add(scheduler, input);
    } else if (what == 1) {
        struct sequence *reserved = scheduler_reserve(scheduler, 0);
        FUZZ_CHECK(!reserved || reserved->block_count > 0);
    } else if (what == 2 || what == 3) {
        compute(scheduler, input);
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
    struct scheduler_config config = {.block_tokens = BLOCK_TOKENS,
                                      .block_count = BLOCK_COUNT,
                                      .max_sequences = MAX_SEQUENCES,
                                      .chunk_tokens = CHUNK_TOKENS,
                                      .chunk_us = 5000, /* 5 rows: the least ones are more */
                                      .context = CONTEXT,
                                      .end_ids = end_ids,
                                      .end_id_count = 1};
    struct scheduler *scheduler;
    FUZZ_CHECK(scheduler_create(&config, &scheduler) == STATUS_OK);
    for (int i = 0; i < MAX_EVENTS && input.at < input.end; i++) {
        happen(scheduler, &input);
        check_blocks(scheduler);
    }
    size_t cursor = 0;
    for (struct sequence *s; (s = scheduler_next(scheduler, &cursor)); cursor = 0)
        scheduler_remove(scheduler, s);
    FUZZ_CHECK(scheduler_load(scheduler).blocks[KV_BLOCK_FREE] == BLOCK_COUNT);
    scheduler_destroy(scheduler);
    return 0;
}
