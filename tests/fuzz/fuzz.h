/* What the fuzz targets share. Each fuzz_<noun>.c has one entry point, LLVMFuzzerTestOneInput:
 * libFuzzer calls it in the fuzz preset, replay.c in the others. One thread, one input at a time; a
 * target keeps nothing of an input beyond its call but what its comment says. */
#ifndef BATON_TESTS_FUZZ_FUZZ_H
#define BATON_TESTS_FUZZ_FUZZ_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that must hold for every input. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fuzz_fail(__FILE__, __LINE__, #condition);                                             \
    } while (0)
_Noreturn void fuzz_fail(const char *file, int line, const char *condition);

/* A sentence for a person: not empty, valid UTF-8, no control characters. */
void fuzz_check_sentence(const char *text);

/* The input, taken apart from its front; what isn't there any more reads as zeros. */
struct fuzz_input {
    const uint8_t *at, *end;
};
struct fuzz_bytes {
    const uint8_t *data; /* never NULL */
    size_t size;
};
uint8_t fuzz_take_u8(struct fuzz_input *input);
uint32_t fuzz_take_u32(struct fuzz_input *input); /* little endian, as all numbers here */
size_t fuzz_take_below(struct fuzz_input *input, size_t bound); /* of one byte; bound 1..256 */
/* A length (u16) and so many bytes, or what is left of them. */
struct fuzz_bytes fuzz_take_piece(struct fuzz_input *input);
struct fuzz_bytes fuzz_take_rest(struct fuzz_input *input);
/* A NUL-terminated copy, cut at its first NUL; the caller frees. */
char *fuzz_copy_text(struct fuzz_bytes bytes);

/* setenv, which for the C library is to keep every value that it was ever given: here the last one
 * goes. */
void fuzz_setenv(const char *name, const char *value);

/* A folder in memory that is this process's own and goes with it. */
const char *fuzz_folder(void);
/* Writes fuzz_folder()/name and returns its path, which is valid until the next call. */
const char *fuzz_write(const char *name, struct fuzz_bytes bytes);

/* Log lines are dropped: their text is not what is tested. Call it first. */
void fuzz_quiet(void);

#endif
