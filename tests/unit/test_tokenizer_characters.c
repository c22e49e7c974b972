/* tokenizer: BPE of characters, in SentencePiece's style (byte fallback, unknown characters,
 * Metaspace), and how text is split. The expected values are those of `tokenizers`; tests/golden
 * compares at random. */
#include "tests/unit/tokenizer_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* A file around a model of a few characters: ids 0..3 are <unk>, <s>, "▁", and "a". */
struct characters_file {
    const char *normalizer, *pre_tokenizer, *added_tokens, *settings, *vocab, *merges;
};

#define BAR "\xe2\x96\x81"

static struct tokenizer *opened(struct characters_file file)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {""};
    struct str text;
    str_init(&text, 1 << 16);
    str_addf(&text, "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"added_tokens\":%s,\"decoder\":null,",
             file.normalizer ? file.normalizer : "null",
             file.pre_tokenizer ? file.pre_tokenizer : "null",
             file.added_tokens ? file.added_tokens : "[]");
    str_addf(&text,
             "\"model\":{%s\"vocab\":{\"<unk>\":0,\"<s>\":1,\"" BAR
             "\":2,\"a\":3,\"b\":4,\"c\":5,\" \":6,\"1\":7,\"2\":8,\"-\":9%s},\"merges\":%s}}",
             file.settings ? file.settings : "", file.vocab ? file.vocab : "",
             file.merges ? file.merges : "[]");
    if (tokenizer_file_open_bytes(text.data, text.length, &tokenizer, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    str_deinit(&text);
    return tokenizer;
}

/* Opens, encodes and compares with ids written as "104 257". */
static void check(struct characters_file file, const char *text, const char *expected)
{
    struct tokenizer *tokenizer = opened(file);
    tokenizer_check(tokenizer, text, false, expected);
    tokenizer_close(tokenizer);
}

static void test_unknown_characters(void **state)
{
    (void)state;
    static const char unk[] = "\"unk_token\":\"<unk>\",";
    static const char fused[] = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,";
    check((struct characters_file){0}, "axb\xc3\xa9", "3 4"); /* nothing stands for them */
    check((struct characters_file){.settings = unk}, "axyb\xc3\xa9z", "3 0 0 4 0 0");
    check((struct characters_file){.settings = fused}, "axyb\xc3\xa9z", "3 0 4 0");
    check((struct characters_file){.settings = fused}, "x", "0");
    check((struct characters_file){.settings = fused}, "", "");
    /* The neighbours of a dropped character meet. */
    check((struct characters_file){.vocab = ",\"ab\":10", .merges = "[\"a b\"]"}, "axb", "10");
    check((struct characters_file){.settings = unk, .vocab = ",\"ab\":10", .merges = "[\"a b\"]"},
          "axb ab", "3 0 4 6 10");
}

static void test_byte_fallback(void **state)
{
    (void)state;
    struct characters_file file = {
        .settings = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,",
        .vocab = ",\"<0xC3>\":10,\"<0xA9>\":11,\"<0x78>\":12"};
    check(file, "a\xc3\xa9", "3 10 11");
    check(file, "ax", "3 12");
    check(file, "\xc3\xa8", "0"); /* one of its bytes has no token */
    /* As `tokenizers`: a run of unknown characters goes on behind bytes, and comes after them. */
    check(file, "y\xc3\xa9z", "10 11 0");
    check(file, "y\xc3\xa9za", "10 11 0 3");
    file.settings = "\"unk_token\":\"<unk>\",\"byte_fallback\":true,";
    check(file, "y\xc3\xa9z", "10 11 0 0");
    /* Merges of byte tokens are merges. */
    file.vocab = ",\"<0xC3>\":10,\"<0xA9>\":11,\"<0xC3><0xA9>\":12";
    file.merges = "[\"<0xC3> <0xA9>\"]";
    check(file, "a\xc3\xa9\xc3\xa9", "3 12 12");
}

static void test_merges_of_a_whole_text(void **state)
{
    (void)state;
    struct characters_file file = {
        .normalizer =
            "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" BAR
            "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" BAR "\"}]}",
        .vocab = ",\"" BAR "a\":10,\"ab\":11,\"" BAR "ab\":12,\"b" BAR "\":13,\"" BAR BAR "\":14",
        .merges = "[[\"" BAR "\",\"" BAR "\"],[\"a\",\"b\"],[\"" BAR "\",\"ab\"]]"};
    check(file, "ab", "12");
    check(file, "ab ab", "12 12");
    check(file, " ab", "14 11"); /* by rank: the spaces join first */
    check(file, "  ab c", "14 12 2 5");
    check(file, "", "");
    file.merges = "[[\"b\",\"" BAR "\"],[\"a\",\"b\"]]"; /* one that reaches across words */
    check(file, "ab ab", "2 3 13 11");
    file.settings = "\"ignore_merges\":true,";
    check(file, "ab", "12");
}

static void test_metaspace(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *text, *ids;
    } cases[] = {
        /* "▁a" is 10 and "a▁" 11, which only a text that isn't split has; 20 is an added token. */
        {"\"prepend_scheme\":\"always\",\"split\":true", "a a", "10 10"},
        {"\"prepend_scheme\":\"always\",\"split\":false", "a a", "10 10"},
        {"\"prepend_scheme\":\"always\",\"split\":true", " a", "10"},
        {"\"prepend_scheme\":\"always\",\"split\":true", "  a", "2 10"},
        {"\"prepend_scheme\":\"always\",\"split\":true", "a<t>a", "10 20 10"},
        {"\"prepend_scheme\":\"first\",\"split\":true", "a<t>a a", "10 20 3 10"},
        {"\"prepend_scheme\":\"first\",\"split\":true", "<t>a", "20 3"},
        {"\"prepend_scheme\":\"never\",\"split\":true", "a<t>a a", "3 20 3 10"},
        {"\"split\":true", "a", "10"}, /* always */
        {"\"add_prefix_space\":true", "a", "10"},
        {"\"add_prefix_space\":false", "a a", "3 10"},
        {"\"prepend_scheme\":\"never\",\"split\":false", "b c", "4 12"},
        {"\"prepend_scheme\":\"never\",\"split\":true", "b c", "4 2 5"},
        {"\"prepend_scheme\":\"never\",\"split\":true", "b ", "4 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char pre_tokenizer[256];
        snprintf(pre_tokenizer, sizeof pre_tokenizer,
                 "{\"type\":\"Metaspace\",\"replacement\":\"" BAR "\",%s}", cases[i].settings);
        bool whole = strstr(cases[i].text, "b c") && strstr(cases[i].settings, "\"split\":false");
        check((struct characters_file){.pre_tokenizer = pre_tokenizer,
                                       .added_tokens = "[{\"id\":20,\"content\":\"<t>\"}]",
                                       .vocab = ",\"" BAR "a\":10,\"" BAR "c\":12",
                                       .merges = whole ? "[[\"" BAR "\",\"c\"]]"
                                                       : "[[\"" BAR "\",\"a\"]]"},
              cases[i].text, cases[i].ids);
    }
}

/* Pieces show as their first characters do: in "ab" the two join, in "a" and "b" they don't. */
static void test_split_behaviors(void **state)
{
    (void)state;
    static const struct {
        const char *behavior, *pattern, *invert, *text, *ids;
    } cases[] = {
        {"Isolated", "{\"String\":\"-\"}", "false", "aa--aa", "10 9 9 10"},
        {"Removed", "{\"String\":\"-\"}", "false", "aa--aa-", "10 10"},
        {"Removed", "{\"String\":\"-\"}", "true", "aa--aa-", "9 9 9"},
        {"MergedWithPrevious", "{\"String\":\"-\"}", "false", "a--a", "11 9 3"},
        {"MergedWithPrevious", "{\"String\":\"-\"}", "false", "-a", "9 3"},
        {"MergedWithNext", "{\"String\":\"-\"}", "false", "a--a", "3 9 12"},
        {"MergedWithNext", "{\"String\":\"-\"}", "false", "a-", "3 9"},
        {"Contiguous", "{\"String\":\"-\"}", "false", "a--a", "3 13 3"},
        {"Contiguous", "{\"String\":\"-\"}", "true", "a--a", "3 13 3"},
        {"Isolated", "{\"Regex\":\"(?=a)\"}", "false", "aa-a", "3 11 3"}, /* empty matches cut */
        {"Isolated", "{\"String\":\"\"}", "false", "aa--", "3 3 9 9"},
        {"Isolated", "{\"Regex\":\"-*\"}", "false", "aa--a", "3 3 13 3"},
        {"Isolated", "{\"Regex\":\"x\"}", "false", "aa", "10"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char pre_tokenizer[256];
        snprintf(pre_tokenizer, sizeof pre_tokenizer,
                 "{\"type\":\"Split\",\"pattern\":%s,\"behavior\":\"%s\",\"invert\":%s}",
                 cases[i].pattern, cases[i].behavior, cases[i].invert);
        check((struct characters_file){.pre_tokenizer = pre_tokenizer,
                                       .vocab = ",\"aa\":10,\"a-\":11,\"-a\":12,\"--\":13",
                                       .merges = "[\"a a\",\"- -\",\"- a\",\"a -\"]"},
              cases[i].text, cases[i].ids);
    }
}

static void test_classes_of_characters(void **state)
{
    (void)state;
    static const struct {
        const char *pre_tokenizer, *text, *ids;
    } cases[] = {
        {"{\"type\":\"Digits\",\"individual_digits\":true}", "a12a", "3 7 8 3"},
        {"{\"type\":\"Digits\",\"individual_digits\":false}", "a12a", "3 10 3"},
        {"{\"type\":\"Digits\"}", "12", "10"},
        {"{\"type\":\"Punctuation\"}", "a--a", "3 9 9 3"},
        {"{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", "a--a", "3 11 3"},
        {"{\"type\":\"Punctuation\",\"behavior\":\"Removed\"}", "a--a", "3 3"},
        {"{\"type\":\"Whitespace\"}", " a12  --a ", "14 11 3"},
        {"{\"type\":\"WhitespaceSplit\"}", " a12  --a ", "14 11 3"},
        {"{\"type\":\"Sequence\",\"pretokenizers\":[]}", "12", "10"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check(
            (struct characters_file){.pre_tokenizer = cases[i].pre_tokenizer,
                                     .vocab = ",\"12\":10,\"--\":11,\"a-\":12,\"-a\":13,\"a12\":14",
                                     .merges = "[\"1 2\",\"- -\",\"a 12\"]"},
            cases[i].text, cases[i].ids);
}

static void test_bert_processors(void **state)
{
    (void)state;
    static const char *const types[] = {"BertProcessing", "RobertaProcessing"};
    for (size_t i = 0; i < 2; i++) {
        char processor[128];
        snprintf(processor, sizeof processor,
                 "{\"type\":\"%s\",\"sep\":[\"x\",3],\"cls\":[\"y\",1]}", types[i]);
        struct tokenizer_file file = {.post_processor = processor};
        struct tokenizer *t = NULL;
        struct token_ids ids;
        token_ids_init(&ids, 10);
        assert_int_equal(tokenizer_file_open(&file, &t, NULL), STATUS_OK);
        assert_int_equal(tokenizer_encode(t, "a", 1, true, &ids, NULL), STATUS_OK);
        assert_int_equal(ids.count, 3);
        assert_true(ids.data[0] == 1 && ids.data[1] == 'a' && ids.data[2] == 3);
        token_ids_deinit(&ids);
        tokenizer_close(t);
    }
}

/* The longest text, and the longest that a normalizer may make of one. */
static void test_limits_of_texts(void **state)
{
    (void)state;
    struct tokenizer *t = opened((struct characters_file){0});
    struct token_ids ids;
    struct error err = {""};
    token_ids_init(&ids, 10);
    assert_int_equal(
        tokenizer_encode(t, "" /* not looked at */, TOKENIZER_LIMIT_TEXT + 1, false, &ids, &err),
        STATUS_LIMIT);
    assert_string_equal(err.text, "text of 67108865 bytes is over the limit of 67108864");
    tokenizer_close(t);
    struct str normalizer, text;
    str_init(&normalizer, 1 << 16);
    str_init(&text, 1 << 20);
    str_add(&normalizer, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    for (size_t i = 0; i < 1024; i++)
        str_add(&normalizer, "a");
    str_add(&normalizer, "\"}");
    for (size_t i = 0; i <= 192 * 1024; i++)
        str_add(&text, "a");
    t = opened((struct characters_file){.normalizer = normalizer.data});
    assert_int_equal(tokenizer_encode(t, text.data, text.length, false, &ids, &err), STATUS_LIMIT);
    assert_string_equal(err.text, "the normalized text is over the limit of 201326592 bytes");
    assert_int_equal(ids.count, 0);
    /* Goes on with the longest text only up to its bound, as all of it takes a minute here. */
    assert_int_equal(tokenizer_encode(t, text.data, text.length - 1, false, &ids, &err),
                     STATUS_LIMIT);
    assert_string_equal(err.text, "the text has more than 10 tokens");
    tokenizer_close(t);
    str_deinit(&text);
    str_deinit(&normalizer);
    token_ids_deinit(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_characters),     cmocka_unit_test(test_byte_fallback),
        cmocka_unit_test(test_merges_of_a_whole_text), cmocka_unit_test(test_metaspace),
        cmocka_unit_test(test_split_behaviors),        cmocka_unit_test(test_classes_of_characters),
        cmocka_unit_test(test_bert_processors),        cmocka_unit_test(test_limits_of_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
