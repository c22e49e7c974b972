/* json: strict parsing, bounds, getters and their sentences, quoting. */
#include "common/base/json/json.h"
#include "common/base/json/json_quote.h"
#include "common/base/json/json_write.h"
#include "common/base/utf8.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct json_limits LIMITS = {.max_bytes = 4096, .max_depth = 8};

static struct json *parsed(const char *text)
{
    struct json *json = NULL;
    struct error err = {""};
    if (json_parse(text, strlen(text), LIMITS, &json, &err) != STATUS_OK)
        fail_msg("%s: %s", text, err.text);
    return json;
}

static void test_valid_documents(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum json_kind kind;
    } cases[] = {
        {"null", JSON_NULL},
        {" true ", JSON_BOOL},
        {"-0", JSON_INTEGER},
        {"12", JSON_INTEGER},
        {"1.5e3", JSON_NUMBER},
        {"\"x\"", JSON_STRING},
        {"[]", JSON_ARRAY},
        {"{}\n", JSON_OBJECT},
        {"[[[[[[[1]]]]]]]", JSON_ARRAY},
        {"{\"a:b\":{\"c\":\"d:\\\"e\"},\"\":[{\"a\":1},{\"a\":2}]}", JSON_OBJECT},
        {"\"\\ud800\"", JSON_STRING},
        {"100000000000000000000000000", JSON_INTEGER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *json = parsed(cases[i].text);
        assert_int_equal(json_kind(json_root(json)), cases[i].kind);
        json_destroy(json);
    }
}

static void test_what_is_not_json_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "",
        " ",
        "{",
        "[1,",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\"}",
        "1 2",
        "{} x",
        "nul",
        "'a'",
        "\"a",
        "\"\xff\"",
        "\"\xed\xa0\x80\"",
        "\"a\nb\"",
        "{\"a\":1}}",
        "/**/1",
        "[1 2]",
        "\"\\x41\"",
        "{\"a\":\"",
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"b\":{\"c\":1,\"c\":2}}",
        "{\"a\\u0000b\":1}",
        "\x01",
        "\"\\",
        "{a:1}",
        "\"\\ud8",
        "tru",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *json = NULL;
        struct error err = {""};
        if (json_parse(cases[i], strlen(cases[i]), LIMITS, &json, &err) != STATUS_INVALID)
            fail_msg("accepted: %s", cases[i]);
        assert_null(json);
        assert_true(strlen(err.text) > 10);
    }
    struct json *json = NULL;
    struct error err;
    assert_int_equal(json_parse("1\0", 2, LIMITS, &json, &err), STATUS_INVALID);
    assert_int_equal(json_parse("\"a\0b\"", 5, LIMITS, &json, &err), STATUS_INVALID);
}

static void test_limits(void **state)
{
    (void)state;
    struct json *json = NULL;
    struct error err;
    struct json_limits small = {.max_bytes = 4, .max_depth = 2};
    assert_int_equal(json_parse("[12]", 4, small, &json, &err), STATUS_OK);
    json_destroy(json);
    assert_int_equal(json_parse("[123]", 5, small, &json, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "5 bytes"));
    small.max_bytes = 100;
    assert_int_equal(json_parse("[1]", 3, small, &json, &err), STATUS_OK);
    json_destroy(json);
    assert_int_equal(json_parse("[[[1]]]", 7, small, &json, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "deeper than 2"));
    json = NULL;
    assert_int_equal(json_parse("[[[1", 4, small, &json, NULL), STATUS_LIMIT);
    assert_null(json);
    struct json_limits large = {.max_bytes = 4 * JSON_LIMIT_CONTAINERS, .max_depth = 2};
    char *many = malloc(large.max_bytes);
    assert_non_null(many);
    size_t length = 0;
    many[length++] = '[';
    for (size_t i = 0; i < JSON_LIMIT_CONTAINERS; i++, length += 3)
        memcpy(many + length, "[],", 3);
    many[length - 1] = ']';
    assert_int_equal(json_parse(many, length, large, &json, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "more than 1048576 arrays"));
    free(many);
}

