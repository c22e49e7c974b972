#include "common/language/constrain/characters.h"

#include "common/base/utf8.h"

#include <stdio.h>
#include <string.h>

void characters_init(struct characters *characters, struct grammar *grammar, uint32_t note)
{
    *characters = (struct characters){.grammar = grammar, .any_rule = GRAMMAR_NONE, .note = note};
}

void characters_deinit(struct characters *characters)
{
    for (size_t i = 0; i < characters->rule_count; i++)
        charset_deinit(&characters->rules[i].set);
    free(characters->rules);
    *characters = (struct characters){0};
}

/* Returns whether JSON escapes the character. */
static bool must_escape(uint32_t code)
{
    return code < 0x20 || code == '"' || code == '\\';
}

/* Puts low..high, which have the same length in UTF-8. Splits the range until the bytes behind the
 * first one that differs are all of 80..bf. */
static void put_same_length(struct grammar *grammar, uint32_t low, uint32_t high, uint32_t from,
                            uint32_t to)
{
    char a[4], b[4];
    size_t count = utf8_put(low, a);
    for (size_t i = 1; i < count; i++) {
        uint32_t mask = (1u << 6 * i) - 1; /* bits in the last i bytes */
        if ((low & ~mask) == (high & ~mask))
            continue;
        if (low & mask) {
            put_same_length(grammar, low, low | mask, from, to);
            put_same_length(grammar, (low | mask) + 1, high, from, to);
            return;
        }
        if ((high & mask) != mask) {
            put_same_length(grammar, low, (high & ~mask) - 1, from, to);
            put_same_length(grammar, high & ~mask, high, from, to);
            return;
        }
    }
    utf8_put(high, b);
    for (size_t i = 0; i < count; i++) {
        uint32_t next = i + 1 == count ? to : grammar_add_state(grammar, from);
        grammar_add_bytes(grammar, from, (uint8_t)a[i], (uint8_t)b[i], next);
        from = next;
    }
}

/* Puts the characters of several bytes in low..high. */
static void put_long(struct grammar *grammar, uint32_t low, uint32_t high, uint32_t from,
                     uint32_t to)
{
    static const uint32_t last[] = {0x7ff, 0xffff, CHARSET_LAST};
    low = low < 0x80 ? 0x80 : low;
    for (size_t i = 0; i < sizeof last / sizeof *last && low <= high; i++) {
        if (low > last[i])
            continue;
        uint32_t end = high < last[i] ? high : last[i];
        put_same_length(grammar, low, end, from, to);
        low = end + 1;
    }
}

