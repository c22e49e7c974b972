/* Output of the commands: a trace's timeline, the table of `baton top`, outside bytes in a
 * terminal; and lines as they come. */
#include "common/cli/input_lines.h"
#include "common/cli/terminal.h"
#include "common/cli/views.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char trace[] =
    "{\"id\": \"r1\", \"model\": \"llama\", \"tenant\": \"\", \"peer\": \"127.0.0.1:1\", "
    "\"status\": \"ok\", \"finish\": \"eos\", \"arrived_unix_ms\": 1709210096789.0, "
    "\"age_ms\": 500.0, \"prompt_tokens\": 12, \"max_tokens\": 9, \"tokens\": 3, \"prefills\": 2, "
    "\"dispatched_ms\": 10.0, \"first_token_ms\": 60.0, \"second_token_ms\": 75.0, "
    "\"last_token_ms\": 100.0, \"ended_ms\": 100.0, \"tpot_ms\": 20.0, \"longest_gap_ms\": 25.0, "
    "\"longest_gap_token\": 3, \"attempt_count\": 2, \"attempts\": ["
    "{\"number\": 1, \"prefill_worker\": \"prefill-0\", \"decode_worker\": \"\", \"placed_ms\": "
    "10.0, "
    "\"prefill\": {\"worker\": \"prefill-0\", \"sent_ms\": 10.0, \"local\": false}, "
    "\"ended_ms\": 20.0, \"why\": \"session_lost\"}, "
    "{\"number\": 2, \"prefill_worker\": \"prefill-1\", \"decode_worker\": \"decode-0\", "
    "\"placed_ms\": 20.0, \"first_token_ms\": 60.0, \"first_decode_token_ms\": 75.0, "
    "\"prefill\": {\"worker\": \"prefill-1\", \"sent_ms\": 20.0, \"begin_ms\": 25.0, \"end_ms\": "
    "55.0, "
    "\"cached_tokens\": 4, \"chunks\": 2, \"chunk_end_ms\": [40.0, 55.0], \"local\": false}, "
    "\"handoff\": {\"sent_ms\": 21.0, \"begin_ms\": 41.0, \"end_ms\": 70.0, \"lane\": \"shm\", "
    "\"bytes\": 4096, \"bytes_before_complete\": 1024}, \"ended_ms\": 100.0, \"why\": \"ok\"}]}";

