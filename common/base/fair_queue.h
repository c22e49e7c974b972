/* Who is next, where some ask for much: the turn goes to the owner who was served longest ago, and
 * of one owner's items to the first. So whatever one of them has queued, another waits for one item
 * of his at most. PURE: no locks, no memory of its own; items are embedded in what they stand for.
 * Whoever pushes bounds how many there are (fair_queue_count_of: of one owner). */
#ifndef BATON_BASE_FAIR_QUEUE_H
#define BATON_BASE_FAIR_QUEUE_H

#include <stdint.h>
#include <sys/queue.h>

#define FAIR_QUEUE_OWNERS                                                                          \
    64 /* that are remembered to have been served; others count as not served yet */

struct fair_item {
    uint64_t owner;
    TAILQ_ENTRY(fair_item) link;
};

struct fair_queue {
    TAILQ_HEAD(fair_items, fair_item) items; /* as they came */
    uint32_t count;
    uint64_t turn;
    struct {
        uint64_t owner, turn; /* the latter 0: nobody */
    } served[FAIR_QUEUE_OWNERS];
};

void fair_queue_init(struct fair_queue *queue);
void fair_queue_push(struct fair_queue *queue, struct fair_item *item, uint64_t owner);
void fair_queue_remove(struct fair_queue *queue, struct fair_item *item); /* one that is in it */
struct fair_item *fair_queue_pop(struct fair_queue *queue);               /* NULL: empty */
uint32_t fair_queue_count_of(const struct fair_queue *queue, uint64_t owner);

#endif
