/* prefix_trace: a trace at its limits, which test_prefix_bench.py can't reach with a file. */
#include "common/cli/prefix_trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static enum status add(struct prefix_trace *trace, const char *line)
{
    struct error err = {0};
    enum status status = prefix_trace_add(trace, line, strlen(line), &err);
    assert_int_equal(*err.text != '\0', status != STATUS_OK);
    return status;
}

static void test_a_refused_line_leaves_the_trace_as_it_was(void **state)
{
    (void)state;
    struct prefix_trace trace;
    prefix_trace_init(&trace);
    assert_int_equal(add(&trace, "{\"input_length\": 513, \"hash_ids\": [7, 9]}"), STATUS_OK);
    assert_int_equal(add(&trace, "{\"input_length\": 512, \"hash_ids\": [7, 9]}"), STATUS_INVALID);
    assert_int_equal(add(&trace, "{\"input_length\": 513, \"hash_ids\": [7, -9]}"), STATUS_INVALID);
    assert_int_equal(add(&trace, "{\"input_length\": 512, \"hash_ids\": [3]}"), STATUS_OK);
    assert_int_equal(trace.prompt_count, 2);
    assert_int_equal(trace.prompts[1].first_id, 2);
    assert_int_equal(trace.ids[2], 3);
    assert_int_equal(trace.token_count, 1025);
    assert_int_equal(trace.longest_tokens, 513);
    prefix_trace_deinit(&trace);
}

static void test_one_more_prompt_or_id_than_a_trace_may_have(void **state)
{
    (void)state;
    const char *line = "{\"input_length\": 513, \"hash_ids\": [7, 9]}";
    struct prefix_trace trace;
    prefix_trace_init(&trace);
    trace.prompt_count = PREFIX_TRACE_MAX_PROMPTS;
    assert_int_equal(add(&trace, line), STATUS_LIMIT);
    trace.prompt_count = 0;
    trace.id_count = PREFIX_TRACE_MAX_IDS - 1;
    assert_int_equal(add(&trace, line), STATUS_LIMIT);
    assert_int_equal(trace.id_count, PREFIX_TRACE_MAX_IDS - 1);
    prefix_trace_deinit(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refused_line_leaves_the_trace_as_it_was),
        cmocka_unit_test(test_one_more_prompt_or_id_than_a_trace_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
