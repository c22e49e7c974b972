/* Python's sorted: stable, by <, which may fail. */
#ifndef BATON_LANGUAGE_TEMPLATE_SORTING_H
#define BATON_LANGUAGE_TEMPLATE_SORTING_H

#include "common/language/template/run.h"

struct sort_item {
    struct value key, value;
};

void sort_items(struct run *run, struct sort_item *items, size_t count, bool reverse);
/* The entries of a dict by their keys; NULL after failing. */
const struct value_entry *sort_entries(struct run *run, const struct value_dict *dict);

#endif
