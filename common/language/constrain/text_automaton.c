#include "common/language/constrain/text_automaton.h"

#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/constrain/grow.h"
#include "common/language/constrain/text_pattern.h"

#include <string.h>

#define SLOTS (1u << 15) /* power of two, twice the states */

/* A set of places, one part after the other. */
struct text_set {
    uint32_t first, count; /* in items */
    uint32_t next;         /* with the same hash */
};

struct build {
    const struct text_pattern *pattern;
    struct text_automaton *automaton;
    uint64_t *members; /* [kind * words + set / 64]: which sets have the kind */
    size_t words;
    struct text_set *sets;
    size_t set_count, set_capacity, row_capacity;
    uint32_t *items;
    size_t item_count, item_capacity;
    uint32_t *slots, *stamp, now;
    uint32_t *list; /* being collected */
    size_t list_count, list_capacity;
    struct compile_steps *steps; /* of the whole constraint */
    bool over;
};

/* At a limit nothing goes on. */
static void spend(struct build *b, uint64_t steps)
{
    if (!compile_steps_take(b->steps, steps))
        b->over = true;
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* The intervals between all bounds of all sets, each with its kind: those that are in the same
 * sets. */
static void add_interval(struct build *b, uint32_t low, uint32_t high, uint64_t *signature,
                         size_t *capacity)
{
    struct text_automaton *a = b->automaton;
    spend(b, b->pattern->set_count + a->class_count * (1 + b->words / 8));
    memset(signature, 0, b->words * sizeof *signature);
    for (size_t i = 0; i < b->pattern->set_count; i++)
        if (charset_has(&b->pattern->sets[i], low))
            signature[i / 64] |= 1ull << i % 64;
    uint32_t kind = 0;
    while (kind < a->class_count &&
           memcmp(b->members + kind * b->words, signature, b->words * sizeof *signature))
        kind += 1;
    if (kind == TEXT_MAX_CLASSES) {
        b->over = true;
        return;
    }
    if (kind == a->class_count) {
        memcpy(b->members + kind * b->words, signature, b->words * sizeof *signature);
        a->class_count++;
    }
    a->intervals = grow(a->intervals, a->interval_count, capacity, sizeof *a->intervals);
    a->intervals[a->interval_count++] = (struct text_interval){low, high, (uint16_t)kind};
}

static void find_classes(struct build *b)
{
    const struct text_pattern *pattern = b->pattern;
    uint32_t *bounds = NULL;
    size_t count = 0, capacity = 0, interval_capacity = 0;
    for (size_t i = 0; i < pattern->set_count; i++)
        for (size_t r = 0; r < pattern->sets[i].count; r++) {
            bounds = grow(bounds, count, &capacity, sizeof *bounds);
            bounds[count++] = pattern->sets[i].ranges[r].low;
            bounds = grow(bounds, count, &capacity, sizeof *bounds);
            bounds[count++] = pattern->sets[i].ranges[r].high + 1;
        }
    spend(b, 8 * count);
    if (count)
        qsort(bounds, count, sizeof *bounds, ascending);
    b->words = pattern->set_count / 64 + 1;
    b->members = calloc(TEXT_MAX_CLASSES * b->words, sizeof *b->members);
    uint64_t *signature = calloc(b->words, sizeof *signature);
    ASSERT(b->members && signature);
    uint32_t low = 0;
    for (size_t i = 0; i <= count && !b->over; i++) {
        uint32_t end = i < count ? bounds[i] : CHARSET_LAST + 1;
        if (end > low)
            add_interval(b, low, end - 1, signature, &interval_capacity);
        low = end > low ? end : low;
    }
    free(signature);
    free(bounds);
}

static void collect(struct build *b, uint32_t place)
{
    if (place == TEXT_NOWHERE || b->stamp[place] == b->now)
        return;
    b->stamp[place] = b->now;
    b->list = grow(b->list, b->list_count, &b->list_capacity, sizeof *b->list);
    b->list[b->list_count++] = place;
}

static bool is_end(const struct text_pattern *pattern, uint32_t place)
{
    return pattern->parts[pattern->places[place].part].end == place;
}

/* By jumps, and at the text's start or end also past ^ or $. What is kept of the list: places that
 * matter. */
static void close_list(struct build *b, bool at_start, bool at_end)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->list_count; i++, b->steps->taken++) {
        uint32_t at = b->list[i];
        const struct text_place *place = &b->pattern->places[at];
        bool free_edge = place->kind == TEXT_JUMP || (place->kind == TEXT_BEGIN && at_start) ||
                         (place->kind == TEXT_END && at_end);
        if (free_edge) {
            collect(b, place->target);
            collect(b, place->other);
        }
        if (is_end(b->pattern, at) || place->kind == TEXT_SET || place->kind == TEXT_END)
            b->list[kept++] = at;
    }
    b->list_count = kept;
}

