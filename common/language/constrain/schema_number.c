/* Decimals, exactly, and numbers of JSON as edges of a grammar, digit by digit. */
#include "common/language/constrain/schema_compiler.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sets the decimal, which has no digits yet, to digits * 10^exponent. */
static void set_digits(struct decimal *decimal, const char *digits, int count, int exponent)
{
    int whole = count + exponent; /* digits before the point */
    while (count && digits[count - 1] == '0')
        count--;
    for (int i = 0; i < whole; i++)
        decimal->whole[decimal->whole_count++] = i < count ? (uint8_t)(digits[i] - '0') : 0;
    for (int i = whole; i < count; i++)
        decimal->part[decimal->part_count++] = i < 0 ? 0 : (uint8_t)(digits[i] - '0');
    if (!decimal->whole_count)
        decimal->whole[decimal->whole_count++] = 0;
}

/* Finds the shortest decimal that reads as this double, which is finite. */
static void read_double(double number, struct decimal *decimal)
{
    char text[40], digits[24];
    int precision = 0, count = 0;
    do
        snprintf(text, sizeof text, "%.*e", precision, number);
    while (strtod(text, NULL) != number && ++precision < 17);
    *decimal = (struct decimal){.negative = number < 0};
    for (const char *c = text; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9')
            digits[count++] = *c;
    const char *exponent = strchr(text, 'e');
    ASSERT(exponent);
    if (number == 0)
        count = 0;
    int power = count ? atoi(exponent + 1) - (count - 1) : 0;
    set_digits(decimal, digits, count, power);
}

bool decimal_read(const struct json_value *value, struct decimal *decimal)
{
    double number;
    int64_t whole;
    if (json_as_i64(value, INT64_MIN, INT64_MAX, &whole, NULL) == STATUS_OK) {
        char digits[24];
        uint64_t magnitude = whole < 0 ? -(uint64_t)whole : (uint64_t)whole;
        int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
        *decimal = (struct decimal){.negative = whole < 0};
        set_digits(decimal, digits, magnitude ? count : 0, 0);
        return true;
    }
    if (json_as_double(value, -HUGE_VAL, HUGE_VAL, &number, NULL) != STATUS_OK)
        return false;
    read_double(number, decimal);
    return true;
}

static uint8_t part_digit(const struct decimal *decimal, size_t i)
{
    return i < decimal->part_count ? decimal->part[i] : 0;
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int order = (a->whole_count > b->whole_count) - (a->whole_count < b->whole_count);
    if (!order)
        order = memcmp(a->whole, b->whole, a->whole_count);
    for (size_t i = 0; !order && (i < a->part_count || i < b->part_count); i++)
        order = part_digit(a, i) - part_digit(b, i);
    return a->negative ? -order : order;
}

/* Returns rest * 10^count, up to the modulus. */
static uint32_t shifted(uint32_t rest, uint32_t count, uint32_t modulus)
{
    while (count--)
        rest = rest * 10 % modulus;
    return rest;
}

static bool is_multiple(const struct number_range *range, const struct decimal *number)
{
    uint32_t rest = 0;
    if (!range->modulus)
        return true;
    if (number->part_count > range->modulus_digits)
        return false; /* its last digit isn't 0 */
    for (size_t i = 0; i < number->whole_count; i++)
        rest = (rest * 10 + number->whole[i]) % range->modulus;
    for (size_t i = 0; i < number->part_count; i++)
        rest = (rest * 10 + number->part[i]) % range->modulus;
    return !shifted(rest, range->modulus_digits - number->part_count, range->modulus);
}

/* Reads the number as modulus / 10^digits. */
static bool read_modulus(const struct decimal *number, uint64_t *modulus, uint32_t *digits)
{
    *modulus = 0;
    *digits = number->part_count;
    for (size_t i = 0; i < (size_t)number->whole_count + number->part_count; i++) {
        uint8_t digit =
            i < number->whole_count ? number->whole[i] : number->part[i - number->whole_count];
        if (*modulus > UINT64_MAX / 10 - 1)
            return false;
        *modulus = *modulus * 10 + digit;
    }
    return *digits <= NUMBER_DIGITS;
}

/* Raises modulus / 10^*digits to so many digits. */
static bool raise_digits(uint64_t *modulus, uint32_t *digits, uint32_t to)
{
    for (; *digits < to; ++*digits)
        if (__builtin_mul_overflow(*modulus, 10, modulus))
            return false;
    return true;
}

bool number_range_multiply(struct number_range *range, const struct decimal *number)
{
    uint64_t one, other = range->modulus, both;
    uint32_t digits, other_digits = range->modulus_digits;
    if (!read_modulus(number, &one, &digits))
        return false;
    if (!range->modulus) {
        other = one;
        other_digits = digits;
    }
    if (!raise_digits(&one, &digits, other_digits) || !raise_digits(&other, &other_digits, digits))
        return false;
    uint64_t divisor = one, rest = other;
    while (rest) { /* Euclid's */
        uint64_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    if (__builtin_mul_overflow(one / divisor, other, &both))
        return false;
    for (; digits && both % 10 == 0; digits--)
        both /= 10;
    if (both > NUMBER_MAX_MODULUS)
        return false;
    range->modulus = (uint32_t)both;
    range->modulus_digits = digits;
    return true;
}

bool number_range_has(const struct number_range *range, const struct decimal *number)
{
    if ((!range->part_digits && number->part_count) || !is_multiple(range, number))
        return false;
    int low = range->low.present ? decimal_compare(number, &range->low.value) : 1;
    int high = range->high.present ? decimal_compare(number, &range->high.value) : -1;
    return (low > 0 || (low == 0 && !range->low.exclusive)) &&
           (high < 0 || (high == 0 && !range->high.exclusive));
}

/* Puts magnitudes from `low` to `high`. A state knows the remainder so far, and by bound whether it
 * is tight: all digits so far equal the bound's. If no bound is tight, only the digits to come
 * matter, so such states (`free_*`) are shared. */
struct tight_state {
    uint32_t length, at, rest, state;
    bool low, high;
};

struct magnitudes {
    struct grammar *grammar;
    const struct number_bound *low, *high;
    uint32_t modulus; /* 1: any */
    uint32_t modulus_digits, part_digits, to;
    uint32_t *free_whole; /* [digits to come * modulus + remainder] */
    uint32_t *free_part;  /* [digits behind the point * modulus + remainder] */
    struct tight_state *tight;
    size_t tight_count, tight_capacity;
};

/* A place behind `at` digits of a number with `length` digits before the point. */
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

/* Returns whether the bound has only zeros from here on. */
static bool rest_is_zero(const struct decimal *decimal, const struct place *place)
{
    for (uint32_t at = place->at; at < place->length + decimal->part_count; at++)
        if (digit_of(decimal, place, at))
            return false;
    return true;
}

/* Returns whether the number may end here. */
static bool may_end(const struct magnitudes *m, const struct place *place)
{
    if (place->at < place->length)
        return false;
    uint32_t part = place->at - place->length;
    if (m->modulus > 1 && shifted(place->rest, m->modulus_digits - part, m->modulus))
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

/* Returns the state of the place, made if it is new. Recursion is as deep as a number has
 * digits. */
static uint32_t state_at(struct magnitudes *m, struct place place)
{
    if (!place.low && !place.high) {
        uint32_t *slot = place.at <= place.length
                             ? &m->free_whole[(place.length - place.at) * m->modulus + place.rest]
                             : &m->free_part[(place.at - place.length) * m->modulus + place.rest];
        if (*slot == GRAMMAR_NONE) {
            uint32_t state = *slot = grammar_add_state(m->grammar, m->to);
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
    m->free_part = malloc(free_count * sizeof *m->free_part);
    ASSERT(m->free_whole && m->free_part);
    for (size_t i = 0; i < free_count; i++)
        m->free_whole[i] = m->free_part[i] = GRAMMAR_NONE;
    for (uint32_t length = shortest; length <= longest; length++) {
        struct place start = {
            .length = length, .low = length == shortest, .high = bounded && length == longest};
        /* Not a shared state: a number doesn't start with 0, but 0 may come within a longer one. */
        uint32_t state = grammar_add_state(m->grammar, m->to);
        grammar_add_jump(m->grammar, from, state);
        fill_state(m, state, &start);
    }
    free(m->free_whole);
    free(m->free_part);
    free(m->tight);
    m->tight = NULL;
    m->tight_count = m->tight_capacity = 0;
}

void number_range_put(struct grammar *grammar, const struct number_range *range, uint32_t from,
                      uint32_t to)
{
    ASSERT(!range->modulus || range->part_digits == range->modulus_digits);
    bool all_negative = range->high.present && range->high.value.negative;
    bool all_positive = range->low.present && !range->low.value.negative;
    struct number_bound zero = {.present = true, .value = {.whole_count = 1}}, below_zero = zero;
    below_zero.exclusive = true;
    struct magnitudes m = {.grammar = grammar,
                           .modulus = range->modulus ? range->modulus : 1,
                           .modulus_digits = range->modulus_digits,
                           .part_digits = range->part_digits,
                           .to = to};
    bool has_zero = number_range_has(range, &zero.value); /* and then -0, which equals it */
    if (!all_positive || has_zero) {
        uint32_t behind = grammar_add_state(grammar, to);
        m.low = all_negative ? &range->high : has_zero ? &zero : &below_zero;
        m.high = &range->low;
        grammar_add_bytes(grammar, from, '-', '-', behind);
        put_magnitudes(&m, behind);
    }
    if (!all_negative) {
        m.low = all_positive ? &range->low : &zero;
        m.high = &range->high;
        put_magnitudes(&m, from);
    }
}

/* Puts up to `count` more digits; the number may end behind each. */
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
