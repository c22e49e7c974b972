/* template: refusals, bounds, and the bytes that came from the request.
 * (tests/golden/test_chat_templates.py tests the output.) */
#include "common/base/arena.h"
#include "common/base/str.h"
#include "common/language/template/template.h"
#include "common/language/template/value.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (64u << 20)

static const struct template_time now = {.year = 2026, .month = 7, .day = 26};

static enum status compile(const char *source, struct template **template, struct error *err)
{
    *template = NULL;
    return template_compile(source, strlen(source), template, err);
}

/* Renders a template with `user`, a string of the request, `text`, one of ours, and `one`, a
 * number. */
static enum status render_in(struct arena *arena, const char *source, const char *user,
                             struct template_output *output)
{
    struct template *template;
    struct error err = {""};
    if (compile(source, &template, &err) != STATUS_OK)
        fail_msg("%s: %s", source, err.text);
    const struct template_variable variables[] = {
        {"user", value_string(user, strlen(user), true)},
        {"text", value_literal("text")},
        {"one", value_int(1)},
    };
    enum status status = template_render(template, arena, variables, 3, now, output, &err);
    if (status != STATUS_OK && !strstr(err.text, "of the template: "))
        fail_msg("%s", err.text);
    template_destroy(template);
    return status;
}

/* --- refusals --- */

static void test_what_is_refused_is_named_with_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        enum status status;
        const char *sentence;
    } cases[] = {
        {"a\n{% include 'x' %}", STATUS_UNSUPPORTED, "line 2: the tag 'include' is not supported"},
        {"{% extends 'x' %}", STATUS_UNSUPPORTED, "line 1: the tag 'extends' is not supported"},
        {"{% block a %}{% endblock %}", STATUS_UNSUPPORTED, "the tag 'block' is not supported"},
        {"{% do x %}", STATUS_UNSUPPORTED, "the tag 'do' is not supported"},
        {"{% set a = 1 %}\n\n{% for x in y recursive %}{% endfor %}", STATUS_UNSUPPORTED,
         "line 3: 'for ... recursive' is not supported"},
        {"{{ x | urlize }}", STATUS_UNSUPPORTED, "line 1: the filter 'urlize' is not supported"},
        {"{{ x | map('pprint') }}", STATUS_UNSUPPORTED, "the filter 'pprint' is not supported"},
        {"{{ x | selectattr('a', 'near') }}", STATUS_UNSUPPORTED,
         "the test 'near' is not supported"},
        {"{{ x is lovely }}", STATUS_UNSUPPORTED, "the test 'lovely' is not supported"},
        {"\n{{ 'a'.format(1) }}", STATUS_UNSUPPORTED,
         "line 2: the method 'format' is not supported"},
        {"{{ lipsum() }}", STATUS_UNSUPPORTED, "the function 'lipsum' is not supported"},
        {"{{ '%s' % 1 }}", STATUS_UNSUPPORTED, "formatting a string with % is not supported"},
        {"{{ x[1, 2] }}", STATUS_UNSUPPORTED, "a subscript of several values is not supported"},
        {"{{ 9223372036854775808 }}", STATUS_UNSUPPORTED, "is beyond 64 bits"},
        {"{{ 1e999 }}", STATUS_UNSUPPORTED, "is not finite"},
        {"{{ '\\N{BULLET}' }}", STATUS_INVALID, "has an escape of no character"},
        {"{{ '\\ud800' }}", STATUS_INVALID, "has an escape of no character"},
        {"{% if a %}\nx", STATUS_INVALID, "line 2: the 'if' of line 1 has no 'endif'"},
        {"{% for a in b %}", STATUS_INVALID, "the 'for' of line 1 has no 'endfor'"},
        {"{% for a in b %}{% else %}\n", STATUS_INVALID, "the 'else' of line 1 has no 'endfor'"},
        {"{% if a %}\n{% for b in c %}\n{% endif %}{% endfor %}", STATUS_INVALID,
         "line 3: unexpected tag 'endif': the 'for' of line 2 has no 'endfor' before it"},
        {"{% if a %}{% endif %}{% else %}", STATUS_INVALID, "line 1: unexpected tag 'else'"},
        {"{% endif %}", STATUS_INVALID, "unexpected tag 'endif'"},
        {"{% nothing %}", STATUS_INVALID, "unexpected tag 'nothing'"},
        {"{{ a b }}", STATUS_INVALID, "expected '}}', found 'b'"},
        {"{{ }}", STATUS_INVALID, "expected an expression, found '}}'"},
        {"{{ a", STATUS_INVALID, "a tag that starts here has no end"},
        {"{# a", STATUS_INVALID, "a comment that starts here has no end"},
        {"{% raw %}a", STATUS_INVALID, "a raw block that starts here has no end"},
        {"{{ 'a }}", STATUS_INVALID, "a string that starts here has no end"},
        {"{{ (a] }}", STATUS_INVALID, "unexpected ']'"},
        {"{{ a ? b }}", STATUS_INVALID, "unexpected character '?'"},
        {"{{ \xc3\xa9 }}", STATUS_INVALID, "unexpected character '\xc3\xa9'"},
        {"{% break %}", STATUS_INVALID, "'break' outside of a loop"},
        {"{% for a in b %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}", STATUS_INVALID,
         "'continue' outside of a loop"},
        {"{% set 1 = 2 %}", STATUS_INVALID, "only a name can be given a value"},
        {"{% set a.b.c = 2 %}", STATUS_INVALID, ""},
        {"{% macro m(a=1, b) %}{% endmacro %}", STATUS_INVALID, "a parameter without default"},
        {"{{ f(a=1, b) }}", STATUS_INVALID, "must come later"},
        {"{{ f(**a, **b) }}", STATUS_INVALID, "must come later"},
        {"{% call x %}{% endcall %}", STATUS_INVALID, "expected a call behind 'call'"},
        {"{{ a is b is c }}", STATUS_UNSUPPORTED, "the test 'b' is not supported"},
        {"{{ 0x }}", STATUS_INVALID, "a number has no digits"},
        {"\xff", STATUS_INVALID, "the template isn't valid UTF-8 at byte 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template *template;
        struct error err = {""};
        enum status status = compile(cases[i].source, &template, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].sentence))
            fail_msg("%s: %s: %s", cases[i].source, status_name(status), err.text);
        assert_null(template);
    }
}

