/* request_constraint: the shape that a request asks for becomes a bounded source, or a sentence. A
 * shape that was refused before is refused again. */
#include "router/doors/request_constraint.h"

#include "common/language/constrain/constraint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/proto_text.h"
#include "tests/unit/checks_fixture.h"

static const struct request_model MODEL = {.name = "m", .tokens_have_text = true};

static Baton__V1__Constraint regex_of(const char *text)
{
    Baton__V1__Constraint message = BATON__V1__CONSTRAINT__INIT;
    message.kind_case = BATON__V1__CONSTRAINT__KIND_REGEX;
    message.regex = (char *)text;
    return message;
}

static enum reason read_regex(struct constraint_checks *checks, const char *text)
{
    struct constraint_source *source;
    struct error err = {""};
    Baton__V1__Constraint message = regex_of(text);
    enum reason reason = request_constraint_read(checks, &message, &MODEL, &source, &err);
    assert_int_equal(source == NULL, reason != REASON_NONE);
    free(source);
    return reason;
}

static void test_kinds(void **state)
{
    (void)state;
    const struct text parts[] = {{"a\"b", 3}, {"c\0\n", 3}};
    ProtobufCBinaryData texts[] = {proto_bytes(parts[0]), proto_bytes(parts[1])};
    Baton__V1__Choices choices = BATON__V1__CHOICES__INIT;
    choices.texts = texts;
    choices.n_texts = 2;
    Baton__V1__Constraint messages[4];
    for (int i = 0; i < 4; i++)
        baton__v1__constraint__init(&messages[i]);
    messages[0].kind_case = BATON__V1__CONSTRAINT__KIND_JSON_OBJECT;
    messages[0].json_object = true;
    messages[1].kind_case = BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA;
    messages[1].json_schema = "{\"type\":\"null\"}";
    messages[2] = regex_of("a+");
    messages[3].kind_case = BATON__V1__CONSTRAINT__KIND_CHOICE;
    messages[3].choice = &choices;
    static const char *const want[] = {"", "{\"type\":\"null\"}", "a+",
                                       "[\"a\\\"b\",\"c\\u0000\\n\"]"};
    struct constraint_source *source;
    struct error err = {""};
    for (int i = 0; i < 4; i++) {
        if (request_constraint_read(NULL, &messages[i], &MODEL, &source, &err))
            fail_msg("%s", err.text);
        assert_int_equal(source->kind, i);
        assert_string_equal(source->text, want[i]);
        assert_int_equal(source->length, strlen(want[i]));
        free(source);
    }
    assert_int_equal(request_constraint_read(NULL, NULL, &MODEL, &source, &err), REASON_NONE);
    assert_null(source);
}

/* The structure starts behind the reasoning; the kind is in the first line. */
static void test_behind_reasoning(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *end;
        bool inside;
        const char *text; /* NULL: refused */
    } rows[] = {
        {"<think>", "</think>", true, "regex inside <think> </think>\na+"},
        {"<think>", "</think>", false, "regex outside <think> </think>\na+"},
        {"", "</think>", true, NULL},
        {"<think>", "", false, NULL},
        {"<think>", "</th ink>", false, NULL},
        {"<think>\n", "</think>", false, NULL},
        {"<think>", "</aaaaaaaaaaaaaaaaaaaaaaaaaaaaa>", false, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Baton__V1__Constraint message = regex_of("a+");
        Baton__V1__Reasoning behind = BATON__V1__REASONING__INIT;
        struct constraint_source *source;
        struct error err = {""};
        behind.begin = (char *)rows[i].begin;
        behind.end = (char *)rows[i].end;
        behind.inside = rows[i].inside;
        message.behind = &behind;
        enum reason reason = request_constraint_read(NULL, &message, &MODEL, &source, &err);
        assert_int_equal(reason, rows[i].text ? REASON_NONE : REASON_INVALID_CONSTRAINT);
        if (rows[i].text) {
            assert_int_equal(source->kind, CONSTRAINT_BEHIND_REASONING);
            assert_string_equal(source->text, rows[i].text);
        } else {
            assert_non_null(
                strstr(err.text, "constraint: behind: begin and end must have 1 to 31"));
        }
        free(source);
    }
}

