/* Finds how many characters a text may have in each state of its automaton, if its length is
 * bounded. */
#include "common/language/constrain/text_automaton.h"

#include <string.h>

/* The states that each state leads to, without repeats. */
struct links {
    uint32_t *first; /* [state_count + 1] in targets */
    uint16_t *targets;
    size_t count, capacity;
};

static void find_links(const struct text_automaton *automaton, struct compile_steps *steps,
                       struct links *links)
{
    uint32_t *stamp = calloc(automaton->state_count + 1, sizeof *stamp);
    *links = (struct links){.first = calloc(automaton->state_count + 1, sizeof *links->first)};
    ASSERT(stamp && links->first);
    for (size_t i = 0; i < automaton->state_count; i++) {
        const uint16_t *row = automaton->next + i * automaton->class_count;
        links->first[i] = (uint32_t)links->count;
        for (uint32_t c = 0; c < automaton->class_count; c++) {
            if (row[c] == TEXT_NONE || stamp[row[c]] == i + 1)
                continue;
            stamp[row[c]] = (uint32_t)i + 1;
            links->targets =
                grow(links->targets, links->count, &links->capacity, sizeof *links->targets);
            links->targets[links->count++] = row[c];
        }
    }
    links->first[automaton->state_count] = (uint32_t)links->count;
    steps->taken += automaton->state_count * automaton->class_count;
    free(stamp);
}

/* Sets `soonest`, and *shortest and *longest to the lengths of the texts that match; *longest
 * UINT32_MAX: any length. */
static void find_lengths(const struct text_automaton *automaton, const struct links *links,
                         struct text_counts *counts, uint32_t *shortest, uint32_t *longest)
{
    size_t n = automaton->state_count, head = 0, tail = 0;
    uint32_t *queue = calloc(n + 1, sizeof *queue), *into = calloc(n + 1, sizeof *into);
    uint32_t *latest = calloc(n + 1, sizeof *latest);
    ASSERT(queue && into && latest);
    memset(counts->soonest, 0xff, n * sizeof *counts->soonest);
    counts->soonest[0] = 0;
    queue[tail++] = 0;
    while (head < tail) { /* breadth first: by the fewest characters */
        uint32_t state = queue[head++];
        for (uint32_t e = links->first[state]; e < links->first[state + 1]; e++) {
            uint16_t to = links->targets[e];
            into[to]++;
            if (counts->soonest[to] != UINT16_MAX)
                continue;
            counts->soonest[to] = (uint16_t)(counts->soonest[state] + 1);
            queue[tail++] = to;
        }
    }
    size_t reached = tail;
    *shortest = UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        if (automaton->accepts[i] && counts->soonest[i] < *shortest)
            *shortest = counts->soonest[i];
    /* Kahn's order, each state behind all that lead to it: by the most characters. */
    *longest = 0;
    head = tail = 0;
    if (!into[0])
        queue[tail++] = 0;
    while (head < tail) {
        uint32_t state = queue[head++];
        if (automaton->accepts[state] && latest[state] > *longest)
            *longest = latest[state];
        for (uint32_t e = links->first[state]; e < links->first[state + 1]; e++) {
            uint16_t to = links->targets[e];
            if (latest[state] + 1 > latest[to])
                latest[to] = latest[state] + 1;
            if (--into[to] == 0)
                queue[tail++] = to;
        }
    }
    if (tail < reached) /* some states lead back to themselves */
        *longest = UINT32_MAX;
    free(queue);
    free(into);
    free(latest);
}

/* Adds low..high to the state, below its other ranges. */
static bool add_range(struct text_counts *counts, size_t state, uint32_t low, uint32_t high)
{
    if (counts->range_count == TEXT_MAX_RANGES)
        return false;
    counts->ranges =
        grow(counts->ranges, counts->range_count, &counts->range_capacity, sizeof *counts->ranges);
    counts->ranges[counts->range_count] =
        (struct text_range){(uint16_t)low, (uint16_t)high, counts->first[state]};
    counts->first[state] = (uint32_t)++counts->range_count;
    return true;
}

