/* Internal to expression.c: the parts of a pattern that stand for a set of characters. Each reads
 * from text->at on, which is behind what announced it, moves it behind what was read, and adds to
 * the set (not normalised). */
#ifndef BATON_LANGUAGE_CONSTRAIN_EXPRESSION_SET_H
#define BATON_LANGUAGE_CONSTRAIN_EXPRESSION_SET_H

#include "common/base/status.h"
#include "common/language/constrain/charset.h"

struct expression_text {
    const char *bytes; /* valid UTF-8 */
    size_t length, at;
};

enum status expression_parse_class(struct expression_text *text, struct charset *set,
                                   struct error *err) WARN_UNUSED; /* behind [ */
enum status expression_parse_escape(struct expression_text *text, struct charset *set,
                                    struct error *err) WARN_UNUSED; /* behind a backslash */
enum status expression_parse_dot(struct expression_text *text, struct charset *set,
                                 struct error *err) WARN_UNUSED;

#endif
