/* tokenizer.json files that can't be served: each is refused with its status and a sentence that
 * names the error. `unit_language test_tokenizer_refusals --print` shows them all. */
#include "common/language/text/vocabulary.h"
#include "tests/unit/tokenizer_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    struct tokenizer_file file;
    enum status status;
    const char *sentence;
} cases[] = {
    {{.normalizer = "{\"type\":\"Lowercase\"}"},
     STATUS_UNSUPPORTED,
     "\"normalizer\": \"Lowercase\" isn't supported (NFC, Prepend, Replace and Sequence are)"},
    {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
                    "\"Precompiled\",\"precompiled_charsmap\":\"\"}]}"},
     STATUS_UNSUPPORTED,
     "\"normalizer\": \"normalizers\"[1]: \"Precompiled\" isn't supported"},
    {{.normalizer = "{\"type\":\"Prepend\"}"},
     STATUS_NOT_FOUND,
     "\"normalizer\": \"prepend\" is missing"},
    {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a\"},\"content\":\"\"}"},
     STATUS_UNSUPPORTED,
     "\"normalizer\": the pattern (a can't be used: missing closing parenthesis"},
    {{.normalizer = "{\"type\":\"Replace\",\"pattern\":\"a\",\"content\":\"\"}"},
     STATUS_INVALID,
     "\"pattern\": expected an object, found a string"},
    {{.normalizer = "{}"}, STATUS_NOT_FOUND, "\"normalizer\": \"type\" is missing"},
    {{.normalizer = "7"}, STATUS_INVALID, "\"normalizer\": expected an object"},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\"}"},
     STATUS_NOT_FOUND,
     "\"pre_tokenizer\": \"replacement\" is missing"},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"},
     STATUS_INVALID,
     "\"replacement\" isn't one character"},
    {{.pre_tokenizer =
          "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"},
     STATUS_UNSUPPORTED,
     "\"prepend_scheme\" \"last\" isn't supported (always, first and never are)"},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
                       "\"always\",\"add_prefix_space\":false}"},
     STATUS_INVALID,
     "\"add_prefix_space\" doesn't agree with \"prepend_scheme\""},
    {{.pre_tokenizer =
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{"
          "\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"UnicodeScripts\"}]}]}"},
     STATUS_UNSUPPORTED,
     "\"pre_tokenizer\": \"pretokenizers\"[1]: \"pretokenizers\"[0]: \"UnicodeScripts\" isn't "
     "supported"},
    {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
                       "{\"type\":\"Digits\"}]}"},
     STATUS_UNSUPPORTED,
     "\"Digits\" behind ByteLevel"},
    {{.pre_tokenizer =
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Merged\"}"},
     STATUS_UNSUPPORTED,
     "\"behavior\" \"Merged\" isn't supported (Isolated, Removed, MergedWithPrevious, "
     "MergedWithNext and Contiguous are)"},
    {{.pre_tokenizer =
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}"},
     STATUS_UNSUPPORTED,
     "the pattern (a can't be used: missing closing parenthesis"},
    {{.pre_tokenizer =
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]]\"},\"behavior\":\"Isolated\"}"},
     STATUS_UNSUPPORTED,
     "a set inside a set"},
    {{.pre_tokenizer = "{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Isolated\"}"},
     STATUS_NOT_FOUND,
     "\"String\" is missing"},
    {{.decoder = "7"}, STATUS_INVALID, "\"decoder\": expected an object, found an integer"},
    {{.decoder = "{\"type\":\"WordPiece\",\"prefix\":\"##\"}"},
     STATUS_UNSUPPORTED,
     "\"decoder\": \"WordPiece\" isn't supported (ByteLevel, Metaspace, Replace, ByteFallback, "},
    {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
                 "\"ByteLevel\"}]}"},
     STATUS_UNSUPPORTED,
     "\"decoder\": \"decoders\"[1]: \"ByteLevel\" behind another decoder isn't supported"},
    {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\","
                 "\"pattern\":{\"String\":\"a\"},\"content\":\"\"}]}"},
     STATUS_UNSUPPORTED,
     "\"decoder\": \"decoders\"[1]: \"Replace\" behind Fuse isn't supported"},
    {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":"
                 "\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"},
     STATUS_UNSUPPORTED,
     "\"Strip\" behind ByteFallback isn't supported"},
    {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Strip\","
                 "\"content\":\" \",\"start\":0,\"stop\":1}]}"},
     STATUS_UNSUPPORTED,
     "\"Strip\" with \"stop\" over 0 behind Fuse"},
    {{.decoder = "{\"type\":\"Strip\",\"content\":\"\",\"start\":0,\"stop\":0}"},
     STATUS_INVALID,
     "\"content\" isn't one character"},
    {{.decoder = "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"},
     STATUS_INVALID,
     "\"start\": -1 is not within 0..64"},
    {{.post_processor = "{\"type\":\"Template\"}"},
     STATUS_UNSUPPORTED,
     "\"post_processor\": \"Template\" isn't supported (TemplateProcessing, BertProcessing, "},
    {{.post_processor = "{\"type\":\"BertProcessing\"}"}, STATUS_NOT_FOUND, "\"cls\" is missing"},
    {{.post_processor = "{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",1],\"sep\":[\"b\",256]}"},
     STATUS_INVALID,
     "the id of \"sep\": 256 is not within 0..255"},
    {{.post_processor = "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},7]}"},
     STATUS_INVALID,
     "\"post_processor\": \"processors\"[1]: expected an object"},
    {{.post_processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}]}"},
     STATUS_INVALID,
     "\"special_tokens\" lacks \"s\""},
    {{.post_processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}],"
          "\"special_tokens\":{\"s\":{\"ids\":[256]}}}"},
     STATUS_INVALID,
     "the id of \"s\": 256 is not within 0..255"},
    {{.post_processor = "{\"type\":\"TemplateProcessing\",\"single\":[]}"},
     STATUS_UNSUPPORTED,
     "a template without the text"},
    {{.post_processor =
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}"},
     STATUS_UNSUPPORTED,
     "as \"A\""},
    {{.model_settings = "\"dropout\":0.1,"}, STATUS_UNSUPPORTED, "\"dropout\""},
    {{.model_settings = "\"end_of_word_suffix\":\"</w>\","},
     STATUS_UNSUPPORTED,
     "\"end_of_word_suffix\""},
    {{.model_settings = "\"byte_fallback\":\"yes\","}, STATUS_INVALID, "\"byte_fallback\""},
    {{.model_settings = "\"unk_token\":\"<unk>\",", .pre_tokenizer = "null"},
     STATUS_INVALID,
     "\"model\": the \"unk_token\" \"<unk>\" isn't in the vocabulary"},
    {{.model_settings = "\"ignore_merges\":1,"}, STATUS_INVALID, "\"ignore_merges\""},
    {{.vocab = ",\"x1\":-1"}, STATUS_INVALID, "the id of \"x1\": -1"},
    {{.vocab = ",\"x1\":1048576"}, STATUS_INVALID, "1048576 is not within"},
    {{.vocab = ",\"x1\":\"7\""}, STATUS_INVALID, "expected an integer, found a string"},
    {{.vocab = ",\"x1\":5"}, STATUS_INVALID, "two tokens have id 5"},
    {{.vocab = ",\"x\":300"}, STATUS_INVALID, "same key twice"},
    {{.merges = "[\"a b\"]"}, STATUS_INVALID, "merge 0: its token isn't in the vocabulary"},
    {{.merges = "[\"ab\"]"}, STATUS_INVALID, "\"ab\" isn't two tokens"},
    {{.merges = "[\"a b c\"]"}, STATUS_INVALID, "isn't two tokens"},
    {{.merges = "[[\"a\"]]"}, STATUS_INVALID, "1 parts instead of 2"},
    {{.merges = "[[\"a\",1]]"}, STATUS_INVALID, "expected a string"},
    {{.merges = "[[\"\\u4e00\",\"b\"]]"}, STATUS_UNSUPPORTED, "byte-level alphabet"},
    {{.merges = "{}"}, STATUS_INVALID, "\"merges\": expected an array"},
    {{.added_tokens = "{}"}, STATUS_INVALID, "\"added_tokens\": expected an array"},
    {{.added_tokens = "[{\"id\":1}]"}, STATUS_NOT_FOUND, "number 0: \"content\" is missing"},
    {{.added_tokens = "[{\"id\":300,\"content\":\"\"}]"}, STATUS_INVALID, "0 bytes"},
    {{.added_tokens = "[{\"id\":300,\"content\":\"<x>\"},{\"id\":301,\"content\":\"<x>\"}]"},
     STATUS_INVALID,
     "\"<x>\" is there twice"},
    {{.added_tokens = "[{\"id\":300,\"content\":\"a\"}]"},
     STATUS_INVALID,
     "\"a\" has id 300, which disagrees with the vocabulary"},
    {{.added_tokens = "[{\"id\":97,\"content\":\"<x>\"}]"},
     STATUS_INVALID,
     "disagrees with the vocabulary"},
    {{.added_tokens = "[{\"id\":300,\"content\":\"<x>\",\"special\":1}]"},
     STATUS_INVALID,
     "\"special\": expected true or false"},
};

