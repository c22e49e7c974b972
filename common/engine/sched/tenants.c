#include "common/engine/sched/tenants.h"

#include "common/base/assert.h"

#include <stdlib.h>

#define TURN_MOST   ((UINT64_C(1) << TENANT_TURN_BITS) - 1)
#define SAVED_TURNS 16 /* a counter is at most so far from the virtual time */

enum status tenants_init(struct tenants *tenants, uint32_t max_sequences, uint32_t turn_tokens)
{
    *tenants = (struct tenants){.capacity = 2 * max_sequences,
                                .turn_tokens = turn_tokens ? turn_tokens : TENANT_TURN_TOKENS};
    tenants->items = calloc(tenants->capacity, sizeof *tenants->items);
    tenants->present = calloc(max_sequences, sizeof(struct tenant *));
    return tenants->items && tenants->present ? STATUS_OK : STATUS_LIMIT;
}

void tenants_deinit(struct tenants *tenants)
{
    free(tenants->items);
    free(tenants->present);
}

static void account(struct tenants *tenants)
{
    if (!tenants->present_count)
        return;
    tenants->virtual_time += tenants->unaccounted / tenants->present_count;
    tenants->unaccounted %= tenants->present_count;
}

/* Returns an item for one more tenant: a new one, or the one that is gone and has the smallest
 * counter, because least is lost with it. */
static struct tenant *room_for_one(struct tenants *tenants)
{
    if (tenants->count < tenants->capacity)
        return &tenants->items[tenants->count++];
    struct tenant *least = NULL;
    for (uint32_t i = 0; i < tenants->count; i++) {
        struct tenant *tenant = &tenants->items[i];
        if (!tenant->sequences && (!least || tenant->served < least->served))
            least = tenant;
    }
    ASSERT(least); /* half of them at most are present */
    for (int i = 0; i < 2; i++)
        if (tenants->left[i].tenant == least)
            tenants->left[i].tenant = NULL;
    return least;
}

struct tenant *tenants_come(struct tenants *tenants, uint64_t key)
{
    struct tenant *tenant = NULL;
    for (uint32_t i = 0; i < tenants->count && !tenant; i++)
        if (tenants->items[i].key == key)
            tenant = &tenants->items[i];
    if (!tenant) {
        tenant = room_for_one(tenants);
        *tenant = (struct tenant){.key = key};
    }
    if (tenant->sequences++)
        return tenant;
    account(tenants);
    if (tenant->served < tenants->virtual_time)
        tenant->served = tenants->virtual_time;
    tenant->place = tenants->present_count;
    tenants->present[tenants->present_count++] = tenant;
    tenants_set_turns(tenants);
    return tenant;
}

void tenants_leave(struct tenants *tenants, struct tenant *tenant, uint64_t now_us)
{
    if (--tenant->sequences)
        return;
    account(tenants);
    struct tenant *last = tenants->present[--tenants->present_count];
    tenants->present[tenant->place] = last;
    last->place = tenant->place;
    if (tenants->left[0].tenant != tenant)
        tenants->left[1] = tenants->left[0];
    tenants->left[0].tenant = tenant;
    tenants->left[0].at_us = now_us;
}

void tenants_set_turn(const struct tenants *tenants, struct tenant *tenant)
{
    uint64_t turn = (tenant->served - tenants->least) / tenants->turn_tokens;
    if (tenants->present_count <= 1) /* none of its sequences need be ranked anew */
        turn = 0;
    tenant->turn = turn < TURN_MOST ? turn : TURN_MOST;
}

void tenants_set_turns(struct tenants *tenants)
{
    account(tenants);
    uint64_t saved = (uint64_t)SAVED_TURNS * tenants->turn_tokens, now = tenants->virtual_time;
    saved = tenants->largest > saved ? tenants->largest : saved;
    uint64_t low = now > saved ? now - saved : 0, high = now + saved;
    tenants->least = UINT64_MAX;
    for (uint32_t i = 0; i < tenants->present_count; i++) {
        struct tenant *tenant = tenants->present[i];
        tenant->served = tenant->served < low ? low : tenant->served > high ? high : tenant->served;
        if (tenant->served < tenants->least)
            tenants->least = tenant->served;
    }
    for (uint32_t i = 0; i < tenants->present_count; i++)
        tenants_set_turn(tenants, tenants->present[i]);
}

bool tenants_have_shares(const struct tenants *tenants, uint64_t now_us)
{
    if (tenants->present_count != 1)
        return tenants->present_count > 1;
    for (int i = 0; i < 2; i++)
        if (tenants->left[i].tenant && tenants->left[i].tenant != tenants->present[0] &&
            now_us - tenants->left[i].at_us < TENANT_RECENT_US)
            return true;
    return false;
}
