#include "common/language/template/filters.h"

#include <string.h>

struct filter {
    const char *name;
    filter_function *apply;
};

static struct value filter_default(struct run *run, struct value input, const struct call *call)
{
    static const char *const names[] = {"default_value", "boolean"};
    struct value values[2];
    if (!call_bind(run, call, "default", names, values, 2))
        return value_none();
    if (input.kind != VALUE_UNDEFINED && (!value_truth(values[1]) || value_truth(input)))
        return input;
    return values[0].kind == VALUE_ABSENT ? value_literal("") : values[0];
}

static const struct filter filters[] = {
    {"abs", filter_abs},           {"capitalize", filter_capitalize},
    {"center", filter_center},     {"count", filter_length},
    {"d", filter_default},         {"default", filter_default},
    {"dictsort", filter_dictsort}, {"e", filter_escape},
    {"escape", filter_escape},     {"first", filter_first},
    {"float", filter_float},       {"indent", filter_indent},
    {"int", filter_int},           {"items", filter_items},
    {"join", filter_join},         {"last", filter_last},
    {"length", filter_length},     {"list", filter_list},
    {"lower", filter_lower},       {"map", filter_map},
    {"max", filter_max},           {"min", filter_min},
    {"reject", filter_reject},     {"rejectattr", filter_rejectattr},
    {"replace", filter_replace},   {"reverse", filter_reverse},
    {"round", filter_round},       {"safe", filter_safe},
    {"select", filter_select},     {"selectattr", filter_selectattr},
    {"sort", filter_sort},         {"string", filter_string},
    {"sum", filter_sum},           {"title", filter_title},
    {"tojson", filter_tojson},     {"trim", filter_trim},
    {"truncate", filter_truncate}, {"unique", filter_unique},
    {"upper", filter_upper},       {"wordcount", filter_wordcount},
};

const struct filter *filter_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strlen(filters[i].name) == length && !memcmp(filters[i].name, name, length))
            return &filters[i];
    return NULL;
}

struct value filter_apply(struct run *run, const struct filter *filter, struct value input,
                          const struct call *call)
{
    run_spend(run, 1);
    return run_failed(run) ? value_none() : filter->apply(run, input, call);
}
