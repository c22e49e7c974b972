#include "common/language/template/run.h"

#include "common/base/utf8.h"
#include "common/language/template/python_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct value run_fail_with(struct run *run, struct value message)
{
    if (!run_failed(run)) {
        run->status = STATUS_INVALID;
        run->message = message;
    }
    return value_none();
}

struct value run_fail(struct run *run, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t kept = length < 0 ? 0 : (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
    char *copy = run_take(run, kept + 1);
    if (!copy)
        return value_none();
    memcpy(copy, text, kept);
    return run_fail_with(run, value_string(copy, kept, false));
}

struct value run_limit(struct run *run, const char *what)
{
    if (!run_failed(run)) {
        run->status = STATUS_LIMIT;
        run->message = value_literal(what);
    }
    return value_none();
}

void run_spend(struct run *run, uint64_t count)
{
    value_spend(&run->steps, count);
    if (!run->steps)
        run_limit(run, "the template takes too many steps");
}

void *run_take(struct run *run, size_t bytes)
{
    if (run_failed(run))
        return NULL;
    void *memory = arena_take(run->arena, bytes);
    if (!memory)
        run_limit(run, "the template takes too much memory");
    return memory;
}

struct value_sequence *run_sequence(struct run *run, const char *type, size_t capacity)
{
    struct value_sequence *made =
        run_failed(run) ? NULL : value_sequence_make(run->arena, type, capacity);
    if (!made)
        run_limit(run, "the template takes too much memory");
    run_spend(run, capacity);
    return run_failed(run) ? NULL : made;
}

struct value_dict *run_dict(struct run *run, size_t capacity)
{
    struct value_dict *made = run_failed(run) ? NULL : value_dict_make(run->arena, capacity);
    if (!made)
        run_limit(run, "the template takes too much memory");
    return made;
}

void run_dict_put(struct run *run, struct value_dict *dict, struct value key, struct value value)
{
    if (run_failed(run))
        return;
    if (!value_dict_put(run->arena, dict, key, value, &run->steps))
        run_limit(run, "the template takes too much memory");
    run_spend(run, 1);
}

const struct value *run_dict_find(struct run *run, const struct value_dict *dict, struct value key)
{
    const struct value *found = value_dict_find(dict, key, &run->steps);
    run_spend(run, 1);
    return run_failed(run) ? NULL : found;
}

bool run_equal(struct run *run, struct value a, struct value b)
{
    bool equal = value_equal(a, b, &run->steps);
    run_spend(run, 1);
    return equal;
}

void run_builder(struct run *run, struct text_builder *builder)
{
    text_builder_init(builder, run->arena, run->arena->limit_bytes);
}

struct value run_finish(struct run *run, struct text_builder *builder)
{
    if (builder->full)
        return run_limit(run, "the template takes too much memory");
    run_spend(run, builder->length / 64);
    return run_failed(run) ? value_none() : text_builder_finish(builder);
}

/* --- scopes --- */

struct scope *run_scope(struct run *run, struct scope *outer)
{
    struct scope *scope = run_take(run, sizeof *scope);
    if (scope)
        scope->outer = outer;
    return scope;
}

void scope_set(struct run *run, struct scope *scope, const char *name, struct value value)
{
    if (run_failed(run))
        return;
    for (struct variable *variable = scope->variables; variable; variable = variable->next) {
        if (variable->name == name) {
            variable->value = value;
            return;
        }
    }
    struct variable *made = run_take(run, sizeof *made);
    if (!made)
        return;
    *made = (struct variable){.name = name, .value = value, .next = scope->variables};
    scope->variables = made;
}

/* --- undefined --- */

static struct value make_undefined(struct run *run, struct value_undefined undefined)
{
    struct value_undefined *made = run_take(run, sizeof *made);
    if (!made)
        return value_none();
    *made = undefined;
    return (struct value){.kind = VALUE_UNDEFINED, .undefined = made};
}

struct value run_undefined(struct run *run, const char *name)
{
    return make_undefined(run, (struct value_undefined){.name = value_literal(name)});
}

struct value run_no_member(struct run *run, struct value object, struct value name)
{
    return make_undefined(
        run, (struct value_undefined){.name = name, .owner = value_object_name(object)});
}

struct value run_unsafe(struct run *run, struct value object, const char *name)
{
    return make_undefined(run, (struct value_undefined){.name = value_literal(name),
                                                        .owner = value_type_name(object),
                                                        .unsafe = true});
}

struct value run_undefined_saying(struct run *run, const char *message)
{
    return make_undefined(run, (struct value_undefined){.message = message});
}

struct value run_fail_undefined(struct run *run, struct value value)
{
    const struct value_undefined *undefined = value.undefined;
    struct text_builder builder;
    if (run_failed(run))
        return value_none();
    if (!undefined)
        return run_fail(run, "a value is undefined");
    if (undefined->message)
        return run_fail_with(run, value_literal(undefined->message));
    run_builder(run, &builder);
    if (undefined->unsafe) {
        text_builder_literal(&builder, "access to attribute ");
        python_repr(run, &builder, undefined->name);
        text_builder_literal(&builder, " of '");
        text_builder_literal(&builder, undefined->owner);
        text_builder_literal(&builder, "' object is unsafe.");
    } else if (!undefined->owner) {
        python_repr(run, &builder, undefined->name);
        text_builder_literal(&builder, " is undefined");
    } else {
        bool attribute = undefined->name.kind == VALUE_STRING;
        text_builder_literal(&builder, attribute ? "'" : "");
        text_builder_literal(&builder, undefined->owner);
        text_builder_literal(&builder, attribute ? "' has no attribute " : " has no element ");
        python_repr(run, &builder, undefined->name);
    }
    return run_fail_with(run, run_finish(run, &builder));
}

/* --- iteration --- */

static struct run_items characters_of(struct run *run, struct value string)
{
    size_t count = python_length(string);
    struct value_sequence *made = run_sequence(run, "list", count);
    if (!made)
        return (struct run_items){0};
    for (size_t at = 0; at < string.text.length;) {
        size_t length = utf8_next(string.text.bytes + at, string.text.length - at).length;
        made->items[made->count++] = value_part(string, at, at + length);
        at += length;
    }
    return (struct run_items){made->items, made->count};
}

struct run_items run_iterate(struct run *run, struct value value)
{
    struct value_sequence *keys;
    if (run_failed(run))
        return (struct run_items){0};
    switch (value.kind) {
    case VALUE_UNDEFINED: return (struct run_items){0};
    case VALUE_STRING: return characters_of(run, value);
    case VALUE_DICT:
        keys = run_sequence(run, "list", value.dict->count);
        if (!keys)
            return (struct run_items){0};
        for (size_t i = 0; i < value.dict->count; i++)
            keys->items[keys->count++] = value.dict->entries[i].key;
        return (struct run_items){keys->items, keys->count};
    case VALUE_ITERATOR:
        if (value.sequence->spent)
            return (struct run_items){0};
        value.sequence->spent = true;
        break;
    default: break;
    }
    if (value_is_sequence(value))
        return (struct run_items){value.sequence->items, value.sequence->count};
    run_fail(run, "'%s' object is not iterable", value_type_name(value));
    return (struct run_items){0};
}
