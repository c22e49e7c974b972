/* Makes small tokenizer.json files for tests: 256 byte tokens (id = byte) and the case's
 * additions. */
#ifndef BATON_TESTS_TOKENIZER_FILE_H
#define BATON_TESTS_TOKENIZER_FILE_H

#include "common/base/json/json_quote.h"
#include "common/base/utf8.h"
#include "common/language/text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* JSON texts of members; NULL: a sound one. */
struct tokenizer_file {
    const char *added_tokens, *normalizer, *pre_tokenizer, *post_processor, *decoder;
    const char *model_settings; /* "\"ignore_merges\":true," */
    const char *vocab;          /* more tokens: ",\"th\":256" */
    const char *merges;
};

/* Writes the byte as byte-level BPE spells it. */
static inline uint32_t tokenizer_file_spelling(unsigned byte)
{
    if ((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD))
        return byte;
    return 0x100 + (byte <= 0x20 ? byte : byte <= 0xA0 ? byte - 0x7F + 0x21 : 0x43);
}

static inline void tokenizer_file_add_bytes(struct str *out)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char spelled[4];
        size_t length = utf8_put(tokenizer_file_spelling(byte), spelled);
        str_add(out, byte ? "," : "");
        json_quote(out, spelled, length);
        str_addf(out, ":%u", byte);
    }
}

static inline void tokenizer_file_write(const struct tokenizer_file *file, struct str *out)
{
    str_addf(out,
             "{\"version\":\"1.0\",\"added_tokens\":%s,\"normalizer\":%s,\"pre_tokenizer\":%s,",
             file->added_tokens ? file->added_tokens : "[]",
             file->normalizer ? file->normalizer : "null",
             file->pre_tokenizer ? file->pre_tokenizer
                                 : "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}");
    str_addf(out, "\"post_processor\":%s,\"decoder\":%s,\"model\":{\"type\":\"BPE\",%s\"vocab\":{",
             file->post_processor ? file->post_processor : "null",
             file->decoder ? file->decoder : "{\"type\":\"ByteLevel\"}",
             file->model_settings ? file->model_settings : "");
    tokenizer_file_add_bytes(out);
    str_addf(out, "%s},\"merges\":%s}}", file->vocab ? file->vocab : "",
             file->merges ? file->merges : "[]");
}

/* Opens these bytes as a file. */
static inline enum status tokenizer_file_open_bytes(const char *bytes, size_t length,
                                                    struct tokenizer **tokenizer, struct error *err)
{
    char path[] = "/tmp/test_tokenizer_XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, bytes, length) != (ssize_t)length)
        abort();
    close(fd);
    enum status status = tokenizer_open(path, tokenizer, err);
    unlink(path);
    return status;
}

static inline enum status tokenizer_file_open(const struct tokenizer_file *file,
                                              struct tokenizer **tokenizer, struct error *err)
{
    struct str text;
    str_init(&text, 64u << 20);
    tokenizer_file_write(file, &text);
    enum status status = tokenizer_file_open_bytes(text.data, text.length, tokenizer, err);
    str_deinit(&text);
    return status;
}

/* Encodes and compares with ids written as "104 257". */
static inline void tokenizer_check(const struct tokenizer *tokenizer, const char *text,
                                   bool special, const char *expected)
{
    struct token_ids ids;
    struct error err = {""};
    struct str got;
    token_ids_init(&ids, 1000);
    str_init(&got, 10000);
    if (tokenizer_encode(tokenizer, text, strlen(text), special, &ids, &err) != STATUS_OK)
        fail_msg("\"%s\": %s", text, err.text);
    for (size_t i = 0; i < ids.count; i++)
        str_addf(&got, "%s%u", i ? " " : "", ids.data[i]);
    assert_string_equal(got.data, expected);
    str_deinit(&got);
    token_ids_deinit(&ids);
}

#endif
