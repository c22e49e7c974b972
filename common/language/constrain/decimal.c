#include "common/base/assert.h"
#include "common/language/constrain/number_range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* digits * 10^exponent, of which `count` digits. */
static void set_digits(struct decimal *decimal, const char *digits, int count, int exponent)
{
    int whole = count + exponent; /* digits before the point */
    while (count && digits[count - 1] == '0')
        count--;
    for (int i = 0; i < whole; i++)
        decimal->whole[decimal->whole_count++] = i < count ? (uint8_t)(digits[i] - '0') : 0;
    for (int i = whole; i < count; i++)
        decimal->part[decimal->part_count++] = i < 0 ? 0 : (uint8_t)(digits[i] - '0');
    if (!decimal->whole_count)
        decimal->whole[decimal->whole_count++] = 0;
}

void decimal_from_i64(int64_t number, struct decimal *decimal)
{
    char digits[24];
    uint64_t magnitude = number < 0 ? -(uint64_t)number : (uint64_t)number;
    *decimal = (struct decimal){.negative = number < 0};
    int count = snprintf(digits, sizeof digits, "%llu", (unsigned long long)magnitude);
    if (!magnitude)
        count = 0;
    set_digits(decimal, digits, count, 0);
}

void decimal_from_double(double number, struct decimal *decimal)
{
    char text[40], digits[24];
    int precision = 0, count = 0;
    do
        snprintf(text, sizeof text, "%.*e", precision, number);
    while (strtod(text, NULL) != number && ++precision < 17);
    *decimal = (struct decimal){.negative = number < 0};
    for (const char *c = text; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9')
            digits[count++] = *c;
    const char *exponent = strchr(text, 'e');
    ASSERT(exponent);
    if (number == 0)
        count = 0;
    int power = count ? atoi(exponent + 1) - (count - 1) : 0;
    set_digits(decimal, digits, count, power);
}

static uint8_t part_digit(const struct decimal *decimal, size_t i)
{
    return i < decimal->part_count ? decimal->part[i] : 0;
}

static int compare_magnitudes(const struct decimal *a, const struct decimal *b)
{
    if (a->whole_count != b->whole_count)
        return a->whole_count < b->whole_count ? -1 : 1;
    int order = memcmp(a->whole, b->whole, a->whole_count);
    for (size_t i = 0; !order && (i < a->part_count || i < b->part_count); i++)
        order = part_digit(a, i) - part_digit(b, i);
    return order;
}

int decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    int order = compare_magnitudes(a, b);
    return a->negative ? -order : order;
}

static bool is_multiple(const struct decimal *number, uint32_t modulus)
{
    uint32_t rest = 0;
    for (size_t i = 0; i < number->whole_count; i++)
        rest = (rest * 10 + number->whole[i]) % modulus;
    return rest == 0;
}

bool number_range_has(const struct number_range *range, const struct decimal *number)
{
    if (!range->part_digits && (number->part_count || !is_multiple(number, range->modulus)))
        return false;
    int low = range->low.present ? decimal_compare(number, &range->low.value) : 1;
    int high = range->high.present ? decimal_compare(number, &range->high.value) : -1;
    return (low > 0 || (low == 0 && !range->low.exclusive)) &&
           (high < 0 || (high == 0 && !range->high.exclusive));
}
