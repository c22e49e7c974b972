#include "common/language/constrain/number_range.h"

#include "common/language/constrain/grow.h"

/* Magnitudes from `low` to `high`. A walk through the digits knows whether all so far were those of
 * a bound (tight), and the remainder. Where neither bound is tight any more, only what is still to
 * come matters, so those states are shared. */
struct tight_state {
    uint32_t length, at, rest, state;
    bool low, high;
};

struct magnitudes {
    struct grammar *grammar;
    const struct number_bound *low, *high;
    uint32_t modulus, part_digits, to;
    uint32_t *free_whole; /* [digits to come * modulus + remainder] */
    uint32_t free_part[NUMBER_DIGITS + 1];
    struct tight_state *tight;
    size_t tight_count, tight_capacity;
};

/* A place in a number of `length` digits before the point: behind `at` digits. */
struct place {
    uint32_t length, at, rest;
    bool low, high; /* tight */
};

static uint8_t digit_of(const struct decimal *decimal, const struct place *place, uint32_t at)
{
    if (at < place->length)
        return decimal->whole[at];
    return at - place->length < decimal->part_count ? decimal->part[at - place->length] : 0;
}

/* Whether the bound has nothing but zeros from here on. */
static bool rest_is_zero(const struct decimal *decimal, const struct place *place)
{
    for (uint32_t at = place->at; at < place->length + decimal->part_count; at++)
        if (digit_of(decimal, place, at))
            return false;
    return true;
}

static bool may_end(const struct magnitudes *m, const struct place *place)
{
    if (place->at < place->length || place->rest)
        return false;
    if (place->low && (m->low->exclusive || !rest_is_zero(&m->low->value, place)))
        return false;
    return !place->high || !m->high->exclusive || !rest_is_zero(&m->high->value, place);
}

static uint32_t state_at(struct magnitudes *m, struct place place);

static void put_digits(struct magnitudes *m, uint32_t from, const struct place *place)
{
    uint8_t first = place->at == 0 && place->length > 1;
    for (uint8_t digit = first; digit <= 9 && !m->grammar->full; digit++) {
        struct place next = *place;
        uint8_t low = place->low ? digit_of(&m->low->value, place, place->at) : 0;
        uint8_t high = place->high ? digit_of(&m->high->value, place, place->at) : 9;
        if (digit < low || digit > high)
            continue;
        next.at++;
        next.low = place->low && digit == low;
        next.high = place->high && digit == high;
        if (place->at < place->length)
            next.rest = (place->rest * 10 + digit) % m->modulus;
        uint32_t to = state_at(m, next);
        grammar_add_bytes(m->grammar, from, (uint8_t)('0' + digit), (uint8_t)('0' + digit), to);
    }
}

static void fill_state(struct magnitudes *m, uint32_t state, const struct place *place)
{
    struct grammar *grammar = m->grammar;
    if (grammar->full)
        return;
    if (may_end(m, place))
        grammar_add_jump(grammar, state, m->to);
    if (place->at == place->length && m->part_digits) {
        uint32_t point = grammar_add_state(grammar, state);
        grammar_add_bytes(grammar, state, '.', '.', point);
        put_digits(m, point, place);
    } else if (place->at < place->length + m->part_digits) {
        put_digits(m, state, place);
    }
}

/* Recursion is as deep as a number has digits. */
static uint32_t state_at(struct magnitudes *m, struct place place)
{
    if (!place.low && !place.high) {
        uint32_t *slot = place.at <= place.length
                             ? &m->free_whole[(place.length - place.at) * m->modulus + place.rest]
                             : &m->free_part[place.at - place.length];
        if (*slot == GRAMMAR_NONE) {
            *slot = grammar_add_state(m->grammar, m->to);
            uint32_t state = *slot;
            fill_state(m, state, &place);
            return state;
        }
        return *slot;
    }
    for (size_t i = 0; i < m->tight_count; i++) {
        const struct tight_state *t = &m->tight[i];
        if (t->length == place.length && t->at == place.at && t->rest == place.rest &&
            t->low == place.low && t->high == place.high)
            return t->state;
    }
    uint32_t state = grammar_add_state(m->grammar, m->to);
    m->tight = grow(m->tight, m->tight_count, &m->tight_capacity, sizeof *m->tight);
    m->tight[m->tight_count++] =
        (struct tight_state){place.length, place.at, place.rest, state, place.low, place.high};
    fill_state(m, state, &place);
    return state;
}

