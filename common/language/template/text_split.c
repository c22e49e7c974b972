/* Methods that split, replace and join strings. */
#include "common/base/utf8.h"
#include "common/language/template/methods.h"
#include "common/language/template/python_text.h"

#include <string.h>

/* A list that grows, because the number of parts is unknown before. */
struct parts {
    struct run *run;
    struct value *items;
    size_t count, capacity;
};

static void add_part(struct parts *parts, struct value part)
{
    if (parts->count == parts->capacity) {
        size_t capacity = 2 * parts->capacity + 8;
        struct value *items = run_take(parts->run, capacity * sizeof *items);
        if (!items)
            return;
        if (parts->count)
            memcpy(items, parts->items, parts->count * sizeof *items);
        parts->items = items;
        parts->capacity = capacity;
    }
    parts->items[parts->count++] = part;
    run_spend(parts->run, 1);
}

static struct value parts_list(struct parts *parts, enum value_kind kind)
{
    struct value_sequence *made =
        run_sequence(parts->run, kind == VALUE_TUPLE ? "tuple" : "list", 0);
    if (!made)
        return value_none();
    made->items = parts->items;
    made->count = parts->count;
    return value_sequence(kind, made);
}

static void reverse(struct parts *parts)
{
    for (size_t i = 0; i < parts->count / 2; i++) {
        struct value other = parts->items[parts->count - 1 - i];
        parts->items[parts->count - 1 - i] = parts->items[i];
        parts->items[i] = other;
    }
}

static size_t find(struct value string, size_t from, struct value part)
{
    const char *found = memmem(string.text.bytes + from, string.text.length - from, part.text.bytes,
                               part.text.length);
    return found ? (size_t)(found - string.text.bytes) : SIZE_MAX;
}

/* Returns the last place of `part` that ends at or before `to`. The caller spends steps for
 * comparing each place with the whole part. */
static size_t find_last(struct value string, size_t to, struct value part)
{
    for (size_t at = to >= part.text.length ? to - part.text.length + 1 : 0; at-- > 0;)
        if (!memcmp(string.text.bytes + at, part.text.bytes, part.text.length))
            return at;
    return SIZE_MAX;
}

/* --- split --- */

static void split_at(struct parts *parts, struct value string, struct value separator,
                     int64_t limit, bool from_right)
{
    size_t from = 0, to = string.text.length;
    for (; limit != 0 && !run_failed(parts->run); limit--) {
        size_t at = from_right ? find_last(string, to, separator) : find(string, from, separator);
        if (at == SIZE_MAX)
            break;
        size_t behind = at + separator.text.length;
        add_part(parts, from_right ? value_part(string, behind, to) : value_part(string, from, at));
        if (from_right)
            to = at;
        else
            from = behind;
    }
    add_part(parts, value_part(string, from, to));
}

static size_t space_length(struct value string, size_t at)
{
    struct utf8_char next = utf8_next(string.text.bytes + at, string.text.length - at);
    return python_is_space(next.code) ? next.length : 0;
}

static void split_words(struct parts *parts, struct value string, int64_t limit)
{
    size_t at = 0, length = string.text.length, space;
    while (!run_failed(parts->run)) {
        while (at < length && (space = space_length(string, at)))
            at += space;
        if (at == length)
            return;
        if (limit-- == 0) {
            add_part(parts, value_part(string, at, length));
            return;
        }
        size_t from = at;
        while (at < length && !space_length(string, at))
            at += utf8_next(string.text.bytes + at, length - at).length;
        add_part(parts, value_part(string, from, at));
    }
}

static void split_words_from_right(struct parts *parts, struct value string, int64_t limit)
{
    while (!run_failed(parts->run)) {
        size_t to = python_stripped_length(string.text.bytes, string.text.length), from = to;
        if (to == 0)
            return;
        string = value_part(string, 0, to);
        if (limit-- == 0) {
            add_part(parts, string);
            return;
        }
        while (from > 0) {
            size_t start = from - 1;
            while (start && ((unsigned char)string.text.bytes[start] & 0xC0) == 0x80)
                start--;
            if (space_length(string, start))
                break;
            from = start;
        }
        add_part(parts, value_part(string, from, to));
        string = value_part(string, 0, from);
    }
}

static struct value split(struct run *run, struct value self, const struct macro_call *call,
                          bool from_right)
{
    static const char *const names[] = {"sep", "maxsplit"};
    struct value values[2];
    struct parts parts = {.run = run};
    if (!call_bind(run, call, from_right ? "rsplit" : "split", names, values, 2))
        return value_none();
    if (values[1].kind != VALUE_ABSENT && values[1].kind != VALUE_INT)
        return run_fail(run, "'%s' object cannot be interpreted as an integer",
                        value_type_name(values[1]));
    int64_t limit = values[1].kind == VALUE_INT ? values[1].integer : -1;
    run_spend(run, self.text.length / 16);
    if (values[0].kind == VALUE_STRING && values[0].text.length == 0)
        return run_fail(run, "empty separator");
    if (values[0].kind == VALUE_STRING && from_right)
        run_spend(run, (self.text.length / 64 + 1) * values[0].text.length);
    if (values[0].kind == VALUE_STRING)
        split_at(&parts, self, values[0], limit, from_right);
    else if (values[0].kind != VALUE_ABSENT && values[0].kind != VALUE_NONE)
        return run_fail(run, "must be str or None, not %s", value_type_name(values[0]));
    else if (from_right)
        split_words_from_right(&parts, self, limit);
    else
        split_words(&parts, self, limit);
    if (from_right)
        reverse(&parts);
    return parts_list(&parts, VALUE_LIST);
}

