#include "common/language/template/filters.h"

#include "common/language/template/methods.h"
#include "common/language/template/python_text.h"

#include <string.h>

struct predicate {
    const char *name;
    bool (*holds)(struct run *run, struct value value, struct value argument);
    bool takes_argument;
};

static bool is_defined(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind != VALUE_UNDEFINED;
}

static bool is_undefined(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_UNDEFINED;
}

static bool is_none(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_NONE;
}

static bool is_boolean(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_BOOL;
}

static bool is_true(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_BOOL && value.boolean;
}

static bool is_false(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_BOOL && !value.boolean;
}

static bool is_integer(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_INT;
}

static bool is_float(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_FLOAT;
}

static bool is_number(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value_is_number(value);
}

static bool is_string(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_STRING;
}

static bool is_mapping(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_DICT;
}

/* Holds for values with a length and an index, as jinja2's undefined has them, too. */
static bool is_sequence(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_STRING || value.kind == VALUE_DICT ||
           value.kind == VALUE_UNDEFINED || value.kind == VALUE_LIST || value.kind == VALUE_TUPLE ||
           value.kind == VALUE_RANGE;
}

static bool is_iterable(struct run *run, struct value value, struct value argument)
{
    return is_sequence(run, value, argument) || value_is_sequence(value) ||
           value.kind == VALUE_LOOP;
}

static bool is_callable(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_FUNCTION || value.kind == VALUE_MACRO ||
           value.kind == VALUE_METHOD || value.kind == VALUE_UNDEFINED || value.kind == VALUE_LOOP;
}

static bool is_escaped(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_STRING && value.is_markup;
}

static bool is_lower(struct run *run, struct value value, struct value argument)
{
    (void)argument;
    struct value text = python_string_of(run, value);
    return !run_failed(run) && text_is_lower(text);
}

static bool is_upper(struct run *run, struct value value, struct value argument)
{
    (void)argument;
    struct value text = python_string_of(run, value);
    return !run_failed(run) && text_is_upper(text);
}

static bool is_filter(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_STRING && filter_find(value.text.bytes, value.text.length);
}

static bool is_test(struct run *run, struct value value, struct value argument)
{
    (void)run, (void)argument;
    return value.kind == VALUE_STRING && predicate_find(value.text.bytes, value.text.length);
}

static bool leaves(struct run *run, struct value value, struct value divisor, int64_t rest)
{
    struct value got = arithmetic(run, OPERATOR_MODULO, value, divisor);
    return !run_failed(run) && value_as_double(got) == (double)rest;
}

static bool is_odd(struct run *run, struct value value, struct value argument)
{
    (void)argument;
    return leaves(run, value, value_int(2), 1);
}

static bool is_even(struct run *run, struct value value, struct value argument)
{
    (void)argument;
    return leaves(run, value, value_int(2), 0);
}

static bool is_divisible(struct run *run, struct value value, struct value argument)
{
    return leaves(run, value, argument, 0);
}

static bool is_same(struct run *run, struct value value, struct value argument)
{
    (void)run;
    return value_same(value, argument);
}

static bool is_in(struct run *run, struct value value, struct value argument)
{
    return compare(run, OPERATOR_IN, value, argument);
}

static bool is_equal(struct run *run, struct value value, struct value argument)
{
    return compare(run, OPERATOR_EQUAL, value, argument);
}

static bool is_not_equal(struct run *run, struct value value, struct value argument)
{
    return compare(run, OPERATOR_NOT_EQUAL, value, argument);
}

static bool is_greater(struct run *run, struct value value, struct value argument)
{
    return compare(run, OPERATOR_GREATER, value, argument);
}

static bool is_greater_equal(struct run *run, struct value value, struct value argument)
{
    return compare(run, OPERATOR_GREATER_EQUAL, value, argument);
}

static bool is_less(struct run *run, struct value value, struct value argument)
{
    return compare(run, OPERATOR_LESS, value, argument);
}

static bool is_less_equal(struct run *run, struct value value, struct value argument)
{
    return compare(run, OPERATOR_LESS_EQUAL, value, argument);
}

static const struct predicate predicates[] = {
    {"defined", is_defined, false},
    {"undefined", is_undefined, false},
    {"none", is_none, false},
    {"boolean", is_boolean, false},
    {"true", is_true, false},
    {"false", is_false, false},
    {"integer", is_integer, false},
    {"float", is_float, false},
    {"number", is_number, false},
    {"string", is_string, false},
    {"mapping", is_mapping, false},
    {"sequence", is_sequence, false},
    {"iterable", is_iterable, false},
    {"callable", is_callable, false},
    {"escaped", is_escaped, false},
    {"lower", is_lower, false},
    {"upper", is_upper, false},
    {"filter", is_filter, false},
    {"test", is_test, false},
    {"odd", is_odd, false},
    {"even", is_even, false},
    {"divisibleby", is_divisible, true},
    {"sameas", is_same, true},
    {"in", is_in, true},
    {"==", is_equal, true},
    {"eq", is_equal, true},
    {"equalto", is_equal, true},
    {"!=", is_not_equal, true},
    {"ne", is_not_equal, true},
    {">", is_greater, true},
    {"gt", is_greater, true},
    {"greaterthan", is_greater, true},
    {">=", is_greater_equal, true},
    {"ge", is_greater_equal, true},
    {"<", is_less, true},
    {"lt", is_less, true},
    {"lessthan", is_less, true},
    {"<=", is_less_equal, true},
    {"le", is_less_equal, true},
};

const struct predicate *predicate_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof predicates / sizeof *predicates; i++)
        if (strlen(predicates[i].name) == length && !memcmp(predicates[i].name, name, length))
            return &predicates[i];
    return NULL;
}

bool predicate_apply(struct run *run, const struct predicate *predicate, struct value value,
                     const struct macro_call *call)
{
    static const char *const names[] = {"other"};
    struct value argument = {.kind = VALUE_ABSENT};
    if (!call_bind(run, call, predicate->name, names, &argument, predicate->takes_argument))
        return false;
    if (predicate->takes_argument && argument.kind == VALUE_ABSENT) {
        run_fail(run, "the test '%s' needs an argument", predicate->name);
        return false;
    }
    run_spend(run, 1);
    return predicate->holds(run, value, argument);
}
