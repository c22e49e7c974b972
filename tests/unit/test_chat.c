/* chat: the transcript to the byte, commands, options, and the request that they make. */
#include "common/cli/chat_render.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct chat chat;
    struct str say;
};

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    chat_init(&f->chat);
    str_init(&f->say, 8u << 20);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    chat_deinit(&f->chat);
    str_deinit(&f->say);
    free(f);
    return 0;
}

static enum chat_act line(struct fixture *f, const char *text)
{
    str_clear(&f->say);
    return chat_take_line(&f->chat, text, &f->say);
}

static void expect_said(const struct fixture *f, const char *text)
{
    if (!strstr(f->say.data, text))
        fail_msg("'%s' was not said, but:\n%s", text, f->say.data);
}

static void answer(struct fixture *f, const char *text)
{
    chat_take_answer(&f->chat, text, strlen(text));
}

static void test_the_transcript(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(line(f, "ROMEO:"), CHAT_ASK);
    assert_string_equal(f->chat.transcript.data, "ROMEO:\n");
    answer(f, "Good morrow");
    assert_int_equal(line(f, "//slash"), CHAT_ASK);
    assert_string_equal(f->chat.transcript.data, "ROMEO:\nGood morrow\n/slash\n");
    answer(f, "to thee.\n");
    assert_int_equal(line(f, ""), CHAT_ASK);
    assert_string_equal(f->chat.transcript.data, "ROMEO:\nGood morrow\n/slash\nto thee.\n\n");
    chat_take_failure(&f->chat);
    assert_string_equal(f->chat.transcript.data, "ROMEO:\nGood morrow\n/slash\nto thee.\n");
    assert_int_equal(line(f, "/show"), CHAT_GO_ON);
    assert_string_equal(f->say.data,
                        "you: ROMEO:\nmodel: Good morrow\nyou: /slash\nmodel: to thee.\n");
    assert_int_equal(line(f, "/retry"), CHAT_ASK);
    assert_string_equal(f->chat.transcript.data, "ROMEO:\nGood morrow\n/slash\n");
    answer(f, "or not");
    assert_int_equal(line(f, "/undo"), CHAT_GO_ON);
    expect_said(f, "The last turn is forgotten; 1 is left.");
    assert_string_equal(f->chat.transcript.data, "ROMEO:\nGood morrow\n");
    assert_int_equal(line(f, "/reset"), CHAT_GO_ON);
    assert_int_equal(f->chat.transcript.length, 0);
    assert_int_equal(line(f, "/undo"), CHAT_GO_ON);
    expect_said(f, "nothing to take back");
    assert_int_equal(line(f, "/retry"), CHAT_GO_ON);
    expect_said(f, "nothing to ask again");
    assert_int_equal(line(f, "/show"), CHAT_GO_ON);
    expect_said(f, "The transcript is empty.");
}

static void expect_messages(const struct fixture *f, const char *messages)
{
    struct str json;
    str_init(&json, 1u << 20);
    chat_messages(&f->chat, &json);
    assert_string_equal(json.data, messages);
    str_deinit(&json);
}

static void test_a_text_of_several_lines(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(line(f, "one\n\ntwo"), CHAT_ASK);
    answer(f, "yes");
    assert_int_equal(line(f, "/show"), CHAT_GO_ON);
    assert_string_equal(f->say.data, "you: one\n\ntwo\nmodel: yes\n");
    expect_messages(f, "{\"messages\": [{\"role\": \"user\", \"content\": \"one\\n\\ntwo\"}, "
                       "{\"role\": \"assistant\", \"content\": \"yes\"}]}");
    assert_int_equal(line(f, "/retry"), CHAT_ASK);
    assert_string_equal(f->chat.transcript.data, "one\n\ntwo\n");
    answer(f, "no");
    assert_int_equal(line(f, "\n"), CHAT_ASK);
    chat_take_failure(&f->chat);
    assert_int_equal(line(f, "/undo"), CHAT_GO_ON);
    assert_int_equal(f->chat.transcript.length, 0);
}