struct value text_method_split(struct run *run, struct value self, const struct macro_call *call)
{
    return split(run, self, call, false);
}

struct value text_method_rsplit(struct run *run, struct value self, const struct macro_call *call)
{
    return split(run, self, call, true);
}

struct value text_lines(struct run *run, struct value string, bool keep_ends)
{
    struct parts parts = {.run = run};
    size_t length = string.text.length, from = 0;
    run_spend(run, length / 16);
    for (size_t at = 0; at < length && !run_failed(run);) {
        size_t end = python_line_end(string.text.bytes, length, at);
        if (!end) {
            at += utf8_next(string.text.bytes + at, length - at).length;
            continue;
        }
        add_part(&parts, value_part(string, from, keep_ends ? at + end : at));
        from = at += end;
    }
    if (from < length)
        add_part(&parts, value_part(string, from, length));
    return parts_list(&parts, VALUE_LIST);
}

struct value text_method_splitlines(struct run *run, struct value self,
                                    const struct macro_call *call)
{
    static const char *const names[] = {"keepends"};
    struct value keep;
    if (!call_bind(run, call, "splitlines", names, &keep, 1))
        return value_none();
    return text_lines(run, self, value_truth(keep));
}

static struct value partition(struct run *run, struct value self, const struct macro_call *call,
                              bool from_right)
{
    static const char *const names[] = {"sep"};
    struct value separator;
    struct parts parts = {.run = run};
    size_t length = self.text.length;
    if (!call_bind(run, call, "partition", names, &separator, 1))
        return value_none();
    if (separator.kind != VALUE_STRING)
        return run_fail(run, "must be str, not %s", value_type_name(separator));
    if (separator.text.length == 0)
        return run_fail(run, "empty separator");
    run_spend(run, (length / 64 + 1) * (from_right ? separator.text.length : 1));
    if (run_failed(run))
        return value_none();
    size_t at = from_right ? find_last(self, length, separator) : find(self, 0, separator);
    bool found = at != SIZE_MAX;
    size_t empty = from_right ? 0 : length, start = found ? at : empty;
    size_t behind = found ? at + separator.text.length : empty;
    add_part(&parts, value_part(self, 0, start));
    add_part(&parts, value_part(self, start, behind));
    add_part(&parts, value_part(self, behind, length));
    return parts_list(&parts, VALUE_TUPLE);
}

struct value text_method_partition(struct run *run, struct value self,
                                   const struct macro_call *call)
{
    return partition(run, self, call, false);
}

struct value text_method_rpartition(struct run *run, struct value self,
                                    const struct macro_call *call)
{
    return partition(run, self, call, true);
}

/* --- join and replace --- */

struct value text_join(struct run *run, struct value separator, struct run_items items, bool strict)
{
    struct text_builder builder;
    run_builder(run, &builder);
    for (size_t i = 0; i < items.count && !run_failed(run) && !builder.full; i++) {
        if (strict && items.items[i].kind != VALUE_STRING)
            return run_fail(run, "sequence item %zu: expected str instance, %s found", i,
                            value_type_name(items.items[i]));
        if (i)
            text_builder_string(&builder, separator);
        python_str(run, &builder, items.items[i]);
        run_spend(run, 1);
    }
    return run_finish(run, &builder);
}

struct value text_method_join(struct run *run, struct value self, const struct macro_call *call)
{
    static const char *const names[] = {"iterable"};
    struct value iterable;
    if (!call_bind(run, call, "join", names, &iterable, 1))
        return value_none();
    struct run_items items = run_iterate(run, iterable);
    return run_failed(run) ? value_none() : text_join(run, self, items, true);
}

/* Replaces an empty `old`, which stands between all characters. */
static struct value replace_empty(struct run *run, struct value string, struct value new_text,
                                  int64_t limit)
{
    struct text_builder builder;
    size_t at = 0, length = string.text.length;
    run_builder(run, &builder);
    for (; limit != 0 && at <= length && !builder.full; limit--) {
        text_builder_string(&builder, new_text);
        if (at == length)
            return run_finish(run, &builder);
        size_t next = at + utf8_next(string.text.bytes + at, length - at).length;
        text_builder_string(&builder, value_part(string, at, next));
        at = next;
    }
    text_builder_string(&builder, value_part(string, at, length));
    return run_finish(run, &builder);
}

struct value text_replace(struct run *run, struct value string, struct value old,
                          struct value new_text, int64_t limit)
{
    struct text_builder builder;
    size_t from = 0, at;
    run_spend(run, string.text.length / 16);
    if (old.text.length == 0)
        return replace_empty(run, string, new_text, limit);
    if (find(string, 0, old) == SIZE_MAX || limit == 0)
        return string;
    run_builder(run, &builder);
    for (; limit != 0 && !builder.full && (at = find(string, from, old)) != SIZE_MAX; limit--) {
        text_builder_string(&builder, value_part(string, from, at));
        text_builder_string(&builder, new_text);
        from = at + old.text.length;
    }
    text_builder_string(&builder, value_part(string, from, string.text.length));
    return run_finish(run, &builder);
}

struct value text_method_replace(struct run *run, struct value self, const struct macro_call *call)
{
    static const char *const names[] = {"old", "new", "count"};
    struct value values[3];
    if (!call_bind(run, call, "replace", names, values, 3))
        return value_none();
    for (int i = 0; i < 2; i++)
        if (values[i].kind != VALUE_STRING)
            return run_fail(run, "replace() argument %d must be str, not %s", i + 1,
                            value_type_name(values[i]));
    int64_t limit = values[2].kind == VALUE_INT ? values[2].integer : -1;
    return text_replace(run, self, values[0], values[1], limit);
}
