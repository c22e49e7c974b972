/* Strings and numbers inside of a template's tags. */
#ifndef BATON_LANGUAGE_TEMPLATE_LEXER_LITERAL_H
#define BATON_LANGUAGE_TEMPLATE_LEXER_LITERAL_H

#include "common/language/template/lexer.h"

struct literal_place {
    const char *text;
    size_t length;
    size_t at; /* in: where the literal starts; out: behind it */
    unsigned line;
};

/* A quoted string, its escapes as Python reads them. */
enum status literal_string(struct literal_place *place, struct arena *arena, struct token *token,
                           struct error *err) WARN_UNUSED;
/* An integer within int64, decimal, 0x, 0o or 0b, or a finite decimal fraction; "_" between digits
 * is passed over. */
enum status literal_number(struct literal_place *place, struct arena *arena, struct token *token,
                           struct error *err) WARN_UNUSED;

#endif
