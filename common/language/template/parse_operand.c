/* Operands of expressions: literals and names, their members and calls, filters and tests. */
#include "common/language/template/filters.h"
#include "common/language/template/methods.h"
#include "common/language/template/parser.h"

#include <string.h>

static struct node *make_constant(struct parser *parser, struct value value)
{
    struct node *node = parser_node(parser, NODE_CONSTANT);
    if (node)
        node->value = value;
    return node;
}

/* Joins adjacent strings. */
static struct node *parse_string(struct parser *parser)
{
    struct token *first = parser->token;
    size_t length = 0;
    for (struct token *token = first; token->kind == TOKEN_STRING; token = token->next)
        length += token->length;
    char *bytes = parser_take(parser, length + 1);
    if (!bytes)
        return NULL;
    struct node *node = make_constant(parser, value_string(bytes, length, false));
    for (; parser->token->kind == TOKEN_STRING; parser_next(parser)) {
        memcpy(bytes, parser->token->bytes, parser->token->length);
        bytes += parser->token->length;
    }
    return node;
}

static struct node *parse_items(struct parser *parser, enum node_kind kind, const char *close)
{
    struct node *node = parser_node(parser, kind);
    if (!node)
        return NULL;
    node_list_init(&node->items);
    parser_next(parser);
    while (parser->status == STATUS_OK && !parser_at_operator(parser, close)) {
        if (node->items.count) {
            parser_expect_operator(parser, ",");
            if (parser_at_operator(parser, close))
                break;
        }
        node_list_add(&node->items, parse_expression(parser));
        if (kind == NODE_DICT) {
            parser_expect_operator(parser, ":");
            node_list_add(&node->items, parse_expression(parser));
        }
    }
    parser_expect_operator(parser, close);
    return node;
}

static struct node *parse_name(struct parser *parser, bool members)
{
    static const char *const trues[] = {"true", "True"}, *const falses[] = {"false", "False"},
                             *const nones[] = {"none", "None"};
    struct node *node = NULL;
    for (int i = 0; i < 2 && !node; i++) {
        if (parser_at_name(parser, trues[i]))
            node = make_constant(parser, value_bool(true));
        else if (parser_at_name(parser, falses[i]))
            node = make_constant(parser, value_bool(false));
        else if (parser_at_name(parser, nones[i]))
            node = make_constant(parser, value_none());
    }
    if (node) {
        parser_next(parser);
        return node;
    }
    node = parser_node(parser, NODE_NAME);
    const char *name = parser_expect_name(parser);
    if (!node || !name)
        return NULL;
    node->name = name;
    /* "caller", "varargs" and "kwargs" in a macro's body mean that it takes such arguments. */
    for (struct parser_macro *around = parser->macros; around; around = around->outer) {
        around->macro->uses_caller |= name == parser->template->caller;
        around->macro->uses_varargs |= name == parser->template->varargs;
        around->macro->uses_kwargs |= name == parser->template->kwargs;
    }
    if (!members || !parser_skip_operator(parser, "."))
        return node;
    struct node *member = parser_node(parser, NODE_ATTRIBUTE);
    if (member) {
        member->member.object = node;
        member->member.name = parser_expect_name(parser);
    }
    return member;
}

struct node *parse_primary(struct parser *parser, bool members)
{
    char shown[64];
    struct node *node;
    switch (parser->token->kind) {
    case TOKEN_NAME: return parse_name(parser, members);
    case TOKEN_STRING: return parse_string(parser);
    case TOKEN_INT:
        node = make_constant(parser, value_int(parser->token->integer));
        parser_next(parser);
        return node;
    case TOKEN_FLOAT:
        node = make_constant(parser, value_float(parser->token->real));
        parser_next(parser);
        return node;
    default: break;
    }
    if (parser_at_operator(parser, "["))
        return parse_items(parser, NODE_LIST, "]");
    if (parser_at_operator(parser, "{"))
        return parse_items(parser, NODE_DICT, "}");
    if (!parser_skip_operator(parser, "("))
        return parser_fail(parser, STATUS_INVALID, "expected an expression, found %s",
                           parser_shown(parser, shown));
    node = parse_tuple(parser, true, ")");
    parser_expect_operator(parser, ")");
    return node;
}

/* --- members, calls, filters, tests --- */

