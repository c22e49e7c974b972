/* Answers under constraints of their own that are drawn side by side without a model
 * (tests/constrain/generate.h): what a worker does for them before a step (step_constraints.h), and
 * what the walker does between two, which walk_order.h has in the same steps in every round. A
 * round is all answers once. One thread's. */
#ifndef BATON_TESTS_BENCH_CONSTRAINT_ANSWERS_H
#define BATON_TESTS_BENCH_CONSTRAINT_ANSWERS_H

#include "common/worker/constraint_walker.h"
#include "tests/bench/walk_order.h"
#include "tests/constrain/generate.h"

#define ANSWERS_MAX_CONSTRAINTS 512
#define ANSWERS_MAX_TOKENS      200 /* of one */
#define ANSWERS_MAX_WIDTH       64

/* What they are of: the caller's, and stays. */
struct answers_source {
    struct vocabulary_source vocabulary;
    struct constraint *constraints[ANSWERS_MAX_CONSTRAINTS];
    const char *names[ANSWERS_MAX_CONSTRAINTS];
    size_t count;
    uint64_t seeds; /* answers under each constraint */
    uint32_t kept;  /* sets of each */
    struct constraint_walker *walker;
    struct walk_order order;
};

struct answers;

/* A round begins, with so many under way; no set is known. */
struct answers *answers_open(struct answers_source *source, size_t width);
void answers_close(struct answers *answers);
/* One ended, and there is no next one. */
bool answers_over(const struct answers *answers);

/* Takes the tokens drawn before, finds the sets of those that may come next, and walks, as far as a
 * step does that itself. The rest is the walker's. */
void answers_step(struct answers *answers);
/* What the walker was through with by the next step in the first round is walked to its end, should
 * it not be: ahead of what is read between both, so that it is as cold in the next one as what the
 * walker did. */
void answers_walk_due(struct answers *answers);
/* The walker walks on no more until it is let go on. What it is through with is for the next step,
 * or for a later one of the round before. */
void answers_halt_walker(struct answers *answers);
void answers_go_on(struct answers *answers);
/* A token of each whose set is there; how many those are. The others sit the step out. */
size_t answers_draw(struct answers *answers);

/* Of the last token of each, behind the hash of those before. */
uint64_t answers_hash(const struct answers *answers, uint64_t before);
/* Of the sets of all constraints. */
struct constraint_masks_counts answers_counts(const struct answers *answers);

#endif
