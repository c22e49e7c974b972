/* load_plan: arrival processes by their moments, datasets, files with bad lines, and the order in
 * which requests are sent. */
#include "common/cli/load_plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct load_plan random_plan(uint32_t count, uint64_t seed)
{
    const struct load_lengths lengths = {.input = 8, .output = 4};
    struct load_plan plan;
    struct error err;
    load_plan_init(&plan);
    assert_int_equal(load_plan_add_random(&plan, &lengths, count, seed, &err), STATUS_OK);
    return plan;
}

/* --- arrivals --- */

static void test_gaps_have_the_mean_and_the_variation_that_was_asked_for(void **state)
{
    (void)state;
    static const double shapes[] = {0.25, 0.5, 1, 4, 25};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            enum { DRAWS = 40000 };
            struct rng rng = rng_seeded(seed);
            double sum = 0, squares = 0;
            for (int k = 0; k < DRAWS; k++) {
                double gap = load_gamma(&rng, shapes[i]);
                assert_true(gap >= 0);
                sum += gap;
                squares += gap * gap;
            }
            double mean = sum / DRAWS, cv = sqrt(squares / DRAWS - mean * mean) / mean;
            if (fabs(mean - 1) > 0.04 || fabs(cv * sqrt(shapes[i]) - 1) > 0.05)
                fail_msg("shape %g, seed %d: mean %g, CV %g", shapes[i], (int)seed, mean, cv);
        }
}

/* Poisson arrivals: gaps of CV 1, and the last request is due at count / rate. */
static void test_a_rate_is_met_exactly(void **state)
{
    (void)state;
    enum { COUNT = 4000 };
    struct load_plan plan = random_plan(COUNT, 0), other = random_plan(COUNT, 0);
    const struct load_arrivals arrivals = {.rate = 8, .burstiness = 1};
    load_plan_set_arrivals(&plan, &arrivals, 7);
    load_plan_set_arrivals(&other, &arrivals, 7);
    assert_true(llabs((long long)plan.requests[COUNT - 1].at_ns - 500000000000ll) < 2);
    double squares = 0, before = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        double at = (double)plan.requests[i].at_ns * 8e-9;
        assert_true(plan.requests[i].at_ns == other.requests[i].at_ns);
        assert_true(at >= before);
        squares += (at - before - 1) * (at - before - 1);
        before = at;
    }
    assert_true(fabs(sqrt(squares / COUNT) - 1) < 0.06);
    load_plan_set_arrivals(&other, &arrivals, 8);
    assert_true(plan.requests[0].at_ns != other.requests[0].at_ns);
    load_plan_deinit(&plan);
    load_plan_deinit(&other);
}

