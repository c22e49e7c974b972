/* Draws answers side by side without a model, each under a constraint of its own
 * (tests/constrain/generate.h). Does a worker's work for them before a step (step_constraints.h),
 * and the walker's between two steps; walk_order.h keeps that in the same steps in every round. A
 * round is all answers once. Used by one thread. */
#ifndef BATON_TESTS_BENCH_CONSTRAINT_ANSWERS_H
#define BATON_TESTS_BENCH_CONSTRAINT_ANSWERS_H

#include "common/worker/constraint_walker.h"
#include "tests/bench/walk_order.h"
#include "tests/constrain/generate.h"

#define ANSWERS_MAX_CONSTRAINTS 512
#define ANSWERS_MAX_TOKENS      200 /* at most in an answer */
#define ANSWERS_MAX_WIDTH       64

/* The inputs of answers_open. The caller owns it and keeps it until answers_close. */
struct answers_source {
    struct vocabulary_source vocabulary;
    struct constraint *constraints[ANSWERS_MAX_CONSTRAINTS];
    const char *names[ANSWERS_MAX_CONSTRAINTS];
    size_t count;
    uint64_t seeds; /* answers under each constraint */
    uint32_t kept;  /* sets kept for each constraint */
    struct constraint_walker *walker;
    struct walk_order order;
};

struct answers;

/* Begins a round with `width` answers at a time. No set is known. */
struct answers *answers_open(struct answers_source *source, size_t width);
void answers_close(struct answers *answers);
/* Returns true once an answer has ended and no next one is left. */
bool answers_over(const struct answers *answers);

/* Advances by the tokens drawn before, finds the sets of tokens that may come next, and does a
 * step's own walks. The walker does the rest. */
void answers_step(struct answers *answers);
/* Finishes each walk that the walker had finished by the next step in the first round. Call it
 * before the memory is read between both steps: then these sets are as cold as those of the
 * walker. */
void answers_walk_due(struct answers *answers);
/* Halts the walker until answers_go_on. Its finished sets are for the next step, or for a later one
 * if the first round had them later. */
void answers_halt_walker(struct answers *answers);
void answers_go_on(struct answers *answers);
/* Draws a token for each answer with a ready set, and returns their number. The other answers sit
 * the step out. */
size_t answers_draw(struct answers *answers);

/* Returns the hash of `before` and the last token of each answer. */
uint64_t answers_hash(const struct answers *answers, uint64_t before);
/* Returns the sums over the sets of all constraints. */
struct constraint_masks_counts answers_counts(const struct answers *answers);

#endif
