/* Who can ever fit, how many blocks a sequence takes to begin, and (scheduler_reserve) who gets
 * them next. */
#ifndef BATON_ENGINE_SCHED_ADMISSION_H
#define BATON_ENGINE_SCHED_ADMISSION_H

#include "common/engine/sched/scheduler_state.h"

/* STATUS_INVALID with the numbers: alone on the worker it would not fit either. */
enum status admission_check(const struct scheduler *s, const struct sequence_spec *spec,
                            struct error *err) WARN_UNUSED;
/* Tokens that the sequence's blocks must hold at its end. */
uint32_t admission_hold_tokens(const struct sequence_spec *spec, uint32_t context);

/* Blocks to begin, or to go on after a preemption. */
uint32_t admission_need(const struct scheduler *s, const struct sequence *sequence);
/* Makes `need` blocks free, if (with `grow`) one more is left, free or cached, for each that
 * runs. */
bool admission_make_room(struct scheduler *s, uint32_t need);

/* Something changed: the next scheduler_reserve begins a new round. */
void admission_end_round(struct scheduler *s);
/* Counts who runs. */
uint32_t admission_count_growers(const struct scheduler *s);

#endif
