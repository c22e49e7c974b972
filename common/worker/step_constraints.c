#include "common/worker/step_constraints.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct constraint_lease *lease; /* NULL: free */
    struct constraint_state state;
    uint32_t taken;               /* tokens of the answer that `state` has taken */
    uint32_t next;                /* free slots: number of the next free one; 0: none */
    bool broken;                  /* tokens came that the constraint doesn't take */
    struct constraint_mask *mask; /* the set of the state; held; NULL: none yet */
    struct constraint_mask spare; /* its bits, and the walk of `task`, stay with the slot */
    struct walker_task task;      /* with the walker while this slot makes `mask` */
    const uint32_t *allowed;      /* [words] the tokens that may come next, valid while `ready` */
    bool ready, end_only;         /* end_only: valid while `ready` */
};

struct step_constraints {
    struct constraint_host *host;
    struct constraint_walker *walker;
    uint32_t max_sequences, words, free; /* free: number of the first free slot; 0: none */
    uint32_t turn;                       /* number of the slot that is prepared first */
    uint32_t walking;                    /* tasks with the walker */
    struct slot *slots;                  /* [max_sequences] */
    uint32_t *bits;                      /* [max_sequences * words] */
};

enum status step_constraints_create(struct constraint_host *host, struct constraint_walker *walker,
                                    uint32_t max_sequences, struct step_constraints **out)
{
    struct step_constraints *c = calloc(1, sizeof *c);
    if (!c)
        return STATUS_LIMIT;
    c->host = host;
    c->walker = walker;
    c->max_sequences = max_sequences;
    c->words = host ? constraint_host_words(host) : 0;
    c->slots = calloc(max_sequences, sizeof *c->slots);
    c->bits = calloc((size_t)max_sequences * c->words + 1, sizeof *c->bits);
    if (!c->slots || !c->bits) {
        free(c->slots);
        free(c->bits);
        free(c);
        return STATUS_LIMIT;
    }
    for (uint32_t i = max_sequences; i-- > 0;) {
        c->slots[i].spare.bits = c->bits + (size_t)i * c->words;
        c->slots[i].task.walk = host ? constraint_walk_create() : NULL;
        c->slots[i].task.owner = &c->slots[i];
        c->slots[i].next = c->free;
        c->free = i + 1;
    }
    *out = c;
    return STATUS_OK;
}

/* Releases the slot's set, and stops its work on it. */
static void let_go(struct step_constraints *c, struct slot *slot)
{
    struct constraint_mask *mask = slot->mask;
    if (!mask)
        return;
    if (mask->maker == slot) {
        mask->whole = constraint_walker_take_back(c->walker, &slot->task);
        mask->maker = NULL;
        c->walking--;
    }
    constraint_masks_give(mask);
    slot->mask = NULL;
}

void step_constraints_destroy(struct step_constraints *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->max_sequences; i++) {
        let_go(c, &c->slots[i]);
        if (c->slots[i].lease)
            constraint_host_give(c->host, c->slots[i].lease);
        constraint_walk_destroy(c->slots[i].task.walk);
    }
    free(c->slots);
    free(c->bits);
    free(c);
}

static void clear(struct slot *slot)
{
    *slot = (struct slot){.spare.bits = slot->spare.bits,
                          .task = {.walk = slot->task.walk, .owner = slot}};
}

uint32_t step_constraints_add(struct step_constraints *c, struct constraint_lease *lease)
{
    uint32_t number = c->free;
    if (!number)
        return 0;
    struct slot *slot = &c->slots[number - 1];
    c->free = slot->next;
    clear(slot);
    slot->lease = lease;
    constraint_state_init(lease->entry->constraint, &slot->state);
    return number;
}

static struct slot *slot_of(const struct step_constraints *c, uint32_t number)
{
    ASSERT(number >= 1 && number <= c->max_sequences && c->slots[number - 1].lease);
    return &c->slots[number - 1];
}

