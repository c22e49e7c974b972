/* The functions that a template finds without being given them. */
#include "common/language/template/date_format.h"
#include "common/language/template/python_text.h"
#include "common/language/template/run.h"

#include <string.h>

struct template_function {
    const char *name;
    struct value (*apply)(struct run *run, const struct call *call);
};

/* dict(mapping, a=1): namespace takes the same. */
static struct value_dict *dict_from(struct run *run, const struct call *call)
{
    struct value_dict *made = run_dict(run, call->keyword_count);
    if (call->count > 1 || (call->count == 1 && call->arguments[0].kind != VALUE_DICT)) {
        run_fail(run, "dict expected one mapping and keywords");
        return NULL;
    }
    const struct value_dict *base = call->count ? call->arguments[0].dict : NULL;
    for (size_t i = 0; base && i < base->count && !run_failed(run); i++)
        run_dict_put(run, made, base->entries[i].key, base->entries[i].value);
    for (size_t i = 0; i < call->keyword_count && !run_failed(run); i++)
        run_dict_put(run, made,
                     value_string(call->keywords[i].name, call->keywords[i].length, false),
                     call->keywords[i].value);
    return run_failed(run) ? NULL : made;
}

static struct value make_dict(struct run *run, const struct call *call)
{
    struct value_dict *made = dict_from(run, call);
    return made ? value_dict(made) : value_none();
}

static struct value make_namespace(struct run *run, const struct call *call)
{
    struct value value = make_dict(run, call);
    if (value.kind == VALUE_DICT)
        value.kind = VALUE_NAMESPACE;
    return value;
}

static bool range_bounds(struct run *run, const struct call *call, int64_t bounds[3])
{
    if (call->count < 1 || call->count > 3 || call->keyword_count) {
        run_fail(run, "range expected 1 to 3 arguments, got %zu", call->count);
        return false;
    }
    for (size_t i = 0; i < call->count; i++) {
        struct value value = call->arguments[i];
        if (value.kind == VALUE_UNDEFINED) {
            run_fail_undefined(run, value);
        } else if (value.kind != VALUE_INT && value.kind != VALUE_BOOL) {
            run_fail(run, "'%s' object cannot be interpreted as an integer",
                     value_type_name(value));
        } else {
            bounds[call->count == 1 ? 1 : i] =
                value.kind == VALUE_BOOL ? value.boolean : value.integer;
        }
    }
    if (bounds[2] == 0)
        run_fail(run, "range() arg 3 must not be zero");
    return !run_failed(run);
}

static struct value make_range(struct run *run, const struct call *call)
{
    int64_t bounds[3] = {0, 0, 1};
    if (!range_bounds(run, call, bounds))
        return value_none();
    uint64_t span = 0, stride = bounds[2] > 0 ? (uint64_t)bounds[2] : -(uint64_t)bounds[2];
    if (bounds[2] > 0 && bounds[1] > bounds[0])
        span = (uint64_t)bounds[1] - (uint64_t)bounds[0];
    if (bounds[2] < 0 && bounds[1] < bounds[0])
        span = (uint64_t)bounds[0] - (uint64_t)bounds[1];
    uint64_t count = span / stride + (span % stride != 0);
    if (count > TEMPLATE_LIMIT_RANGE)
        return run_fail(run, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                        TEMPLATE_LIMIT_RANGE);
    struct value_sequence *made = run_sequence(run, "range", (size_t)count);
    if (!made)
        return value_none();
    memcpy(made->range, bounds, sizeof made->range);
    for (; made->count < count; made->count++)
        made->items[made->count] =
            value_int((int64_t)((uint64_t)bounds[0] + made->count * (uint64_t)bounds[2]));
    return value_sequence(VALUE_RANGE, made);
}

static struct value raise_exception(struct run *run, const struct call *call)
{
    static const char *const names[] = {"message"};
    struct value message;
    if (!call_bind(run, call, "raise_exception", names, &message, 1))
        return value_none();
    if (message.kind == VALUE_ABSENT)
        return run_fail(run, "raise_exception() missing 1 required positional argument: 'message'");
    message = python_string_of(run, message);
    if (run_failed(run))
        return value_none();
    if (message.text.length > TEMPLATE_LIMIT_MESSAGE)
        message = value_part(message, 0, TEMPLATE_LIMIT_MESSAGE);
    run->raised = true;
    return run_fail_with(run, message);
}

static struct value strftime_now(struct run *run, const struct call *call)
{
    static const char *const names[] = {"format"};
    struct value format;
    if (!call_bind(run, call, "strftime_now", names, &format, 1))
        return value_none();
    if (format.kind != VALUE_STRING)
        return run_fail(run, "strftime() argument 1 must be str, not %s", value_type_name(format));
    struct text_builder builder;
    run_builder(run, &builder);
    date_format(&builder, format.text.bytes, format.text.length, &run->now);
    return run_finish(run, &builder);
}

static const struct template_function functions[] = {
    {"namespace", make_namespace},        {"range", make_range},          {"dict", make_dict},
    {"raise_exception", raise_exception}, {"strftime_now", strftime_now},
};

const struct template_function *function_find(const char *name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name))
            return &functions[i];
    return NULL;
}

struct value function_apply(struct run *run, const struct template_function *function,
                            const struct call *call)
{
    return function->apply(run, call);
}
