/* Constraints: the answers that each keyword of a schema and each construct of an expression
 * accepts, and the refused ones with their sentences. */
#include "common/base/str.h"
#include "common/language/constrain/automaton.h"
#include "common/language/constrain/compiling.h"
#include "common/language/constrain/constraint.h"
#include "common/language/constrain/text_automaton.h"
#include "tests/constrain/adversarial.h"
#include "tests/unit/constraint_rows.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_types(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"null\"}", {"null"}, {"nul", "true", "0", ""}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"null", "True"}},
        {"{\"type\":\"integer\"}",
         {"0", "-1", "123456789012345678", "-0"},
         {"1.0", "-01", "01", "1e3", "1234567890123456789", "+1", "-"}},
        {"{\"type\":\"number\"}",
         {"0", "-0.5", "12.25e+10", "1E-9", "100"},
         {"01", ".5", "1.", "1e", "1e100", "NaN"}},
        {"{\"type\":\"string\"}",
         {"\"\"", "\"a\\\"b\"", "\"\\u00e9\\ud83d\\ude42\\n\"", "\"\xf0\x9f\x99\x82\""},
         {"\"", "\"\\ud800\"", "\"\\x\"", "\"\n\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"a\" "}},
        {"{\"type\":[\"integer\",\"null\"]}", {"7", "null"}, {"\"\"", "true"}},
        {"{\"type\":\"array\"}", {"[]", "[1, [true], {}]", "[1,2]"}, {"[1,]", "[,]", "[1 ,2]"}},
        {"{\"type\":\"object\"}",
         {"{}", "{\"a\": {\"b\":[]}, \"c\":null}"},
         {"{\"a\"}", "{\"a\":1,}", "{a:1}", "[]"}},
        {"true", {"1", "\"x\"", "[{}]"}, {"", "x"}},
        {"{}", {"null", "[[]]"}, {"[", "{"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_strings(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\u0041\"", "\"\\ud83d\\ude42x\""},
         {"\"a\"", "\"abcd\"", "\"\\n\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a+$\"}", {"\"a\"", "\"aaa\""}, {"\"\"", "\"ab\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"\"", "\"ac\""}},
        {"{\"type\":\"string\",\"pattern\":\"^b\"}", {"\"bb\"", "\"bc\""}, {"\"ab\""}},
        {"{\"type\":\"string\",\"pattern\":\"b$\"}", {"\"b\"", "\"ab\""}, {"\"ba\""}},
        {"{\"type\":\"string\",\"pattern\":\"^.$\",\"maxLength\":5}",
         {"\"\\\"\"", "\"\\\\\"", "\"\xe2\x82\xac\"", "\"\\u001f\""},
         {"\"\\n\"", "\"\"", "\"ab\"", "\"\\u20ac\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]*$\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"abc\""},
         {"\"a\"", "\"abcd\"", "\"aB\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-28\"", "\"1999-12-31\"", "\"2023-04-30\""},
         {"\"2023-02-30\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"0000-01-01\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"2024-02-28T23:59:59Z\"", "\"2024-02-28T00:00:00.5+02:00\""},
         {"\"2024-02-28\"", "\"2024-02-28T24:00:00Z\"", "\"2024-02-28T00:00:00\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}",
         {"\"0.0.0.0\"", "\"255.249.1.99\""},
         {"\"256.0.0.0\"", "\"1.2.3\"", "\"01.2.3.4\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}",
         {"\"::\"", "\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\""},
         {"\"1:2\"", "\"1:2:3:4:5:6:7:8:9\"", "\"::1::\"", "\"g::\""}},
        {"{\"type\":\"string\",\"format\":\"uuid4\"}",
         {"\"123e4567-e89b-42d3-a456-426614174000\""},
         {"\"123e4567-e89b-12d3-a456-426614174000\""}},
        {"{\"type\":\"string\",\"format\":\"ipvanyinterface\"}",
         {"\"10.0.0.1/8\"", "\"10.0.0.1\"", "\"::1/128\""},
         {"\"10.0.0.1/33\"", "\"::1/129\"", "\"/8\""}},
        /* A character of several bytes must come, and others may before it. */
        {"{\"type\":\"string\",\"pattern\":\"^.+\xef\xbc\x9a.+$\"}",
         {"\"a\xef\xbc\x9a\xc3\xa9\"", "\"\xc3\xa9\xef\xbc\x9a\xef\xbc\x9a\""},
         {"\"a\xef\xbc\x9a\"", "\"a:b\""}},
        /* A lookahead at the start of a pattern. */
        {"{\"type\":\"string\",\"pattern\":\"^(?!x)(?!.*yy)[a-z]+$\"}",
         {"\"ax\"", "\"yay\"", "\"y\""},
         {"\"x\"", "\"xa\"", "\"yy\"", "\"ayyb\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(?=.*[0-9])(?=.*[a-z])(?!.*z$)[a-z0-9]{2,4}\"}",
         {"\"a1\"", "\"1a22\"", "\"a1z0\"", "\"z1 anything\""},
         {"\"aa\"", "\"11\"", "\"a\"", "\"a1z\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}",
         {"\"123e4567-e89b-12d3-a456-426614174000\""},
         {"\"123e4567\"", "\"\""}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
         {"-5", "0", "9", "99", "120", "-0"},
         {"-6", "121", "-00", "1200"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":3,\"exclusiveMaximum\":5}", {"4"}, {"3", "5"}},
        {"{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":3.5}", {"1", "3"}, {"0", "4"}},
        {"{\"type\":\"integer\",\"maximum\":-100}", {"-100", "-999"}, {"-99", "0", "100"}},
        {"{\"type\":\"integer\",\"multipleOf\":12,\"minimum\":-30}",
         {"-24", "0", "12", "144"},
         {"-36", "6", "13"}},
        {"{\"allOf\":[{\"multipleOf\":4},{\"multipleOf\":6}],\"type\":\"number\"}",
         {"12", "-24"},
         {"4", "6", "12.5"}},
        {"{\"type\":\"number\",\"multipleOf\":0.01}",
         {"0", "7", "0.1", "-12.50", "0.07", "999999999999999999.99", "-0.0"},
         {"0.001", "1.", "1.125", "1e2", "0.070"}},
        {"{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":-1,\"exclusiveMaximum\":2.3}",
         {"-1", "-0.75", "0.25", "2.25", "1.5", "1.50", "2"},
         {"-1.25", "0.3", "0.255", "2.5", "3"}},
        {"{\"type\":\"number\",\"multipleOf\":2.5}",
         {"2.5", "5", "-7.5", "10.0"},
         {"1", "2", "2.50", "3.5"}},
        {"{\"type\":\"integer\",\"multipleOf\":2.5}", {"5", "-10", "0"}, {"2", "2.5", "7"}},
        {"{\"type\":\"integer\",\"multipleOf\":0.001}", {"1", "-7"}, {"1.5"}},
        {"{\"allOf\":[{\"multipleOf\":0.4},{\"multipleOf\":0.25}],\"type\":\"number\"}",
         {"2", "-4", "0"},
         {"1", "0.5", "2.5", "2.0"}},
        {"{\"allOf\":[{\"multipleOf\":0.01},{\"multipleOf\":100}],\"type\":\"number\"}",
         {"100", "-300"},
         {"50", "100.01"}},
        {"{\"enum\":[0.07,0.075,3],\"multipleOf\":0.01}", {"0.07", "3"}, {"0.075"}},
        {"{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":1}",
         {"0", "0.0", "0.999", "0.5", "-0", "-0.00"},
         {"1", "1.0", "-0.1", "0.5e0"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0}", {"1"}, {"0", "-0", "-1"}},
        {"{\"type\":\"integer\",\"exclusiveMaximum\":0}", {"-1", "-10"}, {"0", "-0", "1"}},
        {"{\"type\":\"integer\",\"maximum\":0}", {"-1", "0", "-0"}, {"1"}},
        {"{\"type\":\"number\",\"minimum\":-1.25,\"maximum\":10.5}",
         {"-1.25", "-1.2", "10.5", "10.50", "10.499", "3"},
         {"-1.26", "10.51", "11", "-2"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0.05}",
         {"0.051", "1"},
         {"0.05", "0.0500", "0"}},
        {"{\"type\":\"number\",\"minimum\":1e3}", {"1000", "99999.5"}, {"999", "999.9"}},
        {"{\"type\":\"number\",\"maximum\":1e300,\"minimum\":-9007199254740993}",
         {"1", "-9007199254740993"},
         {"-9007199254740994"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_arrays(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":2}",
         {"[1]", "[1,2]", "[10, 20]"},
         {"[]", "[1,2,3]", "[true]"}},
        {"{\"type\":\"array\",\"items\":{\"const\":1},\"minItems\":2}",
         {"[1,1]", "[1,1,1,1]"},
         {"[1]", "[1,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}"
         "}",
         {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
         {"[2]", "[1,2,1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":false,\"minItems\":1}",
         {"[1]"},
         {"[]", "[1,1]"}},
        {"{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}",
         {"[1,2,2]"},
         {"[2]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"uniqueItems\":false,\"maxItems\":1}", {"[1]"}, {"[1,1]"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

#define INT "{\"type\":\"integer\"}"

static void test_objects(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":" INT ",\"b\":" INT ",\"c\":" INT "},"
         "\"required\":[\"b\"]}",
         {"{\"b\":1}", "{\"a\":1, \"b\": 2}", "{\"b\":1,\"c\":2}", "{\"a\":1,\"b\":2,\"c\":3}"},
         {"{}", "{\"a\":1}", "{\"b\":1,\"a\":2}", "{\"b\":1,\"b\":1}", "{\"b\":1,\"d\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":" INT "},\"additionalProperties\":{\"type\":"
         "\"null\"}}",
         {"{}", "{\"a\":1,\"b\":null}", "{\"ab\":null}", "{\"b\":null,\"c\":null}", "{\"\":null}"},
         {"{\"b\":1}", "{\"a\":null}", "{\"b\":null,\"a\":1}", "{\"\\u0061\":null}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":" INT ",\"ab\":" INT "},"
         "\"additionalProperties\":{\"type\":\"null\"}}",
         {"{\"a\":1,\"ab\":2,\"abc\":null}", "{\"b\":null}"},
         {"{\"ab\":null}", "{\"abc\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":" INT "},\"required\":[\"z\"]}",
         {"{\"a\":1,\"z\":[]}", "{\"z\":0}"},
         {"{\"a\":1}", "{\"y\":0,\"z\":0}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":" INT "}}",
         {"{}", "{\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"additionalProperties\":" INT ",\"maxProperties\":2}",
         {"{}", "{\"x\":1,\"y\":2}"},
         {"{\"x\":1,\"y\":2,\"z\":3}", "{\"x\":null}"}},
        {"{\"type\":\"object\",\"additionalProperties\":" INT ",\"minProperties\":1}",
         {"{\"x\":1}", "{\"x\":1,\"y\":2,\"z\":3}"},
         {"{}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x\":" INT
         "},\"additionalProperties\":false}",
         {"{}", "{\"x\":1,\"xy\":2}"},
         {"{\"y\":1}", "{\"x\":null}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[ab]$\"}}",
         {"{\"a\":1,\"b\":[]}"},
         {"{\"c\":1}", "{\"ab\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"n\",\"s\"]},"
         "\"additionalProperties\":" INT "}",
         {"{}", "{\"n\":1,\"s\":2}"},
         {"{\"e\":1}", "{\"n\":null}"}},
        {"{\"type\":\"object\",\"properties\":{\"\xc3\xa9\\\"\\\\\\n\":" INT
         "},\"required\":[\"\xc3"
         "\xa9\\\"\\\\\\n\"]}",
         {"{\"\xc3\xa9\\\"\\\\\\n\":1}"},
         {"{\"\\u00e9\\\"\\\\\\n\":1}", "{\"\xc3\xa9\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":" INT "},\"required\":[\"a\"],"
         "\"minProperties\":1,\"maxProperties\":3}",
         {"{\"a\":1}"},
         {"{}"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_choices(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"enum\":[\"a\",1,null,[1,{\"b\":2}],1.5]}",
         {"\"a\"", "1", "null", "[1, {\"b\": 2}]", "1.5"},
         {"\"b\"", "2", "[1]", "[]"}},
        {"{\"const\":null}", {"null"}, {"0"}},
        {"{\"const\":{\"x\":[],\"y\":\"z\"}}", {"{\"x\":[],\"y\":\"z\"}"}, {"{}", "{\"x\":[]}"}},
        {"{\"enum\":[1,\"1\",2.5,3],\"type\":\"integer\",\"minimum\":2}", {"3"}, {"1", "2.5"}},
        {"{\"enum\":[\"ab\",\"abc\",\"x\"],\"minLength\":2,\"pattern\":\"c$\"}",
         {"\"abc\""},
         {"\"ab\"", "\"x\""}},
        {"{\"enum\":[1,2],\"const\":2}", {"2"}, {"1"}},
        {"{\"const\":18446744073709551615}",
         {"18446744073709551615"},
         {"18446744073709551616", "1.8446744073709552e+19"}},
        {"{\"enum\":[123456789012345678901,123456789012345678902,-9223372036854775809]}",
         {"123456789012345678901", "123456789012345678902", "-9223372036854775809"},
         {"1.2345678901234568e+20", "-9223372036854775808", "18446744073709551615"}},
        {"{\"enum\":[18446744073709551616,18446744073709551617],\"const\":18446744073709551617}",
         {"18446744073709551617"},
         {"18446744073709551616"}},
        {"{\"enum\":[0,-0.5,1e-7]}", {"0", "-0.5", "1e-07"}, {"1"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_alternatives(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"anyOf\":[" INT ",{\"type\":\"string\",\"maxLength\":1}]}", {"1", "\"a\""}, {"\"ab\""}},
        {"{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"array\"}}},{"
         "\"properties\":{"
         "\"a\":{\"type\":\"object\"}}}],\"required\":[\"a\"]}",
         {"{\"a\":[1]}", "{\"a\":{\"b\":[1]}}"},
         {"{\"a\":1}", "{}"}},
        /* The rest of an object depends on the alternatives that its first property left. */
        {"{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\",\"z\"]},"
         "\"v\":" INT "},\"required\":[\"k\",\"v\"]},{\"type\":\"object\",\"properties\":{\"k\":{"
         "\"enum\":[\"y\",\"z\"]},"
         "\"v\":{\"type\":\"null\"}},\"required\":[\"k\",\"v\"]}]}",
         {"{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\",\"v\":null}", "{\"k\":\"z\",\"v\":1}",
          "{\"k\":\"z\",\"v\":null}"},
         {"{\"k\":\"x\",\"v\":null}", "{\"k\":\"y\",\"v\":1}"}},
        {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"enum\":[\"\xc3\xa9t\xc3\xa9!\"]}]}",
         {"\"\xc3\xa9t\"", "\"\xc3\xa9t\xc3\xa9!\""},
         {"\"\xc3\xa9t\xc3\xa9\"", "\"abc\""}},
        {"{\"anyOf\":[" INT ",false]}", {"1"}, {"null"}},
        {"{\"oneOf\":[" INT ",{\"type\":\"null\"}]}", {"1", "null"}, {"true"}},
        {"{\"oneOf\":[{\"enum\":[1,2]},{\"const\":3}]}", {"1", "3"}, {"4"}},
        /* The tag isn't required, since it has a default: it is written all the same. */
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"},\"n\":" INT
         "}},{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"b\",\"c\"]},\"m\":" INT "}}]}",
         {"{\"k\":\"a\"}", "{\"k\":\"a\",\"n\":1}", "{\"k\":\"c\",\"m\":1}"},
         {"{}", "{\"n\":1}", "{\"k\":\"a\",\"m\":1}", "{\"k\":\"d\"}"}},
        {"{\"allOf\":[{\"minimum\":3},{\"type\":\"integer\",\"maximum\":5}]}",
         {"3", "5"},
         {"2", "6"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":" INT "}},{\"properties\":{\"a\":{"
         "\"minimum\":5},\"b\":" INT "},\"required\":[\"b\"]}]}",
         {"{\"a\":5,\"b\":0}", "{\"b\":1}"},
         {"{\"a\":4,\"b\":0}", "{\"a\":5}"}},
        {"{\"allOf\":[{\"anyOf\":[{\"const\":1},{\"const\":2}]},{\"anyOf\":[{\"const\":2},{"
         "\"const\":3}]}]}",
         {"2"},
         {"1", "3"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_references(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"$defs\":{\"a/b~c d\":" INT "},\"$ref\":\"#/$defs/a~1b~0c%20d\"}", {"1"}, {"null"}},
        {"{\"definitions\":{\"p\":" INT
         "},\"type\":\"array\",\"items\":{\"$ref\":\"#/definitions/p\","
         "\"minimum\":5}}",
         {"[5,6]"},
         {"[4]"}},
        {"{\"type\":\"object\",\"properties\":{\"n\":{\"$ref\":\"#\"},\"v\":" INT
         "},\"required\":[\"v\"]}",
         {"{\"v\":1}", "{\"n\":{\"n\":{\"v\":3},\"v\":2},\"v\":1}"},
         {"{\"n\":{},\"v\":1}"}},
        {"{\"anyOf\":[" INT ",{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
         {"1", "[[1,[]],2]"},
         {"[null]"}},
        /* Two recursive ones that are open at once. */
        {"{\"$defs\":{\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "a\"}},\"b\":{\"anyOf\":[{"
         "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "b\"}},{\"const\":1}]}},\"anyOf\":[{\"$ref\":"
         "\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}]}",
         {"[[],[[]]]", "[[1],[[1,[]]]]", "1"},
         {"[[],2]"}},
        {"{\"$defs\":{\"unused\":{\"not\":{}}},\"type\":\"integer\"}", {"1"}, {"null"}},
        {"{\"prefixItems\":[" INT "],\"type\":\"array\",\"items\":{\"$ref\":\"#/prefixItems/0\"}}",
         {"[1,2]"},
         {"[1,null]"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_annotations_change_nothing(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"$schema\":\"https://json-schema.org/draft/2020-12/"
         "schema\",\"$id\":\"x\",\"title\":\"t\","
         "\"description\":\"d\",\"default\":null,\"examples\":[true],\"deprecated\":true,\"$"
         "comment\":\"c\","
         "\"readOnly\":true,\"x-order\":3,\"propertyOrdering\":[],\"nullable\":false,\"format\":"
         "\"int32\","
         "\"type\":\"integer\"}",
         {"1"},
         {"null", "true"}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_any_object(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"",
         {"{}", "{\"a\":[1,2.5e3,{\"b\":\"\\u00e9\"}],\"\":null}"},
         {"[]", "1", "{\"a\":}", "{\"a\":1 }", "{\"\\u0061\":1}", "{} "}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_OBJECT, rows);
}

static void test_expressions(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"a|bc*", {"a", "b", "bccc"}, {"", "ab", "bb"}},
        {"(?:ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
        {"(?<year>\\d{4})-(?P<month>\\d\\d)", {"2024-12"}, {"2024-1", "24-12"}},
        {"[^a-c\\d]+", {"xyz", "\xc3\xa9", "\n"}, {"a", "x1"}},
        {"[\\w.-]+@x", {"a.b-c_9@x"}, {"@x", "\xc3\xa9@x"}},
        {"\\u00e9\\x41\\u{1F642}\\ud83d\\ude42",
         {"\xc3\xa9"
          "A\xf0\x9f\x99\x82\xf0\x9f\x99\x82"},
         {"A"}},
        {".", {"a", "\xe2\x82\xac", "\"", "\\"}, {"\n", "", "ab", "\xe2\x80\xa8"}},
        {"^a$", {"a"}, {"b", "aa"}},
        {"a*?b+?c??", {"b", "aabbc"}, {"a"}},
        {"x{2}y{0}z{,3}", {"xxz{,3}"}, {"xx", "xyz"}},
        {"[]a]|[-z]|\\[\\]", {"-", "z", "[]"}, {"]", "a"}},
        {"\\s\\S",
         {" x", "\ta",
          "\xc2\xa0"
          "b"},
         {"  ", "xx"}},
        {"(a|b(c|d(e|f)))*", {"", "abcbdebdf"}, {"bd"}},
        {"[\xce\xb1-\xcf\x89]{2}", {"\xce\xb1\xcf\x89"}, {"\xce\xb1", "ab"}},
    };
    CHECK_ROWS(CONSTRAINT_REGEX, rows);
}

static void test_choice_of_texts(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"[\"yes\",\"no\",\"not \\u00e9\\n\"]",
         {"yes", "no", "not \xc3\xa9\n"},
         {"", "not", "ye", "yes "}},
    };
    CHECK_ROWS(CONSTRAINT_CHOICE, rows);
}

static void test_schemas_that_are_refused(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"{", STATUS_INVALID, "the schema: not JSON"},
        {"[]", STATUS_INVALID, "#: a schema must be an object"},
        {"{\"properties\":{\"a\":{\"not\":{}}}}", STATUS_UNSUPPORTED, "#/properties/a/not: "},
        {"{\"if\":{}}", STATUS_UNSUPPORTED, "#/if: "},
        {"{\"contains\":{}}", STATUS_UNSUPPORTED, "#/contains: "},
        {"{\"dependentRequired\":{}}", STATUS_UNSUPPORTED, "#/dependentRequired: "},
        {"{\"unevaluatedProperties\":false}", STATUS_UNSUPPORTED, "#/unevaluatedProperties: "},
        {"{\"items\":{\"uniqueItems\":true}}", STATUS_UNSUPPORTED, "#/items/uniqueItems: "},
        {"{\"nullable\":true,\"type\":\"string\"}", STATUS_UNSUPPORTED, "#/nullable: "},
        {"{\"$dynamicRef\":\"#x\"}", STATUS_UNSUPPORTED, "#/$dynamicRef: "},
        {"{\"type\":\"text\"}", STATUS_INVALID, "#/type: "},
        {"{\"type\":\"string\",\"format\":\"iri\"}", STATUS_UNSUPPORTED,
         "#/format: the format \"iri\""},
        {"{\"pattern\":\"(?=a)\"}", STATUS_UNSUPPORTED, "#/pattern: a lookahead"},
        {"{\"multipleOf\":0}", STATUS_INVALID, "#/multipleOf: must be a number above 0"},
        {"{\"multipleOf\":10.01}", STATUS_UNSUPPORTED, "#/multipleOf: the digits"},
        {"{\"multipleOf\":1e-19}", STATUS_UNSUPPORTED, "#/multipleOf: the digits"},
        {"{\"allOf\":[{\"multipleOf\":0.37},{\"multipleOf\":0.41}]}", STATUS_UNSUPPORTED,
         "#/allOf/1/multipleOf: the digits"},
        {"{\"type\":\"string\",\"pattern\":\"^(ab)*$\",\"minLength\":3,\"maxLength\":3}",
         STATUS_INVALID, "nothing is valid"},
        {"{\"type\":\"string\",\"pattern\":\"^abc$\",\"minLength\":4}", STATUS_INVALID,
         "nothing is valid"},
        {"{\"pattern\":\"a{5000}\"}", STATUS_LIMIT, "#/pattern: a repeat"},
        {"{\"pattern\":\"(a|b)*a(a|b){20}\"}", STATUS_LIMIT, "#/pattern: the automaton"},
        {"{\"minLength\":8193}", STATUS_LIMIT, "#/minLength: 8193"},
        {"{\"minLength\":-1}", STATUS_INVALID, "#/minLength: "},
        {"{\"minItems\":1025}", STATUS_LIMIT, "#/minItems: 1025"},
        {"{\"minimum\":1e-20}", STATUS_UNSUPPORTED, "#/minimum: "},
        {"{\"minimum\":1000000000000000000}", STATUS_UNSUPPORTED,
         "#/minimum: leaves only numbers of more than 18 digits"},
        {"{\"exclusiveMaximum\":-1e18}", STATUS_UNSUPPORTED, "#/exclusiveMaximum: leaves only"},
        {"{\"exclusiveMinimum\":true}", STATUS_INVALID, "#/exclusiveMinimum: must be a number"},
        {"{\"minProperties\":3}", STATUS_UNSUPPORTED, "#/minProperties: "},
        {"{\"properties\":{\"a\":{},\"b\":{}},\"maxProperties\":1}", STATUS_UNSUPPORTED,
         "#/maxProperties: "},
        {"{\"patternProperties\":{\"a\":{}}}", STATUS_UNSUPPORTED, "#/patternProperties: "},
        {"{\"propertyNames\":{\"maxLength\":3}}", STATUS_UNSUPPORTED, "#/propertyNames: "},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", STATUS_UNSUPPORTED,
         "#/oneOf: alternatives 0 and 1"},
        {"{\"anyOf\":[]}", STATUS_INVALID, "#/anyOf: "},
        {"{\"allOf\":{}}", STATUS_INVALID, "#/allOf: "},
        {"{\"$ref\":\"#/$defs/none\"}", STATUS_INVALID, "#/$ref: there is no"},
        {"{\"$ref\":\"http://x/y\"}", STATUS_UNSUPPORTED, "#/$ref: "},
        {"{\"$ref\":\"#\"}", STATUS_INVALID, "leads back to itself"},
        {"{\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":"
         "\"#/$defs/a\"}",
         STATUS_INVALID, "#/$defs/a/anyOf/1/$ref: "},
        {"false", STATUS_INVALID, "nothing is valid"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}", STATUS_INVALID, "nothing is valid"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         STATUS_INVALID, "nothing is valid"},
        {"{\"type\":\"string\",\"enum\":[1]}", STATUS_INVALID, "nothing is valid"},
        {"{\"properties\":{\"x/y~\":{\"type\":1}}}", STATUS_INVALID, "#/properties/x~1y~0/type: "},
        {"{\"properties\":{\"a\":null}}", STATUS_INVALID, "\"a\" is null"},
        {"{\"required\":1}", STATUS_INVALID, "#/required: "},
    };
    CHECK_REFUSALS(CONSTRAINT_JSON_SCHEMA, rows);
}

static void test_expressions_that_are_refused(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"a(?=a)", STATUS_UNSUPPORTED, "lookahead"},
        {"a(?!a)", STATUS_UNSUPPORTED, "negative lookahead"},
        {"((?=a)a)", STATUS_UNSUPPORTED, "lookahead"},
        {"(?!a)b|c", STATUS_UNSUPPORTED, "a lookahead before |"},
        {"(?!a)*b", STATUS_UNSUPPORTED, "a repeated lookahead"},
        {"(?!a", STATUS_INVALID, "a group has no end"},
        {"(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)(?!a)b", STATUS_LIMIT, "more than 8 lookaheads"},
        {"(?=a)", STATUS_INVALID, "no text matches"},
        {"(?<=a)", STATUS_UNSUPPORTED, "lookbehind"},
        {"(?<!a)", STATUS_UNSUPPORTED, "negative lookbehind"},
        {"(a)\\1", STATUS_UNSUPPORTED, "backreference"},
        {"\\k<a>", STATUS_UNSUPPORTED, "backreference"},
        {"\\bword", STATUS_UNSUPPORTED, "word boundary"},
        {"\\p{L}", STATUS_UNSUPPORTED, "Unicode class"},
        {"(?i)a", STATUS_UNSUPPORTED, "flags"},
        {"(?>a)", STATUS_UNSUPPORTED, "atomic"},
        {"a++", STATUS_UNSUPPORTED, "possessive"},
        {"a**", STATUS_INVALID, "nothing to repeat"},
        {"*", STATUS_INVALID, "nothing to repeat"},
        {"(a", STATUS_INVALID, "no end at byte 2"},
        {"a)", STATUS_INVALID, "without its"},
        {"[a", STATUS_INVALID, "no end"},
        {"[b-a]", STATUS_INVALID, "range"},
        {"[[:alpha:]]", STATUS_UNSUPPORTED, "[:name:]"},
        {"\\", STATUS_INVALID, "backslash"},
        {"\\q", STATUS_UNSUPPORTED, "\\q"},
        {"\\u12", STATUS_INVALID, "malformed"},
        {"\\ud800", STATUS_INVALID, "malformed"},
        {"a{3,2}", STATUS_INVALID, "wrong way"},
        {"a{4097}", STATUS_LIMIT, "over the limit of 4096"},
        {"((a{4096}){4096}){4096}", STATUS_LIMIT, "places"},
        {"(a|b)*a(a|b){20}", STATUS_LIMIT, "the automaton of the pattern"},
        {"a\\b$^b", STATUS_UNSUPPORTED, "word boundary"},
        {"a^b", STATUS_INVALID, "no text matches"},
    };
    CHECK_REFUSALS(CONSTRAINT_REGEX, rows);
}

static void test_choices_that_are_refused(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        {"", STATUS_INVALID, "the choices"},    {"[]", STATUS_INVALID, "1 to 1024"},
        {"\"a\"", STATUS_INVALID, "1 to 1024"}, {"[\"a\",1]", STATUS_INVALID, "choice 1"},
        {"[\"\"]", STATUS_INVALID, "choice 0"},
    };
    CHECK_REFUSALS(CONSTRAINT_CHOICE, rows);
}

static char *repeated(const char *before, const char *part, size_t count, const char *after)
{
    return adversarial_repeated(before, part, ",", count, after);
}

static void check_limit(enum constraint_kind kind, char *text, const char *part)
{
    struct refusal row = {text, STATUS_LIMIT, part};
    check_refusals(kind, &row, 1);
    free(text);
}

static void test_limits(void **state)
{
    (void)state;
    char *fits = repeated("[", "\"choice #\"", CONSTRAINT_MAX_CHOICES, "]");
    constraint_destroy(compiled(CONSTRAINT_CHOICE, fits));
    free(fits);
    char *many = repeated("[", "\"choice #\"", CONSTRAINT_MAX_CHOICES + 1, "]");
    struct refusal row = {many, STATUS_INVALID, "1 to 1024"};
    check_refusals(CONSTRAINT_CHOICE, &row, 1);
    free(many);
    char *tools = repeated("{\"tools\":[", TOOL("f", "f#(", "true"), TOOL_CALLS_MAX_TOOLS, "]}");
    constraint_destroy(compiled(CONSTRAINT_TOOL_CALLS, tools));
    free(tools);
    check_limit(CONSTRAINT_TOOL_CALLS,
                repeated("{\"tools\":[", TOOL("f", "f#(", "true"), TOOL_CALLS_MAX_TOOLS + 1, "]}"),
                "129 tools: 1 to 128");
    check_limit(CONSTRAINT_TOOL_CALLS,
                repeated("{\"tools\":[" TOOL("f", "a", "true") "],\"special_tokens\":[", "\"<#>\"",
                         TOOL_CALLS_MAX_SPECIALS + 1, "]}"),
                "17 special tokens");
    check_limit(CONSTRAINT_TOOL_CALLS,
                repeated("{\"tools\":[" TOOL("f", "a", "true") "],\"end\":\"", "abc",
                         TOOL_CALLS_MAX_TEXT / 4 + 1, "\"}"),
                "\"end\" has 4099 bytes: at most 4096");
    check_limit(CONSTRAINT_JSON_SCHEMA,
                repeated("{\"enum\":[", "\"0123456789012345678901234567890123456789\"", 4000, "]}"),
                "over the limit of 131072");
    check_limit(CONSTRAINT_REGEX, repeated("", "aaaaaaaaaaaaaaaa", 500, ""),
                "over the limit of 8192");
    check_limit(CONSTRAINT_JSON_SCHEMA, repeated("{\"anyOf\":[", "{\"const\":#}", 513, "]}"),
                "#/anyOf: with the others");
    check_limit(CONSTRAINT_JSON_SCHEMA,
                repeated("{\"allOf\":[", "{\"pattern\":\"#\"}", TEXT_MAX_PARTS + 1, "]}"),
                "#/allOf/16/pattern: more than 16");
    check_limit(CONSTRAINT_JSON_SCHEMA, repeated("[", "1", CONSTRAINT_MAX_TEXT_BYTES / 2, "]"),
                "131073 bytes are over the limit of 131072");
    char *nested = malloc(1000);
    memset(nested, '[', 500);
    nested[500] = '\0';
    check_limit(CONSTRAINT_JSON_SCHEMA, nested, "nested deeper than 64");
    char *name = malloc(1000);
    snprintf(name, 1000, "{\"properties\":{\"%0600d\":{}}}", 1);
    check_limit(CONSTRAINT_JSON_SCHEMA, name, "longer than 512 bytes");
    /* Each needs up to 3590 states of its own. */
    check_limit(CONSTRAINT_JSON_SCHEMA,
                repeated("{\"properties\":{",
                         "\"p#\":{\"type\":\"string\",\"pattern\":\"^a{3#0}$\"}", 60, "}}"),
                "#/properties/p");
}

/* More rules open at once than a unit may have: each alternative's property is a value of its
 * own. */
static void test_alternatives_open_at_once(void **state)
{
    (void)state;
    static const char part[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":#}}}";
    char *fits = repeated("{\"anyOf\":[", part, AUTOMATON_MAX_RULES - 1, "]}");
    struct constraint *constraint = compiled(CONSTRAINT_JSON_SCHEMA, fits);
    assert_true(takes(constraint, "{\"a\":62}", 8));
    constraint_destroy(constraint);
    free(fits);
    check_limit(CONSTRAINT_JSON_SCHEMA,
                repeated("{\"anyOf\":[", part, AUTOMATON_MAX_RULES + 1, "]}"),
                "too many alternatives open at once");
}

/* Each property is compared with those before it, and so is each tag that a union is tried with. */
static void test_steps_are_limited(void **state)
{
    (void)state;
    check_limit(CONSTRAINT_JSON_SCHEMA, repeated("{\"properties\":{", "\"p#\":{}", 8000, "}}"),
                "takes more than 33554432 steps to compile");
    check_limit(CONSTRAINT_JSON_SCHEMA,
                repeated("{\"oneOf\":[{\"properties\":{", "\"#\":{\"const\":1}", 6500, "}},{}]}"),
                "takes more than 33554432 steps to compile");
}

/* All parts of a constraint draw from one count, whatever they are: none starts a new one. The last
 * part may do the work of one table row before it checks the count. Every third by default, all
 * with BATON_LONG. */
static void test_no_constraint_takes_more_steps_than_all_may(void **state)
{
    (void)state;
    struct adversarial list[ADVERSARIAL_MAX];
    size_t count = adversarial_to_compile(list), over = 0;
    bool all = getenv("BATON_LONG");
    for (size_t i = all ? 0 : 1; i < count; i += all ? 1 : 3) {
        struct constraint *constraint;
        struct error err = {""};
        uint64_t steps = 0;
        enum status status = constraint_compile_counted(
            list[i].kind, list[i].text, strlen(list[i].text), &constraint, &steps, &err);
        if (steps > COMPILE_MAX_STEPS + COMPILE_MAX_STEPS / 16)
            fail_msg("%s: %" PRIu64 " steps", list[i].name, steps);
        if ((steps > COMPILE_MAX_STEPS) != (status == STATUS_LIMIT && strstr(err.text, "steps")))
            fail_msg("%s: %" PRIu64 " steps, but \"%s\"", list[i].name, steps, err.text);
        over += steps > COMPILE_MAX_STEPS;
        if (status == STATUS_OK)
            constraint_destroy(constraint);
    }
    adversarial_free(list, count);
    assert_true(over >= (all ? 8 : 3));
}

/* A pattern in each of many enums: one alone is accepted, and so are a few. */
static void test_patterns_of_one_schema_share_their_steps(void **state)
{
    (void)state;
    static const char part[] = "\"p#\":{\"enum\":[\"a\"],\"pattern\":\"(a|b)*a(a|b){11}\"}";
    uint64_t one = 0, few = 0;
    struct error err;
    char *texts[] = {repeated("{\"properties\":{", part, 1, "}}"),
                     repeated("{\"properties\":{", part, 9, "}}")};
    uint64_t *steps[] = {&one, &few};
    for (size_t i = 0; i < 2; i++) {
        struct constraint *constraint;
        assert_int_equal(constraint_compile_counted(CONSTRAINT_JSON_SCHEMA, texts[i],
                                                    strlen(texts[i]), &constraint, steps[i], &err),
                         STATUS_OK);
        constraint_destroy(constraint);
        free(texts[i]);
    }
    assert_in_range(few, 4 * one, 10 * one);
    size_t too_many = 8ull * COMPILE_MAX_STEPS / (few - one) + 1;
    check_limit(CONSTRAINT_JSON_SCHEMA, repeated("{\"properties\":{", part, too_many, "}}"),
                "takes more than 33554432 steps to compile");
}

static void test_what_is_longer_than_limits_allow_is_shortened(void **state)
{
    (void)state;
    struct constraint *constraint =
        compiled(CONSTRAINT_JSON_SCHEMA, "{\"type\":\"array\",\"maxItems\":100000}");
    char *fits = repeated("[", "1", 1024, "]"), *longer = repeated("[", "1", 1025, "]");
    assert_true(takes(constraint, fits, strlen(fits)));
    assert_false(takes(constraint, longer, strlen(longer)));
    free(fits);
    free(longer);
    constraint_destroy(constraint);
}

/* An answer can't open a value that it could not close any more. */
static void test_depth(void **state)
{
    (void)state;
    struct constraint *constraint = compiled(CONSTRAINT_JSON_SCHEMA, "{\"type\":\"array\"}");
    struct constraint_state at;
    constraint_state_init(constraint, &at);
    int depth = 0;
    while (constraint_state_take(constraint, &at, "[", 1))
        depth++;
    assert_int_equal(depth, CONSTRAINT_MAX_DEPTH + 1);
    for (; depth; depth--)
        assert_true(constraint_state_take(constraint, &at, "]", 1));
    assert_true(constraint_state_may_end(constraint, &at));
    constraint_destroy(constraint);
    constraint = compiled(
        CONSTRAINT_JSON_SCHEMA,
        "{\"$defs\":{\"e\":{\"type\":\"object\",\"properties\":{\"l\":{\"anyOf\":[{\"$ref\":\"#/"
        "$defs/e\"},{\"const\":1}]},\"r\":{\"type\":\"object\",\"properties\":{\"x\":{"
        "\"const\":[[[2]]]}},\"required\":[\"x\"]}},\"required\":[\"l\",\"r\"]}},\"$ref\":"
        "\"#/$defs/e\"}");
    constraint_state_init(constraint, &at);
    for (depth = 0; constraint_state_take(constraint, &at, "{\"l\":", 5); depth++)
        ;
    assert_in_range(depth, CONSTRAINT_MAX_DEPTH - 8, CONSTRAINT_MAX_DEPTH);
    assert_true(constraint_state_take(constraint, &at, "1", 1));
    for (; depth; depth--)
        assert_true(constraint_state_take(constraint, &at, ",\"r\":{\"x\":[[[2]]]}}", 19));
    assert_true(constraint_state_may_end(constraint, &at));
    constraint_destroy(constraint);
}

static void test_a_refused_token_changes_nothing(void **state)
{
    (void)state;
    struct constraint *constraint = compiled(CONSTRAINT_JSON_OBJECT, "");
    struct constraint_state at, before;
    constraint_state_init(constraint, &at);
    assert_true(constraint_state_take(constraint, &at, "{\"a\":[1", 7));
    before = at;
    assert_false(constraint_state_take(constraint, &at, "],\"b\":]", 7));
    assert_memory_equal(&at, &before, sizeof at);
    assert_false(constraint_state_may_end(constraint, &at));
    assert_true(constraint_bytes(constraint) > 1000);
    assert_true(constraint_state_count(constraint) > 10);
    constraint_destroy(constraint);
}

/* An answer is complete if only the end may follow. */
static void test_complete(void **state)
{
    (void)state;
    static const struct {
        enum constraint_kind kind;
        const char *text, *answer;
        bool complete;
    } cases[] = {
        {CONSTRAINT_JSON_OBJECT, "", "{\"a\":1", false},
        {CONSTRAINT_JSON_OBJECT, "", "{\"a\":1}", true},
        {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"integer\"}", "12", false},
        {CONSTRAINT_JSON_SCHEMA, "{\"type\":\"integer\",\"maximum\":19,\"minimum\":10}", "12",
         true},
        {CONSTRAINT_JSON_SCHEMA, "{\"const\":\"a\"}", "\"a", false},
        {CONSTRAINT_JSON_SCHEMA, "{\"const\":\"a\"}", "\"a\"", true},
        {CONSTRAINT_REGEX, "ab?", "a", false},
        {CONSTRAINT_REGEX, "ab?", "ab", true},
        {CONSTRAINT_REGEX, "a*", "a", false},
        {CONSTRAINT_REGEX, "a\xc3\xa9", "a\xc3", false},
        {CONSTRAINT_CHOICE, "[\"a\",\"ab\"]", "a", false},
        {CONSTRAINT_CHOICE, "[\"a\",\"ab\"]", "ab", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct constraint *constraint = compiled(cases[i].kind, cases[i].text);
        struct constraint_state at;
        constraint_state_init(constraint, &at);
        assert_false(constraint_state_is_complete(constraint, &at));
        assert_true(
            constraint_state_take(constraint, &at, cases[i].answer, strlen(cases[i].answer)));
        if (constraint_state_is_complete(constraint, &at) != cases[i].complete)
            fail_msg("%s, %s", cases[i].text, cases[i].answer);
        constraint_destroy(constraint);
    }
    struct constraint *empty = compiled(CONSTRAINT_REGEX, "");
    struct constraint_state at;
    constraint_state_init(empty, &at);
    assert_true(constraint_state_is_complete(empty, &at));
    constraint_destroy(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_annotations_change_nothing),
        cmocka_unit_test(test_any_object),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_choice_of_texts),
        cmocka_unit_test(test_schemas_that_are_refused),
        cmocka_unit_test(test_expressions_that_are_refused),
        cmocka_unit_test(test_choices_that_are_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_alternatives_open_at_once),
        cmocka_unit_test(test_steps_are_limited),
        cmocka_unit_test(test_no_constraint_takes_more_steps_than_all_may),
        cmocka_unit_test(test_patterns_of_one_schema_share_their_steps),
        cmocka_unit_test(test_what_is_longer_than_limits_allow_is_shortened),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_a_refused_token_changes_nothing),
        cmocka_unit_test(test_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
