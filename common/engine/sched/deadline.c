/* Judges which sequences can't be whole at their deadlines.
 *
 * A sequence is missed if its deadline passes even at best: its steps are as fast as the fastest
 * ones lately, its answer is as short as it may be, its prompt is cached if that is possible, and
 * three quarters of that time are enough. Its prompt takes no time before some prompts were
 * measured, and its answer none before some steps were: the first one may be a hiccup. It ends,
 * since its client would get nothing. One that needs no more than tokens in flight gets them.
 *
 * A sequence that waits, or has rows of its prompt to compute, is likely missed if it needs more
 * time than it has: steps as they are now, its prompt as it was cached when it came, and a quarter
 * more. A prompt that another worker will read is due earlier, as that one needs time, too. It
 * isn't ended, but begins, and gets rows, after the others of its class. In overload those begin
 * that will be whole. */
#include "common/base/u32.h"
#include "common/engine/sched/scheduler_state.h"

#include <math.h>

#define SURE_PART       0.75
#define LIKELY_PART     1.25
#define STEP_WEIGHT     8.0   /* a step has one 8th of the average's weight */
#define FAST_WEIGHT     64.0  /* the fastest step is forgotten so slowly */
#define FAST_GROWTH     256.0 /* and one step adds no more than such a part of it */
#define MEASURED_STEPS  8     /* before, the time of a prompt or an answer is a guess */
#define SEARCH_EVERY_US 10000

void deadline_learn_step(struct scheduler *s, bool has_prompts, uint32_t decodes, uint64_t took_us)
{
    double us = (double)took_us, slower_us = us - s->fast_step_us;
    s->prompt_steps += has_prompts && s->prompt_steps < MEASURED_STEPS;
    if (!decodes)
        return;
    s->answer_steps += s->answer_steps < MEASURED_STEPS;
    s->step_us += s->step_us > 0 ? (us - s->step_us) / STEP_WEIGHT : us;
    if (s->fast_step_us > 0 && slower_us > 0)
        slower_us = fmin(slower_us / FAST_WEIGHT, fmax(s->fast_step_us / FAST_GROWTH, 1));
    s->fast_step_us += slower_us;
}

/* Returns how many tokens it surely still draws here. An answer may end at any token unless end
 * tokens are ignored. Stop strings are known to the router alone: it gives no deadline with them
 * where end tokens are ignored. */
static uint32_t least_tokens(const struct scheduler *s, const struct sequence *sequence)
{
    const struct sampling *sampling = &sequence->sampling;
    if (sequence->plan == PLAN_HAND_OFF)
        return 1;
    bool has_length = sampling->ignore_eos && !sampling->stop_id_count && !sequence->constraint;
    uint32_t least = has_length ? sampling->max_tokens : sampling->min_tokens;
    uint32_t drawn = sequence_answer_count(sequence) + sequence->pending;
    uint32_t left = least > drawn ? least - drawn : !sequence->pending;
    return min_u32(left, s->config.context - sequence->token_count);
}

/* Returns the time of its prompt and its least answer, with `rows` of its prompt to compute. */
static double time_us(const struct scheduler *s, const struct sequence *sequence, uint32_t rows,
                      double step_us)
{
    bool decodes = sequence->state == SEQUENCE_DECODE;
    uint32_t steps = least_tokens(s, sequence) - !decodes; /* the first comes with the prompt */
    double prompt_us =
        rows ? cost_model_prefill_us(&s->cost, sequence->prompt_count - rows, rows) : 0;
    return prompt_us + steps * step_us;
}

static uint32_t rows_left(const struct sequence *sequence, uint32_t cached)
{
    if (sequence->plan == PLAN_RECEIVE || sequence->prompt_count <= cached)
        return 0;
    return sequence->prompt_count - cached;
}

static double time_left_us(const struct scheduler *s, uint64_t until_us)
{
    return until_us > s->now_us ? (double)(until_us - s->now_us) : 0;
}

bool deadline_is_likely_missed(const struct scheduler *s, const struct sequence *sequence)
{
    if (sequence->preempted)
        return false;
    uint32_t rows = rows_left(sequence, max_u32(sequence->likely_cached, sequence->computed));
    double left_us = time_left_us(s, sequence->due_us);
    return LIKELY_PART * time_us(s, sequence, rows, s->step_us) > left_us;
}

void deadline_judge_prompts(struct scheduler *s)
{
    for (uint32_t i = 0; s->deadline_count && i < s->count; i++) {
        struct sequence *sequence = s->by_arrival[i];
        if (sequence->state == SEQUENCE_PREFILL)
            sequence->likely_late =
                sequence->deadline_us != UINT64_MAX && deadline_is_likely_missed(s, sequence);
    }
}

static bool is_missed(const struct scheduler *s, const struct sequence *sequence)
{
    if (sequence->deadline_us == UINT64_MAX || sequence->state == SEQUENCE_HELD ||
        sequence->state == SEQUENCE_RESERVED)
        return false;
    if (sequence->pending && !sequence_goes_on(sequence))
        return false; /* its last token is on its way */
    bool has_rows = sequence_computes(sequence) || sequence->state == SEQUENCE_SWAPPED;
    uint32_t rows = has_rows   ? rows_left(sequence, sequence->computed)
                    : s->cache ? 0
                               : rows_left(sequence, 0);
    if (s->prompt_steps < MEASURED_STEPS)
        rows = 0;
    double left_us = time_left_us(s, sequence->deadline_us);
    double step_us = s->answer_steps < MEASURED_STEPS ? 0 : s->fast_step_us;
    if (sequence->may_draft)
        step_us /= 1 + s->config.draft_tokens; /* all drafts may be right */
    return left_us <= 0 || SURE_PART * time_us(s, sequence, rows, step_us) > left_us;
}

struct sequence *scheduler_next_missed(struct scheduler *s, uint64_t now_us)
{
    scheduler_set_now(s, now_us);
    if (!s->deadline_count || s->now_us < s->search_us)
        return NULL;
    for (; s->missed_at < s->count; s->missed_at++)
        if (is_missed(s, s->by_arrival[s->missed_at]))
            return s->by_arrival[s->missed_at];
    s->missed_at = 0;
    s->search_us = s->now_us + SEARCH_EVERY_US;
    return NULL;
}
