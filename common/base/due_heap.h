/* Items by the time at which something is due for them: the earliest one at once, and each change
 * in the logarithm of their number. A binary heap (Williams, CACM'64) with the place of each item
 * in the item, so that any one can be moved.
 *
 * Items are embedded in the caller's structs, and belong to it. Owner: one thread. */
#ifndef BATON_BASE_DUE_HEAP_H
#define BATON_BASE_DUE_HEAP_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct due { /* all 0: in no heap, and due at once */
    uint64_t at_us;
    size_t place; /* from 1 on; 0: in no heap */
};

struct due_heap {
    struct due **items; /* [count] of [capacity] */
    size_t count, capacity;
};

/* STATUS_LIMIT: no memory. */
enum status due_heap_init(struct due_heap *heap, size_t capacity) WARN_UNUSED;
void due_heap_deinit(struct due_heap *heap);
/* Adds the item, or moves it. UINT64_MAX: nothing is due for it, and it is taken out. There may be
 * no more than `capacity` items. */
void due_heap_set(struct due_heap *heap, struct due *due, uint64_t at_us);
/* Returns the item that is due first. NULL: none is. */
struct due *due_heap_first(const struct due_heap *heap);

#endif
