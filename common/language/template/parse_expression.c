/* Expressions, by jinja2's grammar. Each level of operators is one function. parse_operand.c parses
 * their operands. */
#include "common/language/template/parser.h"

#include <string.h>

static struct node *make_binary(struct parser *parser, enum node_kind kind, enum node_operator sign,
                                struct node *left, struct node *right)
{
    struct node *node = parser_node(parser, kind);
    if (node) {
        node->binary.operator= sign;
        node->binary.left = left;
        node->binary.right = right;
    }
    return node;
}

/* --- arithmetic --- */

static struct node *parse_power(struct parser *parser)
{
    struct node *left = parse_unary(parser, true);
    while (parser_skip_operator(parser, "**"))
        left =
            make_binary(parser, NODE_ARITHMETIC, OPERATOR_POWER, left, parse_unary(parser, true));
    return left;
}

static struct node *parse_product(struct parser *parser)
{
    static const struct {
        const char *sign;
        enum node_operator operator;
    } signs[] = {{"*", OPERATOR_MULTIPLY},
                 {"/", OPERATOR_DIVIDE},
                 {"//", OPERATOR_FLOOR_DIVIDE},
                 {"%", OPERATOR_MODULO}};
    struct node *left = parse_power(parser);
    for (size_t i = 0; i < sizeof signs / sizeof *signs;) {
        if (!parser_skip_operator(parser, signs[i].sign)) {
            i++;
            continue;
        }
        if (signs[i].operator== OPERATOR_MODULO && left && left->kind == NODE_CONSTANT &&
            left->value.kind == VALUE_STRING)
            return parser_fail(parser, STATUS_UNSUPPORTED,
                               "formatting a string with %% is not supported");
        left = make_binary(parser, NODE_ARITHMETIC, signs[i].operator, left, parse_power(parser));
        i = 0;
    }
    return left;
}

/* Adds an item to a list node of this kind: to `list` if it is one, otherwise to a new one around
 * it. */
static struct node *append(struct parser *parser, enum node_kind kind, struct node *list,
                           struct node *item)
{
    if (!list || list->kind != kind) {
        struct node *made = parser_node(parser, kind);
        if (!made)
            return NULL;
        node_list_init(&made->items);
        node_list_add(&made->items, list);
        list = made;
    }
    node_list_add(&list->items, item);
    return list;
}

static struct node *parse_concat(struct parser *parser)
{
    struct node *first = parse_product(parser), *list = NULL;
    while (parser_skip_operator(parser, "~")) {
        if (!list)
            list = append(parser, NODE_CONCAT, NULL, first);
        list = append(parser, NODE_CONCAT, list, parse_product(parser));
    }
    return list ? list : first;
}

static struct node *parse_sum(struct parser *parser)
{
    struct node *left = parse_concat(parser), *sum = NULL; /* sum: left, while it is a chain of + */
    for (;;) {
        if (parser_skip_operator(parser, "+")) {
            if (!sum)
                sum = append(parser, NODE_SUM, NULL, left);
            left = sum = append(parser, NODE_SUM, sum, parse_concat(parser));
        } else if (parser_skip_operator(parser, "-")) {
            struct node *right = parse_concat(parser);
            left = make_binary(parser, NODE_ARITHMETIC, OPERATOR_SUBTRACT, left, right);
            sum = NULL;
        } else {
            return left;
        }
    }
}

/* --- logic --- */

static bool skip_comparison(struct parser *parser, enum node_operator *operator)
{
    static const struct {
        const char *sign;
        enum node_operator operator;
    } signs[] = {{"==", OPERATOR_EQUAL},  {"!=", OPERATOR_NOT_EQUAL},
                 {"<", OPERATOR_LESS},    {"<=", OPERATOR_LESS_EQUAL},
                 {">", OPERATOR_GREATER}, {">=", OPERATOR_GREATER_EQUAL}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (parser_skip_operator(parser, signs[i].sign)) {
            *operator= signs[i].operator;
            return true;
        }
    }
    const struct token *next = parser->token->next;
    bool not_in = parser_at_name(parser, "not") && next && next->kind == TOKEN_NAME &&
                  next->length == 2 && !memcmp(next->bytes, "in", 2);
    if (not_in)
        parser_next(parser);
    *operator= not_in ? OPERATOR_NOT_IN : OPERATOR_IN;
    return parser_skip_name(parser, "in");
}

