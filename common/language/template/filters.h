/* The filters of Jinja, which stand behind "|", and its tests, which stand behind "is". */
#ifndef BATON_LANGUAGE_TEMPLATE_FILTERS_H
#define BATON_LANGUAGE_TEMPLATE_FILTERS_H

#include "common/language/template/run.h"

struct filter;

const struct filter *filter_find(const char *name, size_t length); /* NULL: no such filter */
struct value filter_apply(struct run *run, const struct filter *filter, struct value input,
                          const struct macro_call *call);

typedef struct value filter_function(struct run *run, struct value input,
                                     const struct macro_call *call);

/* filters.c */
filter_function filter_abs, filter_float, filter_int, filter_round, filter_capitalize,
    filter_center, filter_escape, filter_indent, filter_join, filter_lower, filter_replace,
    filter_safe, filter_string, filter_title, filter_tojson, filter_trim, filter_truncate,
    filter_upper, filter_wordcount;
/* filters_sequence.c */
filter_function filter_dictsort, filter_first, filter_items, filter_last, filter_length,
    filter_list, filter_map, filter_max, filter_min, filter_reject, filter_rejectattr,
    filter_reverse, filter_select, filter_selectattr, filter_sort, filter_sum, filter_unique;

struct predicate;

const struct predicate *predicate_find(const char *name, size_t length); /* NULL: no such test */
bool predicate_apply(struct run *run, const struct predicate *predicate, struct value value,
                     const struct macro_call *call);

#endif
