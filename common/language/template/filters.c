#include "common/language/template/filters.h"

#include "common/base/utf8.h"
#include "common/language/template/methods.h"
#include "common/language/template/python_text.h"
#include "common/language/text/unicode.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIGITS 400 /* a longer string isn't read as a number */

/* Copies a string without white space around it and "_" between its digits, NUL-terminated. False:
 * it can't be a number. */
static bool digits_of(struct run *run, struct value string, char out[MAX_DIGITS])
{
    struct value text = text_strip(run, string, value_none(), STRIP_BOTH);
    size_t count = 0;
    if (text.text.length == 0 || text.text.length >= MAX_DIGITS)
        return false;
    for (size_t i = 0; i < text.text.length; i++) {
        char c = text.text.bytes[i];
        char before = i ? text.text.bytes[i - 1] : 0;
        char behind = i + 1 < text.text.length ? text.text.bytes[i + 1] : 0;
        bool between = before >= '0' && before <= '9' && behind >= '0' && behind <= '9';
        if (c == '_' && between)
            continue;
        if (c <= ' ' || c == '_')
            return false;
        out[count++] = c;
    }
    out[count] = 0;
    return true;
}

static bool read_integer(const char *digits, int base, int64_t *out)
{
    char *end;
    size_t from = strspn(digits, "+-");
    if (from > 1 || !digits[from])
        return false;
    bool prefixed = digits[from] == '0' && strchr("xXoObB", digits[from + 1]) && digits[from + 1];
    char letter = prefixed ? (char)(digits[from + 1] | 0x20) : 0;
    int wanted = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed && base != wanted && base != 0)
        return false;
    if (prefixed && strchr("+-", digits[from + 2]))
        return false;
    errno = 0;
    long long value = strtoll(digits + from + (prefixed ? 2 : 0), &end,
                              prefixed ? wanted
                              : base   ? base
                                       : 10);
    if (errno || *end || end == digits + from + (prefixed ? 2 : 0))
        return false;
    *out = *digits == '-' ? -value : value;
    return true;
}

/* Reads as Python's float(str): decimal, inf, nan. */
static bool read_float(const char *digits, double *out)
{
    char *end;
    const char *unsigned_digits = digits + (*digits == '+' || *digits == '-');
    if (strpbrk(digits, "xXpP(") || *unsigned_digits == '+' || *unsigned_digits == '-')
        return false;
    *out = strtod(digits, &end);
    return end != digits && !*end;
}

static bool truncated(double number, int64_t *out)
{
    if (!(number > -9.2e18 && number < 9.2e18))
        return false;
    *out = (int64_t)number;
    return true;
}

/* Returns false when Python's int() fails with an error that the filter catches. */
static bool as_integer(struct run *run, struct value input, int64_t base, int64_t *out)
{
    char digits[MAX_DIGITS];
    double number;
    if (input.kind == VALUE_BOOL || input.kind == VALUE_INT) {
        *out = input.kind == VALUE_BOOL ? input.boolean : input.integer;
        return true;
    }
    if (input.kind == VALUE_FLOAT)
        return truncated(input.real, out);
    if (input.kind != VALUE_STRING || !digits_of(run, input, digits))
        return false;
    if ((base == 0 || (base >= 2 && base <= 36)) && read_integer(digits, (int)base, out))
        return true;
    return read_float(digits, &number) && truncated(number, out);
}

struct value filter_int(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"default", "base"};
    struct value values[2];
    int64_t integer;
    if (!call_bind(run, call, "int", names, values, 2))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    /* As in jinja2: a text is no integer in a base that Python doesn't take. */
    int64_t base = values[1].kind == VALUE_ABSENT ? 10
                   : values[1].kind == VALUE_INT  ? values[1].integer
                                                  : -1;
    if (as_integer(run, input, base, &integer))
        return value_int(integer);
    return values[0].kind == VALUE_ABSENT ? value_int(0) : values[0];
}

