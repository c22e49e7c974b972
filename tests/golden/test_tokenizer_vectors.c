/* Compares the tokenizer with the `tokenizers` package: every vector, both ways, at once and
 * streamed. */
#include "common/base/json/json.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/text/detokenizer.h"
#include "common/language/text/tokenizer.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER      "tests/golden/tokenizers/"
#define LIMIT_BYTES (4u << 20)
#define LIMIT_IDS   100000

static struct tokenizer *opened(const char *path)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {""};
    if (tokenizer_open(path, &tokenizer, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return tokenizer;
}

static struct json *read_json(const char *path)
{
    struct json *json = NULL;
    struct error err = {""};
    struct json_limits limits = {.max_bytes = LIMIT_BYTES, .max_depth = 8};
    if (json_read_file(path, limits, &json, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return json;
}

static void encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool special,
                   struct token_ids *ids)
{
    struct error err = {""};
    token_ids_init(ids, LIMIT_IDS);
    if (tokenizer_encode(tokenizer, text, length, special, ids, &err) != STATUS_OK)
        fail_msg("\"%s\": %s", text, err.text);
}

static void check_ids(const struct token_ids *ids, const struct json_value *expected,
                      const char *text)
{
    if (ids->count != json_count(expected))
        fail_msg("\"%s\": %zu ids instead of %zu", text, ids->count, json_count(expected));
    for (size_t i = 0; i < ids->count; i++) {
        int64_t id;
        assert_int_equal(json_as_i64(json_at(expected, i), 0, INT32_MAX, &id, NULL), STATUS_OK);
        if (id != ids->data[i])
            fail_msg("\"%s\": id %zu is %u instead of %" PRId64, text, i, ids->data[i], id);
    }
}

/* Checks decode, and the same text from a stream. Every piece of the stream is whole characters. */
static void check_text(const struct tokenizer *tokenizer, const struct token_ids *ids,
                       const char *expected, size_t length)
{
    struct str text, stream;
    str_init(&text, LIMIT_BYTES);
    str_init(&stream, LIMIT_BYTES);
    assert_int_equal(detokenizer_decode(tokenizer, ids->data, ids->count, false, &text, NULL),
                     STATUS_OK);
    if (text.length != length || memcmp(text.data, expected, length) != 0)
        fail_msg("decoded \"%s\" instead of \"%s\"", text.data, expected);
    struct detokenizer detokenizer;
    detokenizer_init(&detokenizer, tokenizer, false);
    for (size_t i = 0, sent = 0; i < ids->count; i++, sent = stream.length) {
        detokenizer_push(&detokenizer, ids->data[i], &stream);
        assert_true(utf8_valid(stream.data + sent, stream.length - sent, NULL));
    }
    detokenizer_flush(&detokenizer, &stream);
    assert_int_equal(stream.length, length);
    assert_memory_equal(stream.data, expected, length);
    str_deinit(&text);
    str_deinit(&stream);
}

static void check_vector(const struct tokenizer *tokenizer, const struct json_value *vector)
{
    const char *text, *decoded;
    size_t length, decoded_length;
    assert_int_equal(json_get_string(vector, "text", &text, &length, NULL), STATUS_OK);
    assert_int_equal(json_get_string(vector, "decoded", &decoded, &decoded_length, NULL),
                     STATUS_OK);
    struct token_ids ids, special;
    encode(tokenizer, text, length, false, &ids);
    check_ids(&ids, json_find(vector, "ids"), text);
    encode(tokenizer, text, length, true, &special);
    check_ids(&special, json_find(vector, "ids_special"), text);
    check_text(tokenizer, &ids, decoded, decoded_length);
    token_ids_deinit(&ids);
    token_ids_deinit(&special);
}

static void check_family(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    struct tokenizer *tokenizer = opened(path);
    snprintf(path, sizeof path, FOLDER "%s.vectors.json", name);
    struct json *json = read_json(path);
    size_t count = json_count(json_root(json));
    assert_true(count >= 400);
    for (size_t i = 0; i < count; i++)
        check_vector(tokenizer, json_at(json_root(json), i));
    json_destroy(json);
    tokenizer_close(tokenizer);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_family("gpt2");
}

static void test_llama3(void **state)
{
    (void)state;
    check_family("llama3");
}

static void test_qwen2(void **state)
{
    (void)state;
    check_family("qwen2");
}

static void test_llama2(void **state)
{
    (void)state;
    check_family("llama2");
}

static void test_mistral_metaspace(void **state)
{
    (void)state;
    check_family("mistral-metaspace");
}

static void test_tekken(void **state)
{
    (void)state;
    check_family("tekken");
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = calloc(1, LIMIT_BYTES);
    assert_non_null(text);
    assert_true(fread(text, 1, LIMIT_BYTES - 1, file) > 0);
    fclose(file);
    return text;
}

/* The larger files are kept compressed. */
static struct tokenizer *opened_published(const char *name)
{
    char path[256], command[512], unpacked[] = "/tmp/test_tokenizer_vectors_XXXXXX";
    snprintf(path, sizeof path, FOLDER "%s.tokenizer.json", name);
    if (access(path, F_OK) == 0)
        return opened(path);
    int fd = mkstemp(unpacked);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, "gzip -dc %s.gz >%s", path, unpacked);
    assert_int_equal(system(command), 0);
    struct tokenizer *tokenizer = opened(unpacked);
    unlink(unpacked);
    return tokenizer;
}

/* llama.cpp's files: texts between separator lines, and a line of ids for each. */
static void check_separated(const char *name, size_t expected_count)
{
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[256];
    struct tokenizer *tokenizer = opened_published(name);
    snprintf(path, sizeof path, FOLDER "%s.inp", name);
    char *texts = read_text(path), *text = texts;
    snprintf(path, sizeof path, FOLDER "%s.out", name);
    char *lines = read_text(path), *line = lines;
    size_t count = 0;
    for (char *end; (end = strstr(text, separator)); text = end + strlen(separator), count++) {
        struct token_ids ids;
        encode(tokenizer, text, (size_t)(end - text), false, &ids);
        for (size_t i = 0; i < ids.count; i++) {
            unsigned long id = strtoul(line, &line, 10);
            if (id != ids.data[i])
                fail_msg("case %zu: id %zu is %u instead of %lu", count, i, ids.data[i], id);
        }
        assert_int_equal(*line++, '\n'); /* no more ids */
        check_text(tokenizer, &ids, text, (size_t)(end - text));
        token_ids_deinit(&ids);
    }
    assert_int_equal(count, expected_count);
    assert_int_equal(*text, 0); /* the last case is empty, and so is its line */
    assert_int_equal(*line, 0);
    free(texts);
    free(lines);
    tokenizer_close(tokenizer);
}

static void test_the_real_gpt2_vocabulary(void **state)
{
    (void)state;
    check_separated("gpt-2", 46);
}

static void test_the_real_deepseek_vocabulary(void **state)
{
    (void)state;
    check_separated("deepseek-llm", 46);
}

static void test_the_real_llama_vocabulary(void **state)
{
    (void)state;
    check_separated("llama-spm", 46);
}

/* No vectors: any text comes back as it went in, and the tokens that end a turn are there. */
static void test_the_shipped_tokenizer(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = opened("deploy/local/tiny-shakespeare/tokenizer.json");
    static const char *const texts[] = {"To be, or not to be: that is the question.\n",
                                        "I'LL 1234567 \t\r\n\n  x",
                                        "caf\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x99\x82",
                                        "<|im_start|>user\nhi<|im_end|>\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct token_ids ids;
        encode(tokenizer, texts[i], strlen(texts[i]), true, &ids);
        check_text(tokenizer, &ids, texts[i], strlen(texts[i]));
        token_ids_deinit(&ids);
    }
    uint32_t id;
    assert_true(tokenizer_id_of(tokenizer, "<|endoftext|>", &id) && id == 0);
    assert_true(tokenizer_is_special(tokenizer, id));
    assert_int_equal(tokenizer_vocab_size(tokenizer), 2048);
    tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_llama2),
        cmocka_unit_test(test_mistral_metaspace),
        cmocka_unit_test(test_tekken),
        cmocka_unit_test(test_the_real_gpt2_vocabulary),
        cmocka_unit_test(test_the_real_deepseek_vocabulary),
        cmocka_unit_test(test_the_real_llama_vocabulary),
        cmocka_unit_test(test_the_shipped_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
