/* Computes a second time how much of a step prompts may take beside answers. */
#include "tests/schedule/schedule_sim.h"

/* The prompt rows of a step. */
struct chunk {
    bool timed;     /* others wait for answers in it */
    bool disturbed; /* some of the step were left out again: they were preempted */
    uint32_t rows, decodes, decode_rows;
    double us;
    bool one_more_fits; /* the next row of a prompt with rows left still fits */
    bool some_left;
};

static struct chunk chunk_of(struct life *life, const struct step_plan *plan)
{
    struct chunk chunk = {.one_more_fits = true};
    bool held = life_are_held(life, plan, false);
    for (uint32_t i = 0; i < plan->part_count; i++) {
        const struct planned_rows *part = &plan->parts[i];
        if (part->decodes) {
            chunk.timed |= life->config.chunk_us && !life_is_offline(part->sequence);
            chunk.decodes++;
            chunk.decode_rows += part->row_count;
            continue;
        }
        chunk.rows += part->row_count;
        chunk.us += cost_model_prefill_us(&life->cost, part->first, part->row_count);
    }
    for (uint32_t i = 0; i < life->before_count; i++) {
        const struct sequence *sequence = life->before[i].sequence;
        const struct planned_rows *part = life_part_of(plan, sequence);
        uint32_t end = sequence->computed + (part ? part->row_count : 0);
        chunk.disturbed |= sequence->state != life->before[i].state;
        chunk.timed |= life->config.chunk_us && life->before[i].awaits_token && !held &&
                       !life_is_offline(sequence);
        if (sequence->state != SEQUENCE_PREFILL || end == sequence->prompt_count)
            continue;
        double us = cost_model_prefill_us(&life->cost, end, 1);
        chunk.some_left = true;
        chunk.one_more_fits &= chunk.us + us < (double)life->config.chunk_us * (1 - 1e-9);
    }
    return chunk;
}

bool life_is_out_of_time(struct life *life, const struct step_plan *plan)
{
    struct chunk chunk = chunk_of(life, plan);
    return chunk.disturbed ||
           (chunk.timed && chunk.rows >= BATCH_CHUNK_LEAST_ROWS && !chunk.one_more_fits);
}

/* Some prompt has fewer rows than it has left, and nothing but the time can be why. */
static bool is_cut_by_time(const struct life *life, const struct step_plan *plan,
                           const struct chunk *chunk)
{
    return chunk->some_left && !chunk->disturbed && chunk->rows < life->config.chunk_tokens &&
           plan->part_count < life->config.max_batch_sequences &&
           chunk->rows + chunk->decodes < life->config.max_batch_tokens;
}

void check_time(struct life *life, const struct step_plan *plan)
{
    struct chunk chunk = chunk_of(life, plan);
    if (chunk.timed && chunk.rows > BATCH_CHUNK_LEAST_ROWS &&
        chunk.us > (double)life->config.chunk_us * (1 + 1e-9))
        life_fail(life, HOLDS_TIME, "%u rows of prompts take %.0f us of %llu beside answers",
                  chunk.rows, chunk.us, (unsigned long long)life->config.chunk_us);
    if (plan->drain || !is_cut_by_time(life, plan, &chunk))
        return;
    if (!chunk.timed || chunk.rows < BATCH_CHUNK_LEAST_ROWS || chunk.one_more_fits)
        life_fail(life, HOLDS_TIME, "%u rows of prompts, and there is time for more", chunk.rows);
    life->happened[DID_BOUND]++;
}

void check_learns(struct life *life, const struct step_plan *plan, uint64_t took_us)
{
    struct chunk chunk = chunk_of(life, plan);
    if (plan->part_count)
        cost_model_learn_step(&life->cost, chunk.us,
                              cost_model_decode_us(&life->cost, chunk.decode_rows),
                              (double)took_us);
}
