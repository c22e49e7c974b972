#include "common/language/template/methods.h"

#include "common/base/utf8.h"
#include "common/language/template/python_text.h"
#include "common/language/text/unicode.h"

#include <string.h>

/* --- strip --- */

static bool in_set(struct value set, uint32_t code)
{
    if (set.kind != VALUE_STRING)
        return python_is_space(code);
    for (size_t at = 0; at < set.text.length;) {
        struct utf8_char next = utf8_next(set.text.bytes + at, set.text.length - at);
        if (next.code == code)
            return true;
        at += next.length;
    }
    return false;
}

struct value text_strip(struct run *run, struct value string, struct value set,
                        enum strip_sides sides)
{
    size_t from = 0, to = string.text.length;
    const char *bytes = string.text.bytes;
    uint64_t cost =
        set.kind == VALUE_STRING ? set.text.length / 16 + 1 : 0; /* steps for a character */
    run_spend(run, 1 + string.text.length / 64);
    while ((sides & STRIP_LEFT) && from < to && !run_failed(run)) {
        struct utf8_char next = utf8_next(bytes + from, to - from);
        run_spend(run, cost);
        if (!in_set(set, next.code))
            break;
        from += next.length;
    }
    while ((sides & STRIP_RIGHT) && from < to && !run_failed(run)) {
        size_t start = to - 1;
        run_spend(run, cost);
        while (start > from && ((unsigned char)bytes[start] & 0xC0) == 0x80)
            start--;
        if (!in_set(set, utf8_next(bytes + start, to - start).code))
            break;
        to = start;
    }
    return value_part(string, from, to);
}

static struct value strip(struct run *run, struct value self, const struct macro_call *call,
                          const char *name, enum strip_sides sides)
{
    static const char *const names[] = {"chars"};
    struct value set;
    if (!call_bind(run, call, name, names, &set, 1))
        return value_none();
    if (set.kind == VALUE_UNDEFINED || (set.kind > VALUE_NONE && set.kind != VALUE_STRING))
        return run_fail(run, "%s arg must be None or str", name);
    return text_strip(run, self, set, sides);
}

struct value text_method_strip(struct run *run, struct value self, const struct macro_call *call)
{
    return strip(run, self, call, "strip", STRIP_BOTH);
}

struct value text_method_lstrip(struct run *run, struct value self, const struct macro_call *call)
{
    return strip(run, self, call, "lstrip", STRIP_LEFT);
}

struct value text_method_rstrip(struct run *run, struct value self, const struct macro_call *call)
{
    return strip(run, self, call, "rstrip", STRIP_RIGHT);
}

/* --- searching --- */

struct search {
    struct value part;   /* or a tuple, for str.startswith */
    struct value string; /* the part between start and end */
    size_t offset;       /* characters in front of it */
};

static bool bind_search(struct run *run, struct value self, const struct macro_call *call,
                        const char *name, bool tuples, struct search *search)
{
    static const char *const names[] = {"sub", "start", "end"};
    struct value values[3];
    if (!call_bind(run, call, name, names, values, 3))
        return false;
    search->part = values[0];
    if (values[0].kind != VALUE_STRING && !(tuples && values[0].kind == VALUE_TUPLE)) {
        if (tuples)
            run_fail(run, "%s first arg must be str or a tuple of str, not %s", name,
                     value_type_name(values[0]));
        else
            run_fail(run, "must be str, not %s", value_type_name(values[0]));
        return false;
    }
    search->string = self;
    search->offset = 0;
    run_spend(run, self.text.length / 64);
    if (values[1].kind == VALUE_ABSENT)
        return true;
    struct value bounds[3] = {values[1], values[2], value_none()};
    if (bounds[1].kind == VALUE_ABSENT)
        bounds[1] = value_none();
    search->string = get_slice(run, self, bounds);
    if (!run_failed(run))
        search->offset = python_length(
            value_part(self, 0, (size_t)(search->string.text.bytes - self.text.bytes)));
    return !run_failed(run);
}

static bool has_at(struct value string, struct value part, bool at_end)
{
    if (part.kind != VALUE_STRING || part.text.length > string.text.length)
        return false;
    size_t at = at_end ? string.text.length - part.text.length : 0;
    return part.text.length == 0 ||
           !memcmp(string.text.bytes + at, part.text.bytes, part.text.length);
}

static struct value starts_or_ends(struct run *run, struct value self,
                                   const struct macro_call *call, const char *name, bool at_end)
{
    struct search search;
    if (!bind_search(run, self, call, name, true, &search))
        return value_none();
    if (search.part.kind == VALUE_STRING)
        return value_bool(has_at(search.string, search.part, at_end));
    for (size_t i = 0; i < search.part.sequence->count; i++)
        if (has_at(search.string, search.part.sequence->items[i], at_end))
            return value_bool(true);
    return value_bool(false);
}

