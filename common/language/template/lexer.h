/* From a template's source to its tokens, as jinja2 with trim_blocks and lstrip_blocks. The newline
 * behind a block goes, and white space between the start of a line and a block goes. "-" strips all
 * white space, "+" keeps it. Comments disappear, and raw blocks become text. Line ends are "\n",
 * and one at the very end disappears. */
#ifndef BATON_LANGUAGE_TEMPLATE_LEXER_H
#define BATON_LANGUAGE_TEMPLATE_LEXER_H

#include "common/base/arena.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

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

#endif