static void expect_widths(const char *text, size_t most)
{
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        if (length > most)
            fail_msg("a line of %zu columns: %.*s", length, (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static void expect_text(const struct str *out, const char *text)
{
    if (!strstr(out->data, text))
        fail_msg("'%s' is not in:\n%s", text, out->data);
}

static void test_a_timeline(void **state)
{
    (void)state;
    struct trace_view *view = malloc(sizeof *view);
    struct error err;
    struct str out;
    assert_non_null(view);
    str_init(&out, 1u << 20);
    if (trace_view_parse(trace, strlen(trace), view, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    trace_view_print(view, 80, false, &out);
    expect_widths(out.data, 80);
    expect_text(&out, "request r1\n  ok, eos   12 + 3 tokens   model llama\n");
    expect_text(&out, "arrived 2024-02-29 12:34:56.789 UTC");
    expect_text(&out, "queue        router            0.00     10.00 |....  ");
    expect_text(&out, "attempt 1                     10.00  prefill-0 -> -, ended: session_lost");
    expect_text(&out, "prefill      prefill-1        25.00     30.00 |        ##########  ");
    expect_text(&out, "chunk 2");
    expect_text(&out, "4.0 KiB over shm, 25% during prefill");
    expect_text(&out, "decode       decode-0         60.00     40.00 |");
    expect_text(&out, "TTFT 60.00 ms   token 1 to 2 15.00 ms   TPOT 20.00 ms\n"
                      "longest gap 25.00 ms, before token 3   total 100.00 ms\n");
    assert_null(strchr(out.data, '\033'));
    str_clear(&out);
    trace_view_print(view, 10, true, &out); /* narrower than it can be, with colours */
    assert_non_null(strchr(out.data, '\033'));
    str_clear(&out);
    trace_view_print(view, 100000, false, &out);
    expect_widths(out.data, TRACE_VIEW_MAX_COLUMNS);
    str_deinit(&out);
    free(view);
}

static void test_a_request_that_waits(void **state)
{
    (void)state;
    static const char waits[] = "{\"id\": \"r\\u001b[2J\", \"choice\": 2, \"status\": \"running\", "
                                "\"arrived_unix_ms\": 0, \"age_ms\": 7.5, "
                                "\"attempts\": []}";
    struct trace_view *view = malloc(sizeof *view);
    struct error err;
    struct str out;
    assert_non_null(view);
    str_init(&out, 1u << 20);
    assert_int_equal(trace_view_parse(waits, strlen(waits), view, &err), STATUS_OK);
    trace_view_print(view, 80, false, &out);
    expect_text(&out, "request r?[2J, choice 2\n");
    expect_text(&out, "queue        router            0.00      7.50 |....");
    str_deinit(&out);
    free(view);
}

static void test_traces_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"arrived_unix_ms\": 1}",
        "{\"arrived_unix_ms\": -1, \"attempts\": []}",
        "{\"arrived_unix_ms\": 1, \"attempts\": 5}",
        "{\"arrived_unix_ms\": 1, \"attempts\": [], \"tokens\": \"x\"}",
        "{\"arrived_unix_ms\": 1, \"attempts\": [{\"prefill\": {\"begin_ms\": 1, \"chunk_end_ms\": "
        "[\"x\", 2]}}]}",
        "{\"arrived_unix_ms\": 1e300, \"attempts\": []}"};
    struct trace_view *view = malloc(sizeof *view);
    struct error err;
    assert_non_null(view);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (trace_view_parse(bad[i], strlen(bad[i]), view, &err) == STATUS_OK)
            fail_msg("taken: %s", bad[i]);
    free(view);
}

/* --- decisions --- */

#define CHOICE(prefill, chosen, total)            PREDICTED(prefill, chosen, "0.125", total)
#define OTHER(prefill, chosen, total)             PREDICTED(prefill, chosen, "-1", total)
#define PREDICTED(prefill, chosen, p_miss, total) TIMED(prefill, chosen, "120.25", p_miss, total)
#define TIMED(prefill, chosen, ttft, p_miss, total)                                                \
    "{\"prefill\": \"" prefill "\", \"decode\": \"decode-0\", \"chosen\": " chosen                 \
    ", \"ttft_ms\": " ttft ", \"tpot_ms\": 0, \"p_miss\": " p_miss ", \"others\": 0.25, "          \
    "\"price\": 0.001, \"total\": " total "}"
#define DECISION(why, verdict, alternatives, outcome)                                              \
    BY("goodput", "3", why, verdict, alternatives, outcome)
#define BY(policy, considered, why, verdict, alternatives, outcome)                                \
    "{\"model\": \"llama\", \"slo_class\": \"chat\", \"policy\": \"" policy "\", \"why\": \"" why  \
    "\", \"verdict\": \"" verdict "\", \"attempt\": 1, \"waited_ms\": 2.5, \"prompt_tokens\": "    \
    "700, \"objective\": {\"ttft_ms\": 400, \"tpot_ms\": 40, \"itl_ms\": 0, \"e2e_ms\": 0}, "      \
    "\"reader_only\": false, \"considered\": " considered                                          \
    ", \"p_miss_used\": 0.9, \"calibrated\": true, "                                               \
    "\"retry_after_s\": 7, \"alternatives\": [" alternatives "], \"outcome\": {" outcome "}}"
#define DECISIONS(list)                                                                            \
    "{\"request\": \"r1\", \"choice\": 1, \"sample_percent\": 10, \"kept\": 1000, "                \
    "\"decisions\": [" list "]}"
#define RUNS   "\"status\": \"\", \"known\": false, \"attained\": false"
#define MISSED "\"status\": \"ok\", \"known\": true, \"attained\": false, \"ttft_ms\": 500.5"

struct explained_case {
    const char *json, *text;
};

static void expect_explained(const struct explained_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct error err;
        struct str out;
        str_init(&out, 1u << 20);
        if (explain_view_print(cases[i].json, strlen(cases[i].json), false, &out, &err) !=
            STATUS_OK)
            fail_msg("%s: %s", err.text, cases[i].json);
        expect_text(&out, cases[i].text);
        expect_widths(out.data, 80);
        str_deinit(&out);
    }
}

static void test_why_a_request_went_where_it_did(void **state)
{
    (void)state;
    static const struct explained_case table[] = {
        {DECISIONS(DECISION(
             "least", "taken",
             CHOICE("prefill-0", "true", "0.4") "," CHOICE("prefill-1", "false", "0.65"), MISSED)),
         "request r1, choice 1\n\n"
         "attempt 1, 2.5 ms after its arrival: its workers by goodput\n"
         "  model llama, 700 prompt tokens, 3 choices\n"
         "  class chat: TTFT 400 ms, TPOT 40 ms\n"
         "  PREFILL       DECODE         TTFT MS  TPOT MS  P(MISS) OTHERS  PRICE    TOTAL\n"
         "> prefill-0     decode-0         120.2        -    12.5%  0.250  0.001      0.4\n"
         "  prefill-1     decode-0         120.2        -    12.5%  0.250  0.001     0.65\n"
         "  and 1 more choice, with no lower totals\n"
         "  Its total is the least: 0.25 below prefill-1, decode-0.\n"
         "  P(miss) 90.0% by what became of such predictions.\n"
         "  ok, missed: TTFT 500.5 ms\n"},
        {DECISIONS(DECISION("tie", "let_through",
                            CHOICE("", "true", "1") "," CHOICE("prefill-1", "false", "1"), RUNS)),
         "as good as that of prefill-1, decode-0.\n  The least device time wins, then the least "
         "TTFT.\n"},
        {DECISIONS(DECISION("tie", "let_through",
                            CHOICE("", "true", "1") "," CHOICE("prefill-1", "false", "1"), RUNS)),
         "let through, to learn whether a rejection would have been right.\n  not over yet\n"},
        {DECISIONS(DECISION("explored", "taken",
                            CHOICE("a", "true", "1") "," CHOICE("prefill-1", "false", "0.5"),
                            RUNS)),
         "longest unused workers"},
        {DECISIONS(DECISION("least", "taken",
                            CHOICE("a", "true", "1") "," CHOICE("b", "false", "0.5"), RUNS)),
         "  The total of b, decode-0 is less, but such choices come last:\n"},
        {DECISIONS(DECISION("least", "taken", CHOICE("a", "true", "1"), RUNS)), "the only choice"},
        {DECISIONS(DECISION("least", "rejected", "", MISSED)),
         "It was rejected (slo_unattainable): try again after 7 s.\n"},
        {DECISIONS(DECISION("least", "taken", CHOICE("p\\u001b[2J", "true", "1"), RUNS)), "p?[2J"},
    };
    expect_explained(table, sizeof table / sizeof *table);
}

/* Without SLO classes. The sentence agrees with the table. */
static void test_why_by_ttft(void **state)
{
    (void)state;
    static const struct explained_case table[] = {
        {DECISIONS(BY("goodput", "2", "least", "taken",
                      TIMED("prefill-0", "true", "90.5", "-1", "90.5") "," TIMED("p", "false", "92",
                                                                                 "-1", "92"),
                      RUNS)),
         "        -      -      -     90.5\n"
         "  p             decode-0          92.0        -        -      -      -       92\n"
         "  Its TTFT is the least: 1.5 ms below p, decode-0.\n"},
        /* One alone counts its prompt's time twice; times that are nearly equal are equal. */
        {DECISIONS(BY("goodput", "2", "least", "taken",
                      TIMED("prefill-0", "true", "100", "-1", "100") "," TIMED("", "false", "70.25",
                                                                               "-1", "120.25"),
                      RUNS)),
         "  Its TTFT, as it is compared, is the least: 20.25 ms below decode-0.\n"},
        {DECISIONS(BY("goodput", "2", "tie", "taken",
                      TIMED("prefill-0", "true", "104", "-1", "100") "," TIMED("p", "false", "100",
                                                                               "-1", "100"),
                      RUNS)),
         "  Its TTFT, as it is compared, is as good as that of p, decode-0.\n"
         "  The least TPOT wins, then the least queued work.\n"},
        {DECISIONS(BY("goodput", "2", "tie", "taken",
                      TIMED("prefill-0", "true", "100", "-1", "100") "," TIMED("p", "false", "100",
                                                                               "-1", "100"),
                      RUNS)),
         "  Its TTFT is as good as that of p, decode-0.\n"},
        {DECISIONS(BY("goodput", "2", "least", "taken",
                      TIMED("prefill-0", "true", "123456.789", "-1",
                            "123457") "," TIMED("p", "false", "223456.321", "-1", "223456"),
                      RUNS)),
         "  Its TTFT is the least: 1e+05 ms below p, decode-0.\n"},
        {DECISIONS(BY("goodput", "2", "least", "taken",
                      TIMED("prefill-0", "true", "100", "-1", "100") "," TIMED("", "false", "70.25",
                                                                               "-1", "1e+09"),
                      RUNS)),
         "> prefill-0     decode-0         100.0        -        -      -      -      100\n"
         "  -             decode-0          70.2        -        -      -      - left out\n"
         "  decode-0 was left out: prompts took much of its answers' time lately.\n  P(miss)"},
        {DECISIONS(BY("goodput", "4", "tie", "taken",
                      TIMED("prefill-0", "true", "100", "-1", "100") "," TIMED(
                          "p", "false", "100", "-1",
                          "100") "," TIMED("", "false", "70.25", "-1",
                                           "1e+09") "," TIMED("", "false", "80", "-1", "1e+09"),
                      RUNS)),
         "  The least TPOT wins, then the least queued work.\n"
         "  2 choices were left out: prompts took much of their answers' time lately.\n"},
        {DECISIONS(BY("goodput", "2", "least", "taken", /* with classes it is a total like others */
                      TIMED("prefill-0", "true", "100", "0.5", "1") "," TIMED("", "false", "70.25",
                                                                              "0.5", "1e+09"),
                      RUNS)),
         "    1e+09\n  Its total is the least: 1e+09 below decode-0.\n  P(miss)"},
    };
    expect_explained(table, sizeof table / sizeof *table);
}

/* The sentence is true for the policy, and speaks of its own TOTAL. */
static void test_why_by_each_policy(void **state)
{
    (void)state;
    static const struct explained_case table[] = {
        {DECISIONS(BY("least-tokens", "9", "tie", "taken",
                      OTHER("prefill-0", "true", "40") "," OTHER("p", "false", "40"), RUNS)),
         "  and 7 more choices, with no lower totals\n"
         "  Its queued work is as good as that of p, decode-0.\n"
         "  The worker that was unused for longest wins.\n"},
        {DECISIONS(BY("predicted-latency", "2", "least", "taken",
                      OTHER("prefill-0", "true", "0") "," OTHER("p", "false", "0.5"), RUNS)),
         "  Its total is the least: 0.5 below p, decode-0.\n"
         "  Holders of the prompt's beginning come first, then workers that attain.\n"
         "  Among these 0 is the best TTFT and TPOT; 10 or more is left out.\n"},
        {DECISIONS(BY("prefix", "2", "least", "taken",
                      OTHER("prefill-0", "true", "-64") "," OTHER("p", "false", "0"), RUNS)),
         "  The total is less for more cached tokens. It is the number of requests\n"
         "  where these are far apart.\n"},
        {DECISIONS(BY("tomorrow's", "2", "tie", "taken",
                      OTHER("prefill-0", "true", "1") "," OTHER("p", "false", "1"), RUNS)),
         "  Further rules of the policy decide.\n"},
        {DECISIONS(BY("goodput", "1", "only", "held", OTHER("p", "true", "1"), RUNS)),
         "  It was held: it waits behind all requests that can attain.\n  not over yet\n"},
        {DECISIONS(BY("", "0", "least", "rejected", "", MISSED)),
         "attempt 1, 2.5 ms after its arrival: judged by the requests that wait before it\n"
         "  model llama, 700 prompt tokens\n  class chat: TTFT 400 ms, TPOT 40 ms\n"
         "  P(miss) 90.0% by what became of such predictions.\n  It was rejected"},
    };
    expect_explained(table, sizeof table / sizeof *table);
}

static void test_decisions_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"decisions\": 5}",
                                      "{\"decisions\": [5]}",
                                      DECISIONS("{}"),
                                      DECISIONS(DECISION("least", "taken", "{}", RUNS)),
                                      DECISIONS(DECISION("least", "taken", "", "\"known\": 1"))};
    struct error err;
    struct str out;
    str_init(&out, 1u << 20);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (explain_view_print(bad[i], strlen(bad[i]), false, &out, &err) == STATUS_OK)
            fail_msg("taken: %s", bad[i]);
    static const char none[] = DECISIONS("");
    assert_int_equal(explain_view_print(none, strlen(none), false, &out, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "no decision about r1: it samples 10% of the requests"));
    assert_non_null(strstr(err.text, "--decision-sample 100"));
    static const char empty[] = "{\"request\": \"\", \"decisions\": []}"; /* --last */
    assert_int_equal(explain_view_print(empty, strlen(empty), false, &out, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "the router has no decision yet: it samples"));
    static const char all[] = "{\"sample_percent\": 100, \"kept\": 7, \"decisions\": []}";
    assert_int_equal(explain_view_print(all, strlen(all), false, &out, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "no decision yet: it keeps the newest 7, since it started"));
    str_deinit(&out);
}