/* Puts the shortest escape of a character. */
static void put_escaped(struct grammar *grammar, uint32_t code, uint32_t from, uint32_t to)
{
    static const char codes[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char text[8];
    const char *known = code ? strchr(codes, (int)code) : NULL;
    if (known)
        snprintf(text, sizeof text, "\\%c", letters[known - codes]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code & 0xff);
    grammar_add_text(grammar, from, text, strlen(text), to);
}

static void fill_rule(struct grammar *grammar, bool json, const struct charset *set, uint32_t rule)
{
    uint32_t from = grammar->rules[rule].start, to = grammar->rules[rule].end;
    for (size_t i = 0; i < set->count; i++) {
        for (uint32_t code = set->ranges[i].low; json && code <= set->ranges[i].high && code < 0x80;
             code++)
            if (must_escape(code))
                put_escaped(grammar, code, from, to);
        put_long(grammar, set->ranges[i].low, set->ranges[i].high, from, to);
    }
}

/* Returns the characters of the set that are called: those of several bytes, or escaped. */
static struct charset called_part(const struct charset *set, bool json)
{
    struct charset part = {0};
    for (size_t i = 0; i < set->count; i++) {
        struct char_range range = set->ranges[i];
        for (uint32_t code = range.low; json && code <= range.high && code < 0x80; code++)
            if (must_escape(code))
                charset_add(&part, code, code);
        if (range.high >= 0x80)
            charset_add(&part, range.low < 0x80 ? 0x80 : range.low, range.high);
    }
    charset_normalise(&part);
    return part;
}

/* Returns the rule for the set, which it takes over. */
static uint32_t rule_of(struct characters *characters, bool json, struct charset *part)
{
    grammar_spend(characters->grammar, characters->rule_count + part->count);
    for (size_t i = 0; i < characters->rule_count; i++) {
        const struct charset_rule *known = &characters->rules[i];
        if (known->json == json && charset_equal(&known->set, part)) {
            charset_deinit(part);
            return known->rule;
        }
    }
    uint32_t rule = grammar_add_rule(characters->grammar, characters->note);
    if (characters->grammar->full) {
        charset_deinit(part);
        return rule;
    }
    fill_rule(characters->grammar, json, part, rule);
    characters->rules = grow(characters->rules, characters->rule_count, &characters->rule_capacity,
                             sizeof *characters->rules);
    characters->rules[characters->rule_count++] = (struct charset_rule){*part, json, rule};
    return rule;
}

/* Puts the range's characters of one byte as edges, except those that JSON escapes. */
static void put_ascii(struct grammar *grammar, bool json, struct char_range range, uint32_t from,
                      uint32_t to)
{
    uint32_t high = range.high < 0x7f ? range.high : 0x7f;
    for (uint32_t code = range.low; code <= high;) {
        uint32_t end = code;
        if (json && must_escape(code)) {
            code++;
            continue;
        }
        while (end < high && !(json && must_escape(end + 1)))
            end++;
        grammar_add_bytes(grammar, from, (uint8_t)code, (uint8_t)end, to);
        code = end + 1;
    }
}

void characters_put(struct characters *characters, bool json, const struct charset *set,
                    uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < set->count; i++)
        put_ascii(characters->grammar, json, set->ranges[i], from, to);
    struct charset part = called_part(set, json);
    if (part.count)
        grammar_add_call(characters->grammar, from, rule_of(characters, json, &part), to);
}

static void put_hex(struct grammar *grammar, uint32_t from, uint8_t low, uint8_t high, uint32_t to)
{
    for (uint8_t digit = low; digit <= high; digit++) {
        char c = "0123456789abcdef"[digit];
        grammar_add_bytes(grammar, from, (uint8_t)c, (uint8_t)c, to);
        if (c >= 'a')
            grammar_add_bytes(grammar, from, (uint8_t)(c - 0x20), (uint8_t)(c - 0x20), to);
    }
}

/* Puts four hexadecimal digits: ranges for the first two, any for the others. */
static void put_hex_four(struct grammar *grammar, uint32_t from, uint8_t first_low,
                         uint8_t first_high, uint8_t second_low, uint8_t second_high, uint32_t to)
{
    uint32_t at[3];
    for (size_t i = 0; i < 3; i++)
        at[i] = grammar_add_state(grammar, from);
    put_hex(grammar, from, first_low, first_high, at[0]);
    put_hex(grammar, at[0], second_low, second_high, at[1]);
    put_hex(grammar, at[1], 0, 15, at[2]);
    put_hex(grammar, at[2], 0, 15, to);
}

/* Puts any escape behind a backslash, with surrogates in pairs. */
static void put_escapes(struct grammar *grammar, uint32_t from, uint32_t to)
{
    for (const char *letter = "\"\\/bfnrt"; *letter; letter++)
        grammar_add_bytes(grammar, from, (uint8_t)*letter, (uint8_t)*letter, to);
    uint32_t digits = grammar_add_state(grammar, from);
    uint32_t behind = grammar_add_state(grammar, from), low = grammar_add_state(grammar, from);
    grammar_add_bytes(grammar, from, 'u', 'u', digits);
    put_hex_four(grammar, digits, 0, 12, 0, 15, to);
    put_hex_four(grammar, digits, 13, 13, 0, 7, to);
    put_hex_four(grammar, digits, 14, 15, 0, 15, to);
    put_hex_four(grammar, digits, 13, 13, 8, 11, behind);
    grammar_add_text(grammar, behind, "\\u", 2, low);
    put_hex_four(grammar, low, 13, 13, 12, 15, to);
}

