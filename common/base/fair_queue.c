#include "common/base/fair_queue.h"

#include <string.h>

void fair_queue_init(struct fair_queue *queue)
{
    memset(queue, 0, sizeof *queue);
    TAILQ_INIT(&queue->items);
}

void fair_queue_push(struct fair_queue *queue, struct fair_item *item, uint64_t owner)
{
    item->owner = owner;
    TAILQ_INSERT_TAIL(&queue->items, item, link);
    queue->count++;
}

void fair_queue_remove(struct fair_queue *queue, struct fair_item *item)
{
    TAILQ_REMOVE(&queue->items, item, link);
    queue->count--;
}

/* Returns the owner's last turn; 0: not lately. */
static uint64_t last_turn(const struct fair_queue *queue, uint64_t owner)
{
    for (int i = 0; i < FAIR_QUEUE_OWNERS; i++)
        if (queue->served[i].turn && queue->served[i].owner == owner)
            return queue->served[i].turn;
    return 0;
}

static void note_turn(struct fair_queue *queue, uint64_t owner)
{
    int place = 0;
    for (int i = 0; i < FAIR_QUEUE_OWNERS; i++) {
        if (queue->served[i].turn && queue->served[i].owner == owner) {
            place = i;
            break;
        }
        if (queue->served[i].turn < queue->served[place].turn)
            place = i;
    }
    queue->served[place].owner = owner;
    queue->served[place].turn = ++queue->turn;
}

struct fair_item *fair_queue_pop(struct fair_queue *queue)
{
    struct fair_item *item, *best = NULL;
    uint64_t best_turn = UINT64_MAX;
    TAILQ_FOREACH(item, &queue->items, link)
    {
        uint64_t turn = last_turn(queue, item->owner);
        if (turn < best_turn) {
            best = item;
            best_turn = turn;
        }
        if (!best_turn)
            break;
    }
    if (!best)
        return NULL;
    fair_queue_remove(queue, best);
    note_turn(queue, best->owner);
    return best;
}

uint32_t fair_queue_count_of(const struct fair_queue *queue, uint64_t owner)
{
    const struct fair_item *item;
    uint32_t count = 0;
    TAILQ_FOREACH(item, &queue->items, link)
    count += item->owner == owner;
    return count;
}

bool fair_share_holds(size_t own, size_t all, size_t most)
{
    return all <= most && own <= most - all;
}
