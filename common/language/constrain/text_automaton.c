#include "common/language/constrain/text_automaton.h"

#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/constrain/expression.h"

#include <string.h>

/* A pattern is a nondeterministic automaton: expressions are written out into it. */
#define TEXT_NOWHERE UINT32_MAX

enum text_edge_kind { TEXT_JUMP, TEXT_SET, TEXT_BEGIN, TEXT_END };

/* A place has at most two edges of one kind; only jumps have a second one. */
struct text_place {
    uint8_t kind;
    uint8_t part;
    uint32_t set;
    uint32_t target, other; /* TEXT_NOWHERE */
};

struct text_part {
    uint32_t start, end;
    uint32_t tail; /* place from which everything matches; TEXT_NOWHERE */
    bool negative; /* texts must not match it */
};

struct text_pattern {
    struct text_place *places;
    size_t place_count, place_capacity;
    struct charset *sets;
    size_t set_count, set_capacity;
    struct text_part parts[TEXT_MAX_PARTS];
    uint32_t part_count;
    bool full;                   /* at the limit of places or steps */
    struct compile_steps *steps; /* count of the whole constraint */
};

#define BYTE_STEPS  16 /* reading one byte of an expression */
#define RANGE_STEPS 16 /* sorting one range of a set */

struct text_pattern *text_pattern_create(struct compile_steps *steps)
{
    struct text_pattern *pattern = calloc(1, sizeof *pattern);
    ASSERT(pattern);
    pattern->steps = steps;
    return pattern;
}

void text_pattern_destroy(struct text_pattern *pattern)
{
    if (!pattern)
        return;
    for (size_t i = 0; i < pattern->set_count; i++)
        charset_deinit(&pattern->sets[i]);
    free(pattern->sets);
    free(pattern->places);
    free(pattern);
}

/* Sets `full` if the steps are over. */
static void count_steps(struct text_pattern *pattern, uint64_t steps)
{
    if (!compile_steps_take(pattern->steps, steps))
        pattern->full = true;
}

/* Returns a place that leads nowhere yet. At the limit: the first place, and sets `full`. */
static uint32_t add_place(struct text_pattern *pattern)
{
    count_steps(pattern, 1);
    if (pattern->place_count == TEXT_MAX_PLACES) {
        pattern->full = true;
        return 0;
    }
    pattern->places = grow(pattern->places, pattern->place_count, &pattern->place_capacity,
                           sizeof *pattern->places);
    pattern->places[pattern->place_count] = (struct text_place){
        .part = (uint8_t)pattern->part_count, .target = TEXT_NOWHERE, .other = TEXT_NOWHERE};
    return (uint32_t)pattern->place_count++;
}

static void lead(struct text_pattern *pattern, uint32_t from, enum text_edge_kind kind,
                 uint32_t set, uint32_t to)
{
    struct text_place *place = &pattern->places[from];
    if (pattern->full)
        return;
    if (place->target != TEXT_NOWHERE) {
        ASSERT(place->kind == TEXT_JUMP && kind == TEXT_JUMP && place->other == TEXT_NOWHERE);
        place->other = to;
        return;
    }
    place->kind = (uint8_t)kind;
    place->set = set;
    place->target = to;
}

static void jump(struct text_pattern *pattern, uint32_t from, uint32_t to)
{
    lead(pattern, from, TEXT_JUMP, 0, to);
}

static uint32_t set_index(struct text_pattern *pattern, const struct charset *set)
{
    count_steps(pattern, pattern->set_count + set->count * RANGE_STEPS);
    for (uint32_t i = 0; i < pattern->set_count; i++)
        if (charset_equal(&pattern->sets[i], set))
            return i;
    pattern->sets =
        grow(pattern->sets, pattern->set_count, &pattern->set_capacity, sizeof *pattern->sets);
    pattern->sets[pattern->set_count] = (struct charset){0};
    charset_add_all(&pattern->sets[pattern->set_count], set);
    return (uint32_t)pattern->set_count++;
}

/* Writes an expression out into a pattern. */
struct writing {
    struct text_pattern *pattern;
    const struct expression *expression;
    uint32_t *set_of; /* by set of the expression: index of the pattern's set */
};

static uint32_t put(struct writing *w, uint32_t node, uint32_t from);

