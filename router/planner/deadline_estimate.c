#include "router/planner/deadline_estimate.h"

#include <stddef.h>

#define LIKELY_PART 1.25 /* as a worker's own (deadline.c) */
#define OTHERS_PART 1.1

uint64_t deadline_least_us(const struct step_cost *prefill, const struct step_cost *decode,
                           const struct deadline_work *work)
{
    double us = 0, rows = work->prompt_rows;
    if (prefill && work->prompt_rows)
        us += step_cost_predict(
            prefill, &(struct step_shape){.prefill_rows = work->prompt_rows,
                                          .prefill_positions = (uint64_t)(rows * (rows - 1) / 2)});
    if (decode && work->answer_tokens > 1) {
        double steps = work->answer_tokens - 1;
        us += steps *
              step_cost_predict(
                  decode, &(struct step_shape){.decode_rows = 1, .decode_context = work->context});
        us += decode->decode_context_us * steps * (steps - 1) / 2; /* the answer itself */
    }
    return us < (double)(UINT64_MAX / 2) ? (uint64_t)us : UINT64_MAX / 2;
}

uint32_t deadline_least_tokens(bool has_length, uint32_t max_tokens, uint32_t min_tokens,
                               uint32_t drawn)
{
    uint32_t least = has_length ? max_tokens : min_tokens;
    return least > drawn ? least - drawn : 1;
}

bool deadline_is_missed(uint64_t now_us, uint64_t deadline_us, uint64_t least_us)
{
    if (deadline_us == UINT64_MAX)
        return false;
    return deadline_us <= now_us || least_us - least_us / 4 > deadline_us - now_us;
}

bool deadline_is_unlikely(double left_us, double likely_us, double alone_us)
{
    return LIKELY_PART * likely_us > left_us && likely_us > OTHERS_PART * alone_us;
}

struct deadline_prompt deadline_of_prompt(uint64_t left_us, uint64_t least_us, double answer_us)
{
    uint64_t sure_us = least_us / 4 * 3;
    double due_us = (double)left_us - LIKELY_PART * answer_us;
    return (struct deadline_prompt){.left_us = left_us > sure_us ? left_us - sure_us : 1,
                                    .due_us = due_us > 1 ? (uint64_t)due_us : 1};
}
