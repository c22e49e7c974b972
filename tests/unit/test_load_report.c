/* load_answer and load_report: OpenAI's streams in any pieces, and figures that are known. */
#include "common/cli/load_prompt.h"
#include "common/cli/load_report.h"

#include "common/base/json/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull

/* --- streams --- */

#define CHUNK(text) "data: {\"choices\": [{\"text\": \"" text "\", \"finish_reason\": null}]}\n\n"
#define END         "data: {\"choices\": [{\"text\": \"\", \"finish_reason\": \"length\"}]}\n\n"
#define USAGE                                                                                      \
    "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 5}}\n\n"
#define DONE "data: [DONE]\n\n"

/* Hands over `stream` in pieces of `piece` bytes, one a millisecond. */
static struct load_answer answer_of(const char *stream, size_t piece, bool chat, int status)
{
    struct load_answer answer;
    struct load_reader reader;
    uint64_t now_ns = MS;
    load_answer_init(&answer, true);
    load_reader_init(&reader, &answer, chat);
    for (size_t at = 0, length = strlen(stream); at < length; at += piece, now_ns += MS)
        load_reader_take(&reader, status, stream + at, piece < length - at ? piece : length - at,
                         now_ns);
    load_reader_end(&reader, status, now_ns);
    load_reader_deinit(&reader);
    return answer;
}

static void test_a_stream_in_any_pieces(void **state)
{
    (void)state;
    static const char *const streams[] = {
        ": keep-alive\n\n" CHUNK("one") CHUNK("") CHUNK(" two") END USAGE DONE,
        "data: {\"choices\": [{\"text\": \"one\"}]}\r\n\r\n"
        "event: x\r\ndata:{\"choices\": [{\"text\": \"\"}]}\r\n\r\n"
        "data: {\"choices\": [{\"text\": \" two\", \"finish_reason\": \"stop\"}]}\r\n\r\n"
        "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 5}}",
    };
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        for (size_t piece = 1; piece < 90; piece++) {
            struct load_answer answer = answer_of(streams[i], piece, false, 200);
            if (*answer.reason || strcmp(answer.text.data, "one two") != 0 || answer.chunks != 3 ||
                answer.input_tokens != 7 || answer.output_tokens != 5)
                fail_msg("%zu, %zu: %s, \"%s\", %u", i, piece, answer.reason, answer.text.data,
                         answer.chunks);
            load_answer_deinit(&answer);
        }
}

static void test_times_are_those_of_the_pieces(void **state)
{
    (void)state;
    struct load_answer answer;
    struct load_reader reader;
    load_answer_init(&answer, false);
    load_reader_init(&reader, &answer, false);
    load_reader_take(&reader, 200, CHUNK("a"), strlen(CHUNK("a")), 10 * MS);
    load_reader_take(&reader, 200, CHUNK("b") CHUNK("c"), 2 * strlen(CHUNK("b")), 14 * MS);
    load_reader_take(&reader, 200, END, strlen(END), 20 * MS); /* brings no token */
    load_reader_end(&reader, 200, 21 * MS);
    assert_int_equal(answer.first_ns, 10 * MS);
    assert_int_equal(answer.last_ns, 14 * MS);
    assert_int_equal(answer.end_ns, 21 * MS);
    assert_int_equal(answer.chunks, 3);
    assert_true(fabsf(answer.itls[0] - 0.004f) < 1e-6f && answer.itls[1] == 0);
    assert_int_equal(answer.output_tokens, 3); /* without usage: the chunks */
    assert_string_equal(answer.reason, "");
    load_reader_deinit(&reader);
    load_answer_deinit(&answer);
}

static void test_a_chats_role_is_no_token(void **state)
{
    (void)state;
    struct load_answer answer = answer_of(
        "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n"
        "data: {\"choices\": [{\"delta\": {\"reasoning_content\": \"hm\"}}]}\n\n"
        "data: {\"choices\": [{\"delta\": {\"content\": \"Yes\"}}]}\n\n"
        "data: {\"choices\": [{\"delta\": {\"tool_calls\": [{}]}}]}\n\n"
        "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n" DONE,
        1000, true, 200);
    assert_string_equal(answer.reason, "");
    assert_int_equal(answer.chunks, 3);
    assert_string_equal(answer.text.data, "Yes");
    load_answer_deinit(&answer);
}