static void test_what_is_refused_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer *t = NULL;
        struct error err = {""};
        enum status status = tokenizer_file_open(&cases[i].file, &t, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].sentence))
            fail_msg("%s (%s) instead of: %s", err.text, status_name(status), cases[i].sentence);
        assert_null(t);
    }
    struct tokenizer *t;
    tokenizer_close(NULL);
    struct error err;
    assert_int_equal(tokenizer_open("/nowhere/tokenizer.json", &t, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "/nowhere/tokenizer.json: No such file or directory");
}

/* Prints the table for a reader: the change to a valid file, and the sentence that it got. */
static int print_table(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tokenizer_file *file = &cases[i].file;
        const char *const parts[] = {
            file->normalizer,   file->pre_tokenizer,  file->decoder, file->post_processor,
            file->added_tokens, file->model_settings, file->vocab,   file->merges};
        struct tokenizer *t = NULL;
        struct error err = {""};
        enum status status = tokenizer_file_open(file, &t, &err);
        const char *sentence = strstr(err.text, ": ");
        printf("%2zu", i + 1);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (parts[k])
                printf(" %s", parts[k]);
        printf("\n   %s%s\n", status_name(status), sentence ? sentence : err.text);
        tokenizer_close(t);
    }
    return 0;
}

/* A vocabulary need not have a token for each byte; the unknown token must be there if it may be
 * needed. */
