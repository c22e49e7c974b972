#include "tests/bench/constraint_answers.h"

#include "common/base/assert.h"
#include "common/worker/step_constraints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One running answer. */
struct answer {
    size_t constraint;
    struct constraint_state state;
    struct rng rng;
    uint32_t tokens, id; /* the latter was drawn */
    bool drawn;          /* and is still to be taken */
    struct constraint_mask *mask, spare;
    struct walker_task task;
    uint32_t walk; /* number of its walk while the walker has it */
    bool halted,
        through; /* its task was taken back while tokens are drawn; its walk is at its end */
    bool over;
};

struct answers {
    struct answers_source *of;
    struct constraint_masks *masks[ANSWERS_MAX_CONSTRAINTS];
    size_t width;
    uint64_t next; /* answer */
    struct answer all[ANSWERS_MAX_WIDTH];
};

/* The next of all answers: one constraint after the other, then the next seed. */
static void begin(struct answers *answers, struct answer *answer)
{
    const struct answers_source *of = answers->of;
    answer->over = answers->next == of->count * of->seeds;
    if (answer->over)
        return;
    answer->constraint = answers->next % of->count;
    answer->rng = rng_seeded(1000 * answers->next);
    answer->tokens = 0;
    answer->drawn = false;
    constraint_state_init(of->constraints[answer->constraint], &answer->state);
    answers->next++;
}

static void let_go(struct answer *answer)
{
    constraint_masks_give(answer->mask);
    answer->mask = NULL;
}

static void refused(const char *name)
{
    fprintf(stderr, "%s: an allowed token isn't taken\n", name);
    exit(1);
}

static void take(const struct answers *answers, struct answer *answer)
{
    size_t length;
    const char *bytes = vocabulary_source_text(&answers->of->vocabulary, answer->id,
                                               !answer->state.started, &length);
    if (bytes && !constraint_state_take(answers->of->constraints[answer->constraint],
                                        &answer->state, bytes, length))
        refused(answers->of->names[answer->constraint]);
    if (memcmp(&answer->mask->state, &answer->state, sizeof answer->state) != 0)
        let_go(answer);
    answer->drawn = false;
}

/* As step_constraints does it. */
static void work_out(struct answers *answers, struct answer *answer, uint64_t *nodes_left)
{
    struct constraint_masks *masks = answers->masks[answer->constraint];
    if (!answer->mask)
        answer->mask = constraint_masks_take(masks, &answer->state, &answer->spare);
    struct constraint_mask *mask = answer->mask;
    if (mask->whole || mask->maker)
        return;
    constraint_masks_begin(masks, mask, answer->task.walk);
    mask->whole = constraint_walk_go(answer->task.walk, mask->bits, nodes_left);
    if (mask->whole)
        return;
    mask->maker = answer;
    answer->task.bits = mask->bits;
    answer->walk = walk_order_begin(&answers->of->order);
    answer->through = false;
    constraint_walker_post(answers->of->walker, &answer->task);
}

/* Its set is there for this step, if that is the one. */
static void finish(struct answers *answers, struct answer *answer)
{
    answer->through = true;
    if (!walk_order_ends(&answers->of->order, answer->walk))
        return;
    answer->mask->whole = true;
    answer->mask->maker = NULL;
}

void answers_step(struct answers *answers)
{
    uint64_t nodes = STEP_CONSTRAINTS_NODES;
    for (struct walker_task *task; (task = constraint_walker_take(answers->of->walker));)
        finish(answers, task->owner);
    for (size_t i = 0; i < answers->width; i++) {
        if (answers->all[i].drawn)
            take(answers, &answers->all[i]);
        work_out(answers, &answers->all[i], &nodes);
    }
    constraint_walker_wake(answers->of->walker);
}

static bool any_bit(const struct answers *answers, const uint32_t *bits)
{
    for (uint32_t i = 0; i < answers->of->vocabulary.trie->words; i++)
        if (bits[i])
            return true;
    return false;
}

