#include "common/language/text/unicode.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Every character below U+0300 is in form C, whatever its neighbours are. Their lead bytes are
 * below CC. */
bool unicode_is_surely_nfc(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] >= 0xCC)
            return false;
    return true;
}

struct points {
    utf8proc_int32_t *data;
    size_t count, capacity;
};

static void points_add_decomposed(struct points *points, uint32_t code)
{
    enum { LONGEST = 8 }; /* canonical decompositions have at most 4 characters */
    if (points->capacity - points->count < LONGEST) {
        points->capacity = 2 * points->capacity + LONGEST;
        points->data = realloc(points->data, points->capacity * sizeof *points->data);
        ASSERT(points->data);
    }
    int last_boundclass;
    utf8proc_ssize_t added =
        utf8proc_decompose_char((utf8proc_int32_t)code, points->data + points->count, LONGEST,
                                UTF8PROC_STABLE | UTF8PROC_COMPOSE, &last_boundclass);
    ASSERT(added >= 0 && added <= LONGEST);
    points->count += (size_t)added;
}

static int combining_class(utf8proc_int32_t code)
{
    return utf8proc_get_property(code)->combining_class;
}

/* Sorts a run of marks into canonical order: stably by combining class. utf8proc's own ordering is
 * quadratic in the run, which a hostile text can make long; a stable counting sort isn't. */
static void sort_marks(utf8proc_int32_t *marks, size_t count, utf8proc_int32_t *spare)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < count; i++)
        start[combining_class(marks[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    memcpy(spare, marks, count * sizeof *marks);
    for (size_t i = 0; i < count; i++)
        marks[start[combining_class(spare[i])]++] = spare[i];
}

static void order_canonically(struct points *points)
{
    utf8proc_int32_t *spare = NULL;
    for (size_t at = 0; at < points->count; at++) {
        size_t from = at;
        bool sorted = true;
        for (int last = 0; at < points->count; at++) {
            int class = combining_class(points->data[at]);
            if (class == 0)
                break;
            sorted &= class >= last;
            last = class;
        }
        if (sorted)
            continue;
        if (!spare)
            spare = malloc(points->count * sizeof *spare);
        ASSERT(spare);
        sort_marks(points->data + from, at - from, spare);
    }
    free(spare);
}

void unicode_add_nfc(struct str *out, const char *text, size_t length)
{
    struct points points = {0};
    for (size_t at = 0; at < length;) {
        struct utf8_char next = utf8_next(text + at, length - at);
        ASSERT(next.kind == UTF8_WHOLE);
        points_add_decomposed(&points, next.code);
        at += next.length;
    }
    if (!points.count)
        return;
    order_canonically(&points);
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(
        points.data, (utf8proc_ssize_t)points.count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    ASSERT(composed >= 0);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char bytes[4];
        str_append(out, bytes, utf8_put((uint32_t)points.data[i], bytes));
    }
    free(points.data);
}

bool unicode_is_space(uint32_t code)
{
    if (code < 0x80)
        return (code >= 0x09 && code <= 0x0D) || code == ' ';
    if (code == 0x85)
        return true;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

bool unicode_is_word(uint32_t code)
{
    if (code < 0x80)
        return (code >= '0' && code <= '9') || ((code | 32) >= 'a' && (code | 32) <= 'z') ||
               code == '_';
    if (code == 0x200C || code == 0x200D)
        return true;
    /* Circled, squared and negative letters: symbols that are Alphabetic. */
    if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
        (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189))
        return true;
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
    }
}

bool unicode_is_numeric(uint32_t code)
{
    if (code < 0x80)
        return code >= '0' && code <= '9';
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_NO;
}

bool unicode_is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return code > ' ' && code < 0x7F && !unicode_is_numeric(code) &&
               !((code | 32) >= 'a' && (code | 32) <= 'z');
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static utf8proc_category_t category_of(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool unicode_is_letter(uint32_t code)
{
    utf8proc_category_t category = category_of(code);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_decimal(uint32_t code)
{
    return category_of(code) == UTF8PROC_CATEGORY_ND;
}

bool unicode_is_upper(uint32_t code)
{
    return category_of(code) == UTF8PROC_CATEGORY_LU;
}

bool unicode_is_lower(uint32_t code)
{
    return category_of(code) == UTF8PROC_CATEGORY_LL;
}

bool unicode_has_case(uint32_t code)
{
    return unicode_is_upper(code) || unicode_is_lower(code) ||
           category_of(code) == UTF8PROC_CATEGORY_LT;
}

uint32_t unicode_upper(uint32_t code)
{
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)code);
}

uint32_t unicode_lower(uint32_t code)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

bool unicode_is_printable(uint32_t code)
{
    if (code < 0x7F)
        return code >= ' ';
    utf8proc_category_t category = category_of(code);
    bool space = category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
    bool other = category >= UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CN;
    return !space && !other;
}
