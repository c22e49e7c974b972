#include "common/language/template/text_methods.h"

#include "common/base/utf8.h"
#include "common/language/template/python_text.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- strip */

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
    uint64_t cost = set.kind == VALUE_STRING ? set.text.length / 16 + 1 : 0; /* of a character */
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

static struct value strip(struct run *run, struct value self, const struct call *call,
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

struct value text_method_strip(struct run *run, struct value self, const struct call *call)
{
    return strip(run, self, call, "strip", STRIP_BOTH);
}

struct value text_method_lstrip(struct run *run, struct value self, const struct call *call)
{
    return strip(run, self, call, "lstrip", STRIP_LEFT);
}

struct value text_method_rstrip(struct run *run, struct value self, const struct call *call)
{
    return strip(run, self, call, "rstrip", STRIP_RIGHT);
}

/* -------------------------------------------------------------------------------------
 * searching */

struct search {
    struct value part;   /* str.startswith takes a tuple of them, too */
    struct value string; /* between start and end */
    size_t offset;       /* characters in front of it */
};

static bool bind_search(struct run *run, struct value self, const struct call *call,
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

static struct value starts_or_ends(struct run *run, struct value self, const struct call *call,
                                   const char *name, bool at_end)
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

struct value text_method_startswith(struct run *run, struct value self, const struct call *call)
{
    return starts_or_ends(run, self, call, "startswith", false);
}

struct value text_method_endswith(struct run *run, struct value self, const struct call *call)
{
    return starts_or_ends(run, self, call, "endswith", true);
}

/* Where the first or last one is, in bytes; SIZE_MAX: nowhere. */
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

static struct value find(struct run *run, struct value self, const struct call *call,
                         const char *name, bool last)
{
    struct search search;
    if (!bind_search(run, self, call, name, false, &search))
        return value_none();
    if (last) /* each place may be compared with all of it */
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

struct value text_method_find(struct run *run, struct value self, const struct call *call)
{
    return find(run, self, call, "find", false);
}

struct value text_method_rfind(struct run *run, struct value self, const struct call *call)
{
    return find(run, self, call, "rfind", true);
}

struct value text_method_index(struct run *run, struct value self, const struct call *call)
{
    struct value at = find(run, self, call, "index", false);
    if (at.kind == VALUE_INT && at.integer < 0)
        return run_fail(run, "substring not found");
    return at;
}

struct value text_method_count(struct run *run, struct value self, const struct call *call)
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

/* ------------------------------------------------------------------------------------- ends and
 * widths */

static struct value remove_end(struct run *run, struct value self, const struct call *call,
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

struct value text_method_removeprefix(struct run *run, struct value self, const struct call *call)
{
    return remove_end(run, self, call, "removeprefix", false);
}

struct value text_method_removesuffix(struct run *run, struct value self, const struct call *call)
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
    /* as CPython's str.center: the odd one goes left where the width is odd */
    int64_t left = sides == STRIP_BOTH   ? missing / 2 + (missing & width & 1)
                   : sides == STRIP_LEFT ? missing
                                         : 0;
    run_builder(run, &builder);
    text_builder_fill(&builder, fill, (size_t)left, false);
    text_builder_string(&builder, string);
    text_builder_fill(&builder, fill, (size_t)(missing - left), false);
    return run_finish(run, &builder);
}

static struct value pad(struct run *run, struct value self, const struct call *call,
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

struct value text_method_ljust(struct run *run, struct value self, const struct call *call)
{
    return pad(run, self, call, "ljust", STRIP_RIGHT);
}

struct value text_method_rjust(struct run *run, struct value self, const struct call *call)
{
    return pad(run, self, call, "rjust", STRIP_LEFT);
}

struct value text_method_center(struct run *run, struct value self, const struct call *call)
{
    return pad(run, self, call, "center", STRIP_BOTH);
}

struct value text_method_zfill(struct run *run, struct value self, const struct call *call)
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
