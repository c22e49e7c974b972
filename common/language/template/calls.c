/* Arguments, and what they are given to. */
#include "common/language/template/methods.h"
#include "common/language/template/python_text.h"
#include "common/language/template/run.h"

#include <string.h>

bool keyword_is(const struct keyword *keyword, const char *name)
{
    return keyword->length == strlen(name) && !memcmp(keyword->name, name, keyword->length);
}

/* How many arguments there are, with what "*" and "**" bring. */
struct tally {
    size_t plain, keywords;
};

static struct value evaluate_argument(struct run *run, const struct argument *argument,
                                      struct tally *tally)
{
    struct value value = evaluate(run, argument->value);
    if (argument->kind == ARGUMENT_STAR) {
        struct run_items items = run_iterate(run, value);
        struct value_sequence *made = run_sequence(run, "list", 0);
        if (!made)
            return value_none();
        made->items = (struct value *)items.items;
        made->count = items.count;
        tally->plain += items.count;
        return value_sequence(VALUE_LIST, made);
    }
    if (argument->kind == ARGUMENT_STAR_STAR) {
        if (value.kind != VALUE_DICT)
            return run_fail(run, "argument after ** must be a mapping, not %s",
                            value_type_name(value));
        tally->keywords += value.dict->count;
    }
    tally->plain += argument->kind == ARGUMENT_PLAIN;
    tally->keywords += argument->kind == ARGUMENT_KEYWORD;
    return value;
}

static void add_keywords(struct run *run, struct call *call, const struct value_dict *dict)
{
    for (size_t i = 0; i < dict->count; i++) {
        struct value key = dict->entries[i].key;
        if (key.kind != VALUE_STRING) {
            run_fail(run, "keywords must be strings");
            return;
        }
        call->keywords[call->keyword_count++] =
            (struct keyword){key.text.bytes, key.text.length, dict->entries[i].value};
    }
}

static void add_argument(struct run *run, struct call *call, const struct argument *argument,
                         struct value value)
{
    switch (argument->kind) {
    case ARGUMENT_PLAIN: call->arguments[call->count++] = value; break;
    case ARGUMENT_KEYWORD:
        call->keywords[call->keyword_count++] =
            (struct keyword){argument->keyword, strlen(argument->keyword), value};
        break;
    case ARGUMENT_STAR:
        if (value.sequence->count)
            memcpy(call->arguments + call->count, value.sequence->items,
                   value.sequence->count * sizeof value);
        call->count += value.sequence->count;
        break;
    case ARGUMENT_STAR_STAR: add_keywords(run, call, value.dict); break;
    }
}

void call_arguments(struct run *run, const struct argument *arguments, struct call *call)
{
    struct tally tally = {0};
    size_t count = 0;
    *call = (struct call){0};
    for (const struct argument *a = arguments; a; a = a->next)
        count++;
    if (count == 0)
        return;
    struct value *values = run_take(run, count * sizeof *values);
    size_t i = 0;
    for (const struct argument *a = arguments; a && values && !run_failed(run); a = a->next)
        values[i++] = evaluate_argument(run, a, &tally);
    call->arguments = run_take(run, (tally.plain + 1) * sizeof *call->arguments);
    call->keywords = run_take(run, (tally.keywords + 1) * sizeof *call->keywords);
    i = 0;
    for (const struct argument *a = arguments; a && !run_failed(run); a = a->next)
        add_argument(run, call, a, values[i++]);
}

bool call_bind(struct run *run, const struct call *call, const char *function,
               const char *const *names, struct value *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = i < call->count ? call->arguments[i] : (struct value){.kind = VALUE_ABSENT};
    if (call->count > count)
        run_fail(run, "%s() takes at most %zu arguments (%zu given)", function, count, call->count);
    for (size_t k = 0; k < call->keyword_count; k++) {
        const struct keyword *keyword = &call->keywords[k];
        size_t i = 0;
        while (i < count && !keyword_is(keyword, names[i]))
            i++;
        if (i == count)
            run_fail(run, "%s() got an unexpected keyword argument '%.*s'", function,
                     (int)keyword->length, keyword->name);
        else if (values[i].kind != VALUE_ABSENT)
            run_fail(run, "%s() got multiple values for argument '%s'", function, names[i]);
        else
            values[i] = keyword->value;
    }
    return !run_failed(run);
}

struct value call_value(struct run *run, struct value callee, const struct call *call)
{
    if (run_failed(run))
        return value_none();
    switch (callee.kind) {
    case VALUE_FUNCTION: return function_apply(run, callee.function, call);
    case VALUE_MACRO: return call_macro(run, callee.macro, call);
    case VALUE_METHOD: return method_apply(run, callee.method, call);
    case VALUE_UNDEFINED: return run_fail_undefined(run, callee);
    case VALUE_LOOP:
        return run_fail(run, "The loop must have the 'recursive' marker to be called recursively.");
    default: return run_fail(run, "'%s' object is not callable", value_type_name(callee));
    }
}
