#include "common/language/template/parser.h"

#include <stdio.h>
#include <string.h>

void *parser_fail(struct parser *parser, enum status status, const char *format, ...)
{
    if (parser->status != STATUS_OK)
        return NULL;
    va_list args;
    va_start(args, format);
    parser->status = error_vset(parser->err, status, format, args);
    va_end(args);
    error_prefix(parser->err, status, "line %u", parser->token->line);
    parser->token = parser->end;
    return NULL;
}

void *parser_take(struct parser *parser, size_t bytes)
{
    void *memory = parser->status == STATUS_OK ? arena_take(&parser->template->arena, bytes) : NULL;
    if (!memory)
        return parser_fail(parser, STATUS_LIMIT, "the template is too large (over %u bytes parsed)",
                           TEMPLATE_LIMIT_PARSED);
    return memory;
}

struct node *parser_node(struct parser *parser, enum node_kind kind)
{
    struct node *node = parser_take(parser, sizeof *node);
    if (node) {
        node->kind = kind;
        node->line = parser->token->line;
    }
    return node;
}

static bool is_word(const struct token *token, enum token_kind kind, const char *word)
{
    return token->kind == kind && token->length == strlen(word) &&
           memcmp(token->bytes, word, token->length) == 0;
}

bool parser_at_operator(const struct parser *parser, const char *sign)
{
    return is_word(parser->token, TOKEN_OPERATOR, sign);
}

bool parser_at_name(const struct parser *parser, const char *name)
{
    return is_word(parser->token, TOKEN_NAME, name);
}

void parser_next(struct parser *parser)
{
    if (parser->token->next)
        parser->token = parser->token->next;
}

bool parser_skip_operator(struct parser *parser, const char *sign)
{
    bool there = parser_at_operator(parser, sign);
    if (there)
        parser_next(parser);
    return there;
}

bool parser_skip_name(struct parser *parser, const char *name)
{
    bool there = parser_at_name(parser, name);
    if (there)
        parser_next(parser);
    return there;
}

const char *parser_shown(const struct parser *parser, char shown[64])
{
    static const char *const kinds[] = {[TOKEN_END] = "the end of the template",
                                        [TOKEN_TEXT] = "text",
                                        [TOKEN_OUTPUT_BEGIN] = "'{{'",
                                        [TOKEN_OUTPUT_END] = "'}}'",
                                        [TOKEN_BLOCK_BEGIN] = "'{%'",
                                        [TOKEN_BLOCK_END] = "'%}'",
                                        [TOKEN_STRING] = "a string",
                                        [TOKEN_INT] = "a number",
                                        [TOKEN_FLOAT] = "a number"};
    const struct token *token = parser->token;
    if (token->kind != TOKEN_NAME && token->kind != TOKEN_OPERATOR)
        return kinds[token->kind];
    snprintf(shown, 64, "'%.*s'", (int)(token->length < 40 ? token->length : 40), token->bytes);
    return shown;
}

void parser_expect_operator(struct parser *parser, const char *sign)
{
    char shown[64];
    if (!parser_skip_operator(parser, sign))
        parser_fail(parser, STATUS_INVALID, "expected '%s', found %s", sign,
                    parser_shown(parser, shown));
}

const char *parser_expect_name(struct parser *parser)
{
    char shown[64];
    const struct token *token = parser->token;
    if (token->kind != TOKEN_NAME)
        return parser_fail(parser, STATUS_INVALID, "expected a name, found %s",
                           parser_shown(parser, shown));
    const char *name = names_intern(&parser->template->names, &parser->template->arena,
                                    token->bytes, token->length);
    if (!name)
        return parser_fail(parser, STATUS_LIMIT, "the template has too many names");
    parser_next(parser);
    return name;
}

void node_list_init(struct node_list *list)
{
    *list = (struct node_list){.tail = &list->first};
}