static void test_a_missing_unknown_token_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"<unk>\"},"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
        "\"decoder\":{\"type\":\"ByteLevel\"}}";
    struct tokenizer *t;
    struct error err;
    assert_int_equal(tokenizer_file_open_bytes(text, sizeof text - 1, &t, &err), STATUS_INVALID);
    assert_non_null(
        strstr(err.text, "\"model\": the \"unk_token\" \"<unk>\" isn't in the vocabulary"));
}

/* Repeats `piece` `count` times between `before` and `after`. */
static void repeat(struct str *out, const char *before, const char *piece, size_t count,
                   const char *after)
{
    str_clear(out);
    str_add(out, before);
    for (size_t i = 0; i < count; i++)
        str_addf(out, "%s%s", i && *piece == '{' ? "," : "", piece);
    str_add(out, after);
}

static void check_limit(const struct tokenizer_file *file, bool fits, const char *sentence)
{
    struct tokenizer *t = NULL;
    struct error err = {""};
    enum status status = tokenizer_file_open(file, &t, &err);
    if (fits != (status == STATUS_OK) || (!fits && !strstr(err.text, sentence)))
        fail_msg("%s (%s) instead of: %s", err.text, status_name(status), sentence);
    tokenizer_close(t);
}

static void test_limits(void **state)
{
    (void)state;
    struct str text;
    str_init(&text, 1 << 17);
    for (size_t over = 0; over < 2; over++) {
        repeat(&text, ",\"", "x", 4096 + over, "\":256");
        check_limit(&(struct tokenizer_file){.vocab = text.data}, !over, "longer than 4096 bytes");
        repeat(&text, "[{\"id\":300,\"content\":\"", "x", 1024 + over, "\"}]");
        check_limit(&(struct tokenizer_file){.added_tokens = text.data}, !over, "1025 bytes");
        repeat(&text, "{\"type\":\"Sequence\",\"pretokenizers\":[", "{\"type\":\"Digits\"}",
               15 + over,
               ",{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}]}");
        check_limit(&(struct tokenizer_file){.pre_tokenizer = text.data}, !over,
                    "more than 16 steps");
        repeat(&text, "{\"type\":\"Sequence\",\"normalizers\":[", "{\"type\":\"NFC\"}", 16 + over,
               "]}");
        check_limit(&(struct tokenizer_file){.normalizer = text.data}, !over, "more than 16 steps");
        repeat(&text, "{\"type\":\"Sequence\",\"decoders\":[",
               "{\"type\":\"Strip\",\"content\":\"x\",\"start\":64,\"stop\":0}", 16 + over, "]}");
        check_limit(&(struct tokenizer_file){.decoder = text.data}, !over, "more than 16 steps");
        repeat(&text,
               "{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"s\":{\"ids\":[1]}},"
               "\"single\":[",
               "{\"SpecialToken\":{\"id\":\"s\"}}", 32 + over, ",{\"Sequence\":{\"id\":\"A\"}}]}");
        check_limit(&(struct tokenizer_file){.post_processor = text.data}, !over,
                    "more than 32 special tokens");
        repeat(&text, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"",
               "x", 8192 + over, "\"}}");
        check_limit(&(struct tokenizer_file){.pre_tokenizer = text.data}, !over,
                    "a pattern of 8193 bytes is over the limit of 8192");
        repeat(&text, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"String\":\"",
               "x", 4096 + over, "\"}}");
        check_limit(&(struct tokenizer_file){.pre_tokenizer = text.data}, !over,
                    "a string of 4097 bytes is over the limit of 4096");
        repeat(&text, "{\"type\":\"Prepend\",\"prepend\":\"", "x", 1024 + over, "\"}");
        check_limit(&(struct tokenizer_file){.normalizer = text.data}, !over,
                    "\"prepend\" of 1025 bytes is over the limit of 1024");
    }
    check_limit(
        &(struct tokenizer_file){
            .normalizer =
                "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Sequence\",\"normalizers\":["
                "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Sequence\",\"normalizers\":["
                "{\"type\":\"Sequence\",\"normalizers\":[]}]}]}]}]}"},
        false, "nested deeper than 4");
    str_deinit(&text);
}

