#include "common/language/template/python_text.h"

#include "common/base/utf8.h"
#include "common/language/template/run.h"
#include "common/language/text/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool python_is_space(uint32_t code)
{
    return (code >= 0x1c && code <= 0x1f) || unicode_is_space(code);
}

size_t python_stripped_length(const char *text, size_t length)
{
    while (length) {
        size_t start = length - 1;
        while (start && ((unsigned char)text[start] & 0xC0) == 0x80)
            start--;
        if (!python_is_space(utf8_next(text + start, length - start).code))
            break;
        length = start;
    }
    return length;
}

size_t python_length(struct value string)
{
    size_t count = 0;
    for (size_t i = 0; i < string.text.length; i++)
        count += ((unsigned char)string.text.bytes[i] & 0xC0) != 0x80;
    return count;
}

size_t python_offset(struct value string, size_t index)
{
    size_t at = 0;
    for (; at < string.text.length; at++)
        if (((unsigned char)string.text.bytes[at] & 0xC0) != 0x80 && index-- == 0)
            break;
    return at;
}

size_t python_line_end(const char *text, size_t length, size_t at)
{
    struct utf8_char next = utf8_next(text + at, length - at);
    uint32_t code = next.code;
    if (code == '\r' && at + 1 < length && text[at + 1] == '\n')
        return 2;
    bool ends = (code >= '\n' && code <= '\r') || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
                code == 0x2028 || code == 0x2029;
    return ends ? next.length : 0;
}

/* --- numbers --- */

