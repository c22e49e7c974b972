#include "common/language/template/text_builder.h"

#include "common/base/arena.h"
#include "common/base/utf8.h"

#include <string.h>

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

/* Room for `count` more, and marks where the new ones are of another kind than those before. */
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
