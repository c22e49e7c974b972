/* slo: the rows of slo-class with every mistake named at once, whether an answer attained its
 * objectives, and which objectives a request may ask for. */
#include "common/base/domain/slo.h"

#include "common/base/domain/placement_policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void test_the_policy_is_goodput_unless_another_is_named(void **state)
{
    (void)state;
    for (int policy = 0; policy < PLACEMENT_POLICY_COUNT; policy++)
        assert_int_equal(placement_policy_of(policy), policy);
    assert_int_equal(placement_policy_of(PLACEMENT_AUTO), PLACEMENT_GOODPUT);
    assert_string_equal(placement_policy_names[PLACEMENT_AUTO], "auto");
    assert_null(placement_policy_names[PLACEMENT_AUTO + 1]);
}

static void test_rows(void **state)
{
    (void)state;
    struct slo_classes classes;
    struct str mistakes;
    str_init(&mistakes, 4096);
    assert_true(slo_classes_parse("name=chat,ttft=400ms,tpot=40ms,p=95,priority=high,"
                                  "name=tool-use.1,tpot=20us,itl=1s,e2e=24h, \n"
                                  " name = batch , offline,e2e=2m;name=night,priority=offline,"
                                  "ttft=1us",
                                  "batch", &classes, &mistakes));
    assert_string_equal(mistakes.data, "");
    assert_int_equal(classes.count, 4);
    assert_int_equal(classes.standard, 2);
    static const struct slo_class wanted[] = {
        {"chat", {400000, 40000, 0, 0}, 95, PRIORITY_HIGH, false},
        {"tool-use.1", {0, 20, 1000000, SLO_MAX_US}, 90, PRIORITY_NORMAL, false},
        {"batch", {0, 0, 0, 120000000}, 90, PRIORITY_OFFLINE, true},
        {"night", {1, 0, 0, 0}, 90, PRIORITY_OFFLINE, true},
    };
    for (uint32_t i = 0; i < classes.count; i++) {
        const struct slo_class *got = &classes.items[i];
        assert_string_equal(got->name, wanted[i].name);
        assert_memory_equal(&got->objective, &wanted[i].objective, sizeof got->objective);
        assert_true(got->percentile == wanted[i].percentile);
        assert_int_equal(got->priority, wanted[i].priority);
        assert_int_equal(got->offline, wanted[i].offline);
        assert_int_equal(slo_find(&classes, text_from(got->name)), i);
    }
    assert_int_equal(slo_find(&classes, text_from("cha")), SLO_NONE);
    assert_int_equal(slo_find(&classes, text_from("chats")), SLO_NONE);
    assert_int_equal(slo_find(&classes, text_from("")), SLO_NONE);
    struct str names;
    str_init(&names, 256);
    slo_add_names(&classes, &names);
    assert_string_equal(names.data, "chat, tool-use.1, batch, night");
    str_deinit(&names);
    str_deinit(&mistakes);
}

static void test_default_class(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *standard;
        uint32_t count, wanted;
    } cases[] = {
        {"", "", 0, SLO_NONE},
        {"name=a,ttft=1s", "", 1, 0},
        {"name=a,ttft=1s,name=b,tpot=1ms", "", 2, SLO_NONE},
        {"name=a,ttft=1s,name=b,tpot=1ms", "b", 2, 1},
    };
    struct str mistakes;
    str_init(&mistakes, 4096);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slo_classes classes;
        assert_true(slo_classes_parse(cases[i].rows, cases[i].standard, &classes, &mistakes));
        assert_int_equal(classes.count, cases[i].count);
        assert_int_equal(classes.standard, cases[i].wanted);
    }
    str_deinit(&mistakes);
}