static void test_numbers(void **state)
{
    (void)state;
    struct json *json =
        parsed("{\"i\":9223372036854775807,\"big\":9223372036854775808,\"f\":1.5,\"huge\":1e999,"
               "\"n\":-3,\"nan\":NaN,\"s\":\"1\"}");
    const struct json_value *root = json_root(json);
    struct error err;
    int64_t i = 0;
    double d = 0;
    assert_int_equal(json_get_i64(root, "i", 0, INT64_MAX, &i, &err), STATUS_OK);
    assert_true(i == INT64_MAX);
    assert_int_equal(json_get_i64(root, "big", INT64_MIN, INT64_MAX, &i, &err), STATUS_INVALID);
    assert_int_equal(json_get_i64(root, "f", 0, 10, &i, &err), STATUS_INVALID);
    assert_string_equal(err.text, "\"f\": expected an integer, found a fraction");
    assert_int_equal(json_get_i64(root, "n", 0, 10, &i, &err), STATUS_INVALID);
    assert_string_equal(err.text, "\"n\": -3 is not within 0..10");
    assert_int_equal(json_get_i64(root, "none", 0, 10, &i, &err), STATUS_NOT_FOUND);
    assert_string_equal(err.text, "\"none\" is missing");
    assert_int_equal(json_get_double(root, "n", -3, 3, &d, &err), STATUS_OK);
    assert_true(d == -3);
    assert_int_equal(json_get_double(root, "f", 0, 2, &d, &err), STATUS_OK);
    assert_true(d == 1.5);
    assert_int_equal(json_get_double(root, "huge", -INFINITY, INFINITY, &d, &err), STATUS_INVALID);
    assert_int_equal(json_get_double(root, "nan", -INFINITY, INFINITY, &d, &err), STATUS_INVALID);
    assert_int_equal(json_get_double(root, "s", 0, 2, &d, &err), STATUS_INVALID);
    assert_true(d == 1.5);
    json_destroy(json);
}

static void test_getters_of_other_types(void **state)
{
    (void)state;
    struct json *json = parsed("{\"b\":true,\"s\":\"h\\u00e9\",\"z\":\"a\\u0000b\",\"a\":[1,null,"
                               "\"x\"],\"o\":{},\"n\":null}");
    const struct json_value *root = json_root(json), *member = NULL;
    struct error err;
    bool b = false;
    const char *text = NULL;
    size_t length = 0;
    assert_int_equal(json_get_bool(root, "b", &b, &err), STATUS_OK);
    assert_true(b);
    assert_int_equal(json_get_bool(root, "s", &b, &err), STATUS_INVALID);
    assert_int_equal(json_get_bool(root, "n", &b, &err), STATUS_NOT_FOUND);
    /* A missing optional member leaves the value unchanged; a present one must have its type. */
    assert_int_equal(json_get_optional_bool(root, "n", &b, &err), STATUS_OK);
    assert_int_equal(json_get_optional_bool(root, "none", &b, &err), STATUS_OK);
    assert_true(b);
    assert_int_equal(json_get_optional_bool(root, "s", &b, &err), STATUS_INVALID);
    assert_string_equal(err.text, "\"s\": expected true or false, found a string");
    b = false;
    assert_int_equal(json_get_optional_bool(root, "b", &b, &err), STATUS_OK);
    assert_true(b);
    assert_int_equal(json_get_string(root, "s", &text, NULL, &err), STATUS_OK);
    assert_string_equal(text, "h\xc3\xa9");
    assert_int_equal(json_get_string(root, "z", &text, NULL, &err), STATUS_INVALID);
    assert_int_equal(json_get_string(root, "z", &text, &length, &err), STATUS_OK);
    assert_int_equal(length, 3);
    assert_int_equal(json_get_object(root, "o", &member, &err), STATUS_OK);
    assert_int_equal(json_count(member), 0);
    assert_int_equal(json_get_array(root, "o", &member, &err), STATUS_INVALID);
    assert_string_equal(err.text, "\"o\": expected an array, found an object");
    assert_int_equal(json_get_array(root, "n", &member, &err), STATUS_NOT_FOUND);
    assert_int_equal(json_get_array(root, "a", &member, &err), STATUS_OK);
    assert_int_equal(json_count(member), 3);
    assert_int_equal(json_kind(json_at(member, 1)), JSON_NULL);
    assert_int_equal(json_as_string(json_at(member, 0), &text, NULL, &err), STATUS_INVALID);
    /* A getter asked about something that is no object. */
    assert_int_equal(json_get_bool(member, "b", &b, &err), STATUS_INVALID);
    assert_null(json_find(member, "b"));
    assert_null(json_find(NULL, "b"));
    json_destroy(json);
    json_destroy(NULL);
}