static uint32_t put_repeat(struct writing *w, const struct expression_node *node, uint32_t from)
{
    struct text_pattern *pattern = w->pattern;
    for (uint32_t i = 0; i < node->min && !pattern->full; i++) {
        from = put(w, node->a, from);
        count_steps(pattern, 1); /* the repeated node may be empty, and then adds no places */
    }
    uint32_t end = add_place(pattern), at = add_place(pattern);
    jump(pattern, from, at);
    if (node->max == EXPRESSION_ENDLESS) {
        uint32_t inside = add_place(pattern), back = add_place(pattern);
        jump(pattern, at, inside);
        jump(pattern, at, end);
        jump(pattern, put(w, node->a, inside), back);
        jump(pattern, back, at);
        return end;
    }
    for (uint32_t i = node->min; i < node->max && !pattern->full; i++) {
        uint32_t inside = add_place(pattern);
        jump(pattern, at, inside);
        jump(pattern, at, end);
        at = add_place(pattern);
        jump(pattern, put(w, node->a, inside), at);
    }
    jump(pattern, at, end);
    return end;
}

/* Writes the node out from `from`, which leads nowhere yet. Returns a place that leads nowhere. */
static uint32_t put(struct writing *w, uint32_t index, uint32_t from)
{
    const struct expression_node *node = &w->expression->nodes[index];
    struct text_pattern *pattern = w->pattern;
    if (pattern->full || node->kind == EXPRESSION_EMPTY)
        return from;
    if (node->kind == EXPRESSION_THEN)
        return put(w, node->b, put(w, node->a, from));
    if (node->kind == EXPRESSION_REPEAT)
        return put_repeat(w, node, from);
    uint32_t to = add_place(pattern);
    if (node->kind == EXPRESSION_OR) {
        uint32_t a = add_place(pattern), b = add_place(pattern);
        jump(pattern, from, a);
        jump(pattern, from, b);
        jump(pattern, put(w, node->a, a), to);
        jump(pattern, put(w, node->b, b), to);
    } else if (node->kind == EXPRESSION_SET) {
        lead(pattern, from, TEXT_SET, w->set_of[node->a], to);
    } else {
        lead(pattern, from, node->kind == EXPRESSION_BEGIN ? TEXT_BEGIN : TEXT_END, 0, to);
    }
    return to;
}

/* Puts any text. Returns a place that leads nowhere; *loop is the place where the text may still
 * grow. */
static uint32_t put_anything(struct text_pattern *pattern, uint32_t from, uint32_t *loop)
{
    uint32_t any = set_index(pattern, &charset_all), inside = add_place(pattern),
             to = add_place(pattern);
    *loop = add_place(pattern);
    jump(pattern, from, *loop);
    jump(pattern, *loop, inside);
    jump(pattern, *loop, to);
    lead(pattern, inside, TEXT_SET, any, *loop);
    return to;
}

/* Puts a part that the node matches, with anything before and behind it as asked for. */
static void put_part(struct writing *w, uint32_t node, bool before, bool behind, bool negative)
{
    struct text_pattern *pattern = w->pattern;
    struct text_part part = {.tail = TEXT_NOWHERE, .negative = negative};
    uint32_t at = part.start = add_place(pattern), loop;
    if (before)
        at = put_anything(pattern, at, &loop);
    at = put(w, node, at);
    if (behind)
        at = put_anything(pattern, at, &part.tail);
    part.end = at;
    pattern->parts[pattern->part_count++] = part;
}

/* A lookahead at the start is a part of its own: what the texts begin with, or don't. */
static void put_parts(struct text_pattern *pattern, const struct expression *expression,
                      enum text_match match)
{
    struct writing w = {pattern, expression,
                        malloc((expression->set_count + 1) * sizeof *w.set_of)};
    ASSERT(w.set_of);
    for (size_t i = 0; i < expression->set_count && !pattern->full; i++)
        w.set_of[i] = set_index(pattern, &expression->sets[i]);
    bool anywhere = match == TEXT_ANYWHERE;
    put_part(&w, expression->root, anywhere, anywhere, false);
    for (uint32_t i = 0; i < expression->look_count; i++)
        put_part(&w, expression->looks[i].node, false, true, expression->looks[i].negative);
    free(w.set_of);
}

static enum status check_room(const struct text_pattern *pattern, uint32_t parts, struct error *err)
{
    if (pattern->part_count + parts > TEXT_MAX_PARTS)
        return error_set(err, STATUS_LIMIT, "more than %d patterns for one text", TEXT_MAX_PARTS);
    return STATUS_OK;
}

