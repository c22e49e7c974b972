/* Sets of characters, and regular expressions, which are read into a tree over such sets. The
 * dialect is the common part of ECMAScript (with flag u, as JSON Schema asks for), Python's re and
 * Rust's regex:
 *
 *     .  [a-z]  [^a-z]  |  ( )  (?: )  (?<name> )  (?P<name> )  ^  $
 *     *  +  ?  {m}  {m,}  {m,n}  and these with a lazy ?
 *     \d \w (ASCII)  \s (White_Space and U+FEFF)  \D \W \S
 *     \t \n \r \f \v \0  \xHH \uHHHH \u{H}  \ before punctuation
 *     (?=  (?!  at the start: before or right behind a first ^, if no | stands outside of groups
 *
 * "." is any character except \n, \r, U+2028 and U+2029. Case matters. STATUS_UNSUPPORTED, with a
 * name: backreferences, other lookaround and boundaries (\1, \k, (?<=, (?<!, \b, \B), atomic
 * groups, possessive repeats, flags, and \p. Plain memory; one thread. */
#ifndef BATON_LANGUAGE_CONSTRAIN_EXPRESSION_H
#define BATON_LANGUAGE_CONSTRAIN_EXPRESSION_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHARSET_LAST 0x10ffffu

struct char_range {
    uint32_t low, high; /* inclusive */
};

/* A set of characters (Unicode scalar values). All zeros is the empty set. charset_add fills it;
 * then charset_normalise sorts the ranges, makes them disjoint and drops surrogates. The other
 * functions need a normalised set. */
struct charset {
    struct char_range *ranges;
    size_t count, capacity;
};

extern const struct charset charset_all; /* all characters */

void charset_deinit(struct charset *set);
void charset_add(struct charset *set, uint32_t low,
                 uint32_t high); /* low <= high <= CHARSET_LAST */
void charset_add_all(struct charset *set, const struct charset *other);
void charset_normalise(struct charset *set);
void charset_complement(struct charset *set);
bool charset_has(const struct charset *set, uint32_t code);
bool charset_equal(const struct charset *a, const struct charset *b);

#define EXPRESSION_MAX_BYTES  8192
#define EXPRESSION_MAX_DEPTH  64   /* nested groups */
#define EXPRESSION_MAX_REPEAT 4096 /* {m,n} */

#define EXPRESSION_MAX_LOOKS 8 /* lookaheads at the start */

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

/* A lookahead at the start: texts must begin with a match of the node, or must not. */
struct expression_look {
    uint32_t node;
    bool negative;
};

struct expression {
    struct expression_node *nodes;
    struct charset *sets;
    size_t node_count, node_capacity, set_count, set_capacity;
    uint32_t root;
    struct expression_look looks[EXPRESSION_MAX_LOOKS];
    uint32_t look_count;
    bool from_start; /* ^ stands before the lookaheads, as it must if a part of a text may match */
};

/* `text` is valid UTF-8. STATUS_INVALID, STATUS_UNSUPPORTED or STATUS_LIMIT: the sentence names the
 * construct and its byte, and *expression holds nothing. */
enum status expression_parse(const char *text, size_t length, struct expression *expression,
                             struct error *err) WARN_UNUSED;
void expression_deinit(struct expression *expression);

#endif
