/* Constraints behind reasoning: free text up to the first end tag, and then the constraint, of each
 * kind. */
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
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_where_answers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
