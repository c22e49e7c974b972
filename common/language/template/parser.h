/* From a template's source to tokens and nodes. Jinja beyond the supported part is refused by name.
 *
 * lexer.c makes the tokens. parser.c parses statements, parse_expression.c and parse_operand.c
 * parse expressions. After a failure the current token is TOKEN_END and every function returns at
 * once, so that callers need no check between two steps. Nodes may be NULL then. */
#ifndef BATON_LANGUAGE_TEMPLATE_PARSER_H
#define BATON_LANGUAGE_TEMPLATE_PARSER_H

#include "common/base/status.h"
#include "common/language/template/ast.h"

#include <stdarg.h>

/* --- lexer.c ---
 *
 * Cuts a template's source into tokens as jinja2 with trim_blocks and lstrip_blocks. The newline
 * behind a block goes, and white space between the start of a line and a block goes. "-" strips all
 * white space, "+" keeps it. Comments disappear, and raw blocks become text. Line ends are "\n",
 * and one at the very end disappears. */

enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_OUTPUT_BEGIN, /* {{ */
    TOKEN_OUTPUT_END,
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* bytes: the string after its escapes */
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR, /* bytes: its sign */
};

struct token {
    enum token_kind kind;
    unsigned line; /* from 1 */
    const char *bytes;
    size_t length;
    int64_t integer;
    double real;
    struct token *next; /* NULL after TOKEN_END */
};

/* `source` is valid UTF-8. Tokens lie in `arena`, and point into it. STATUS_INVALID: the sentence
 * starts with the line. STATUS_LIMIT: the arena is full. */
enum status lexer_run(const char *source, size_t length, struct arena *arena, struct token **tokens,
                      struct error *err) WARN_UNUSED;

/* --- parser.c --- */

struct parser_macro { /* the macros around the current place, innermost first */
    struct node_macro *macro;
    struct parser_macro *outer;
};

struct parser_block {         /* the blocks around the current place, innermost first */
    const char *opened, *end; /* its tag, and the last of its end tags */
    unsigned line;            /* line of its tag */
    struct parser_block *outer;
};

struct parser {
    struct token *token; /* the current one */
    struct template *template;
    struct parser_macro *macros;
    struct parser_block *open; /* innermost; NULL: none */
    int nesting;               /* depth of expressions */
    int blocks;                /* depth of blocks */
    int loops;                 /* loops around, inside this macro */
    struct token *end;         /* TOKEN_END; the current token after a failure */
    enum status status;
    struct error *err;
};

/* Reports "line N: ..." for the current token, unless an earlier step failed. Returns NULL. */
void *parser_fail(struct parser *parser, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void *parser_take(struct parser *parser, size_t bytes); /* zeroed; NULL after a failure */
struct node *parser_node(struct parser *parser, enum node_kind kind);

bool parser_at_operator(const struct parser *parser, const char *sign);
bool parser_at_name(const struct parser *parser, const char *name);
/* returns whether it was there */
bool parser_skip_operator(struct parser *parser, const char *sign);
bool parser_skip_name(struct parser *parser, const char *name);
void parser_next(struct parser *parser);
void parser_expect_operator(struct parser *parser, const char *sign);
/* any name, interned; NULL after a failure */
const char *parser_expect_name(struct parser *parser);
/* the current token, for sentences */
const char *parser_shown(const struct parser *parser, char shown[64]);

/* Enters one level of expressions. The caller decrements `nesting` again. False after a failure. */
bool parser_enter(struct parser *parser);

void node_list_init(struct node_list *list);
void node_list_add(struct node_list *list, struct node *node); /* NULL is ignored */

/* parse_expression.c */
struct node *parse_expression(struct parser *parser);
struct node *parse_without_choice(struct parser *parser);
/* Parses one expression, or a tuple of several with commas. It ends at the tag's end, at ")" or at
 * the name `stop` (may be NULL). */
struct node *parse_tuple(struct parser *parser, bool with_choice, const char *stop);
/* Parses a target, left of "=" or between "for" and "in": names and tuples of names, with `members`
 * also name.name. */
struct node *parse_target(struct parser *parser, bool members, const char *stop);
/* parse_operand.c */
struct node *parse_unary(struct parser *parser, bool with_filters);
/* Parses a literal or a name; with `members` also name.name. */
struct node *parse_primary(struct parser *parser, bool members);
/* Parses all "| name(...)" behind `input`. `inline_first`: the first has no "|". */
struct node *parse_filters(struct parser *parser, struct node *input, bool inline_first);

/* Fills `template` with nodes and names. STATUS_INVALID, STATUS_UNSUPPORTED and STATUS_LIMIT with a
 * sentence that starts with the line. */
enum status parser_run(struct token *tokens, struct template *template,
                       struct error *err) WARN_UNUSED;

#endif
