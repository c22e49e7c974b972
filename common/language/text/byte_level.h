/* The alphabet of byte-level BPE (GPT-2): tokenizer.json spells each byte as one visible character,
 * so that a space is "Ġ" and a newline "Ċ". Here text is bytes; spellings are turned back when a
 * file is loaded. Pure. */
#ifndef BATON_LANGUAGE_TEXT_BYTE_LEVEL_H
#define BATON_LANGUAGE_TEXT_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the bytes that `spelling` (valid UTF-8, `length` bytes) stands for: at most `length` of
 * them. False where a character isn't of the alphabet; *count is written only on success. */
bool byte_level_read(const char *spelling, size_t length, char *bytes, size_t *count);

#endif