/* One attempt has five lines at most, and there may be many chunks: the list has an end. */
static void test_more_lines_than_a_timeline_has(void **state)
{
    (void)state;
    struct trace_view *view = malloc(sizeof *view);
    struct error err;
    struct str text, out;
    assert_non_null(view);
    str_init(&text, 1u << 20);
    str_init(&out, 1u << 20);
    str_add(&text, "{\"arrived_unix_ms\": 1, \"attempts\": [{\"prefill\": {\"sent_ms\": 0, "
                   "\"begin_ms\": 1, \"chunks\": 100, \"chunk_end_ms\": [1");
    for (int i = 2; i <= 100; i++)
        str_addf(&text, ", %d", i);
    str_add(&text, "]}}]}");
    assert_int_equal(trace_view_parse(text.data, text.length, view, &err), STATUS_OK);
    assert_int_equal(view->bar_count, TRACE_VIEW_MAX_BARS);
    trace_view_print(view, 80, false, &out);
    expect_widths(out.data, 80);
    str_deinit(&out);
    str_deinit(&text);
    free(view);
}

/* --- top --- */

static void set_worker(struct top_look *look, size_t index, const char *name, int64_t tokens)
{
    struct worker_status *worker = &look->status.workers[index];
    *worker = (struct worker_status){.queue = 1,
                                     .running = 2,
                                     .blocks = 100,
                                     .blocks_free = 30,
                                     .blocks_cached = 10,
                                     .tokens = tokens};
    str_copy(worker->name, sizeof worker->name, name);
    str_copy(worker->role, sizeof worker->role, "decode");
    str_copy(worker->state, sizeof worker->state, "up");
    str_copy(worker->incarnation, sizeof worker->incarnation, "1f");
    str_copy(worker->lane, sizeof worker->lane, "shm");
    look->status.count = index + 1;
}

