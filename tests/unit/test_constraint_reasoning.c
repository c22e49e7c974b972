/* Constraints behind reasoning: free text up to the first end tag, and then the constraint, of each
 * kind. */
#include "common/language/text/reasoning_splitter.h"
#include "tests/unit/constraint_rows.h"

#define INSIDE  " inside <think> </think>\n"
#define OUTSIDE " outside <think> </think>\n"
/* A rule that calls itself keeps its start. */
#define NESTED "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}"
#define CALLS  "{\"begin\":\"<t\",\"tools\":[" TOOL("f", "f(", "true") "],\"end\":\"\"}"

static void test_each_kind(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"json_object" INSIDE,
         {"</think>{}", "So.\n</think>\n\n{\"a\": 1}", "<<//</think>\n{}", "\xff</think>{}",
          "{} </thin </think>{}", "\xc3\xa9</think>{}"},
         {"", "{}", "So.", "So.</think>", "</think></think>{}", "</think>\n\n\n{}", "</think> {}",
          "\xff<think>{}", "a\xff</think> {}"}},
        {"json_object" OUTSIDE,
         {"{}", "<think></think>{}", "<think>a\nb</think>\n{}", "\xff<think>a\xff</think>{}"},
         {"a{}", "</think>{}", "<think>{}", "\n<think></think>{}", "<think>a</think>b{}",
          "\xff</think>{}"}},
        {"json_schema" OUTSIDE NESTED,
         {"[]", "[[],[[]]]", "<think>[</think>[[]]"},
         {"[<think></think>[]]", "<think>[]", "[[]"}},
        /* Lengths are counted behind the reasoning, too. */
        {"json_schema" OUTSIDE "{\"type\":\"string\",\"maxLength\":3,\"pattern\":\"^a*$\"}",
         {"\"\"", "\"aaa\"", "<think>\"aaaa\"</think>\"aaa\""},
         {"\"aaaa\"", "\"b\"", "<think>\"aa\"</think>\"aaaa\"", "<think>a</think>\"b\""}},
        {"json_schema" INSIDE "{\"type\":\"string\",\"format\":\"uri\",\"maxLength\":12}",
         {"So \"</think>\"http://a.bc\""},
         {"So</think>\"http://a.bcdef\"", "\"http://a.bc\""}},
        {"regex" INSIDE "<?a", {"</think>a", "<</think><a"}, {"</think>", "a", "</think>\n\n\na"}},
        {"regex" OUTSIDE "<t?", {"<", "<t", "<think>x</think><t"}, {"<think>x</think>", "<th"}},
        /* Newlines of its own begin behind those of the end tag. */
        {"regex" INSIDE "\n?a",
         {"</think>\n\na", "</think>\n\n\na"},
         {"</think>a", "</think>\na", "</think>\n\n\n\na", "</think>\n\n"}},
        {"regex" INSIDE "[^b]*",
         {"</think>\n\n", "</think>\n\n\nc"},
         {"</think>", "</think>\n", "</think>c", "</think>\nc"}},
        {"choice" INSIDE "[\"\\na\",\"b\"]",
         {"</think>\n\n\na", "</think>\n\nb"},
         {"</think>\na", "</think>\n\na", "</think>b", "</think>\nb"}},
        {"choice" OUTSIDE "[\"<think\",\"b\"]",
         {"<think", "b", "<think></think>b", "<think></think>\n<think"},
         {"<think>", "<think>b"}},
        {"tool_calls" OUTSIDE CALLS,
         {"<tf({}", "<think>f(</think>\n\n<tf({\"a\":1}"},
         {"f({}", "<think>f({}", "<tf(1"}},
        {"regex outside [T] [/T]\na", {"a", "[T][/T]a", "[T][[/[/T]a"}, {"[T]a", "[/T]a"}},
        {"regex inside aa aab\nx",
         {"aab"
          "x",
          "aaab"
          "x",
          "aaaab"
          "x",
          "abaab"
          "x"},
         {"aax", "abx"}},
    };
    CHECK_ROWS(CONSTRAINT_BEHIND_REASONING, rows);
}

/* Writes text `number` of the letters newline and 'a'; its length is that of the number's bits. */
static size_t letters(size_t number, char *text)
{
    size_t length = 0;
    for (number++; number > 1; number /= 2)
        text[length++] = number % 2 ? '\n' : 'a';
    text[length] = 0;
    return length;
}

