/* tokenizer: each component's rules. (Refusals: test_tokenizer_refusals.c; golden vectors:
 * tests/golden.) */
#include "common/base/clock.h"
#include "tests/unit/tokenizer_file.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static struct tokenizer *opened(struct tokenizer_file file)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {""};
    if (tokenizer_file_open(&file, &tokenizer, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return tokenizer;
}

static void test_merges_go_by_rank_then_from_the_left(void **state)
{
    (void)state;
    static const char vocab[] = ",\"aa\":256,\"aab\":257,\"bb\":258,\"aaaa\":259";
    struct tokenizer *t = opened((struct tokenizer_file){
        .vocab = vocab, .merges = "[\"#version: 0.2\",\"b b\",[\"a\",\"a\"],\"aa b\",\"aa aa\"]"});
    tokenizer_check(t, "aaa", false, "256 97");
    tokenizer_check(t, "aab", false, "257");
    tokenizer_check(t, "aabb", false, "256 258");
    tokenizer_check(t, "aaaab", false, "256 257");
    tokenizer_check(t, "", false, "");
    tokenizer_close(t);
}

static void test_ignore_merges(void **state)
{
    (void)state;
    struct tokenizer_file file = {.vocab = ",\"abc\":256"};
    struct tokenizer *t = opened(file);
    tokenizer_check(t, "abc", false, "97 98 99");
    tokenizer_close(t);
    file.model_settings = "\"ignore_merges\":true,";
    t = opened(file);
    tokenizer_check(t, "abc", false, "256");
    tokenizer_check(t, "abcd", false, "97 98 99 100");
    tokenizer_close(t);
}

/* The bound holds for texts of the longest tokens, and isn't there where parts may vanish. */
static void test_texts_that_surely_have_too_many_tokens(void **state)
{
    (void)state;
#define LONGEST ",\"abcd\":256,\"abcdefgh\":257" /* 8 bytes */
#define SPLIT_OFF(behavior)                                                                        \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"}" \
    ","                                                                                            \
    "\"behavior\":\"" behavior "\",\"invert\":false},{\"type\":\"ByteLevel\","                     \
    "\"add_prefix_space\":false}]}"
    static const struct {
        struct tokenizer_file file;
        size_t most; /* bytes of a token; 0: no bound */
    } cases[] = {
        {{.vocab = LONGEST}, 8},
        {{.vocab = ""}, 4}, /* a character without a token is at most one */
        {{.vocab = LONGEST, .normalizer = "{\"type\":\"NFC\"}"}, 32},
        {{.vocab = LONGEST, .normalizer = "{\"type\":\"Prepend\",\"prepend\":\"a\"}"}, 8},
        {{.vocab = LONGEST,
          .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}"},
         8},
        {{.vocab = LONGEST,
          .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"  \"},\"content\":\"_\"}"},
         0},
        {{.vocab = LONGEST,
          .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x+\"},\"content\":\"_\"}"},
         0},
        {{.vocab = LONGEST, .pre_tokenizer = SPLIT_OFF("Isolated")}, 8},
        {{.vocab = LONGEST, .pre_tokenizer = SPLIT_OFF("Removed")}, 0},
        {{.vocab = LONGEST, .added_tokens = "[{\"id\":300,\"content\":\"<longer than 8>\"}]"}, 15},
        {{.vocab = LONGEST, .added_tokens = "[{\"id\":300,\"content\":\"<a>\",\"lstrip\":true}]"},
         0},
        {{.vocab = LONGEST, .added_tokens = "[{\"id\":300,\"content\":\"<a>\",\"rstrip\":true}]"},
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = opened(cases[i].file);
        size_t most = cases[i].most;
        if (tokenizer_surely_exceeds(t, 10 * (most ? most : 4096), 10) ||
            tokenizer_surely_exceeds(t, 11 * most - (most > 0), 10) ||
            tokenizer_surely_exceeds(t, 11 * most, 10) != (most > 0) ||
            tokenizer_surely_exceeds(t, SIZE_MAX, 10) != (most > 0))
            fail_msg("case %zu", i);
        tokenizer_close(t);
    }
    /* A text of the longest token only. */
    struct tokenizer *t = opened(
        (struct tokenizer_file){.vocab = LONGEST, .model_settings = "\"ignore_merges\":true,"});
    tokenizer_check(t, "abcdefgh", false, "257");
    assert_false(tokenizer_surely_exceeds(t, 8, 1));
    tokenizer_close(t);
}

static void test_added_tokens(void **state)
{
    (void)state;
    struct tokenizer *t = opened((struct tokenizer_file){
        .added_tokens = "[{\"id\":300,\"content\":\"<a>\",\"special\":true},"
                        "{\"id\":301,\"content\":\"<a><b>\"},"
                        "{\"id\":302,\"content\":\"<l>\",\"lstrip\":true},"
                        "{\"id\":303,\"content\":\"<r>\",\"rstrip\":true},"
                        "{\"id\":304,\"content\":\"word\",\"single_word\":true},"
                        "{\"id\":305,\"content\":\"two words\"}]"});
    tokenizer_check(t, "x<a>y", false, "120 300 121");
    tokenizer_check(t, "<a><a><b><a>", false, "300 301 300");
    tokenizer_check(t, "<a", false, "60 97");
    tokenizer_check(t, "x \xe3\x80\x80<l> <l>y", false, "120 302 302 121");
    tokenizer_check(t, "x<r> \n y<r>", false, "120 303 121 303");
    tokenizer_check(t, "<r> <l>", false, "303 302");
    tokenizer_check(t, "word words \xc3\xa9word word.", false,
                    "304 32 119 111 114 100 115 32 195 169 119 111 114 100 32 304 46");
    tokenizer_check(t, "two words", false, "305");
    uint32_t id = 0;
    size_t length = 0;
    assert_true(tokenizer_id_of(t, "<a>", &id) && id == 300);
    assert_true(tokenizer_id_of(t, "\xc4\xa0", &id) && id == 32);
    assert_false(tokenizer_id_of(t, "<none>", &id));
    assert_true(tokenizer_is_special(t, 300));
    assert_false(tokenizer_is_special(t, 301));
    assert_false(tokenizer_is_special(t, 1000000));
    assert_int_equal(tokenizer_vocab_size(t), 306);
    assert_memory_equal(tokenizer_token_bytes(t, 305, &length), "two words", 9);
    assert_int_equal(length, 9);
    assert_null(tokenizer_token_bytes(t, 299, &length));
    assert_null(tokenizer_token_bytes(t, 306, &length));
    tokenizer_close(t);
}

/* White space that one token took along can still begin the next one. */
static void test_added_tokens_of_white_space(void **state)
{
    (void)state;
    struct tokenizer *t = opened((struct tokenizer_file){
        .added_tokens = "[{\"id\":300,\"content\":\"<r>\",\"rstrip\":true},"
                        "{\"id\":301,\"content\":\"\\n\",\"lstrip\":true,\"rstrip\":true},"
                        "{\"id\":302,\"content\":\" x\"}]"});
    tokenizer_check(t, "<r> x", false, "300 302");
    tokenizer_check(t, "<r>\n", false, "300"); /* all of it was taken */
    tokenizer_check(t, "a\n\n b", false, "97 301 98");
    tokenizer_close(t);
}

/* Searching after each of them for its trailing blanks would take minutes. */
static void test_a_long_run_of_added_tokens(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 18 };
    struct tokenizer *t = opened((struct tokenizer_file){
        .added_tokens = "[{\"id\":300,\"content\":\" \",\"rstrip\":true}]"});
    struct token_ids ids;
    struct error err = {""};
    token_ids_init(&ids, LENGTH);
    char *text = malloc(LENGTH);
    assert_non_null(text);
    memset(text, ' ', LENGTH);
    uint64_t start_us = clock_now_us();
    assert_int_equal(tokenizer_encode(t, text, LENGTH, false, &ids, &err), STATUS_OK);
    assert_true(clock_now_us() - start_us < 30u * 1000 * 1000);
    assert_int_equal(ids.count, LENGTH); /* as `tokenizers`: each begins where the text has one */
    free(text);
    token_ids_deinit(&ids);
    tokenizer_close(t);
}

static void test_normalizer_and_the_two_passes(void **state)
{
    (void)state;
    struct tokenizer *t = opened((struct tokenizer_file){
        .normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}",
        .added_tokens = "[{\"id\":300,\"content\":\"e\\u0301\",\"normalized\":true},"
                        "{\"id\":301,\"content\":\"o\\u0301\",\"normalized\":false}]"});
    tokenizer_check(t, "a\xcc\x81", false, "195 161"); /* composed */
    tokenizer_check(t, "e\xcc\x81", false, "300");     /* found in the normalized text */
    tokenizer_check(t, "\xc3\xa9", false, "300");      /* the same */
    tokenizer_check(t, "o\xcc\x81", false, "301");     /* found as it is written */
    tokenizer_check(t, "\xc3\xb3", false, "195 179");  /* so this isn't it */
    tokenizer_close(t);
}

