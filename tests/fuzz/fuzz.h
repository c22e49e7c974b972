/* Shared by the fuzz targets. Each fuzz_<noun>.c has one entry point, LLVMFuzzerTestOneInput:
 * libFuzzer calls it in the fuzz preset, replay.c in the others. One thread, one input at a time. A
 * target keeps nothing of an input beyond its call, except as its comment says. */
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

/* The input, consumed from its front. After its end it reads as zeros. */
struct fuzz_input {
    const uint8_t *at, *end;
};
struct fuzz_bytes {
    const uint8_t *data; /* never NULL */
    size_t size;
};
uint8_t fuzz_take_u8(struct fuzz_input *input);
uint32_t fuzz_take_u32(struct fuzz_input *input); /* little endian, as all numbers here */
/* consumes one byte; bound 1..256 */
size_t fuzz_take_below(struct fuzz_input *input, size_t bound);
/* Consumes a length (u16) and as many bytes, or all that are left. */
struct fuzz_bytes fuzz_take_piece(struct fuzz_input *input);
struct fuzz_bytes fuzz_take_rest(struct fuzz_input *input);
/* Returns a NUL-terminated copy, cut at its first NUL. The caller frees it. */
char *fuzz_copy_text(struct fuzz_bytes bytes);

/* Like setenv, but frees the previous value. The C library's setenv keeps every value for ever. */
void fuzz_setenv(const char *name, const char *value);

/* Returns this process's own folder in memory, which is deleted at its end. */
const char *fuzz_folder(void);
/* Writes fuzz_folder()/name and returns its path, which is valid until the next call. */
const char *fuzz_write(const char *name, struct fuzz_bytes bytes);

/* Drops log lines: the targets don't test their text. Call it first. */
void fuzz_quiet(void);

#endif