void node_list_add(struct node_list *list, struct node *node)
{
    if (!node)
        return;
    *list->tail = node;
    list->tail = &node->next;
    list->count++;
}

bool parser_enter(struct parser *parser)
{
    if (++parser->nesting > TEMPLATE_LIMIT_NESTING)
        parser_fail(parser, STATUS_LIMIT, "expressions are nested deeper than %d",
                    TEMPLATE_LIMIT_NESTING);
    return parser->status == STATUS_OK;
}

/* --- statements --- */

/* Parses up to the first of the tags `ends`, which becomes the current token. NULL ends the array.
 * `opened` names the block. */
static struct node *parse_body(struct parser *parser, const char *opened, unsigned line,
                               const char *const *ends);

static void expect_block_end(struct parser *parser)
{
    char shown[64];
    if (parser->token->kind != TOKEN_BLOCK_END)
        parser_fail(parser, STATUS_INVALID, "expected '%%}', found %s",
                    parser_shown(parser, shown));
    parser_next(parser);
}

/* Parses a body and the one tag that ends it. */
static struct node *parse_whole_body(struct parser *parser, const char *opened, unsigned line,
                                     const char *end)
{
    const char *const ends[] = {end, NULL};
    struct node *body = parse_body(parser, opened, line, ends);
    parser_next(parser);
    return body;
}

static struct node *parse_set(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_SET);
    parser_next(parser);
    struct node *target = parse_target(parser, true, NULL), *value, *body = NULL;
    if (!node)
        return NULL;
    if (parser_skip_operator(parser, "=")) {
        value = parse_tuple(parser, true, NULL);
    } else {
        node->kind = NODE_SET_BLOCK;
        value = parse_filters(parser, NULL, false);
        body = parse_whole_body(parser, "set", node->line, "endset");
    }
    node->set.target = target;
    node->set.value = value;
    node->set.body = body;
    return node;
}

static struct node *parse_for(struct parser *parser)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *node = parser_node(parser, NODE_FOR);
    parser_next(parser);
    struct node *target = parse_target(parser, false, "in");
    if (!parser_skip_name(parser, "in"))
        parser_fail(parser, STATUS_INVALID, "expected 'in' behind the variables of a for");
    struct node *iterable = parse_tuple(parser, false, "recursive");
    struct node *test = parser_skip_name(parser, "if") ? parse_expression(parser) : NULL;
    if (!node || parser_at_name(parser, "recursive"))
        return parser_fail(parser, STATUS_UNSUPPORTED, "'for ... recursive' is not supported");
    parser->loops++;
    struct node *body = parse_body(parser, "for", node->line, ends), *otherwise = NULL;
    parser->loops--;
    if (parser_skip_name(parser, "else"))
        otherwise = parse_whole_body(parser, "else", node->line, "endfor");
    else
        parser_next(parser);
    node->loop.target = target;
    node->loop.iterable = iterable;
    node->loop.test = test;
    node->loop.body = body;
    node->loop.otherwise = otherwise;
    return node;
}

/* Makes each elif an if inside the `otherwise` of the one before. */
static struct node *parse_if(struct parser *parser)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *first = NULL, **place = &first;
    unsigned line = parser->token->line;
    do {
        struct node *node = parser_node(parser, NODE_IF);
        parser_next(parser);
        struct node *test = parse_tuple(parser, false, NULL);
        struct node *body = parse_body(parser, "if", line, ends);
        if (!node)
            return NULL;
        node->branch.test = test;
        node->branch.body = body;
        *place = node;
        place = &node->branch.otherwise;
    } while (parser_at_name(parser, "elif"));
    if (parser_skip_name(parser, "else"))
        *place = parse_whole_body(parser, "else", line, "endif");
    else
        parser_next(parser);
    return first;
}

