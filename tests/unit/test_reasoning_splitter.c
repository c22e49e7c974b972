/* reasoning_splitter: reasoning and content of an answer, wherever it is cut. */
#include "common/language/text/reasoning_splitter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LIMIT (1u << 20)

enum start { NEVER, MAYBE, INSIDE };

static struct reasoning_tags tags_of(enum start start)
{
    static const struct reasoning_tags tags[] = {
        [NEVER] = {.begin = ""},
        [MAYBE] = {.begin = "<think>", .end = "</think>"},
        [INSIDE] = {.begin = "<think>", .end = "</think>", .inside = true},
    };
    return tags[start];
}

/* In two pieces, the first of `first` bytes, or (first > length) byte by byte. */
static void split(enum start start, const char *text, size_t length, size_t first,
                  struct str *reasoning, struct str *content)
{
    struct reasoning_splitter splitter;
    struct reasoning_tags tags = tags_of(start);
    str_clear(reasoning);
    str_clear(content);
    reasoning_splitter_init(&splitter, &tags);
    if (first <= length) {
        reasoning_splitter_push(&splitter, text, first, reasoning, content);
        reasoning_splitter_push(&splitter, text + first, length - first, reasoning, content);
    }
    for (size_t i = 0; first > length && i < length; i++)
        reasoning_splitter_push(&splitter, text + i, 1, reasoning, content);
    reasoning_splitter_end(&splitter, reasoning, content);
}

static const struct {
    enum start start;
    const char *text, *reasoning, *content;
} rows[] = {
    {NEVER, "<think>a</think>b", "", "<think>a</think>b"},
    {MAYBE, "", "", ""},
    {MAYBE, "Yes.", "", "Yes."},
    {MAYBE, "<think>\nSo.\n</think>\n\nYes.\n", "So.", "Yes.\n"},
    {MAYBE, "\n <think>So.</think>Yes.", "So.", "Yes."},
    {MAYBE, " \n<thin", "", " \n<thin"},
    {MAYBE, "<thing>a</think>", "", "<thing>a</think>"},
    {MAYBE, "a <think>b</think>", "", "a <think>b</think>"},
    {MAYBE, "<think></think>Yes.", "", "Yes."},
    {MAYBE, "<think>\n\n</think>\n\nYes.", "", "Yes."},
    {MAYBE, "<think>a</think>\n\n\nb", "a", "\nb"},
    {MAYBE, "<think>a</think>\n\n\n\n", "a", "\n\n"},
    {MAYBE, "<think>a</think>\n\nb\n", "a", "b\n"},
    {MAYBE, "<think>a", "a", ""},
    {MAYBE, "<think>", "", ""},
    {MAYBE, "<think>a\n\nb\n", "a\n\nb\n", ""},
    {MAYBE, "<think>a</thin", "a</thin", ""},
    {MAYBE, "<think>a\n</thin\n</think>b", "a\n</thin", "b"},
    {MAYBE, "<think>a <</</think>b", "a <</", "b"},
    {MAYBE, "<think>a</think>b</think>c<think>d", "a", "b</think>c<think>d"},
    {MAYBE, "<think>1 < 2, 2 </ 1</think> y", "1 < 2, 2 </ 1", " y"},
    {MAYBE, "<think>a\r\n</think>\r\nb", "a\r", "\r\nb"},
    {MAYBE, "<think>\xe2\x82\xac\n</think>\xc3\xa9", "\xe2\x82\xac", "\xc3\xa9"},
    {INSIDE, "So.\n</think>\n\nYes.", "So.", "Yes."},
    {INSIDE, "\nSo.</think>", "So.", ""},
    {INSIDE, "<think>\nSo.</think>Yes.", "So.", "Yes."},
    {INSIDE, "<thin</think>Yes.", "<thin", "Yes."},
    {INSIDE, "<</think>Yes.", "<", "Yes."},
    {INSIDE, "</think>Yes.", "", "Yes."},
    {INSIDE, "<thi", "<thi", ""},
    {INSIDE, "So. <think> so", "So. <think> so", ""},
    {INSIDE, "", "", ""},
};

