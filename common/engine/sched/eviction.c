#include "common/engine/sched/eviction.h"

#include "common/base/assert.h"

#include <math.h>
#include <stdlib.h>

const char *const eviction_policies[] = {"lcbfu", "lru", NULL};

struct item {
    double priority, weight;
    uint64_t asked;     /* tick of the last request */
    uint32_t frequency; /* requests since it was stored */
    uint32_t slot;      /* in the heap; EVICTION_NONE: not offered */
};

struct eviction {
    enum eviction_policy policy;
    struct eviction_cost cost;
    double age;
    uint64_t tick;
    uint32_t id_count, offered;
    uint32_t *heap; /* [id_count]: a binary heap of the offered ids, worth least first */
    struct item items[];
};

struct eviction_cost eviction_cost_of(const struct model_shape *shape, uint32_t block_tokens)
{
    double hidden = shape->hidden, heads = (double)shape->heads * shape->head_dim;
    double kv = (double)shape->kv_heads * shape->head_dim;
    double weights = hidden * (2 * heads + 2 * kv + 3 * (double)shape->ffn); /* one layer's */
    double row = 2 * weights;    /* operations of its linear layers for one row */
    double position = 4 * heads; /* operations of attending to one more position: q.k and p.v */
    return (struct eviction_cost){.even_blocks = row / position / block_tokens};
}

double eviction_block_cost(const struct eviction_cost *cost, uint32_t position)
{
    return cost->even_blocks > 0 ? 1 + (position + 0.5) / cost->even_blocks : 1;
}

enum status eviction_create(uint32_t id_count, enum eviction_policy policy,
                            const struct eviction_cost *cost, struct eviction **out)
{
    struct eviction *e = calloc(1, sizeof *e + id_count * sizeof *e->items);
    uint32_t *heap = calloc(id_count, sizeof *heap);
    if (!e || !heap) {
        free(e);
        free(heap);
        return STATUS_LIMIT;
    }
    *e = (struct eviction){.policy = policy, .cost = *cost, .id_count = id_count, .heap = heap};
    for (uint32_t id = 0; id < id_count; id++)
        e->items[id].slot = EVICTION_NONE;
    *out = e;
    return STATUS_OK;
}

void eviction_destroy(struct eviction *e)
{
    if (!e)
        return;
    free(e->heap);
    free(e);
}

/* ---------------------------------------------------------------- the heap */

static bool before(const struct eviction *e, uint32_t a, uint32_t b)
{
    const struct item *x = &e->items[a], *y = &e->items[b];
    return x->priority != y->priority ? x->priority < y->priority : x->asked < y->asked;
}

static void put_at(struct eviction *e, uint32_t slot, uint32_t id)
{
    e->heap[slot] = id;
    e->items[id].slot = slot;
}

static void rise(struct eviction *e, uint32_t slot)
{
    uint32_t id = e->heap[slot];
    while (slot > 0 && before(e, id, e->heap[(slot - 1) / 2])) {
        put_at(e, slot, e->heap[(slot - 1) / 2]);
        slot = (slot - 1) / 2;
    }
    put_at(e, slot, id);
}

static void sink(struct eviction *e, uint32_t slot)
{
    uint32_t id = e->heap[slot];
    for (;;) {
        uint32_t child = 2 * slot + 1;
        if (child >= e->offered)
            break;
        if (child + 1 < e->offered && before(e, e->heap[child + 1], e->heap[child]))
            child++;
        if (!before(e, e->heap[child], id))
            break;
        put_at(e, slot, e->heap[child]);
        slot = child;
    }
    put_at(e, slot, id);
}

static void settle(struct eviction *e, uint32_t slot)
{
    uint32_t id = e->heap[slot];
    rise(e, slot);
    sink(e, e->items[id].slot);
}

/* ---------------------------------------------------------------- operations */

static struct item *item_of(struct eviction *e, uint32_t id)
{
    ASSERT(id < e->id_count);
    return &e->items[id];
}

static void ask(struct eviction *e, struct item *item)
{
    item->asked = ++e->tick;
    if (item->frequency < UINT32_MAX)
        item->frequency++;
    if (e->policy == EVICTION_LCBFU)
        item->priority = e->age + item->frequency * item->weight;
    else
        item->priority = (double)item->asked;
}

void eviction_store(struct eviction *e, uint32_t id, uint32_t position)
{
    struct item *item = item_of(e, id);
    ASSERT(item->slot == EVICTION_NONE);
    item->frequency = 0;
    item->weight = sqrt(eviction_block_cost(&e->cost, position));
    ask(e, item);
}

void eviction_touch(struct eviction *e, uint32_t id)
{
    struct item *item = item_of(e, id);
    ask(e, item);
    if (item->slot != EVICTION_NONE)
        settle(e, item->slot);
}

void eviction_offer(struct eviction *e, uint32_t id)
{
    struct item *item = item_of(e, id);
    if (item->slot != EVICTION_NONE)
        return;
    put_at(e, e->offered++, id);
    rise(e, item->slot);
}

void eviction_withdraw(struct eviction *e, uint32_t id)
{
    struct item *item = item_of(e, id);
    uint32_t slot = item->slot;
    if (slot == EVICTION_NONE)
        return;
    item->slot = EVICTION_NONE;
    uint32_t last = e->heap[--e->offered];
    if (last == id)
        return;
    put_at(e, slot, last);
    settle(e, slot);
}

uint32_t eviction_take(struct eviction *e)
{
    if (e->offered == 0)
        return EVICTION_NONE;
    uint32_t id = e->heap[0];
    eviction_withdraw(e, id);
    /* The age never falls, though the next in the heap may have a lower priority. */
    if (e->items[id].priority > e->age)
        e->age = e->items[id].priority;
    return id;
}
