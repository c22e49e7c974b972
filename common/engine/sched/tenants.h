/* The tenants of a worker's sequences: how much each was served, and how much it holds. PURE.
 *
 * Turns go to the tenant that was served least: the Virtual Token Counter of Y. Sheng et al.,
 * Fairness in Serving Large Language Models, OSDI 24. A tenant's counter goes up by 1 for each
 * token of a prompt when the prompt gets blocks, and by 2 for each token of an answer.
 *
 * A tenant that comes, or comes back, begins at the virtual time if its counter is behind: idle
 * time can't be saved up. The virtual time goes up by the service of all, divided by the tenants
 * that are there, as in fair queueing (A. Parekh, R. Gallager, A generalized processor sharing
 * approach, 1993). The paper takes the smallest counter instead. Then a tenant that is ahead
 * would starve while ever new ones come.
 *
 * A tenant with one small sequence is never idle. So no counter goes further from the virtual time
 * than 16 turns, or than the largest service at once. Otherwise the tenant would save up turns, and
 * starve the others when it asks for much.
 *
 * Turns are not finer than turn_tokens: within that, tenants are equal and the policy
 * decides, so that equal ones don't take turns row by row.
 *
 * Owner: the scheduler. Nothing allocates after tenants_create. */
#ifndef BATON_ENGINE_SCHED_TENANTS_H
#define BATON_ENGINE_SCHED_TENANTS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define TENANT_PROMPT_WEIGHT 1
#define TENANT_ANSWER_WEIGHT 2
#define TENANT_TURN_TOKENS   512
#define TENANT_TURN_BITS     20 /* turns are below 2^20 */
/* A share is left to tenants that were here so recently, whether they are here or not. */
#define TENANT_RECENT_US 10000000

struct sequence;

struct tenant {
    uint64_t key;
    uint64_t served;         /* weighted tokens */
    uint64_t turn;           /* how many turns it is ahead of the one that was served least */
    uint32_t sequences;      /* in any state; 0: it is known for its counter alone */
    uint32_t place;          /* in tenants.present */
    uint32_t blocks;         /* admission and preemption: what its sequences hold now */
    struct sequence *oldest; /* the first in its list, as of the last count of blocks */
    bool held_back; /* in this round of admission: one with a reservation is over the share */
};

struct tenants {
    struct tenant *items;    /* [capacity]; key and counter stay while there is room */
    struct tenant **present; /* [present_count]: those with sequences */
    uint32_t capacity, count, present_count, turn_tokens;
    uint64_t virtual_time, least; /* least: the smallest counter of those present */
    uint64_t unaccounted;         /* service that the virtual time doesn't have yet */
    uint64_t largest;             /* service at once: a long prompt's counts as a whole */
    struct {
        const struct tenant *tenant;
        uint64_t at_us;
    } left[2]; /* the last two different ones that went, the last one first */
};

/* For at most max_sequences tenants at once. turn_tokens 0: TENANT_TURN_TOKENS. STATUS_LIMIT: no
 * memory; deinit it. */
enum status tenants_init(struct tenants *tenants, uint32_t max_sequences,
                         uint32_t turn_tokens) WARN_UNUSED;
void tenants_deinit(struct tenants *tenants);

/* A sequence of `key` comes. */
struct tenant *tenants_come(struct tenants *tenants, uint64_t key);
/* A sequence of it is gone. */
void tenants_leave(struct tenants *tenants, struct tenant *tenant, uint64_t now_us);

/* `tokens`: weighted ones. */
static inline void tenants_serve(struct tenants *tenants, struct tenant *tenant, uint64_t tokens)
{
    tenant->served += tokens;
    tenants->unaccounted += tokens;
    if (tokens > tenants->largest)
        tenants->largest = tokens;
}
/* Bounds the counters of all that are present, and sets their turns. */
void tenants_set_turns(struct tenants *tenants);
/* Sets one tenant's turn anew, against the others' at the last tenants_set_turns. */
void tenants_set_turn(const struct tenants *tenants, struct tenant *tenant);

/* Returns true if no tenant is alone: others are beside each, or were recently, so that it has no
 * more than its share. Otherwise nothing asks how many blocks a tenant holds. */
bool tenants_have_shares(const struct tenants *tenants, uint64_t now_us);

#endif