static struct top_look *look_at(uint64_t at_us, int64_t tokens)
{
    struct top_look *look = calloc(1, sizeof *look);
    assert_non_null(look);
    look->at_us = at_us;
    look->status.tokens = tokens;
    look->status.window_s = 60;
    look->status.ttft = (struct status_figure){3, 12.34, 120.6};
    look->status.e2e = (struct status_figure){3, 500, 1000};
    set_worker(look, 0, "decode-0", tokens);
    return look;
}

static void test_top(void **state)
{
    (void)state;
    struct top_look *before = look_at(1000000, 1000), *now = look_at(3000000, 1500);
    struct str out;
    str_init(&out, 1u << 20);
    set_worker(now, 1, "decode-with-a-very-long-name", 5);
    str_copy(now->status.workers[1].state, 16, "down");
    top_view_print(before, now, 0, false, &out);
    expect_widths(out.data, 80);
    expect_text(&out, "workers 1 of 2 up");
    expect_text(&out, "tokens/s   prompt 0.0   generated 250\n");
    expect_text(&out, "TTFT 12.3 / 121  TPOT - / -");
    expect_text(&out,
                "decode-0       decode  up           1    2 ######....  60%     0.0     250 shm\n");
    expect_text(&out, "decode-with-a- decode  down         -    -               -\n");
    assert_null(strchr(out.data, '\033'));
    str_clear(&out);
    top_view_print(NULL, now, 8, true, &out); /* the first look, a small window */
    expect_text(&out, "generated -\n");
    expect_text(&out, "and 1 more\n");
    str_deinit(&out);
    free(before);
    free(now);
}

