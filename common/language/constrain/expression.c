#include "common/language/constrain/expression.h"

#include "common/base/utf8.h"
#include "common/language/constrain/expression_set.h"
#include "common/language/constrain/grow.h"

#include <string.h>

struct parser {
    struct expression_text text;
    struct expression *expression;
    struct error *err;
    int depth;
};

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

/* Takes the set over; equal sets are one. */
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

static bool at_end(const struct parser *parser)
{
    return parser->text.at == parser->text.length;
}

static char peek(const struct parser *parser)
{
    return at_end(parser) ? '\0' : parser->text.bytes[parser->text.at];
}

static bool next_is(const struct parser *parser, const char *word)
{
    size_t length = strlen(word), left = parser->text.length - parser->text.at;
    return left >= length && !memcmp(parser->text.bytes + parser->text.at, word, length);
}

static bool take(struct parser *parser, const char *word)
{
    if (!next_is(parser, word))
        return false;
    parser->text.at += strlen(word);
    return true;
}

static enum status fail(struct parser *parser, enum status status, const char *what)
{
    return error_set(parser->err, status, "%s at byte %zu of the pattern", what, parser->text.at);
}

static enum status parse_alternatives(struct parser *parser, uint32_t *node);

static enum status skip_group_name(struct parser *parser)
{
    while (!at_end(parser) && peek(parser) != '>' && peek(parser) != ')')
        parser->text.at++;
    return take(parser, ">") ? STATUS_OK
                             : fail(parser, STATUS_INVALID, "a group's name has no end");
}

/* Behind "(": what kind of group. */
static enum status parse_group_kind(struct parser *parser)
{
    static const struct {
        const char *start, *name;
    } refused[] = {
        {"?=", "lookahead (?=) isn't supported"},
        {"?!", "negative lookahead (?!) isn't supported"},
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
    if (take(parser, "?<") || take(parser, "?P<"))
        return skip_group_name(parser);
    return fail(parser, STATUS_UNSUPPORTED, "flags in a group (?...) aren't supported");
}

static enum status parse_group(struct parser *parser, uint32_t *node)
{
    if (parser->depth == EXPRESSION_MAX_DEPTH)
        return fail(parser, STATUS_LIMIT, "groups are nested too deep");
    parser->depth++;
    TRY(parse_group_kind(parser));
    TRY(parse_alternatives(parser, node));
    parser->depth--;
    return take(parser, ")") ? STATUS_OK : fail(parser, STATUS_INVALID, "a group has no end");
}

static enum status parse_set(struct parser *parser,
                             enum status (*parse)(struct expression_text *, struct charset *,
                                                  struct error *),
                             uint32_t *node)
{
    struct charset set;
    charset_init(&set);
    enum status status = parse(&parser->text, &set, parser->err);
    if (status != STATUS_OK) {
        charset_deinit(&set);
        return status;
    }
    charset_normalise(&set);
    *node = add_set(parser, &set);
    return STATUS_OK;
}

static enum status parse_character(struct expression_text *text, struct charset *set,
                                   struct error *err)
{
    (void)err;
    struct utf8_char next = utf8_next(text->bytes + text->at, text->length - text->at);
    text->at += next.length;
    charset_add(set, next.code, next.code);
    return STATUS_OK;
}

static enum status parse_atom(struct parser *parser, uint32_t *node)
{
    switch (peek(parser)) {
    case '(': parser->text.at++; return parse_group(parser, node);
    case '[': parser->text.at++; return parse_set(parser, expression_parse_class, node);
    case '\\': parser->text.at++; return parse_set(parser, expression_parse_escape, node);
    case '.': parser->text.at++; return parse_set(parser, expression_parse_dot, node);
    case '^':
        parser->text.at++;
        *node = add_node(parser, (struct expression_node){.kind = EXPRESSION_BEGIN});
        return STATUS_OK;
    case '$':
        parser->text.at++;
        *node = add_node(parser, (struct expression_node){.kind = EXPRESSION_END});
        return STATUS_OK;
    case '*':
    case '+':
    case '?': return fail(parser, STATUS_INVALID, "there is nothing to repeat");
    default: return parse_set(parser, parse_character, node);
    }
}

/* A number at `at`, which moves behind it; false where there is none. Large ones are all over the
 * limit. */
static bool take_number(struct parser *parser, uint32_t *number)
{
    bool found = false;
    *number = 0;
    for (; peek(parser) >= '0' && peek(parser) <= '9'; parser->text.at++, found = true)
        if (*number <= EXPRESSION_MAX_REPEAT)
            *number = *number * 10 + (uint32_t)(peek(parser) - '0');
    return found;
}

/* {m}, {m,} or {m,n}; anything else behind "{" means the brace itself. */
static bool take_counts(struct parser *parser, uint32_t *min, uint32_t *max)
{
    size_t start = parser->text.at;
    bool good = take(parser, "{") && take_number(parser, min);
    *max = *min;
    if (good && take(parser, ",") && !take_number(parser, max))
        *max = EXPRESSION_ENDLESS;
    good = good && take(parser, "}");
    if (!good)
        parser->text.at = start;
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
                         parser->text.at, EXPRESSION_MAX_REPEAT);
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

/* Joined as a balanced tree, so that walking it needs little stack. */
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
    if (status == STATUS_OK)
        *node = join(parser, EXPRESSION_OR, parts, count);
    free(parts);
    return status;
}

enum status expression_parse(const char *text, size_t length, struct expression *expression,
                             struct error *err)
{
    if (length > EXPRESSION_MAX_BYTES)
        return error_set(err, STATUS_LIMIT, "a pattern of %zu bytes is over the limit of %d",
                         length, EXPRESSION_MAX_BYTES);
    *expression = (struct expression){0};
    struct parser parser = {
        .text = {.bytes = text, .length = length}, .expression = expression, .err = err};
    uint32_t root = 0;
    enum status status = parse_alternatives(&parser, &root);
    if (status == STATUS_OK && !at_end(&parser))
        status = fail(&parser, STATUS_INVALID, "a \")\" without its \"(\"");
    if (status != STATUS_OK) {
        expression_deinit(expression);
        return status;
    }
    expression->root = root;
    return STATUS_OK;
}