static struct node *parse_with(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_WITH);
    parser_next(parser);
    if (!node)
        return NULL;
    node_list_init(&node->with.items);
    while (parser->status == STATUS_OK && parser->token->kind != TOKEN_BLOCK_END) {
        if (node->with.items.count)
            parser_expect_operator(parser, ",");
        struct node *target = parser_node(parser, NODE_NAME);
        const char *name = parser_expect_name(parser);
        if (!target)
            return NULL;
        target->name = name;
        node_list_add(&node->with.items, target);
        parser_expect_operator(parser, "=");
        node_list_add(&node->with.items, parse_expression(parser));
    }
    node->with.body = parse_whole_body(parser, "with", node->line, "endwith");
    return node;
}

static void parse_signature(struct parser *parser, struct node_macro *macro)
{
    struct parameter **tail = &macro->parameters;
    bool defaults = false;
    parser_expect_operator(parser, "(");
    while (parser->status == STATUS_OK && !parser_at_operator(parser, ")")) {
        if (macro->parameter_count)
            parser_expect_operator(parser, ",");
        struct parameter *parameter = parser_take(parser, sizeof *parameter);
        if (!parameter)
            return;
        parameter->name = parser_expect_name(parser);
        if (parser_skip_operator(parser, "="))
            parameter->default_value = parse_expression(parser);
        else if (defaults)
            parser_fail(parser, STATUS_INVALID,
                        "a parameter without default stands behind one that has one");
        defaults |= parameter->default_value != NULL;
        *tail = parameter;
        tail = &parameter->next;
        macro->parameter_count++;
    }
    parser_expect_operator(parser, ")");
}

/* Parses the body of a macro or call block, behind its signature or call. */
static void parse_macro_body(struct parser *parser, struct node_macro *macro, const char *opened,
                             unsigned line, const char *end)
{
    struct parser_macro around = {.macro = macro, .outer = parser->macros};
    int loops = parser->loops;
    parser->macros = &around;
    parser->loops = 0;
    macro->body = parse_whole_body(parser, opened, line, end);
    parser->loops = loops;
    parser->macros = around.outer;
}

static struct node *parse_macro(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_MACRO);
    struct node_macro *macro = parser_take(parser, sizeof *macro);
    parser_next(parser);
    if (!node || !macro)
        return NULL;
    macro->name = parser_expect_name(parser);
    parse_signature(parser, macro);
    parse_macro_body(parser, macro, "macro", node->line, "endmacro");
    node->macro = macro;
    return node;
}

static struct node *parse_call_block(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_CALL_BLOCK);
    struct node_macro *macro = parser_take(parser, sizeof *macro);
    parser_next(parser);
    if (!node || !macro)
        return NULL;
    macro->name = parser->template->caller;
    if (parser_at_operator(parser, "("))
        parse_signature(parser, macro);
    struct node *call = parse_expression(parser);
    if (!call || call->kind != NODE_CALL)
        return parser_fail(parser, STATUS_INVALID, "expected a call behind 'call'");
    parse_macro_body(parser, macro, "call", node->line, "endcall");
    node->call_block.call = call;
    node->call_block.macro = macro;
    return node;
}

static struct node *parse_filter_block(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_FILTER_BLOCK);
    parser_next(parser);
    struct node *filters = parse_filters(parser, NULL, true);
    if (!node)
        return NULL;
    node->set.value = filters;
    node->set.body = parse_whole_body(parser, "filter", node->line, "endfilter");
    return node;
}

/* transformers marks the assistant's messages with it. The text is the inside. */
static struct node *parse_generation(struct parser *parser)
{
    struct node *node = parser_node(parser, NODE_SCOPE);
    parser_next(parser);
    if (node)
        node->body = parse_whole_body(parser, "generation", node->line, "endgeneration");
    return node;
}

static struct node *parse_jump(struct parser *parser)
{
    bool is_break = parser_at_name(parser, "break");
    if (!parser->loops)
        return parser_fail(parser, STATUS_INVALID, "'%s' outside of a loop",
                           is_break ? "break" : "continue");
    struct node *node = parser_node(parser, is_break ? NODE_BREAK : NODE_CONTINUE);
    parser_next(parser);
    return node;
}