/* A search from the most characters down to 0. */
struct search {
    const struct text_automaton *automaton;
    const struct links *links;
    struct text_counts *counts;
    bool *now, *before; /* [state] whether a text can be completed behind `at` characters, and one
                           * character earlier */
    uint32_t *high;     /* [state] top of the range that is open, while `now` */
};

/* Sets `before`. Returns whether it differs from `now`. */
static bool step_back(struct search *s, bool may_end)
{
    bool differs = false;
    for (size_t i = 0; i < s->automaton->state_count; i++) {
        bool can = may_end && s->automaton->accepts[i];
        for (uint32_t e = s->links->first[i]; e < s->links->first[i + 1] && !can; e++)
            can = s->now[s->links->targets[e]];
        s->before[i] = can;
        differs = differs || can != s->now[i];
    }
    return differs;
}

/* Goes one character down to `count`: `before` becomes `now`, and ranges open and close. */
static bool move_down(struct search *s, uint32_t count)
{
    bool within = true;
    for (size_t i = 0; i < s->automaton->state_count && within; i++) {
        if (s->before[i] && !s->now[i])
            s->high[i] = count;
        if (!s->before[i] && s->now[i])
            within = add_range(s->counts, i, count + 1, s->high[i]);
    }
    bool *now = s->now;
    s->now = s->before;
    s->before = now;
    return within;
}

static bool search_down(struct search *s, uint32_t min, uint32_t max, struct compile_steps *steps)
{
    size_t n = s->automaton->state_count;
    uint32_t top = max == UINT32_MAX ? min : max;
    for (size_t i = 0; i < n; i++) {
        s->now[i] = max == UINT32_MAX || s->automaton->accepts[i];
        s->high[i] = max == UINT32_MAX ? TEXT_COUNT_ENDLESS : max;
    }
    for (uint32_t at = top; at > 0;) {
        bool may_end = at - 1 >= min; /* behind at - 1 characters */
        if (!compile_steps_take(steps, n + s->links->count / 2))
            return false;
        if (step_back(s, may_end)) {
            if (!move_down(s, --at))
                return false;
        } else if (may_end && at - 1 > min) {
            at = min + 1; /* nothing changes as long as the text may end */
        } else {
            at = may_end ? at - 1 : 0; /* nor below */
        }
    }
    for (size_t i = 0; i < n; i++)
        if (s->now[i] && !add_range(s->counts, i, 0, s->high[i]))
            return false;
    return true;
}

bool text_counts_find(const struct text_automaton *automaton, uint32_t min, uint32_t max,
                      struct compile_steps *steps, struct text_counts *counts)
{
    struct links links;
    uint32_t shortest, longest;
    size_t n = automaton->state_count;
    *counts = (struct text_counts){.soonest = calloc(n + 1, sizeof *counts->soonest),
                                   .first = calloc(n + 1, sizeof *counts->first)};
    ASSERT(counts->soonest && counts->first && n);
    find_links(automaton, steps, &links);
    find_lengths(automaton, &links, counts, &shortest, &longest);
    counts->none = shortest > max || longest < min;
    counts->matter = !counts->none && (shortest < min || longest > max);
    bool within = !compile_steps_over(steps);
    if (counts->matter && within) {
        struct search s = {.automaton = automaton,
                           .links = &links,
                           .counts = counts,
                           .now = calloc(n + 1, sizeof *s.now),
                           .before = calloc(n + 1, sizeof *s.before),
                           .high = calloc(n + 1, sizeof *s.high)};
        ASSERT(s.now && s.before && s.high);
        within = search_down(&s, min, max, steps);
        counts->none = !s.now[0]; /* with no characters yet, at the start */
        free(s.now);
        free(s.before);
        free(s.high);
    }
    free(links.first);
    free(links.targets);
    return within;
}

void text_counts_deinit(struct text_counts *counts)
{
    free(counts->first);
    free(counts->ranges);
    free(counts->soonest);
    *counts = (struct text_counts){0};
}