void characters_put_any(struct characters *characters, uint32_t from, uint32_t to)
{
    struct grammar *grammar = characters->grammar;
    if (characters->any_rule == GRAMMAR_NONE) {
        uint32_t rule = grammar_add_rule(grammar, characters->note);
        uint32_t start = grammar->rules[rule].start, end = grammar->rules[rule].end;
        uint32_t escape = grammar_add_state(grammar, start);
        grammar_add_bytes(grammar, start, '\\', '\\', escape);
        put_escapes(grammar, escape, end);
        put_long(grammar, 0x80, 0xd7ff, start, end);
        put_long(grammar, 0xe000, CHARSET_LAST, start, end);
        characters->any_rule = rule;
    }
    put_ascii(grammar, true, (struct char_range){0, 0x7f}, from, to);
    grammar_add_call(grammar, from, characters->any_rule, to);
}

void characters_put_text(struct characters *characters, bool json, const char *text, size_t length,
                         uint32_t from, uint32_t to)
{
    for (size_t at = 0; at < length && !characters->grammar->full;) {
        struct utf8_char next = utf8_next(text + at, length - at);
        struct char_range range = {next.code, next.code};
        at += next.length;
        uint32_t behind = at == length ? to : grammar_add_state(characters->grammar, from);
        characters_put(characters, json, &(struct charset){&range, 1, 1}, from, behind);
        from = behind;
    }
    if (!length)
        grammar_add_jump(characters->grammar, from, to);
}

/* Puts the characters that lead from the state with `row` to the state `target`. */
static void put_between(struct characters *characters, bool json,
                        const struct text_automaton *automaton, const uint16_t *row,
                        uint16_t target, uint32_t from, uint32_t to)
{
    struct charset set = {0};
    grammar_spend(characters->grammar, automaton->interval_count);
    for (size_t i = 0; i < automaton->interval_count; i++)
        if (row[automaton->intervals[i].kind] == target)
            charset_add(&set, automaton->intervals[i].low, automaton->intervals[i].high);
    charset_normalise(&set);
    if (set.count)
        characters_put(characters, json, &set, from, to);
    charset_deinit(&set);
}

/* Returns whether the class is the first in the row with its target. */
static bool is_new_target(struct grammar *grammar, const uint16_t *row, uint32_t class)
{
    bool seen = row[class] == TEXT_NONE;
    uint32_t before = 0;
    for (; before < class && !seen; before++)
        seen = row[before] == row[class];
    grammar_spend(grammar, 1 + before / 4);
    return !seen;
}

static uint32_t *add_states(struct grammar *grammar, const struct text_automaton *automaton,
                            uint32_t from)
{
    uint32_t *states = calloc(automaton->state_count + 1, sizeof *states);
    ASSERT(states);
    for (size_t i = 0; i < automaton->state_count; i++)
        states[i] = grammar_add_state(grammar, from);
    grammar_add_jump(grammar, from, states[0]);
    return states;
}

void characters_put_automaton(struct characters *characters, bool json,
                              const struct text_automaton *automaton, uint32_t from, uint32_t to)
{
    struct grammar *grammar = characters->grammar;
    uint32_t *states = add_states(grammar, automaton, from);
    for (size_t i = 0; i < automaton->state_count && !grammar->full; i++) {
        const uint16_t *row = automaton->next + i * automaton->class_count;
        if (automaton->accepts[i])
            grammar_add_jump(grammar, states[i], to);
        for (uint32_t c = 0; c < automaton->class_count && !grammar->full; c++)
            if (is_new_target(grammar, row, c))
                put_between(characters, json, automaton, row, row[c], states[i], states[row[c]]);
    }
    free(states);
}

/* Returns the gate of the counts low..high (`high` UINT32_MAX: and beyond) in a place that is
 * reached with `soonest` characters or more. */