/* Writes the digits of "%.*e" in Python's layout: with an exponent below 1e-4 and from 1e16 on. */
static void lay_out(char out[64], const char *scientific)
{
    char digits[32];
    size_t count = 0, length = 0;
    const char *p = scientific;
    if (*p == '-')
        out[length++] = *p++;
    for (; *p != 'e'; p++)
        if (*p != '.')
            digits[count++] = *p;
    int exponent = atoi(p + 1);
    while (count > 1 && digits[count - 1] == '0')
        count--;
    digits[count] = 0;
    if (exponent < -4 || exponent >= 16)
        snprintf(out + length, 64 - length, "%c%s%se%c%02d", digits[0], count > 1 ? "." : "",
                 digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(out + length, 64 - length, "0.%.*s%s", -exponent - 1, "0000", digits);
    else if ((size_t)exponent + 1 >= count)
        snprintf(out + length, 64 - length, "%s%.*s.0", digits, exponent + 1 - (int)count,
                 "0000000000000000");
    else
        snprintf(out + length, 64 - length, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
}

void python_float(char out[64], double number)
{
    char text[64];
    if (!isfinite(number)) {
        snprintf(out, 64, "%s", isnan(number) ? "nan" : number < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 0; digits <= 17; digits++) { /* the shortest text that reads as the number */
        snprintf(text, sizeof text, "%.*e", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    lay_out(out, text);
}

/* --- repr --- */

static void escape(struct text_builder *out, uint32_t code, struct value string, size_t at)
{
    char text[16];
    static const char names[] = {['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't', ['\\'] = '\\'};
    if (code < sizeof names && names[code])
        snprintf(text, sizeof text, "\\%c", names[code]);
    else if (code < 0x100)
        snprintf(text, sizeof text, "\\x%02x", code);
    else
        snprintf(text, sizeof text, code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    text_builder_add(out, text, strlen(text), text_is_input(string, at));
}

static void repr_string(struct text_builder *out, struct value string)
{
    const char *bytes = string.text.bytes;
    size_t length = string.text.length;
    bool single = length && memchr(bytes, '\'', length),
         twice = length && memchr(bytes, '"', length);
    char quote = single && !twice ? '"' : '\'';
    if (string.is_markup)
        text_builder_literal(out, "Markup(");
    text_builder_add(out, &quote, 1, false);
    for (size_t at = 0; at < length;) {
        struct utf8_char next = utf8_next(bytes + at, length - at);
        if (next.code == (unsigned char)quote) {
            text_builder_add(out, "\\", 1, text_is_input(string, at));
            text_builder_character(out, next.code, string, at);
        } else if (next.code == '\\' || !unicode_is_printable(next.code)) {
            escape(out, next.code, string, at);
        } else {
            text_builder_character(out, next.code, string, at);
        }
        at += next.length;
    }
    text_builder_add(out, &quote, 1, false);
    if (string.is_markup)
        text_builder_literal(out, ")");
}

static void repr_items(struct run *run, struct text_builder *out,
                       const struct value_sequence *sequence, const char *open, const char *close)
{
    text_builder_literal(out, open);
    for (size_t i = 0; i < sequence->count && !run_failed(run); i++) {
        text_builder_literal(out, i ? ", " : "");
        python_repr(run, out, sequence->items[i]);
    }
    text_builder_literal(out, close);
}

static void repr_dict(struct run *run, struct text_builder *out, const struct value_dict *dict)
{
    text_builder_literal(out, "{");
    for (size_t i = 0; i < dict->count && !run_failed(run); i++) {
        text_builder_literal(out, i ? ", " : "");
        python_repr(run, out, dict->entries[i].key);
        text_builder_literal(out, ": ");
        python_repr(run, out, dict->entries[i].value);
    }
    text_builder_literal(out, "}");
}

static void repr_range(struct text_builder *out, const int64_t range[3])
{
    char text[80];
    if (range[2] == 1)
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", range[0], range[1]);
    else
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", range[0],
                 range[1], range[2]);
    text_builder_literal(out, text);
}

static void repr_container(struct run *run, struct text_builder *out, struct value value)
{
    switch (value.kind) {
    case VALUE_LIST: repr_items(run, out, value.sequence, "[", "]"); break;
    case VALUE_TUPLE:
        repr_items(run, out, value.sequence, "(", value.sequence->count == 1 ? ",)" : ")");
        break;
    case VALUE_RANGE: repr_range(out, value.sequence->range); break;
    case VALUE_VIEW:
        text_builder_literal(out, value.sequence->type);
        repr_items(run, out, value.sequence, "([", "])");
        break;
    case VALUE_NAMESPACE:
        text_builder_literal(out, "<Namespace ");
        repr_dict(run, out, value.dict);
        text_builder_literal(out, ">");
        break;
    default: repr_dict(run, out, value.dict);
    }
}

void python_repr(struct run *run, struct text_builder *out, struct value value)
{
    char text[80];
    run_spend(run, 1);
    if (run_failed(run))
        return;
    if (run->depth == TEMPLATE_LIMIT_DEPTH) {
        run_limit(run, "the template nests too deeply");
        return;
    }
    run->depth++;
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED: text_builder_literal(out, "Undefined"); break;
    case VALUE_NONE: text_builder_literal(out, "None"); break;
    case VALUE_BOOL: text_builder_literal(out, value.boolean ? "True" : "False"); break;
    case VALUE_INT:
        snprintf(text, sizeof text, "%" PRId64, value.integer);
        text_builder_literal(out, text);
        break;
    case VALUE_FLOAT:
        python_float(text, value.real);
        text_builder_literal(out, text);
        break;
    case VALUE_STRING: repr_string(out, value); break;
    case VALUE_ITERATOR:
    case VALUE_MACRO:
    case VALUE_LOOP:
    case VALUE_METHOD:
    case VALUE_FUNCTION: /* Python would show an address, or its parts */
        snprintf(text, sizeof text, "<%s object>", value_type_name(value));
        text_builder_literal(out, text);
        break;
    default: repr_container(run, out, value);
    }
    run->depth--;
}

void python_str(struct run *run, struct text_builder *out, struct value value)
{
    if (value.kind == VALUE_STRING)
        text_builder_string(out, value);
    else if (value.kind != VALUE_UNDEFINED)
        python_repr(run, out, value);
}

struct value python_string_of(struct run *run, struct value value)
{
    struct text_builder builder;
    if (value.kind == VALUE_STRING)
        return value;
    run_builder(run, &builder);
    python_str(run, &builder, value);
    return run_finish(run, &builder);
}

struct writer {
    struct run *run;
    struct text_builder *out;
    const struct python_json *style;
    int level;
};

static void write_value(struct writer *writer, struct value value);

static void add_unit(struct writer *writer, uint32_t unit, bool is_input)
{
    char text[16];
    snprintf(text, sizeof text, "\\u%04x", unit);
    text_builder_add(writer->out, text, 6, is_input);
}

static void add_escaped(struct writer *writer, uint32_t code, bool is_input)
{
    static const char names[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                 ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    if (code < sizeof names && names[code]) {
        text_builder_add(writer->out, (char[]){'\\', names[code]}, 2, is_input);
    } else if (code >= 0x10000) {
        add_unit(writer, 0xD800 + ((code - 0x10000) >> 10), is_input);
        add_unit(writer, 0xDC00 + ((code - 0x10000) & 0x3FF), is_input);
    } else {
        add_unit(writer, code, is_input);
    }
}

static void write_string(struct writer *writer, struct value string)
{
    size_t length = string.text.length, from = 0;
    text_builder_literal(writer->out, "\"");
    for (size_t at = 0; at < length && !writer->out->full;) {
        struct utf8_char next = utf8_next(string.text.bytes + at, length - at);
        bool plain = next.code >= 0x20 && next.code != '"' && next.code != '\\' &&
                     (next.code < 0x7F || !writer->style->ensure_ascii);
        if (!plain) {
            text_builder_string(writer->out, value_part(string, from, at));
            add_escaped(writer, next.code, text_is_input(string, at));
            from = at + next.length;
        }
        at += next.length;
    }
    text_builder_string(writer->out, value_part(string, from, length));
    text_builder_literal(writer->out, "\"");
}

static void write_number(struct writer *writer, struct value value)
{
    bool finite = value.kind != VALUE_FLOAT || isfinite(value.real);
    if (finite)
        python_repr(writer->run, writer->out, value);
    else
        text_builder_literal(writer->out, isnan(value.real) ? "NaN"
                                          : value.real < 0  ? "-Infinity"
                                                            : "Infinity");
}

static void new_line(struct writer *writer)
{
    struct value indent = writer->style->indent;
    if (indent.kind == VALUE_NONE)
        return;
    text_builder_literal(writer->out, "\n");
    for (int i = 0; i < writer->level && !writer->out->full; i++) {
        if (indent.kind == VALUE_STRING)
            text_builder_string(writer->out, indent);
        else
            text_builder_fill(writer->out, ' ', (size_t)indent.integer, false);
    }
}

static void write_items(struct writer *writer, const struct value_sequence *sequence)
{
    if (sequence->count == 0) {
        text_builder_literal(writer->out, "[]");
        return;
    }
    text_builder_literal(writer->out, "[");
    writer->level++;
    for (size_t i = 0; i < sequence->count && !run_failed(writer->run); i++) {
        if (i)
            text_builder_string(writer->out, writer->style->item_separator);
        new_line(writer);
        write_value(writer, sequence->items[i]);
    }
    writer->level--;
    new_line(writer);
    text_builder_literal(writer->out, "]");
}

/* Writes a key as a string, also 1, 1.5, true and null. */
static void write_key(struct writer *writer, struct value key)
{
    if (key.kind == VALUE_STRING) {
        write_string(writer, key);
    } else if (value_is_number(key) || key.kind == VALUE_NONE) {
        text_builder_literal(writer->out, "\"");
        write_value(writer, key);
        text_builder_literal(writer->out, "\"");
    } else {
        run_fail(writer->run, "keys must be str, int, float, bool or None, not %s",
                 value_type_name(key));
    }
}

static void write_dict(struct writer *writer, const struct value_dict *dict)
{
    if (dict->count == 0) {
        text_builder_literal(writer->out, "{}");
        return;
    }
    const struct value_entry *entries = dict->entries;
    if (writer->style->sort_keys)
        entries = sort_entries(writer->run, dict);
    text_builder_literal(writer->out, "{");
    writer->level++;
    for (size_t i = 0; i < dict->count && !run_failed(writer->run); i++) {
        if (i)
            text_builder_string(writer->out, writer->style->item_separator);
        new_line(writer);
        write_key(writer, entries[i].key);
        text_builder_string(writer->out, writer->style->key_separator);
        write_value(writer, entries[i].value);
    }
    writer->level--;
    new_line(writer);
    text_builder_literal(writer->out, "}");
}

static void write_value(struct writer *writer, struct value value)
{
    struct run *run = writer->run;
    if (run->depth == TEMPLATE_LIMIT_DEPTH)
        run_limit(run, "the template nests too deeply");
    if (writer->out->full)
        run_limit(run, "the template takes too much memory");
    run_spend(run, 1);
    if (run_failed(run))
        return;
    run->depth++;
    switch (value.kind) {
    case VALUE_NONE: text_builder_literal(writer->out, "null"); break;
    case VALUE_BOOL: text_builder_literal(writer->out, value.boolean ? "true" : "false"); break;
    case VALUE_INT:
    case VALUE_FLOAT: write_number(writer, value); break;
    case VALUE_STRING: write_string(writer, value); break;
    case VALUE_LIST:
    case VALUE_TUPLE: write_items(writer, value.sequence); break;
    case VALUE_DICT: write_dict(writer, value.dict); break;
    default: run_fail(run, "Object of type %s is not JSON serializable", value_type_name(value));
    }
    run->depth--;
}

void python_json(struct run *run, struct text_builder *out, struct value value,
                 const struct python_json *style)
{
    struct writer writer = {.run = run, .out = out, .style = style};
    write_value(&writer, value);
}