static void test_commands(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(line(f, "/quit"), CHAT_QUIT);
    assert_int_equal(line(f, "/exit "), CHAT_QUIT);
    assert_int_equal(line(f, "/quitt"), CHAT_GO_ON);
    expect_said(f, "/quitt is no command; /help lists them");
    assert_int_equal(line(f, "/"), CHAT_GO_ON);
    expect_said(f, "is no command");
    assert_int_equal(line(f, "/set foo"), CHAT_GO_ON);
    expect_said(f, "there is no foo to set; /help lists what there is");
    assert_int_equal(line(f, "/set seed x"), CHAT_GO_ON);
    expect_said(f, "seed must be a whole number, but is 'x'");
    assert_int_equal(line(f, "/set seed 7"), CHAT_GO_ON);
    expect_said(f, "seed is 7 from now on.");
    assert_int_equal(line(f, "/help"), CHAT_GO_ON);
    static const char *const all[] = {"/help",  "/show",  "/reset", "/undo",        "/retry",
                                      "/set",   "/stop",  "/quit",  "/temperature", "/top_p",
                                      "/top_k", "/min_p", "/seed",  "/max_tokens"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        expect_said(f, all[i]);
    assert_int_equal(f->chat.turn_count, 0);
}

static void test_options(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"/temperature 0.5", "temperature is 0.5 from now on."},
        {"/temperature", "/temperature  0.5\n"},
        {"/temperature 100.5", "temperature must be between 0 and 100, got 100.5\n"},
        {"/temperature -1", "temperature must be between 0 and 100, got -1\n"},
        {"/temperature 1e31", "temperature must be between 0 and 100, got 1e+31\n"},
        {"/temperature 1e300", "temperature must be between 0 and 100, got inf\n"},
        {"/temperature -1e300", "temperature must be between 0 and 100, got -inf\n"},
        {"/min_p -0", "min_p is 0 from now on.\n"},
        {"/min_p", "/min_p        0\n"},
        {"/temperature warm", "temperature must be a number, but is 'warm'\n"},
        {"/temperature nan", "temperature must be a number, but is 'nan'\n"},
        {"/top_p 0", "top_p must be above 0 and at most 1, got 0\n"},
        {"/top_p 0.9", "top_p is 0.9"},
        {"/top_k 1.5", "top_k must be a whole number, but is '1.5'\n"},
        {"/top_k 4294967296", "top_k must be in 0 .. 4294967295, but is '4294967296'\n"},
        {"/top_k 40", "top_k is 40"},
        {"/seed 9007199254740992", "seed is 9007199254740992"},
        {"/seed -1", "seed must be in 0 .. 9007199254740992, but is '-1'\n"},
        {"/max_tokens many", "max_tokens must be a whole number, but is 'many'\n"},
        {"/max_tokens 1.5", "max_tokens must be a whole number, but is '1.5'\n"},
        {"/max_tokens 0", "max_tokens must be in 1 .. 1048576, but is '0'\n"},
        {"/max_tokens -0", "max_tokens must be in 1 .. 1048576, but is '0'\n"},
        {"/max_tokens 1e300", "max_tokens must be in 1 .. 1048576, but is '1e+300'\n"},
        {"/max_tokens -1", "max_tokens must be in 1 .. 1048576, but is '-1'\n"},
        {"/max_tokens 1048577", "max_tokens must be in 1 .. 1048576, but is '1048577'\n"},
        {"/max_tokens 64", "max_tokens is 64"},
        {"/min_p 1", "min_p"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(line(f, cases[i].line), CHAT_GO_ON);
        expect_said(f, cases[i].said);
    }
    assert_true(f->chat.values[CHAT_TEMPERATURE] == 0.5 && f->chat.values[CHAT_TOP_P] == 0.9);
    assert_true(f->chat.given[CHAT_SEED] && !signbit(f->chat.values[CHAT_MIN_P]));
}