static void test_failures_have_reasons(void **state)
{
    (void)state;
    static const struct {
        const char *stream;
        int status;
        const char *reason, *message;
    } rows[] = {
        {"{\"error\": {\"message\": \"full\", \"code\": \"overloaded\"}}", 429, "overloaded",
         "full"},
        {"{\"object\": \"error\", \"message\": \"bad\", \"code\": 400}", 400, "http 400", "bad"},
        {"<html>", 502, "http 502", "<html>"},
        {"", 500, "http 500", ""},
        {CHUNK("a") "data: {\"error\": {\"message\": \"died\"}}\n\n" DONE, 200,
         "error in the stream", "died"},
        {CHUNK("a") "data: {nonsense\n\n" DONE, 200, "malformed event", ""},
        {CHUNK("a"), 200, "unfinished", "the stream ended"},
        {DONE, 200, "no token", "ended without a token"},
        {"", 200, "no token", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct load_answer answer = answer_of(rows[i].stream, 5, false, rows[i].status);
        if (strcmp(answer.reason, rows[i].reason) != 0 || !strstr(answer.message, rows[i].message))
            fail_msg("%zu: %s: %s", i, answer.reason, answer.message);
        load_answer_deinit(&answer);
    }
}

/* --- figures --- */

enum { COUNT = 20 };

static struct load_plan plan_of(uint32_t count)
{
    struct load_plan plan;
    struct error err;
    load_plan_init(&plan);
    for (uint32_t i = 0; i < count; i++) {
        const struct load_segment segment = {i, 10 * (i + 1)};
        assert_int_equal(
            load_plan_add(
                &plan,
                (struct load_request){.text = LOAD_NONE, .output_tokens = 3, .parent = LOAD_NONE},
                &segment, 1, &err),
            STATUS_OK);
    }
    return plan;
}

/* Request i is due and sent at 100 i ms, and its first of three tokens comes `ttft` ms later, the
 * others after 10 and 20 ms more. */
static void fill(struct load_answer *answers, uint32_t count, const uint32_t *ttft)
{
    for (uint32_t i = 0; i < count; i++) {
        struct load_answer *answer = &answers[i];
        load_answer_init(answer, false);
        answer->due_ns = answer->ready_ns = 1000 * MS + i * 100 * MS;
        answer->sent_ns = answer->due_ns + 2 * MS;
        uint64_t at = answer->sent_ns + ttft[i] * MS;
        for (int k = 0; k < 3; k++)
            load_answer_token(answer, "x", 1, at += (uint64_t)k * 10 * MS);
        answer->output_tokens = 3;
        answer->end_ns = answer->last_ns;
    }
}

static void test_figures_are_vllms(void **state)
{
    (void)state;
    struct load_plan plan = plan_of(4);
    struct load_answer answers[4];
    struct load_report report = {.percentiles = {50, 99, 100},
                                 .percentile_count = 3,
                                 .objectives = {true, 250, 15, (double)INFINITY}};
    fill(answers, 4, (uint32_t[]){100, 200, 300, 400});
    load_answer_fail(&answers[3], "overloaded", "full");
    load_report_make(&report, &plan, answers, 1000 * MS, 2000 * MS);
    assert_int_equal(report.completed, 3);
    assert_int_equal(report.failed, 1);
    assert_int_equal(report.good, 2);
    assert_int_equal(report.input_tokens, 60);
    assert_int_equal(report.output_tokens, 9);
    const struct load_summary *ttft = &report.summaries[LOAD_TTFT];
    assert_true(fabs(ttft->mean - 200) < 1e-6 && fabs(ttft->median - 200) < 1e-6);
    assert_true(fabs(ttft->std - sqrt(20000.0 / 3)) < 1e-6 && fabs(ttft->max - 300) < 1e-6);
    assert_true(fabs(ttft->percentiles[1] - 298) < 1e-6); /* numpy.percentile(.., 99) */
    assert_true(fabs(ttft->percentiles[2] - 300) < 1e-6);
    /* (E2EL - TTFT) / (n - 1): 30 ms for two tokens */
    assert_true(fabs(report.summaries[LOAD_TPOT].mean - 15) < 1e-6);
    assert_int_equal(report.summaries[LOAD_ITL].count, 6);
    assert_true(fabs(report.summaries[LOAD_ITL].max - 20) < 1e-3);
    assert_true(fabs(report.summaries[LOAD_NORMALIZED].mean - 230.0 / 3) < 1e-6);
    assert_true(fabs(report.summaries[LOAD_LATENESS].max - 2) < 1e-6);
    assert_true(fabs(report.summaries[LOAD_E2EL_QUEUED].mean - 232) < 1e-6);
    assert_int_equal(report.concurrency_peak, 2); /* the first has ended when the third begins */
    assert_string_equal(report.reasons[0].name, "overloaded");
    assert_int_equal(report.reasons[0].count, 1);
    for (int i = 0; i < 4; i++)
        load_answer_deinit(&answers[i]);
    load_plan_deinit(&plan);
}

static void test_one_token_has_no_tpot_and_meets_its_objective(void **state)
{
    (void)state;
    struct load_plan plan = plan_of(1);
    struct load_answer answer;
    struct load_report report = {.objectives = {true, 250, 0.001, (double)INFINITY}};
    load_answer_init(&answer, false);
    answer.due_ns = answer.ready_ns = answer.sent_ns = 5 * MS;
    load_answer_token(&answer, "x", 1, 6 * MS);
    answer.output_tokens = 1;
    load_report_make(&report, &plan, &answer, 5 * MS, 6 * MS);
    assert_int_equal(report.summaries[LOAD_TPOT].count, 0);
    assert_int_equal(report.good, 1);
    load_answer_deinit(&answer);
    load_plan_deinit(&plan);
}

/* Request i has a prompt of 10 (i + 1) tokens; the long ones, 17 to 19, are slow. */
static void test_attainment_by_decile_and_by_rate(void **state)
{
    (void)state;
    struct load_plan plan = plan_of(COUNT);
    struct load_answer answers[COUNT];
    uint32_t ttft[COUNT];
    struct load_report report = {.objectives = {true, 200, (double)INFINITY, (double)INFINITY}};
    for (uint32_t i = 0; i < COUNT; i++)
        ttft[i] = i < 17 ? 100 : 400;
    fill(answers, COUNT, ttft);
    load_report_make(&report, &plan, answers, 1000 * MS, 4000 * MS);
    for (uint32_t i = 0; i < LOAD_DECILES; i++) {
        assert_int_equal(report.deciles[i].requests, 2);
        assert_int_equal(report.deciles[i].shortest, 20 * i + 10);
        assert_int_equal(report.deciles[i].longest, 20 * i + 20);
        assert_int_equal(report.deciles[i].good, i < 8 ? 2 : i == 8 ? 1 : 0);
    }
    assert_int_equal(report.good, 17);
    assert_true(fabs(report.scale_90 - 2) < 1e-6); /* 400 / 200 */
    assert_true(fabs(report.rate_90 - 10) < 1e-6); /* the first 16 came at 10 a second */
    load_answer_fail(&answers[0], "timeout", "");
    struct load_report second = {.objectives = report.objectives};
    load_report_make(&second, &plan, answers, 1000 * MS, 4000 * MS);
    assert_true(isinf(second.scale_99) && second.rate_90 == 0);
    for (int i = 0; i < COUNT; i++)
        load_answer_deinit(&answers[i]);
    load_plan_deinit(&plan);
}

static void test_percentiles_are_interpolated(void **state)
{
    (void)state;
    const double values[] = {1, 2, 4, 8};
    assert_true(load_percentile(values, 4, 0) == 1 && load_percentile(values, 4, 100) == 8);
    assert_true(load_percentile(values, 4, 50) == 3);
    assert_true(fabs(load_percentile(values, 4, 90) - 6.8) < 1e-9);
    assert_true(load_percentile(values, 1, 99) == 1);
}

static void test_objectives(void **state)
{
    (void)state;
    static const char *const bad[] = {"ttft", "ttft:", "ttft:-1", "ttft:x", "itl:3", "tpot=3", ""};
    struct load_objectives objectives = {false, 1, 2, 3};
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(load_objective_parse(bad[i], &objectives, &err), STATUS_INVALID);
    assert_false(objectives.given);
    assert_int_equal(load_objective_parse("e2el:1500.5", &objectives, &err), STATUS_OK);
    assert_true(objectives.given && objectives.e2el_ms == 1500.5 && objectives.tpot_ms == 2);
}

static void test_the_json_is_whole(void **state)
{
    (void)state;
    const char *metadata[] = {"tp=1", "note=a \"b\" = c"};
    struct load_labels labels = {.backend = "openai",
                                 .label = "x\n",
                                 .model = "m",
                                 .date = "d",
                                 .dataset = "random",
                                 .num_prompts = 2,
                                 .detailed = true,
                                 .arrivals = {.rate = (double)INFINITY, .burstiness = 1},
                                 .metadata = metadata,
                                 .metadata_count = 2};
    struct load_plan plan = plan_of(2);
    struct load_answer answers[2];
    struct load_report report = {.percentiles = {99, 99.9},
                                 .percentile_count = 2,
                                 .objectives = {true, 1, (double)INFINITY, (double)INFINITY}};
    struct json *json;
    struct str text;
    struct error err;
    const char *note;
    double value;
    fill(answers, 2, (uint32_t[]){100, 200});
    load_answer_fail(&answers[1], "http 500", "it \"broke\"");
    memset(labels.shown, true, sizeof labels.shown);
    load_report_make(&report, &plan, answers, 1000 * MS, 2000 * MS);
    str_init(&text, 1u << 20);
    load_report_json(&report, &labels, &plan, answers, 1000 * MS, &text);
    if (json_parse(text.data, text.length, (struct json_limits){1u << 20, 8}, &json, &err) !=
        STATUS_OK)
        fail_msg("%s: %s", err.text, text.data);
    const struct json_value *root = json_root(json);
    assert_int_equal(json_get_double(root, "p99.9_ttft_ms", 0, 1e9, &value, &err), STATUS_OK);
    assert_true(fabs(value - 100) < 1e-6);
    assert_int_equal(json_get_double(root, "attainment", 0, 1, &value, &err), STATUS_OK);
    assert_int_equal(json_get_string(root, "note", &note, NULL, &err), STATUS_OK);
    assert_string_equal(note, "a \"b\" = c");
    assert_int_equal(json_count(json_find(root, "itls")), 2);
    assert_int_equal(json_count(json_find(root, "failures")), 1);
    assert_null(json_find(root, "max_concurrency"));
    assert_null(json_find(root, "objective_scale_99")); /* infinite */
    json_destroy(json);
    str_clear(&text);
    load_report_table(&report, &labels, &text);
    assert_non_null(strstr(text.data, "Successful requests:                     1"));
    assert_non_null(strstr(text.data, "Attainment (%):                          0.00"));
    assert_null(strstr(text.data, "Rate attained by 90%")); /* the rate is the same all the time */
    const struct load_group same = {.requests = 3, .good = 2, .shortest = 7, .longest = 7};
    for (int i = 0; i < LOAD_DECILES; i++) /* prompts of one length, except the longest */
        report.deciles[i] = same;
    report.deciles[9].longest = 8;
    report.deciles[3].requests = 0;
    str_clear(&text);
    load_report_table(&report, &labels, &text);
    assert_non_null(strstr(text.data, "\n         7 .. 7      tokens,     24 requests      66.7%\n"
                                      "         7 .. 8      tokens,      3 requests      66.7%\n"));
    str_clear(&text);
    labels.arrivals.ramp = LOAD_RAMP_LINEAR;
    load_report_table(&report, &labels, &text);
    assert_non_null(strstr(text.data, "Rate attained by 90% (req/s):"));
    str_deinit(&text);
    for (int i = 0; i < 2; i++)
        load_answer_deinit(&answers[i]);
    load_plan_deinit(&plan);
}

/* --- words --- */

static uint32_t words_in(const char *text)
{
    uint32_t count = *text != 0;
    for (; *text; text++)
        count += *text == ' ';
    return count;
}

static void test_prompts_share_their_segments(void **state)
{
    (void)state;
    const struct load_prefixes prefixes = {.prefix = 40, .suffix = 10, .output = 1, .prefixes = 1};
    struct load_plan plan;
    struct load_words words;
    struct error err;
    struct str texts[2];
    load_plan_init(&plan);
    assert_int_equal(load_plan_add_prefixes(&plan, &prefixes, 2, 0, &err), STATUS_OK);
    assert_int_equal(load_words_open(&words, NULL, 9, &err), STATUS_OK);
    words.overhead = 4;
    for (uint32_t i = 0; i < 2; i++) {
        str_init(&texts[i], 1u << 16);
        load_words_render(&words, &plan, i, &texts[i]);
        assert_int_equal(words_in(texts[i].data), 46);
    }
    size_t shared = 0;
    for (uint32_t blanks = 0; blanks < 40; shared++)
        blanks += texts[0].data[shared] == ' ';
    assert_memory_equal(texts[0].data, texts[1].data, shared);
    assert_string_not_equal(texts[0].data, texts[1].data);
    words.tokens_per_word = 2.5;
    str_clear(&texts[0]);
    load_words_render(&words, &plan, 0, &texts[0]);
    assert_int_equal(words_in(texts[0].data), 16 + 2); /* 40 and 6 tokens */
    words.overhead = 1000;                             /* at least a word */
    words.tokens_per_word = 100;
    str_clear(&texts[0]);
    load_words_render(&words, &plan, 0, &texts[0]);
    assert_int_equal(words_in(texts[0].data), 1);
    for (int i = 0; i < 2; i++)
        str_deinit(&texts[i]);
    load_words_close(&words);
    load_plan_deinit(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_in_any_pieces),
        cmocka_unit_test(test_times_are_those_of_the_pieces),
        cmocka_unit_test(test_a_chats_role_is_no_token),
        cmocka_unit_test(test_failures_have_reasons),
        cmocka_unit_test(test_figures_are_vllms),
        cmocka_unit_test(test_one_token_has_no_tpot_and_meets_its_objective),
        cmocka_unit_test(test_attainment_by_decile_and_by_rate),
        cmocka_unit_test(test_percentiles_are_interpolated),
        cmocka_unit_test(test_objectives),
        cmocka_unit_test(test_the_json_is_whole),
        cmocka_unit_test(test_prompts_share_their_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