static uint32_t gate_between(struct grammar *grammar, uint32_t low, uint32_t high, uint32_t soonest)
{
    struct grammar_range range = {low <= soonest ? 0 : (uint16_t)low,
                                  high == UINT32_MAX ? GRAMMAR_ENDLESS : (uint16_t)high};
    return grammar_gate(grammar, &range, 1);
}

void characters_put_any_counted(struct characters *characters, uint32_t min, uint32_t max,
                                uint32_t from, uint32_t to)
{
    struct grammar *grammar = characters->grammar;
    uint32_t place = grammar_add_state(grammar, from);
    grammar_add_jump(grammar, from, place);
    if (max) {
        uint32_t last = max == UINT32_MAX ? max : max - 1; /* one more may come behind so many */
        uint32_t more = grammar_add_gated(grammar, place, gate_between(grammar, 0, last, 0));
        characters_put_any(characters, more, place);
    }
    uint32_t end = grammar_add_gated(grammar, place, gate_between(grammar, min, max, 0));
    grammar_add_jump(grammar, end, to);
}

/* Text of counted characters that is being put. */
struct counting {
    struct grammar *grammar;
    const struct text_counts *counts;
    struct grammar_range *ranges; /* ranges of the gate that is made */
    size_t range_capacity;
    uint32_t *places; /* places with gates that the state leads to so far */
    size_t place_count, place_capacity;
};

/* Returns the gate of a character from `state` to `target`: one character before the counts at
 * which the text may be in the target. 0: it is never open, or a limit is reached. */
static uint32_t gate_to(struct counting *c, size_t state, uint16_t target)
{
    size_t count = 0;
    for (uint32_t r = c->counts->first[target]; r; r = c->counts->ranges[r - 1].next) {
        struct text_range range = c->counts->ranges[r - 1];
        uint32_t low = range.low ? range.low - 1u : 0, high = range.high;
        if (high != TEXT_COUNT_ENDLESS && high-- == 0)
            continue;
        if (high < c->counts->soonest[state])
            continue;
        if (low <= c->counts->soonest[state])
            low = 0; /* such counts don't occur there */
        c->ranges = grow(c->ranges, count, &c->range_capacity, sizeof *c->ranges);
        c->ranges[count++] = (struct grammar_range){(uint16_t)low, (uint16_t)high};
    }
    return count ? grammar_gate(c->grammar, c->ranges, count) : 0;
}

/* Returns the place of `from` with the gate. */
static uint32_t place_behind(struct counting *c, uint32_t from, uint32_t gate)
{
    grammar_spend(c->grammar, 1 + c->place_count / 4);
    for (size_t i = 0; i < c->place_count; i++)
        if (c->grammar->states[c->places[i]].gate == gate)
            return c->places[i];
    c->places = grow(c->places, c->place_count, &c->place_capacity, sizeof *c->places);
    return c->places[c->place_count++] = grammar_add_gated(c->grammar, from, gate);
}

void characters_put_counted(struct characters *characters, const struct text_automaton *automaton,
                            const struct text_counts *counts, uint32_t min, uint32_t max,
                            uint32_t from, uint32_t to)
{
    struct grammar *grammar = characters->grammar;
    struct counting counting = {.grammar = grammar, .counts = counts};
    uint32_t *states = add_states(grammar, automaton, from);
    for (size_t i = 0; i < automaton->state_count && !grammar->full; i++) {
        const uint16_t *row = automaton->next + i * automaton->class_count;
        counting.place_count = 0;
        if (automaton->accepts[i]) {
            uint32_t end = grammar_add_gated(grammar, states[i],
                                             gate_between(grammar, min, max, counts->soonest[i]));
            grammar_add_jump(grammar, end, to);
        }
        for (uint32_t c = 0; c < automaton->class_count && !grammar->full; c++) {
            uint32_t gate = is_new_target(grammar, row, c) ? gate_to(&counting, i, row[c]) : 0;
            if (gate)
                put_between(characters, true, automaton, row, row[c],
                            place_behind(&counting, states[i], gate), states[row[c]]);
        }
    }
    free(counting.ranges);
    free(counting.places);
    free(states);
}
