#include "router/planner/decision_log.h"

#include <string.h>

void decision_begin(struct decision *decision, const char *policy)
{
    *decision = (struct decision){.policy = policy, .slo_class = DECISION_NO_CLASS};
}

/* Inserts the choice behind all of equal or smaller total. Returns its index. The last one falls
 * out where there is no room. DECISION_MAX_ALTERNATIVES: the choice is not among the best. */
static uint32_t insert(struct decision *decision, const struct decision_alternative *choice)
{
    uint32_t at = decision->count;
    while (at && decision->alternatives[at - 1].total > choice->total)
        at--;
    if (at == DECISION_MAX_ALTERNATIVES)
        return at;
    if (decision->count < DECISION_MAX_ALTERNATIVES)
        decision->count++;
    memmove(&decision->alternatives[at + 1], &decision->alternatives[at],
            (decision->count - at - 1) * sizeof *choice);
    decision->alternatives[at] = *choice;
    return at;
}

void decision_consider(struct decision *decision, const struct decision_alternative *choice)
{
    if (!decision)
        return;
    decision->considered++;
    insert(decision, choice);
}

void decision_choose(struct decision *decision, const struct decision_alternative *choice,
                     enum decision_why why)
{
    if (!decision)
        return;
    uint32_t at = 0;
    while (at < decision->count && (decision->alternatives[at].prefill != choice->prefill ||
                                    decision->alternatives[at].decode != choice->decode))
        at++;
    if (at == decision->count) { /* it was not among the best, or nothing was considered */
        if (!decision->considered)
            decision->considered = 1;
        if (decision->count == DECISION_MAX_ALTERNATIVES)
            decision->count--;
        at = insert(decision, choice);
    }
    decision->chosen = at;
    decision->why = why;
    if (why != DECISION_LEAST)
        return;
    if (decision->considered == 1)
        decision->why = DECISION_ONLY;
    for (uint32_t i = 0; i < decision->count; i++)
        if (i != at && decision->alternatives[i].total == choice->total)
            decision->why = DECISION_TIE;
}
