#include "common/language/constrain/text_pattern.h"

#include "common/language/constrain/grow.h"

/* For a character of an expression, which is read, and a range of a set, which is sorted. */
#define BYTE_STEPS  16
#define RANGE_STEPS 16

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

static void spend(struct text_pattern *pattern, uint64_t steps)
{
    if (!compile_steps_take(pattern->steps, steps))
        pattern->full = true;
}

/* Not yet leading anywhere. At the limit: the first place, and `full`. */
static uint32_t add_place(struct text_pattern *pattern)
{
    spend(pattern, 1);
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
    spend(pattern, pattern->set_count + set->count * RANGE_STEPS);
    for (uint32_t i = 0; i < pattern->set_count; i++)
        if (charset_equal(&pattern->sets[i], set))
            return i;
    pattern->sets =
        grow(pattern->sets, pattern->set_count, &pattern->set_capacity, sizeof *pattern->sets);
    struct charset *copy = &pattern->sets[pattern->set_count];
    charset_init(copy);
    charset_add_all(copy, set);
    return (uint32_t)pattern->set_count++;
}

/* What is being written out. */
struct writing {
    struct text_pattern *pattern;
    const struct expression *expression;
    uint32_t *set_of; /* the pattern's, of each of the expression's */
};

static uint32_t put(struct writing *w, uint32_t node, uint32_t from);

/* One of the repeats that may be left out: the places before it may also jump to `end`. */
static uint32_t put_optional(struct writing *w, uint32_t node, uint32_t from, uint32_t end)
{
    uint32_t inside = add_place(w->pattern);
    jump(w->pattern, from, inside);
    jump(w->pattern, from, end);
    uint32_t fresh = add_place(w->pattern);
    jump(w->pattern, put(w, node, inside), fresh);
    return fresh;
}

static uint32_t put_repeat(struct writing *w, const struct expression_node *node, uint32_t from)
{
    struct text_pattern *pattern = w->pattern;
    for (uint32_t i = 0; i < node->min && !pattern->full; i++) {
        from = put(w, node->a, from);
        spend(pattern, 1); /* what is repeated may be empty */
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
    for (uint32_t i = node->min; i < node->max && !pattern->full; i++)
        at = put_optional(w, node->a, at, end);
    jump(pattern, at, end);
    return end;
}

/* Writes the node out from a place that leads nowhere yet, and returns one that doesn't either. */
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

static uint32_t any_character(struct text_pattern *pattern)
{
    struct charset all;
    charset_init(&all);
    charset_add(&all, 0, CHARSET_LAST);
    charset_normalise(&all);
    uint32_t set = set_index(pattern, &all);
    charset_deinit(&all);
    return set;
}

/* Any text, and then on from a place that leads nowhere yet; *loop is where the text may still
 * grow. */
static uint32_t put_anything(struct text_pattern *pattern, uint32_t from, uint32_t *loop)
{
    uint32_t any = any_character(pattern), inside = add_place(pattern), to = add_place(pattern);
    *loop = add_place(pattern);
    jump(pattern, from, *loop);
    jump(pattern, *loop, inside);
    jump(pattern, *loop, to);
    lead(pattern, inside, TEXT_SET, any, *loop);
    return to;
}

static void put_part(struct text_pattern *pattern, const struct expression *expression,
                     enum text_match match)
{
    struct text_part part = {.tail = TEXT_NOWHERE};
    struct writing w = {pattern, expression,
                        malloc((expression->set_count + 1) * sizeof(uint32_t))};
    ASSERT(w.set_of);
    for (size_t i = 0; i < expression->set_count && !pattern->full; i++)
        w.set_of[i] = set_index(pattern, &expression->sets[i]);
    uint32_t at = part.start = add_place(pattern), loop;
    if (match == TEXT_ANYWHERE)
        at = put_anything(pattern, at, &loop);
    at = put(&w, expression->root, at);
    if (match == TEXT_ANYWHERE)
        at = put_anything(pattern, at, &part.tail);
    part.end = at;
    free(w.set_of);
    pattern->parts[pattern->part_count++] = part;
}

static enum status check_room(const struct text_pattern *pattern, struct error *err)
{
    if (pattern->part_count == TEXT_MAX_PARTS)
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
    TRY(check_room(pattern, err));
    spend(pattern, length * BYTE_STEPS);
    TRY(expression_parse(text, length, &expression, err));
    put_part(pattern, &expression, match);
    expression_deinit(&expression);
    return check_size(pattern, err);
}

enum status text_pattern_add_length(struct text_pattern *pattern, uint32_t min, uint32_t max,
                                    struct error *err)
{
    struct charset all;
    charset_init(&all);
    charset_add(&all, 0, CHARSET_LAST);
    charset_normalise(&all);
    struct expression_node nodes[] = {{.kind = EXPRESSION_SET},
                                      {.kind = EXPRESSION_REPEAT, .min = min, .max = max}};
    struct expression expression = {
        .nodes = nodes, .node_count = 2, .sets = &all, .set_count = 1, .root = 1};
    enum status status = check_room(pattern, err);
    if (status == STATUS_OK) {
        put_part(pattern, &expression, TEXT_WHOLE);
        status = check_size(pattern, err);
    }
    charset_deinit(&all);
    return status;
}