static void test_the_request(void **state)
{
    struct fixture *f = *state;
    struct arena arena;
    struct error err;
    arena_init(&arena, 1u << 16);
    assert_int_equal(line(f, "x"), CHAT_ASK);
    line(f, "/temperature 0.25");
    line(f, "/stop two words");
    strcpy(f->chat.slo_class, "chat");
    Baton__V1__GenerateRequest *request = chat_request(&f->chat, NULL, 0, &arena);
    assert_string_equal(request->slo_class, "chat");
    assert_int_equal(request->text.len, 2);
    assert_memory_equal(request->text.data, "x\n", 2);
    assert_true(request->sampling->temperature == 0.25f);
    assert_int_equal(request->sampling->top_p_presence_case, 0);
    assert_int_equal(request->stop->n_strings, 1);
    assert_int_equal(request->stop->strings[0].len, 9);
    assert_memory_equal(request->stop->strings[0].data, "two words", 9);
    for (int i = 1; i < CHAT_MAX_STOPS; i++)
        assert_int_equal(chat_add_stop(&f->chat, "y", &err), STATUS_OK);
    assert_int_equal(chat_add_stop(&f->chat, "y", &err), STATUS_LIMIT);
    line(f, "/set");
    expect_said(f, "/stop         two words\n");
    line(f, "/stop");
    assert_int_equal(f->chat.stop_count, 0);
    char longest[CHAT_MAX_STOP_BYTES + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(chat_add_stop(&f->chat, longest, &err), STATUS_INVALID);
    assert_int_equal(chat_add_stop(&f->chat, longest + 1, &err), STATUS_OK);
    arena_deinit(&arena);
}

static void test_messages_for_a_template(void **state)
{
    struct fixture *f = *state;
    uint32_t ids[] = {7, 8};
    struct arena arena;
    expect_messages(f, "{\"messages\": []}");
    assert_int_equal(line(f, "/system be brief"), CHAT_GO_ON);
    expect_said(f, "/system is for models with a chat template");
    f->chat.templated = true;
    line(f, "/system be \"brief\"");
    expect_said(f, "The system text is set.");
    assert_int_equal(line(f, "who?"), CHAT_ASK);
    expect_messages(f, "{\"messages\": [{\"role\": \"system\", \"content\": \"be \\\"brief\\\"\"}, "
                       "{\"role\": \"user\", \"content\": \"who?\"}]}");
    answer(f, "\n I, \n Romeo. \n");
    assert_int_equal(line(f, ""), CHAT_ASK);
    line(f, "/system");
    expect_said(f, "There is no system text now.");
    expect_messages(f, "{\"messages\": [{\"role\": \"user\", \"content\": \"who?\"}, {\"role\": "
                       "\"assistant\", \"content\": \"I, \\n Romeo.\"}, {\"role\": \"user\", "
                       "\"content\": \"\"}]}");
    arena_init(&arena, 1u << 16);
    const Baton__V1__GenerateRequest *request = chat_request(&f->chat, ids, 2, &arena);
    assert_int_equal(request->input_case, BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS);
    assert_int_equal(request->token_ids->n_ids, 2);
    assert_int_equal(request->token_ids->ids[1], 8);
    arena_deinit(&arena);
}

static void test_a_system_text_that_is_too_long(void **state)
{
    struct fixture *f = *state;
    char text[CHAT_MAX_SYSTEM_BYTES + 16] = "/system ";
    f->chat.templated = true;
    memset(text + 8, 'x', CHAT_MAX_SYSTEM_BYTES);
    line(f, text);
    expect_said(f, "is set");
    text[8 + CHAT_MAX_SYSTEM_BYTES] = 'x';
    line(f, text);
    expect_said(f, "/system: at most 16384 bytes; there is no text now");
    assert_int_equal(f->chat.system.length, 0);
}

/* The template alone: the shipped model's. */
static void test_the_prompt_of_a_template(void **state)
{
    struct fixture *f = *state;
    struct chat_render render = {0};
    struct token_ids ids;
    struct error err;
    assert_int_equal(chat_render_open("tests/golden/models/llama", &render, &err),
                     STATUS_NOT_FOUND);
    if (chat_render_open("deploy/local/tiny-shakespeare", &render, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    f->chat.templated = true;
    token_ids_init(&ids, 64);
    assert_int_equal(line(f, "Speak."), CHAT_ASK);
    assert_int_equal(chat_render_prompt(&render, &f->chat, &ids, &err), STATUS_OK);
    assert_true(ids.count > 4);
    ids.count = 0;
    ids.limit_count = 3;
    assert_int_equal(chat_render_prompt(&render, &f->chat, &ids, &err), STATUS_LIMIT);
    token_ids_deinit(&ids);
    chat_render_close(&render);
}

static void test_a_conversation_that_is_too_long(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < CHAT_MAX_TURNS; i++)
        assert_int_equal(line(f, "x"), CHAT_ASK);
    assert_int_equal(line(f, "x"), CHAT_GO_ON);
    expect_said(f, "There are 1000 turns: /reset begins anew");
    line(f, "/reset");
    char *much = malloc(CHAT_MAX_TRANSCRIPT_BYTES);
    assert_non_null(much);
    memset(much, 'x', CHAT_MAX_TRANSCRIPT_BYTES - 1);
    much[CHAT_MAX_TRANSCRIPT_BYTES - 1] = 0;
    assert_int_equal(line(f, much), CHAT_ASK);
    assert_int_equal(line(f, "x"), CHAT_GO_ON);
    expect_said(f, "/reset begins anew");
    assert_int_equal(f->chat.transcript.length, CHAT_MAX_TRANSCRIPT_BYTES);
    assert_int_equal(f->chat.turn_count, 1);
    free(much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_transcript, begin, end),
        cmocka_unit_test_setup_teardown(test_a_text_of_several_lines, begin, end),
        cmocka_unit_test_setup_teardown(test_commands, begin, end),
        cmocka_unit_test_setup_teardown(test_options, begin, end),
        cmocka_unit_test_setup_teardown(test_the_request, begin, end),
        cmocka_unit_test_setup_teardown(test_messages_for_a_template, begin, end),
        cmocka_unit_test_setup_teardown(test_a_system_text_that_is_too_long, begin, end),
        cmocka_unit_test_setup_teardown(test_the_prompt_of_a_template, begin, end),
        cmocka_unit_test_setup_teardown(test_a_conversation_that_is_too_long, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
