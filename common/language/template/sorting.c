#include "common/language/template/sorting.h"

#include <string.h>

struct sorting {
    struct run *run;
    struct sort_item *items, *spare;
    bool reverse;
};

/* Whether `b` must come before `a`, which stands in front of it. Of equals the first stays first,
 * also in reverse. */
static bool must_swap(struct sorting *sorting, const struct sort_item *a, const struct sort_item *b)
{
    int sign = order(sorting->run, OPERATOR_LESS, b->key, a->key);
    return sorting->reverse ? sign > 0 : sign < 0;
}

/* [from, middle) and [middle, to) are sorted. */
static void merge(struct sorting *sorting, size_t from, size_t middle, size_t to)
{
    size_t left = from, right = middle, out = from;
    memcpy(sorting->spare + from, sorting->items + from, (to - from) * sizeof *sorting->items);
    while (out < to) {
        bool take_right = left == middle || (right < to && must_swap(sorting, &sorting->spare[left],
                                                                     &sorting->spare[right]));
        sorting->items[out++] = sorting->spare[take_right ? right++ : left++];
    }
}

void sort_items(struct run *run, struct sort_item *items, size_t count, bool reverse)
{
    struct sorting sorting = {.run = run, .items = items, .reverse = reverse};
    if (count < 2 || !(sorting.spare = run_take(run, count * sizeof *items)))
        return;
    for (size_t width = 1; width < count && !run_failed(run); width *= 2)
        for (size_t from = 0; from + width < count; from += 2 * width)
            merge(&sorting, from, from + width,
                  from + 2 * width < count ? from + 2 * width : count);
}

const struct value_entry *sort_entries(struct run *run, const struct value_dict *dict)
{
    struct sort_item *items = run_take(run, dict->count * sizeof *items);
    struct value_entry *sorted = run_take(run, dict->count * sizeof *sorted);
    if (!items || !sorted)
        return NULL;
    for (size_t i = 0; i < dict->count; i++)
        items[i] = (struct sort_item){dict->entries[i].key, dict->entries[i].value};
    sort_items(run, items, dict->count, false);
    for (size_t i = 0; i < dict->count; i++)
        sorted[i] = (struct value_entry){items[i].key, items[i].value};
    return sorted;
}
