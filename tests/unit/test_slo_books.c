/* slo_books: which ends count as misses, windows of time, the error budget, tenths by prompt
 * length, predictions against measurements. */
#include "common/base/json/json.h"
#include "router/ops/slo_books.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define NOW_US 7200000000u /* two hours */
#define MINUTE SLO_MINUTE_US

static const struct slo_classes CLASSES = {
    .items = {{.name = "chat", .objective = {.ttft_us = 400, .tpot_us = 40}, .percentile = 90},
              {.name = "batch", .percentile = 50, .priority = PRIORITY_OFFLINE, .offline = true}},
    .count = 2,
    .standard = 0};

struct world {
    struct metrics *metrics;
    struct slo_books *books;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->metrics = metrics_create();
    assert_int_equal(slo_books_create(&CLASSES, world->metrics, &world->books), STATUS_OK);
    assert_ptr_equal(slo_books_classes(world->books), &CLASSES);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    slo_books_destroy(world->books);
    metrics_destroy(world->metrics);
    free(world);
    return 0;
}

/* An answer of class 0 with 5 tokens, within its objectives. */
static struct slo_ending answered(uint64_t ttft_us)
{
    return (struct slo_ending){
        .objective = CLASSES.items[0].objective,
        .outcome = {.ttft_us = ttft_us, .e2e_us = ttft_us + 4 * 40, .answer_tokens = 5},
        .prompt_tokens = 100};
}

static struct slo_figures figures_of(const struct world *world, uint32_t slo_class, uint64_t now_us)
{
    struct slo_figures figures;
    slo_books_read(world->books, slo_class, now_us, &figures);
    return figures;
}

static void test_ends_that_count(void **state)
{
    struct world *world = *state;
    enum kind { ATTAINED, MISSED, UNCOUNTED };
    static const struct {
        enum reason reason;
        uint64_t ttft_us;
        enum kind wanted;
    } cases[] = {
        {REASON_NONE, 400, ATTAINED},
        {REASON_NONE, 401, MISSED},
        {REASON_OVERLOADED, 0, MISSED}, /* rejected and failed requests miss */
        {REASON_SLO_UNATTAINABLE, 0, MISSED},
        {REASON_NO_WORKERS, 0, MISSED},
        {REASON_WORKERS_LOST, 0, MISSED},
        {REASON_DRAINING, 0, MISSED},
        {REASON_DEADLINE, 0, MISSED},
        {REASON_INTERNAL, 0, MISSED},
        {REASON_STEP_FAILED, 0, MISSED},
        {REASON_CANCELLED, 400, UNCOUNTED}, /* it could still have attained */
        {REASON_CANCELLED, 401, MISSED},
        {REASON_MALFORMED, 401, UNCOUNTED}, /* the client's own fault, late or not */
        {REASON_SLO_TIGHTENED, 0, UNCOUNTED},
        {REASON_CONTEXT_LENGTH_EXCEEDED, 0, UNCOUNTED},
        {REASON_MODEL_NOT_FOUND, 0, UNCOUNTED},
        {REASON_INVALID_API_KEY, 0, UNCOUNTED},
        {REASON_SLO_CLASS_NOT_ALLOWED, 0, UNCOUNTED},
        {REASON_RATE_LIMITED, 0, UNCOUNTED},
        {REASON_QUOTA, 0, UNCOUNTED},
        {REASON_SLOW_READER, 0, UNCOUNTED},
        {REASON_ANSWER_TOO_LARGE, 0, UNCOUNTED},
        {REASON_REFUSED, 0, UNCOUNTED},
    };
    uint64_t counts[3] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slo_ending ending = answered(cases[i].ttft_us);
        ending.reason = cases[i].reason;
        slo_books_ended(world->books, &ending, NOW_US);
        counts[cases[i].wanted]++;
        struct slo_figures figures = figures_of(world, 0, NOW_US);
        if (figures.ever.attained != counts[ATTAINED] || figures.ever.missed != counts[MISSED] ||
            figures.uncounted != counts[UNCOUNTED])
            fail_msg("%s, TTFT %d", reason_name(cases[i].reason), (int)cases[i].ttft_us);
    }
    struct slo_figures figures = figures_of(world, 0, NOW_US);
    assert_int_equal(figures.ever.missed_by[SLO_TTFT], 2);
    assert_int_equal(figures.ever.missed_by[SLO_FAILED], 6);
    assert_int_equal(figures.hour.missed_by[SLO_REJECTED], 2);
    assert_int_equal(figures.ever.missed_by[SLO_TPOT], 0);
    assert_int_equal(figures_of(world, 1, NOW_US).ever.missed, 0);
}

