/* constraint_checks: each constraint is compiled once, whatever the result and the number of
 * requests. Waiting ones are bounded, and turns go round the owners. */
#include "common/language/constrain/constraint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "router/dispatch/constraint_queue.h"
#include "tests/unit/checks_fixture.h"

#define FINE    "[a-z]+"
#define REFUSED "(?<=a)"

static struct constraint_source *regex_of(const char *text)
{
    struct constraint_source *source =
        constraint_source_create(CONSTRAINT_REGEX, text, strlen(text));
    assert_non_null(source);
    return source;
}

static enum constraint_verdict ask(struct constraint_checks *checks, const char *text,
                                   uint64_t owner, struct error *err)
{
    struct constraint_source *source = regex_of(text);
    enum constraint_verdict verdict = constraint_checks_ask(checks, source, owner, err);
    free(source);
    return verdict;
}

/* Asks for the verdict, and waits if it isn't known yet. */
static enum constraint_verdict settle(struct constraint_checks *checks, struct told *told,
                                      const char *text, struct error *err)
{
    enum constraint_verdict verdict = ask(checks, text, 0, err);
    if (verdict != CONSTRAINT_PENDING)
        return verdict;
    struct constraint_checked *checked = wait_told(told);
    assert_string_equal(checked->source->text, text);
    verdict = checked->verdict;
    *err = checked->err;
    constraint_checks_taken(checks);
    constraint_checked_free(checked);
    return verdict;
}

static void test_each_is_compiled_once(void **state)
{
    (void)state;
    struct constraint_checks *checks = constraint_checks_create();
    struct told told;
    struct error err = {""};
    struct constraint_source *refused = regex_of(REFUSED);
    assert_non_null(checks);
    assert_int_equal(constraint_checks_find(checks, refused, &err), CONSTRAINT_UNKNOWN);
    start(checks, &told);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(settle(checks, &told, FINE, &err), CONSTRAINT_FINE);
        assert_int_equal(settle(checks, &told, REFUSED, &err), CONSTRAINT_REFUSED);
        assert_string_equal(err.text,
                            "regex: lookbehind (?<=) isn't supported at byte 1 of the pattern");
    }
    struct constraint_checks_counts counts = constraint_checks_counts(checks);
    assert_int_equal(counts.compiled, 2);
    assert_int_equal(counts.refused, 1);
    assert_int_equal(counts.found, 1998);
    assert_int_equal(constraint_checks_find(checks, refused, &err), CONSTRAINT_REFUSED);
    free(refused);
    constraint_checks_stop(checks);
    constraint_checks_destroy(checks);
    end(&told);
}

/* The result that was requested longest ago is dropped; refused ones don't displace valid ones. */
static void test_what_is_remembered_is_bounded(void **state)
{
    (void)state;
    struct constraint_checks *checks = constraint_checks_create();
    struct told told;
    struct error err;
    char text[32];
    start(checks, &told);
    assert_int_equal(settle(checks, &told, FINE, &err), CONSTRAINT_FINE);
    for (int i = 0; i <= CONSTRAINT_REFUSED_MAX; i++) {
        snprintf(text, sizeof text, "(%d", i);
        assert_int_equal(settle(checks, &told, text, &err), CONSTRAINT_REFUSED);
    }
    uint64_t compiled = constraint_checks_counts(checks).compiled;
    assert_int_equal(settle(checks, &told, "(1", &err), CONSTRAINT_REFUSED);
    assert_int_equal(settle(checks, &told, FINE, &err), CONSTRAINT_FINE);
    assert_int_equal(constraint_checks_counts(checks).compiled, compiled);
    assert_int_equal(settle(checks, &told, "(0", &err), CONSTRAINT_REFUSED);
    assert_int_equal(constraint_checks_counts(checks).compiled, compiled + 1);
    for (int i = 0; i < CONSTRAINT_CHECKS_MAX; i++) {
        snprintf(text, sizeof text, "a%d", i);
        assert_int_equal(settle(checks, &told, text, &err), CONSTRAINT_FINE);
    }
    compiled = constraint_checks_counts(checks).compiled;
    assert_int_equal(settle(checks, &told, "a0", &err), CONSTRAINT_FINE);
    assert_int_equal(constraint_checks_counts(checks).compiled, compiled);
    assert_int_equal(settle(checks, &told, FINE, &err), CONSTRAINT_FINE);
    assert_int_equal(constraint_checks_counts(checks).compiled, compiled + 1);
    constraint_checks_stop(checks);
    constraint_checks_destroy(checks);
    end(&told);
}

