/* The order of the placement policies in virtual time: on small workloads goodput attains at least
 * 95 % of what the best other policy does, with the same admission, and with shared prefixes 115 %
 * of what random does without any. Terms of its score decide rightly in clusters made for them. Its
 * probabilities of a miss come true, also after a drift. Ten times the load leaves it 90 % of its
 * peak, and overload of a cold cluster doesn't end it. Admission rejects few where all attain
 * without it. The tournament has the real sizes (tests/bench). With BATON_LONG=1: more workloads,
 * and more requests. */
#include "common/engine/mock/mock_engine.h"
#include "tests/bench/tournament/contest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEAST       0.95
#define OVER_RANDOM 1.15
#define MOST_ERROR  0.05
#define DRIFTING    900 /* requests of a run with a drift half-way */
#define SETTLED     200
#define KNEE        16.0 /* about, of 2P+2D: prefixes a second */
#define WARM        300
#define OVERLOAD_S  15
#define PEAK_LEFT   0.9

static const struct shape pairs = {.name = "2P+2D", .prefills = 2, .decodes = 2},
                          alone = {.name = "3 colocated", .decodes = 3};

static struct contest_result run(const struct contest *contest)
{
    struct contest_result result;
    struct error err;
    if (contest_run(contest, &result, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_true(result.consistent);
    return result;
}

/* `rate`: requests a second and device, somewhat more than least-tokens can do. All policies have
 * the same admission; with shared prefixes goodput attains OVER_RANDOM times what random does
 * without any. */
static void check_order(const struct shape *shape, const char *workload, double rate,
                        uint32_t count)
{
    struct contest contest = {.shape = shape,
                              .workload = workload_find(workload),
                              .rate = rate * (shape->prefills + shape->decodes),
                              .count = count,
                              .seed = 1};
    struct error err;
    double best = 0;
    const char *name = "";
    if (profile_read("a100-opt-13b-tp1-distserve", &contest.profile, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    contest.profile.link_bytes_per_second = 50e9;
    contest.profile.noise_sigma = 0.05;
    for (enum placement_policy p = 0; p < PLACEMENT_POLICY_COUNT; p++) {
        contest.policy = p;
        double attained = run(&contest).attained;
        print_message("%s, %s: %s %.0f of %u\n", workload, shape->name, placement_policy_names[p],
                      attained, count);
        if (p != PLACEMENT_GOODPUT && attained > best) {
            best = attained;
            name = placement_policy_names[p];
        }
    }
    contest.policy = PLACEMENT_GOODPUT;
    double attained = run(&contest).attained;
    if (attained < LEAST * best)
        fail_msg("%s, %s: goodput attains %.0f, %s %.0f", workload, shape->name, attained, name,
                 best);
    if (strcmp(workload, "prefixes") != 0)
        return;
    contest.policy = PLACEMENT_RANDOM; /* as in the tournament's table */
    contest.takes_all = true;
    double at_random = run(&contest).attained;
    print_message("%s: random attains %.0f without admission\n", shape->name, at_random);
    assert_true(attained >= OVER_RANDOM * at_random);
}

static void test_goodput_is_first_or_nearly(void **state)
{
    (void)state;
    check_order(&pairs, "prefixes", 4.5, 320);
    check_order(&alone, "prefixes", 3.2, 320);
}

static void test_goodput_is_first_or_nearly_for_long(void **state)
{
    (void)state;
    if (!getenv("BATON_LONG"))
        skip();
    check_order(&pairs, "prefixes", 4.2, 600);
    check_order(&alone, "prefixes", 3.2, 600);
    check_order(&pairs, "siblings", 0.8, 600);
    check_order(&alone, "siblings", 0.8, 600);
    check_order(&pairs, "turns", 2.9, 1500);
    check_order(&alone, "turns", 2.9, 1500);
}

/* --------------------------------------------------------------------------------------- terms */

/* A cluster and requests for which a term of the score decides rightly. */
struct term_case {
    const char *name;
    uint32_t off; /* the term */
    struct shape shape;
    struct slo_objective objective, other;
    uint32_t prompt, answer;
    double rate;
    uint32_t count;
};
static const struct term_case term_cases[] = {
    /* One decode worker has an eighth of the KV: few answers draw there, so its steps are short. */
    {.name = "memory",
     .off = GOODPUT_OFF_MEMORY,
     .shape = {.name = "1P+2D small", .prefills = 1, .decodes = 2, .small = true},
     .objective = {.ttft_us = 2000000, .tpot_us = 80000},
     .prompt = 32,
     .answer = 1024,
     .rate = 3,
     .count = 200},
    /* Answers with a tight TPOT began on idle workers, and can spare time for others. */
    {.name = "banked slack",
     .off = GOODPUT_OFF_BANKED,
     .shape = {.name = "3 colocated", .decodes = 3},
     .objective = {.ttft_us = 2000000, .tpot_us = 35000},
     .other = {.ttft_us = 2000000, .tpot_us = 150000},
     .prompt = 512,
     .answer = 128,
     .rate = 14,
     .count = 300},
    /* Without a TTFT objective no wait is a miss: all prompts would go to the fast worker. */
    {.name = "tardiness",
     .off = GOODPUT_OFF_TARDINESS,
     .shape = {.name = "2P+2D mixed", .prefills = 2, .decodes = 2, .mixed = true},
     .objective = {.tpot_us = 1000000},
     .prompt = 1024,
     .answer = 64,
     .rate = 14,
     .count = 200},
};

static struct contest_result run_term(const struct term_case *is, uint32_t off)
{
    const struct workload workload = {.name = is->name,
                                      .objective = is->objective,
                                      .other = is->other,
                                      .max_tokens = is->answer,
                                      .build = workload_build_equal,
                                      .lengths = {.input = is->prompt, .output = is->answer}};
    struct contest contest = {.shape = &is->shape,
                              .workload = &workload,
                              .policy = PLACEMENT_GOODPUT,
                              .off = off,
                              .rate = is->rate,
                              .count = is->count,
                              .seed = 1};
    struct error err;
    if (profile_read("a100-opt-13b-tp1-distserve", &contest.profile, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    contest.profile.link_bytes_per_second = 50e9;
    contest.profile.noise_sigma = 0.05;
    return run(&contest);
}

/* Without the term fewer attain, or prompts wait for several times as long. */
static void test_terms_of_the_score_decide_rightly(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof term_cases / sizeof *term_cases; i++) {
        const struct term_case *is = &term_cases[i];
        const struct contest_result with = run_term(is, 0), without = run_term(is, is->off);
        print_message("%s: %.1f%% attain, TTFT P90 %.2f s; without %.1f%%, %.2f s\n", is->name,
                      100 * with.attainment, with.ttft_s[1], 100 * without.attainment,
                      without.ttft_s[1]);
        bool attains = with.attainment > without.attainment + 0.02;
        bool sooner = !is->objective.ttft_us && 3 * with.ttft_s[1] < without.ttft_s[1];
        assert_true(attains || sooner);
    }
}

/* P(miss) comes true before a drift half-way, and from SETTLED requests after it. */
static void check_calibration(const struct shape *shape, double rate, enum drift drift)
{
    static const char *const names[] = {"none", "a slow device", "longer answers", "wiped caches"};
    struct contest contest = {.shape = shape,
                              .workload = workload_find("prefixes"),
                              .policy = PLACEMENT_GOODPUT,
                              .rate = rate * (shape->prefills + shape->decodes),
                              .count = DRIFTING,
                              .seed = 1,
                              .drift = drift,
                              .settle = SETTLED};
    struct error err;
    if (profile_read("a100-opt-13b-tp1-distserve", &contest.profile, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    contest.profile.link_bytes_per_second = 50e9;
    contest.profile.noise_sigma = 0.05;
    struct contest_result result = run(&contest);
    for (int later = 0; later < 2; later++) {
        uint32_t count;
        double error = contest_error(&result.bins[0][ADMISSION_TURN][later], &count);
        print_message("%s, %s: error %.3f of %u\n", names[drift], later ? "after" : "before", error,
                      count);
        assert_true(count >= 60);
        if (error >= MOST_ERROR)
            fail_msg("%s: an error of %.3f", names[drift], error);
    }
}

static void test_predictions_come_true(void **state)
{
    (void)state;
    for (enum drift drift = DRIFT_SLOW; drift <= DRIFT_WIPED; drift++)
        check_calibration(&pairs, 3.5, drift);
}

/* A cold cluster gets several times what it can do, and nothing is known of its class: it learns,
 * and attains much of what it can. Late requests must not keep all others late. */
static void check_cold(const char *workload, double load, double least)
{
    static const struct shape pair = {.name = "1P+1D", .prefills = 1, .decodes = 1};
    struct contest contest = {.shape = &pair,
                              .workload = workload_find(workload),
                              .policy = PLACEMENT_GOODPUT,
                              .rate = 2 * load,
                              .count = (uint32_t)(60 * load),
                              .seed = 1};
    struct error err;
    if (profile_read("a100-opt-13b-tp1-distserve", &contest.profile, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    contest.profile.link_bytes_per_second = 50e9;
    contest.profile.noise_sigma = 0.05;
    double goodput = run(&contest).goodput;
    print_message("%s, %.0f a second and device: %.2f attain\n", workload, load, goodput);
    assert_true(goodput >= least);
}

static void test_a_cold_cluster_under_overload(void **state)
{
    (void)state;
    check_cold("fixed", 20, 4);
    check_cold("prefixes", 16, 2);
}

/* A warm cluster gets ten times what it can do for a while: goodput stays at 90% of its peak, and
 * all requests end (contest_run). */
static void test_overload_leaves_the_goodput_of_the_peak(void **state)
{
    (void)state;
    double peak = 0;
    for (int i = 0; i < 3; i++) {
        static const double loads[] = {1, 1.5, 10};
        struct contest contest = {.shape = &pairs,
                                  .workload = workload_find("prefixes"),
                                  .policy = PLACEMENT_GOODPUT,
                                  .rate = loads[i] * KNEE,
                                  .count = WARM + (uint32_t)(OVERLOAD_S * loads[i] * KNEE),
                                  .seed = 1,
                                  .lead = WARM,
                                  .lead_rate = 0.7 * KNEE};
        struct error err;
        if (profile_read("a100-opt-13b-tp1-distserve", &contest.profile, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        contest.profile.link_bytes_per_second = 50e9;
        contest.profile.noise_sigma = 0.05;
        struct contest_result is = run(&contest);
        print_message("prefixes at %.1f times the knee: %.2f attain\n", loads[i], is.goodput);
        assert_true(is.goodput >= PEAK_LEFT * peak);
        peak = is.goodput > peak ? is.goodput : peak;
    }
}

/* Clients that wait for their answers: beyond the knee for as long as conversations begin. All that
 * come attain without admission: their answers share the KV of their first words. */
static void test_turns_beyond_the_knee_are_not_rejected(void **state)
{
    (void)state;
    static const struct shape pair = {.name = "1P+1D", .prefills = 1, .decodes = 1};
    struct contest contest = {
        .shape = &pair, .workload = workload_find("turns"), .rate = 8.8, .count = 300, .seed = 1};
    struct error err;
    if (profile_read("a100-opt-13b-tp1-distserve", &contest.profile, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    contest.profile.link_bytes_per_second = 50e9;
    contest.profile.noise_sigma = 0.05;
    contest.policy = PLACEMENT_LEAST_TOKENS;
    contest.takes_all = true;
    struct contest_result all = run(&contest);
    contest.policy = PLACEMENT_GOODPUT;
    contest.takes_all = false;
    struct contest_result judged = run(&contest);
    print_message("turns: %.1f%% attain, %.1f%% where all are taken\n", 100 * judged.attainment,
                  100 * all.attainment);
    assert_true(judged.attainment >= LEAST * all.attainment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goodput_is_first_or_nearly),
        cmocka_unit_test(test_goodput_is_first_or_nearly_for_long),
        cmocka_unit_test(test_terms_of_the_score_decide_rightly),
        cmocka_unit_test(test_predictions_come_true),
        cmocka_unit_test(test_a_cold_cluster_under_overload),
        cmocka_unit_test(test_overload_leaves_the_goodput_of_the_peak),
        cmocka_unit_test(test_turns_beyond_the_knee_are_not_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
