/* A set of characters (Unicode scalar values), as ranges. Filled with charset_add, then normalised
 * once: sorted, disjoint, without surrogates; the other functions want it so. Owner: who calls
 * charset_init. */
#ifndef BATON_LANGUAGE_CONSTRAIN_CHARSET_H
#define BATON_LANGUAGE_CONSTRAIN_CHARSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHARSET_LAST 0x10ffffu

struct char_range {
    uint32_t low, high; /* inclusive */
};

struct charset {
    struct char_range *ranges;
    size_t count, capacity;
};

void charset_init(struct charset *set);
void charset_deinit(struct charset *set);
void charset_add(struct charset *set, uint32_t low,
                 uint32_t high); /* low <= high <= CHARSET_LAST */
void charset_add_all(struct charset *set, const struct charset *other);
void charset_normalise(struct charset *set);
void charset_complement(struct charset *set);
bool charset_has(const struct charset *set, uint32_t code);
bool charset_equal(const struct charset *a, const struct charset *b);

#endif
