/* Text as Python writes, cuts and counts it: str, repr, json.dumps. */
#ifndef BATON_LANGUAGE_TEMPLATE_PYTHON_TEXT_H
#define BATON_LANGUAGE_TEMPLATE_PYTHON_TEXT_H

#include "common/language/template/value.h"

struct run;

bool python_is_space(uint32_t code); /* str.isspace of one character */
/* Returns the length without white space at the end. The text is valid UTF-8. */
size_t python_stripped_length(const char *text, size_t length);
size_t python_length(struct value string); /* characters */
/* Returns the offset of the character number `index`, or the length of the string beyond its end.
 */
size_t python_offset(struct value string, size_t index);
/* Returns the length in bytes of a line end of str.splitlines at `at` ("\n", "\r\n" and others); 0:
 * none. */
size_t python_line_end(const char *text, size_t length, size_t at);

/* Append str(value) and repr(value). */
void python_str(struct run *run, struct text_builder *out, struct value value);
void python_repr(struct run *run, struct text_builder *out, struct value value);
struct value python_string_of(struct run *run, struct value value); /* str(value) */
/* Writes repr(float) in its shortest form: at most 32 bytes. */
void python_float(char out[64], double number);

struct python_json {
    struct value indent;         /* NONE: all on one line; an integer (spaces) or a string */
    struct value item_separator; /* strings */
    struct value key_separator;
    bool ensure_ascii, sort_keys;
};

/* Writes as json.dumps. transformers' tojson uses ensure_ascii=False, ", " and ": ", keys in their
 * order. Fails with Python's sentence for values that JSON doesn't have. */
void python_json(struct run *run, struct text_builder *out, struct value value,
                 const struct python_json *style);

#endif