static void test_members_come_in_order(void **state)
{
    (void)state;
    struct json *json = parsed("{\"z\":1,\"a\":null,\"m\":3}");
    char keys[8] = "";
    size_t nulls = 0;
    for (struct json_member m = {0}; json_next(json_root(json), &m);) {
        strcat(keys, m.key);
        nulls += json_kind(m.value) == JSON_NULL;
    }
    assert_string_equal(keys, "zam");
    assert_int_equal(nulls, 1);
    struct json_member none = {0};
    assert_false(json_next(NULL, &none));
    json_destroy(json);
}

/* json-c itself gets U+1D800..1DBFF and the like of every plane wrong. */
static void test_surrogate_escapes(void **state)
{
    (void)state;
    for (uint32_t code = 0x10000; code <= 0x10FFFF; code += 0x5F) {
        char text[32], expected[5] = "";
        snprintf(text, sizeof text, "\"\\u%04x\\u%04X\"", 0xD800 + ((code - 0x10000) >> 10),
                 0xDC00 + (code & 0x3FF));
        utf8_put(code, expected);
        struct json *json = parsed(text);
        const char *value;
        assert_int_equal(json_as_string(json_root(json), &value, NULL, NULL), STATUS_OK);
        assert_string_equal(value, expected);
        json_destroy(json);
    }
    struct json *json = parsed("{\"\\ud83d\\ude42\":\"\\ud800\\u0041\\udc00\\\\ud83d\"}");
    const char *value;
    assert_int_equal(json_get_string(json_root(json), "\xf0\x9f\x99\x82", &value, NULL, NULL),
                     STATUS_OK);
    assert_string_equal(value, UTF8_REPLACEMENT "A" UTF8_REPLACEMENT "\\ud83d");
    json_destroy(json);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/test_json_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "{\"a\":[1,2]}\n", 12), 12);
    close(fd);
    struct json *json = NULL;
    struct error err;
    assert_int_equal(json_read_file(path, LIMITS, &json, &err), STATUS_OK);
    assert_int_equal(json_count(json_find(json_root(json), "a")), 2);
    json_destroy(json);
    assert_int_equal(json_read_file(path, (struct json_limits){11, 8}, &json, &err), STATUS_LIMIT);
    assert_memory_equal(err.text, path, strlen(path));
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 34\n", file);
    fclose(file);
    assert_int_equal(json_read_file(path, (struct json_limits){99, 8}, &json, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, ": this is Git LFS's pointer to the file, not the file: "));
    unlink(path);
    assert_int_equal(json_read_file(path, LIMITS, &json, &err), STATUS_NOT_FOUND);
    assert_int_equal(json_read_file("/tmp", LIMITS, &json, &err), STATUS_INVALID);
}

static void test_quote(void **state)
{
    (void)state;
    struct str out;
    str_init(&out, 1000);
    const char text[] = "a\"\\\n\t\x01\x7f\0\xc3\xa9\xff\xe2\x82";
    json_quote(&out, text, sizeof text - 1);
    assert_string_equal(out.data,
                        "\"a\\\"\\\\\\n\\t\\u0001\\u007f\\u0000\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\"");
    struct json *json = parsed(out.data);
    const char *back;
    size_t length;
    assert_int_equal(json_as_string(json_root(json), &back, &length, NULL), STATUS_OK);
    assert_memory_equal(back, "a\"\\\n\t\x01\x7f\0\xc3\xa9", 10);
    json_destroy(json);
    str_deinit(&out);
}

static void test_integers_up_to_64_bits(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fine;
        uint64_t value;
    } rows[] = {
        {"0", true, 0},
        {"18446744073709551615", true, UINT64_MAX},
        {"9223372036854775808", true, 9223372036854775808u},
        {"18446744073709551616", false, 0},
        {"100000000000000000000000000", false, 0},
        {"-1", false, 0},
        {"1.0", false, 0},
        {"\"1\"", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json *json = parsed(rows[i].text);
        struct error err = {""};
        uint64_t value = 7;
        enum status status = json_as_u64(json_root(json), 0, UINT64_MAX, &value, &err);
        assert_int_equal(status == STATUS_OK, rows[i].fine);
        assert_true(value == (rows[i].fine ? rows[i].value : 7));
        assert_int_equal(*err.text == 0, rows[i].fine);
        json_destroy(json);
    }
    struct json *json = parsed("5");
    uint64_t value;
    assert_int_equal(json_as_u64(json_root(json), 6, 9, &value, NULL), STATUS_INVALID);
    assert_int_equal(json_as_u64(json_root(json), 0, 4, &value, NULL), STATUS_INVALID);
    json_destroy(json);
}