static enum status check_size(const struct text_pattern *pattern, struct error *err)
{
    if (compile_steps_over(pattern->steps))
        return error_set(err, STATUS_LIMIT, "up to here it takes more than %u steps to compile",
                         COMPILE_MAX_STEPS);
    if (pattern->full)
        return error_set(err, STATUS_LIMIT,
                         "with its repeats written out the pattern is over the limit of %d places",
                         TEXT_MAX_PLACES);
    return STATUS_OK;
}

enum status text_pattern_add(struct text_pattern *pattern, const char *text, size_t length,
                             enum text_match match, struct error *err)
{
    struct expression expression;
    TRY(check_room(pattern, 1, err));
    count_steps(pattern, length * BYTE_STEPS);
    TRY(expression_parse(text, length, &expression, err));
    enum status status = check_room(pattern, 1 + expression.look_count, err);
    if (status == STATUS_OK && expression.look_count && match == TEXT_ANYWHERE &&
        !expression.from_start)
        status =
            error_set(err, STATUS_UNSUPPORTED, "a lookahead isn't supported without ^ before it");
    if (status == STATUS_OK) {
        put_parts(pattern, &expression, match);
        status = check_size(pattern, err);
    }
    expression_deinit(&expression);
    return status;
}

/* ------------------------------------------------------------------ the deterministic automaton */

#define SLOTS (1u << 15) /* power of two, twice the states */

/* A state: a set of places. */
struct text_set {
    uint32_t first, count; /* in items */
    uint32_t next;         /* set with the same hash, + 1; 0: none */
};

struct build {
    const struct text_pattern *pattern;
    struct text_automaton *automaton;
    uint64_t *members; /* [kind * words + set / 64]: bit set % 64 if the set has the kind */
    size_t words;
    struct text_set *sets;
    size_t set_count, set_capacity, row_capacity;
    uint32_t *items;
    size_t item_count, item_capacity;
    uint32_t *slots, *stamp, now;
    uint32_t *list; /* the set that is being collected */
    size_t list_count, list_capacity;
    struct compile_steps *steps; /* count of the whole constraint */
    bool over;                   /* at a limit: all work stops */
};

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

/* Adds an interval of characters that no set tells apart. Intervals in the same sets share a
 * kind. */
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

/* Follows all jumps from the list, and also ^ at the text's start and $ at its end. Keeps only
 * places that take a set or $, or are a part's end. */
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

/* Drops places of each part that everything matches from here on, except its tail and end. Returns
 * false if that is a part that must not match. */
static bool drop_behind_tails(struct build *b)
{
    uint32_t tails = 0;
    for (size_t i = 0; i < b->list_count; i++) {
        const struct text_place *place = &b->pattern->places[b->list[i]];
        uint32_t tail = b->pattern->parts[place->part].tail;
        /* The tail's own place only jumps; the one behind it is in the list. */
        if (tail != TEXT_NOWHERE && b->list[i] == b->pattern->places[tail].target)
            tails |= 1u << place->part;
        if (tails >> place->part & 1 && b->pattern->parts[place->part].negative)
            return false;
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
    return true;
}

/* Returns the parts that must match. */
static uint32_t wanted_parts(const struct text_pattern *pattern)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < pattern->part_count; i++)
        wanted |= (uint32_t)!pattern->parts[i].negative << i;
    return wanted;
}

/* Returns the state for the list. TEXT_NONE: some part can't match any more, or a limit is
 * reached. */
static uint16_t state_of_list(struct build *b)
{
    uint32_t live = 0;
    for (size_t i = 0; i < b->list_count; i++)
        live |= 1u << b->pattern->places[b->list[i]].part;
    uint32_t wanted = wanted_parts(b->pattern);
    if ((live & wanted) != wanted || !drop_behind_tails(b))
        return TEXT_NONE;
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
    struct text_automaton *a = b->automaton;
    size_t row_bytes = a->class_count * sizeof *a->next;
    a->next = grow(a->next, b->set_count, &b->row_capacity, row_bytes);
    memset(a->next + b->set_count * a->class_count, 0xff, row_bytes);
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

/* Returns whether the text may end in the state: the end of every part that must match is there,
 * maybe behind $, and no other. */
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
    return ended == wanted_parts(b->pattern);
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

/* Returns, by state, whether it leads to a state that accepts. The caller frees it. */
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
    /* Even a small pattern takes these tables. */
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