struct value filter_float(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"default"};
    struct value fallback;
    char digits[MAX_DIGITS];
    double number;
    if (!call_bind(run, call, "float", names, &fallback, 1))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    if (value_is_number(input))
        return value_float(value_as_double(input));
    if (input.kind == VALUE_STRING && digits_of(run, input, digits) && read_float(digits, &number))
        return value_float(number);
    return fallback.kind == VALUE_ABSENT ? value_float(0) : fallback;
}

struct value filter_abs(struct run *run, struct value input, const struct macro_call *call)
{
    if (!call_bind(run, call, "abs", NULL, NULL, 0))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    if (!value_is_number(input))
        return run_fail(run, "bad operand type for abs(): '%s'", value_type_name(input));
    if (input.kind == VALUE_FLOAT)
        return value_float(fabs(input.real));
    bool negative = input.kind == VALUE_INT && input.integer < 0;
    return negate(run, input, negative);
}

/* Rounds the exact value of the double half to even, as Python's round. */
static double round_to(double number, int digits)
{
    char text[400];
    if (digits < 0) {
        double unit = pow(10, -digits);
        return nearbyint(number / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", digits, number);
    return strtod(text, NULL);
}

struct value filter_round(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"precision", "method"};
    struct value values[2];
    if (!call_bind(run, call, "round", names, values, 2))
        return value_none();
    if (input.kind == VALUE_UNDEFINED)
        return run_fail_undefined(run, input);
    if (!value_is_number(input))
        return run_fail(run, "type %s doesn't define __round__ method", value_type_name(input));
    int64_t wide = values[0].kind == VALUE_INT ? values[0].integer : 0;
    int digits = wide < -20 ? -20 : wide > 20 ? 20 : (int)wide;
    double number = value_as_double(input), scale = pow(10, digits);
    if (values[1].kind != VALUE_ABSENT && value_is_text(values[1], "ceil"))
        return value_float(ceil(number * scale) / scale);
    if (values[1].kind != VALUE_ABSENT && value_is_text(values[1], "floor"))
        return value_float(floor(number * scale) / scale);
    if (values[1].kind != VALUE_ABSENT && !value_is_text(values[1], "common"))
        return run_fail(run, "method must be common, ceil or floor");
    if (input.kind != VALUE_FLOAT && digits >= 0)
        return negate(run, input, false);
    if (input.kind != VALUE_FLOAT)
        return value_int((int64_t)round_to(number, digits));
    return value_float(isfinite(number) ? round_to(number, digits) : number);
}

/* --- strings --- */

#define MAX_WIDTH (1 << 20) /* characters of centered or indented text */

static struct value cased(struct run *run, struct value input, const struct macro_call *call,
                          const char *name, struct value (*change)(struct run *, struct value))
{
    if (!call_bind(run, call, name, NULL, NULL, 0))
        return value_none();
    struct value string = python_string_of(run, input);
    return run_failed(run) ? value_none() : change(run, string);
}

struct value filter_upper(struct run *run, struct value input, const struct macro_call *call)
{
    return cased(run, input, call, "upper", text_upper);
}

struct value filter_lower(struct run *run, struct value input, const struct macro_call *call)
{
    return cased(run, input, call, "lower", text_lower);
}

struct value filter_capitalize(struct run *run, struct value input, const struct macro_call *call)
{
    return cased(run, input, call, "capitalize", text_capitalize);
}

struct value filter_title(struct run *run, struct value input, const struct macro_call *call)
{
    return cased(run, input, call, "title", text_title);
}

struct value filter_string(struct run *run, struct value input, const struct macro_call *call)
{
    return call_bind(run, call, "string", NULL, NULL, 0) ? python_string_of(run, input)
                                                         : value_none();
}

static struct value marked_safe(struct value string)
{
    string.is_markup = string.kind == VALUE_STRING;
    return string;
}

struct value filter_safe(struct run *run, struct value input, const struct macro_call *call)
{
    if (!call_bind(run, call, "safe", NULL, NULL, 0))
        return value_none();
    return marked_safe(python_string_of(run, input));
}

struct value filter_escape(struct run *run, struct value input, const struct macro_call *call)
{
    if (!call_bind(run, call, "escape", NULL, NULL, 0))
        return value_none();
    struct value string = python_string_of(run, input);
    return run_failed(run) ? value_none() : add(run, marked_safe(value_literal("")), string);
}

struct value filter_trim(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"chars"};
    struct value set;
    if (!call_bind(run, call, "trim", names, &set, 1))
        return value_none();
    if (set.kind > VALUE_NONE && set.kind != VALUE_STRING)
        return run_fail(run, "strip arg must be None or str");
    struct value string = python_string_of(run, input);
    return run_failed(run) ? value_none() : text_strip(run, string, set, STRIP_BOTH);
}

