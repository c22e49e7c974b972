#include "common/language/template/value.h"

#include "common/base/arena.h"
#include "common/base/utf8.h"

#include <string.h>

struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE};
}

struct value value_bool(bool boolean)
{
    return (struct value){.kind = VALUE_BOOL, .boolean = boolean};
}

struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .integer = integer};
}

struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .real = real};
}

struct value value_string(const char *bytes, size_t length, bool is_input)
{
    return (struct value){
        .kind = VALUE_STRING, .is_input = is_input, .text = {.bytes = bytes, .length = length}};
}

struct value value_literal(const char *text)
{
    return value_string(text, strlen(text), false);
}

struct value value_sequence(enum value_kind kind, struct value_sequence *sequence)
{
    return (struct value){.kind = kind, .sequence = sequence};
}

struct value value_dict(struct value_dict *dict)
{
    return (struct value){.kind = VALUE_DICT, .dict = dict};
}

struct value value_part(struct value string, size_t from, size_t to)
{
    string.text.bytes += from;
    string.text.length = to - from;
    if (string.text.marks)
        string.text.marks += from;
    return string;
}

bool value_is_sequence(struct value value)
{
    return value.kind >= VALUE_LIST && value.kind <= VALUE_ITERATOR;
}

bool value_is_number(struct value value)
{
    return value.kind == VALUE_BOOL || value.kind == VALUE_INT || value.kind == VALUE_FLOAT;
}

double value_as_double(struct value number)
{
    if (number.kind == VALUE_FLOAT)
        return number.real;
    return number.kind == VALUE_BOOL ? (double)number.boolean : (double)number.integer;
}

bool value_is_text(struct value value, const char *text)
{
    return value.kind == VALUE_STRING && value.text.length == strlen(text) &&
           memcmp(value.text.bytes, text, value.text.length) == 0;
}

struct value_sequence *value_sequence_make(struct arena *arena, const char *type, size_t capacity)
{
    struct value_sequence *made = arena_take(arena, sizeof *made);
    if (!made || capacity > SIZE_MAX / sizeof *made->items)
        return NULL;
    made->type = type;
    made->items = arena_take(arena, capacity * sizeof *made->items);
    return made->items ? made : NULL;
}

struct value_dict *value_dict_make(struct arena *arena, size_t capacity)
{
    struct value_dict *made = arena_take(arena, sizeof *made);
    if (!made || capacity > SIZE_MAX / sizeof *made->entries)
        return NULL;
    made->capacity = capacity;
    made->entries = arena_take(arena, capacity * sizeof *made->entries);
    return made->entries ? made : NULL;
}

bool value_dict_add(struct arena *arena, struct value_dict *dict, struct value key,
                    struct value value)
{
    if (dict->count == dict->capacity) {
        size_t capacity = 2 * dict->capacity + 4;
        struct value_entry *entries = arena_take(arena, capacity * sizeof *entries);
        if (!entries)
            return false;
        memcpy(entries, dict->entries, dict->count * sizeof *entries);
        dict->entries = entries;
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (struct value_entry){key, value};
    return true;
}

bool value_dict_put(struct arena *arena, struct value_dict *dict, struct value key,
                    struct value value, uint64_t *steps)
{
    struct value *there = (struct value *)value_dict_find(dict, key, steps);
    if (!there)
        return value_dict_add(arena, dict, key, value);
    *there = value;
    return true;
}

const struct value *value_dict_find(const struct value_dict *dict, struct value key,
                                    uint64_t *steps)
{
    for (size_t i = 0; i < dict->count && *steps; i++)
        if (value_equal(dict->entries[i].key, key, steps))
            return &dict->entries[i].value;
    return NULL;
}

void value_spend(uint64_t *steps, uint64_t count)
{
    *steps -= count < *steps ? count : *steps;
}

bool value_truth(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return value.boolean;
    case VALUE_INT: return value.integer != 0;
    case VALUE_FLOAT: return value.real != 0;
    case VALUE_STRING: return value.text.length > 0;
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE:
    case VALUE_VIEW: return value.sequence->count > 0;
    case VALUE_DICT: return value.dict->count > 0;
    default: return true;
    }
}

