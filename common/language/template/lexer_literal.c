#include "common/language/template/lexer_literal.h"

#include "common/base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/* Reads exactly `count` hex digits, or 1..count octal ones; false where there are none. */
static bool read_code(struct literal_place *place, size_t end, int base, int count, uint32_t *code)
{
    int got = 0;
    *code = 0;
    while (got < count && place->at < end && digit_of(place->text[place->at]) < base) {
        *code = *code * (uint32_t)base + (uint32_t)digit_of(place->text[place->at++]);
        got++;
    }
    return base == 8 ? got > 0 : got == count;
}

static bool is_scalar(uint32_t code)
{
    return code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

static enum status bad_escape(const struct literal_place *place, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "line %u: a string has an escape of no character that this can write",
                     place->line);
}

/* Behind the backslash. */
static enum status read_escape(struct literal_place *place, size_t end, char *out, size_t *count,
                               struct error *err)
{
    static const char names[] = "\\'\"abfnrtv", meanings[] = "\\'\"\a\b\f\n\r\t\v";
    char c = place->text[place->at];
    const char *name = c ? strchr(names, c) : NULL;
    uint32_t code = 0;
    if (name) {
        place->at++;
        out[(*count)++] = meanings[name - names];
        return STATUS_OK;
    }
    if (c == '\n') {
        place->at++;
        return STATUS_OK;
    }
    bool octal = c >= '0' && c <= '7';
    if (!octal && c != 'x' && c != 'u' && c != 'U') {
        if (c == 'N')
            return bad_escape(place, err);
        out[(*count)++] = '\\'; /* Python keeps what it doesn't know */
        return STATUS_OK;
    }
    place->at += !octal;
    if (!read_code(place, end, octal ? 8 : 16,
                   octal      ? 3
                   : c == 'x' ? 2
                   : c == 'u' ? 4
                              : 8,
                   &code) ||
        !is_scalar(code))
        return bad_escape(place, err);
    *count += utf8_put(code, out + *count);
    return STATUS_OK;
}

enum status literal_string(struct literal_place *place, struct arena *arena, struct token *token,
                           struct error *err)
{
    char quote = place->text[place->at++];
    size_t end = place->at, count = 0;
    while (end < place->length && place->text[end] != quote)
        end += place->text[end] == '\\' ? 2 : 1;
    if (end >= place->length)
        return error_set(err, STATUS_INVALID, "line %u: a string that starts here has no end",
                         place->line);
    char *out =
        arena_take(arena, end - place->at + 4); /* no escape is shorter than what it means */
    if (!out)
        return error_set(err, STATUS_LIMIT, "line %u: the template's strings are too long",
                         place->line);
    while (place->at < end) {
        char c = place->text[place->at++];
        if (c == '\\')
            TRY(read_escape(place, end, out, &count, err));
        else
            out[count++] = c;
    }
    place->at = end + 1;
    token->kind = TOKEN_STRING;
    token->bytes = out;
    token->length = count;
    return STATUS_OK;
}

/* Behind digits of this base, with single "_" between them. */
static size_t behind_digits(const struct literal_place *place, size_t at, int base)
{
    while (at < place->length) {
        bool between = place->text[at] == '_' && at + 1 < place->length;
        if (digit_of(place->text[at + between]) >= base)
            break;
        at += 1 + between;
    }
    return at;
}

static size_t behind_exponent(const struct literal_place *place, size_t at)
{
    if (at >= place->length || (place->text[at] | 0x20) != 'e')
        return at;
    size_t digits = at + 1;
    if (digits < place->length && (place->text[digits] == '+' || place->text[digits] == '-'))
        digits++;
    if (digits >= place->length || digit_of(place->text[digits]) > 9)
        return at;
    return behind_digits(place, digits, 10);
}

static enum status read_integer(const struct literal_place *place, const char *digits, int base,
                                struct token *token, struct error *err)
{
    errno = 0;
    token->kind = TOKEN_INT;
    token->integer = strtoll(digits, NULL, base);
    if (errno)
        return error_set(err, STATUS_UNSUPPORTED, "line %u: the number %.40s is beyond 64 bits",
                         place->line, digits);
    return STATUS_OK;
}

static enum status read_float(const struct literal_place *place, const char *digits,
                              struct token *token, struct error *err)
{
    token->kind = TOKEN_FLOAT;
    token->real = strtod(digits, NULL);
    if (!isfinite(token->real))
        return error_set(err, STATUS_UNSUPPORTED, "line %u: the number %.40s is not finite",
                         place->line, digits);
    return STATUS_OK;
}

enum status literal_number(struct literal_place *place, struct arena *arena, struct token *token,
                           struct error *err)
{
    const char *text = place->text;
    size_t from = place->at;
    char prefix = from + 2 < place->length && text[from] == '0' ? (char)(text[from + 1] | 0x20) : 0;
    int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    if (base != 10)
        from += 2;
    size_t end = behind_digits(place, from, base);
    bool is_float = false;
    if (base == 10) {
        size_t whole = end;
        bool after_dot = from > 0 && text[from - 1] == '.'; /* the second of x.0.1 */
        if (!after_dot && end + 1 < place->length && text[end] == '.' &&
            digit_of(text[end + 1]) < 10)
            end = behind_digits(place, end + 1, 10);
        if (!after_dot)
            end = behind_exponent(place, end);
        is_float = end > whole;
    }
    char *digits = arena_take(arena, end - from + 1);
    if (!digits || end == from)
        return error_set(err, STATUS_INVALID, "line %u: a number has no digits", place->line);
    size_t count = 0;
    for (size_t i = from; i < end; i++)
        if (text[i] != '_')
            digits[count++] = text[i];
    place->at = end;
    return is_float ? read_float(place, digits, token, err)
                    : read_integer(place, digits, base, token, err);
}
