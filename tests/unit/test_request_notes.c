/* request_notes: durations by a worker's own clock, sent once; names, which can forge no log line;
 * bounded. */
#include "common/worker/request_notes.h"

#include "common/base/log.h"
#include "common/base/request_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define T0 5000000u
static const struct sequence_key one = {7, 1}, two = {7, 2}, three = {8, 1};

static void test_a_prompt_that_is_computed(void **state)
{
    (void)state;
    struct request_notes notes;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_notes_init(&notes, 2), STATUS_OK);
    request_notes_begin(&notes, one, "r", true, T0);
    request_notes_reserved(&notes, one, 32, T0 + 10);
    request_notes_chunk(&notes, one, T0 + 100);
    request_notes_chunk(&notes, two, T0 + 150); /* another attempt's */
    request_notes_chunk(&notes, one, T0 + 200);
    assert_false(request_notes_prefilled(&notes, two, &told));
    assert_true(request_notes_prefilled(&notes, one, &told));
    assert_int_equal(told.request, 7);
    assert_int_equal(told.attempt, 1);
    assert_int_equal(told.queued_us, 10);
    assert_int_equal(told.cached_tokens, 32);
    assert_int_equal(told.chunk_count, 2);
    assert_int_equal(told.n_chunk_end_us, 2);
    assert_int_equal(told.chunk_end_us[1], 200);
    assert_false(request_notes_prefilled(&notes, one, &told)); /* once */
    assert_int_equal(notes.unsent, 0);
    request_notes_deinit(&notes);
}

static void test_more_chunks_than_are_kept(void **state)
{
    (void)state;
    struct request_notes notes;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_notes_init(&notes, 1), STATUS_OK);
    request_notes_begin(&notes, one, "r", true, T0);
    for (uint32_t i = 1; i <= REQUEST_NOTES_MAX_CHUNKS + 5; i++)
        request_notes_chunk(&notes, one, T0 + i);
    assert_true(request_notes_prefilled(&notes, one, &told));
    assert_int_equal(told.chunk_count, REQUEST_NOTES_MAX_CHUNKS + 5);
    assert_int_equal(told.n_chunk_end_us, REQUEST_NOTES_MAX_CHUNKS);
    assert_int_equal(told.chunk_end_us[0], 1);
    assert_int_equal(told.chunk_end_us[REQUEST_NOTES_MAX_CHUNKS - 1], REQUEST_NOTES_MAX_CHUNKS + 5);
    request_notes_deinit(&notes);
}

static void test_a_pull(void **state)
{
    (void)state;
    struct request_notes notes;
    Baton__Worker__V1__Pulled told = BATON__WORKER__V1__PULLED__INIT;
    assert_int_equal(request_notes_init(&notes, 1), STATUS_OK);
    request_notes_begin(&notes, one, "r", false, T0);
    assert_int_equal(notes.unsent, 0);
    request_notes_reserved(&notes, one, 0, T0 + 5);
    request_notes_read(&notes, one, T0 + 20);
    request_notes_read(&notes, one, T0 + 30); /* the first one counts */
    request_notes_pulled(&notes, two, T0 + 50, &told);
    assert_int_equal(told.done_us, 0);
    request_notes_pulled(&notes, one, T0 + 50, &told);
    assert_int_equal(told.queued_us, 5);
    assert_int_equal(told.read_us, 20);
    assert_int_equal(told.done_us, 50);
    request_notes_deinit(&notes);
}

/* One request more than there is room for is not reported, and takes no other's place. A dropped
 * one makes room. */
static void test_one_request_more(void **state)
{
    (void)state;
    struct request_notes notes;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_notes_init(&notes, 2), STATUS_OK);
    request_notes_begin(&notes, one, "r", true, T0);
    request_notes_begin(&notes, two, "r", true, T0);
    request_notes_begin(&notes, three, "r", true, T0);
    assert_int_equal(notes.unsent, 2);
    assert_false(request_notes_prefilled(&notes, three, &told));
    request_notes_drop(&notes, one);
    request_notes_drop(&notes, one);
    assert_int_equal(notes.unsent, 1);
    request_notes_begin(&notes, three, "r", true, T0);
    request_notes_begin(&notes, three, "r", true, T0 + 9); /* again: anew */
    assert_int_equal(notes.unsent, 2);
    request_notes_chunk(&notes, three, T0 + 10);
    assert_true(request_notes_prefilled(&notes, three, &told));
    assert_int_equal(told.chunk_end_us[0], 1);
    request_notes_deinit(&notes);
}

