#include "common/language/constrain/expression.h"

#include "common/base/utf8.h"
#include "common/language/constrain/compiling.h"

#include <string.h>

#define SURROGATE_FIRST 0xd800u
#define SURROGATE_LAST  0xdfffu

const struct charset charset_all = {
    .ranges = (struct char_range[]){{0, SURROGATE_FIRST - 1}, {SURROGATE_LAST + 1, CHARSET_LAST}},
    .count = 2};

void charset_deinit(struct charset *set)
{
    free(set->ranges);
    *set = (struct charset){0};
}

void charset_add(struct charset *set, uint32_t low, uint32_t high)
{
    ASSERT(low <= high && high <= CHARSET_LAST);
    set->ranges = grow(set->ranges, set->count, &set->capacity, sizeof *set->ranges);
    set->ranges[set->count++] = (struct char_range){low, high};
}

void charset_add_all(struct charset *set, const struct charset *other)
{
    for (size_t i = 0; i < other->count; i++)
        charset_add(set, other->ranges[i].low, other->ranges[i].high);
}

static int by_low(const void *a, const void *b)
{
    uint32_t left = ((const struct char_range *)a)->low,
             right = ((const struct char_range *)b)->low;
    return (left > right) - (left < right);
}

static void merge_ranges(struct charset *set)
{
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        struct char_range range = set->ranges[i];
        if (kept && range.low <= set->ranges[kept - 1].high + 1) {
            if (range.high > set->ranges[kept - 1].high)
                set->ranges[kept - 1].high = range.high;
        } else {
            set->ranges[kept++] = range;
        }
    }
    set->count = kept;
}

/* Cuts surrogates, which aren't characters, out of the ranges. */
static void drop_surrogates(struct charset *set)
{
    size_t count = set->count;
    struct char_range *old = set->ranges;
    set->ranges = NULL;
    set->count = set->capacity = 0;
    for (size_t i = 0; i < count; i++) {
        if (old[i].low < SURROGATE_FIRST)
            charset_add(set, old[i].low,
                        old[i].high < SURROGATE_FIRST ? old[i].high : SURROGATE_FIRST - 1);
        if (old[i].high > SURROGATE_LAST)
            charset_add(set, old[i].low > SURROGATE_LAST ? old[i].low : SURROGATE_LAST + 1,
                        old[i].high);
    }
    free(old);
}

void charset_normalise(struct charset *set)
{
    if (set->count)
        qsort(set->ranges, set->count, sizeof *set->ranges, by_low);
    merge_ranges(set);
    drop_surrogates(set);
}

void charset_complement(struct charset *set)
{
    struct charset rest = {0};
    uint32_t next = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].low > next)
            charset_add(&rest, next, set->ranges[i].low - 1);
        next = set->ranges[i].high + 1;
    }
    if (next <= CHARSET_LAST)
        charset_add(&rest, next, CHARSET_LAST);
    charset_normalise(&rest);
    charset_deinit(set);
    *set = rest;
}

bool charset_has(const struct charset *set, uint32_t code)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->ranges[middle].high < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && set->ranges[low].low <= code;
}

bool charset_equal(const struct charset *a, const struct charset *b)
{
    return a->count == b->count &&
           (!a->count || !memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges));
}

/* ---------------------------------------------------------------------------- reading a pattern */

struct parser {
    const char *bytes; /* valid UTF-8 */
    size_t length, at; /* at: behind the bytes that were read */
    struct expression *expression;
    struct error *err;
    int depth;
    bool bars; /* a | stands outside of all groups */
};

static bool at_end(const struct parser *parser)
{
    return parser->at == parser->length;
}

static char peek(const struct parser *parser)
{
    return at_end(parser) ? '\0' : parser->bytes[parser->at];
}

static bool next_is(const struct parser *parser, const char *word)
{
    size_t length = strlen(word), left = parser->length - parser->at;
    return left >= length && !memcmp(parser->bytes + parser->at, word, length);
}

static bool take(struct parser *parser, const char *word)
{
    if (!next_is(parser, word))
        return false;
    parser->at += strlen(word);
    return true;
}

static uint32_t take_character(struct parser *parser)
{
    struct utf8_char next = utf8_next(parser->bytes + parser->at, parser->length - parser->at);
    parser->at += next.length;
    return next.code;
}

static enum status fail(struct parser *parser, enum status status, const char *what)
{
    return error_set(parser->err, status, "%s at byte %zu of the pattern", what, parser->at);
}