/* Every mistake of all rows is told in one go, each in a line of its own. */
static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *rows, *standard, *wanted;
    } cases[] = {
        {"name=a,ttft=0,e2e=25h", "",
         "slo-class: class a: ttft=0 must be in 1us .. 24h; leave it out if it doesn't matter "
         "(slo_time_range)\n"
         "slo-class: class a: e2e=25h must be in 1us .. 24h; leave it out if it doesn't matter "
         "(slo_time_range)\n"},
        {"name=a,tpot=40", "",
         "slo-class: class a: tpot=40 must be a whole number with a unit, us, ms, s, m or h "
         "(400ms) (slo_time)\n"},
        {"name=a,ttft=1s,p=101", "",
         "slo-class: class a: p=101 must be a number in 50 .. 99.99: percent of its requests that "
         "are meant to attain (slo_percentile)\n"},
        {"name=a,ttft=1s,p=49.9", "",
         "slo-class: class a: p=49.9 must be a number in 50 .. 99.99: percent of its requests that "
         "are meant to attain (slo_percentile)\n"},
        {"name=a,ttft=1s,priority=low", "",
         "slo-class: class a: priority=low must be normal, high or offline (slo_priority)\n"},
        {"name=a,ttft=1s,name=b,tpot=1s,name=a,e2e=1s", "",
         "slo-class: two classes have the name a (slo_name_twice)\n"},
        {"name=a", "",
         "slo-class: class a has no objective: give ttft, tpot, itl or e2e, or offline "
         "(slo_no_objective)\n"},
        {"name=a,offline,priority=high", "",
         "slo-class: class a is offline and has priority=high: leave one of them out "
         "(slo_offline_priority)\n"},
        {"name=a,ttft=1s,ttft=2s,p=90,p=91,priority=high,priority=high", "",
         "slo-class: class a has ttft= twice (slo_word_twice)\n"
         "slo-class: class a has p= twice (slo_word_twice)\n"
         "slo-class: class a has priority= twice (slo_word_twice)\n"},
        {"name=a,ttft=1s,,ttf=1s,ttft,offline=1,name", "",
         "slo-class: class a: '' is none of name=, ttft=, tpot=, itl=, e2e=, p=, priority=, "
         "offline (slo_word)\n"
         "slo-class: class a: 'ttf=' is none of name=, ttft=, tpot=, itl=, e2e=, p=, priority=, "
         "offline (slo_word)\n"
         "slo-class: class a: 'ttft' is none of name=, ttft=, tpot=, itl=, e2e=, p=, priority=, "
         "offline (slo_word)\n"
         "slo-class: class a: 'offline=' is none of name=, ttft=, tpot=, itl=, e2e=, p=, "
         "priority=, offline (slo_word)\n"
         "slo-class: class a: 'name' is none of name=, ttft=, tpot=, itl=, e2e=, p=, priority=, "
         "offline (slo_word)\n"},
        {"ttft=1s,name=a,ttft=1s", "",
         "slo-class: 'ttft=' stands in front of name=: each row, and each --slo-class, begins with "
         "its name, as name=chat,ttft=400ms,tpot=40ms,p=90 (slo_row_without_name)\n"},
        {"name=a b,ttft=0,name=,tpot=1s,name=x23456789012345678901234567890123,ttft=1s", "",
         "slo-class: name=a b must be 1 to 32 letters, digits, '-', '_' or '.' (slo_name)\n"
         "slo-class: class without a valid name: ttft=0 must be in 1us .. 24h; leave it out if it "
         "doesn't matter (slo_time_range)\n"
         "slo-class: name= must be 1 to 32 letters, digits, '-', '_' or '.' (slo_name)\n"
         "slo-class: name=x23456789012345678901234567890123 must be 1 to 32 letters, digits, '-', "
         "'_' or '.' (slo_name)\n"},
        {"name=a,ttft=1s,name=b,ttft=1s", "c",
         "slo-default c is no class: there are a, b (slo_default)\n"},
        {"", "c",
         "slo-default is c, but there is no slo-class row: give one, or leave slo-default out "
         "(slo_default)\n"},
        {"name=a\1b,ttft=1s", "",
         "slo-class: name=a?b must be 1 to 32 letters, digits, '-', '_' or '.' (slo_name)\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slo_classes classes = {.count = 77};
        struct str mistakes;
        str_init(&mistakes, 4096);
        assert_false(slo_classes_parse(cases[i].rows, cases[i].standard, &classes, &mistakes));
        assert_string_equal(mistakes.data, cases[i].wanted);
        assert_int_equal(classes.count, 77);
        str_deinit(&mistakes);
    }
}

