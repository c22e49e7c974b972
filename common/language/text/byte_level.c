#include "common/language/text/byte_level.h"

#include "common/base/utf8.h"

/* Bytes that are visible in Latin-1 stand for themselves; the other 68 take the characters from
 * U+0100 on, in order. */
static bool byte_of(uint32_t code, unsigned char *byte)
{
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD)) {
        *byte = (unsigned char)code;
        return true;
    }
    if (code < 0x100 || code > 0x143)
        return false;
    uint32_t nth = code - 0x100; /* 00..20, 7F..A0, AD */
    *byte = (unsigned char)(nth <= 0x20 ? nth : nth < 0x43 ? nth - 0x21 + 0x7F : 0xAD);
    return true;
}

bool byte_level_read(const char *spelling, size_t length, char *bytes, size_t *count)
{
    size_t written = 0;
    for (size_t at = 0; at < length;) {
        struct utf8_char next = utf8_next(spelling + at, length - at);
        unsigned char byte;
        if (next.kind != UTF8_WHOLE || !byte_of(next.code, &byte))
            return false;
        bytes[written++] = (char)byte;
        at += next.length;
    }
    *count = written;
    return true;
}