static bool equal_at(struct value a, struct value b, uint64_t *steps, int depth);

static bool equal_sequences(const struct value_sequence *a, const struct value_sequence *b,
                            uint64_t *steps, int depth)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!equal_at(a->items[i], b->items[i], steps, depth))
            return false;
    return true;
}

/* The order of entries doesn't count, as in Python. */
static bool equal_dicts(const struct value_dict *a, const struct value_dict *b, uint64_t *steps,
                        int depth)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct value *other = value_dict_find(b, a->entries[i].key, steps);
        if (!other || !equal_at(a->entries[i].value, *other, steps, depth))
            return false;
    }
    return true;
}

static bool equal_at(struct value a, struct value b, uint64_t *steps, int depth)
{
    value_spend(steps, 1);
    if (depth == VALUE_LIMIT_DEPTH || !*steps)
        return false;
    if (value_is_number(a) && value_is_number(b)) {
        if (a.kind == VALUE_FLOAT || b.kind == VALUE_FLOAT)
            return value_as_double(a) == value_as_double(b);
        int64_t left = a.kind == VALUE_BOOL ? a.boolean : a.integer;
        return left == (b.kind == VALUE_BOOL ? b.boolean : b.integer);
    }
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_STRING:
        if (a.text.length != b.text.length)
            return false;
        value_spend(steps, a.text.length / 64);
        return a.text.bytes == b.text.bytes || !memcmp(a.text.bytes, b.text.bytes, a.text.length);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_RANGE: return equal_sequences(a.sequence, b.sequence, steps, depth + 1);
    case VALUE_DICT: return a.dict == b.dict || equal_dicts(a.dict, b.dict, steps, depth + 1);
    default: return value_same(a, b);
    }
}

bool value_equal(struct value a, struct value b, uint64_t *steps)
{
    return equal_at(a, b, steps, 0);
}

bool value_same(struct value a, struct value b)
{
    uint64_t steps = UINT64_MAX;
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_STRING:
    case VALUE_INT:
    case VALUE_FLOAT:
    case VALUE_BOOL: return value_equal(a, b, &steps); /* small integers are one object in Python */
    case VALUE_NONE: return true;
    case VALUE_METHOD: return a.method->method == b.method->method;
    case VALUE_FUNCTION: return a.function == b.function;
    case VALUE_MACRO: return a.macro == b.macro;
    case VALUE_LOOP: return a.loop == b.loop;
    case VALUE_DICT:
    case VALUE_NAMESPACE: return a.dict == b.dict;
    case VALUE_ABSENT:
    case VALUE_UNDEFINED: return a.undefined == b.undefined;
    default: return a.sequence == b.sequence;
    }
}

const char *value_type_name(struct value value)
{
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED: return "Undefined";
    case VALUE_NONE: return "NoneType";
    case VALUE_BOOL: return "bool";
    case VALUE_INT: return "int";
    case VALUE_FLOAT: return "float";
    case VALUE_STRING: return value.is_markup ? "Markup" : "str";
    case VALUE_DICT: return "dict";
    case VALUE_NAMESPACE: return "Namespace";
    case VALUE_MACRO: return "Macro";
    case VALUE_LOOP: return "LoopContext";
    case VALUE_METHOD: return "builtin_function_or_method";
    case VALUE_FUNCTION: return "function";
    default: return value.sequence->type;
    }
}

const char *value_object_name(struct value value)
{
    switch (value.kind) {
    case VALUE_NONE: return "None";
    case VALUE_BOOL: return "bool object";
    case VALUE_INT: return "int object";
    case VALUE_FLOAT: return "float object";
    case VALUE_STRING: return value.is_markup ? "markupsafe.Markup object" : "str object";
    case VALUE_LIST: return "list object";
    case VALUE_TUPLE: return "tuple object";
    case VALUE_RANGE: return "range object";
    case VALUE_DICT: return "dict object";
    case VALUE_NAMESPACE: return "jinja2.utils.Namespace object";
    case VALUE_MACRO: return "jinja2.runtime.Macro object";
    case VALUE_LOOP: return "jinja2.runtime.LoopContext object";
    case VALUE_METHOD: return "builtin_function_or_method object";
    case VALUE_FUNCTION: return "function object";
    case VALUE_VIEW:
        if (!strcmp(value.sequence->type, "dict_keys"))
            return "dict_keys object";
        return !strcmp(value.sequence->type, "dict_items") ? "dict_items object"
                                                           : "dict_values object";
    default: return "generator object";
    }
}