/* A part that everything matches from here on needs no other place. */
static void drop_behind_tails(struct build *b)
{
    uint32_t tails = 0;
    for (size_t i = 0; i < b->list_count; i++) {
        const struct text_place *place = &b->pattern->places[b->list[i]];
        uint32_t tail = b->pattern->parts[place->part].tail;
        /* The tail's own place only jumps; the one behind it is in the list. */
        if (tail != TEXT_NOWHERE && b->list[i] == b->pattern->places[tail].target)
            tails |= 1u << place->part;
    }
    size_t kept = 0;
    for (size_t i = 0; i < b->list_count && tails; i++) {
        uint32_t at = b->list[i], part = b->pattern->places[at].part;
        uint32_t tail = b->pattern->parts[part].tail;
        bool keep =
            !(tails >> part & 1) || at == b->pattern->places[tail].target || is_end(b->pattern, at);
        if (keep)
            b->list[kept++] = at;
    }
    if (tails)
        b->list_count = kept;
}

/* Every part must still be under way. */
static bool all_parts_live(const struct build *b)
{
    uint32_t live = 0;
    for (size_t i = 0; i < b->list_count; i++)
        live |= 1u << b->pattern->places[b->list[i]].part;
    return live == (1u << b->pattern->part_count) - 1;
}

static void add_row(struct build *b)
{
    struct text_automaton *a = b->automaton;
    if (b->set_count == b->row_capacity) {
        b->row_capacity = b->row_capacity ? 2 * b->row_capacity : 64;
        a->next = realloc(a->next, b->row_capacity * a->class_count * sizeof *a->next);
        ASSERT(a->next);
    }
    memset(a->next + b->set_count * a->class_count, 0xff, a->class_count * sizeof *a->next);
}

static uint16_t state_of_list(struct build *b)
{
    if (!all_parts_live(b))
        return TEXT_NONE;
    drop_behind_tails(b);
    qsort(b->list, b->list_count, sizeof *b->list, ascending);
    uint64_t hash = hash_bytes(b->list, b->list_count * sizeof *b->list, HASH_SEED);
    uint32_t *slot = &b->slots[(hash ^ (hash >> 32)) & (SLOTS - 1)];
    for (uint32_t at = *slot; at; at = b->sets[at - 1].next)
        if (b->sets[at - 1].count == b->list_count &&
            !memcmp(b->items + b->sets[at - 1].first, b->list, b->list_count * sizeof *b->list))
            return (uint16_t)(at - 1);
    if (b->set_count == TEXT_MAX_STATES || b->item_count + b->list_count > 16 * TEXT_MAX_PLACES) {
        b->over = true;
        return TEXT_NONE;
    }
    add_row(b);
    b->sets = grow(b->sets, b->set_count, &b->set_capacity, sizeof *b->sets);
    b->sets[b->set_count] =
        (struct text_set){(uint32_t)b->item_count, (uint32_t)b->list_count, *slot};
    for (size_t i = 0; i < b->list_count; i++) {
        b->items = grow(b->items, b->item_count, &b->item_capacity, sizeof *b->items);
        b->items[b->item_count++] = b->list[i];
    }
    *slot = (uint32_t)++b->set_count;
    return (uint16_t)(b->set_count - 1);
}

static void begin_list(struct build *b)
{
    b->now++;
    b->list_count = 0;
}

static uint16_t next_state(struct build *b, uint16_t state, uint32_t kind)
{
    struct text_set set = b->sets[state];
    begin_list(b);
    for (uint32_t i = 0; i < set.count; i++, b->steps->taken++) {
        const struct text_place *place = &b->pattern->places[b->items[set.first + i]];
        if (place->kind == TEXT_SET &&
            b->members[kind * b->words + place->set / 64] >> place->set % 64 & 1)
            collect(b, place->target);
    }
    close_list(b, false, false);
    return state_of_list(b);
}

/* Whether the text may end in the state: every part's end is there, also past $. */
static bool state_accepts(struct build *b, uint16_t state)
{
    struct text_set set = b->sets[state];
    uint32_t ended = 0;
    begin_list(b);
    for (uint32_t i = 0; i < set.count; i++)
        collect(b, b->items[set.first + i]);
    close_list(b, false, true);
    for (size_t i = 0; i < b->list_count; i++)
        if (is_end(b->pattern, b->list[i]))
            ended |= 1u << b->pattern->places[b->list[i]].part;
    return ended == (1u << b->pattern->part_count) - 1;
}

