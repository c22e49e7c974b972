/* Text as Python writes it, cuts it and counts it. */
#ifndef BATON_LANGUAGE_TEMPLATE_PYTHON_TEXT_H
#define BATON_LANGUAGE_TEMPLATE_PYTHON_TEXT_H

#include "common/language/template/text_builder.h"

struct run;

bool python_is_space(uint32_t code); /* str.isspace of one character */
/* Without the white space at the end; valid UTF-8. */
size_t python_stripped_length(const char *text, size_t length);
size_t python_length(struct value string); /* characters */
/* Where the character number `index` starts; the length of the string for its end and beyond. */
size_t python_offset(struct value string, size_t index);
/* "\n", "\r\n" and whatever else ends a line for str.splitlines, at `at`: how many bytes; 0:
 * none. */
size_t python_line_end(const char *text, size_t length, size_t at);

void python_str(struct run *run, struct text_builder *out, struct value value);
void python_repr(struct run *run, struct text_builder *out, struct value value);
struct value python_string_of(struct run *run, struct value value); /* str(value) */
/* repr(float), shortest form: at most 32 bytes. */
void python_float(char out[64], double number);

#endif
