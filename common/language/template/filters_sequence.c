/* Filters of iterables. */
#include "common/language/template/filters.h"

#include "common/language/template/methods.h"
#include "common/language/template/python_text.h"
#include "common/language/template/run.h"

#include <string.h>

static bool nothing(struct run *run, const struct macro_call *call, const char *name)
{
    return call_bind(run, call, name, NULL, NULL, 0);
}

/* Returns a list or iterator with room for as many items as the input has. */
static struct value_sequence *same_room(struct run *run, struct run_items items, const char *type)
{
    return run_failed(run) ? NULL : run_sequence(run, type, items.count);
}

struct value filter_length(struct run *run, struct value input, const struct macro_call *call)
{
    if (!nothing(run, call, "length"))
        return value_none();
    switch (input.kind) {
    case VALUE_UNDEFINED: return value_int(0);
    case VALUE_STRING:
        run_spend(run, input.text.length / 64);
        return value_int((int64_t)python_length(input));
    case VALUE_DICT: return value_int((int64_t)input.dict->count);
    case VALUE_LOOP: return value_int((int64_t)input.loop->count);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: return value_int((int64_t)input.sequence->count);
    default: return run_fail(run, "object of type '%s' has no len()", value_type_name(input));
    }
}

struct value filter_list(struct run *run, struct value input, const struct macro_call *call)
{
    if (!nothing(run, call, "list"))
        return value_none();
    struct run_items items = run_iterate(run, input);
    struct value_sequence *made = run_failed(run) ? NULL : run_sequence(run, "list", 0);
    if (!made)
        return value_none();
    made->items = (struct value *)items.items; /* shared, because they never change */
    made->count = items.count;
    return value_sequence(VALUE_LIST, made);
}

struct value filter_first(struct run *run, struct value input, const struct macro_call *call)
{
    if (!nothing(run, call, "first"))
        return value_none();
    struct run_items items = run_iterate(run, input);
    return items.count ? items.items[0]
                       : run_undefined_saying(run, "No first item, sequence was empty.");
}

struct value filter_last(struct run *run, struct value input, const struct macro_call *call)
{
    if (!nothing(run, call, "last"))
        return value_none();
    if (input.kind == VALUE_ITERATOR)
        return run_fail(run, "'%s' object is not reversible", value_type_name(input));
    struct run_items items = run_iterate(run, input);
    return items.count ? items.items[items.count - 1]
                       : run_undefined_saying(run, "No last item, sequence was empty.");
}

struct value filter_reverse(struct run *run, struct value input, const struct macro_call *call)
{
    struct value bounds[3] = {value_none(), value_none(), value_int(-1)};
    if (!nothing(run, call, "reverse"))
        return value_none();
    if (input.kind == VALUE_STRING)
        return get_slice(run, input, bounds);
    bool list = input.kind == VALUE_ITERATOR; /* an iterator becomes a list first */
    struct run_items items = run_iterate(run, input);
    struct value_sequence *made = same_room(run, items, list ? "list" : "list_reverseiterator");
    if (!made)
        return value_none();
    while (made->count < items.count) {
        made->items[made->count] = items.items[items.count - 1 - made->count];
        made->count++;
    }
    return value_sequence(list ? VALUE_LIST : VALUE_ITERATOR, made);
}

struct value filter_items(struct run *run, struct value input, const struct macro_call *call)
{
    if (!nothing(run, call, "items"))
        return value_none();
    if (input.kind != VALUE_DICT && input.kind != VALUE_UNDEFINED)
        return run_fail(run, "Can only get item pairs from a mapping.");
    size_t count = input.kind == VALUE_DICT ? input.dict->count : 0;
    struct value_sequence *made = run_sequence(run, "generator", count);
    for (size_t i = 0; made && i < count; i++) {
        struct value_sequence *pair = run_sequence(run, "tuple", 2);
        if (!pair)
            return value_none();
        pair->items[0] = input.dict->entries[i].key;
        pair->items[1] = input.dict->entries[i].value;
        pair->count = 2;
        made->items[made->count++] = value_sequence(VALUE_TUPLE, pair);
    }
    return made ? value_sequence(VALUE_ITERATOR, made) : value_none();
}

/* --- order --- */

static struct value sort_key(struct run *run, struct value value, bool case_sensitive)
{
    return value.kind == VALUE_STRING && !case_sensitive ? text_lower(run, value) : value;
}