/* An added token may grow in the normalizer, a token in the decoder, but not without end. */
static void test_limits_of_growth(void **state)
{
    (void)state;
    struct str added, content;
    str_init(&added, 1 << 16);
    str_init(&content, 1 << 16);
    for (size_t over = 0; over < 2; over++) {
        repeat(&added, "[{\"id\":300,\"normalized\":true,\"content\":\"", "x", 1024, "\"}]");
        repeat(&content, "{\"type\":\"Prepend\",\"prepend\":\"", "y", 1024, "\"}");
        if (over)
            repeat(&content, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"^x\"},\"content\":\"",
                   "y", 1024 + 2, "\"}");
        check_limit(&(struct tokenizer_file){.added_tokens = added.data,
                                             .normalizer = over ? NULL : content.data},
                    true, "");
        repeat(&content, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":\"", "yy",
               1 + over, "\"}");
        check_limit(
            &(struct tokenizer_file){.added_tokens = added.data, .normalizer = content.data}, !over,
            "4096 bytes after normalizing are over the limit of 2048");
        repeat(&content, "{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"", "y",
               16 + over, "\"}");
        check_limit(&(struct tokenizer_file){.added_tokens = added.data, .decoder = content.data},
                    !over, "a token becomes text of more than 16384 bytes in the decoder");
    }
    str_deinit(&content);
    str_deinit(&added);
}

