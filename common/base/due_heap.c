#include "common/base/due_heap.h"

#include "common/base/assert.h"

#include <stdlib.h>

enum status due_heap_init(struct due_heap *heap, size_t capacity)
{
    *heap = (struct due_heap){.items = calloc(capacity + 1, sizeof(struct due *)),
                              .capacity = capacity};
    return heap->items ? STATUS_OK : STATUS_LIMIT;
}

void due_heap_deinit(struct due_heap *heap)
{
    free(heap->items);
    *heap = (struct due_heap){.count = 0};
}

static void put(struct due_heap *heap, size_t place, struct due *due)
{
    heap->items[place - 1] = due;
    due->place = place;
}

/* Moves the item towards the first place, or away from it, until it is in order. */
static void settle(struct due_heap *heap, struct due *due)
{
    size_t place = due->place;
    for (; place > 1 && heap->items[place / 2 - 1]->at_us > due->at_us; place /= 2)
        put(heap, place, heap->items[place / 2 - 1]);
    for (size_t child = 2 * place; child <= heap->count; child = 2 * place) {
        if (child < heap->count && heap->items[child]->at_us < heap->items[child - 1]->at_us)
            child++;
        if (heap->items[child - 1]->at_us >= due->at_us)
            break;
        put(heap, place, heap->items[child - 1]);
        place = child;
    }
    put(heap, place, due);
}

void due_heap_set(struct due_heap *heap, struct due *due, uint64_t at_us)
{
    due->at_us = at_us;
    if (at_us != UINT64_MAX) {
        ASSERT(due->place || heap->count < heap->capacity);
        if (!due->place)
            due->place = ++heap->count;
        settle(heap, due);
    } else if (due->place) {
        struct due *last = heap->items[--heap->count];
        size_t place = due->place;
        due->place = 0;
        if (last == due)
            return;
        last->place = place;
        settle(heap, last);
    }
}

struct due *due_heap_first(const struct due_heap *heap)
{
    return heap->count ? heap->items[0] : NULL;
}
