/* Chooses the next item when some owners ask for much. The turn goes to the owner that was served
 * longest ago, and to that owner's first item. However much one owner has queued, another owner
 * waits for at most one of its items. PURE: no locks, no memory of its own; items are embedded in
 * the caller's structs. The caller bounds their number (fair_queue_count_of: those of one owner).
 */
#ifndef BATON_BASE_FAIR_QUEUE_H
#define BATON_BASE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/* The queue remembers when it served so many owners. It takes all others for not served yet. */
#define FAIR_QUEUE_OWNERS 64

struct fair_item {
    uint64_t owner;
    TAILQ_ENTRY(fair_item) link;
};

struct fair_queue {
    TAILQ_HEAD(fair_items, fair_item) items; /* in the order of arrival */
    uint32_t count;
    uint64_t turn;
    struct {
        uint64_t owner, turn; /* turn 0: free entry */
    } served[FAIR_QUEUE_OWNERS];
};

void fair_queue_init(struct fair_queue *queue);
void fair_queue_push(struct fair_queue *queue, struct fair_item *item, uint64_t owner);
/* the item is in the queue */
void fair_queue_remove(struct fair_queue *queue, struct fair_item *item);
struct fair_item *fair_queue_pop(struct fair_queue *queue); /* NULL: empty */
uint32_t fair_queue_count_of(const struct fair_queue *queue, uint64_t owner);

/* Returns whether an owner may hold `own` of the `all` that is taken of `most`: as much as it holds
 * must stay free. So one owner alone gets a half, two get a third each, and there is always room
 * for one more (dynamic thresholds with a factor of 1: Choudhury and Hahne 1998). */
bool fair_share_holds(size_t own, size_t all, size_t most);

#endif
