#include "common/worker/step_constraints.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

struct slot {
    struct constraint_lease *lease; /* NULL: free */
    struct constraint_state state;
    uint32_t taken; /* tokens of the answer that `state` is behind */
    uint32_t next;  /* free: the next free one, + 1 */
    bool broken;    /* tokens came that it doesn't take */
};

struct step_constraints {
    struct constraint_host *host;
    uint32_t max_sequences, words, free; /* the latter + 1; 0: none */
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
    for (uint32_t i = 0; i < c->max_sequences; i++)
        if (c->slots[i].lease)
            constraint_host_give(c->host, c->slots[i].lease);
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
    *slot = (struct slot){.lease = lease};
    constraint_state_init(lease->entry->constraint, &slot->state);
    return number;
}

static struct slot *slot_of(struct step_constraints *c, uint32_t number)
{
    ASSERT(number >= 1 && number <= c->max_sequences && c->slots[number - 1].lease);
    return &c->slots[number - 1];
}

void step_constraints_remove(struct step_constraints *c, uint32_t number)
{
    struct slot *slot = slot_of(c, number);
    constraint_host_give(c->host, slot->lease);
    *slot = (struct slot){.next = c->free};
    c->free = number;
}

static void take(const struct step_constraints *c, struct slot *slot, uint32_t token)
{
    size_t length;
    const char *text = constraint_host_text(c->host, token, !slot->state.started, &length);
    slot->broken |=
        !text || !constraint_state_take(slot->lease->entry->constraint, &slot->state, text, length);
    slot->taken++;
}

/* The answer's tokens that came since the last time; mostly none. */
static void catch_up(const struct step_constraints *c, struct slot *slot,
                     const struct sequence *sequence)
{
    const uint32_t *answer = sequence->tokens + sequence_asked_count(sequence);
    uint32_t count = sequence_answer_count(sequence);
    while (slot->taken < count && !slot->broken)
        take(c, slot, answer[slot->taken]);
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

struct step_allowed step_constraints_find(struct step_constraints *c, uint32_t part,
                                          const struct sequence *sequence)
{
    struct slot *slot = slot_of(c, sequence->constraint);
    const struct constraint_entry *entry = slot->lease->entry;
    const struct sampling *sampling = &sequence->sampling;
    uint32_t *bits = c->bits + (size_t)part * c->words, end_count;
    const uint32_t *end_ids = constraint_host_end_ids(c->host, &end_count);
    catch_up(c, slot, sequence);
    struct step_allowed allowed = {.bits = bits};
    if (slot->broken) {
        memset(bits, 0, c->words * sizeof *bits);
        return allowed;
    }
    constraint_masks_find(entry->masks, &slot->state, bits);
    bool may_end = constraint_state_may_end(entry->constraint, &slot->state);
    allowed.end_only = may_end && constraint_state_is_complete(entry->constraint, &slot->state);
    if (sampling->ignore_eos && !allowed.end_only)
        set(c, end_ids, end_count, false, bits);
    if (may_end) /* elsewhere they are what their text is */
        set(c, sampling->stop_ids, sampling->stop_id_count, true, bits);
    return allowed;
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
