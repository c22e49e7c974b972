#include "common/language/constrain/expression_set.h"

#include "common/base/utf8.h"

#include <string.h>

static enum status fail(const struct expression_text *text, enum status status, const char *what,
                        struct error *err)
{
    return error_set(err, status, "%s at byte %zu of the pattern", what, text->at);
}

static void add_digits(struct charset *set)
{
    charset_add(set, '0', '9');
}

static void add_word(struct charset *set)
{
    add_digits(set);
    charset_add(set, 'A', 'Z');
    charset_add(set, '_', '_');
    charset_add(set, 'a', 'z');
}

static void add_space(struct charset *set)
{
    static const struct char_range ranges[] = {
        {0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        charset_add(set, ranges[i].low, ranges[i].high);
}

/* \d \w \s and their opposites; false for other letters. */
static bool add_named(struct charset *set, char letter)
{
    struct charset named;
    charset_init(&named);
    switch (letter | 0x20) {
    case 'd': add_digits(&named); break;
    case 'w': add_word(&named); break;
    case 's': add_space(&named); break;
    default: return false;
    }
    charset_normalise(&named);
    if (letter < 'a')
        charset_complement(&named);
    charset_add_all(set, &named);
    charset_deinit(&named);
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool take_hex(struct expression_text *text, int min, int max, uint32_t *code)
{
    int count = 0;
    *code = 0;
    while (count < max && text->at < text->length && hex_value(text->bytes[text->at]) >= 0) {
        *code = *code * 16 + (uint32_t)hex_value(text->bytes[text->at++]);
        count++;
    }
    return count >= min;
}

/* Behind \u: four digits, a pair of surrogates, or {digits}. */
static bool take_unicode(struct expression_text *text, uint32_t *code)
{
    if (text->at < text->length && text->bytes[text->at] == '{') {
        text->at++;
        bool good =
            take_hex(text, 1, 6, code) && text->at < text->length && text->bytes[text->at] == '}';
        text->at += good;
        return good && *code <= CHARSET_LAST;
    }
    uint32_t low;
    if (!take_hex(text, 4, 4, code))
        return false;
    if (*code >= 0xd800 && *code < 0xdc00 && text->length - text->at >= 6 &&
        !memcmp(text->bytes + text->at, "\\u", 2)) {
        text->at += 2;
        if (!take_hex(text, 4, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return false;
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    }
    return *code < 0xd800 || *code > 0xdfff;
}

static enum status refuse_letter(const struct expression_text *text, char letter, struct error *err)
{
    if (letter >= '1' && letter <= '9')
        return fail(text, STATUS_UNSUPPORTED, "a backreference isn't supported", err);
    switch (letter) {
    case 'k': return fail(text, STATUS_UNSUPPORTED, "a backreference \\k isn't supported", err);
    case 'b':
    case 'B': return fail(text, STATUS_UNSUPPORTED, "a word boundary \\b isn't supported", err);
    case 'p':
    case 'P': return fail(text, STATUS_UNSUPPORTED, "a Unicode class \\p isn't supported", err);
    default:
        return error_set(err, STATUS_UNSUPPORTED,
                         "the escape \\%c isn't supported at byte %zu of the pattern", letter,
                         text->at);
    }
}

/* An escape that is one character. */
static enum status take_escaped(struct expression_text *text, uint32_t *code, struct error *err)
{
    static const char letters[] = "tnrfv0", values[] = "\t\n\r\f\v\0";
    char letter = text->bytes[text->at];
    const char *known = memchr(letters, letter, sizeof letters - 1);
    if (known) {
        *code = (uint32_t)values[known - letters];
        text->at++;
        return STATUS_OK;
    }
    if (letter == 'x' || letter == 'u') {
        text->at++;
        bool good = letter == 'x' ? take_hex(text, 2, 2, code) : take_unicode(text, code);
        return good ? STATUS_OK : fail(text, STATUS_INVALID, "a malformed \\x or \\u", err);
    }
    bool alphanumeric =
        (letter >= '0' && letter <= '9') || ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z');
    if (alphanumeric)
        return refuse_letter(text, letter, err);
    struct utf8_char next = utf8_next(text->bytes + text->at, text->length - text->at);
    text->at += next.length;
    *code = next.code;
    return STATUS_OK;
}

enum status expression_parse_escape(struct expression_text *text, struct charset *set,
                                    struct error *err)
{
    if (text->at == text->length)
        return fail(text, STATUS_INVALID, "a backslash with nothing behind it", err);
    if (add_named(set, text->bytes[text->at])) {
        text->at++;
        return STATUS_OK;
    }
    uint32_t code = 0;
    TRY(take_escaped(text, &code, err));
    charset_add(set, code, code);
    return STATUS_OK;
}

/* A member of a class: one character (then *single), or a named set, which is added. */
static enum status take_member(struct expression_text *text, struct charset *set, bool *single,
                               uint32_t *code, struct error *err)
{
    *single = true;
    if (text->bytes[text->at] != '\\') {
        struct utf8_char next = utf8_next(text->bytes + text->at, text->length - text->at);
        text->at += next.length;
        *code = next.code;
        return STATUS_OK;
    }
    text->at++;
    if (text->at == text->length)
        return fail(text, STATUS_INVALID, "a backslash with nothing behind it", err);
    if (text->bytes[text->at] == 'b') { /* in a class: backspace */
        text->at++;
        *code = '\b';
        return STATUS_OK;
    }
    *single = !add_named(set, text->bytes[text->at]);
    if (*single)
        return take_escaped(text, code, err);
    text->at++;
    return STATUS_OK;
}

static bool at_range(const struct expression_text *text)
{
    return text->length - text->at >= 2 && text->bytes[text->at] == '-' &&
           text->bytes[text->at + 1] != ']';
}

static enum status take_members(struct expression_text *text, struct charset *set,
                                struct error *err)
{
    bool single;
    uint32_t low = 0, high = 0;
    if (text->length - text->at >= 2 && !memcmp(text->bytes + text->at, "[:", 2))
        return fail(text, STATUS_UNSUPPORTED, "a class [:name:] isn't supported", err);
    TRY(take_member(text, set, &single, &low, err));
    if (!single)
        return STATUS_OK;
    if (!at_range(text)) {
        charset_add(set, low, low);
        return STATUS_OK;
    }
    text->at++;
    TRY(take_member(text, set, &single, &high, err));
    if (!single || high < low)
        return fail(text, STATUS_INVALID, "a range that is none", err);
    charset_add(set, low, high);
    return STATUS_OK;
}

enum status expression_parse_class(struct expression_text *text, struct charset *set,
                                   struct error *err)
{
    bool opposite = text->at < text->length && text->bytes[text->at] == '^';
    text->at += opposite;
    while (text->at < text->length && text->bytes[text->at] != ']')
        TRY(take_members(text, set, err));
    if (text->at == text->length)
        return fail(text, STATUS_INVALID, "a class [ has no end", err);
    text->at++;
    charset_normalise(set);
    if (opposite)
        charset_complement(set);
    return STATUS_OK;
}

enum status expression_parse_dot(struct expression_text *text, struct charset *set,
                                 struct error *err)
{
    (void)text;
    (void)err;
    charset_add(set, '\n', '\n');
    charset_add(set, '\r', '\r');
    charset_add(set, 0x2028, 0x2029);
    charset_normalise(set);
    charset_complement(set);
    return STATUS_OK;
}
