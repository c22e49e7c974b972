#include "tests/bench/walk_order.h"

#include "common/base/assert.h"

#include <stdlib.h>

void walk_order_init(struct walk_order *order)
{
    *order = (struct walk_order){.rounds = 0};
}

void walk_order_deinit(struct walk_order *order)
{
    free(order->ends);
}

void walk_order_round(struct walk_order *order)
{
    order->rounds++;
    order->step = order->begun = 0;
}

void walk_order_step(struct walk_order *order)
{
    order->step++;
}

uint32_t walk_order_begin(struct walk_order *order)
{
    if (order->begun == order->count && order->count == order->capacity) {
        order->capacity = order->capacity ? 2 * order->capacity : 1024;
        order->ends = realloc(order->ends, order->capacity * sizeof *order->ends);
        ASSERT(order->ends);
    }
    if (order->begun == order->count) {
        ASSERT(order->rounds == 1); /* otherwise this round differs from the first */
        order->ends[order->count++] = 0;
    }
    return order->begun++;
}

bool walk_order_due(const struct walk_order *order, uint32_t walk)
{
    return order->rounds > 1 && order->ends[walk] == order->step + 1;
}

bool walk_order_ends(struct walk_order *order, uint32_t walk)
{
    if (order->rounds == 1)
        order->ends[walk] = order->step;
    return order->ends[walk] == order->step;
}