struct value filter_replace(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"old", "new", "count"};
    struct value values[3];
    if (!call_bind(run, call, "replace", names, values, 3))
        return value_none();
    if (values[1].kind == VALUE_ABSENT)
        return run_fail(run, "do_replace() missing 1 required positional argument: 'new'");
    struct value string = python_string_of(run, input);
    struct value old = python_string_of(run, values[0]),
                 new_text = python_string_of(run, values[1]);
    int64_t limit = values[2].kind == VALUE_INT ? values[2].integer : -1;
    return run_failed(run) ? value_none() : text_replace(run, string, old, new_text, limit);
}

struct value filter_center(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"width"};
    struct value width;
    if (!call_bind(run, call, "center", names, &width, 1))
        return value_none();
    int64_t wide = width.kind == VALUE_INT ? width.integer : 80;
    struct value string = python_string_of(run, input);
    return run_failed(run) ? value_none() : text_pad(run, string, wide, STRIP_BOTH, ' ');
}

/* --- lines and words --- */

struct value filter_indent(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"width", "first", "blank"};
    struct value values[3];
    struct text_builder builder, unit;
    if (!call_bind(run, call, "indent", names, values, 3))
        return value_none();
    if (input.kind != VALUE_STRING)
        return run_fail(run, "unsupported operand type(s) for +=: '%s' and 'str'",
                        value_type_name(input));
    int64_t width = values[0].kind == VALUE_INT ? values[0].integer : 4;
    run_builder(run, &unit);
    text_builder_fill(&unit, ' ',
                      width < 0           ? 0
                      : width > MAX_WIDTH ? MAX_WIDTH
                                          : (size_t)width,
                      false);
    struct value space = values[0].kind == VALUE_STRING ? values[0] : run_finish(run, &unit);
    struct value lines = text_lines(run, add(run, input, value_literal("\n")), false);
    run_builder(run, &builder);
    for (size_t i = 0; !run_failed(run) && i < lines.sequence->count && !builder.full; i++) {
        struct value line = lines.sequence->items[i];
        text_builder_literal(&builder, i ? "\n" : "");
        bool indented = i ? line.text.length || value_truth(values[2]) : value_truth(values[1]);
        if (indented)
            text_builder_string(&builder, space);
        text_builder_string(&builder, line);
    }
    return run_finish(run, &builder);
}

struct value filter_truncate(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"length", "killwords", "end", "leeway"};
    struct value values[4];
    if (!call_bind(run, call, "truncate", names, values, 4))
        return value_none();
    struct value size = filter_length(run, input, &(struct macro_call){0}), string = input;
    struct value end = values[2].kind == VALUE_STRING ? values[2] : value_literal("...");
    int64_t length = values[0].kind == VALUE_INT ? values[0].integer : 255;
    int64_t leeway = values[3].kind == VALUE_INT ? values[3].integer : 5;
    int64_t end_length = (int64_t)python_length(end);
    if (run_failed(run))
        return value_none();
    if (length < end_length || leeway < 0)
        return run_fail(run, "expected length >= %lld, got %lld", (long long)end_length,
                        (long long)length);
    if (size.integer - leeway <= length)
        return input;
    if (input.kind != VALUE_STRING)
        return run_fail(run, "a %s can't be truncated", value_type_name(input));
    struct value kept = value_part(string, 0, python_offset(string, (size_t)(length - end_length)));
    size_t space = value_truth(values[1]) ? 0 : kept.text.length;
    while (space && kept.text.bytes[space - 1] != ' ')
        space--;
    if (space)
        kept = value_part(kept, 0, space - 1);
    return add(run, kept, end);
}