static struct node *parse_slice(struct parser *parser)
{
    struct node *parts[3] = {0};
    bool is_slice = false;
    for (int i = 0; i < 3; i++) {
        if (!parser_at_operator(parser, ":") && !parser_at_operator(parser, "]"))
            parts[i] = parse_expression(parser);
        if (i == 2 || !parser_skip_operator(parser, ":"))
            break;
        is_slice = true;
    }
    if (!is_slice)
        return parts[0];
    struct node *node = parser_node(parser, NODE_SLICE);
    if (node) {
        node->slice.start = parts[0];
        node->slice.stop = parts[1];
        node->slice.step = parts[2];
    }
    return node;
}

static struct node *parse_member(struct parser *parser, struct node *object)
{
    struct node *node = parser_node(parser, NODE_ITEM);
    if (!node)
        return NULL;
    node->member.object = object;
    if (parser_skip_operator(parser, "[")) {
        char shown[64];
        if (parser_at_operator(parser, "]"))
            return parser_fail(parser, STATUS_INVALID, "expected a subscript, found %s",
                               parser_shown(parser, shown));
        node->member.key = parse_slice(parser);
        if (parser_at_operator(parser, ","))
            return parser_fail(parser, STATUS_UNSUPPORTED,
                               "a subscript of several values is not supported");
        parser_expect_operator(parser, "]");
        return node;
    }
    parser_next(parser); /* the dot */
    if (parser->token->kind == TOKEN_INT) {
        node->member.key = parse_primary(parser, false);
    } else {
        node->kind = NODE_ATTRIBUTE;
        node->member.name = parser_expect_name(parser);
    }
    return node;
}

static struct argument *parse_argument(struct parser *parser)
{
    struct argument *argument = parser_take(parser, sizeof *argument);
    if (!argument)
        return NULL;
    const struct token *next = parser->token->next;
    if (parser_skip_operator(parser, "*")) {
        argument->kind = ARGUMENT_STAR;
    } else if (parser_skip_operator(parser, "**")) {
        argument->kind = ARGUMENT_STAR_STAR;
    } else if (parser->token->kind == TOKEN_NAME && next && next->kind == TOKEN_OPERATOR &&
               next->length == 1 && *next->bytes == '=') {
        argument->kind = ARGUMENT_KEYWORD;
        argument->keyword = parser_expect_name(parser);
        parser_next(parser);
    }
    argument->value = parse_expression(parser);
    return argument;
}

/* Parses from "(" on. Kinds come in the order of their enum. */
static struct argument *parse_arguments(struct parser *parser)
{
    struct argument *first = NULL, **tail = &first, *last = NULL;
    parser_expect_operator(parser, "(");
    while (parser->status == STATUS_OK && !parser_at_operator(parser, ")")) {
        if (last) {
            parser_expect_operator(parser, ",");
            if (parser_at_operator(parser, ")"))
                break;
        }
        struct argument *argument = parse_argument(parser);
        if (!argument)
            return NULL;
        bool again = last && last->kind == argument->kind && last->kind >= ARGUMENT_STAR;
        if (again || (last && last->kind > argument->kind && argument->kind != ARGUMENT_KEYWORD))
            return parser_fail(parser, STATUS_INVALID,
                               "an argument stands behind one that must come later");
        *tail = last = argument;
        tail = &argument->next;
    }
    parser_expect_operator(parser, ")");
    return first;
}

static struct node *parse_call(struct parser *parser, struct node *callee)
{
    struct node *node = parser_node(parser, NODE_CALL);
    if (!node)
        return NULL;
    if (callee && callee->kind == NODE_ATTRIBUTE && callee->member.name &&
        method_is_unsupported(callee->member.name))
        return parser_fail(parser, STATUS_UNSUPPORTED, "the method '%s' is not supported",
                           callee->member.name);
    if (callee && callee->kind == NODE_NAME &&
        (!strcmp(callee->name, "lipsum") || !strcmp(callee->name, "cycler") ||
         !strcmp(callee->name, "joiner")))
        return parser_fail(parser, STATUS_UNSUPPORTED, "the function '%s' is not supported",
                           callee->name);
    node->call.callee = callee;
    node->call.arguments = parse_arguments(parser);
    return node;
}

