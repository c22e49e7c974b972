#include "common/worker/step_constraints.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct constraint_lease *lease; /* NULL: free */
    struct constraint_state state;
    uint32_t taken;               /* tokens of the answer that `state` is behind */
    uint32_t next;                /* free: the next free one, + 1 */
    bool broken;                  /* tokens came that it doesn't take */
    struct constraint_mask *mask; /* of the state; held; NULL: none yet */
    struct constraint_mask spare; /* its bits, and the walk of `task`, are the slot's for ever */
    struct walker_task task;      /* with the walker while the slot is the maker of `mask` */
    const uint32_t *allowed;      /* [words] what may come behind `taken` tokens, */
    bool ready, end_only;         /* once that is known */
};

struct step_constraints {
    struct constraint_host *host;
    struct constraint_walker *walker;
    uint32_t max_sequences, words, free; /* the latter + 1; 0: none */
    uint32_t turn;                       /* number of the slot that is the first to be prepared */
    uint32_t walking;                    /* tasks that are with the walker */
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

/* Of the set that it holds, and of what it does for it. */
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
    if (slot->mask && memcmp(&slot->mask->state, &slot->state, sizeof slot->state) != 0)
        let_go(c, slot); /* within a string, say, it stays the same */
    slot->taken++;
    slot->ready = false;
}

/* The answer's tokens that came since the last time; mostly none. False: there are more. */
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

/* What the walker is through with. */
static void collect(struct step_constraints *c)
{
    for (struct walker_task *task; c->walking && (task = constraint_walker_take(c->walker));) {
        finish(((struct slot *)task->owner)->mask);
        c->walking--;
    }
}

/* True: the slot's set is whole. What can't be done within the nodes that are left goes to the
 * walker. */
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

/* The same, now, whatever it takes. */
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

/* Stop ids need not be of the vocabulary. */
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

/* Those of the set, for the slot to change: others have the set, too. */
static uint32_t *own_bits(const struct step_constraints *c, struct slot *slot)
{
    if (slot->allowed != slot->spare.bits)
        memcpy(slot->spare.bits, slot->allowed, c->words * sizeof *slot->allowed);
    slot->allowed = slot->spare.bits;
    return slot->spare.bits;
}

/* What the request says of ends, on top of the constraint. Where the answer may not end, the ids
 * are what their text is. */
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

/* The slot has caught up, and its set is whole, or of no use. */
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

/* In the list, the first whose slot is not before the turn's. */
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
    collect(c);
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
        constraint_walker_wake(c->walker); /* at the end: nobody is in this step's way before */
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

static bool is_stop(const struct sampling *sampling, uint32_t id)
{
    for (uint32_t i = 0; i < sampling->stop_id_count; i++)
        if (sampling->stop_ids[i] == id)
            return true;
    return false;
}

bool step_constraints_take(struct step_constraints *c, const struct sequence *sequence,
                           uint32_t token)
{
    struct slot *slot = slot_of(c, sequence->constraint);
    if (constraint_host_is_end(c->host, token) || is_stop(&sequence->sampling, token))
        return false;
    take(c, slot, token);
    return !slot->broken &&
           constraint_state_is_complete(slot->lease->entry->constraint, &slot->state);
}
