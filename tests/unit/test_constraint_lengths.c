/* Lengths of strings beside patterns and formats: counted exactly, without dead ends, and without a
 * state for each character. */
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/language/constrain/text_automaton.h"
#include "tests/constrain/adversarial.h"
#include "tests/unit/constraint_rows.h"

/* Characters of the texts that are tried: as they are, and in JSON. */
static const struct {
    const char *text, *json;
} letters[] = {{"a", "a"}, {"b", "b"}, {"\xc3\xa9", "\xc3\xa9"}, {"\n", "\\n"}};
#define LETTERS      (sizeof letters / sizeof *letters)
#define LONGEST_TEXT 7 /* characters */

struct bounded {
    const char *pattern; /* NULL: none */
    uint32_t min, max;   /* UINT32_MAX: no maximum */
};

/* A string of one or two alternatives. */
struct lengths {
    struct bounded any[2];
    size_t count;
};

/* All texts from a beginning on, by the automaton, and by the patterns and lengths themselves. */
struct trying {
    const struct constraint *constraint;
    const struct lengths *lengths;
    struct text_automaton automata[2];
    bool bounded; /* all valid texts are tried */
    char text[4 * LONGEST_TEXT + 1];
};

static bool is_valid_text(const struct trying *t, size_t length, uint32_t count)
{
    for (size_t i = 0; i < t->lengths->count; i++) {
        const struct bounded *b = &t->lengths->any[i];
        if (count >= b->min && count <= b->max &&
            (!b->pattern || text_automaton_matches(&t->automata[i], t->text, length)))
            return true;
    }
    return false;
}

/* Returns whether the text, or a longer one, is valid. `state` is the constraint's behind it; NULL:
 * it doesn't take it. */
static bool try_text(struct trying *t, const struct constraint_state *state, size_t length,
                     uint32_t count)
{
    bool valid = is_valid_text(t, length, count), lives = valid;
    if (state) {
        struct constraint_state end = *state;
        bool ends = constraint_state_take(t->constraint, &end, "\"", 1) &&
                    constraint_state_may_end(t->constraint, &end);
        if (ends != valid)
            fail_msg("%.*s is %s", (int)length, t->text, valid ? "not taken" : "taken");
    }
    for (size_t i = 0; i < LETTERS && count < LONGEST_TEXT; i++) {
        struct constraint_state next = {.depth = 0};
        bool taken = false;
        if (state) {
            next = *state;
            taken = constraint_state_take(t->constraint, &next, letters[i].json,
                                          strlen(letters[i].json));
        }
        size_t behind = length + strlen(letters[i].text);
        memcpy(t->text + length, letters[i].text, strlen(letters[i].text));
        bool goes_on = try_text(t, taken ? &next : NULL, behind, count + 1);
        if (state && (goes_on || t->bounded) && taken != goes_on)
            fail_msg("%.*s is %s, but %s", (int)behind, t->text, taken ? "taken" : "not taken",
                     goes_on ? "can be valid" : "is a dead end");
        lives = lives || goes_on;
    }
    return lives;
}

static void print_bounded(struct str *out, const struct bounded *b)
{
    str_add(out, "{\"type\":\"string\"");
    if (b->pattern)
        str_addf(out, ",\"pattern\":\"%s\"", b->pattern);
    if (b->min)
        str_addf(out, ",\"minLength\":%u", b->min);
    if (b->max != UINT32_MAX)
        str_addf(out, ",\"maxLength\":%u", b->max);
    str_add(out, "}");
}