/* False: it sat the step out. */
static bool draw(struct answers *answers, struct answer *answer)
{
    if (!answer->mask->whole)
        return false;
    const uint32_t *bits = answer->mask->bits;
    answer->id = any_bit(answers, bits)
                     ? draw_token(&answers->of->vocabulary, bits, answer->tokens, &answer->rng)
                     : answers->of->vocabulary.end_id;
    answer->drawn = true;
    if (answer->id == answers->of->vocabulary.end_id || ++answer->tokens == ANSWERS_MAX_TOKENS) {
        let_go(answer);
        begin(answers, answer);
    }
    return true;
}

void answers_halt_walker(struct answers *answers)
{
    for (size_t i = 0; i < answers->width; i++) {
        struct answer *answer = &answers->all[i];
        answer->halted = answer->mask && answer->mask->maker == answer;
        if (answer->halted && !answer->through)
            answer->through = constraint_walker_take_back(answers->of->walker, &answer->task);
    }
}

void answers_walk_due(struct answers *answers)
{
    for (size_t i = 0; i < answers->width; i++) {
        struct answer *answer = &answers->all[i];
        uint64_t nodes = UINT64_MAX;
        if (answer->mask && answer->mask->maker == answer && !answer->through &&
            walk_order_due(&answers->of->order, answer->walk))
            answer->through = constraint_walker_take_back(answers->of->walker, &answer->task) ||
                              constraint_walk_go(answer->task.walk, answer->task.bits, &nodes);
    }
}

void answers_go_on(struct answers *answers)
{
    walk_order_step(&answers->of->order);
    for (size_t i = 0; i < answers->width; i++) {
        struct answer *answer = &answers->all[i];
        if (!answer->halted)
            continue;
        if (answer->through)
            finish(answers, answer);
        else
            constraint_walker_post(answers->of->walker, &answer->task);
    }
    constraint_walker_wake(answers->of->walker);
}

size_t answers_draw(struct answers *answers)
{
    size_t drawn = 0;
    for (size_t i = 0; i < answers->width; i++)
        drawn += draw(answers, &answers->all[i]);
    return drawn;
}

bool answers_over(const struct answers *answers)
{
    for (size_t i = 0; i < answers->width; i++)
        if (answers->all[i].over)
            return true;
    return false;
}

uint64_t answers_hash(const struct answers *answers, uint64_t before)
{
    for (size_t i = 0; i < answers->width; i++)
        before = UINT64_C(0x9e3779b97f4a7c15) * before + answers->all[i].id;
    return before;
}

struct constraint_masks_counts answers_counts(const struct answers *answers)
{
    struct constraint_masks_counts all = {0};
    for (size_t i = 0; i < answers->of->count; i++) {
        struct constraint_masks_counts counts = constraint_masks_counts(answers->masks[i]);
        all.found += counts.found;
        all.walked += counts.walked;
    }
    return all;
}

struct answers *answers_open(struct answers_source *source, size_t width)
{
    struct answers *answers = calloc(1, sizeof *answers);
    ASSERT(answers && width <= ANSWERS_MAX_WIDTH);
    answers->of = source;
    answers->width = width;
    for (size_t i = 0; i < source->count; i++)
        answers->masks[i] =
            constraint_masks_create(source->constraints[i], source->vocabulary.trie, source->kept);
    for (size_t i = 0; i < width; i++) {
        struct answer *answer = &answers->all[i];
        answer->task = (struct walker_task){.walk = constraint_walk_create(), .owner = answer};
        answer->spare.bits = calloc(source->vocabulary.trie->words, sizeof(uint32_t));
        begin(answers, answer);
    }
    walk_order_round(&source->order);
    return answers;
}

void answers_close(struct answers *answers)
{
    for (size_t i = 0; i < answers->width; i++) {
        struct answer *answer = &answers->all[i];
        if (answer->mask) {
            answer->mask->maker = NULL; /* no thread continues it */
            let_go(answer);
        }
        constraint_walk_destroy(answer->task.walk);
        free(answer->spare.bits);
    }
    for (size_t i = 0; i < answers->of->count; i++)
        constraint_masks_destroy(answers->masks[i]);
    free(answers);
}