struct value text_method_startswith(struct run *run, struct value self,
                                    const struct macro_call *call)
{
    return starts_or_ends(run, self, call, "startswith", false);
}

struct value text_method_endswith(struct run *run, struct value self, const struct macro_call *call)
{
    return starts_or_ends(run, self, call, "endswith", true);
}

/* Returns the first or last place of `part`, in bytes; SIZE_MAX: none. */
static size_t locate(struct value string, struct value part, bool last)
{
    size_t found = SIZE_MAX, from = 0;
    for (;;) {
        const char *at = memmem(string.text.bytes + from, string.text.length - from,
                                part.text.bytes, part.text.length);
        if (!at)
            return found;
        found = (size_t)(at - string.text.bytes);
        from = found + 1;
        if (!last || from > string.text.length)
            return found;
    }
}

static struct value find(struct run *run, struct value self, const struct macro_call *call,
                         const char *name, bool last)
{
    struct search search;
    if (!bind_search(run, self, call, name, false, &search))
        return value_none();
    if (last) /* each place may be compared with the whole part */
        run_spend(run, (search.string.text.length / 64 + 1) * (search.part.text.length + 1));
    if (run_failed(run))
        return value_none();
    if (last && search.part.text.length == 0)
        return value_int((int64_t)(search.offset + python_length(search.string)));
    size_t at = locate(search.string, search.part, last);
    if (at == SIZE_MAX)
        return value_int(-1);
    return value_int((int64_t)(search.offset + python_length(value_part(search.string, 0, at))));
}

struct value text_method_find(struct run *run, struct value self, const struct macro_call *call)
{
    return find(run, self, call, "find", false);
}

struct value text_method_rfind(struct run *run, struct value self, const struct macro_call *call)
{
    return find(run, self, call, "rfind", true);
}

struct value text_method_index(struct run *run, struct value self, const struct macro_call *call)
{
    struct value at = find(run, self, call, "index", false);
    if (at.kind == VALUE_INT && at.integer < 0)
        return run_fail(run, "substring not found");
    return at;
}

struct value text_method_count(struct run *run, struct value self, const struct macro_call *call)
{
    struct search search;
    int64_t count = 0;
    if (!bind_search(run, self, call, "count", false, &search))
        return value_none();
    if (search.part.text.length == 0)
        return value_int((int64_t)python_length(search.string) + 1);
    while (locate(search.string, search.part, false) != SIZE_MAX) {
        size_t at = locate(search.string, search.part, false) + search.part.text.length;
        search.string = value_part(search.string, at, search.string.text.length);
        count++;
    }
    return value_int(count);
}

/* --- ends and widths --- */

static struct value remove_end(struct run *run, struct value self, const struct macro_call *call,
                               const char *name, bool at_end)
{
    static const char *const names[] = {"affix"};
    struct value part;
    if (!call_bind(run, call, name, names, &part, 1))
        return value_none();
    if (part.kind != VALUE_STRING)
        return run_fail(run, "%s() argument must be str, not %s", name, value_type_name(part));
    if (!has_at(self, part, at_end))
        return self;
    return at_end ? value_part(self, 0, self.text.length - part.text.length)
                  : value_part(self, part.text.length, self.text.length);
}

struct value text_method_removeprefix(struct run *run, struct value self,
                                      const struct macro_call *call)
{
    return remove_end(run, self, call, "removeprefix", false);
}

struct value text_method_removesuffix(struct run *run, struct value self,
                                      const struct macro_call *call)
{
    return remove_end(run, self, call, "removesuffix", true);
}

struct value text_pad(struct run *run, struct value string, int64_t width, enum strip_sides sides,
                      char fill)
{
    struct text_builder builder;
    int64_t missing = width - (int64_t)python_length(string);
    if (missing <= 0)
        return string;
    /* as CPython's str.center: an odd space goes left if the width is odd */
    int64_t left = sides == STRIP_BOTH   ? missing / 2 + (missing & width & 1)
                   : sides == STRIP_LEFT ? missing
                                         : 0;
    run_builder(run, &builder);
    text_builder_fill(&builder, fill, (size_t)left, false);
    text_builder_string(&builder, string);
    text_builder_fill(&builder, fill, (size_t)(missing - left), false);
    return run_finish(run, &builder);
}