struct value filter_wordcount(struct run *run, struct value input, const struct macro_call *call)
{
    if (!call_bind(run, call, "wordcount", NULL, NULL, 0))
        return value_none();
    struct value string = python_string_of(run, input);
    int64_t count = 0;
    bool inside = false;
    for (size_t at = 0; !run_failed(run) && at < string.text.length;) {
        struct utf8_char next = utf8_next(string.text.bytes + at, string.text.length - at);
        bool word =
            unicode_is_letter(next.code) || unicode_is_numeric(next.code) || next.code == '_';
        count += word && !inside;
        inside = word;
        at += next.length;
    }
    return value_int(count);
}

struct value filter_join(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"d", "attribute"};
    struct value values[2];
    if (!call_bind(run, call, "join", names, values, 2))
        return value_none();
    struct value separator =
        values[0].kind == VALUE_ABSENT ? value_literal("") : python_string_of(run, values[0]);
    struct run_items items = run_iterate(run, input);
    if (values[1].kind != VALUE_ABSENT && values[1].kind != VALUE_NONE) {
        struct value_sequence *made = run_sequence(run, "list", items.count);
        for (size_t i = 0; made && i < items.count; i++)
            made->items[made->count++] = get_path(run, items.items[i], values[1]);
        if (made)
            items.items = made->items;
    }
    return run_failed(run) ? value_none() : text_join(run, separator, items, false);
}

/* --- tojson --- */

static bool read_separators(struct run *run, struct value separators, struct python_json *style)
{
    struct run_items items = run_iterate(run, separators);
    bool good = !run_failed(run) && items.count == 2 && items.items[0].kind == VALUE_STRING &&
                items.items[1].kind == VALUE_STRING;
    if (!good) {
        run_fail(run, "separators must be two strings");
        return false;
    }
    style->item_separator = items.items[0];
    style->key_separator = items.items[1];
    return true;
}

static bool read_indent(struct run *run, struct value indent, struct python_json *style)
{
    if (indent.kind == VALUE_ABSENT || indent.kind == VALUE_NONE)
        return true;
    if (indent.kind == VALUE_BOOL)
        indent = value_int(indent.boolean);
    if (indent.kind != VALUE_INT && indent.kind != VALUE_STRING) {
        run_fail(run, "indent must be a number or a string, not %s", value_type_name(indent));
        return false;
    }
    if (indent.kind == VALUE_INT && (indent.integer < 0 || indent.integer > MAX_WIDTH))
        indent.integer = indent.integer < 0 ? 0 : MAX_WIDTH;
    style->indent = indent;
    style->item_separator = value_literal(",");
    return true;
}

struct value filter_tojson(struct run *run, struct value input, const struct macro_call *call)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    struct value values[4];
    struct text_builder builder;
    struct python_json style = {.indent = value_none(),
                                .item_separator = value_literal(", "),
                                .key_separator = value_literal(": ")};
    if (!call_bind(run, call, "tojson", names, values, 4) || !read_indent(run, values[1], &style))
        return value_none();
    if (values[2].kind != VALUE_ABSENT && values[2].kind != VALUE_NONE &&
        !read_separators(run, values[2], &style))
        return value_none();
    style.ensure_ascii = value_truth(values[0]);
    style.sort_keys = value_truth(values[3]);
    run_builder(run, &builder);
    python_json(run, &builder, input, &style);
    return run_finish(run, &builder);
}

struct filter {
    const char *name;
    filter_function *apply;
};

static struct value filter_default(struct run *run, struct value input,
                                   const struct macro_call *call)
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
                          const struct macro_call *call)
{
    run_spend(run, 1);
    return run_failed(run) ? value_none() : filter->apply(run, input, call);
}