static struct node *parse_statement(struct parser *parser)
{
    static const struct {
        const char *tag;
        struct node *(*parse)(struct parser *);
    } tags[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_jump},      {"continue", parse_jump},
    };
    static const char *const others[] = {"block", "extends", "include",    "import",
                                         "from",  "print",   "autoescape", "do",
                                         "trans", "debug",   "pluralize"};
    const struct parser_block *open = parser->open;
    char shown[64];
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (parser_at_name(parser, tags[i].tag))
            return tags[i].parse(parser);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (parser_at_name(parser, others[i]))
            return parser_fail(parser, STATUS_UNSUPPORTED, "the tag '%s' is not supported",
                               others[i]);
    if (open)
        return parser_fail(parser, STATUS_INVALID,
                           "unexpected tag %s: the '%s' of line %u has no '%s' before it",
                           parser_shown(parser, shown), open->opened, open->line, open->end);
    return parser_fail(parser, STATUS_INVALID, "unexpected tag %s", parser_shown(parser, shown));
}

static struct node *parse_output(struct parser *parser)
{
    char shown[64];
    struct node *node = parser_node(parser, NODE_OUTPUT);
    parser_next(parser);
    struct node *operand = parse_tuple(parser, true, NULL);
    if (node)
        node->operand = operand;
    if (parser->token->kind != TOKEN_OUTPUT_END)
        parser_fail(parser, STATUS_INVALID, "expected '}}', found %s", parser_shown(parser, shown));
    parser_next(parser);
    return node;
}

/* Parses statements and text until one of the tags, and reads its "{%". */
static struct node *parse_until(struct parser *parser, const char *const *ends)
{
    struct node_list list;
    node_list_init(&list);
    while (parser->token->kind != TOKEN_END) {
        if (parser->token->kind == TOKEN_TEXT) {
            struct node *text = parser_node(parser, NODE_TEXT);
            if (text)
                text->value = value_string(parser->token->bytes, parser->token->length, false);
            node_list_add(&list, text);
            parser_next(parser);
        } else if (parser->token->kind == TOKEN_OUTPUT_BEGIN) {
            node_list_add(&list, parse_output(parser));
        } else {
            parser_next(parser); /* {% */
            const char *const *end = ends;
            while (end && *end && !parser_at_name(parser, *end))
                end++;
            if (end && *end)
                break;
            node_list_add(&list, parse_statement(parser));
            expect_block_end(parser);
        }
    }
    return list.first;
}

static struct node *parse_body(struct parser *parser, const char *opened, unsigned line,
                               const char *const *ends)
{
    size_t last = 0; /* the tag that ends the whole block */
    while (ends[last + 1])
        last++;
    struct parser_block block = {
        .opened = opened, .end = ends[last], .line = line, .outer = parser->open};
    parser_skip_operator(parser, ":");
    expect_block_end(parser);
    if (++parser->blocks > TEMPLATE_LIMIT_NESTING)
        return parser_fail(parser, STATUS_LIMIT, "blocks are nested deeper than %d",
                           TEMPLATE_LIMIT_NESTING);
    parser->open = &block;
    struct node *body = parse_until(parser, ends);
    parser->open = block.outer;
    parser->blocks--;
    if (parser->token->kind == TOKEN_END)
        return parser_fail(parser, STATUS_INVALID, "the '%s' of line %u has no '%s'", opened, line,
                           block.end);
    return body;
}

enum status parser_run(struct token *tokens, struct template *template, struct error *err)
{
    struct token *end = tokens;
    while (end->next)
        end = end->next;
    struct parser parser = {.token = tokens, .template = template, .end = end, .err = err};
    template->body = parse_until(&parser, NULL);
    return parser.status;
}
