#include "common/language/template/parser_state.h"

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