/* Takes the answer apart as the router does for its client. */
static size_t content_of(const char *answer, char *content)
{
    static const struct reasoning_tags tags = {"<think>", "</think>", true};
    struct reasoning_splitter splitter;
    struct str reasoning, rest;
    str_init(&reasoning, 100);
    str_init(&rest, 100);
    reasoning_splitter_init(&splitter, &tags);
    reasoning_splitter_push(&splitter, answer, strlen(answer), &reasoning, &rest);
    reasoning_splitter_end(&splitter, &reasoning, &rest);
    size_t length = rest.length;
    memcpy(content, rest.data, length + 1);
    str_deinit(&reasoning);
    str_deinit(&rest);
    return length;
}

/* A client's content matches the constraint alone, and each content that matches can come. */
static void test_content_matches_the_constraint(void **state)
{
    (void)state;
    enum { TEXTS = 127 }; /* up to six letters */
    static const struct {
        enum constraint_kind kind;
        const char *text;
    } rows[] = {
        {CONSTRAINT_REGEX, "a+"},
        {CONSTRAINT_REGEX, "\n+a"},
        {CONSTRAINT_REGEX, "\n?a"},
        {CONSTRAINT_REGEX, "\n*"},
        {CONSTRAINT_REGEX, "(a|\n)*a"},
        {CONSTRAINT_REGEX, "a?\n"},
        {CONSTRAINT_REGEX, "\\s*a"},
        {CONSTRAINT_REGEX, "[^b]{2}"},
        {CONSTRAINT_CHOICE, "[\"a\", \"aa\\n\"]"},
        {CONSTRAINT_CHOICE, "[\"\\na\", \"a\", \"\\n\\n\"]"},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        char text[100], answer[200], content[200];
        snprintf(text, sizeof text, "%s" INSIDE "%s", constraint_kind_names[rows[row].kind],
                 rows[row].text);
        struct constraint *behind = compiled(CONSTRAINT_BEHIND_REASONING, text);
        struct constraint *alone = compiled(rows[row].kind, rows[row].text);
        size_t came = 0, matched = 0;
        for (size_t i = 0; i < TEXTS; i++) {
            size_t length = letters(i, text);
            snprintf(answer, sizeof answer, "So.</think>%s", text);
            if (takes(behind, answer, strlen(answer))) {
                size_t count = content_of(answer, content);
                if (!takes(alone, content, count))
                    fail_msg("%s: '%s' isn't one", rows[row].text, content);
                came++;
            }
            if (!takes(alone, text, length))
                continue;
            snprintf(answer, sizeof answer, "So.</think>\n\n%s", text);
            assert_true(takes(behind, answer, strlen(answer)));
            assert_int_equal(content_of(answer, content), length);
            assert_memory_equal(content, text, length);
            matched++;
        }
        assert_true(came && matched);
        constraint_destroy(behind);
        constraint_destroy(alone);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"", STATUS_INVALID, "behind: the first line"},
        {"regex inside <think> </think>", STATUS_INVALID, "behind: the first line"},
        {"regex inside <think>\na", STATUS_INVALID, "behind: the first line"},
        {"regex inside <think> </think> \na", STATUS_INVALID, "behind: the first line"},
        {"regex inside <think> </thinkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk>\na", STATUS_INVALID,
         "behind: the first line"},
        {"regexp inside <think> </think>\na", STATUS_INVALID, "no constraint is called \"regexp\""},
        {"behind inside <think> </think>\na", STATUS_INVALID, "no constraint is called \"behind\""},
        {"regex" INSIDE "(", STATUS_INVALID, "regex: "},
        {"json_schema" INSIDE "{\"not\":{}}", STATUS_UNSUPPORTED, "json_schema: #/not"},
        {"json_schema" INSIDE "false", STATUS_INVALID, "json_schema: "},
    };
    CHECK_REFUSALS(CONSTRAINT_BEHIND_REASONING, rows);
}

/* An answer may not end in its reasoning, and ends where the constraint is complete. */
static void test_where_answers_end(void **state)
{
    (void)state;
    struct constraint *constraint =
        compiled(CONSTRAINT_BEHIND_REASONING, "choice" INSIDE "[\"ab\"]");
    static const char answer[] = "So.</think>\nab";
    for (size_t length = 0; length < sizeof answer; length++) {
        struct constraint_state at;
        constraint_state_init(constraint, &at);
        assert_true(constraint_state_take(constraint, &at, answer, length));
        assert_int_equal(constraint_state_may_end(constraint, &at), length == sizeof answer - 1);
        assert_int_equal(constraint_state_is_complete(constraint, &at),
                         length == sizeof answer - 1);
    }
    constraint_destroy(constraint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind),
        cmocka_unit_test(test_content_matches_the_constraint),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_where_answers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