/* A line of each, in the workers' columns, with its workers below it. */
static void test_top_of_several_models(void **state)
{
    (void)state;
    struct top_look *before = look_at(1000000, 1000), *now = look_at(2000000, 1250);
    struct str out;
    str_init(&out, 1u << 20);
    for (int i = 0; i < 2; i++) {
        struct top_look *look = i ? now : before;
        look->status.model_count = 2;
        look->status.models[0] = (struct model_status){.name = "words", .tokens = 10};
        look->status.models[1] = (struct model_status){
            .name = "llama", .queue = 3, .running = 4, .tokens = i ? 1230 : 980};
        set_worker(look, 1, "decode-1", 0);
        str_copy(look->status.workers[0].model, 128, "llama");
        str_copy(look->status.workers[1].model, 128, "words");
    }
    top_view_print(before, now, 0, false, &out);
    expect_widths(out.data, 80);
    expect_text(&out, "models 2   workers 2 of 2 up");
    expect_text(&out,
                "\nwords                               0    0                     0.0     0.0\n"
                "decode-1 ");
    expect_text(&out,
                "\nllama                               3    4                     0.0     250\n"
                "decode-0 ");
    str_clear(&out);
    top_view_print(NULL, now, 10, false, &out); /* room for one worker */
    expect_text(&out, "\ndecode-1 ");
    assert_null(strstr(out.data, "decode-0"));
    expect_text(&out, "and 1 more\n");
    str_deinit(&out);
    free(before);
    free(now);
}

