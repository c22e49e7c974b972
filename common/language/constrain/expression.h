/* Regular expressions, read into a tree over sets of characters. The dialect is what ECMAScript
 * (with flag u, as JSON Schema asks for), Python's re and Rust's regex read the same way:
 *
 *     .  [a-z]  [^a-z]  |  ( )  (?: )  (?<name> )  (?P<name> )  *  +  ?  {m}  {m,}  {m,n}  and these with a lazy ?
 *     \d \w (ASCII)  \s (White_Space and U+FEFF)  \D \W \S  \t \n \r \f \v \0  \xHH \uHHHH \u{H}  \ before punctuation  ^  $
 *
 * "." is anything but \n, \r, U+2028 and U+2029. What remembers or looks around (\1, \k, (?=, (?!,
 * (?<=, (?<!, \b, \B), atomic groups and possessive repeats, flags, and \p are refused by name:
 * STATUS_UNSUPPORTED. Case matters. */
#ifndef BATON_LANGUAGE_CONSTRAIN_EXPRESSION_H
#define BATON_LANGUAGE_CONSTRAIN_EXPRESSION_H

#include "common/base/status.h"
#include "common/language/constrain/charset.h"

#define EXPRESSION_MAX_BYTES  8192
#define EXPRESSION_MAX_DEPTH  64   /* of groups */
#define EXPRESSION_MAX_REPEAT 4096 /* {m,n} */

#define EXPRESSION_ENDLESS UINT32_MAX

enum expression_kind {
    EXPRESSION_EMPTY,
    EXPRESSION_SET,    /* a: index of the set */
    EXPRESSION_THEN,   /* a, then b */
    EXPRESSION_OR,     /* a or b */
    EXPRESSION_REPEAT, /* a, min..max times */
    EXPRESSION_BEGIN,  /* nothing, at the start of the text */
    EXPRESSION_END,    /* nothing, at its end */
};

struct expression_node {
    enum expression_kind kind;
    uint32_t a, b, min, max;
};

struct expression {
    struct expression_node *nodes;
    struct charset *sets;
    size_t node_count, node_capacity, set_count, set_capacity;
    uint32_t root;
};

/* `text` is valid UTF-8. STATUS_INVALID, STATUS_UNSUPPORTED or STATUS_LIMIT; the sentence names the
 * construct and its byte. */
enum status expression_parse(const char *text, size_t length, struct expression *expression,
                             struct error *err) WARN_UNUSED;
void expression_deinit(struct expression *expression);

#endif