static void test_pre_tokenizers(void **state)
{
    (void)state;
    static const char ab[] = ",\"ab\":256,\"12\":257", merges[] = "[\"a b\",\"1 2\"]";
    static const struct {
        const char *json, *text, *ids;
    } cases[] = {
        {"{\"type\":\"ByteLevel\"}", "ab", "32 256"}, /* add_prefix_space is true by default */
        {"{\"type\":\"ByteLevel\"}", " ab", "32 256"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"b\"},"
         "\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_"
         "regex\":false}]}",
         "ab ab", "97 98 32 97 98"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"\\\\s\"},"
         "\"behavior\":\"Removed\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_"
         "regex\":false}]}",
         "ab ab", "256 256"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
         "\"ab\"},"
         "\"behavior\":\"Removed\",\"invert\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":"
         "false}]}",
         "xxabyab", "256 256"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":"
         "\"a.\"},"
         "\"behavior\":\"Removed\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}",
         "aba.ab", "256 256"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":"
         "true},"
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}",
         "12ab", "49 50 256"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]}",
         "12ab", "32 257 32 256"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = opened(
            (struct tokenizer_file){.pre_tokenizer = cases[i].json, .vocab = ab, .merges = merges});
        tokenizer_check(t, cases[i].text, false, cases[i].ids);
        tokenizer_close(t);
    }
}

