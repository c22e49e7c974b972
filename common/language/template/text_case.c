/* Upper and lower case, by Unicode's simple mappings (and "SS" for sharp s). */
#include "common/base/utf8.h"
#include "common/language/template/python_text.h"
#include "common/language/template/text_methods.h"
#include "common/language/text/unicode.h"

#include <string.h>

enum letter_case { CASE_UPPER, CASE_TITLE, CASE_LOWER, CASE_SAME };

static void add_cased(struct text_builder *out, uint32_t code, enum letter_case want,
                      struct value string, size_t at)
{
    if (code == 0xDF && want <= CASE_TITLE) {
        text_builder_character(out, 'S', string, at);
        code = 's';
        want = want == CASE_TITLE ? CASE_LOWER : want;
    }
    if (want == CASE_LOWER)
        code = unicode_lower(code);
    else if (want != CASE_SAME)
        code = unicode_upper(code);
    text_builder_character(out, code, string, at);
}

/* Each character in the case that `choose` says; `state` is 0 at the start and its own from then
 * on. */
static struct value mapped(struct run *run, struct value string,
                           enum letter_case (*choose)(uint32_t code, int *state))
{
    struct text_builder builder;
    int state = 0;
    run_builder(run, &builder);
    for (size_t at = 0; at < string.text.length && !builder.full;) {
        struct utf8_char next = utf8_next(string.text.bytes + at, string.text.length - at);
        add_cased(&builder, next.code, choose(next.code, &state), string, at);
        at += next.length;
    }
    return run_finish(run, &builder);
}

static enum letter_case always_upper(uint32_t code, int *state)
{
    (void)code, (void)state;
    return CASE_UPPER;
}

static enum letter_case always_lower(uint32_t code, int *state)
{
    (void)code, (void)state;
    return CASE_LOWER;
}

static enum letter_case first_upper(uint32_t code, int *state)
{
    (void)code;
    enum letter_case chosen = *state ? CASE_LOWER : CASE_TITLE;
    *state = 1;
    return chosen;
}

/* The filter: words begin behind white space and some signs. */
static enum letter_case word_upper(uint32_t code, int *state)
{
    bool between = python_is_space(code) || (code < 128 && code && strchr("-({[<", (int)code));
    enum letter_case chosen = *state ? CASE_LOWER : CASE_UPPER;
    *state = !between;
    return chosen;
}

/* str.title: words begin behind whatever has no case. */
static enum letter_case title_case(uint32_t code, int *state)
{
    enum letter_case chosen = *state ? CASE_LOWER : CASE_TITLE;
    *state = unicode_has_case(code);
    return chosen;
}

static enum letter_case swapped(uint32_t code, int *state)
{
    (void)state;
    return unicode_is_upper(code) ? CASE_LOWER : unicode_is_lower(code) ? CASE_UPPER : CASE_SAME;
}

struct value text_upper(struct run *run, struct value string)
{
    return mapped(run, string, always_upper);
}

struct value text_lower(struct run *run, struct value string)
{
    return mapped(run, string, always_lower);
}

struct value text_capitalize(struct run *run, struct value string)
{
    return mapped(run, string, first_upper);
}

struct value text_title(struct run *run, struct value string)
{
    return mapped(run, string, word_upper);
}

static bool all_in_case(struct value string, bool upper)
{
    bool any = false;
    for (size_t at = 0; at < string.text.length;) {
        struct utf8_char next = utf8_next(string.text.bytes + at, string.text.length - at);
        if (upper ? unicode_is_lower(next.code) : unicode_is_upper(next.code))
            return false;
        any |= unicode_has_case(next.code);
        at += next.length;
    }
    return any;
}

bool text_is_upper(struct value string)
{
    return all_in_case(string, true);
}

bool text_is_lower(struct value string)
{
    return all_in_case(string, false);
}

static bool no_arguments(struct run *run, const struct call *call, const char *name)
{
    return call_bind(run, call, name, NULL, NULL, 0);
}

struct value text_method_upper(struct run *run, struct value self, const struct call *call)
{
    return no_arguments(run, call, "upper") ? text_upper(run, self) : value_none();
}

struct value text_method_lower(struct run *run, struct value self, const struct call *call)
{
    return no_arguments(run, call, "lower") ? text_lower(run, self) : value_none();
}

struct value text_method_casefold(struct run *run, struct value self, const struct call *call)
{
    return no_arguments(run, call, "casefold") ? text_lower(run, self) : value_none();
}

struct value text_method_capitalize(struct run *run, struct value self, const struct call *call)
{
    return no_arguments(run, call, "capitalize") ? text_capitalize(run, self) : value_none();
}

struct value text_method_title(struct run *run, struct value self, const struct call *call)
{
    return no_arguments(run, call, "title") ? mapped(run, self, title_case) : value_none();
}

struct value text_method_swapcase(struct run *run, struct value self, const struct call *call)
{
    return no_arguments(run, call, "swapcase") ? mapped(run, self, swapped) : value_none();
}

struct value text_method_isupper(struct run *run, struct value self, const struct call *call)
{
    return value_bool(no_arguments(run, call, "isupper") && text_is_upper(self));
}

struct value text_method_islower(struct run *run, struct value self, const struct call *call)
{
    return value_bool(no_arguments(run, call, "islower") && text_is_lower(self));
}

/* ------------------------------------------------------------------------------------- kinds of
 * characters */

static bool is_digit(uint32_t code)
{
    return unicode_is_decimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 ||
           code == 0x2070 || (code >= 0x2074 && code <= 0x2079) ||
           (code >= 0x2080 && code <= 0x2089);
}

static bool is_alphanumeric(uint32_t code)
{
    return unicode_is_letter(code) || unicode_is_numeric(code);
}

static struct value all_are(struct run *run, struct value string, const struct call *call,
                            const char *name, bool (*is)(uint32_t code))
{
    if (!no_arguments(run, call, name))
        return value_none();
    for (size_t at = 0; at < string.text.length;) {
        struct utf8_char next = utf8_next(string.text.bytes + at, string.text.length - at);
        if (!is(next.code))
            return value_bool(false);
        at += next.length;
    }
    return value_bool(string.text.length > 0);
}

struct value text_method_isdigit(struct run *run, struct value self, const struct call *call)
{
    return all_are(run, self, call, "isdigit", is_digit);
}

struct value text_method_isalpha(struct run *run, struct value self, const struct call *call)
{
    return all_are(run, self, call, "isalpha", unicode_is_letter);
}

struct value text_method_isalnum(struct run *run, struct value self, const struct call *call)
{
    return all_are(run, self, call, "isalnum", is_alphanumeric);
}

struct value text_method_isspace(struct run *run, struct value self, const struct call *call)
{
    return all_are(run, self, call, "isspace", python_is_space);
}