/* A counter that began anew says no rate, nor does another life of a worker. */
static void test_top_after_a_restart(void **state)
{
    (void)state;
    struct top_look *before = look_at(1000000, 1000), *now = look_at(2000000, 10);
    struct str out;
    str_init(&out, 1u << 20);
    top_view_print(before, now, 0, false, &out);
    expect_text(&out, "generated -\n");
    now->status.tokens = now->status.workers[0].tokens = 301000;
    str_copy(now->status.workers[0].incarnation, 24, "2f");
    str_clear(&out);
    top_view_print(before, now, 0, false, &out);
    expect_text(&out, "generated 300.0k\n");
    expect_text(&out, " 60%       -       - shm\n");
    str_deinit(&out);
    free(before);
    free(now);
}

static void test_status_with_figures(void **state)
{
    (void)state;
    static const char text[] =
        "{\"prompt_tokens\": 5, \"tokens\": 7, \"window\": {\"seconds\": 60, \"ttft\": {\"count\": "
        "2, "
        "\"p50_ms\": 1.5, \"p99_ms\": 2.5}}, \"workers\": [{\"name\": \"d\", \"role\": \"decode\", "
        "\"address\": \"a\", \"state\": \"up\", \"blocks\": 10, \"tokens\": 3, \"prompt_tokens\": "
        "4}]}";
    struct cluster_status *status = malloc(sizeof *status);
    struct error err;
    assert_non_null(status);
    assert_int_equal(cluster_status_parse(text, strlen(text), status, &err), STATUS_OK);
    assert_int_equal(status->tokens, 7);
    assert_int_equal(status->window_s, 60);
    assert_true(status->ttft.count == 2 && status->ttft.p99_ms == 2.5 && status->tpot.count == 0);
    assert_true(status->workers[0].blocks == 10 && status->workers[0].prompt_tokens == 4);
    static const char bad[] =
        "{\"window\": {\"ttft\": {\"count\": 1, \"p50_ms\": \"x\"}}, \"workers\": []}";
    assert_int_not_equal(cluster_status_parse(bad, strlen(bad), status, &err), STATUS_OK);
    free(status);
}