/* Returns for "a,b.c" a tuple of the values of all paths. */
static struct value sort_keys(struct run *run, struct value item, struct value paths,
                              bool case_sensitive)
{
    if (paths.kind != VALUE_STRING || !memchr(paths.text.bytes, ',', paths.text.length))
        return sort_key(run, get_path(run, item, paths), case_sensitive);
    struct macro_call call = {.arguments = (struct value[]){value_literal(",")}, .count = 1};
    struct value parts = text_method_split(run, paths, &call);
    if (run_failed(run))
        return value_none();
    struct value_sequence *keys = run_sequence(run, "tuple", parts.sequence->count);
    for (size_t i = 0; keys && i < parts.sequence->count; i++)
        keys->items[keys->count++] =
            sort_key(run, get_path(run, item, parts.sequence->items[i]), case_sensitive);
    return keys ? value_sequence(VALUE_TUPLE, keys) : value_none();
}

struct value filter_sort(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute"};
    struct value values[3];
    if (!call_bind(run, call, "sort", names, values, 3))
        return value_none();
    struct run_items items = run_iterate(run, input);
    struct value_sequence *made = same_room(run, items, "list");
    struct sort_item *sorted = run_take(run, (items.count + 1) * sizeof *sorted);
    if (!made || !sorted)
        return value_none();
    for (size_t i = 0; i < items.count && !run_failed(run); i++)
        sorted[i] = (struct sort_item){
            sort_keys(run, items.items[i], values[2], value_truth(values[1])), items.items[i]};
    sort_items(run, sorted, items.count, value_truth(values[0]));
    for (; made->count < items.count; made->count++)
        made->items[made->count] = sorted[made->count].value;
    return value_sequence(VALUE_LIST, made);
}

struct value filter_dictsort(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"case_sensitive", "by", "reverse"};
    struct value values[3];
    if (!call_bind(run, call, "dictsort", names, values, 3))
        return value_none();
    bool by_value = value_is_text(values[1], "value");
    if (values[1].kind != VALUE_ABSENT && !by_value && !value_is_text(values[1], "key"))
        return run_fail(run, "You can only sort by either \"key\" or \"value\"");
    struct value pairs =
        filter_items(run, input, &(struct macro_call){0}); /* fails if it isn't a mapping */
    if (run_failed(run))
        return value_none();
    if (input.kind != VALUE_DICT)
        return run_fail_undefined(run, input);
    size_t count = pairs.sequence->count;
    struct sort_item *sorted = run_take(run, (count + 1) * sizeof *sorted);
    if (!sorted)
        return value_none();
    for (size_t i = 0; i < count && !run_failed(run); i++) {
        struct value pair = pairs.sequence->items[i];
        sorted[i].key = sort_key(run, pair.sequence->items[by_value], value_truth(values[0]));
        sorted[i].value = pair;
    }
    sort_items(run, sorted, count, value_truth(values[2]));
    for (size_t i = 0; i < count; i++)
        pairs.sequence->items[i] = sorted[i].value;
    pairs.sequence->type = "list";
    return value_sequence(VALUE_LIST, pairs.sequence);
}

static struct value extreme(struct run *run, struct value input, const struct macro_call *call,
                            enum node_operator sign)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    struct value values[2], best_key = value_none();
    size_t best = 0;
    if (!call_bind(run, call, sign == OPERATOR_LESS ? "min" : "max", names, values, 2))
        return value_none();
    struct run_items items = run_iterate(run, input);
    for (size_t i = 0; i < items.count && !run_failed(run); i++) {
        struct value key =
            sort_key(run, get_path(run, items.items[i], values[1]), value_truth(values[0]));
        if (i && !compare(run, sign, key, best_key))
            continue;
        best = i;
        best_key = key;
    }
    return items.count ? items.items[best]
                       : run_undefined_saying(run, "No aggregated item, sequence was empty.");
}

struct value filter_min(struct run *run, struct value input, const struct macro_call *call)
{
    return extreme(run, input, call, OPERATOR_LESS);
}

struct value filter_max(struct run *run, struct value input, const struct macro_call *call)
{
    return extreme(run, input, call, OPERATOR_GREATER);
}

struct value filter_unique(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    struct value values[2];
    if (!call_bind(run, call, "unique", names, values, 2))
        return value_none();
    struct run_items items = run_iterate(run, input);
    struct value_sequence *made = same_room(run, items, "generator");
    struct value_dict *seen = run_dict(run, 8);
    for (size_t i = 0; made && seen && i < items.count && !run_failed(run); i++) {
        struct value key =
            sort_key(run, get_path(run, items.items[i], values[1]), value_truth(values[0]));
        if (run_dict_find(run, seen, key))
            continue;
        run_dict_put(run, seen, key, value_none());
        made->items[made->count++] = items.items[i];
    }
    return made ? value_sequence(VALUE_ITERATOR, made) : value_none();
}

