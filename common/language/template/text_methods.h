/* Python's str methods, for the table in methods.c and for filters of the same meaning. */
#ifndef BATON_LANGUAGE_TEMPLATE_TEXT_METHODS_H
#define BATON_LANGUAGE_TEMPLATE_TEXT_METHODS_H

#include "common/language/template/run.h"

enum strip_sides { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };

/* Without the characters of `set` (NONE or ABSENT: white space) at its ends. */
struct value text_strip(struct run *run, struct value string, struct value set,
                        enum strip_sides sides);
struct value text_upper(struct run *run, struct value string);
struct value text_lower(struct run *run, struct value string);
struct value text_capitalize(struct run *run, struct value string);
struct value text_title(struct run *run, struct value string);
bool text_is_upper(struct value string);
bool text_is_lower(struct value string);
/* `limit` < 0: all of them. */
struct value text_replace(struct run *run, struct value string, struct value old,
                          struct value new_text, int64_t limit);
struct value text_lines(struct run *run, struct value string, bool keep_ends);
/* str(separator).join(str(item) of items). With `strict` items must be strings, as str.join has
 * it. */
struct value text_join(struct run *run, struct value separator, struct run_items items,
                       bool strict);
/* Spaces (or another byte) around it to `width` characters. */
struct value text_pad(struct run *run, struct value string, int64_t width, enum strip_sides sides,
                      char fill);

typedef struct value text_method(struct run *run, struct value self, const struct call *call);

text_method text_method_strip, text_method_lstrip, text_method_rstrip, text_method_split,
    text_method_rsplit, text_method_splitlines, text_method_replace, text_method_startswith,
    text_method_endswith, text_method_find, text_method_rfind, text_method_index, text_method_count,
    text_method_join, text_method_upper, text_method_lower, text_method_capitalize,
    text_method_title, text_method_isdigit, text_method_isalpha, text_method_isalnum,
    text_method_isspace, text_method_isupper, text_method_islower, text_method_removeprefix,
    text_method_removesuffix, text_method_partition, text_method_rpartition, text_method_zfill,
    text_method_ljust, text_method_rjust, text_method_center, text_method_casefold,
    text_method_swapcase;

#endif