static void check_lengths(const struct lengths *lengths)
{
    struct trying t = {.lengths = lengths, .bounded = true};
    struct compile_steps steps = {0};
    struct constraint_state state;
    struct error err;
    struct str schema;
    str_init(&schema, 4096);
    str_add(&schema, "{\"anyOf\":[");
    for (size_t i = 0; i < lengths->count; i++) {
        const struct bounded *b = &lengths->any[i];
        str_add(&schema, i ? "," : "");
        print_bounded(&schema, b);
        t.bounded = t.bounded && b->max < LONGEST_TEXT;
        if (!b->pattern)
            continue;
        struct text_pattern *pattern = text_pattern_create(&steps);
        assert_int_equal(
            text_pattern_add(pattern, b->pattern, strlen(b->pattern), TEXT_ANYWHERE, &err),
            STATUS_OK);
        assert_int_equal(text_automaton_build(pattern, &t.automata[i], &err), STATUS_OK);
        text_pattern_destroy(pattern);
    }
    str_add(&schema, "]}");
    struct constraint *constraint = compiled(CONSTRAINT_JSON_SCHEMA, schema.data);
    t.constraint = constraint;
    constraint_state_init(constraint, &state);
    assert_true(constraint_state_take(constraint, &state, "\"", 1));
    assert_true(try_text(&t, &state, 0, 0));
    constraint_destroy(constraint);
    for (size_t i = 0; i < lengths->count; i++)
        text_automaton_deinit(&t.automata[i]);
    str_deinit(&schema);
}

/* Each text that can still become valid is taken, and no other: a length that can't be met by the
 * pattern ends the text in time. */
static void test_lengths_by_every_text(void **state)
{
    (void)state;
    static const struct lengths list[] = {
        {{{NULL, 2, 4}}, 1},
        {{{NULL, 0, 0}}, 1},
        {{{NULL, 3, UINT32_MAX}}, 1},
        {{{"^(ab)*$", 0, 5}}, 1},
        {{{"^(ab)*$", 3, 4}}, 1},
        {{{"^(aa|bbb)*$", 4, 5}}, 1},
        {{{"^(aa|bbb)*$", 5, 5}}, 1},
        {{{"^(ab|a\xc3\xa9"
           "b)*$",
           4, 6}},
         1},
        {{{"^a*b$", 2, 4}}, 1},
        {{{"b", 3, 5}}, 1},
        {{{"\xc3\xa9$", 0, 3}}, 1},
        {{{"^[^a]*$", 1, 3}}, 1},
        {{{"^(a[^a]?|b)*\xc3\xa9\xc3\xa9$", 0, 5}}, 1},
        {{{"^(?!a)(?!.*bb)[^\xc3\xa9]*$", 1, 5}}, 1},
        {{{"^a*(bbb)?$", 3, UINT32_MAX}}, 1},
        {{{"^\xc3\xa9*$", 0, 4}, {"^a*$", 0, 2}}, 2},
        {{{NULL, 2, 3}, {"^(ab)*$", 0, UINT32_MAX}}, 2},
        {{{NULL, 0, 2}, {"^\xc3\xa9.*b$", 4, 5}}, 2},
        {{{"^a\xc3\xa9*$", 0, 3},
          {"^a[\xc3\xa9"
           "b]*$",
           5, 6}},
         2},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check_lengths(&list[i]);
}

/* Characters of any spelling count as one, in every place of a document. */
static void test_lengths_in_documents(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"string\",\"maxLength\":2}",
         {"\"\\ud83d\\ude42\\u00e9\"", "\"\xf0\x9f\x99\x82\\\\\"", "\"\""},
         {"\"\\ud83d\\ude42ab\"", "\"\\n\\n\\n\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\""}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"format\":\"ipv4\",\"maxLength\":8}}",
         {"[]", "[\"10.0.0.1\",\"1.1.1.1\"]"},
         {"[\"10.0.0.10\"]", "[\"1.1.1.1\",\"10.10.0.1\"]"}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":[\"string\",\"integer\"],"
         "\"pattern\":"
         "\"^(ab)*$\",\"minLength\":2,\"maxLength\":5}}",
         {"{\"x\":\"ab\",\"y\":5}", "{\"ababab\":\"abab\"}"},
         {"{\"x\":\"\"}", "{\"x\":\"ababab\"}", "{\"x\":\"aba\"}"}},
        /* Alternatives that end at different lengths, and one that doesn't count. */
        {"{\"anyOf\":[{\"type\":\"string\",\"maxLength\":2},{\"type\":\"string\",\"pattern\":\"^a*$"
         "\","
         "\"maxLength\":4},{\"const\":\"bbbbbb\"}]}",
         {"\"xy\"", "\"aaaa\"", "\"bbbbbb\"", "\"bb\""},
         {"\"xyz\"", "\"aaaaa\"", "\"bbb\"", "\"aab\""}},
        {"{\"type\":\"string\",\"format\":\"date\",\"maxLength\":12}",
         {"\"2024-02-28\""},
         {"\"2024-02-30\""}},
        {"{\"type\":\"string\",\"maxLength\":9000,\"minLength\":1}", {"\"a\""}, {"\"\""}},
    };
    CHECK_ROWS(CONSTRAINT_JSON_SCHEMA, rows);
}

