/* Filters that give strings. */
#include "common/base/utf8.h"
#include "common/language/template/filters.h"
#include "common/language/template/python_json.h"
#include "common/language/template/python_text.h"
#include "common/language/template/text_methods.h"
#include "common/language/text/unicode.h"

#include <string.h>

#define MAX_WIDTH (1 << 20) /* of what is centered or indented: more is what nobody prints */

static struct value cased(struct run *run, struct value input, const struct call *call,
                          const char *name, struct value (*change)(struct run *, struct value))
{
    if (!call_bind(run, call, name, NULL, NULL, 0))
        return value_none();
    struct value string = python_string_of(run, input);
    return run_failed(run) ? value_none() : change(run, string);
}

struct value filter_upper(struct run *run, struct value input, const struct call *call)
{
    return cased(run, input, call, "upper", text_upper);
}

struct value filter_lower(struct run *run, struct value input, const struct call *call)
{
    return cased(run, input, call, "lower", text_lower);
}

struct value filter_capitalize(struct run *run, struct value input, const struct call *call)
{
    return cased(run, input, call, "capitalize", text_capitalize);
}

struct value filter_title(struct run *run, struct value input, const struct call *call)
{
    return cased(run, input, call, "title", text_title);
}

struct value filter_string(struct run *run, struct value input, const struct call *call)
{
    return call_bind(run, call, "string", NULL, NULL, 0) ? python_string_of(run, input)
                                                         : value_none();
}

static struct value marked_safe(struct value string)
{
    string.is_markup = string.kind == VALUE_STRING;
    return string;
}

struct value filter_safe(struct run *run, struct value input, const struct call *call)
{
    if (!call_bind(run, call, "safe", NULL, NULL, 0))
        return value_none();
    return marked_safe(python_string_of(run, input));
}

struct value filter_escape(struct run *run, struct value input, const struct call *call)
{
    if (!call_bind(run, call, "escape", NULL, NULL, 0))
        return value_none();
    struct value string = python_string_of(run, input);
    return run_failed(run) ? value_none() : add(run, marked_safe(value_literal("")), string);
}

struct value filter_trim(struct run *run, struct value input, const struct call *call)
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

struct value filter_replace(struct run *run, struct value input, const struct call *call)
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

struct value filter_center(struct run *run, struct value input, const struct call *call)
{
    static const char *const names[] = {"width"};
    struct value width;
    if (!call_bind(run, call, "center", names, &width, 1))
        return value_none();
    int64_t wide = width.kind == VALUE_INT ? width.integer : 80;
    struct value string = python_string_of(run, input);
    return run_failed(run) ? value_none() : text_pad(run, string, wide, STRIP_BOTH, ' ');
}

/* ------------------------------------------------------------------------------------- lines and
 * words */

struct value filter_indent(struct run *run, struct value input, const struct call *call)
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

/* Up to the last space, or all of it. */
static struct value without_last_word(struct value string)
{
    for (size_t at = string.text.length; at-- > 0;)
        if (string.text.bytes[at] == ' ')
            return value_part(string, 0, at);
    return string;
}

struct value filter_truncate(struct run *run, struct value input, const struct call *call)
{
    static const char *const names[] = {"length", "killwords", "end", "leeway"};
    struct value values[4];
    if (!call_bind(run, call, "truncate", names, values, 4))
        return value_none();
    struct value size = filter_length(run, input, &(struct call){0}), string = input;
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
    return add(run, value_truth(values[1]) ? kept : without_last_word(kept), end);
}

struct value filter_wordcount(struct run *run, struct value input, const struct call *call)
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

struct value filter_join(struct run *run, struct value input, const struct call *call)
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

/* ------------------------------------------------------------------------------------- tojson */

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

struct value filter_tojson(struct run *run, struct value input, const struct call *call)
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