static void test_refusals_at_the_door(void **state)
{
    struct world *world = *state;
    slo_books_refused(world->books, NULL, REASON_OVERLOADED, NOW_US);
    slo_books_refused(world->books, "", REASON_OVERLOADED, NOW_US);
    slo_books_refused(world->books, "batch", REASON_OVERLOADED, NOW_US);
    slo_books_refused(world->books, "nobody", REASON_OVERLOADED, NOW_US);
    slo_books_refused(world->books, "batch", REASON_MALFORMED, NOW_US);
    slo_books_refused(NULL, "batch", REASON_OVERLOADED, NOW_US);
    assert_int_equal(figures_of(world, 0, NOW_US).ever.missed, 2);
    assert_int_equal(figures_of(world, 1, NOW_US).ever.missed, 1);
    assert_int_equal(figures_of(world, 1, NOW_US).uncounted, 1);
    assert_int_equal(figures_of(world, 1, NOW_US).decile_count, 0);
    struct slo_ending of_none = answered(1);
    of_none.slo_class = SLO_NONE;
    slo_books_ended(world->books, &of_none, NOW_US);
    assert_int_equal(figures_of(world, 0, NOW_US).ever.attained, 0);
}

/* Windows forget what is older, also when nothing ends for long. */
static void test_windows(void **state)
{
    struct world *world = *state;
    struct slo_ending good = answered(400), late = answered(401);
    slo_books_ended(world->books, &good, NOW_US);
    slo_books_ended(world->books, &late, NOW_US + MINUTE / 2);
    struct slo_figures figures = figures_of(world, 0, NOW_US + MINUTE - 1000000);
    assert_int_equal(figures.minute.attained, 1);
    assert_int_equal(figures.minute.missed, 1);
    figures = figures_of(world, 0, NOW_US + MINUTE); /* the first one has left it */
    assert_int_equal(figures.minute.attained, 0);
    assert_int_equal(figures.minute.missed, 1);
    assert_int_equal(figures.hour.attained + figures.hour.missed, 2);
    figures = figures_of(world, 0, NOW_US + 10 * MINUTE);
    assert_int_equal(figures.minute.attained + figures.minute.missed, 0);
    assert_int_equal(figures.hour.attained + figures.hour.missed, 2);
    slo_books_ended(world->books, &good, NOW_US + 30 * MINUTE);
    figures = figures_of(world, 0, NOW_US + 60 * (uint64_t)MINUTE);
    assert_int_equal(figures.hour.attained, 1);
    assert_int_equal(figures.hour.missed, 0);
    figures = figures_of(world, 0, NOW_US + 3000 * (uint64_t)MINUTE);
    assert_int_equal(figures.hour.attained + figures.hour.missed, 0);
    assert_int_equal(figures.ever.attained, 2);
    slo_books_ended(world->books, &good, NOW_US + 3000 * (uint64_t)MINUTE);
    figures = figures_of(world, 0, NOW_US + 3300 * (uint64_t)MINUTE);
    assert_int_equal(figures.hour.attained + figures.hour.missed, 0);
    /* A thread that read the clock a little earlier counts all the same. */
    slo_books_ended(world->books, &good, NOW_US);
    assert_int_equal(figures_of(world, 0, NOW_US + 3300 * (uint64_t)MINUTE).hour.attained, 1);
}