/* Draws bytes that may come, never the quote if there is another: the text runs into its limits. No
 * state is a dead end. */
static void test_no_way_ends_before_the_text_may(void **state)
{
    (void)state;
    static const char *const schemas[] = {
        "{\"type\":\"string\",\"pattern\":\"^([^a]|a[\\u00e9-\\u00ff\\u20ac])*(x|\\ud83d\\ude42)$"
        "\","
        "\"maxLength\":9}",
        "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":30,\"minLength\":20}",
        "{\"type\":\"string\",\"format\":\"uri\",\"maxLength\":40,\"minLength\":40}",
        "{\"type\":\"string\",\"minLength\":12,\"maxLength\":13}",
        "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^(\\u00e9\\u20ac)*$\",\"maxLength\":7},{"
        "\"type\":"
        "\"string\",\"pattern\":\"^\\u00e9+$\",\"minLength\":10,\"maxLength\":11}]}",
    };
    struct rng rng = rng_seeded(5);
    for (size_t i = 0; i < 40 * sizeof schemas / sizeof *schemas; i++) {
        struct constraint *constraint = compiled(CONSTRAINT_JSON_SCHEMA, schemas[i / 40]);
        struct constraint_state at;
        constraint_state_init(constraint, &at);
        for (int bytes = 0; !constraint_state_is_complete(constraint, &at); bytes++) {
            struct constraint_state next[256];
            uint32_t count = 0;
            for (int byte = 0; byte < 256; byte++) {
                char c = (char)byte;
                next[count] = at;
                bool taken = (byte != '"' || bytes == 0) &&
                             constraint_state_take(constraint, &next[count], &c, 1);
                count += taken;
            }
            if (!count) {
                next[count++] = at;
                assert_true(constraint_state_take(constraint, &next[0], "\"", 1));
            }
            at = next[rng_below(&rng, count)];
            assert_true(bytes < 1000);
        }
        constraint_destroy(constraint);
    }
}

/* Many long strings, which would have a state for each character otherwise. */
static void test_lengths_take_no_states(void **state)
{
    (void)state;
    char *text = adversarial_repeated("{\"properties\":{",
                                      "\"p#\":{\"type\":\"string\",\"format\":\"email\","
                                      "\"minLength\":9,\"maxLength\":80#}",
                                      ",", 20, "}}");
    struct constraint *constraint = compiled(CONSTRAINT_JSON_SCHEMA, text);
    assert_in_range(constraint_state_count(constraint), 1, 20000);
    constraint_destroy(constraint);
    free(text);
    /* A text of so many fives may be in a state at every fifth count: a range for each. */
    text = adversarial_repeated("{\"properties\":{",
                                "\"p#\":{\"type\":\"string\",\"pattern\":\"^(aaaaa)*$\","
                                "\"minLength\":8190,\"maxLength\":8190}",
                                ",", 40, "}}");
    const struct refusal row = {text, STATUS_LIMIT, "too many ranges of lengths"};
    check_refusals(CONSTRAINT_JSON_SCHEMA, &row, 1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_by_every_text),
        cmocka_unit_test(test_lengths_in_documents),
        cmocka_unit_test(test_no_way_ends_before_the_text_may),
        cmocka_unit_test(test_lengths_take_no_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
