/* Shared by the tests of safetensors: a folder in /tmp, files written into it from a header and
 * counted bytes, and the sentence that refuses a folder. */
#ifndef BATON_TESTS_SAFETENSORS_FIXTURE_H
#define BATON_TESTS_SAFETENSORS_FIXTURE_H

#include "common/engine/model/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/baton_test_safetensors_XXXXXX";
static const char *const NAMES[] = {"model.safetensors", "model.safetensors.index.json",
                                    "a.safetensors", "b.safetensors"};

static inline void path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", folder, name);
}

static inline void write_bytes(const char *name, const void *bytes, size_t count)
{
    char path[256];
    path_of(name, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Writes a file with this header and `data_bytes` of data: byte i is i. */
static inline size_t make_file(const char *header, size_t data_bytes, unsigned char file[4096])
{
    uint64_t length = strlen(header);
    assert_true(8 + length + data_bytes <= 4096);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + length + i] = (unsigned char)i;
    return 8 + length + data_bytes;
}

static inline void write_file(const char *name, const char *header, size_t data_bytes)
{
    unsigned char file[4096];
    write_bytes(name, file, make_file(header, data_bytes, file));
}

static inline void remove_files(void)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char path[256];
        path_of(NAMES[i], path);
        unlink(path);
    }
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static inline int drop_folder(void **state)
{
    (void)state;
    remove_files();
    return rmdir(folder);
}

static inline struct safetensors *open_folder(void)
{
    struct safetensors *tensors;
    struct error err;
    if (safetensors_open(folder, &tensors, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return tensors;
}

/* The sentence is "FOLDER/" and then `sentence`. */
static inline void expect_refusal(enum status status, const char *sentence)
{
    struct safetensors *tensors;
    struct error err = {0};
    char expected[1024];
    enum status found = safetensors_open(folder, &tensors, &err);
    snprintf(expected, sizeof expected, "%s%s", folder, sentence);
    assert_string_equal(err.text, expected);
    assert_int_equal(found, status);
}

#define A          "\"a\": {\"dtype\": \"BF16\", \"shape\": [2, 3], \"data_offsets\": [0, 12]}"
#define B          "\"b\": {\"dtype\": \"BF16\", \"shape\": [4], \"data_offsets\": [12, 20]}"
#define B0         "\"b\": {\"dtype\": \"BF16\", \"shape\": [4], \"data_offsets\": [0, 8]}"
#define C          "\"c\": {\"dtype\": \"I32\", \"shape\": [], \"data_offsets\": [20, 24]}"
#define HEAD(rest) "{\"__metadata__\": {\"format\": \"pt\"}, " rest "}"

#endif