/* --- limits --- */

/* Nests `open` and `close` around `middle`: compiled up to `limit` levels, refused beyond. */
static void check_nesting(const char *open, const char *middle, const char *close, int limit)
{
    for (int count = limit; count <= limit + 1; count++) {
        struct str source;
        struct template *template;
        struct error err = {""};
        str_init(&source, 1 << 20);
        for (int i = 0; i < count; i++)
            str_add(&source, open);
        str_add(&source, middle);
        for (int i = 0; i < count; i++)
            str_add(&source, close);
        enum status status = compile(source.data, &template, &err);
        if (status != (count <= limit ? STATUS_OK : STATUS_LIMIT))
            fail_msg("%s: %d: %s", open, count, err.text);
        template_destroy(template);
        str_deinit(&source);
    }
}

static void test_nesting_of_the_source(void **state)
{
    (void)state;
    check_nesting("{% if a %}", "", "{% endif %}", TEMPLATE_LIMIT_NESTING);
    check_nesting("{% for a in b %}", "", "{% endfor %}", TEMPLATE_LIMIT_NESTING);
    struct template *template;
    struct error err;
    struct str source;
    str_init(&source, 1 << 20);
    str_add(&source, "{{ ");
    for (int i = 0; i < 257; i++)
        str_add(&source, "(");
    assert_int_equal(compile(source.data, &template, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "more than 256 brackets are open"));
    str_deinit(&source);
    static const char *const brackets[][2] = {{"(", ")"}, {"[", "]"}, {"not ", ""}, {"-", ""}};
    for (size_t i = 0; i < sizeof brackets / sizeof *brackets; i++) {
        str_init(&source, 1 << 20);
        str_add(&source, "{{ ");
        for (int depth = 0; depth < 200; depth++)
            str_add(&source, brackets[i][0]);
        str_add(&source, "1");
        for (int depth = 0; depth < 200; depth++)
            str_add(&source, brackets[i][1]);
        str_add(&source, " }}");
        assert_int_equal(compile(source.data, &template, &err), STATUS_LIMIT);
        assert_non_null(strstr(err.text, "nested deeper than 64"));
        str_deinit(&source);
    }
}