static struct node *parse_postfix(struct parser *parser, struct node *node)
{
    while (parser->status == STATUS_OK) {
        if (parser_at_operator(parser, ".") || parser_at_operator(parser, "["))
            node = parse_member(parser, node);
        else if (parser_at_operator(parser, "("))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}

/* Checks the name of a test or filter in an argument, as in map("upper"). */
static void check_named_argument(struct parser *parser, const char *filter,
                                 const struct argument *argument)
{
    bool by_attribute = !strcmp(filter, "selectattr") || !strcmp(filter, "rejectattr");
    bool test = by_attribute || !strcmp(filter, "select") || !strcmp(filter, "reject");
    if (!test && strcmp(filter, "map") != 0)
        return;
    if (by_attribute && argument)
        argument = argument->next;
    if (!argument || argument->kind != ARGUMENT_PLAIN || !argument->value ||
        argument->value->kind != NODE_CONSTANT || argument->value->value.kind != VALUE_STRING)
        return;
    struct value_text name = argument->value->value.text;
    if (test ? !predicate_find(name.bytes, name.length) : !filter_find(name.bytes, name.length))
        parser_fail(parser, STATUS_UNSUPPORTED, "the %s '%.*s' is not supported",
                    test ? "test" : "filter", (int)name.length, name.bytes);
}

static struct node *parse_filter(struct parser *parser, struct node *input)
{
    struct node *node = parser_node(parser, NODE_FILTER);
    const char *name = parser_expect_name(parser);
    if (!node || !name)
        return NULL;
    node->filter.input = input;
    node->filter.filter = filter_find(name, strlen(name));
    if (!node->filter.filter)
        return parser_fail(parser, STATUS_UNSUPPORTED, "the filter '%s' is not supported", name);
    if (parser_at_operator(parser, "("))
        node->filter.arguments = parse_arguments(parser);
    check_named_argument(parser, name, node->filter.arguments);
    return node;
}

struct node *parse_filters(struct parser *parser, struct node *input, bool inline_first)
{
    if (inline_first)
        input = parse_filter(parser, input);
    while (parser_skip_operator(parser, "|"))
        input = parse_filter(parser, input);
    return input;
}

/* A test may have one argument without parentheses: x is divisibleby 3. */
static struct argument *parse_bare_argument(struct parser *parser)
{
    enum token_kind kind = parser->token->kind;
    bool starts = kind == TOKEN_NAME || kind == TOKEN_STRING || kind == TOKEN_INT ||
                  kind == TOKEN_FLOAT || parser_at_operator(parser, "[") ||
                  parser_at_operator(parser, "{");
    if (!starts || parser_at_name(parser, "else") || parser_at_name(parser, "or") ||
        parser_at_name(parser, "and"))
        return NULL;
    if (parser_at_name(parser, "is"))
        return parser_fail(parser, STATUS_INVALID, "tests can't be chained with 'is'");
    struct argument *argument = parser_take(parser, sizeof *argument);
    struct node *value = parse_postfix(parser, parse_primary(parser, false));
    if (argument)
        argument->value = value;
    return argument;
}

static struct node *parse_test(struct parser *parser, struct node *input)
{
    parser_next(parser); /* is */
    bool negated = parser_skip_name(parser, "not");
    struct node *node = parser_node(parser, NODE_TEST);
    const char *name = parser_expect_name(parser);
    if (!node || !name)
        return NULL;
    node->test.input = input;
    node->test.predicate = predicate_find(name, strlen(name));
    if (!node->test.predicate)
        return parser_fail(parser, STATUS_UNSUPPORTED, "the test '%s' is not supported", name);
    node->test.earlier = parser->template->last_test;
    parser->template->last_test = node;
    node->test.arguments =
        parser_at_operator(parser, "(") ? parse_arguments(parser) : parse_bare_argument(parser);
    if (!negated)
        return node;
    struct node *inverse = parser_node(parser, NODE_NOT);
    if (inverse)
        inverse->operand = node;
    return inverse;
}

struct node *parse_unary(struct parser *parser, bool with_filters)
{
    bool negative = parser_at_operator(parser, "-");
    struct node *node;
    if (negative || parser_at_operator(parser, "+")) {
        node = parser_node(parser, negative ? NODE_NEGATIVE : NODE_POSITIVE);
        parser_next(parser);
        struct node *operand = parser_enter(parser) ? parse_unary(parser, false) : NULL;
        parser->nesting--;
        if (node)
            node->operand = operand;
    } else {
        node = parse_primary(parser, false);
    }
    node = parse_postfix(parser, node);
    while (with_filters && parser->status == STATUS_OK) {
        if (parser_skip_operator(parser, "|"))
            node = parse_filter(parser, node);
        else if (parser_at_name(parser, "is"))
            node = parse_test(parser, node);
        else if (parser_at_operator(parser, "("))
            node = parse_call(parser, node);
        else
            break;
    }
    return node;
}
