#include "common/base/json/json_quote.h"

#include "common/base/utf8.h"

static void quote_ascii(struct str *out, unsigned char c)
{
    static const char names[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f',
                                 ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\'};
    if (c < sizeof names && names[c])
        str_append(out, (char[]){'\\', names[c]}, 2);
    else if (c < 0x20 || c == 0x7F)
        str_addf(out, "\\u%04x", c);
    else
        str_append(out, &c, 1);
}

void json_quote(struct str *out, const char *text, size_t length)
{
    str_append(out, "\"", 1);
    for (size_t at = 0; at < length;) {
        struct utf8_char next = utf8_next(text + at, length - at);
        if (next.length == 1 && next.kind == UTF8_WHOLE)
            quote_ascii(out, (unsigned char)text[at]);
        else if (next.kind == UTF8_WHOLE)
            str_append(out, text + at, next.length);
        else
            str_add(out, UTF8_REPLACEMENT);
        at += next.length;
    }
    str_append(out, "\"", 1);
}