static void put_magnitudes(struct magnitudes *m, uint32_t from)
{
    size_t free_count = (NUMBER_DIGITS + 1) * m->modulus;
    uint32_t shortest = m->low->value.whole_count, longest = NUMBER_DIGITS;
    bool bounded = m->high->present && m->high->value.whole_count <= NUMBER_DIGITS;
    if (bounded)
        longest = m->high->value.whole_count;
    m->free_whole = malloc(free_count * sizeof *m->free_whole);
    ASSERT(m->free_whole);
    for (size_t i = 0; i < free_count; i++)
        m->free_whole[i] = GRAMMAR_NONE;
    for (size_t i = 0; i <= NUMBER_DIGITS; i++)
        m->free_part[i] = GRAMMAR_NONE;
    for (uint32_t length = shortest; length <= longest; length++) {
        struct place start = {
            .length = length, .low = length == shortest, .high = bounded && length == longest};
        /* Not a free state: a longer number that has these digits to come starts with another. */
        uint32_t state = grammar_add_state(m->grammar, m->to);
        grammar_add_jump(m->grammar, from, state);
        fill_state(m, state, &start);
    }
    free(m->free_whole);
    free(m->tight);
}

static void put_negative(struct grammar *grammar, const struct number_range *range, uint32_t from,
                         uint32_t to)
{
    struct number_bound low = {.present = true, .exclusive = true}, high = range->low;
    decimal_from_i64(0, &low.value);
    if (range->high.present && range->high.value.negative)
        low = range->high;
    if (high.present && !high.value.negative)
        return;
    struct magnitudes m = {.grammar = grammar,
                           .low = &low,
                           .high = &high,
                           .modulus = range->modulus,
                           .part_digits = range->part_digits,
                           .to = to};
    uint32_t behind = grammar_add_state(grammar, to);
    grammar_add_bytes(grammar, from, '-', '-', behind);
    put_magnitudes(&m, behind);
}

static void put_positive(struct grammar *grammar, const struct number_range *range, uint32_t from,
                         uint32_t to)
{
    struct number_bound low = {.present = true};
    decimal_from_i64(0, &low.value);
    if (range->low.present && !range->low.value.negative)
        low = range->low;
    if (range->high.present && range->high.value.negative)
        return;
    struct magnitudes m = {.grammar = grammar,
                           .low = &low,
                           .high = &range->high,
                           .modulus = range->modulus,
                           .part_digits = range->part_digits,
                           .to = to};
    put_magnitudes(&m, from);
}

void number_range_put(struct grammar *grammar, const struct number_range *range, uint32_t from,
                      uint32_t to)
{
    ASSERT(range->modulus >= 1 && (range->modulus == 1 || !range->part_digits));
    put_negative(grammar, range, from, to);
    put_positive(grammar, range, from, to);
}

/* Up to `count` more digits, each of which may be the last. */
static void put_more_digits(struct grammar *grammar, uint32_t from, uint32_t count, uint32_t to)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t next = grammar_add_state(grammar, from);
        grammar_add_jump(grammar, from, to);
        grammar_add_bytes(grammar, from, '0', '9', next);
        from = next;
    }
    grammar_add_jump(grammar, from, to);
}

void number_put_any(struct grammar *grammar, uint32_t from, uint32_t to)
{
    uint32_t sign = grammar_add_state(grammar, to), first = grammar_add_state(grammar, to);
    uint32_t whole = grammar_add_state(grammar, to), point = grammar_add_state(grammar, to);
    uint32_t part = grammar_add_state(grammar, to), behind = grammar_add_state(grammar, to);
    uint32_t e = grammar_add_state(grammar, to), power = grammar_add_state(grammar, to);
    uint32_t last = grammar_add_state(grammar, to);
    grammar_add_jump(grammar, from, sign);
    grammar_add_bytes(grammar, from, '-', '-', sign);
    grammar_add_bytes(grammar, sign, '0', '0', whole);
    grammar_add_bytes(grammar, sign, '1', '9', first);
    put_more_digits(grammar, first, NUMBER_DIGITS - 1, whole);
    grammar_add_jump(grammar, whole, behind);
    grammar_add_bytes(grammar, whole, '.', '.', point);
    grammar_add_bytes(grammar, point, '0', '9', part);
    put_more_digits(grammar, part, NUMBER_DIGITS - 1, behind);
    grammar_add_jump(grammar, behind, to);
    grammar_add_bytes(grammar, behind, 'e', 'e', e);
    grammar_add_bytes(grammar, behind, 'E', 'E', e);
    grammar_add_jump(grammar, e, power);
    grammar_add_bytes(grammar, e, '+', '+', power);
    grammar_add_bytes(grammar, e, '-', '-', power);
    grammar_add_bytes(grammar, power, '0', '9', last);
    put_more_digits(grammar, last, 1, to);
}
