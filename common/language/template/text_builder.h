/* A string in the making, in an arena: bytes, and beside them, once it has both kinds, which of
 * them came from the request. Beyond `limit` bytes, or where the arena is full, it keeps what it
 * has and is `full`. */
#ifndef BATON_LANGUAGE_TEMPLATE_TEXT_BUILDER_H
#define BATON_LANGUAGE_TEMPLATE_TEXT_BUILDER_H

#include "common/language/template/value.h"

struct text_builder {
    struct arena *arena;
    char *bytes;
    uint8_t *marks; /* NULL while all bytes are of one kind: is_input */
    size_t length, capacity, limit;
    bool is_input;
    bool full;
};

void text_builder_init(struct text_builder *builder, struct arena *arena, size_t limit);
void text_builder_add(struct text_builder *builder, const char *bytes, size_t length,
                      bool is_input);
void text_builder_literal(struct text_builder *builder, const char *text); /* NUL-terminated */
void text_builder_string(struct text_builder *builder, struct value string);
/* One character, of the same kind as the byte of `string` at `at`. */
void text_builder_character(struct text_builder *builder, uint32_t code, struct value string,
                            size_t at);
void text_builder_fill(struct text_builder *builder, char byte, size_t count, bool is_input);
/* The builder's memory becomes the string's. */
struct value text_builder_finish(const struct text_builder *builder);

/* Whether the byte at `at` came from the request. */
bool text_is_input(struct value string, size_t at);

#endif