void step_constraints_remove(struct step_constraints *c, uint32_t number)
{
    struct slot *slot = slot_of(c, number);
    let_go(c, slot);
    constraint_host_give(c->host, slot->lease);
    clear(slot);
    slot->next = c->free;
    c->free = number;
}

static void take(struct step_constraints *c, struct slot *slot, uint32_t token)
{
    size_t length;
    const char *text = constraint_host_text(c->host, token, !slot->state.started, &length);
    slot->broken |=
        !text || !constraint_state_take(slot->lease->entry->constraint, &slot->state, text, length);
    if (slot->mask && !constraint_masks_is_of(slot->lease->entry->masks, slot->mask, &slot->state))
        let_go(c, slot); /* within a string, for example, the set stays the same */
    slot->taken++;
    slot->ready = false;
}

/* Takes the answer's tokens that came since the last call; mostly there are none. Returns false if
 * tokens_left ended first. */
static bool catch_up(struct step_constraints *c, struct slot *slot, const struct sequence *sequence,
                     uint32_t *tokens_left)
{
    const uint32_t *answer = sequence->tokens + sequence_asked_count(sequence);
    uint32_t count = sequence_answer_count(sequence);
    for (; slot->taken < count && !slot->broken && *tokens_left; --*tokens_left)
        take(c, slot, answer[slot->taken]);
    return slot->taken == count || slot->broken;
}

static void finish(struct constraint_mask *mask)
{
    mask->whole = true;
    mask->maker = NULL;
}

/* Works out the slot's set. Work beyond nodes_left goes to the walker. Returns true if the set is
 * complete. */
static bool work_out(struct step_constraints *c, struct slot *slot, uint64_t *nodes_left)
{
    struct constraint_masks *masks = slot->lease->entry->masks;
    if (!slot->mask)
        slot->mask = constraint_masks_take(masks, &slot->state, &slot->spare);
    struct constraint_mask *mask = slot->mask;
    if (mask->whole || mask->maker)
        return mask->whole;
    constraint_masks_begin(masks, mask, slot->task.walk);
    mask->whole = constraint_walk_go(slot->task.walk, mask->bits, nodes_left);
    if (mask->whole)
        return true;
    mask->maker = slot;
    slot->task.bits = mask->bits;
    constraint_walker_post(c->walker, &slot->task);
    c->walking++;
    return false;
}

/* Works out the slot's set now, without a limit. */
static void work_out_now(struct step_constraints *c, struct slot *slot)
{
    uint64_t none = 0, nodes = UINT64_MAX;
    if (work_out(c, slot, &none))
        return;
    struct slot *maker = slot->mask->maker;
    c->walking--;
    bool whole = constraint_walker_take_back(c->walker, &maker->task) ||
                 constraint_walk_go(maker->task.walk, slot->mask->bits, &nodes);
    ASSERT(whole);
    finish(slot->mask);
}

/* Sets or clears the ids in `bits`. Ids outside the vocabulary are skipped. */
static void set(const struct step_constraints *c, const uint32_t *ids, uint32_t count, bool value,
                uint32_t *bits)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] / 32 >= c->words)
            continue;
        bits[ids[i] / 32] &= ~(1u << ids[i] % 32);
        bits[ids[i] / 32] |= (uint32_t)value << ids[i] % 32;
    }
}

/* Returns the slot's own copy of the bits, to be changed: other slots share the set. */
static uint32_t *own_bits(const struct step_constraints *c, struct slot *slot)
{
    if (slot->allowed != slot->spare.bits)
        memcpy(slot->spare.bits, slot->allowed, c->words * sizeof *slot->allowed);
    slot->allowed = slot->spare.bits;
    return slot->spare.bits;
}

/* Applies the request's own rules for ends, on top of the constraint. While the answer may not end,
 * the end ids count as their text. */