/* --- terminal --- */

static void test_words_for_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {{"plain", "plain"},
                 {"a\033[31mb\n\x7f", "a?[31mb??"},
                 {"\xc2\x9b"
                  "31m",
                  "?31m"},
                 {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
                 {"0123456789", "0123456"},
                 {"012345\xc3\xa9", "012345"},
                 {"01234\xe2\x82\xac", "01234"},
                 {"", ""}};
    char word[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wide[64];
        bool cut = strlen(cases[i].text) >= 8 && cases[i].text[0] == '0';
        terminal_word(cases[i].text, cut ? word : wide, cut ? sizeof word : sizeof wide);
        assert_string_equal(cut ? word : wide, cases[i].shown);
    }
}

static void test_text_for_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {{"plain\n\ttext\n", "plain\n\ttext\n"},
                 {"a\033[2J\033]0;title\007b", "a?[2J?]0;title?b"},
                 {"\033]52;c;cm0=\033\\", "?]52;c;cm0=?\\"},
                 {"over\rwritten\r\n", "overwritten\n"},
                 {"a\b\b\x7f\x0e", "a????"},
                 {"\xc2\x9b"
                  "31m \xc2\xa0\xc3\x9b \xe2\x82\xac \xf0\x9f\x99\x82",
                  "?31m \xc2\xa0\xc3\x9b \xe2\x82\xac \xf0\x9f\x99\x82"},
                 {"\xc2", "\xc2"},
                 {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char shown[64] = "";
        size_t count = terminal_plain(cases[i].text, strlen(cases[i].text), shown);
        shown[count] = 0;
        assert_string_equal(shown, cases[i].shown);
    }
    char shown[3];
    assert_int_equal(terminal_plain("a\0b", 3, shown), 3);
    assert_memory_equal(shown, "a?b", 3);
}

