#include "common/base/utf8.h"

#include "common/base/assert.h"

#include <string.h>

/* Table 3-7 of the Unicode standard: the second byte's range depends on the first. The later bytes
 * are 80..BF. */
struct lead {
    uint8_t length, second_min, second_max;
};

static struct lead lead_of(uint8_t byte)
{
    if (byte < 0x80)
        return (struct lead){1, 0, 0};
    if (byte < 0xC2 || byte > 0xF4)
        return (struct lead){0, 0, 0};
    if (byte < 0xE0)
        return (struct lead){2, 0x80, 0xBF};
    if (byte < 0xF0)
        return (struct lead){3, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF};
    return (struct lead){4, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF};
}

struct utf8_char utf8_next(const char *bytes, size_t count)
{
    ASSERT(count > 0);
    const uint8_t *p = (const uint8_t *)bytes;
    struct lead lead = lead_of(p[0]);
    if (lead.length == 0)
        return (struct utf8_char){UTF8_BROKEN, 0, 1};
    if (lead.length == 1)
        return (struct utf8_char){UTF8_WHOLE, p[0], 1};
    uint32_t code = p[0] & (0x7Fu >> lead.length);
    for (size_t i = 1; i < lead.length; i++) {
        if (i == count)
            return (struct utf8_char){UTF8_CUT, 0, i};
        uint8_t min = i == 1 ? lead.second_min : 0x80, max = i == 1 ? lead.second_max : 0xBF;
        if (p[i] < min || p[i] > max)
            return (struct utf8_char){UTF8_BROKEN, 0, i};
        code = code << 6 | (p[i] & 0x3Fu);
    }
    return (struct utf8_char){UTF8_WHOLE, code, lead.length};
}

bool utf8_valid(const char *bytes, size_t count, size_t *bad_offset)
{
    size_t at = 0;
    while (at < count) {
        uint64_t eight;
        if (count - at >= sizeof eight) {
            memcpy(&eight, bytes + at, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                at += sizeof eight;
                continue;
            }
        }
        struct utf8_char next = utf8_next(bytes + at, count - at);
        if (next.kind != UTF8_WHOLE) {
            if (bad_offset)
                *bad_offset = at;
            return false;
        }
        at += next.length;
    }
    return true;
}

size_t utf8_put(uint32_t code, char out[4])
{
    ASSERT(code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF));
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(0xF00u >> length | code);
    return length;
}

void utf8_make_printable(char *text)
{
    size_t count = strlen(text);
    for (size_t at = 0; at < count;) {
        struct utf8_char next = utf8_next(text + at, count - at);
        bool control = next.code < 0x20 || (next.code >= 0x7f && next.code < 0xa0);
        if (next.kind != UTF8_WHOLE || control)
            memset(text + at, '?', next.length);
        at += next.length;
    }
}