/* Before the thread runs: which constraints wait, and for which owner. */
static void test_what_waits_is_bounded_and_takes_turns(void **state)
{
    (void)state;
    struct constraint_checks *checks = constraint_checks_create();
    struct told told;
    struct error err;
    char text[32];
    for (uint64_t owner = 1; owner <= CONSTRAINT_WAITING_MAX / CONSTRAINT_WAITING_EACH; owner++) {
        for (int i = 0; i < CONSTRAINT_WAITING_EACH; i++) {
            snprintf(text, sizeof text, "o%dn%d", (int)owner, i);
            assert_int_equal(ask(checks, text, owner, &err), CONSTRAINT_PENDING);
        }
        assert_int_equal(ask(checks, "one more", owner, &err), CONSTRAINT_CROWDED);
    }
    assert_int_equal(ask(checks, "o1n0", 98, &err), CONSTRAINT_PENDING); /* it waits already */
    assert_int_equal(ask(checks, "one more", 99, &err), CONSTRAINT_CROWDED);
    start(checks, &told);
    for (int i = 0; i < CONSTRAINT_WAITING_MAX; i++) {
        struct constraint_checked *checked = wait_told(&told);
        int each = CONSTRAINT_WAITING_MAX / CONSTRAINT_WAITING_EACH;
        snprintf(text, sizeof text, "o%dn%d", 1 + i % each, i / each);
        assert_string_equal(checked->source->text, text);
        assert_int_equal(ask(checks, "one more", 99, &err), CONSTRAINT_CROWDED); /* none is taken */
        constraint_checked_free(checked);
    }
    assert_int_equal(constraint_checks_counts(checks).compiled, CONSTRAINT_WAITING_MAX);
    constraint_checks_taken(checks);
    assert_int_equal(ask(checks, "one more", 99, &err), CONSTRAINT_PENDING);
    constraint_checks_stop(checks);
    constraint_checks_destroy(checks);
    end(&told);
}

/* A withdrawn request makes room, and a constraint without requests is not compiled. */
static void test_what_is_withdrawn_is_not_compiled(void **state)
{
    (void)state;
    struct constraint_checks *checks = constraint_checks_create();
    struct constraint_source *withdrawn = regex_of("withdrawn");
    struct told told;
    struct error err;
    assert_int_equal(ask(checks, "withdrawn", 1, &err), CONSTRAINT_PENDING);
    for (int i = 1; i < CONSTRAINT_WAITING_EACH; i++)
        assert_int_equal(ask(checks, (char[]){(char)('0' + i), 0}, 1, &err), CONSTRAINT_PENDING);
    assert_int_equal(ask(checks, FINE, 1, &err), CONSTRAINT_CROWDED);
    constraint_checks_withdraw(checks, withdrawn, 1);
    assert_int_equal(ask(checks, FINE, 1, &err), CONSTRAINT_PENDING);
    start(checks, &told);
    for (int i = 0; i < CONSTRAINT_WAITING_EACH; i++) {
        struct constraint_checked *checked = wait_told(&told);
        assert_string_not_equal(checked->source->text, "withdrawn");
        constraint_checks_withdraw(checks, checked->source, 1); /* nothing any more */
        constraint_checks_taken(checks);
        constraint_checked_free(checked);
    }
    assert_int_equal(constraint_checks_counts(checks).compiled, CONSTRAINT_WAITING_EACH);
    free(withdrawn);
    constraint_checks_stop(checks);
    constraint_checks_destroy(checks);
    end(&told);
}

/* The sentence names the kind of constraint. */
static void test_each_kind_has_its_name(void **state)
{
    (void)state;
    static const char *const sentences[CONSTRAINT_KINDS] = {
        [CONSTRAINT_JSON_SCHEMA] = "json_schema: ",
        [CONSTRAINT_REGEX] = "regex: ",
        [CONSTRAINT_CHOICE] = "choice: ",
        [CONSTRAINT_TOOL_CALLS] = "tool_calls: the calls: ",
        [CONSTRAINT_BEHIND_REASONING] = "behind: ",
    };
    struct constraint_checks *checks = constraint_checks_create();
    struct told told;
    start(checks, &told);
    for (int kind = CONSTRAINT_JSON_SCHEMA; kind < CONSTRAINT_KINDS; kind++) {
        struct error err;
        struct constraint_source *source =
            constraint_source_create((enum constraint_kind)kind, "(", 1);
        assert_int_equal(constraint_checks_ask(checks, source, 0, &err), CONSTRAINT_PENDING);
        struct constraint_checked *checked = wait_told(&told);
        assert_int_equal(checked->verdict, CONSTRAINT_REFUSED);
        assert_memory_equal(checked->err.text, sentences[kind], strlen(sentences[kind]));
        constraint_checks_taken(checks);
        constraint_checked_free(checked);
        free(source);
    }
    constraint_checks_stop(checks);
    constraint_checks_destroy(checks);
    end(&told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_compiled_once),
        cmocka_unit_test(test_what_is_remembered_is_bounded),
        cmocka_unit_test(test_what_waits_is_bounded_and_takes_turns),
        cmocka_unit_test(test_what_is_withdrawn_is_not_compiled),
        cmocka_unit_test(test_each_kind_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