static void test_each_answer_at_each_byte(void **state)
{
    (void)state;
    struct str reasoning, content;
    str_init(&reasoning, LIMIT);
    str_init(&content, LIMIT);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = strlen(rows[i].text);
        for (size_t first = 0; first <= length + 1; first++) {
            split(rows[i].start, rows[i].text, length, first, &reasoning, &content);
            if (strcmp(reasoning.data, rows[i].reasoning) || strcmp(content.data, rows[i].content))
                fail_msg("%s at %zu: '%s' and '%s'", rows[i].text, first, reasoning.data,
                         content.data);
        }
    }
    str_deinit(&reasoning);
    str_deinit(&content);
}

/* Random texts of the bytes that matter: no byte is lost but those of tags and newlines beside
 * them, and the cut doesn't matter. */
static void test_random_answers(void **state)
{
    (void)state;
    static const char *const parts[] = {"<think>", "</think>", "<", "</",       "think>", "\n",
                                        "\n\n",    " ",        "a", "\xc3\xa9", "</t"};
    struct str text, reasoning, content, first_reasoning, first_content;
    struct str *all[] = {&text, &reasoning, &content, &first_reasoning, &first_content};
    uint64_t random = 7;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        str_init(all[i], LIMIT);
    for (int round = 0; round < 3000; round++) {
        enum start start = round % 2 ? MAYBE : INSIDE;
        str_clear(&text);
        for (int part = 0; part < 12; part++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            str_add(&text, parts[(random >> 33) % (sizeof parts / sizeof *parts)]);
        }
        split(start, text.data, text.length, 0, &first_reasoning, &first_content);
        size_t cut = (random >> 20) % (text.length + 2);
        split(start, text.data, text.length, cut, &reasoning, &content);
        assert_string_equal(reasoning.data, first_reasoning.data);
        assert_string_equal(content.data, first_content.data);
        assert_null(strstr(reasoning.data, "</think>"));
        /* The content is the end of the text, and reasoning stands before it. */
        assert_true(content.length <= text.length);
        assert_string_equal(text.data + text.length - content.length, content.data);
        assert_non_null(strstr(text.data, reasoning.data));
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        str_deinit(all[i]);
}

/* The limits, and one more. */
static void test_what_is_held_is_bounded(void **state)
{
    (void)state;
    char text[300];
    struct str reasoning, content;
    str_init(&reasoning, LIMIT);
    str_init(&content, LIMIT);
    for (int more = 0; more < 2; more++) {
        size_t blanks = REASONING_BLANKS + (size_t)more, at = 0;
        memset(text, ' ', blanks);
        strcpy(text + blanks, "<think>a</think>b");
        split(MAYBE, text, strlen(text), 400, &reasoning, &content);
        assert_string_equal(content.data, more ? text : "b");
        strcpy(text, "<think>a");
        at = strlen(text);
        memset(text + at, '\n', REASONING_NEWLINES + (size_t)more);
        strcpy(text + at + REASONING_NEWLINES + more, "</think>b");
        split(MAYBE, text, strlen(text), 400, &reasoning, &content);
        assert_string_equal(reasoning.data, more ? "a\n" : "a");
    }
    str_deinit(&reasoning);
    str_deinit(&content);
}

/* A NUL is a byte like others. */
static void test_a_nul(void **state)
{
    (void)state;
    static const char text[] = "<think>a\0b</think>c\0d";
    struct str reasoning, content;
    str_init(&reasoning, LIMIT);
    str_init(&content, LIMIT);
    split(MAYBE, text, sizeof text - 1, 9, &reasoning, &content);
    assert_int_equal(reasoning.length, 3);
    assert_memory_equal(reasoning.data, "a\0b", 3);
    assert_int_equal(content.length, 3);
    assert_memory_equal(content.data, "c\0d", 3);
    str_deinit(&reasoning);
    str_deinit(&content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_answer_at_each_byte),
        cmocka_unit_test(test_random_answers),
        cmocka_unit_test(test_what_is_held_is_bounded),
        cmocka_unit_test(test_a_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