static void test_post_processors(void **state)
{
    (void)state;
    static const char template[] =
        "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},"
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_"
        "id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"</"
        "s>\",\"type_id\":0}}],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1,2]},\"</s>\":{\"id\":\"</"
        "s>\",\"ids\":[3]}}},"
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"b\"}},{"
        "\"Sequence\":{\"id\":\"A\"}}],"
        "\"special_tokens\":{\"b\":{\"ids\":[4]}}}]}";
    struct tokenizer *t = opened((struct tokenizer_file){.post_processor = template});
    tokenizer_check(t, "a", true, "4 1 2 97 3");
    tokenizer_check(t, "", true, "4 1 2 3");
    tokenizer_check(t, "a", false, "97");
    tokenizer_close(t);
}

static void test_bounds_of_encode(void **state)
{
    (void)state;
    struct tokenizer *t = opened((struct tokenizer_file){0});
    struct token_ids ids;
    struct error err;
    token_ids_init(&ids, 3);
    assert_int_equal(tokenizer_encode(t, "abc", 3, false, &ids, &err), STATUS_OK);
    assert_int_equal(ids.count, 3);
    assert_int_equal(tokenizer_encode(t, "a", 1, false, &ids, &err), STATUS_LIMIT);
    assert_string_equal(err.text, "the text has more than 3 tokens");
    assert_int_equal(tokenizer_encode(t, "ab\xff", 3, false, &ids, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the text isn't valid UTF-8 at byte 2");
    assert_int_equal(tokenizer_encode(t, "", 0, false, &ids, &err), STATUS_OK);
    token_ids_deinit(&ids);
    tokenizer_close(t);
}

enum { THREADS = 4, ROUNDS = 50 };

static void *encode_many(void *argument)
{
    const struct tokenizer *tokenizer = argument;
    static const char text[] = "aabb ab<a> aaaa\xcc\x81 12 abab";
    uintptr_t sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct token_ids ids;
        token_ids_init(&ids, 100);
        if (tokenizer_encode(tokenizer, text, sizeof text - 1, true, &ids, NULL) != STATUS_OK)
            return NULL;
        for (size_t k = 0; k < ids.count; k++)
            sum = sum * 31 + ids.data[k];
        token_ids_deinit(&ids);
    }
    return (void *)sum;
}

static void test_threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct tokenizer *t =
        opened((struct tokenizer_file){.normalizer = "{\"type\":\"NFC\"}",
                                       .added_tokens = "[{\"id\":300,\"content\":\"<a>\"}]",
                                       .vocab = ",\"ab\":256,\"aa\":257",
                                       .merges = "[\"a b\",\"a a\"]"});
    pthread_t threads[THREADS];
    void *expected = encode_many(t), *sum;
    assert_non_null(expected);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &sum);
        assert_ptr_equal(sum, expected);
    }
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_texts_that_surely_have_too_many_tokens),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_added_tokens_of_white_space),
        cmocka_unit_test(test_a_long_run_of_added_tokens),
        cmocka_unit_test(test_normalizer_and_the_two_passes),
        cmocka_unit_test(test_pre_tokenizers),
        cmocka_unit_test(test_post_processors),
        cmocka_unit_test(test_bounds_of_encode),
        cmocka_unit_test(test_threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