#define FIRST_CAPACITY 64

void text_builder_init(struct text_builder *builder, struct arena *arena, size_t limit)
{
    *builder = (struct text_builder){.arena = arena, .limit = limit};
}

static bool grow(struct text_builder *builder, size_t length)
{
    size_t capacity = builder->capacity ? builder->capacity : FIRST_CAPACITY;
    while (capacity < length)
        capacity *= 2;
    char *bytes = arena_take(builder->arena, capacity);
    uint8_t *marks = builder->marks ? arena_take(builder->arena, capacity) : NULL;
    if (!bytes || (builder->marks && !marks))
        return false;
    if (builder->length)
        memcpy(bytes, builder->bytes, builder->length);
    if (marks)
        memcpy(marks, builder->marks, builder->length);
    builder->bytes = bytes;
    builder->marks = marks;
    builder->capacity = capacity;
    return true;
}

/* Makes room for `count` more bytes, and for marks when they are of another kind than the bytes
 * before. */
static bool prepare(struct text_builder *builder, size_t count, bool mixed, bool is_input)
{
    if (builder->full || count > builder->limit - builder->length) {
        builder->full = true;
        return false;
    }
    if (builder->length + count > builder->capacity && !grow(builder, builder->length + count)) {
        builder->full = true;
        return false;
    }
    if (builder->length == 0)
        builder->is_input = is_input;
    if (builder->marks || (!mixed && is_input == builder->is_input))
        return true;
    builder->marks = arena_take(builder->arena, builder->capacity);
    if (builder->marks)
        memset(builder->marks, builder->is_input, builder->length);
    builder->full = !builder->marks;
    return !builder->full;
}

void text_builder_add(struct text_builder *builder, const char *bytes, size_t length, bool is_input)
{
    if (length == 0 || !prepare(builder, length, false, is_input))
        return;
    memcpy(builder->bytes + builder->length, bytes, length);
    if (builder->marks)
        memset(builder->marks + builder->length, is_input, length);
    builder->length += length;
}

void text_builder_literal(struct text_builder *builder, const char *text)
{
    text_builder_add(builder, text, strlen(text), false);
}

void text_builder_string(struct text_builder *builder, struct value string)
{
    if (!string.text.marks) {
        text_builder_add(builder, string.text.bytes, string.text.length, string.is_input);
        return;
    }
    if (string.text.length == 0 || !prepare(builder, string.text.length, true, false))
        return;
    memcpy(builder->bytes + builder->length, string.text.bytes, string.text.length);
    memcpy(builder->marks + builder->length, string.text.marks, string.text.length);
    builder->length += string.text.length;
}

void text_builder_character(struct text_builder *builder, uint32_t code, struct value string,
                            size_t at)
{
    char bytes[4];
    text_builder_add(builder, bytes, utf8_put(code, bytes), text_is_input(string, at));
}

void text_builder_fill(struct text_builder *builder, char byte, size_t count, bool is_input)
{
    if (count == 0 || !prepare(builder, count, false, is_input))
        return;
    memset(builder->bytes + builder->length, byte, count);
    if (builder->marks)
        memset(builder->marks + builder->length, is_input, count);
    builder->length += count;
}

struct value text_builder_finish(const struct text_builder *builder)
{
    struct value made = value_string(builder->bytes ? builder->bytes : "", builder->length,
                                     builder->length && builder->is_input);
    made.text.marks = builder->marks;
    return made;
}

bool text_is_input(struct value string, size_t at)
{
    return string.text.marks ? string.text.marks[at] : string.is_input;
}