static void find_states(struct build *b)
{
    struct text_automaton *a = b->automaton;
    begin_list(b);
    for (uint32_t p = 0; p < b->pattern->part_count; p++)
        collect(b, b->pattern->parts[p].start);
    close_list(b, true, false);
    if (state_of_list(b) == TEXT_NONE)
        return;
    for (size_t state = 0; state < b->set_count && !b->over; state++) {
        for (uint32_t kind = 0; kind < a->class_count && !b->over; kind += 1) {
            uint16_t next = next_state(b, (uint16_t)state, kind);
            a->next[state * a->class_count + kind] = next;
            spend(b, 1);
        }
    }
}

/* Which states lead to one that accepts. */
static bool *find_live(struct build *b)
{
    struct text_automaton *a = b->automaton;
    bool *live = calloc(b->set_count + 1, sizeof *live);
    ASSERT(live);
    for (size_t i = 0; i < b->set_count && !b->over; i++) {
        live[i] = a->accepts[i] = state_accepts(b, (uint16_t)i);
        spend(b, b->sets[i].count);
    }
    for (bool changed = !b->over; changed;) {
        changed = false;
        for (size_t i = b->set_count; i-- > 0;)
            for (uint32_t c = 0; c < a->class_count && !live[i]; c++) {
                uint16_t next = a->next[i * a->class_count + c];
                live[i] = next != TEXT_NONE && live[next];
                changed = changed || live[i];
            }
        spend(b, b->set_count * a->class_count);
        changed = changed && !b->over;
    }
    return live;
}

static void cut_dead_ends(struct build *b)
{
    struct text_automaton *a = b->automaton;
    a->accepts = calloc(b->set_count + 1, sizeof *a->accepts);
    ASSERT(a->accepts);
    bool *live = find_live(b);
    for (size_t i = 0; i < b->set_count * a->class_count; i++)
        if (a->next[i] != TEXT_NONE && !live[a->next[i]])
            a->next[i] = TEXT_NONE;
    a->state_count = b->set_count && live[0] ? b->set_count : 0;
    free(live);
}

enum status text_automaton_build(const struct text_pattern *pattern,
                                 struct text_automaton *automaton, struct error *err)
{
    *automaton = (struct text_automaton){0};
    struct build b = {.pattern = pattern, .automaton = automaton, .steps = pattern->steps};
    ASSERT(pattern->part_count > 0 && !pattern->full);
    /* Its tables, however small it is. */
    spend(&b, SLOTS / 8 + pattern->place_count + pattern->set_count * TEXT_MAX_CLASSES / 64);
    b.slots = calloc(SLOTS, sizeof *b.slots);
    b.stamp = calloc(pattern->place_count + 1, sizeof *b.stamp);
    ASSERT(b.slots && b.stamp);
    if (!b.over)
        find_classes(&b);
    if (!b.over)
        find_states(&b);
    if (!b.over)
        cut_dead_ends(&b);
    free(b.members);
    free(b.sets);
    free(b.items);
    free(b.slots);
    free(b.stamp);
    free(b.list);
    if (!b.over)
        return STATUS_OK;
    text_automaton_deinit(automaton);
    if (compile_steps_over(pattern->steps))
        return error_set(err, STATUS_LIMIT, "up to here it takes more than %u steps to compile",
                         COMPILE_MAX_STEPS);
    return error_set(err, STATUS_LIMIT,
                     "the automaton of the pattern is over the limits (%d states, %d classes of "
                     "characters)",
                     TEXT_MAX_STATES, TEXT_MAX_CLASSES);
}

void text_automaton_deinit(struct text_automaton *automaton)
{
    free(automaton->next);
    free(automaton->accepts);
    free(automaton->intervals);
    *automaton = (struct text_automaton){0};
}

static uint16_t class_of(const struct text_automaton *automaton, uint32_t code)
{
    size_t low = 0, high = automaton->interval_count;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (automaton->intervals[middle].low <= code)
            low = middle;
        else
            high = middle;
    }
    return automaton->intervals[low].kind;
}

bool text_automaton_matches(const struct text_automaton *automaton, const char *text, size_t length)
{
    uint16_t state = automaton->state_count ? 0 : TEXT_NONE;
    for (size_t at = 0; at < length && state != TEXT_NONE;) {
        struct utf8_char next = utf8_next(text + at, length - at);
        at += next.length;
        state = automaton->next[state * automaton->class_count + class_of(automaton, next.code)];
    }
    return state != TEXT_NONE && automaton->accepts[state];
}
