/* What the parser's two halves, statements and expressions, share. After a failure the current
 * token is TOKEN_END and every function returns at once, so that nobody has to look between two
 * steps; nodes may be NULL then. */
#ifndef BATON_LANGUAGE_TEMPLATE_PARSER_STATE_H
#define BATON_LANGUAGE_TEMPLATE_PARSER_STATE_H

#include "common/language/template/lexer.h"
#include "common/language/template/template_parts.h"

#include <stdarg.h>

struct parser_macro { /* those around what is being parsed */
    struct node_macro *macro;
    struct parser_macro *outer;
};

struct parser_block {         /* likewise */
    const char *opened, *end; /* its tag, and the last of those that may end it */
    unsigned line;            /* of the former */
    struct parser_block *outer;
};

struct parser {
    struct token *token; /* the current one */
    struct template *template;
    struct parser_macro *macros;
    struct parser_block *open; /* the innermost; NULL: none */
    int nesting;               /* of expressions */
    int blocks;                /* of statements */
    int loops;                 /* around, inside this macro */
    struct token *end;         /* where a failure leads */
    enum status status;
    struct error *err;
};

/* "line N: ..." of the current token, if nothing failed before. Returns NULL. */
void *parser_fail(struct parser *parser, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *parser_take(struct parser *parser, size_t bytes); /* zeroed; NULL after failing */
struct node *parser_node(struct parser *parser, enum node_kind kind);

bool parser_at_operator(const struct parser *parser, const char *sign);
bool parser_at_name(const struct parser *parser, const char *name);
bool parser_skip_operator(struct parser *parser, const char *sign); /* true if it was there */
bool parser_skip_name(struct parser *parser, const char *name);
void parser_next(struct parser *parser);
void parser_expect_operator(struct parser *parser, const char *sign);
const char *parser_expect_name(struct parser *parser); /* any, interned; NULL after failing */
const char *parser_shown(const struct parser *parser, char shown[64]); /* the current token */

/* One level of expressions deeper, which the caller takes back from `nesting`; false after
 * failing. */
bool parser_enter(struct parser *parser);

void node_list_init(struct node_list *list);
void node_list_add(struct node_list *list, struct node *node); /* NULL is passed over */

/* parse_expression.c */
struct node *parse_expression(struct parser *parser);
struct node *parse_without_choice(struct parser *parser);
/* One expression, or several with commas: a tuple. Ends at the tag's end, at ")" or at the name
 * `stop` (may be NULL). */
struct node *parse_tuple(struct parser *parser, bool with_choice, const char *stop);
/* What may stand left of "=" or between "for" and "in": names, tuples of them, with `members` also
 * name.name. */
struct node *parse_target(struct parser *parser, bool members, const char *stop);
/* parse_operand.c */
struct node *parse_unary(struct parser *parser, bool with_filters);
/* A literal or a name; with `members` also name.name. */
struct node *parse_primary(struct parser *parser, bool members);
/* "| name(...)" as often as there are some around `input`; `inline_first`: the first has no "|". */
struct node *parse_filters(struct parser *parser, struct node *input, bool inline_first);

#endif