/* A larger number isn't changed into another one: its text is kept, and reading it as a number
 * fails. */
static void test_integers_beyond_64_bits(void **state)
{
    (void)state;
    static const char *const rows[] = {"18446744073709551616", "-9223372036854775809",
                                       "99999999999999999999", "-18446744073709551616",
                                       "123456789012345678901234567890123456789012345"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char told[100];
        struct json *json = parsed(rows[i]);
        const struct json_value *root = json_root(json);
        struct error err;
        int64_t small = 7;
        double real;
        size_t length;
        snprintf(told, sizeof told, "%.40s is not within 0..9", rows[i]);
        assert_int_equal(json_kind(root), JSON_INTEGER);
        assert_int_equal(json_as_i64(root, INT64_MIN, INT64_MAX, &small, &err), STATUS_INVALID);
        assert_true(small == 7);
        assert_int_equal(json_as_i64(root, 0, 9, &small, &err), STATUS_INVALID);
        assert_string_equal(err.text, *rows[i] == '-' ? told : "the number is over 9");
        uint64_t large = 7;
        assert_int_equal(json_as_u64(root, 0, 9, &large, &err), STATUS_INVALID);
        assert_true(large == 7);
        assert_string_equal(err.text, told);
        assert_int_equal(json_as_double(root, -1e300, 1e300, &real, &err), STATUS_OK);
        assert_true(real == strtod(rows[i], NULL));
        assert_non_null(json_large_number(root, &length));
        assert_int_equal(length, strlen(rows[i]));
        json_destroy(json);
    }
    static const char *const others[] = {"18446744073709551615",
                                         "-9223372036854775808",
                                         "1e0",
                                         "1e300",
                                         "\"1\"",
                                         "null",
                                         "Infinity"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct json *json = parsed(others[i]);
        size_t length;
        assert_null(json_large_number(json_root(json), &length));
        json_destroy(json);
    }
}

static void test_writing_what_was_read(void **state)
{
    (void)state;
    static const struct {
        const char *text, *written;
    } rows[] = {
        {"null", "null"},
        {" { \"b\" : [ 1 , true , null ] , \"a\" : { } , \"c\" : [ ] } ",
         "{\"b\":[1,true,null],\"a\":{},\"c\":[]}"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"18446744073709551615", "18446744073709551615"},
        {"[0.1,1.0,1e300,-2.5e-7]", "[0.1,1.0,1e+300,-2.5e-07]"},
        {"[18446744073709551616,-9223372036854775809,-9223372036854775807]",
         "[18446744073709551616,-9223372036854775809,-9223372036854775807]"},
        {"{\"a\":123456789012345678901234567890 "
         ",\"1234567890123456789012\":\"1234567890123456789012\"}",
         "{\"a\":123456789012345678901234567890,\"1234567890123456789012\":"
         "\"1234567890123456789012\"}"},
        {"[1e0,-20e0,123456789012345678901234567890.0]", "[1.0,-20.0,1.2345678901234568e+29]"},
        {"1e999", "1e999"},
        {"\"\\u0000\\u00e9\\\"\\/\"", "\"\\u0000\xc3\xa9\\\"/\""},
    };
    struct str out;
    str_init(&out, 1000);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct json *json = parsed(rows[i].text);
        str_clear(&out);
        json_write(&out, json_root(json));
        assert_string_equal(out.data, rows[i].written);
        json_destroy(json);
    }
    str_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_documents),
        cmocka_unit_test(test_what_is_not_json_is_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_getters_of_other_types),
        cmocka_unit_test(test_members_come_in_order),
        cmocka_unit_test(test_surrogate_escapes),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_quote),
        cmocka_unit_test(test_integers_up_to_64_bits),
        cmocka_unit_test(test_integers_beyond_64_bits),
        cmocka_unit_test(test_writing_what_was_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