static void test_what_is_refused_is_named(void **state)
{
    (void)state;
    struct constraint_source *source;
    struct error err = {""};
    Baton__V1__Constraint message = BATON__V1__CONSTRAINT__INIT;
    assert_int_equal(request_constraint_read(NULL, &message, &MODEL, &source, &err),
                     REASON_INVALID_CONSTRAINT);
    assert_non_null(strstr(err.text, "constraint: it has none of"));
    message.kind_case = BATON__V1__CONSTRAINT__KIND_JSON_OBJECT;
    assert_int_equal(request_constraint_read(NULL, &message, &MODEL, &source, &err),
                     REASON_INVALID_CONSTRAINT);
    assert_null(source);
    message = regex_of("a");
    static const struct request_model bare = {.name = "bare"};
    assert_int_equal(request_constraint_read(NULL, &message, &bare, &source, &err),
                     REASON_NO_TOKENIZER);
}

/* The limit is the client's text's, whether the answer may reason before or not. */
static void test_the_longest_text(void **state)
{
    (void)state;
    char *text = calloc(1, CONSTRAINT_MAX_TEXT_BYTES + 2);
    Baton__V1__Reasoning behind = BATON__V1__REASONING__INIT;
    behind.begin = "<aaaaaaaaaaaaaaaaaaaaaaaaaaaaa>"; /* as long as a tag may be */
    behind.end = "</aaaaaaaaaaaaaaaaaaaaaaaaaaaa>";
    assert_non_null(text);
    for (int reasons = 0; reasons < 2; reasons++) {
        struct constraint_source *source;
        struct constraint *constraint;
        struct error err = {""};
        Baton__V1__Constraint message = BATON__V1__CONSTRAINT__INIT;
        memset(text, ' ', CONSTRAINT_MAX_TEXT_BYTES);
        memcpy(text, "{}", 2);
        text[CONSTRAINT_MAX_TEXT_BYTES] = 0;
        message.kind_case = BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA;
        message.json_schema = text;
        message.behind = reasons ? &behind : NULL;
        if (request_constraint_read(NULL, &message, &MODEL, &source, &err))
            fail_msg("%s", err.text);
        assert_int_equal(source->length > CONSTRAINT_MAX_TEXT_BYTES, reasons);
        if (constraint_compile(source->kind, source->text, source->length, &constraint, &err))
            fail_msg("%s", err.text);
        constraint_destroy(constraint);
        free(source);
        text[CONSTRAINT_MAX_TEXT_BYTES] = ' ';
        assert_int_equal(request_constraint_read(NULL, &message, &MODEL, &source, &err),
                         REASON_INVALID_CONSTRAINT);
        assert_string_equal(err.text, "json_schema: it has more than 131072 bytes");
    }
    free(text);
}

/* A constraint that was refused before is refused at the door, in the same words. An unknown or
 * valid one goes on. */
static void test_what_is_known_to_be_refused(void **state)
{
    (void)state;
    struct constraint_checks *checks = constraint_checks_create();
    struct constraint_source *source = constraint_source_create(CONSTRAINT_REGEX, "(", 1);
    struct told told;
    struct error err = {""};
    assert_non_null(checks);
    assert_int_equal(read_regex(checks, "("), REASON_NONE);
    start(checks, &told);
    assert_int_equal(constraint_checks_ask(checks, source, 0, &err), CONSTRAINT_PENDING);
    constraint_checked_free(wait_told(&told));
    constraint_checks_stop(checks);
    assert_int_equal(read_regex(checks, "("), REASON_INVALID_CONSTRAINT);
    assert_int_equal(read_regex(checks, "(a)"), REASON_NONE);
    free(source);
    constraint_checks_destroy(checks);
    end(&told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_behind_reasoning),
        cmocka_unit_test(test_what_is_refused_is_named),
        cmocka_unit_test(test_the_longest_text),
        cmocka_unit_test(test_what_is_known_to_be_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