static struct value pad(struct run *run, struct value self, const struct macro_call *call,
                        const char *name, enum strip_sides sides)
{
    static const char *const names[] = {"width", "fillchar"};
    struct value values[2];
    if (!call_bind(run, call, name, names, values, 2))
        return value_none();
    if (values[0].kind != VALUE_INT)
        return run_fail(run, "'%s' object cannot be interpreted as an integer",
                        value_type_name(values[0]));
    char fill = ' ';
    if (values[1].kind == VALUE_STRING && values[1].text.length == 1)
        fill = values[1].text.bytes[0];
    else if (values[1].kind != VALUE_ABSENT)
        return run_fail(run, "The fill character must be exactly one ASCII character long");
    return text_pad(run, self, values[0].integer, sides, fill);
}

struct value text_method_ljust(struct run *run, struct value self, const struct macro_call *call)
{
    return pad(run, self, call, "ljust", STRIP_RIGHT);
}

struct value text_method_rjust(struct run *run, struct value self, const struct macro_call *call)
{
    return pad(run, self, call, "rjust", STRIP_LEFT);
}

struct value text_method_center(struct run *run, struct value self, const struct macro_call *call)
{
    return pad(run, self, call, "center", STRIP_BOTH);
}

struct value text_method_zfill(struct run *run, struct value self, const struct macro_call *call)
{
    static const char *const names[] = {"width"};
    struct value width;
    if (!call_bind(run, call, "zfill", names, &width, 1))
        return value_none();
    if (width.kind != VALUE_INT)
        return run_fail(run, "'%s' object cannot be interpreted as an integer",
                        value_type_name(width));
    bool sign = self.text.length && (*self.text.bytes == '-' || *self.text.bytes == '+');
    if (!sign || (int64_t)python_length(self) >= width.integer)
        return text_pad(run, self, width.integer, STRIP_LEFT, '0');
    struct value digits =
        text_pad(run, value_part(self, 1, self.text.length), width.integer - 1, STRIP_LEFT, '0');
    return run_failed(run) ? value_none() : add(run, value_part(self, 0, 1), digits);
}

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

/* Maps each character to the case that `choose` returns. `state` belongs to `choose`, and is 0 at
 * the start. */
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

/* For the filter: words begin behind white space and some signs. */
static enum letter_case word_upper(uint32_t code, int *state)
{
    bool between = python_is_space(code) || (code < 128 && code && strchr("-({[<", (int)code));
    enum letter_case chosen = *state ? CASE_LOWER : CASE_UPPER;
    *state = !between;
    return chosen;
}

/* For str.title: words begin behind characters without case. */
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

static bool no_arguments(struct run *run, const struct macro_call *call, const char *name)
{
    return call_bind(run, call, name, NULL, NULL, 0);
}

struct value text_method_upper(struct run *run, struct value self, const struct macro_call *call)
{
    return no_arguments(run, call, "upper") ? text_upper(run, self) : value_none();
}

struct value text_method_lower(struct run *run, struct value self, const struct macro_call *call)
{
    return no_arguments(run, call, "lower") ? text_lower(run, self) : value_none();
}

struct value text_method_casefold(struct run *run, struct value self, const struct macro_call *call)
{
    return no_arguments(run, call, "casefold") ? text_lower(run, self) : value_none();
}

struct value text_method_capitalize(struct run *run, struct value self,
                                    const struct macro_call *call)
{
    return no_arguments(run, call, "capitalize") ? text_capitalize(run, self) : value_none();
}

struct value text_method_title(struct run *run, struct value self, const struct macro_call *call)
{
    return no_arguments(run, call, "title") ? mapped(run, self, title_case) : value_none();
}

struct value text_method_swapcase(struct run *run, struct value self, const struct macro_call *call)
{
    return no_arguments(run, call, "swapcase") ? mapped(run, self, swapped) : value_none();
}

struct value text_method_isupper(struct run *run, struct value self, const struct macro_call *call)
{
    return value_bool(no_arguments(run, call, "isupper") && text_is_upper(self));
}

struct value text_method_islower(struct run *run, struct value self, const struct macro_call *call)
{
    return value_bool(no_arguments(run, call, "islower") && text_is_lower(self));
}

/* --- kinds of characters --- */

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

static struct value all_are(struct run *run, struct value string, const struct macro_call *call,
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

struct value text_method_isdigit(struct run *run, struct value self, const struct macro_call *call)
{
    return all_are(run, self, call, "isdigit", is_digit);
}

struct value text_method_isalpha(struct run *run, struct value self, const struct macro_call *call)
{
    return all_are(run, self, call, "isalpha", unicode_is_letter);
}

struct value text_method_isalnum(struct run *run, struct value self, const struct macro_call *call)
{
    return all_are(run, self, call, "isalnum", is_alphanumeric);
}

struct value text_method_isspace(struct run *run, struct value self, const struct macro_call *call)
{
    return all_are(run, self, call, "isspace", python_is_space);
}
