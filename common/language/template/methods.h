/* Methods of Python's str, dict, list and tuple, and of jinja2's loop. */
#ifndef BATON_LANGUAGE_TEMPLATE_METHODS_H
#define BATON_LANGUAGE_TEMPLATE_METHODS_H

#include "common/language/template/run.h"

struct method;

/* Returns NULL when values of this kind have no such attribute. */
const struct method *method_find(enum value_kind kind, const char *name);
/* Returns whether it changes a list or a dict: the sandbox hides such methods. */
bool method_changes(const struct method *method);
/* Returns whether Python has a method of this name that is unsupported for all kinds. */
bool method_is_unsupported(const char *name);

struct value method_apply(struct run *run, const struct value_method *bound,
                          const struct macro_call *call);

enum strip_sides { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };

/* Strips the characters of `set` at its ends. A `set` of NONE or ABSENT means white space. */
struct value text_strip(struct run *run, struct value string, struct value set,
                        enum strip_sides sides);
struct value text_upper(struct run *run, struct value string);
struct value text_lower(struct run *run, struct value string);
struct value text_capitalize(struct run *run, struct value string);
struct value text_title(struct run *run, struct value string);
bool text_is_upper(struct value string);
bool text_is_lower(struct value string);
/* `limit` < 0: replaces all. */
struct value text_replace(struct run *run, struct value string, struct value old,
                          struct value new_text, int64_t limit);
struct value text_lines(struct run *run, struct value string, bool keep_ends);
/* Returns str(separator).join(str(item) of items). With `strict` items must be strings, as for
 * str.join. */
struct value text_join(struct run *run, struct value separator, struct run_items items,
                       bool strict);
/* Pads with `fill` to `width` characters. */
struct value text_pad(struct run *run, struct value string, int64_t width, enum strip_sides sides,
                      char fill);

typedef struct value text_method(struct run *run, struct value self, const struct macro_call *call);

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