/* \d \w \s and their complements. Returns false for other letters. */
static bool add_named(struct charset *set, char letter)
{
    static const struct char_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct char_range spaces[] = {
        {0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    const struct char_range *ranges = (letter | 0x20) == 's' ? spaces : words;
    size_t count = 1; /* \d: the first of `words` */
    switch (letter | 0x20) {
    case 'd': break;
    case 'w': count = sizeof words / sizeof *words; break;
    case 's': count = sizeof spaces / sizeof *spaces; break;
    default: return false;
    }
    struct charset named = {0};
    for (size_t i = 0; i < count; i++)
        charset_add(&named, ranges[i].low, ranges[i].high);
    charset_normalise(&named);
    if (letter < 'a')
        charset_complement(&named);
    charset_add_all(set, &named);
    charset_deinit(&named);
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_hex(struct parser *parser, int min, int max, uint32_t *code)
{
    int count = 0;
    *code = 0;
    for (; count < max && hex_value(peek(parser)) >= 0; parser->at++, count++)
        *code = *code * 16 + (uint32_t)hex_value(peek(parser));
    return count >= min;
}

/* Takes what follows \u: four digits, a pair of surrogates, or {digits}. */
static bool take_unicode(struct parser *parser, uint32_t *code)
{
    if (take(parser, "{"))
        return take_hex(parser, 1, 6, code) && take(parser, "}") && *code <= CHARSET_LAST;
    uint32_t low;
    if (!take_hex(parser, 4, 4, code))
        return false;
    if (*code >= 0xd800 && *code < 0xdc00 && parser->length - parser->at >= 6 &&
        take(parser, "\\u")) {
        if (!take_hex(parser, 4, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return false;
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    }
    return *code < 0xd800 || *code > 0xdfff;
}

static enum status refuse_letter(struct parser *parser, char letter)
{
    if (letter >= '1' && letter <= '9')
        return fail(parser, STATUS_UNSUPPORTED, "a backreference isn't supported");
    switch (letter) {
    case 'k': return fail(parser, STATUS_UNSUPPORTED, "a backreference \\k isn't supported");
    case 'b':
    case 'B': return fail(parser, STATUS_UNSUPPORTED, "a word boundary \\b isn't supported");
    case 'p':
    case 'P': return fail(parser, STATUS_UNSUPPORTED, "a Unicode class \\p isn't supported");
    default:
        return error_set(parser->err, STATUS_UNSUPPORTED,
                         "the escape \\%c isn't supported at byte %zu of the pattern", letter,
                         parser->at);
    }
}

/* Takes what follows a backslash and means one character. */
static enum status take_escaped(struct parser *parser, uint32_t *code)
{
    static const char letters[] = "tnrfv0", values[] = "\t\n\r\f\v\0";
    char letter = parser->bytes[parser->at];
    const char *known = memchr(letters, letter, sizeof letters - 1);
    if (known) {
        *code = (uint32_t)values[known - letters];
        parser->at++;
        return STATUS_OK;
    }
    if (letter == 'x' || letter == 'u') {
        parser->at++;
        bool good = letter == 'x' ? take_hex(parser, 2, 2, code) : take_unicode(parser, code);
        return good ? STATUS_OK : fail(parser, STATUS_INVALID, "a malformed \\x or \\u");
    }
    bool alphanumeric =
        (letter >= '0' && letter <= '9') || ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z');
    if (alphanumeric)
        return refuse_letter(parser, letter);
    *code = take_character(parser);
    return STATUS_OK;
}

/* Takes what follows a backslash, outside [ ]. */
static enum status parse_escape(struct parser *parser, struct charset *set)
{
    if (parser->at == parser->length)
        return fail(parser, STATUS_INVALID, "a backslash with nothing behind it");
    if (add_named(set, parser->bytes[parser->at])) {
        parser->at++;
        return STATUS_OK;
    }
    uint32_t code = 0;
    TRY(take_escaped(parser, &code));
    charset_add(set, code, code);
    return STATUS_OK;
}

/* Takes a member of a class: one character, or a named set, which is added (then *single is
 * false). */
static enum status take_member(struct parser *parser, struct charset *set, bool *single,
                               uint32_t *code)
{
    *single = true;
    if (parser->bytes[parser->at] != '\\') {
        *code = take_character(parser);
        return STATUS_OK;
    }
    parser->at++;
    if (parser->at == parser->length)
        return fail(parser, STATUS_INVALID, "a backslash with nothing behind it");
    if (parser->bytes[parser->at] == 'b') { /* in a class: backspace */
        parser->at++;
        *code = '\b';
        return STATUS_OK;
    }
    *single = !add_named(set, parser->bytes[parser->at]);
    if (*single)
        return take_escaped(parser, code);
    parser->at++;
    return STATUS_OK;
}

static enum status take_members(struct parser *parser, struct charset *set)
{
    bool single;
    uint32_t low = 0, high = 0;
    if (next_is(parser, "[:"))
        return fail(parser, STATUS_UNSUPPORTED, "a class [:name:] isn't supported");
    TRY(take_member(parser, set, &single, &low));
    if (!single)
        return STATUS_OK;
    bool range = parser->length - parser->at >= 2 && peek(parser) == '-' &&
                 parser->bytes[parser->at + 1] != ']';
    if (!range) {
        charset_add(set, low, low);
        return STATUS_OK;
    }
    parser->at++;
    TRY(take_member(parser, set, &single, &high));
    if (!single || high < low)
        return fail(parser, STATUS_INVALID, "a range isn't two ascending characters");
    charset_add(set, low, high);
    return STATUS_OK;
}

static enum status parse_class(struct parser *parser, struct charset *set)
{
    bool opposite = take(parser, "^");
    while (!at_end(parser) && peek(parser) != ']')
        TRY(take_members(parser, set));
    if (!take(parser, "]"))
        return fail(parser, STATUS_INVALID, "a class [ has no end");
    charset_normalise(set);
    if (opposite)
        charset_complement(set);
    return STATUS_OK;
}

static enum status parse_dot(struct parser *parser, struct charset *set)
{
    (void)parser;
    charset_add(set, '\n', '\n');
    charset_add(set, '\r', '\r');
    charset_add(set, 0x2028, 0x2029);
    charset_normalise(set);
    charset_complement(set);
    return STATUS_OK;
}

void expression_deinit(struct expression *expression)
{
    for (size_t i = 0; i < expression->set_count; i++)
        charset_deinit(&expression->sets[i]);
    free(expression->sets);
    free(expression->nodes);
    *expression = (struct expression){0};
}

static uint32_t add_node(struct parser *parser, struct expression_node node)
{
    struct expression *e = parser->expression;
    e->nodes = grow(e->nodes, e->node_count, &e->node_capacity, sizeof *e->nodes);
    e->nodes[e->node_count] = node;
    return (uint32_t)e->node_count++;
}

/* Adds a leaf. Takes the set over; equal sets share one. */
static uint32_t add_set(struct parser *parser, struct charset *set)
{
    struct expression *e = parser->expression;
    size_t at = 0;
    while (at < e->set_count && !charset_equal(&e->sets[at], set))
        at++;
    if (at < e->set_count) {
        charset_deinit(set);
    } else {
        e->sets = grow(e->sets, e->set_count, &e->set_capacity, sizeof *e->sets);
        e->sets[e->set_count++] = *set;
    }
    return add_node(parser, (struct expression_node){.kind = EXPRESSION_SET, .a = (uint32_t)at});
}

static enum status parse_alternatives(struct parser *parser, uint32_t *node);

static enum status parse_character(struct parser *parser, struct charset *set)
{
    uint32_t code = take_character(parser);
    charset_add(set, code, code);
    return STATUS_OK;
}

/* Takes what follows "(" and says which kind of group it is. */
static enum status parse_group_kind(struct parser *parser)
{
    static const struct {
        const char *start, *name;
    } refused[] = {
        {"?=", "lookahead (?=) isn't supported, except behind a first ^,"},
        {"?!", "negative lookahead (?!) isn't supported, except behind a first ^,"},
        {"?<=", "lookbehind (?<=) isn't supported"},
        {"?<!", "negative lookbehind (?<!) isn't supported"},
        {"?>", "an atomic group (?>) isn't supported"},
        {"?(", "a conditional group isn't supported"},
        {"?P=", "a backreference (?P=) isn't supported"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (next_is(parser, refused[i].start))
            return fail(parser, STATUS_UNSUPPORTED, refused[i].name);
    if (take(parser, "?:") || !next_is(parser, "?"))
        return STATUS_OK;
    if (!take(parser, "?<") && !take(parser, "?P<"))
        return fail(parser, STATUS_UNSUPPORTED, "flags in a group (?...) aren't supported");
    while (!at_end(parser) && peek(parser) != '>' && peek(parser) != ')')
        parser->at++;
    return take(parser, ">") ? STATUS_OK
                             : fail(parser, STATUS_INVALID, "a group's name has no end");
}

static enum status parse_set(struct parser *parser,
                             enum status (*parse)(struct parser *, struct charset *),
                             uint32_t *node)
{
    struct charset set = {0};
    enum status status = parse(parser, &set);
    if (status != STATUS_OK) {
        charset_deinit(&set);
        return status;
    }
    charset_normalise(&set);
    *node = add_set(parser, &set);
    return STATUS_OK;
}

static enum status parse_atom(struct parser *parser, uint32_t *node)
{
    switch (peek(parser)) {
    case '(':
        parser->at++;
        if (parser->depth == EXPRESSION_MAX_DEPTH)
            return fail(parser, STATUS_LIMIT, "groups are nested too deep");
        parser->depth++;
        TRY(parse_group_kind(parser));
        TRY(parse_alternatives(parser, node));
        parser->depth--;
        return take(parser, ")") ? STATUS_OK : fail(parser, STATUS_INVALID, "a group has no end");
    case '[': parser->at++; return parse_set(parser, parse_class, node);
    case '\\': parser->at++; return parse_set(parser, parse_escape, node);
    case '.': parser->at++; return parse_set(parser, parse_dot, node);
    case '^':
        parser->at++;
        *node = add_node(parser, (struct expression_node){.kind = EXPRESSION_BEGIN});
        return STATUS_OK;
    case '$':
        parser->at++;
        *node = add_node(parser, (struct expression_node){.kind = EXPRESSION_END});
        return STATUS_OK;
    case '*':
    case '+':
    case '?': return fail(parser, STATUS_INVALID, "there is nothing to repeat");
    default: return parse_set(parser, parse_character, node);
    }
}

/* Takes a number. Returns false if there is none. Stops adding up once over
 * EXPRESSION_MAX_REPEAT. */
static bool take_number(struct parser *parser, uint32_t *number)
{
    bool found = false;
    *number = 0;
    for (; peek(parser) >= '0' && peek(parser) <= '9'; parser->at++, found = true)
        if (*number <= EXPRESSION_MAX_REPEAT)
            *number = *number * 10 + (uint32_t)(peek(parser) - '0');
    return found;
}

/* Takes {m}, {m,} or {m,n}. Returns false for anything else, which means the brace itself. */
static bool take_counts(struct parser *parser, uint32_t *min, uint32_t *max)
{
    size_t start = parser->at;
    bool good = take(parser, "{") && take_number(parser, min);
    *max = *min;
    if (good && take(parser, ",") && !take_number(parser, max))
        *max = EXPRESSION_ENDLESS;
    good = good && take(parser, "}");
    if (!good)
        parser->at = start;
    return good;
}

static bool take_repeat(struct parser *parser, uint32_t *min, uint32_t *max)
{
    *max = EXPRESSION_ENDLESS;
    *min = 0;
    if (take(parser, "*"))
        return true;
    *min = 1;
    if (take(parser, "+"))
        return true;
    *min = 0;
    *max = 1;
    return take(parser, "?") || take_counts(parser, min, max);
}

static enum status parse_repeat(struct parser *parser, uint32_t *node)
{
    uint32_t min, max;
    TRY(parse_atom(parser, node));
    if (!take_repeat(parser, &min, &max))
        return STATUS_OK;
    if (min > EXPRESSION_MAX_REPEAT || (max != EXPRESSION_ENDLESS && max > EXPRESSION_MAX_REPEAT))
        return error_set(parser->err, STATUS_LIMIT,
                         "a repeat before byte %zu of the pattern is over the limit of %d",
                         parser->at, EXPRESSION_MAX_REPEAT);
    if (max < min)
        return fail(parser, STATUS_INVALID, "a repeat's limits are the wrong way round");
    if (next_is(parser, "+"))
        return fail(parser, STATUS_UNSUPPORTED, "a possessive repeat isn't supported");
    take(parser, "?"); /* lazy: the same texts match */
    if (next_is(parser, "*") || next_is(parser, "+") || next_is(parser, "?"))
        return fail(parser, STATUS_INVALID, "there is nothing to repeat");
    *node = add_node(parser, (struct expression_node){
                                 .kind = EXPRESSION_REPEAT, .a = *node, .min = min, .max = max});
    return STATUS_OK;
}

/* Joins the parts as a balanced tree, so that walking it needs little stack. */
static uint32_t join(struct parser *parser, enum expression_kind kind, const uint32_t *parts,
                     size_t count)
{
    if (count == 0)
        return add_node(parser, (struct expression_node){.kind = EXPRESSION_EMPTY});
    if (count == 1)
        return parts[0];
    uint32_t a = join(parser, kind, parts, count / 2);
    uint32_t b = join(parser, kind, parts + count / 2, count - count / 2);
    return add_node(parser, (struct expression_node){.kind = kind, .a = a, .b = b});
}

static enum status parse_sequence(struct parser *parser, uint32_t *node)
{
    uint32_t *parts = NULL;
    size_t count = 0, capacity = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !at_end(parser) && peek(parser) != '|' && peek(parser) != ')') {
        uint32_t part = 0;
        status = parse_repeat(parser, &part);
        parts = grow(parts, count, &capacity, sizeof *parts);
        parts[count++] = part;
    }
    if (status == STATUS_OK)
        *node = join(parser, EXPRESSION_THEN, parts, count);
    free(parts);
    return status;
}

static enum status parse_alternatives(struct parser *parser, uint32_t *node)
{
    uint32_t *parts = NULL;
    size_t count = 0, capacity = 0;
    enum status status = STATUS_OK;
    do {
        uint32_t part = 0;
        status = parse_sequence(parser, &part);
        parts = grow(parts, count, &capacity, sizeof *parts);
        parts[count++] = part;
    } while (status == STATUS_OK && take(parser, "|"));
    parser->bars |= parser->depth == 0 && count > 1;
    if (status == STATUS_OK)
        *node = join(parser, EXPRESSION_OR, parts, count);
    free(parts);
    return status;
}

/* Takes ^ and the lookaheads behind it. Sets *begin if there is a ^. */
static enum status parse_looks(struct parser *parser, bool *begin)
{
    struct expression *e = parser->expression;
    size_t start = parser->at;
    *begin = take(parser, "^");
    while (next_is(parser, "(?=") || next_is(parser, "(?!")) {
        if (e->look_count == EXPRESSION_MAX_LOOKS)
            return fail(parser, STATUS_LIMIT, "more than 8 lookaheads");
        struct expression_look *look = &e->looks[e->look_count++];
        look->negative = next_is(parser, "(?!");
        parser->at += strlen("(?=");
        parser->depth++;
        TRY(parse_alternatives(parser, &look->node));
        parser->depth--;
        if (!take(parser, ")"))
            return fail(parser, STATUS_INVALID, "a group has no end");
        if (next_is(parser, "*") || next_is(parser, "+") || next_is(parser, "?") ||
            next_is(parser, "{"))
            return fail(parser, STATUS_UNSUPPORTED, "a repeated lookahead isn't supported");
    }
    if (!e->look_count) {
        parser->at = start;
        *begin = false;
    }
    e->from_start = *begin;
    return STATUS_OK;
}

/* Parses the whole pattern. */
static enum status parse_pattern(struct parser *parser, uint32_t *root)
{
    bool begin;
    TRY(parse_looks(parser, &begin));
    size_t start = parser->at;
    TRY(parse_alternatives(parser, root));
    if (!at_end(parser))
        return fail(parser, STATUS_INVALID, "a \")\" without its \"(\"");
    if (parser->expression->look_count && parser->bars) {
        parser->at = start;
        return fail(parser, STATUS_UNSUPPORTED,
                    "a lookahead before | isn't supported (put the alternatives in a group)");
    }
    if (begin) {
        uint32_t parts[] = {add_node(parser, (struct expression_node){.kind = EXPRESSION_BEGIN}),
                            *root};
        *root = join(parser, EXPRESSION_THEN, parts, 2);
    }
    return STATUS_OK;
}

enum status expression_parse(const char *text, size_t length, struct expression *expression,
                             struct error *err)
{
    if (length > EXPRESSION_MAX_BYTES)
        return error_set(err, STATUS_LIMIT, "a pattern of %zu bytes is over the limit of %d",
                         length, EXPRESSION_MAX_BYTES);
    *expression = (struct expression){0};
    struct parser parser = {.bytes = text, .length = length, .expression = expression, .err = err};
    uint32_t root = 0;
    enum status status = parse_pattern(&parser, &root);
    if (status != STATUS_OK) {
        expression_deinit(expression);
        return status;
    }
    expression->root = root;
    return STATUS_OK;
}
