/* detokenizer: whole characters only, U+FFFD for bytes that never become one, streams equal to the
 * whole. */
#include "common/base/rng.h"
#include "common/language/text/detokenizer.h"
#include "tests/unit/tokenizer_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* Id = byte, 300 is special, 301 is text that no byte-level alphabet spells, 302..398 are holes. */
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

/* ByteFallback, Fuse and Strip as Llama 2 has them: ids 0..255 are the byte tokens, then "▁a", "▁",
 * "a", a special "<s>". */
static struct tokenizer *opened_with(const char *decoder)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {""};
    struct str text;
    str_init(&text, 1 << 16);
    str_addf(&text,
             "{\"added_tokens\":[{\"id\":259,\"content\":\"<s>\",\"special\":true}],\"decoder\":%s,"
             "\"model\":{\"byte_fallback\":true,\"merges\":[],\"vocab\":{\"\xe2\x96\x81"
             "a\":256,\"\xe2\x96\x81\":257,\"a\":258",
             decoder);
    for (unsigned byte = 0; byte < 256; byte++)
        str_addf(&text, ",\"<0x%02X>\":%u", byte, byte);
    str_add(&text, "}}}");
    if (tokenizer_file_open_bytes(text.data, text.length, &tokenizer, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    str_deinit(&text);
    return tokenizer;
}

/* Pushes the ids one by one, a "|" behind each, then the flush; NULL for `whole`: the same without
 * the "|". */
static void check_stream(const char *decoder, const char *ids, const char *pieces,
                         const char *whole)
{
    struct tokenizer *t = opened_with(decoder);
    struct detokenizer d;
    struct str streamed, plain, at_once;
    struct token_ids list;
    str_init(&streamed, 1000);
    str_init(&plain, 1000);
    str_init(&at_once, 1000);
    token_ids_init(&list, 100);
    detokenizer_init(&d, t, true);
    for (char *next = NULL; *ids; ids = next + (*next == ' ')) {
        uint32_t id = (uint32_t)strtoul(ids, &next, 0);
        assert_true(token_ids_push(&list, id));
        size_t before = plain.length;
        detokenizer_push(&d, id, &plain);
        str_add(&streamed, plain.data + before);
        str_add(&streamed, "|");
    }
    size_t before = plain.length;
    detokenizer_flush(&d, &plain);
    str_add(&streamed, plain.data + before);
    assert_string_equal(streamed.data, pieces);
    assert_int_equal(detokenizer_decode(t, list.data, list.count, true, &at_once, NULL), STATUS_OK);
    assert_string_equal(at_once.data, whole ? whole : plain.data);
    token_ids_deinit(&list);
    str_deinit(&at_once);
    str_deinit(&plain);
    str_deinit(&streamed);
    tokenizer_close(t);
}

#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"}"
#define LLAMA                                                                                      \
    "{\"type\":\"Sequence\",\"decoders\":[" REPLACE ",{\"type\":\"ByteFallback\"},"                \
    "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define FFFD UTF8_REPLACEMENT

static void test_byte_fallback(void **state)
{
    (void)state;
    check_stream(LLAMA, "256 256 258", "a| a|a|", NULL);
    check_stream(LLAMA, "257 257 256", "| | a|", NULL); /* one space at the start, no more */
    check_stream(LLAMA, "259 256", "|a|", NULL);        /* <s> is no text, nor the start */
    check_stream(LLAMA, "0x20 0x41", "|A|", NULL);      /* a byte's space is one too */
    check_stream(LLAMA, "0xE6 0xBC 0xA2 258", "||\xe6\xbc\xa2|a|", NULL);
    check_stream(LLAMA, "0xE6 0xBC 258", "||" FFFD FFFD "a|", NULL);
    check_stream(LLAMA, "0xE6 0xBC", "||" FFFD FFFD, NULL);
    check_stream(LLAMA, "0xFF 0x80", FFFD "|" FFFD "|", NULL);
    check_stream(LLAMA, "0xE6 259 0xBC 0xA2", "|||\xe6\xbc\xa2|", NULL);
    /* Only the whole text shows that the run is malformed. */
    check_stream(LLAMA, "0x41 0xC3 0xA9 0xC3 258", "A||\xc3\xa9||" FFFD "a|",
                 FFFD FFFD FFFD FFFD "a");
    check_stream(LLAMA, "0x41 0x80", "A|" FFFD "|", FFFD FFFD);
}

static void test_other_decoders(void **state)
{
    (void)state;
    check_stream("null", "256 258 259 257",
                 "\xe2\x96\x81"
                 "a| a|| \xe2\x96\x81|",
                 NULL);
    check_stream("null", "0x41 258", "<0x41>| a|", NULL);
    static const char metaspace[] = "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
                                    "\"prepend_scheme\":\"%s\"}";
    char decoder[128];
    snprintf(decoder, sizeof decoder, metaspace, "always");
    check_stream(decoder, "259 256 256 257", "|a| a| |", NULL);
    check_stream(decoder, "258 256", "a| a|", NULL);
    snprintf(decoder, sizeof decoder, metaspace, "never");
    check_stream(decoder, "256 256", " a| a|", NULL);
    check_stream(REPLACE, "256 0x41", " a|<0x41>|", NULL);
    check_stream("{\"type\":\"Strip\",\"content\":\"a\",\"start\":0,\"stop\":2}", "256 258 259",
                 "\xe2\x96\x81|||", NULL);
    check_stream("{\"type\":\"Fuse\"}", "256 258",
                 "\xe2\x96\x81"
                 "a|a|",
                 NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_whole_characters),
        cmocka_unit_test(test_special_tokens_break_a_character_when_shown),
        cmocka_unit_test(test_decode_checks_ids_and_room),
        cmocka_unit_test(test_random_streams),
        cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_other_decoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