/* A further flag begins a row of its own: it can't change the class of the flag before it. */
static void test_each_flag_begins_a_row(void **state)
{
    (void)state;
    struct slo_classes classes;
    struct str mistakes;
    str_init(&mistakes, 4096);
    assert_false(
        slo_classes_parse("name=a,ttft=1s;p=50;offline,name=b,tpot=0", "", &classes, &mistakes));
    assert_string_equal(
        mistakes.data,
        "slo-class: 'p=' stands in front of name=: each row, and each --slo-class, begins with its "
        "name, as name=chat,ttft=400ms,tpot=40ms,p=90 (slo_row_without_name)\n"
        "slo-class: 'offline' stands in front of name=: each row, and each --slo-class, begins "
        "with its name, as name=chat,ttft=400ms,tpot=40ms,p=90 (slo_row_without_name)\n"
        "slo-class: class b: tpot=0 must be in 1us .. 24h; leave it out if it doesn't matter "
        "(slo_time_range)\n");
    str_deinit(&mistakes);
}

static void test_32_classes_fit_and_33_do_not(void **state)
{
    (void)state;
    for (int count = SLO_MAX_CLASSES; count <= SLO_MAX_CLASSES + 1; count++) {
        struct slo_classes classes;
        struct str rows, mistakes;
        str_init(&rows, SLO_MAX_ROWS_BYTES - 1);
        str_init(&mistakes, 4096);
        for (int i = 0; i < count; i++)
            str_addf(&rows,
                     "%sname=x234567890123456789012345678-%02d,ttft=86400000000us,"
                     "tpot=86400000000us,itl=86400000000us,e2e=86400000000us,p=99.99,"
                     "priority=offline",
                     i ? "," : "", i);
        assert_false(rows.truncated); /* the longest rows of all classes fit in the setting */
        assert_int_equal(slo_classes_parse(rows.data, "", &classes, &mistakes),
                         count == SLO_MAX_CLASSES);
        assert_string_equal(
            mistakes.data,
            count == SLO_MAX_CLASSES ? "" : "slo-class: 33 classes: at most 32 (slo_too_many)\n");
        str_deinit(&rows);
        str_deinit(&mistakes);
    }
}

