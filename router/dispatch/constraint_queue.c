#include "router/dispatch/constraint_queue.h"

#include "common/base/assert.h"

#include <stdlib.h>

/* A place of one owner for one constraint. */
struct place {
    struct fair_item item; /* first */
    struct queued_constraint *constraint;
    uint32_t requests; /* how many ask */
    TAILQ_ENTRY(place) link;
};

struct queued_constraint {
    struct constraint_source *source;
    uint64_t hash;
    TAILQ_HEAD(places, place) places; /* at least one */
    TAILQ_ENTRY(queued_constraint) link;
};

void constraint_queue_init(struct constraint_queue *queue)
{
    fair_queue_init(&queue->turns);
    TAILQ_INIT(&queue->constraints);
    queue->count = 0;
}

static void remove_place(struct constraint_queue *queue, struct place *place)
{
    fair_queue_remove(&queue->turns, &place->item);
    TAILQ_REMOVE(&place->constraint->places, place, link);
    free(place);
}

/* Returns the source, which the caller frees. */
static struct constraint_source *remove_constraint(struct constraint_queue *queue,
                                                   struct queued_constraint *constraint)
{
    struct constraint_source *source = constraint->source;
    for (struct place *place; (place = TAILQ_FIRST(&constraint->places));)
        remove_place(queue, place);
    TAILQ_REMOVE(&queue->constraints, constraint, link);
    queue->count--;
    free(constraint);
    return source;
}

void constraint_queue_deinit(struct constraint_queue *queue)
{
    for (struct queued_constraint *first; (first = TAILQ_FIRST(&queue->constraints));)
        free(remove_constraint(queue, first));
}

static struct queued_constraint *find(const struct constraint_queue *queue,
                                      const struct constraint_source *source, uint64_t hash)
{
    struct queued_constraint *constraint;
    TAILQ_FOREACH(constraint, &queue->constraints, link)
    if (constraint->hash == hash && constraint_source_equal(constraint->source, source))
        return constraint;
    return NULL;
}

static struct place *place_of(const struct queued_constraint *constraint, uint64_t owner)
{
    struct place *place;
    TAILQ_FOREACH(place, &constraint->places, link)
    if (place->item.owner == owner)
        return place;
    return NULL;
}

static struct queued_constraint *add_constraint(struct constraint_queue *queue,
                                                const struct constraint_source *source,
                                                uint64_t hash)
{
    struct queued_constraint *constraint = calloc(1, sizeof *constraint);
    ASSERT(constraint);
    constraint->source = constraint_source_copy(source);
    ASSERT(constraint->source);
    constraint->hash = hash;
    TAILQ_INIT(&constraint->places);
    TAILQ_INSERT_TAIL(&queue->constraints, constraint, link);
    queue->count++;
    return constraint;
}

static struct place *add_place(struct constraint_queue *queue, struct queued_constraint *constraint,
                               uint64_t owner)
{
    struct place *place = calloc(1, sizeof *place);
    ASSERT(place);
    place->constraint = constraint;
    TAILQ_INSERT_TAIL(&constraint->places, place, link);
    fair_queue_push(&queue->turns, &place->item, owner);
    return place;
}

enum status constraint_queue_ask(struct constraint_queue *queue,
                                 const struct constraint_source *source, uint64_t hash,
                                 uint64_t owner, bool may_add)
{
    struct queued_constraint *constraint = find(queue, source, hash);
    struct place *place = constraint ? place_of(constraint, owner) : NULL;
    if (!place) {
        if ((!constraint && !may_add) ||
            fair_queue_count_of(&queue->turns, owner) >= CONSTRAINT_WAITING_EACH)
            return STATUS_LIMIT;
        if (!constraint)
            constraint = add_constraint(queue, source, hash);
        place = add_place(queue, constraint, owner);
    }
    place->requests++;
    return STATUS_OK;
}

void constraint_queue_withdraw(struct constraint_queue *queue,
                               const struct constraint_source *source, uint64_t hash,
                               uint64_t owner)
{
    struct queued_constraint *constraint = find(queue, source, hash);
    struct place *place = constraint ? place_of(constraint, owner) : NULL;
    if (!place || --place->requests)
        return;
    remove_place(queue, place);
    if (TAILQ_EMPTY(&constraint->places))
        free(remove_constraint(queue, constraint));
}

struct constraint_source *constraint_queue_pop(struct constraint_queue *queue, uint64_t *hash)
{
    struct place *place = (struct place *)fair_queue_pop(&queue->turns);
    if (!place)
        return NULL;
    struct queued_constraint *constraint = place->constraint;
    *hash = constraint->hash;
    TAILQ_REMOVE(&constraint->places, place, link);
    free(place);
    return remove_constraint(queue, constraint);
}
