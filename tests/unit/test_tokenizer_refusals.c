/* tokenizer.json files that can't be served: each is refused with its status and a sentence that names what is wrong. */
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
    {{.normalizer = "{\"type\":\"Prepend\",\"prepend\":\"x\"}"},
     STATUS_UNSUPPORTED,
     "\"normalizer\": \"Prepend\" isn't supported"},
    {{.normalizer = "{}"}, STATUS_NOT_FOUND, "\"normalizer\": \"type\" is missing"},
    {{.normalizer = "7"}, STATUS_INVALID, "\"normalizer\": expected an object"},
    {{.pre_tokenizer = "null"}, STATUS_UNSUPPORTED, "without ByteLevel"},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\"}"}, STATUS_UNSUPPORTED, "\"Metaspace\" isn't"},
    {{.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
                       "{\"type\":\"Digits\"}]}"},
     STATUS_UNSUPPORTED,
     "\"Digits\" behind ByteLevel"},
    {{.pre_tokenizer =
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Contiguous\"}"},
     STATUS_UNSUPPORTED,
     "Split with behavior \"Contiguous\""},
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
    {{.decoder = "null"}, STATUS_INVALID, "\"decoder\": expected an object, found null"},
    {{.decoder = "{\"type\":\"Metaspace\"}"}, STATUS_UNSUPPORTED, "\"Metaspace\" isn't"},
    {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteLevel\"},{\"type\":"
                 "\"Fuse\"}]}"},
     STATUS_UNSUPPORTED,
     "a Sequence of 2 decoders"},
    {{.post_processor = "{\"type\":\"BertProcessing\"}"}, STATUS_UNSUPPORTED, "\"BertProcessing\""},
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
     "\"a\" has id 300, but the vocabulary says otherwise"},
    {{.added_tokens = "[{\"id\":97,\"content\":\"<x>\"}]"}, STATUS_INVALID, "says otherwise"},
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

static void test_a_missing_byte_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},"
                               "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
                               "\"decoder\":{\"type\":\"ByteLevel\"}}";
    struct tokenizer *t;
    struct error err;
    assert_int_equal(tokenizer_file_open_bytes(text, sizeof text - 1, &t, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "\"model\": the vocabulary has no token for the byte 0x00"));
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
               15 + over, ",{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}");
        check_limit(&(struct tokenizer_file){.pre_tokenizer = text.data}, !over,
                    "more than 16 steps");
        repeat(&text,
               "{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"s\":{\"ids\":[1]}},"
               "\"single\":[",
               "{\"SpecialToken\":{\"id\":\"s\"}}", 32 + over, ",{\"Sequence\":{\"id\":\"A\"}}]}");
        check_limit(&(struct tokenizer_file){.post_processor = text.data}, !over,
                    "more than 32 special tokens");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused_is_named),
        cmocka_unit_test(test_a_missing_byte_is_refused),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
