/* model_list: the forms of --model, and every way to write it wrongly. */
#include "common/language/model_config/model_config.h"
#include "common/language/model_config/model_list.h"

#include "common/base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct model_list list;
static struct error err;

static void test_one_and_several(void **state)
{
    (void)state;
    assert_int_equal(model_list_parse("/models/llama", &list, &err), STATUS_OK);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0].name, "");
    assert_string_equal(list.items[0].dir, "/models/llama");
    assert_int_equal(model_list_parse("chat=/m/a=b,.,./x=y,org/q=1", &list, &err), STATUS_OK);
    assert_int_equal(list.count, 4);
    static const char *const expected[][2] = {
        {"chat", "/m/a=b"}, {"", "."}, {"", "./x=y"}, {"", "org/q=1"}};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(list.items[i].name, expected[i][0]);
        assert_string_equal(list.items[i].dir, expected[i][1]);
    }
}

static void test_what_is_wrong_is_quoted(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"", "'' names no folder"},
        {"a,", "'' names no folder"},
        {",a", "'' names no folder"},
        {"a,,b", "'' names no folder"},
        {"a=", "'a=' names no folder"},
        {"=b", "'=b' has no name before the equals sign"},
        {"a=b,c,a=d", "two models are called a: b and d"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        list.count = 77;
        assert_int_equal(model_list_parse(cases[i].text, &list, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, cases[i].sentence));
        assert_int_equal(list.count, 77); /* written only on success */
        assert_int_equal(model_list_check(cases[i].text, &err), STATUS_INVALID);
    }
}

/* A name in a folder's place is refused; the error says how to give a name. */
static void test_a_folder_that_is_not_there(void **state)
{
    (void)state;
    static const struct {
        const char *dir, *sentence;
    } cases[] = {
        {"/nowhere", "give the folder of a model that is here)"},
        {"org/chat=/nowhere",
         "that is here; a name with a slash in it can't stand before the equals "
         "sign: --model-name gives it)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[MODEL_MAX_NAME_BYTES];
        assert_int_equal(model_folder_name(cases[i].dir, name, sizeof name, &err),
                         STATUS_NOT_FOUND);
        assert_non_null(strstr(err.text, cases[i].sentence));
    }
}

/* Each limit, and one more. */
static void test_limits(void **state)
{
    (void)state;
    struct str text;
    str_init(&text, 1u << 16);
    for (size_t i = 0; i < MODEL_LIST_MAX; i++)
        str_addf(&text, "%s%zu", i ? "," : "", i);
    assert_int_equal(model_list_parse(text.data, &list, &err), STATUS_OK);
    assert_int_equal(list.count, MODEL_LIST_MAX);
    str_add(&text, ",x");
    assert_int_equal(model_list_parse(text.data, &list, &err), STATUS_LIMIT);
    assert_string_equal(err.text, "more than 16 models");
    static const struct {
        size_t name, dir;
        enum status status;
    } cases[] = {
        {MODEL_MAX_NAME_BYTES - 1, MODEL_MAX_DIR_BYTES - 1, STATUS_OK},
        {MODEL_MAX_NAME_BYTES, 1, STATUS_INVALID},
        {1, MODEL_MAX_DIR_BYTES, STATUS_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str_clear(&text);
        for (size_t k = 0; k < cases[i].name; k++)
            str_add(&text, "n");
        str_add(&text, "=");
        for (size_t k = 0; k < cases[i].dir; k++)
            str_add(&text, "d");
        assert_int_equal(model_list_parse(text.data, &list, &err), cases[i].status);
        if (cases[i].status)
            assert_non_null(strstr(err.text, "is too long: a name has 127 bytes at most"));
    }
    str_deinit(&text);
}

static void test_a_name_of_its_own_setting(void **state)
{
    (void)state;
    assert_int_equal(model_list_parse("/m", &list, &err), STATUS_OK);
    assert_int_equal(model_list_name(&list, "", &err), STATUS_OK);
    assert_string_equal(list.items[0].name, "");
    assert_int_equal(model_list_name(&list, "chat", &err), STATUS_OK);
    assert_string_equal(list.items[0].name, "chat");
    assert_int_equal(model_list_name(&list, "chat", &err), STATUS_OK);
    assert_int_equal(model_list_name(&list, "other", &err), STATUS_INVALID);
    assert_string_equal(err.text,
                        "--model-name is other but --model has the name chat: set one of them");
    assert_int_equal(model_list_parse("/m,/n", &list, &err), STATUS_OK);
    assert_int_equal(model_list_name(&list, "chat", &err), STATUS_INVALID);
    assert_string_equal(err.text, "--model-name chat, but --model has 2 models: give each its name "
                                  "there, NAME=DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_and_several),
        cmocka_unit_test(test_what_is_wrong_is_quoted),
        cmocka_unit_test(test_a_folder_that_is_not_there),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_a_name_of_its_own_setting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