static void test_limits_of_counts(void **state)
{
    (void)state;
    struct str text;
    str_init(&text, 16u << 20);
    for (size_t over = 0; over < 2; over++) {
        str_clear(&text);
        for (unsigned i = 0; i < 65536 + over; i++)
            str_addf(&text, "%s{\"id\":%u,\"content\":\"<%u>\"}", i ? "," : "[", 300 + i, i);
        str_add(&text, "]");
        check_limit(&(struct tokenizer_file){.added_tokens = text.data}, !over,
                    "\"added_tokens\": 65537 are over the limit of 65536");
        str_clear(&text);
        for (unsigned i = 0; i < (1u << 20) + over; i++)
            str_add(&text, i ? ",\"a b\"" : "[\"a b\"");
        str_add(&text, "]");
        check_limit(&(struct tokenizer_file){.vocab = ",\"ab\":256", .merges = text.data}, !over,
                    "\"merges\": 1048577 are over the limit of 1048576");
    }
    str_deinit(&text);
    check_limit(&(struct tokenizer_file){.vocab = ",\"x1\":1048575"}, true, "");
    check_limit(&(struct tokenizer_file){.vocab = ",\"x1\":1048576"}, false,
                "\"vocab\": the id of \"x1\": 1048576 is not within 0..1048575");
}

/* Tokens of the longest length, until their bytes reach the limit: one more is refused. (No file
 * holds so many: it would be over its own limit.) */
static void test_limit_of_all_bytes(void **state)
{
    (void)state;
    enum { TOKENS = VOCABULARY_LIMIT_BYTES / VOCABULARY_LIMIT_TOKEN };
    struct vocabulary vocabulary;
    struct error err = {""};
    char bytes[VOCABULARY_LIMIT_TOKEN];
    memset(bytes, 'x', sizeof bytes);
    vocabulary_init(&vocabulary, TOKENS + 1);
    for (uint32_t id = 0; id < TOKENS; id++)
        assert_int_equal(vocabulary_add(&vocabulary, id, bytes, sizeof bytes, false, &err),
                         STATUS_OK);
    assert_int_equal(vocabulary_add(&vocabulary, TOKENS, bytes, 1, false, &err), STATUS_LIMIT);
    assert_string_equal(
        err.text,
        "token 16384 of 1 bytes is over the limit of 4096 for a token or 67108864 for all");
    assert_int_equal(vocabulary_add(&vocabulary, TOKENS, bytes, 0, false, &err), STATUS_OK);
    vocabulary_deinit(&vocabulary);
}

/* A file over the limit is refused by its size alone. */
static void test_limit_of_the_file(void **state)
{
    (void)state;
    char path[] = "/tmp/test_tokenizer_refusals_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, TOKENIZER_LIMIT_FILE + 1), 0);
    close(fd);
    struct tokenizer *t = NULL;
    struct error err = {""};
    assert_int_equal(tokenizer_open(path, &t, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "67108864"));
    unlink(path);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--print") == 0)
        return print_table();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused_is_named),
        cmocka_unit_test(test_a_missing_unknown_token_is_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_limits_of_growth),
        cmocka_unit_test(test_limits_of_counts),
        cmocka_unit_test(test_limit_of_all_bytes),
        cmocka_unit_test(test_limit_of_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