static void test_times_that_can_not_be(void **state)
{
    (void)state;
    struct request_notes notes;
    Baton__Worker__V1__Prefilled told;
    assert_int_equal(request_notes_init(&notes, 1), STATUS_OK);
    request_notes_begin(&notes, one, "r", true, T0);
    request_notes_reserved(&notes, one, 0, T0 - 1);
    request_notes_chunk(&notes, one, T0 + ((uint64_t)UINT32_MAX + 7));
    assert_true(request_notes_prefilled(&notes, one, &told));
    assert_int_equal(told.queued_us, 0);
    assert_int_equal(told.chunk_end_us[0], UINT32_MAX);
    request_notes_deinit(&notes);
}

static void test_names(void **state)
{
    (void)state;
    struct request_notes notes;
    assert_int_equal(request_notes_init(&notes, 2), STATUS_OK);
    struct sequence_key a = {7, 1}, newer = {7, 2}, c = {8, 1};
    assert_string_equal(request_notes_name(&notes, a), "unknown");
    request_notes_begin(&notes, a, "r0", false, T0);
    request_notes_begin(&notes, newer, "r0-again", false, T0);
    request_notes_begin(&notes, c, "no room", false, T0);
    assert_false(request_notes_has(&notes, c));
    request_notes_drop(&notes, c);
    assert_string_equal(request_notes_name(&notes, a), "r0");
    assert_string_equal(request_notes_name(&notes, newer), "r0-again");
    request_notes_drop(&notes, a);
    assert_false(request_notes_has(&notes, a));
    assert_string_equal(request_notes_name(&notes, newer), "r0-again");
    request_notes_begin(&notes, c, "a b\n\"c\xff", false, T0);
    assert_string_equal(request_notes_name(&notes, c), "a?b??c?");
    char name[300];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    request_notes_begin(&notes, c, name, false, T0);
    assert_int_equal(strlen(request_notes_name(&notes, c)), REQUEST_MAX_ID_BYTES);
    request_notes_deinit(&notes);
}

/* Clients cause them at will. */
static void test_failures_are_told_a_limited_number_of_times(void **state)
{
    (void)state;
    struct request_notes notes;
    assert_int_equal(request_notes_init(&notes, 1), STATUS_OK);
    struct step_event event = {.kind = STEP_REFUSED, .key = {7, 1}, .status = STATUS_LIMIT};
    error_set(&event.err, STATUS_LIMIT, "no \"room\"");
    request_notes_begin(&notes, event.key, "r0", false, T0);
    FILE *text = tmpfile();
    int before = dup(STDERR_FILENO);
    assert_true(text && before >= 0);
    assert_true(dup2(fileno(text), STDERR_FILENO) >= 0);
    log_init("test", LOG_INFO);
    for (int i = 0; i < 3 * LOG_LIMIT_LINES; i++)
        request_notes_log_failed(&notes, "role", &event);
    event.kind = STEP_FAILED;
    request_notes_log_failed(&notes, "role", &event);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(text);
    char line[LOG_MAX_LINE_BYTES + 1];
    int refused = 0, failed = 0;
    while (fgets(line, sizeof line, text)) {
        assert_non_null(strstr(line, "req=r0 id=0000000000000007 attempt=1 "));
        assert_non_null(strstr(line, "why=\"no \\\"room\\\"\""));
        refused += strstr(line, "level=warn") && strstr(line, "mod=role") &&
                   strstr(line, "msg=\"refused\"");
        failed += strstr(line, "level=error") && strstr(line, "msg=\"a step failed\"");
    }
    fclose(text);
    assert_int_equal(refused, LOG_LIMIT_LINES);
    assert_int_equal(failed, 1);
    request_notes_deinit(&notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_that_is_computed),
        cmocka_unit_test(test_more_chunks_than_are_kept),
        cmocka_unit_test(test_a_pull),
        cmocka_unit_test(test_one_request_more),
        cmocka_unit_test(test_times_that_can_not_be),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_failures_are_told_a_limited_number_of_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
