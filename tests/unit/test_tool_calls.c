/* Constraints on calls of tools: the answers that each shape accepts, and refused ones with their
 * sentences. */
#include "tests/unit/constraint_rows.h"

#define F_SCHEMA                                                                                   \
    "{\\\"properties\\\":{\\\"a\\\":{\\\"$ref\\\":\\\"#/$defs/"                                    \
    "n\\\"}},\\\"required\\\":[\\\"a\\\"],"                                                        \
    "\\\"$defs\\\":{\\\"n\\\":{\\\"type\\\":\\\"integer\\\"}}}"
#define TOOLS_F_G                                                                                  \
    "\"tools\":[{\"name\":\"f\",\"begin\":\"f(\",\"end\":\")\",\"schema\":\"" F_SCHEMA             \
    "\"},{\"name\":\"g\",\"begin\":\"<g>\\u00e9\",\"schema\":\"true\"}]"

static void test_tool_calls(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"begin\":\"[\",\"separator\":\", \",\"end\":\"]\",\"parallel\":true," TOOLS_F_G "}",
         {"[f({\"a\":1})]", "[<g>\xc3\xa9{}]",
          "[f({\"a\": 1}), <g>\xc3\xa9{\"x\": [{}, \"]\"]}, f({\"a\":2})]"},
         {"", "[]", "[f({})]", "[f({\"a\":\"\"})]", "[f(1)]", "[<g>\xc3\xa9 1]", "[f({\"a\":1})",
          "[f({\"a\":1}),f({\"a\":1})]", "[\xff<g>\xc3\xa9{}]"}},
        {"{" TOOLS_F_G "}",
         {"f({\"a\":1})", "<g>\xc3\xa9{\"b\":null}"},
         {"f({\"a\":1})f({\"a\":1})", "f({\"a\":1}", "f({\"a\":1}))"}},
        {"{\"special_tokens\":[\"<g>\"],\"parallel\":true," TOOLS_F_G "}",
         {"<g>\xc3\xa9{}", "\xff<g>\xc3\xa9{}", "\xff<g>\xc3\xa9{}f({\"a\":0})<g>\xc3\xa9{}"},
         {"\xff", "\xff\xc3\xa9{}", "\xff<g>{}",
          "\xff"
          "f({\"a\":1})"}},
    };
    CHECK_ROWS(CONSTRAINT_TOOL_CALLS, rows);
}

static void test_tool_calls_that_are_refused(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"", STATUS_INVALID, "the calls: "},
        {"[]", STATUS_LIMIT, "the calls: 0 tools"},
        {"{\"tools\":[]}", STATUS_LIMIT, "the calls: 0 tools: 1 to 128"},
        {"{\"tools\":[1]}", STATUS_INVALID, "the calls: tool 0: a tool needs a name"},
        {"{\"tools\":[" TOOL("f", "", "true") "]}", STATUS_INVALID, "a text to begin with"},
        {"{\"tools\":[" TOOL("f", "a", "") "]}", STATUS_INVALID, "f: the schema: "},
        {"{\"tools\":[" TOOL("f", "a", "true") "," TOOL("g", "ab", "true") "]}", STATUS_INVALID,
         "a call of \"g\" can't be distinguished from one of \"f\""},
        {"{\"parallel\":true,\"separator\":\",\",\"end\":\",a}\",\"tools\":[" TOOL("f", "a",
                                                                                   "true") "]}",
         STATUS_INVALID, "the end can't be distinguished from one more call of \"f\""},
        {"{\"tools\":[" TOOL("f", "a", "true") "],\"special_tokens\":[\"\"]}", STATUS_INVALID,
         "special token 0 is empty"},
        {"{\"tools\":[" TOOL("f", "a", "true") "," TOOL(
             "get", "b", "{\\\"properties\\\":{\\\"x\\\":{\\\"not\\\":{}}}}") "]}",
         STATUS_UNSUPPORTED, "get/properties/x/not: "},
        {"{\"tools\":[" TOOL("f", "a", "true") "," TOOL("get", "b",
                                                        "{\\\"type\\\":\\\"string\\\"}") "]}",
         STATUS_INVALID, "get: no object is valid for it"},
    };
    CHECK_REFUSALS(CONSTRAINT_TOOL_CALLS, rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tool_calls),
        cmocka_unit_test(test_tool_calls_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
