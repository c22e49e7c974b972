#include "common/engine/sched/ranking.h"

#include <stdbool.h>
#include <stddef.h>

static bool before(const struct ranked *a, const struct ranked *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

/* The entry at `at` may be too late for its place: moves it down. */
static void sink_down(struct ranking *ranking, uint32_t at)
{
    struct ranked moving = ranking->entries[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= ranking->count)
            break;
        if (child + 1 < ranking->count &&
            before(&ranking->entries[child + 1], &ranking->entries[child]))
            child++;
        if (!before(&ranking->entries[child], &moving))
            break;
        ranking->entries[at] = ranking->entries[child];
        at = child;
    }
    ranking->entries[at] = moving;
}

void ranking_build(struct ranking *ranking)
{
    for (uint32_t at = ranking->count / 2; at-- > 0;)
        sink_down(ranking, at);
}

struct sequence *ranking_take(struct ranking *ranking)
{
    if (ranking->count == 0)
        return NULL;
    struct sequence *first = ranking->entries[0].sequence;
    ranking->entries[0] = ranking->entries[--ranking->count];
    if (ranking->count)
        sink_down(ranking, 0);
    return first;
}
