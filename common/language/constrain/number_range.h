/* Numbers of JSON as edges of a grammar: all, or those between two bounds, exactly, digit by digit.
 *
 * What is written is bounded: NUMBER_DIGITS digits before and behind the point, so that a number
 * ends. Between bounds there is no exponent, and no -0. */
#ifndef BATON_LANGUAGE_CONSTRAIN_NUMBER_RANGE_H
#define BATON_LANGUAGE_CONSTRAIN_NUMBER_RANGE_H

#include "common/language/constrain/grammar.h"

#define NUMBER_DIGITS      18
#define NUMBER_MAX_MODULUS 1000
#define DECIMAL_MAX_DIGITS 340 /* of a double, before or behind the point */

/* (-1)^negative * whole.part, in digits 0..9. */
struct decimal {
    bool negative;
    uint16_t whole_count, part_count; /* 1..; 0.. without zeros at the end */
    uint8_t whole[DECIMAL_MAX_DIGITS], part[DECIMAL_MAX_DIGITS];
};

void decimal_from_i64(int64_t number, struct decimal *decimal);
/* The shortest one that reads as this double, which is finite. */
void decimal_from_double(double number, struct decimal *decimal);
int decimal_compare(const struct decimal *a, const struct decimal *b);

struct number_bound {
    bool present, exclusive;
    struct decimal value;
};

struct number_range {
    struct number_bound low, high;
    uint32_t modulus;     /* of whole numbers, 1..NUMBER_MAX_MODULUS */
    uint32_t part_digits; /* 0: whole numbers; else modulus is 1 */
};

/* Numbers of the range, by way of new states; maybe none. A bound has no more than NUMBER_DIGITS
 * digits behind the point. */
void number_range_put(struct grammar *grammar, const struct number_range *range, uint32_t from,
                      uint32_t to);
/* Any number, with an exponent of two digits or none. */
void number_put_any(struct grammar *grammar, uint32_t from, uint32_t to);
/* Whether the number is in the range; `whole`: of whole numbers only. */
bool number_range_has(const struct number_range *range, const struct decimal *number);

#endif
