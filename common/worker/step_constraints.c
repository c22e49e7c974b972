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
    struct constraint_walk *walk; /* towards `bits`; the slot's for ever, as these */
    uint32_t *bits;               /* [words] what may come behind `taken` tokens, */
    bool ready, end_only;         /* once they are ready */
};

#define TOKEN_NODES 64 /* what taking a token takes */

struct step_constraints {
    struct constraint_host *host;
    uint32_t max_sequences, words, free; /* the latter + 1; 0: none */
    uint32_t turn;                       /* number of the slot that is the first to be prepared */
    struct slot *slots;                  /* [max_sequences] */
    uint32_t *bits;                      /* [max_sequences * words] */
};

enum status step_constraints_create(struct constraint_host *host, uint32_t max_sequences,
                                    struct step_constraints **out)
{
    struct step_constraints *c = calloc(1, sizeof *c);
    if (!c)
        return STATUS_LIMIT;
    c->host = host;
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
        c->slots[i].bits = c->bits + (size_t)i * c->words;
        c->slots[i].walk = host ? constraint_walk_create() : NULL;
        c->slots[i].next = c->free;
        c->free = i + 1;
    }
    *out = c;
    return STATUS_OK;
}

void step_constraints_destroy(struct step_constraints *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->max_sequences; i++) {
        if (c->slots[i].lease)
            constraint_host_give(c->host, c->slots[i].lease);
        constraint_walk_destroy(c->slots[i].walk);
    }
    free(c->slots);
    free(c->bits);
    free(c);
}

uint32_t step_constraints_add(struct step_constraints *c, struct constraint_lease *lease)
{
    uint32_t number = c->free;
    if (!number)
        return 0;
    struct slot *slot = &c->slots[number - 1];
    c->free = slot->next;
    *slot = (struct slot){.lease = lease, .walk = slot->walk, .bits = slot->bits};
    constraint_walk_drop(slot->walk);
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
    constraint_host_give(c->host, slot->lease);
    *slot = (struct slot){.next = c->free, .walk = slot->walk, .bits = slot->bits};
    c->free = number;
}

static void take(const struct step_constraints *c, struct slot *slot, uint32_t token)
{
    size_t length;
    const char *text = constraint_host_text(c->host, token, !slot->state.started, &length);
    slot->broken |=
        !text || !constraint_state_take(slot->lease->entry->constraint, &slot->state, text, length);
    slot->taken++;
    slot->ready = false;
}

/* The answer's tokens that came since the last time; mostly none. False: there are more. */
static bool catch_up(const struct step_constraints *c, struct slot *slot,
                     const struct sequence *sequence, uint64_t *nodes_left)
{
    const uint32_t *answer = sequence->tokens + sequence_asked_count(sequence);
    uint32_t count = sequence_answer_count(sequence);
    while (slot->taken < count && !slot->broken && *nodes_left) {
        take(c, slot, answer[slot->taken]);
        *nodes_left -= *nodes_left < TOKEN_NODES ? *nodes_left : TOKEN_NODES;
    }
    return slot->taken == count || slot->broken;
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

/* What the request says of ends, on top of the constraint. */
static void settle_ends(const struct step_constraints *c, struct slot *slot,
                        const struct sampling *sampling)
{
    const struct constraint *constraint = slot->lease->entry->constraint;
    uint32_t end_count;
    const uint32_t *end_ids = constraint_host_end_ids(c->host, &end_count);
    bool may_end = constraint_state_may_end(constraint, &slot->state);
    slot->end_only = may_end && constraint_state_is_complete(constraint, &slot->state);
    if (sampling->ignore_eos && !slot->end_only)
        set(c, end_ids, end_count, false, slot->bits);
    if (may_end) /* elsewhere they are what their text is */
        set(c, sampling->stop_ids, sampling->stop_id_count, true, slot->bits);
}

/* True: its bits are those of its next token. */
static bool make_ready(const struct step_constraints *c, struct slot *slot,
                       const struct sequence *sequence, uint64_t *nodes_left)
{
    if (!catch_up(c, slot, sequence, nodes_left))
        return false;
    if (slot->ready)
        return true;
    slot->end_only = false;
    if (slot->broken) {
        memset(slot->bits, 0, c->words * sizeof *slot->bits);
    } else {
        if (!constraint_masks_go(slot->lease->entry->masks, &slot->state, slot->walk, slot->bits,
                                 nodes_left))
            return false;
        settle_ends(c, slot, &sequence->sampling);
    }
    slot->ready = true;
    return true;
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
                              uint32_t count, uint64_t nodes)
{
    bool waits = false;
    uint32_t first = first_of_turn(c, sequences, count);
    for (uint32_t i = 0; i < count; i++) {
        struct sequence *sequence = sequences[(first + i) % count];
        sequence->waits = !make_ready(c, slot_of(c, sequence->constraint), sequence, &nodes);
        if (sequence->waits && !waits)
            c->turn = sequence->constraint;
        waits |= sequence->waits;
    }
    return waits;
}

struct step_allowed step_constraints_find(struct step_constraints *c,
                                          const struct sequence *sequence)
{
    struct slot *slot = slot_of(c, sequence->constraint);
    uint64_t nodes = UINT64_MAX;
    bool ready = make_ready(c, slot, sequence, &nodes);
    ASSERT(ready);
    return (struct step_allowed){.bits = slot->bits, .end_only = slot->end_only};
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