struct value filter_sum(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"attribute", "start"};
    struct value values[2];
    if (!call_bind(run, call, "sum", names, values, 2))
        return value_none();
    struct value sum = values[1].kind == VALUE_ABSENT ? value_int(0) : values[1];
    struct run_items items = run_iterate(run, input);
    for (size_t i = 0; i < items.count && !run_failed(run); i++)
        sum = add(run, sum, get_path(run, items.items[i], values[0]));
    return sum;
}

/* --- map and select --- */

/* Returns the arguments behind the first `count`. */
static struct macro_call rest_of(const struct macro_call *call, size_t count)
{
    struct macro_call rest = *call;
    if (count)
        rest.arguments += count;
    rest.count -= count;
    return rest;
}

static struct value map_attribute(struct run *run, struct run_items items,
                                  const struct macro_call *call)
{
    static const char *const names[] = {"attribute", "default"};
    struct value values[2];
    struct value_sequence *made = same_room(run, items, "generator");
    if (!made || !call_bind(run, call, "map", names, values, 2))
        return value_none();
    for (size_t i = 0; i < items.count && !run_failed(run); i++) {
        struct value item = get_path(run, items.items[i], values[0]);
        bool missing = item.kind == VALUE_UNDEFINED && values[1].kind != VALUE_ABSENT &&
                       values[1].kind != VALUE_NONE;
        made->items[made->count++] = missing ? values[1] : item;
    }
    return value_sequence(VALUE_ITERATOR, made);
}

struct value filter_map(struct run *run, struct value input, const struct macro_call *call)
{
    struct run_items items = {0};
    if (value_truth(input))
        items = run_iterate(run, input);
    if (call->count == 0 && call->keyword_count)
        return map_attribute(run, items, call);
    if (call->count == 0 || call->arguments[0].kind != VALUE_STRING)
        return run_fail(run, "map requires a filter argument");
    struct value name = call->arguments[0];
    const struct filter *filter = filter_find(name.text.bytes, name.text.length);
    if (!filter)
        return run_fail(run, "No filter named '%.*s'.",
                        (int)(name.text.length < 64 ? name.text.length : 64), name.text.bytes);
    struct macro_call rest = rest_of(call, 1);
    struct value_sequence *made = same_room(run, items, "generator");
    for (size_t i = 0; made && i < items.count && !run_failed(run); i++)
        made->items[made->count++] = filter_apply(run, filter, items.items[i], &rest);
    return made ? value_sequence(VALUE_ITERATOR, made) : value_none();
}

static struct value select_by(struct run *run, struct value input, const struct macro_call *call,
                              bool wanted, bool by_attribute)
{
    struct run_items items = {0};
    const struct predicate *predicate = NULL;
    struct value path = {.kind = VALUE_ABSENT};
    size_t taken = 0;
    if (value_truth(input))
        items = run_iterate(run, input);
    if (by_attribute && call->count == 0)
        return run_fail(run, "Missing parameter for attribute name");
    if (by_attribute)
        path = call->arguments[taken++];
    if (call->count > taken) {
        struct value name = call->arguments[taken++];
        if (name.kind == VALUE_STRING)
            predicate = predicate_find(name.text.bytes, name.text.length);
        if (!predicate)
            return run_fail(run, "No test of that name.");
    }
    struct macro_call rest = rest_of(call, taken);
    struct value_sequence *made = same_room(run, items, "generator");
    for (size_t i = 0; made && i < items.count && !run_failed(run); i++) {
        struct value value = get_path(run, items.items[i], path);
        bool holds = predicate ? predicate_apply(run, predicate, value, &rest) : value_truth(value);
        if (holds == wanted)
            made->items[made->count++] = items.items[i];
    }
    return made ? value_sequence(VALUE_ITERATOR, made) : value_none();
}

struct value filter_select(struct run *run, struct value input, const struct macro_call *call)
{
    return select_by(run, input, call, true, false);
}

struct value filter_reject(struct run *run, struct value input, const struct macro_call *call)
{
    return select_by(run, input, call, false, false);
}

struct value filter_selectattr(struct run *run, struct value input, const struct macro_call *call)
{
    return select_by(run, input, call, true, true);
}

struct value filter_rejectattr(struct run *run, struct value input, const struct macro_call *call)
{
    return select_by(run, input, call, false, true);
}
