/* Tables of constraints: accepted and refused answers of each, and refused constraints with their
 * sentences. */
#ifndef BATON_TESTS_UNIT_CONSTRAINT_ROWS_H
#define BATON_TESTS_UNIT_CONSTRAINT_ROWS_H

#include "common/language/constrain/automaton.h"
#include "common/language/constrain/constraint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline struct constraint *compiled(enum constraint_kind kind, const char *text)
{
    struct constraint *constraint = NULL;
    struct error err = {""};
    if (constraint_compile(kind, text, strlen(text), &constraint, &err) != STATUS_OK)
        fail_msg("%s: %s", text, err.text);
    return constraint;
}

static inline bool takes(const struct constraint *constraint, const char *answer, size_t length)
{
    struct constraint_state state;
    constraint_state_init(constraint, &state);
    /* Byte by byte and at once: the same. */
    bool whole = constraint_state_take(constraint, &state, answer, length);
    bool ends = whole && constraint_state_may_end(constraint, &state);
    struct constraint_state other;
    constraint_state_init(constraint, &other);
    for (size_t i = 0; i < length; i++)
        if (!constraint_state_take(constraint, &other, answer + i, 1)) {
            assert_false(whole);
            return false;
        }
    assert_true(whole);
    assert_int_equal(length == 0 || !memcmp(&state, &other, sizeof state), 1);
    return ends;
}

struct row {
    const char *text;
    const char *good[8], *bad[10];
};

static inline void check_rows(enum constraint_kind kind, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct constraint *constraint = compiled(kind, rows[i].text);
        for (const char *const *answer = rows[i].good; *answer; answer++)
            if (!takes(constraint, *answer, strlen(*answer)))
                fail_msg("%s doesn't take %s", rows[i].text, *answer);
        for (const char *const *answer = rows[i].bad; *answer; answer++)
            if (takes(constraint, *answer, strlen(*answer)))
                fail_msg("%s takes %s", rows[i].text, *answer);
        constraint_destroy(constraint);
    }
}

#define CHECK_ROWS(kind, rows) check_rows(kind, rows, sizeof(rows) / sizeof *(rows))

struct refusal {
    const char *text;
    enum status status;
    const char *part; /* a part of the sentence */
};

static inline void check_refusals(enum constraint_kind kind, const struct refusal *rows,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct constraint *constraint = NULL;
        struct error err = {""};
        enum status status =
            constraint_compile(kind, rows[i].text, strlen(rows[i].text), &constraint, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].part))
            fail_msg("%s: %s: %s", rows[i].text, status_name(status), err.text);
        assert_null(constraint);
    }
}

#define CHECK_REFUSALS(kind, rows) check_refusals(kind, rows, sizeof(rows) / sizeof *(rows))

/* One of the tools of a CONSTRAINT_TOOL_CALLS. */
#define TOOL(name, begin, schema)                                                                  \
    "{\"name\":\"" name "\",\"begin\":\"" begin "\",\"schema\":\"" schema "\"}"

#endif
