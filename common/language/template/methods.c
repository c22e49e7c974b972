#include "common/language/template/methods.h"

#include "common/language/template/python_text.h"

#include <string.h>

struct method {
    enum value_kind kind; /* values of this kind have it */
    const char *name;
    struct value (*apply)(struct run *run, struct value self, const struct macro_call *call);
    bool changes; /* it changes its object */
};

/* --- dict --- */

static struct value dict_get(struct run *run, struct value self, const struct macro_call *call)
{
    static const char *const names[] = {"key", "default"};
    struct value values[2];
    if (!call_bind(run, call, "get", names, values, 2))
        return value_none();
    if (values[0].kind == VALUE_ABSENT)
        return run_fail(run, "get expected at least 1 argument, got 0");
    if (values[0].kind == VALUE_LIST || values[0].kind == VALUE_DICT)
        return run_fail(run, "unhashable type: '%s'", value_type_name(values[0]));
    const struct value *found = run_dict_find(run, self.dict, values[0]);
    if (found)
        return *found;
    return values[1].kind == VALUE_ABSENT ? value_none() : values[1];
}

static struct value pair(struct run *run, const struct value_entry *entry)
{
    struct value_sequence *made = run_sequence(run, "tuple", 2);
    if (!made)
        return value_none();
    made->items[0] = entry->key;
    made->items[1] = entry->value;
    made->count = 2;
    return value_sequence(VALUE_TUPLE, made);
}

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

static struct value dict_view(struct run *run, struct value self, const struct macro_call *call,
                              enum view view)
{
    static const char *const types[] = {"dict_keys", "dict_values", "dict_items"};
    if (!call_bind(run, call, types[view], NULL, NULL, 0))
        return value_none();
    struct value_sequence *made = run_sequence(run, types[view], self.dict->count);
    for (size_t i = 0; made && i < self.dict->count && !run_failed(run); i++) {
        const struct value_entry *entry = &self.dict->entries[i];
        made->items[made->count++] = view == VIEW_KEYS     ? entry->key
                                     : view == VIEW_VALUES ? entry->value
                                                           : pair(run, entry);
    }
    return made ? value_sequence(VALUE_VIEW, made) : value_none();
}

static struct value dict_keys(struct run *run, struct value self, const struct macro_call *call)
{
    return dict_view(run, self, call, VIEW_KEYS);
}

static struct value dict_values(struct run *run, struct value self, const struct macro_call *call)
{
    return dict_view(run, self, call, VIEW_VALUES);
}

static struct value dict_items(struct run *run, struct value self, const struct macro_call *call)
{
    return dict_view(run, self, call, VIEW_ITEMS);
}

/* Values never change, so a copy is the value itself. */
static struct value copy(struct run *run, struct value self, const struct macro_call *call)
{
    return call_bind(run, call, "copy", NULL, NULL, 0) ? self : value_none();
}

/* --- list and tuple --- */

static struct value list_count(struct run *run, struct value self, const struct macro_call *call)
{
    static const char *const names[] = {"value"};
    struct value wanted;
    int64_t count = 0;
    if (!call_bind(run, call, "count", names, &wanted, 1))
        return value_none();
    for (size_t i = 0; i < self.sequence->count && !run_failed(run); i++)
        count += run_equal(run, self.sequence->items[i], wanted);
    return value_int(count);
}

static struct value list_index(struct run *run, struct value self, const struct macro_call *call)
{
    static const char *const names[] = {"value"};
    struct value wanted;
    if (!call_bind(run, call, "index", names, &wanted, 1))
        return value_none();
    for (size_t i = 0; i < self.sequence->count && !run_failed(run); i++)
        if (run_equal(run, self.sequence->items[i], wanted))
            return value_int((int64_t)i);
    if (self.kind == VALUE_TUPLE)
        return run_fail(run, "tuple.index(x): x not in tuple");
    struct text_builder builder;
    run_builder(run, &builder);
    python_repr(run, &builder, wanted);
    text_builder_literal(&builder, " is not in list");
    return run_fail_with(run, run_finish(run, &builder));
}

/* --- loop --- */

static struct value loop_cycle(struct run *run, struct value self, const struct macro_call *call)
{
    if (call->count == 0)
        return run_fail(run, "no items for cycling given");
    return call->arguments[self.loop->index % call->count];
}

static struct value loop_changed(struct run *run, struct value self, const struct macro_call *call)
{
    struct value_loop *loop = (struct value_loop *)self.loop; /* the loop that remembers */
    struct value_sequence *now = run_sequence(run, "tuple", 0);
    if (!now)
        return value_none();
    now->items = call->arguments;
    now->count = call->count;
    struct value value = value_sequence(VALUE_TUPLE, now);
    bool changed = loop->changed.kind == VALUE_ABSENT || !run_equal(run, loop->changed, value);
    loop->changed = value;
    return value_bool(changed);
}

/* --- the table --- */

