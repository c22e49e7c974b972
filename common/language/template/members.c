/* Attributes, items and slices. As in jinja2, an attribute of Python's (a method) goes before an
 * item of a dict. */
#include "common/base/utf8.h"
#include "common/language/template/methods.h"
#include "common/language/template/python_text.h"
#include "common/language/template/run.h"

#include <string.h>

static struct value loop_neighbour(struct run *run, const struct value_loop *loop, size_t index,
                                   const char *missing)
{
    return index < loop->count ? loop->items[index] : run_undefined_saying(run, missing);
}

static struct value loop_attribute(struct run *run, struct value object, const char *name)
{
    const struct value_loop *loop = object.loop;
    int64_t index = (int64_t)loop->index, count = (int64_t)loop->count;
    if (!strcmp(name, "previtem"))
        return loop_neighbour(run, loop, loop->index - 1, "there is no previous item");
    if (!strcmp(name, "nextitem"))
        return loop_neighbour(run, loop, loop->index + 1, "there is no next item");
    const struct {
        const char *name;
        struct value value;
    } attributes[] = {
        {"index0", value_int(index)},
        {"index", value_int(index + 1)},
        {"first", value_bool(index == 0)},
        {"last", value_bool(index + 1 == count)},
        {"length", value_int(count)},
        {"revindex", value_int(count - index)},
        {"revindex0", value_int(count - index - 1)},
        {"depth", value_int(1)},
        {"depth0", value_int(0)},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (!strcmp(name, attributes[i].name))
            return attributes[i].value;
    return (struct value){.kind = VALUE_ABSENT};
}

/* Returns the result of Python's getattr, or VALUE_ABSENT. */
static struct value own_attribute(struct run *run, struct value object, const char *name)
{
    if (!strncmp(name, "__", 2))
        return run_unsafe(run, object, name);
    if (object.kind == VALUE_NAMESPACE) {
        const struct value *found = run_dict_find(run, object.dict, value_literal(name));
        return found ? *found : (struct value){.kind = VALUE_ABSENT};
    }
    if (object.kind == VALUE_LOOP) {
        struct value found = loop_attribute(run, object, name);
        if (found.kind != VALUE_ABSENT)
            return found;
    }
    if (object.kind == VALUE_MACRO && !strcmp(name, "name"))
        return value_literal(object.macro->macro->name);
    const struct method *method = method_find(object.kind, name);
    if (!method)
        return (struct value){.kind = VALUE_ABSENT};
    if (method_changes(method))
        return run_unsafe(run, object, name);
    struct value_method *bound = run_take(run, sizeof *bound);
    if (!bound)
        return value_none();
    *bound = (struct value_method){.self = object, .method = method};
    return (struct value){.kind = VALUE_METHOD, .method = bound};
}

struct value get_attribute(struct run *run, struct value object, const char *name)
{
    if (object.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, object);
    struct value found = own_attribute(run, object, name);
    if (found.kind != VALUE_ABSENT || run_failed(run))
        return found;
    if (object.kind == VALUE_DICT) {
        const struct value *item = run_dict_find(run, object.dict, value_literal(name));
        if (item)
            return *item;
    }
    return run_no_member(run, object, value_literal(name));
}

/* Returns a string value as a C string, for names. NULL: it has a NUL inside. */
static const char *name_of(struct run *run, struct value name)
{
    if (memchr(name.text.bytes, 0, name.text.length))
        return NULL;
    char *copy = run_take(run, name.text.length + 1);
    if (copy)
        memcpy(copy, name.text.bytes, name.text.length);
    return copy;
}

static bool index_in(struct value key, size_t count, size_t *index)
{
    if (key.kind != VALUE_INT && key.kind != VALUE_BOOL)
        return false;
    int64_t at = key.kind == VALUE_BOOL ? key.boolean : key.integer;
    if (at < 0)
        at += (int64_t)count;
    *index = (size_t)at;
    return at >= 0 && at < (int64_t)count;
}

struct value get_item(struct run *run, struct value object, struct value key)
{
    size_t index;
    if (object.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, object);
    if (object.kind == VALUE_DICT) {
        const struct value *found = run_dict_find(run, object.dict, key);
        if (found)
            return *found;
    } else if (object.kind == VALUE_LIST || object.kind == VALUE_TUPLE ||
               object.kind == VALUE_RANGE) {
        if (index_in(key, object.sequence->count, &index))
            return object.sequence->items[index];
    } else if (object.kind == VALUE_STRING) {
        run_spend(run, object.text.length / 64);
        if (index_in(key, python_length(object), &index)) {
            size_t at = python_offset(object, index);
            size_t length = utf8_next(object.text.bytes + at, object.text.length - at).length;
            return value_part(object, at, at + length);
        }
    }
    if (key.kind == VALUE_STRING && !run_failed(run)) {
        const char *name = name_of(run, key);
        struct value found =
            name ? own_attribute(run, object, name) : (struct value){.kind = VALUE_ABSENT};
        if (found.kind != VALUE_ABSENT)
            return found;
    }
    return run_no_member(run, object, key);
}

/* --- slices --- */

struct range {
    int64_t start, stop, step;
    size_t count;
};

static bool bound(struct run *run, struct value value, int64_t *out)
{
    if (value.kind == VALUE_UNDEFINED)
        run_fail_undefined(run, value);
    else if (value.kind != VALUE_INT && value.kind != VALUE_BOOL)
        run_fail(run, "slice indices must be integers or None or have an __index__ method");
    else
        *out = value.kind == VALUE_BOOL ? value.boolean : value.integer;
    return !run_failed(run);
}

static int64_t clamp(int64_t at, int64_t low, int64_t high)
{
    return at < low ? low : at > high ? high : at;
}

/* Returns Python's slice.indices(count). */
static struct range range_of(struct run *run, const struct value bounds[3], size_t length)
{
    struct range range = {.step = 1};
    int64_t count = (int64_t)length;
    if (bounds[2].kind != VALUE_NONE && !bound(run, bounds[2], &range.step))
        return range;
    if (range.step == 0) {
        run_fail(run, "slice step cannot be zero");
        return range;
    }
    range.step = clamp(range.step, -INT32_MAX, INT32_MAX); /* no sequence is longer */
    bool back = range.step < 0;
    int64_t low = back ? -1 : 0, high = back ? count - 1 : count;
    range.start = back ? high : low;
    range.stop = back ? low : high;
    int64_t *const ends[2] = {&range.start, &range.stop};
    for (int i = 0; i < 2; i++) {
        if (bounds[i].kind == VALUE_NONE)
            continue;
        if (!bound(run, bounds[i], ends[i]))
            return range;
        *ends[i] = clamp(*ends[i] < 0 ? *ends[i] + count : *ends[i], low, high);
    }
    int64_t span = back ? range.start - range.stop : range.stop - range.start;
    int64_t stride = back ? -range.step : range.step;
    range.count = span > 0 ? (size_t)((span + stride - 1) / stride) : 0;
    return range;
}

static struct value slice_string(struct run *run, struct value string, const struct value bounds[3])
{
    size_t length = python_length(string);
    struct range range = range_of(run, bounds, length);
    struct text_builder builder;
    run_spend(run, string.text.length / 64);
    if (run_failed(run))
        return value_none();
    if (range.step == 1 || range.count == 0)
        return value_part(string, python_offset(string, (size_t)range.start),
                          python_offset(string, (size_t)range.start + range.count));
    run_builder(run, &builder);
    struct run_items characters = run_iterate(run, string);
    for (size_t i = 0; i < range.count && !run_failed(run); i++)
        text_builder_string(&builder, characters.items[range.start + (int64_t)i * range.step]);
    return run_finish(run, &builder);
}

static struct value slice_sequence(struct run *run, struct value object,
                                   const struct value bounds[3])
{
    struct range range = range_of(run, bounds, object.sequence->count);
    bool shares = range.step == 1; /* items never change */
    struct value_sequence *made =
        run_sequence(run, object.sequence->type, shares ? 0 : range.count);
    if (!made)
        return value_none();
    /* A slice of a range is a range. Unsigned: its end may lie beyond 64 bits. */
    uint64_t start = (uint64_t)object.sequence->range[0];
    uint64_t step = (uint64_t)object.sequence->range[2];
    made->range[0] = (int64_t)(start + (uint64_t)range.start * step);
    made->range[1] = (int64_t)(start + (uint64_t)range.stop * step);
    made->range[2] = (int64_t)((uint64_t)range.step * step);
    if (shares) {
        made->count = range.count;
        if (range.count)
            made->items = object.sequence->items + range.start;
        return value_sequence(object.kind, made);
    }
    for (size_t i = 0; i < range.count; i++)
        made->items[made->count++] = object.sequence->items[range.start + (int64_t)i * range.step];
    return value_sequence(object.kind, made);
}

struct value get_slice(struct run *run, struct value object, const struct value bounds[3])
{
    switch (object.kind) {
    case VALUE_STRING: return slice_string(run, object, bounds);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE: return slice_sequence(run, object, bounds);
    case VALUE_UNDEFINED: return run_fail_undefined(run, object);
    case VALUE_DICT: return run_fail(run, "unhashable type: 'slice'");
    default: return run_fail(run, "'%s' object is not subscriptable", value_type_name(object));
    }
}

/* --- paths --- */

/* Returns an index for a part of a path with digits only. */
static struct value path_part(struct value part)
{
    int64_t index = 0;
    if (part.text.length == 0 || part.text.length > 9)
        return part;
    for (size_t i = 0; i < part.text.length; i++) {
        char c = part.text.bytes[i];
        if (c < '0' || c > '9')
            return part;
        index = index * 10 + (c - '0');
    }
    return value_int(index);
}

struct value get_path(struct run *run, struct value object, struct value path)
{
    if (path.kind == VALUE_NONE || path.kind == VALUE_ABSENT)
        return object;
    if (path.kind != VALUE_STRING)
        return get_item(run, object, path);
    for (size_t from = 0; from <= path.text.length && !run_failed(run);) {
        const char *dot = memchr(path.text.bytes + from, '.', path.text.length - from);
        size_t to = dot ? (size_t)(dot - path.text.bytes) : path.text.length;
        object = get_item(run, object, path_part(value_part(path, from, to)));
        from = to + 1;
    }
    return object;
}
