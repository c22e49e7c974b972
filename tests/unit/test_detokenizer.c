/* detokenizer: whole characters only, U+FFFD for what never becomes one, streams equal to the whole. */
#include "common/base/rng.h"
#include "common/text/detokenizer.h"
#include "tests/unit/tokenizer_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* Id = byte, 300 is special, 301 is text that no byte-level alphabet spells, 302..399 are holes but for 399. */
static struct tokenizer *opened(void)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {""};
    struct tokenizer_file file = {
        .added_tokens = "[{\"id\":300,\"content\":\"<a>\",\"special\":true},"
                        "{\"id\":301,\"content\":\"\\u4e00 x\"},{\"id\":399,\"content\":\"<z>\"}]"};
    if (tokenizer_file_open(&file, &tokenizer, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return tokenizer;
}

static void test_pieces_are_whole_characters(void **state)
{
    (void)state;
    struct tokenizer *t = opened();
    struct detokenizer d;
    struct str out;
    static const struct {
        uint32_t id;
        const char *piece;
    } steps[] = {
        {'h', "h"},
        {0xC3, ""},
        {0xA9, "\xc3\xa9"},
        {0xF0, ""},
        {0x9F, ""},
        {0x99, ""},
        {0x82, "\xf0\x9f\x99\x82"},
        {0xE2, ""},
        {0x82, ""},
        {'x', UTF8_REPLACEMENT "x"},
        {0x80, UTF8_REPLACEMENT},
        {0xF0, ""},
        {0x80, UTF8_REPLACEMENT UTF8_REPLACEMENT},
        {0xC3, ""},
        {0xC3, UTF8_REPLACEMENT},
        {300, ""},
        {0xA9, "\xc3\xa9"},
        {350, ""},
        {1000000, ""},
        {301, "\xe4\xb8\x80 x"},
        {399, "<z>"},
        {0xE2, ""},
    };
    detokenizer_init(&d, t, true);
    str_init(&out, 100);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        str_clear(&out);
        detokenizer_push(&d, steps[i].id, &out);
        assert_string_equal(out.data, steps[i].piece);
    }
    str_clear(&out);
    detokenizer_flush(&d, &out);
    assert_string_equal(out.data, UTF8_REPLACEMENT);
    detokenizer_flush(&d, &out); /* nothing is left */
    assert_int_equal(out.length, 3);
    str_deinit(&out);
    tokenizer_close(t);
}

static void test_special_tokens_break_a_character_when_shown(void **state)
{
    (void)state;
    struct tokenizer *t = opened();
    struct str out;
    static const uint32_t ids[] = {0xC3, 300, 0xA9};
    str_init(&out, 100);
    assert_int_equal(detokenizer_decode(t, ids, 3, true, &out, NULL), STATUS_OK);
    assert_string_equal(out.data, "\xc3\xa9");
    str_clear(&out);
    assert_int_equal(detokenizer_decode(t, ids, 3, false, &out, NULL), STATUS_OK);
    assert_string_equal(out.data, UTF8_REPLACEMENT "<a>" UTF8_REPLACEMENT);
    str_deinit(&out);
    tokenizer_close(t);
}

static void test_decode_checks_ids_and_room(void **state)
{
    (void)state;
    struct tokenizer *t = opened();
    struct str out;
    struct error err;
    static const uint32_t ids[] = {'a', 399, 400};
    str_init(&out, 4);
    assert_int_equal(detokenizer_decode(t, ids, 2, true, &out, &err), STATUS_OK);
    assert_string_equal(out.data, "a<z>");
    assert_int_equal(detokenizer_decode(t, ids, 3, true, &out, &err), STATUS_INVALID);
    assert_string_equal(err.text, "token id 400 is not below the vocabulary's 400");
    assert_int_equal(detokenizer_decode(t, ids, 2, true, &out, &err), STATUS_LIMIT);
    str_deinit(&out);
    tokenizer_close(t);
}

/* Repairs the whole byte string at once: the reference for random streams. */
static void repair(const char *bytes, size_t count, struct str *out)
{
    for (size_t at = 0; at < count;) {
        struct utf8_char next = utf8_next(bytes + at, count - at);
        if (next.kind == UTF8_WHOLE)
            str_append(out, bytes + at, next.length);
        else
            str_add(out, UTF8_REPLACEMENT);
        at += next.length;
    }
}

static void test_random_streams(void **state)
{
    (void)state;
    struct tokenizer *t = opened();
    struct rng rng = rng_seeded(11);
    static const unsigned char bytes[] = {'a',  0xC3, 0xA9, 0xE2, 0x82, 0xAC,
                                          0xF0, 0x9F, 0x80, 0xED, 0xA0, 0xFF};
    for (int round = 0; round < 2000; round++) {
        struct str raw, expected, stream;
        struct detokenizer d;
        str_init(&raw, 1000);
        str_init(&expected, 1000);
        str_init(&stream, 1000);
        detokenizer_init(&d, t, false);
        for (uint64_t n = rng_below(&rng, 20); n; n--) {
            uint32_t id = rng_below(&rng, 8) ? bytes[rng_below(&rng, sizeof bytes)] : 301;
            size_t length, before = stream.length;
            const char *token = tokenizer_token_bytes(t, id, &length);
            str_append(&raw, token, length);
            detokenizer_push(&d, id, &stream);
            assert_true(utf8_valid(stream.data + before, stream.length - before, NULL));
        }
        detokenizer_flush(&d, &stream);
        repair(raw.data, raw.length, &expected);
        assert_string_equal(stream.data, expected.data);
        str_deinit(&raw);
        str_deinit(&expected);
        str_deinit(&stream);
    }
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_whole_characters),
        cmocka_unit_test(test_special_tokens_break_a_character_when_shown),
        cmocka_unit_test(test_decode_checks_ids_and_room),
        cmocka_unit_test(test_random_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