static void settle_ends(const struct step_constraints *c, struct slot *slot,
                        const struct sampling *sampling)
{
    const struct constraint *constraint = slot->lease->entry->constraint;
    uint32_t end_count;
    const uint32_t *end_ids = constraint_host_end_ids(c->host, &end_count);
    slot->end_only = false;
    if (!constraint_state_may_end(constraint, &slot->state))
        return;
    slot->end_only = constraint_state_is_complete(constraint, &slot->state);
    if (sampling->ignore_eos && !slot->end_only)
        set(c, end_ids, end_count, false, own_bits(c, slot));
    if (sampling->stop_id_count)
        set(c, sampling->stop_ids, sampling->stop_id_count, true, own_bits(c, slot));
}

/* Makes the slot ready. It has caught up, and its set is complete unless it is broken. */
static void settle(const struct step_constraints *c, struct slot *slot,
                   const struct sampling *sampling)
{
    slot->ready = true;
    slot->end_only = false;
    if (slot->broken) {
        memset(slot->spare.bits, 0, c->words * sizeof *slot->spare.bits);
        slot->allowed = slot->spare.bits;
        return;
    }
    slot->allowed = slot->mask->bits;
    settle_ends(c, slot, sampling);
}

/* Returns the index of the sequence that is first in turn: the first slot number from c->turn
 * on. */
static uint32_t first_of_turn(const struct step_constraints *c, struct sequence *const *sequences,
                              uint32_t count)
{
    uint32_t first = 0, best = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = sequences[i]->constraint;
        uint32_t behind = (number + c->max_sequences + 1 - c->turn) % (c->max_sequences + 1);
        if (behind < best) {
            best = behind;
            first = i;
        }
    }
    return first;
}

bool step_constraints_prepare(struct step_constraints *c, struct sequence *const *sequences,
                              uint32_t count, struct step_budget budget)
{
    bool more = false;
    uint32_t first = first_of_turn(c, sequences, count);
    for (struct walker_task *task; c->walking && (task = constraint_walker_take(c->walker));) {
        finish(((struct slot *)task->owner)->mask);
        c->walking--;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *sequence = sequences[(first + i) % count];
        struct slot *slot = slot_of(c, sequence->constraint);
        bool behind = !catch_up(c, slot, sequence, &budget.tokens);
        if (behind && !more)
            c->turn = sequence->constraint;
        more |= behind;
        if (!behind && !slot->ready && (slot->broken || work_out(c, slot, &budget.nodes)))
            settle(c, slot, &sequence->sampling);
        sequence->waits = !slot->ready;
    }
    if (c->walking)
        constraint_walker_wake(c->walker); /* last, so that it doesn't slow down this call */
    return more;
}

struct step_allowed step_constraints_find(struct step_constraints *c,
                                          const struct sequence *sequence)
{
    struct slot *slot = slot_of(c, sequence->constraint);
    uint32_t tokens = UINT32_MAX;
    bool all = catch_up(c, slot, sequence, &tokens);
    ASSERT(all);
    if (!slot->ready) {
        if (!slot->broken)
            work_out_now(c, slot);
        settle(c, slot, &sequence->sampling);
    }
    return (struct step_allowed){.bits = slot->allowed, .end_only = slot->end_only};
}

bool step_constraints_broken(const struct step_constraints *c, uint32_t number)
{
    return slot_of(c, number)->broken;
}

bool step_constraints_take(struct step_constraints *c, const struct sequence *sequence,
                           uint32_t token)
{
    struct slot *slot = slot_of(c, sequence->constraint);
    if (constraint_host_is_end(c->host, token))
        return false;
    for (uint32_t i = 0; i < sequence->sampling.stop_id_count; i++)
        if (sequence->sampling.stop_ids[i] == token)
            return false;
    take(c, slot, token);
    return !slot->broken &&
           constraint_state_is_complete(slot->lease->entry->constraint, &slot->state);
}