static void test_length_of_the_source(void **state)
{
    (void)state;
    struct template *template;
    struct error err;
    char *source = malloc(TEMPLATE_LIMIT_SOURCE + 1);
    assert_non_null(source);
    memset(source, 'x', TEMPLATE_LIMIT_SOURCE + 1);
    assert_int_equal(template_compile(source, TEMPLATE_LIMIT_SOURCE, &template, &err), STATUS_OK);
    template_destroy(template);
    assert_int_equal(template_compile(source, TEMPLATE_LIMIT_SOURCE + 1, &template, &err),
                     STATUS_LIMIT);
    assert_non_null(strstr(err.text, "262145 bytes is over the limit"));
    free(source);
}

static void test_what_runs_is_bounded(void **state)
{
    (void)state;
    static const struct {
        const char *source, *message;
    } cases[] = {
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
         "the template takes too much memory"},
        {"{% set x = 'a' * 4000000 %}{% for a in range(1000) %}{% if 'b' in x %}{% endif %}"
         "{% endfor %}",
         "the template takes too many steps"},
        {"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "the template nests too deeply"},
        {"{{ 'a' * 1000000000 }}", "the template takes too much memory"},
        {"{% for i in range(100) %}{% set x = 'a' * 1000000 %}{% endfor %}",
         "the template takes too many steps"},
        {"{% set x = 'a' * 6000000 %}{% set y = 'b' * 6000000 %}",
         "the template takes too many steps"},
        {"{{ [1] * 1000000000 }}", "the template takes too much memory"},
        {"{% set x = 'ab' * 1000000 %}{% for a in range(100) %}{{ x }}{% endfor %}",
         "the template takes too much memory"},
        {"{{ 9223372036854775807 + 1 }}", "the template computes an integer beyond 64 bits"},
        {"{{ -9223372036854775807 - 2 }}", "the template computes an integer beyond 64 bits"},
        {"{{ 10 ** 19 }}", "the template computes an integer beyond 64 bits"},
        {"{{ 3037000500 * 3037000500 }}", "the template computes an integer beyond 64 bits"},
        {"{{ 'x'.ljust(1000000000000) }}", "the template takes too much memory"},
        {"{{ [[1]] | tojson(indent=1000000000) * 100 }}", "the template takes too much memory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena;
        struct template_output output;
        arena_init(&arena, MEMORY);
        enum status status = render_in(&arena, cases[i].source, "", &output);
        if (status != STATUS_LIMIT || !value_is_text(output.message, cases[i].message))
            fail_msg("%s: %s: %.*s", cases[i].source, status_name(status),
                     (int)output.message.text.length, output.message.text.bytes);
        assert_true(arena.total_bytes <= MEMORY);
        arena_deinit(&arena);
    }
}

/* Integers as jinja2 reads them: 4294967312 is 2^32 + 16. */
static void test_integers_in_a_base(void **state)
{
    (void)state;
    static const char source[] =
        "{{ 'ff'|int(7, 16) }} {{ 'ff'|int(7, 4294967312) }} {{ 'ff'|int(7, 37) }} "
        "{{ '12'|int(7, 1) }} {{ '11'|int(7, none) }} {{ '11'|int(7, '2') }} "
        "{{ '11'|int(base=2) }} {{ '3.9'|int(base=-1) }} {{ 12|int(base=99) }} "
        "{{ '0x1f'|int(base=0) }} {{ '11'|int(7, true) }} {{ '11'|int(7, 2.0) }}";
    struct arena arena;
    struct template_output output;
    arena_init(&arena, MEMORY);
    assert_int_equal(render_in(&arena, source, "", &output), STATUS_OK);
    assert_true(value_is_text(output.text, "255 7 7 12 11 11 3 3 12 31 11 11"));
    arena_deinit(&arena);
}

/* One step or level below the limit works: an honest template has room. */
static void test_what_runs_has_room(void **state)
{
    (void)state;
    struct arena arena;
    struct template_output output;
    arena_init(&arena, MEMORY);
    assert_int_equal(render_in(&arena,
                               "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}"
                               "{{ f(40) }}{% for a in range(100000) %}{% endfor %}",
                               "", &output),
                     STATUS_OK);
    arena_deinit(&arena);
}

static void test_messages_are_bounded_and_have_their_line(void **state)
{
    (void)state;
    struct arena arena;
    struct template_output output;
    arena_init(&arena, MEMORY);
    assert_int_equal(render_in(&arena, "\n{{ raise_exception('x' * 5000) }}", "", &output),
                     STATUS_INVALID);
    assert_int_equal(output.message.text.length, TEMPLATE_LIMIT_MESSAGE);
    assert_true(output.raised);
    assert_int_equal(output.line, 2);
    assert_int_equal(render_in(&arena, "a\nb\n{{ one.x.y }}", "", &output), STATUS_INVALID);
    assert_true(value_is_text(output.message, "'int object' has no attribute 'x'"));
    assert_false(output.raised);
    assert_int_equal(output.line, 3);
    arena_deinit(&arena);
}

/* --- marks --- */

/* The output, with the request's bytes in < >. */
static void shown(struct value text, struct str *out)
{
    bool inside = false;
    for (size_t i = 0; i <= text.text.length; i++) {
        bool input = i < text.text.length && text_is_input(text, i);
        if (input != inside)
            str_add(out, input ? "<" : ">");
        inside = input;
        if (i < text.text.length)
            str_append(out, text.text.bytes + i, 1);
    }
}

static void test_input_stays_marked(void **state)
{
    (void)state;
    static const struct {
        const char *source, *user, *expected;
    } cases[] = {
        {"a{{ user }}b", "U", "a<U>b"},
        {"{{ 'a' + user + 'b' }}", "U", "a<U>b"},
        {"{{ 'a' ~ user ~ 1 ~ user }}", "U", "a<U>1<U>"},
        {"{{ user | trim }}{{ user.strip() }}{{ ('x' + user).rstrip() }}", " U ", "<UU>x< U>"},
        {"{{ user.replace('b', 'x') }}", "abc", "<a>x<c>"},
        {"{{ 'a-b' | replace('-', user) }}", "U", "a<U>b"},
        {"{{ (user + 'xyz')[1:4] }}{{ (user + 'x')[::-1] }}{{ user[0] }}{{ user[-1] }}", "ab",
         "<b>xyx<baab>"},
        {"{{ (user + '|c').split('|') | join('/') }}", "a|b", "<a>/<b>/c"},
        {"{% for x in user %}{{ x }}.{% endfor %}", "ab", "<a>.<b>."},
        {"{{ ('x' + user) | upper }}{{ user | title }}{{ user | capitalize }}", "ab", "X<ABAbAb>"},
        {"{{ [user, 'b'] }}{{ {user: user} }}", "U", "['<U>', 'b']{'<U>': '<U>'}"},
        {"{{ {'k': user} | tojson }}", "a\"b\n", "{\"k\": \"<a\\\"b\\n>\"}"},
        {"{{ [user] | tojson(ensure_ascii=true) }}", "\xc3\xa9", "[\"<\\u00e9>\"]"},
        {"{{ [user] | tojson(indent=2) }}", "U", "[\n  \"<U>\"\n]"},
        {"{% set x %}a{{ user }}{% endset %}{{ x }}{{ x | length }}", "U", "a<U>2"},
        {"{% macro m(y) %}({{ y }}){{ caller() }}{% endmacro %}{% call m(user) %}[{{ user }}]"
         "{% endcall %}",
         "U", "(<U>)[<U>]"},
        {"{% filter upper %}a{{ user }}{% endfilter %}", "u", "A<U>"},
        {"{% set ns = namespace(a=user) %}{% set ns.b = ns.a + '.' %}{{ ns.b }}", "U", "<U>."},
        {"{{ user | safe }}{{ ('<' | safe) + user }}", "<&", "<<&><<&lt;&amp;>"},
        {"{{ user.split() | join(' ') }}{{ user.splitlines() | last }}", "a b\nc", "<a> <b> <cc>"},
        {"{{ user | indent }}{{ user | truncate(4, true, '.') }}", "ab\ncdefghij",
         "<ab>\n    <cdefghijab\n>."},
        {"{{ user.center(5, '-') }}{{ user * 2 }}{{ user.partition('b') | join('+') }}", "abc",
         "-<abc>-<abcabca>+<b>+<c>"},
        {"{{ user | default('x') }}{{ user or 'x' }}{{ user if one else 'x' }}", "U", "<UUU>"},
        {"{{ [user, 'a'] | sort | join }}{{ [user] | map('upper') | first }}", "b", "a<bB>"},
        {"{{ user | string }}{{ user | e }}{{ user | list | last }}", "ab", "<ababb>"},
        {"{{ text }}{{ one }}{{ user | length }}{{ user == 'U' }}", "U", "text11True"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena arena;
        struct template_output output;
        struct str out;
        arena_init(&arena, MEMORY);
        str_init(&out, 1000);
        assert_int_equal(render_in(&arena, cases[i].source, cases[i].user, &output), STATUS_OK);
        shown(output.text, &out);
        if (strcmp(out.data, cases[i].expected) != 0)
            fail_msg("%s: %s instead of %s", cases[i].source, out.data, cases[i].expected);
        str_deinit(&out);
        arena_deinit(&arena);
    }
}

static void test_a_loop_over_a_name_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        bool expected;
    } cases[] = {
        {"{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", true},
        {"{% if a %}{% elif b %}{% for p in m['content'] | list %}{% endfor %}{% endif %}", true},
        {"{% macro m(content) %}{% for p in content %}{% endfor %}{% endmacro %}", true},
        {"{% set x %}{% for a in b %}{% else %}{% for c in d.content %}{% endfor %}{% endfor %}"
         "{% endset %}",
         true},
        {"{% for m in messages %}{{ m.content }}{{ m['content'] | length }}{% endfor %}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template *template;
        assert_int_equal(compile(cases[i].source, &template, NULL), STATUS_OK);
        assert_int_equal(template_loops_over(template, "content"), cases[i].expected);
        assert_int_equal(template_names(template, "nowhere"), false);
        template_destroy(template);
    }
}

static void test_a_question_for_none_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        bool expected;
    } cases[] = {
        {"{% for m in messages %}{% if a and m['content'] is none %}{% endif %}{% endfor %}", true},
        {"{{ 'a' if m.content is not none and b is string }}", true},
        {"{% set content = m.content %}{{ content is none }}", true},
        {"{{ m.reasoning_content is none }}{{ m.content is string }}{{ 'content is none' }}",
         false},
        {"{{ m.content }}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template *template;
        assert_int_equal(compile(cases[i].source, &template, NULL), STATUS_OK);
        assert_int_equal(template_asks_for_none(template, "content"), cases[i].expected);
        template_destroy(template);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused_is_named_with_its_line),
        cmocka_unit_test(test_nesting_of_the_source),
        cmocka_unit_test(test_length_of_the_source),
        cmocka_unit_test(test_what_runs_is_bounded),
        cmocka_unit_test(test_what_runs_has_room),
        cmocka_unit_test(test_integers_in_a_base),
        cmocka_unit_test(test_messages_are_bounded_and_have_their_line),
        cmocka_unit_test(test_input_stays_marked),
        cmocka_unit_test(test_a_loop_over_a_name_is_found),
        cmocka_unit_test(test_a_question_for_none_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
