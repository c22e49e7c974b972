/* A copy of a golden model's folder with one error in it. For tests: any failure fails the running
 * cmocka test. */
#ifndef BATON_TESTS_UNIT_MODEL_MUTATION_H
#define BATON_TESTS_UNIT_MODEL_MUTATION_H

#include <ctype.h>
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum mutation_kind {
    KEEP,   /* nothing is wrong */
    SWAP,   /* the first `from` in the file becomes `to` */
    HEADER, /* the same in a safetensors header; its length stays right */
    WHOLE,  /* the file is `to` */
    LENGTH, /* the header's length, the first 8 bytes, becomes `number` */
    /* only the first `number` bytes stay; below 0: the last -`number` bytes are cut off */
    CUT,
    GROW,   /* `number` bytes more, all zero */
    FLIP,   /* byte `number` changes */
    NEST,   /* the file is `number` opening brackets */
    BLANKS, /* the file is `number` blanks */
    REMOVE,
    FOLDER, /* a folder in the file's place */
    FIFO,
};

struct mutation {
    enum mutation_kind kind;
    const char *file, *from, *to;
    long long number;
};

struct model_bytes {
    char *data;
    size_t length;
};

static inline struct model_bytes model_read(const char *folder, const char *name)
{
    char path[512];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &info) != 0)
        fail_msg("%s can't be read", path);
    struct model_bytes bytes = {malloc((size_t)info.st_size + 1), (size_t)info.st_size};
    assert_non_null(bytes.data);
    assert_int_equal(fread(bytes.data, 1, bytes.length, file), bytes.length);
    bytes.data[bytes.length] = '\0';
    fclose(file);
    return bytes;
}

static inline void model_write(const char *folder, const char *name, const void *data,
                               size_t length)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* The text in the first `length` bytes; behind `skip`. */
static inline char *model_find(struct model_bytes bytes, size_t skip, size_t length,
                               const char *text)
{
    char *found = memmem(bytes.data + skip, length, text, strlen(text));
    if (!found)
        fail_msg("there is no \"%s\" to change", text);
    return found;
}

static inline void model_swap(const char *folder, const struct mutation *m)
{
    struct model_bytes bytes = model_read(folder, m->file);
    uint64_t header = 0;
    size_t skip = m->kind == HEADER ? sizeof header : 0, length = bytes.length;
    if (m->kind == HEADER) {
        memcpy(&header, bytes.data, sizeof header);
        length = header;
    }
    char *at = model_find(bytes, skip, length, m->from);
    size_t before = (size_t)(at - bytes.data), cut = strlen(m->from), put = strlen(m->to);
    char *changed = malloc(bytes.length + put);
    assert_non_null(changed);
    memcpy(changed, bytes.data, before);
    memcpy(changed + before, m->to, put);
    memcpy(changed + before + put, at + cut, bytes.length - before - cut);
    header += put - cut;
    if (m->kind == HEADER)
        memcpy(changed, &header, sizeof header);
    model_write(folder, m->file, changed, bytes.length - cut + put);
    free(changed);
    free(bytes.data);
}

static inline void model_resize(const char *folder, const struct mutation *m)
{
    struct model_bytes bytes = model_read(folder, m->file);
    size_t length = bytes.length + (m->kind == GROW ? (size_t)m->number : 0);
    bytes.data = realloc(bytes.data, length + 1);
    assert_non_null(bytes.data);
    memset(bytes.data + bytes.length, 0, length - bytes.length);
    if (m->kind == CUT)
        length = m->number < 0 ? length - (size_t)-m->number : (size_t)m->number;
    if (m->kind == LENGTH)
        memcpy(bytes.data, &m->number, sizeof m->number);
    if (m->kind == FLIP)
        bytes.data[m->number] = (char)(bytes.data[m->number] ^ 0x80);
    model_write(folder, m->file, bytes.data, length);
    free(bytes.data);
}

static inline void model_mutate(const char *folder, const struct mutation *m)
{
    char path[512], *filled;
    snprintf(path, sizeof path, "%s/%s", folder, m->file ? m->file : "");
    switch (m->kind) {
    case KEEP: break;
    case SWAP:
    case HEADER: model_swap(folder, m); break;
    case WHOLE: model_write(folder, m->file, m->to, strlen(m->to)); break;
    case LENGTH:
    case CUT:
    case GROW:
    case FLIP: model_resize(folder, m); break;
    case NEST:
    case BLANKS:
        filled = malloc((size_t)m->number);
        assert_non_null(filled);
        memset(filled, m->kind == NEST ? '[' : ' ', (size_t)m->number);
        model_write(folder, m->file, filled, (size_t)m->number);
        free(filled);
        break;
    case REMOVE: assert_int_equal(unlink(path), 0); break;
    case FOLDER:
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0755), 0);
        break;
    case FIFO:
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        break;
    }
}

static inline void model_clear(const char *folder)
{
    DIR *listed = opendir(folder);
    assert_non_null(listed);
    for (struct dirent *entry; (entry = readdir(listed));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.' && unlink(path) != 0)
            assert_int_equal(rmdir(path), 0);
    }
    closedir(listed);
}

/* The folder of this test program, for cmocka_run_group_tests(tests, model_folder_make,
 * model_folder_drop). */
static char model_folder[] = "/tmp/baton_test_model_XXXXXX";

static inline int model_folder_make(void **state)
{
    (void)state;
    return mkdtemp(model_folder) ? 0 : -1;
}

static inline int model_folder_drop(void **state)
{
    (void)state;
    model_clear(model_folder);
    return rmdir(model_folder);
}

/* `folder` becomes a copy of tests/golden/models/`model`. */
static inline void model_copy(const char *model, const char *folder)
{
    char source[256];
    snprintf(source, sizeof source, "tests/golden/models/%s", model);
    model_clear(folder);
    DIR *listed = opendir(source);
    assert_non_null(listed);
    for (struct dirent *entry; (entry = readdir(listed));) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "golden.json") == 0)
            continue;
        struct model_bytes bytes = model_read(source, entry->d_name);
        model_write(folder, entry->d_name, bytes.data, bytes.length);
        free(bytes.data);
    }
    closedir(listed);
}

#endif
