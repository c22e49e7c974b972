#include "tests/fuzz/fuzz.h"

#include "common/base/log.h"
#include "common/base/utf8.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Noreturn void fuzz_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: property does not hold: %s\n", file, line, condition);
    abort();
}

static bool is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

void fuzz_check_sentence(const char *text)
{
    size_t count = strlen(text);
    FUZZ_CHECK(count);
    for (size_t at = 0; at < count;) {
        struct utf8_char next = utf8_next(text + at, count - at);
        if (next.kind != UTF8_WHOLE || is_control(next.code)) {
            fprintf(stderr, "byte %zu of \"%s\"\n", at, text);
            FUZZ_CHECK(next.kind == UTF8_WHOLE);
            FUZZ_CHECK(!is_control(next.code));
        }
        at += next.length;
    }
}

uint8_t fuzz_take_u8(struct fuzz_input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

uint32_t fuzz_take_u32(struct fuzz_input *input)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)fuzz_take_u8(input) << 8 * i;
    return value;
}

size_t fuzz_take_below(struct fuzz_input *input, size_t bound)
{
    return fuzz_take_u8(input) % bound;
}

struct fuzz_bytes fuzz_take_piece(struct fuzz_input *input)
{
    size_t size = fuzz_take_u8(input);
    size |= (size_t)fuzz_take_u8(input) << 8;
    size_t left = (size_t)(input->end - input->at);
    struct fuzz_bytes piece = {input->at, size < left ? size : left};
    input->at += piece.size;
    return piece;
}

struct fuzz_bytes fuzz_take_rest(struct fuzz_input *input)
{
    struct fuzz_bytes rest = {input->at, (size_t)(input->end - input->at)};
    input->at = input->end;
    return rest;
}

char *fuzz_copy_text(struct fuzz_bytes bytes)
{
    char *text = malloc(bytes.size + 1);
    FUZZ_CHECK(text);
    memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = 0;
    return text;
}

void fuzz_setenv(const char *name, const char *value)
{
    static char *entries[16]; /* "NAME=value", one for each name */
    size_t length = strlen(name), slot = 0, bytes = length + strlen(value) + 2;
    while (slot < 16 && entries[slot] &&
           (strncmp(entries[slot], name, length) != 0 || entries[slot][length] != '='))
        slot++;
    FUZZ_CHECK(slot < 16);
    char *entry = malloc(bytes), *old = entries[slot];
    FUZZ_CHECK(entry);
    snprintf(entry, bytes, "%s=%s", name, value);
    FUZZ_CHECK(putenv(entry) == 0);
    entries[slot] = entry;
    free(old);
}

static char folder[64];

static void remove_folder(void)
{
    DIR *open = opendir(folder);
    for (struct dirent *entry; open && (entry = readdir(open));)
        unlinkat(dirfd(open), entry->d_name, 0);
    if (open)
        closedir(open);
    rmdir(folder);
}

const char *fuzz_folder(void)
{
    if (!*folder) {
        struct stat info;
        const char *memory = stat("/dev/shm", &info) == 0 ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof folder, "%s/baton-fuzz-XXXXXX", memory);
        FUZZ_CHECK(mkdtemp(folder));
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_write(const char *name, struct fuzz_bytes bytes)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(write(fd, bytes.data, bytes.size) == (ssize_t)bytes.size);
    close(fd);
    return path;
}

void fuzz_quiet(void)
{
    log_init("fuzz", (enum log_level)(LOG_ERROR + 1));
}