static const struct method methods[] = {
    {VALUE_STRING, "strip", text_method_strip, false},
    {VALUE_STRING, "lstrip", text_method_lstrip, false},
    {VALUE_STRING, "rstrip", text_method_rstrip, false},
    {VALUE_STRING, "split", text_method_split, false},
    {VALUE_STRING, "rsplit", text_method_rsplit, false},
    {VALUE_STRING, "splitlines", text_method_splitlines, false},
    {VALUE_STRING, "partition", text_method_partition, false},
    {VALUE_STRING, "rpartition", text_method_rpartition, false},
    {VALUE_STRING, "replace", text_method_replace, false},
    {VALUE_STRING, "startswith", text_method_startswith, false},
    {VALUE_STRING, "endswith", text_method_endswith, false},
    {VALUE_STRING, "find", text_method_find, false},
    {VALUE_STRING, "rfind", text_method_rfind, false},
    {VALUE_STRING, "index", text_method_index, false},
    {VALUE_STRING, "count", text_method_count, false},
    {VALUE_STRING, "join", text_method_join, false},
    {VALUE_STRING, "upper", text_method_upper, false},
    {VALUE_STRING, "lower", text_method_lower, false},
    {VALUE_STRING, "casefold", text_method_casefold, false},
    {VALUE_STRING, "capitalize", text_method_capitalize, false},
    {VALUE_STRING, "title", text_method_title, false},
    {VALUE_STRING, "swapcase", text_method_swapcase, false},
    {VALUE_STRING, "isdigit", text_method_isdigit, false},
    {VALUE_STRING, "isalpha", text_method_isalpha, false},
    {VALUE_STRING, "isalnum", text_method_isalnum, false},
    {VALUE_STRING, "isspace", text_method_isspace, false},
    {VALUE_STRING, "isupper", text_method_isupper, false},
    {VALUE_STRING, "islower", text_method_islower, false},
    {VALUE_STRING, "removeprefix", text_method_removeprefix, false},
    {VALUE_STRING, "removesuffix", text_method_removesuffix, false},
    {VALUE_STRING, "zfill", text_method_zfill, false},
    {VALUE_STRING, "ljust", text_method_ljust, false},
    {VALUE_STRING, "rjust", text_method_rjust, false},
    {VALUE_STRING, "center", text_method_center, false},
    {VALUE_DICT, "get", dict_get, false},
    {VALUE_DICT, "items", dict_items, false},
    {VALUE_DICT, "keys", dict_keys, false},
    {VALUE_DICT, "values", dict_values, false},
    {VALUE_DICT, "copy", copy, false},
    {VALUE_DICT, "clear", NULL, true},
    {VALUE_DICT, "pop", NULL, true},
    {VALUE_DICT, "popitem", NULL, true},
    {VALUE_DICT, "setdefault", NULL, true},
    {VALUE_DICT, "update", NULL, true},
    {VALUE_LIST, "copy", copy, false},
    {VALUE_LIST, "count", list_count, false},
    {VALUE_LIST, "index", list_index, false},
    {VALUE_LIST, "append", NULL, true},
    {VALUE_LIST, "clear", NULL, true},
    {VALUE_LIST, "extend", NULL, true},
    {VALUE_LIST, "insert", NULL, true},
    {VALUE_LIST, "pop", NULL, true},
    {VALUE_LIST, "remove", NULL, true},
    {VALUE_LIST, "reverse", NULL, true},
    {VALUE_LIST, "sort", NULL, true},
    {VALUE_TUPLE, "count", list_count, false},
    {VALUE_TUPLE, "index", list_index, false},
    {VALUE_LOOP, "cycle", loop_cycle, false},
    {VALUE_LOOP, "changed", loop_changed, false},
    /* Methods of Python that are unsupported: compiling refuses a template that calls one. */
    {VALUE_STRING, "encode", NULL, false},
    {VALUE_STRING, "expandtabs", NULL, false},
    {VALUE_STRING, "format", NULL, false},
    {VALUE_STRING, "format_map", NULL, false},
    {VALUE_STRING, "isascii", NULL, false},
    {VALUE_STRING, "isdecimal", NULL, false},
    {VALUE_STRING, "isidentifier", NULL, false},
    {VALUE_STRING, "isnumeric", NULL, false},
    {VALUE_STRING, "isprintable", NULL, false},
    {VALUE_STRING, "istitle", NULL, false},
    {VALUE_STRING, "maketrans", NULL, false},
    {VALUE_STRING, "rindex", NULL, false},
    {VALUE_STRING, "translate", NULL, false},
    {VALUE_DICT, "fromkeys", NULL, false},
};
#define METHODS (sizeof methods / sizeof *methods)

const struct method *method_find(enum value_kind kind, const char *name)
{
    for (size_t i = 0; i < METHODS; i++)
        if (methods[i].kind == kind && !strcmp(methods[i].name, name))
            return &methods[i];
    return NULL;
}

bool method_changes(const struct method *method)
{
    return method->changes;
}

bool method_is_unsupported(const char *name)
{
    for (size_t i = 0; i < METHODS; i++)
        if (!methods[i].apply && !methods[i].changes && !strcmp(methods[i].name, name))
            return true;
    return false;
}

struct value method_apply(struct run *run, const struct value_method *bound,
                          const struct macro_call *call)
{
    if (!bound->method->apply)
        return run_fail(run, "the method '%s' is not supported", bound->method->name);
    return bound->method->apply(run, bound->self, call);
}