static void test_attained(void **state)
{
    (void)state;
    static const struct {
        struct slo_objective objective;
        struct slo_outcome outcome;
        bool wanted;
    } cases[] = {
        {{0}, {.ok = true, .ttft_us = 9, .e2e_us = 99}, true},
        {{0}, {.ok = false}, false}, /* rejected and failed requests are misses */
        {{.ttft_us = 100}, {true, 100, 900, 50, 5}, true},
        {{.ttft_us = 100}, {true, 101, 900, 50, 5}, false},
        {{.tpot_us = 10}, {true, 100, 140, 99, 5}, true}, /* 40 us for the 4 tokens after it */
        {{.tpot_us = 10}, {true, 100, 141, 99, 5}, false},
        {{.tpot_us = 10}, {true, 100, 900, 0, 1}, true}, /* one token has no TPOT */
        {{.tpot_us = 10}, {true, 100, 900, 0, 0}, true},
        {{.tpot_us = 10}, {true, 100, 0, 0, 2}, true}, /* a clock that went astray */
        {{.itl_us = 50}, {true, 100, 900, 50, 5}, true},
        {{.itl_us = 50}, {true, 100, 900, 51, 5}, false},
        {{.e2e_us = 900}, {true, 100, 900, 50, 5}, true},
        {{.e2e_us = 900}, {true, 100, 901, 50, 5}, false},
        {{100, 10, 50, 900}, {true, 100, 140, 50, 5}, true},
        {{100, 10, 50, 900}, {true, 101, 141, 50, 5}, false}, /* each of them counts */
        {{SLO_MAX_US, SLO_MAX_US, 0, 0}, {true, 1, SLO_MAX_US, 0, UINT32_MAX}, true},
        {{.tpot_us = SLO_MAX_US}, {true, 0, UINT64_MAX / 2, 0, UINT32_MAX}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (slo_attained(&cases[i].objective, &cases[i].outcome) != cases[i].wanted)
            fail_msg("case %zu", i);
}

/* Each objective that is missed has its bit; a failed request has one bit alone. */
static void test_missed_by(void **state)
{
    (void)state;
    const struct slo_objective objective = {100, 10, 50, 900};
    const struct slo_outcome all = {true, 101, 1001, 51, 5}, two = {true, 101, 140, 51, 5};
    assert_int_equal(slo_missed(&objective, &all), 0xf);
    assert_int_equal(slo_missed(&objective, &two), 1 << SLO_TTFT | 1 << SLO_ITL);
    const struct slo_outcome failed = {false, 1, 1, 1, 1};
    assert_int_equal(slo_missed(&objective, &failed), 1 << SLO_FAILED);
    assert_string_equal(slo_kind_names[SLO_TPOT], "tpot");
    struct str text;
    str_init(&text, 256);
    slo_add_missed(0, &text);
    assert_string_equal(text.data, "");
    slo_add_missed(0x3f, &text);
    assert_string_equal(text.data, "ttft,tpot,itl,e2e,failed,rejected");
    str_deinit(&text);
    assert_string_equal(slo_verdict_name((struct slo_verdict){true, 0}), "attained");
    assert_string_equal(slo_verdict_name((struct slo_verdict){true, 2}), "missed");
    assert_string_equal(slo_verdict_name((struct slo_verdict){false, 2}), "uncounted");
}

static void test_times_in_words(void **state)
{
    (void)state;
    static const struct {
        uint64_t us;
        const char *text;
    } cases[] = {{1, "1 us"},         {400000, "400 ms"},   {1500000, "1500 ms"},
                 {90000000, "90 s"},  {120000000, "2 min"}, {SLO_MAX_US, "24 h"},
                 {40500, "40500 us"}, {0, "0 us"},          {3600000001, "3600000001 us"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str text;
        str_init(&text, 64);
        slo_add_time(cases[i].us, &text);
        assert_string_equal(text.data, cases[i].text);
        str_deinit(&text);
    }
}

static void test_requests_choose(void **state)
{
    (void)state;
    const struct slo_classes classes = {
        .items = {{.name = "chat"}, {.name = "code"}}, .count = 2, .standard = 1};
    assert_int_equal(slo_choose(&classes, NULL), 1);
    assert_int_equal(slo_choose(&classes, ""), 1);
    assert_int_equal(slo_choose(&classes, "chat"), 0);
    assert_int_equal(slo_choose(&classes, "cha"), SLO_NONE);
}

static void test_requests_only_loosen(void **state)
{
    (void)state;
    static const struct {
        struct slo_objective of_class, asked, wanted;
        const char *refusal; /* NULL: none */
    } cases[] = {
        {{400000, 40000, 0, 0}, {0}, {400000, 40000, 0, 0}, NULL},
        {{400000, 40000, 0, 0}, {400000, 40000, 0, 0}, {400000, 40000, 0, 0}, NULL},
        {{400000, 40000, 0, 0}, {500000, 0, 0, 0}, {500000, 40000, 0, 0}, NULL},
        {{4, 4, 4, 4}, {5, 6, 7, 8}, {5, 6, 7, 8}, NULL},
        {{400000, 40000, 0, 0},
         {500000, 39999, 0, 0},
         {400000, 40000, 0, 0},
         "tpot of 39.999 ms is tighter than the class's, 40 ms: a request may only loosen its "
         "class's objectives"},
        {{400000, 0, 0, 0},
         {0, 0, 50000, 0},
         {400000, 0, 0, 0},
         "itl: the request's class has no such objective, and a request may only loosen its "
         "class's"},
        {{4, 0, 0, 0}, {SLO_MAX_US, 0, 0, 0}, {SLO_MAX_US, 0, 0, 0}, NULL},
        {{4, 0, 0, 5},
         {4, 0, 0, UINT64_MAX},
         {4, 0, 0, 5},
         "e2e of a request must be at most 24 h"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slo_objective objective = cases[i].of_class;
        struct error err = {""};
        enum status status = slo_loosen(&objective, &cases[i].asked, &err);
        bool too_long = cases[i].asked.e2e_us > SLO_MAX_US;
        assert_int_equal(status, too_long           ? STATUS_LIMIT
                                 : cases[i].refusal ? STATUS_INVALID
                                                    : STATUS_OK);
        assert_string_equal(err.text, cases[i].refusal ? cases[i].refusal : "");
        assert_memory_equal(&objective, &cases[i].wanted, sizeof objective);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_policy_is_goodput_unless_another_is_named),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_default_class),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_each_flag_begins_a_row),
        cmocka_unit_test(test_32_classes_fit_and_33_do_not),
        cmocka_unit_test(test_attained),
        cmocka_unit_test(test_missed_by),
        cmocka_unit_test(test_times_in_words),
        cmocka_unit_test(test_requests_choose),
        cmocka_unit_test(test_requests_only_loosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
