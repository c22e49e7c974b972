#include "common/language/template/python_json.h"

#include "common/base/utf8.h"
#include "common/language/template/python_text.h"
#include "common/language/template/sorting.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* Keys that aren't strings are written as strings: 1, 1.5, true, null. */
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