/* Why a lane isn't faster, and that one was never run. */
static void test_lanes_of_a_status(void **state)
{
    (void)state;
    struct top_look *look = look_at(1000000, 1);
    struct str out;
    str_init(&out, 1u << 20);
    set_worker(look, 1, "decode-1", 1);
    set_worker(look, 2, "decode-2", 1);
    str_copy(look->status.workers[1].lane, sizeof look->status.workers[1].lane, "tcp");
    str_copy(look->status.workers[1].lane_reason, sizeof look->status.workers[1].lane_reason,
             "the peer is on another machine");
    str_copy(look->status.workers[2].lane, sizeof look->status.workers[2].lane, "rdma");
    cluster_status_print(&look->status, 0, &out);
    expect_text(&out, "\ndecode-1: lane tcp, for the peer is on another machine\n");
    expect_text(&out, "\ndecode-2: lane rdma, which no version was ever run with\n");
    assert_null(strstr(out.data, "decode-0: lane"));
    str_deinit(&out);
    free(look);
}

static void test_lines_as_they_come(void **state)
{
    (void)state;
    int ends[2];
    const char *line;
    struct line_reader reader;
    assert_int_equal(pipe(ends), 0);
    line_reader_init(&reader, ends[0]);
    assert_int_equal(line_reader_next(&reader, &line), LINE_NONE);
    assert_int_equal(write(ends[1], "one\ntw", 6), 6);
    line_reader_fill(&reader);
    assert_int_equal(line_reader_next(&reader, &line), LINE_WHOLE);
    assert_string_equal(line, "one");
    assert_int_equal(line_reader_next(&reader, &line), LINE_NONE);
    assert_int_equal(write(ends[1], "o\n\nlast", 7), 7);
    close(ends[1]);
    line_reader_fill(&reader);
    assert_int_equal(line_reader_next(&reader, &line), LINE_WHOLE);
    assert_string_equal(line, "two");
    assert_int_equal(line_reader_next(&reader, &line), LINE_WHOLE);
    assert_string_equal(line, "");
    assert_int_equal(line_reader_next(&reader, &line), LINE_NONE);
    line_reader_fill(&reader);
    assert_int_equal(line_reader_next(&reader, &line), LINE_WHOLE);
    assert_string_equal(line, "last");
    assert_int_equal(line_reader_next(&reader, &line), LINE_END);
    line_reader_deinit(&reader);
    close(ends[0]);
}

static void test_a_line_of_the_user_that_is_too_long(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    const char *line;
    struct line_reader reader;
    assert_non_null(file);
    for (int i = 0; i <= (int)LINE_READER_MAX_BYTES; i++)
        fputc('x', file);
    fputs("yy\nnext\n", file);
    rewind(file);
    line_reader_init(&reader, fileno(file));
    enum line_event event;
    while ((event = line_reader_next(&reader, &line)) == LINE_NONE)
        line_reader_fill(&reader);
    assert_int_equal(event, LINE_TOO_LONG);
    while ((event = line_reader_next(&reader, &line)) == LINE_NONE)
        line_reader_fill(&reader);
    assert_int_equal(event, LINE_WHOLE);
    assert_string_equal(line, "next");
    line_reader_deinit(&reader);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_timeline),
        cmocka_unit_test(test_a_request_that_waits),
        cmocka_unit_test(test_traces_that_are_none),
        cmocka_unit_test(test_why_a_request_went_where_it_did),
        cmocka_unit_test(test_why_by_ttft),
        cmocka_unit_test(test_why_by_each_policy),
        cmocka_unit_test(test_decisions_that_are_none),
        cmocka_unit_test(test_more_lines_than_a_timeline_has),
        cmocka_unit_test(test_top),
        cmocka_unit_test(test_top_of_several_models),
        cmocka_unit_test(test_top_after_a_restart),
        cmocka_unit_test(test_status_with_figures),
        cmocka_unit_test(test_words_for_a_terminal),
        cmocka_unit_test(test_text_for_a_terminal),
        cmocka_unit_test(test_lanes_of_a_status),
        cmocka_unit_test(test_lines_as_they_come),
        cmocka_unit_test(test_a_line_of_the_user_that_is_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