static void test_error_budget(void **state)
{
    struct world *world = *state;
    struct slo_ending good = answered(400), late = answered(401);
    assert_true(figures_of(world, 0, NOW_US).error_budget_left == 1);
    for (int i = 0; i < 19; i++)
        slo_books_ended(world->books, &good, NOW_US);
    slo_books_ended(world->books, &late, NOW_US); /* 1 of 20; 2 of 20 are allowed at P90 */
    assert_float_equal(figures_of(world, 0, NOW_US).error_budget_left, 0.5, 1e-9);
    for (int i = 0; i < 20; i++)
        slo_books_ended(world->books, i < 11 ? &late : &good, NOW_US); /* 12 of 40; 4 allowed */
    assert_float_equal(figures_of(world, 0, NOW_US).error_budget_left, -2, 1e-9);
    struct str text;
    str_init(&text, 1u << 20);
    slo_books_show(world->books, NOW_US);
    metrics_render(world->metrics, &text);
    static const char *const lines[] = {
        "\nbaton_router_slo_requests_total{slo_class=\"chat\",outcome=\"attained\"} 28\n",
        "\nbaton_router_slo_requests_total{slo_class=\"chat\",outcome=\"missed\"} 12\n",
        "\nbaton_router_slo_requests_total{slo_class=\"batch\",outcome=\"uncounted\"} 0\n",
        "\nbaton_router_slo_missed_total{slo_class=\"chat\",objective=\"ttft\"} 12\n",
        "\nbaton_router_slo_missed_total{slo_class=\"chat\",objective=\"failed\"} 0\n",
        "\nbaton_router_slo_error_budget_left{slo_class=\"chat\"} -2",
        "\nbaton_router_slo_error_budget_left{slo_class=\"batch\"} 1\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text.data, lines[i]))
            fail_msg("no %s", lines[i]);
    str_deinit(&text);
}

/* Prompts of 1 to 1,000 tokens, as many of each length; those above 500 miss. */
static void test_tenths_by_prompt_length(void **state)
{
    struct world *world = *state;
    struct slo_ending ending = answered(400);
    for (int i = 0; i < SLO_DECILES - 1; i++)
        slo_books_ended(world->books, &ending, NOW_US);
    assert_int_equal(figures_of(world, 0, NOW_US).decile_count, 0);
    struct slo_figures figures;
    for (uint32_t round = 0; round < 100; round++)
        for (uint32_t tokens = 1; tokens <= 1000; tokens++) {
            ending = answered(tokens > 500 ? 401 : 400);
            ending.prompt_tokens = tokens;
            slo_books_ended(world->books, &ending, NOW_US);
        }
    figures = figures_of(world, 0, NOW_US);
    assert_int_equal(figures.decile_count, SLO_DECILES);
    for (int i = 0; i < SLO_DECILES; i++) {
        double most = (i + 1) * 100.0;
        const struct slo_decile *decile = &figures.deciles[i];
        assert_in_range(decile->to_tokens, (uint64_t)(most * 0.99), (uint64_t)(most * 1.2));
        if (i < 4)
            assert_float_equal(decile->attained, 1, 1e-6);
        else if (i > 5) /* the bucket around 500 tokens has both */
            assert_float_equal(decile->attained, 0, 1e-6);
    }
    /* The newest count: none misses any more. */
    for (int i = 0; i < 25 * 32768; i++)
        slo_books_ended(world->books, &(struct slo_ending){.prompt_tokens = 7}, NOW_US);
    figures = figures_of(world, 0, NOW_US);
    assert_float_equal(figures.deciles[9].attained, 1, 1e-6);
    assert_int_equal(figures.deciles[0].to_tokens, 8);
}

static void test_predictions(void **state)
{
    struct world *world = *state;
    struct slo_ending ending = answered(300); /* TPOT 40 us */
    slo_books_ended(world->books, &ending, NOW_US);
    assert_true(figures_of(world, 0, NOW_US).ttft.count == 0); /* nothing was predicted */
    ending.predicted = (struct slo_prediction){.ttft_us = 200, .tpot_us = 50};
    slo_books_ended(world->books, &ending, NOW_US);
    ending.predicted = (struct slo_prediction){.ttft_us = 400};
    slo_books_ended(world->books, &ending, NOW_US);
    ending.reason = REASON_WORKERS_LOST; /* no measurement */
    slo_books_ended(world->books, &ending, NOW_US);
    struct slo_figures figures = figures_of(world, 0, NOW_US);
    assert_true(figures.ttft.count == 2 && figures.tpot.count == 1);
    assert_float_equal(figures.ttft.predicted_us, 300, 1e-9);
    assert_float_equal(figures.ttft.measured_us, 300, 1e-9);
    assert_float_equal(figures.ttft.error, (0.5 + 0.25) / 2, 1e-9);
    assert_float_equal(figures.tpot.measured_us, 40, 1e-9);
    assert_float_equal(figures.tpot.error, 0.2, 1e-9);
    ending.reason = REASON_NONE;
    ending.predicted.ttft_us = 300; /* exact from now on: old errors are forgotten */
    for (int i = 0; i < 20000; i++)
        slo_books_ended(world->books, &ending, NOW_US);
    assert_true(figures_of(world, 0, NOW_US).ttft.error < 1e-6);
}

static void test_json(void **state)
{
    struct world *world = *state;
    struct str text;
    struct json *json;
    struct error err;
    struct slo_ending ending = answered(401);
    str_init(&text, 1u << 20);
    slo_books_json(NULL, 4, NOW_US, &text);
    assert_string_equal(text.data, "[]");
    for (int i = 0; i < 60; i++) {
        ending = answered(i < 45 ? 400 : 401);
        slo_books_ended(world->books, &ending, NOW_US);
    }
    str_clear(&text);
    slo_books_json(world->books, 3, NOW_US, &text);
    struct json_limits limits = {.max_bytes = 1u << 20, .max_depth = 8};
    assert_int_equal(json_parse(text.data, text.length, limits, &json, &err), STATUS_OK);
    assert_int_equal(json_count(json_root(json)), 2);
    json_destroy(json);
    static const char *const parts[] = {
        "\"name\": \"chat\", \"default\": true, \"priority\": \"normal\", \"offline\": false, "
        "\"percentile\": 90, \"objective\": {\"ttft_ms\": 0.400, \"tpot_ms\": 0.040, "
        "\"itl_ms\": 0.000, \"e2e_ms\": 0.000}",
        "\"minute\": {\"attained\": 45, \"missed\": 15, \"missed_by\": {\"ttft\": 15, \"tpot\": 0, "
        "\"itl\": 0, \"e2e\": 0, \"failed\": 0, \"rejected\": 0}}",
        "\"goodput_per_second\": 0.7500, \"goodput_per_device\": 0.2500",
        "\"name\": \"batch\", \"default\": false"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(text.data, parts[i]))
            fail_msg("no %s in %s", parts[i], text.data);
    str_deinit(&text);
}

static void test_without_classes_there_are_no_books(void **state)
{
    struct world *world = *state;
    struct slo_books *books = world->books;
    static const struct slo_classes none = {.standard = SLO_NONE};
    assert_int_equal(slo_books_create(&none, world->metrics, &books), STATUS_OK);
    assert_null(books);
    assert_int_equal(slo_books_create(NULL, world->metrics, &books), STATUS_OK);
    assert_null(books);
    assert_null(slo_books_classes(books));
    slo_books_ended(books, &(struct slo_ending){.slo_class = SLO_NONE}, NOW_US);
    slo_books_show(books, NOW_US);
    slo_books_destroy(books);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ends_that_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refusals_at_the_door, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_windows, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_error_budget, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tenths_by_prompt_length, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_predictions, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_json, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_classes_there_are_no_books, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
