#include "common/language/constrain/charset.h"

#include "common/language/constrain/grow.h"

#include <string.h>

#define SURROGATE_FIRST 0xd800u
#define SURROGATE_LAST  0xdfffu

void charset_init(struct charset *set)
{
    *set = (struct charset){0};
}

void charset_deinit(struct charset *set)
{
    free(set->ranges);
    *set = (struct charset){0};
}

void charset_add(struct charset *set, uint32_t low, uint32_t high)
{
    ASSERT(low <= high && high <= CHARSET_LAST);
    set->ranges = grow(set->ranges, set->count, &set->capacity, sizeof *set->ranges);
    set->ranges[set->count++] = (struct char_range){low, high};
}

void charset_add_all(struct charset *set, const struct charset *other)
{
    for (size_t i = 0; i < other->count; i++)
        charset_add(set, other->ranges[i].low, other->ranges[i].high);
}

static int by_low(const void *a, const void *b)
{
    uint32_t left = ((const struct char_range *)a)->low,
             right = ((const struct char_range *)b)->low;
    return (left > right) - (left < right);
}

static void merge_ranges(struct charset *set)
{
    size_t kept = 0;
    for (size_t i = 0; i < set->count; i++) {
        struct char_range range = set->ranges[i];
        if (kept && range.low <= set->ranges[kept - 1].high + 1) {
            if (range.high > set->ranges[kept - 1].high)
                set->ranges[kept - 1].high = range.high;
        } else {
            set->ranges[kept++] = range;
        }
    }
    set->count = kept;
}

/* Surrogates aren't characters: what overlaps them is cut, maybe in two. */
static void drop_surrogates(struct charset *set)
{
    size_t count = set->count;
    struct char_range *old = set->ranges;
    set->ranges = NULL;
    set->count = set->capacity = 0;
    for (size_t i = 0; i < count; i++) {
        if (old[i].low < SURROGATE_FIRST)
            charset_add(set, old[i].low,
                        old[i].high < SURROGATE_FIRST ? old[i].high : SURROGATE_FIRST - 1);
        if (old[i].high > SURROGATE_LAST)
            charset_add(set, old[i].low > SURROGATE_LAST ? old[i].low : SURROGATE_LAST + 1,
                        old[i].high);
    }
    free(old);
}

static void sort_ranges(struct charset *set)
{
    if (set->count)
        qsort(set->ranges, set->count, sizeof *set->ranges, by_low);
}

void charset_normalise(struct charset *set)
{
    sort_ranges(set);
    merge_ranges(set);
    drop_surrogates(set);
}

void charset_complement(struct charset *set)
{
    struct charset rest;
    charset_init(&rest);
    uint32_t next = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].low > next)
            charset_add(&rest, next, set->ranges[i].low - 1);
        next = set->ranges[i].high + 1;
    }
    if (next <= CHARSET_LAST)
        charset_add(&rest, next, CHARSET_LAST);
    charset_normalise(&rest);
    charset_deinit(set);
    *set = rest;
}

bool charset_has(const struct charset *set, uint32_t code)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->ranges[middle].high < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && set->ranges[low].low <= code;
}

bool charset_equal(const struct charset *a, const struct charset *b)
{
    return a->count == b->count &&
           (!a->count || !memcmp(a->ranges, b->ranges, a->count * sizeof *a->ranges));
}