static void test_other_rates(void **state)
{
    (void)state;
    struct load_plan plan = random_plan(5, 0);
    const struct load_arrivals even = {.rate = 2, .burstiness = (double)INFINITY};
    load_plan_set_arrivals(&plan, &even, 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(plan.requests[i].at_ns, (i + 1) * 500000000u);
    const struct load_arrivals once = {.rate = (double)INFINITY, .burstiness = 1};
    load_plan_set_arrivals(&plan, &once, 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(plan.requests[i].at_ns, 0);
    load_plan_deinit(&plan);
}

/* The integral of a ramp's rate over its time is the number of requests, and the rates of its ends
 * are those that were asked for. */
static void test_a_ramp_integrates_to_the_number_of_requests(void **state)
{
    (void)state;
    enum { COUNT = 101 };
    for (enum load_ramp ramp = LOAD_RAMP_LINEAR; ramp <= LOAD_RAMP_EXPONENTIAL; ramp++) {
        struct load_plan plan = random_plan(COUNT, 0);
        const struct load_arrivals arrivals = {
            .burstiness = (double)INFINITY, .ramp = ramp, .start = 2, .end = 32};
        load_plan_set_arrivals(&plan, &arrivals, 0);
        double integral = 0, before = 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            double share = (double)i / (COUNT - 1), at = (double)plan.requests[i].at_ns * 1e-9;
            double rate = ramp == LOAD_RAMP_LINEAR ? 2 + 30 * share : 2 * pow(16, share);
            integral += rate * (at - before);
            before = at;
        }
        assert_true(fabs(integral - COUNT) < 1e-3);
        double last = (double)(plan.requests[COUNT - 1].at_ns - plan.requests[COUNT - 2].at_ns);
        assert_true(fabs(last * 1e-9 * 32 - 1) < 1e-3);
        assert_true(fabs((double)plan.requests[0].at_ns * 2e-9 - 1) < 1e-3);
        load_plan_deinit(&plan);
    }
}

/* --- datasets --- */

static void test_random_lengths_fill_their_range(void **state)
{
    (void)state;
    const struct load_lengths lengths = {
        .input = 100, .output = 10, .prefix = 5, .range_ratio = 0.25};
    struct load_plan plan;
    struct error err;
    uint32_t least = UINT32_MAX, most = 0;
    load_plan_init(&plan);
    assert_int_equal(load_plan_add_random(&plan, &lengths, 2000, 3, &err), STATUS_OK);
    for (uint32_t i = 0; i < 2000; i++) {
        const struct load_request *request = &plan.requests[i];
        const struct load_segment *segments = plan.segments + request->first_segment;
        assert_int_equal(request->segment_count, 2);
        assert_int_equal(segments[0].tokens, 5);
        assert_true(segments[0].name == plan.segments[0].name);
        assert_true(!i || segments[1].name != segments[-1].name);
        assert_in_range(request->output_tokens, 7, 13);
        least = request->input_tokens < least ? request->input_tokens : least;
        most = request->input_tokens > most ? request->input_tokens : most;
    }
    assert_int_equal(least, 80);
    assert_int_equal(most, 130);
    load_plan_deinit(&plan);
    load_plan_init(&plan);
    const struct load_lengths empty = {.input = 1, .output = 10, .range_ratio = 0.5},
                              wide = {.input = 8, .output = 8, .range_ratio = 1};
    assert_int_equal(load_plan_add_random(&plan, &empty, 1, 0, &err), STATUS_INVALID);
    assert_int_equal(load_plan_add_random(&plan, &wide, 1, 0, &err), STATUS_INVALID);
    load_plan_deinit(&plan);
}

static void test_chats_have_sharegpts_lengths(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    struct load_plan plan;
    struct error err;
    double input = 0, output = 0;
    load_plan_init(&plan);
    assert_int_equal(load_plan_add_chats(&plan, COUNT, 1, &err), STATUS_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        input += plan.requests[i].input_tokens;
        output += plan.requests[i].output_tokens;
        assert_in_range(plan.requests[i].input_tokens, 4, 1024);
        assert_in_range(plan.requests[i].output_tokens, 4, 2048 - plan.requests[i].input_tokens);
    }
    /* The cuts take a little off the means of 161 and 338. */
    assert_in_range((uint32_t)(input / COUNT), 135, 161);
    assert_in_range((uint32_t)(output / COUNT), 290, 338);
    load_plan_deinit(&plan);
}

static void test_prefixes_are_shared_evenly_and_in_random_order(void **state)
{
    (void)state;
    const struct load_prefixes prefixes = {.prefix = 6, .suffix = 2, .output = 3, .prefixes = 4};
    struct load_plan plan;
    struct error err;
    uint32_t seen[8] = {0}, changes = 0;
    load_plan_init(&plan);
    assert_int_equal(load_plan_add_prefixes(&plan, &prefixes, 42, 5, &err), STATUS_OK);
    assert_int_equal(plan.request_count, 40); /* as vLLM: 10 of each */
    for (uint32_t i = 0; i < 40; i++) {
        uint64_t name = plan.segments[plan.requests[i].first_segment].name;
        assert_int_equal(plan.requests[i].input_tokens, 8);
        assert_true(name < 8);
        seen[name]++;
        changes += i && name != plan.segments[plan.requests[i - 1].first_segment].name;
    }
    for (size_t i = 0; i < 8; i++)
        assert_true(seen[i] == 0 || seen[i] == 10);
    assert_in_range(changes, 15, 39);
    assert_int_equal(load_plan_add_prefixes(&plan, &prefixes, 3, 5, &err), STATUS_INVALID);
    load_plan_deinit(&plan);
}

/* --- files --- */

static void write_file(char path[32], const char *text)
{
    strcpy(path, "/tmp/baton-load-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static enum status
read_text(enum status (*read)(struct load_plan *, const struct load_file *, struct error *),
          const char *text, uint32_t most, struct load_plan *plan, struct error *err)
{
    char path[32];
    write_file(path, text);
    const struct load_file file = {.path = path, .count = 3, .max_tokens = most, .second = 0.5};
    load_plan_init(plan);
    enum status status = read(plan, &file, err);
    unlink(path);
    return status;
}

#define HEADER "arrived_at,num_prefill_tokens,num_decode_tokens\n"
#define AZURE  "TIMESTAMP,ContextTokens,GeneratedTokens\n"

static void test_a_trace_of_azure(void **state)
{
    (void)state;
    struct load_plan plan;
    struct error err;
    assert_int_equal(read_text(load_plan_read_azure,
                               HEADER "10.0,374,44\n12.5,396,0\r\n13,9000,5\n14,2,1\n15,7,7\n",
                               8192, &plan, &err),
                     STATUS_OK);
    assert_int_equal(plan.request_count, 3); /* at most */
    assert_int_equal(plan.left_out, 1);
    assert_int_equal(plan.requests[0].at_ns, 0);
    assert_int_equal(plan.requests[0].input_tokens, 374);
    assert_int_equal(plan.requests[0].output_tokens, 44);
    assert_int_equal(plan.requests[1].at_ns, 1250000000);
    assert_int_equal(plan.requests[1].output_tokens, 1);
    assert_int_equal(plan.requests[2].at_ns, 2000000000);
    load_plan_deinit(&plan);
    assert_int_equal(read_text(load_plan_read_azure,
                               AZURE "2023-12-31 23:59:59.5000000,8,8\n2024-01-01 00:00:01,9,9\n",
                               0, &plan, &err),
                     STATUS_OK);
    assert_int_equal(plan.requests[1].at_ns, 750000000);
    load_plan_deinit(&plan);
}

static void test_bad_lines_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"a,b,c\n", ":1: the header must be \"arrived_at"},
        {"", "holds no requests"},
        {HEADER, "holds no requests"},
        {HEADER "1,2\n", ":2: not three columns"},
        {HEADER "1,2,3,4\n", ":2: not three columns"},
        {HEADER "0,5,5\nx,2,3\n", ":3: 'x' is no time"},
        {HEADER "2023-13-01 00:00:00,2,3\n", ":2: '2023-13-01 00:00:00' is no time"},
        {HEADER "0,0,3\n", ":2: '0' must be a number of tokens from 1"},
        {HEADER "0,5,-3\n", ":2: '-3' must be a number of tokens from 0"},
        {HEADER "5,5,5\n4,5,5\n", ":3: its time is before"},
        {HEADER "0,900,900\n", "all 1 requests have more than 1000 tokens"},
        {"\x1f\x8b\x08", ":1: the header"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct load_plan plan;
        struct error err = {""};
        if (read_text(load_plan_read_azure, rows[i].text, 1000, &plan, &err) != STATUS_INVALID ||
            !strstr(err.text, rows[i].words))
            fail_msg("%zu: %s", i, err.text);
        load_plan_deinit(&plan);
    }
    struct load_plan plan;
    struct error err;
    load_plan_init(&plan);
    assert_int_equal(load_plan_read_azure(&plan, &(struct load_file){.path = "/nowhere"}, &err),
                     STATUS_IO);
    assert_non_null(strstr(err.text, "cannot open /nowhere: No such file"));
    load_plan_deinit(&plan);
}

static void test_a_trace_of_mooncake_shares_its_blocks(void **state)
{
    (void)state;
    struct load_plan plan;
    struct error err;
    assert_int_equal(read_text(load_plan_read_mooncake,
                               "{\"timestamp\": 100, \"input_length\": 1000, \"output_length\": 5, "
                               "\"hash_ids\": [0, 1]}\n"
                               "{\"timestamp\": 150, \"input_length\": 513, \"output_length\": 6, "
                               "\"hash_ids\": [0, 2]}\n",
                               0, &plan, &err),
                     STATUS_OK);
    assert_int_equal(plan.request_count, 2);
    assert_int_equal(plan.requests[1].at_ns, 25000000000);
    assert_int_equal(plan.segments[1].tokens, 488);
    assert_int_equal(plan.segments[3].tokens, 1);
    assert_true(plan.segments[0].name == plan.segments[2].name);
    assert_true(plan.segments[1].name != plan.segments[3].name);
    load_plan_deinit(&plan);
    assert_int_equal(read_text(load_plan_read_mooncake,
                               "{\"timestamp\": 0, \"input_length\": 5, \"hash_ids\": [0]}\n", 0,
                               &plan, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, ":1: output_length is missing or 0"));
    load_plan_deinit(&plan);
}

static enum status count_letters(const void *context, const char *text, size_t length,
                                 uint32_t *tokens, struct error *err)
{
    (void)context, (void)text, (void)err;
    *tokens = (uint32_t)length;
    return STATUS_OK;
}

static void test_sharegpts_conversations(void **state)
{
    (void)state;
    char path[32];
    struct load_plan plan;
    struct error err;
    write_file(path, "[{\"conversations\": [{\"value\": \"hello\"}, {\"value\": \"a world\"}]},"
                     " {\"conversations\": [{\"value\": \"alone\"}]},"
                     " {\"conversations\": [{\"value\": \"abc\"}, {\"value\": \"too short\"}]},"
                     " {\"conversations\": [{\"value\": \"again\\\"\"}, {\"value\": \"four\"}]}]");
    struct load_sharegpt sharegpt = {
        .file = {.path = path, .count = 9}, .in_order = true, .count_tokens = count_letters};
    load_plan_init(&plan);
    assert_int_equal(load_plan_read_sharegpt(&plan, &sharegpt, &err), STATUS_OK);
    assert_int_equal(plan.request_count, 2);
    assert_int_equal(plan.left_out, 1);
    assert_string_equal(plan.texts[plan.requests[0].text], "hello");
    assert_string_equal(plan.texts[plan.requests[1].text], "again\"");
    assert_int_equal(plan.requests[0].output_tokens, 7);
    assert_int_equal(load_plan_repeat(&plan, 5, &err), STATUS_OK);
    assert_int_equal(plan.requests[4].text, plan.requests[0].text);
    assert_int_equal(plan.requests[4].input_tokens, 5);
    load_plan_deinit(&plan);
    unlink(path);
    write_file(path, "[{\"conversations\": [{\"value\": \"hello\"}, {\"from\": \"gpt\"}]}]");
    load_plan_init(&plan);
    assert_true(load_plan_read_sharegpt(&plan, &sharegpt, &err) != STATUS_OK);
    assert_non_null(strstr(err.text, "conversation 0"));
    load_plan_deinit(&plan);
    unlink(path);
}

/* --- order --- */

static void on_lost(void *context, uint32_t request)
{
    *(uint64_t *)context |= 1ull << request;
}

/* 1 + 2 * 2 requests: 0, its children 1 and 2, and theirs, 3 and 4. */
static struct load_plan turns_plan(uint32_t count)
{
    const struct load_turns turns = {
        .system = 3, .input = 4, .output = 2, .turns = 3, .branches = 2, .think_s = 1};
    struct load_plan plan;
    struct error err;
    load_plan_init(&plan);
    assert_int_equal(load_plan_add_turns(&plan, &turns, count, 2, &err), STATUS_OK);
    return plan;
}

static void test_turns_and_branches(void **state)
{
    (void)state;
    static const uint32_t parents[] = {LOAD_NONE, 0, 0, 1, 2, LOAD_NONE, 5, 5};
    struct load_plan plan = turns_plan(8);
    for (uint32_t i = 0; i < 8; i++) {
        assert_true(plan.requests[i].parent == parents[i]);
        assert_int_equal(plan.requests[i].input_tokens, parents[i] == LOAD_NONE ? 7 : 4);
        assert_true((plan.requests[i].think_ns > 0) == (parents[i] != LOAD_NONE));
    }
    load_plan_deinit(&plan);
}

static void test_a_later_turn_comes_after_the_answer_and_the_think_time(void **state)
{
    (void)state;
    struct load_plan plan = turns_plan(5);
    struct load_order order;
    uint64_t lost = 0, ready_ns;
    load_order_init(&order, &plan, 0);
    assert_int_equal(load_order_next(&order, 0, &ready_ns), 0);
    assert_true(load_order_when(&order) == UINT64_MAX); /* all others wait for it */
    assert_int_equal(load_order_ended(&order, 0, true, 1000, on_lost, &lost), 0);
    uint64_t first = plan.requests[1].think_ns, second = plan.requests[2].think_ns;
    uint32_t sooner = first <= second ? 1 : 2, later = 3 - sooner;
    assert_true(load_order_when(&order) == 1000 + plan.requests[sooner].think_ns);
    assert_true(load_order_next(&order, load_order_when(&order) - 1, &ready_ns) == LOAD_NONE);
    assert_int_equal(load_order_next(&order, load_order_when(&order), &ready_ns), sooner);
    assert_int_equal(load_order_next(&order, UINT64_MAX - 1, &ready_ns), later);
    assert_true(ready_ns == 1000 + plan.requests[later].think_ns);
    /* A failed turn takes those behind it along. */
    assert_int_equal(load_order_ended(&order, 1, false, 5000, on_lost, &lost), 1);
    assert_int_equal(lost, 1u << 3);
    load_order_ended(&order, 2, true, 6000, on_lost, &lost);
    assert_int_equal(order.left, 1);
    assert_int_equal(load_order_next(&order, UINT64_MAX - 1, &ready_ns), 4);
    load_order_ended(&order, 4, true, 7000, on_lost, &lost);
    assert_int_equal(order.left + order.running, 0);
    load_order_deinit(&order);
    load_order_init(&order, &plan, 0);
    lost = 0;
    assert_int_equal(load_order_next(&order, 0, &ready_ns), 0);
    assert_int_equal(load_order_ended(&order, 0, false, 1, on_lost, &lost), 4);
    assert_int_equal(lost, 0x1e);
    assert_int_equal(order.left, 0);
    load_order_deinit(&order);
    load_plan_deinit(&plan);
}

/* A closed loop: never more than the limit, in the order of the due times, and a request that
 * waited for a place is ready when the place is free. */
static void test_the_limit_holds(void **state)
{
    (void)state;
    enum { COUNT = 400, LIMIT = 5 };
    struct load_plan plan = random_plan(COUNT, 0);
    const struct load_arrivals arrivals = {.rate = 1000, .burstiness = 0.5};
    load_plan_set_arrivals(&plan, &arrivals, 3);
    struct rng rng = rng_seeded(4);
    struct load_order order;
    uint32_t running[LIMIT], count = 0, sent = 0;
    uint64_t now = 0, ready_ns, freed = 0, lost = 0, before = 0;
    load_order_init(&order, &plan, LIMIT);
    while (order.left) {
        now += rng_below(&rng, 400000);
        for (uint32_t next; (next = load_order_next(&order, now, &ready_ns)) != LOAD_NONE;) {
            uint64_t due = plan.requests[next].at_ns;
            assert_true(count < LIMIT && due <= now && due >= before);
            assert_true(ready_ns == (due > freed ? due : freed));
            before = due;
            running[count++] = next;
            sent++;
        }
        if (!count)
            continue;
        uint32_t at = (uint32_t)rng_below(&rng, count);
        if (count == LIMIT)
            freed = now;
        load_order_ended(&order, running[at], true, now, on_lost, &lost);
        running[at] = running[--count];
    }
    assert_int_equal(sent, COUNT);
    load_order_deinit(&order);
    load_plan_deinit(&plan);
}

/* A sender that comes late is told when the request was ready: an end below the limit is no place
 * that it waited for. */
static void test_one_that_was_due_within_the_limit_was_ready_then(void **state)
{
    (void)state;
    struct load_plan plan = random_plan(2, 0);
    struct load_order order;
    uint64_t lost = 0, ready_ns;
    plan.requests[1].at_ns = 10;
    load_order_init(&order, &plan, 5);
    assert_int_equal(load_order_next(&order, 0, &ready_ns), 0);
    load_order_ended(&order, 0, true, 20, on_lost, &lost);
    assert_int_equal(load_order_next(&order, 30, &ready_ns), 1);
    assert_int_equal(ready_ns, 10);
    load_order_ended(&order, 1, true, 40, on_lost, &lost);
    load_order_deinit(&order);
    load_plan_deinit(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gaps_have_the_mean_and_the_variation_that_was_asked_for),
        cmocka_unit_test(test_a_rate_is_met_exactly),
        cmocka_unit_test(test_other_rates),
        cmocka_unit_test(test_a_ramp_integrates_to_the_number_of_requests),
        cmocka_unit_test(test_random_lengths_fill_their_range),
        cmocka_unit_test(test_chats_have_sharegpts_lengths),
        cmocka_unit_test(test_prefixes_are_shared_evenly_and_in_random_order),
        cmocka_unit_test(test_a_trace_of_azure),
        cmocka_unit_test(test_bad_lines_are_named),
        cmocka_unit_test(test_a_trace_of_mooncake_shares_its_blocks),
        cmocka_unit_test(test_sharegpts_conversations),
        cmocka_unit_test(test_turns_and_branches),
        cmocka_unit_test(test_a_later_turn_comes_after_the_answer_and_the_think_time),
        cmocka_unit_test(test_the_limit_holds),
        cmocka_unit_test(test_one_that_was_due_within_the_limit_was_ready_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
