/* tokenizer.json from hostile hands: cut at every place, and with bytes changed, inserted and
 * dropped. Opening either fails with a sentence, or gives a tokenizer that works. Runs under the
 * sanitizers in the debug preset. */
#include "common/base/rng.h"
#include "common/language/text/detokenizer.h"
#include "tests/unit/tokenizer_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const struct tokenizer_file everything = {
    .added_tokens =
        "[{\"id\":300,\"content\":\"<a>\",\"special\":true,\"lstrip\":true},"
        "{\"id\":301,\"content\":\"e\\u0301\",\"normalized\":true,\"single_word\":true}]",
    .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}",
    .pre_tokenizer =
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
        "\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}]?\\\\p{L}+|\\\\p{N}{1,3}|\\\\s+(?!\\\\S)|\\\\s+\"},"
        "\"behavior\":"
        "\"Isolated\",\"invert\":false},{\"type\":\"Digits\",\"individual_digits\":true},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}]}",
    .post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<a>"
                      "\",\"type_id\":0}},"
                      "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<a>\":{"
                      "\"ids\":[300]}}}",
    .model_settings = "\"dropout\":null,\"ignore_merges\":false,\"unk_token\":null,",
    .vocab = ",\"ab\":256,\"aa\":257,\"aaa\":258",
    .merges = "[\"a b\",[\"a\",\"a\"],[\"aa\",\"a\"]]",
};

/* Encodes hard text and decodes the ids, in a stream of pieces too. */
static void use(const struct tokenizer *tokenizer)
{
    static const char text[] =
        "aab 123 <a>it's e\xcc\x81 \xe1\xa0\x8e \xf0\x9f\x99\x82\r\n \t aaab";
    struct token_ids ids;
    struct str back;
    struct error err;
    token_ids_init(&ids, 1000);
    str_init(&back, 10000);
    if (tokenizer_encode(tokenizer, text, sizeof text - 1, true, &ids, &err) == STATUS_OK &&
        detokenizer_decode(tokenizer, ids.data, ids.count, true, &back, &err) == STATUS_OK)
        assert_true(utf8_valid(back.data, back.length, NULL));
    str_deinit(&back);
    token_ids_deinit(&ids);
}

/* True when it opened. */
static bool try_open(const char *bytes, size_t length)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {""};
    if (tokenizer_file_open_bytes(bytes, length, &tokenizer, &err) != STATUS_OK) {
        assert_null(tokenizer);
        assert_true(strlen(err.text) > 30);
        return false;
    }
    use(tokenizer);
    tokenizer_close(tokenizer);
    return true;
}

static void test_cut_anywhere(void **state)
{
    (void)state;
    struct str text;
    str_init(&text, 1 << 16);
    tokenizer_file_write(&everything, &text);
    assert_true(try_open(text.data, text.length));
    for (size_t length = 0; length < text.length; length += 3)
        assert_false(try_open(text.data, length));
    str_deinit(&text);
}

static void mutate(struct str *text, struct rng *rng)
{
    static const char *const pieces[] = {
        "null", "-1", "1e999", "{}", "[]", "\"\"", "true", "4294967296", "\\u0000", "\\ud800", "}",
        "]",    "{",  "[",     ",",  ":",  "\"",   "\\",   "\xff",       "(((",     "\\\\p{",  "*",
    };
    size_t at = rng_below(rng, text->length), drop = rng_below(rng, 4);
    if (rng_below(rng, 3) == 0) {
        text->data[at] = (char)rng_next(rng);
        return;
    }
    char tail[1 << 15];
    size_t rest = text->length - at;
    drop = drop < rest ? drop : rest;
    assert_true(rest <= sizeof tail);
    memcpy(tail, text->data + at, rest);
    text->length = at;
    if (rng_below(rng, 2))
        str_add(text, pieces[rng_below(rng, sizeof pieces / sizeof *pieces)]);
    str_append(text, tail + drop, rest - drop);
}

static void test_changed_anywhere(void **state)
{
    (void)state;
    struct rng rng = rng_seeded(7);
    size_t opened = 0;
    for (int round = 0; round < 1500; round++) {
        struct str text;
        str_init(&text, 1 << 15);
        tokenizer_file_write(&everything, &text);
        for (uint64_t count = 1 + rng_below(&rng, 3); count; count--)
            mutate(&text, &rng);
        opened += try_open(text.data, text.length);
        str_deinit(&text);
    }
    assert_true(opened > 20 && opened < 1200); /* both ways were walked */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_changed_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