static struct node *parse_compare(struct parser *parser)
{
    struct node *first = parse_sum(parser);
    enum node_operator operator;
    if (!skip_comparison(parser, &operator))
        return first;
    struct node *node = parser_node(parser, NODE_COMPARE);
    if (!node)
        return NULL;
    node->compare.first = first;
    struct comparison **tail = &node->compare.rest;
    do {
        struct comparison *made = parser_take(parser, sizeof *made);
        if (!made)
            return NULL;
        *made = (struct comparison){.operator= operator, .operand = parse_sum(parser)};
        *tail = made;
        tail = &made->next;
    } while (skip_comparison(parser, &operator));
    return node;
}

static struct node *parse_not(struct parser *parser)
{
    if (!parser_at_name(parser, "not"))
        return parse_compare(parser);
    struct node *node = parser_node(parser, NODE_NOT);
    parser_next(parser);
    struct node *operand = parser_enter(parser) ? parse_not(parser) : NULL;
    parser->nesting--;
    if (node)
        node->operand = operand;
    return node;
}

static struct node *parse_and(struct parser *parser)
{
    struct node *left = parse_not(parser);
    while (parser_skip_name(parser, "and"))
        left = make_binary(parser, NODE_AND, 0, left, parse_not(parser));
    return left;
}

struct node *parse_without_choice(struct parser *parser)
{
    struct node *left = parser_enter(parser) ? parse_and(parser) : NULL;
    while (parser_skip_name(parser, "or"))
        left = make_binary(parser, NODE_OR, 0, left, parse_and(parser));
    parser->nesting--;
    return left;
}

struct node *parse_expression(struct parser *parser)
{
    struct node *yes = parser_enter(parser) ? parse_without_choice(parser) : NULL;
    while (parser_skip_name(parser, "if")) {
        struct node *node = parser_node(parser, NODE_CHOICE);
        struct node *test = parse_without_choice(parser);
        struct node *no = parser_skip_name(parser, "else") ? parse_expression(parser) : NULL;
        if (!node)
            break;
        node->choice.test = test;
        node->choice.yes = yes;
        node->choice.no = no;
        yes = node;
    }
    parser->nesting--;
    return parser->status == STATUS_OK ? yes : NULL;
}

/* --- tuples and targets --- */

/* Parses items with `one`. A comma makes them a tuple. */
static struct node *parse_list(struct parser *parser, struct node *(*one)(struct parser *),
                               const char *stop)
{
    struct node *node = parser_node(parser, NODE_TUPLE);
    if (!node)
        return NULL;
    node_list_init(&node->items);
    bool comma = false;
    for (;;) {
        enum token_kind kind = parser->token->kind;
        if (kind == TOKEN_OUTPUT_END || kind == TOKEN_BLOCK_END || kind == TOKEN_END ||
            parser_at_operator(parser, ")") || (stop && parser_at_name(parser, stop)))
            break;
        node_list_add(&node->items, one(parser));
        if (!parser_skip_operator(parser, ","))
            break;
        comma = true;
    }
    bool parenthesized = stop && *stop == ')';
    char shown[64];
    if (node->items.count == 0 && !parenthesized)
        return parser_fail(parser, STATUS_INVALID, "expected an expression, found %s",
                           parser_shown(parser, shown));
    return comma || !node->items.count ? node : node->items.first;
}

struct node *parse_tuple(struct parser *parser, bool with_choice, const char *stop)
{
    return parse_list(parser, with_choice ? parse_expression : parse_without_choice, stop);
}

static struct node *parse_plain_target(struct parser *parser)
{
    return parse_primary(parser, false);
}

static struct node *parse_member_target(struct parser *parser)
{
    return parse_primary(parser, true);
}

static void check_target(struct parser *parser, const struct node *target, bool members)
{
    if (!target || target->kind == NODE_NAME || (members && target->kind == NODE_ATTRIBUTE))
        return;
    if (target->kind != NODE_TUPLE)
        parser_fail(parser, STATUS_INVALID, "only a name can be given a value");
    else
        for (const struct node *item = target->items.first; item; item = item->next)
            check_target(parser, item, members);
}

struct node *parse_target(struct parser *parser, bool members, const char *stop)
{
    struct node *target =
        parse_list(parser, members ? parse_member_target : parse_plain_target, stop);
    check_target(parser, target, members);
    return target;
}
