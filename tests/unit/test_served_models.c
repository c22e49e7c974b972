/* served_models: the model that a request means, the error otherwise, and folders that can't be
 * served together. */
#include "router/served_models.h"

#include "common/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct served_models models;
static struct error err;

static enum status open_list(const char *text)
{
    struct model_list list;
    assert_int_equal(model_list_parse(text, &list, &err), STATUS_OK);
    return served_models_open(&list, &models, &err);
}

static enum reason find(const char *name, size_t *index)
{
    *index = 77;
    return served_models_find(&models, name, index, &err);
}

static void test_the_only_one_needs_no_name(void **state)
{
    (void)state;
    size_t index;
    assert_int_equal(open_list("tests/golden/models/llama"), STATUS_OK);
    assert_int_equal(find("", &index), REASON_NONE);
    assert_int_equal(index, 0);
    assert_int_equal(find("llama", &index), REASON_NONE);
    assert_int_equal(find("huge", &index), REASON_MODEL_NOT_FOUND);
    assert_int_equal(index, 77);
    assert_string_equal(err.text, "model \"huge\" is not served here; \"llama\" is");
    assert_int_equal(reason_code(REASON_MODEL_NOT_FOUND), RPC_NOT_FOUND);
    served_models_close(&models);
}

static void test_of_several_each_is_found_by_its_name(void **state)
{
    (void)state;
    size_t index;
    assert_int_equal(open_list("tests/golden/models/llama,tests/golden/models/qwen2,"
                               "words=deploy/local/tiny-shakespeare"),
                     STATUS_OK);
    static const char *const names[] = {"llama", "qwen2", "words"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(find(names[i], &index), REASON_NONE);
        assert_int_equal(index, i);
        assert_string_equal(models.items[i].limits.name, names[i]);
    }
    assert_null(models.items[0].tokenizer);
    assert_non_null(models.items[2].tokenizer);
    assert_int_equal(find("tiny-shakespeare", &index), REASON_MODEL_NOT_FOUND);
    assert_string_equal(err.text, "model \"tiny-shakespeare\" is not served here; \"llama\", "
                                  "\"qwen2\" and \"words\" are");
    assert_int_equal(find("", &index), REASON_MISSING_MODEL);
    assert_string_equal(err.text, "the request names no model, and several are served: \"llama\", "
                                  "\"qwen2\" and \"words\"");
    assert_int_equal(reason_code(REASON_MISSING_MODEL), RPC_INVALID_ARGUMENT);
    served_models_close(&models);
}

/* A sentence has no room for sixteen long ones. */
static void test_many_names_are_counted(void **state)
{
    (void)state;
    struct served_models many = {.count = SERVED_MODELS_MAX};
    size_t index;
    for (size_t i = 0; i < many.count; i++)
        snprintf(many.items[i].name, sizeof many.items[i].name, "%zu-%0100d", i, 0);
    assert_int_equal(served_models_find(&many, "x", &index, &err), REASON_MODEL_NOT_FOUND);
    assert_non_null(strstr(err.text, "0\" and 15 more are"));
    for (size_t i = 0; i < many.count; i++)
        snprintf(many.items[i].name, sizeof many.items[i].name, "%c", (char)('a' + i));
    assert_int_equal(served_models_find(&many, "x", &index, &err), REASON_MODEL_NOT_FOUND);
    assert_non_null(strstr(err.text, "\"n\", \"o\" and \"p\" are"));
}

static void test_a_foreign_model_name_is_quoted_safely(void **state)
{
    (void)state;
    char name[] =
        "\x1b["
        "2J\nab\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9";
    struct served_models one = {.count = 1, .items = {{.name = "tiny"}}};
    size_t index;
    assert_int_equal(served_models_find(&one, name, &index, &err), REASON_MODEL_NOT_FOUND);
    assert_true(utf8_valid(err.text, strlen(err.text), NULL));
    for (const char *at = err.text; *at; at++)
        assert_false((unsigned char)*at < ' ' || *at == 0x7f);
}

static void test_folders_that_cannot_be_served(void **state)
{
    (void)state;
    static const struct {
        const char *list, *sentence;
    } cases[] = {
        {"tests/golden/models/llama,words=tests/no-such-folder", "model words: "},
        {"tests/golden/models/llama,tests/golden/models/../models/llama",
         "two models are called llama, the second is of tests/golden/models/../models/llama: give "
         "one of them another name, NAME=DIR"},
        {"llama=tests/golden/models/qwen2,tests/golden/models/llama",
         "two models are called llama"},
        {"a b=tests/golden/models/llama", "may hold only printable ASCII without blanks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_not_equal(open_list(cases[i].list), STATUS_OK);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("%s: %s", cases[i].list, err.text);
        assert_int_equal(models.count, 0); /* and opened models are closed */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_only_one_needs_no_name),
        cmocka_unit_test(test_of_several_each_is_found_by_its_name),
        cmocka_unit_test(test_many_names_are_counted),
        cmocka_unit_test(test_a_foreign_model_name_is_quoted_safely),
        cmocka_unit_test(test_folders_that_cannot_be_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
