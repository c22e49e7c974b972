#include "common/language/template/parser.h"

#include "common/base/utf8.h"
#include "common/language/template/python_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- strings and numbers --- */

struct literal_place {
    const char *text;
    size_t length;
    size_t at; /* in: start of the literal; out: behind it */
    unsigned line;
};

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/* Reads the code of a character: exactly `count` hex digits, or 1..count octal ones. Returns
 * whether they are there and the code is a Unicode scalar value. */
static bool read_code(struct literal_place *place, size_t end, int base, int count, uint32_t *code)
{
    int got = 0;
    *code = 0;
    while (got < count && place->at < end && digit_of(place->text[place->at]) < base) {
        *code = *code * (uint32_t)base + (uint32_t)digit_of(place->text[place->at++]);
        got++;
    }
    bool complete = base == 8 ? got > 0 : got == count;
    return complete && *code <= 0x10FFFF && (*code < 0xD800 || *code > 0xDFFF);
}

static enum status bad_escape(const struct literal_place *place, struct error *err)
{
    return error_set(err, STATUS_INVALID,
                     "line %u: a string has an escape of no character that this can write",
                     place->line);
}

/* Reads an escape; `at` is behind the backslash. */
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
        out[(*count)++] = '\\'; /* as Python: an unknown escape keeps its backslash */
        return STATUS_OK;
    }
    place->at += !octal;
    int digits = octal ? 3 : c == 'x' ? 2 : c == 'u' ? 4 : 8;
    if (!read_code(place, end, octal ? 8 : 16, digits, &code))
        return bad_escape(place, err);
    *count += utf8_put(code, out + *count);
    return STATUS_OK;
}

/* Reads a quoted string, with its escapes as in Python. */
static enum status literal_string(struct literal_place *place, struct arena *arena,
                                  struct token *token, struct error *err)
{
    char quote = place->text[place->at++];
    size_t end = place->at, count = 0;
    while (end < place->length && place->text[end] != quote)
        end += place->text[end] == '\\' ? 2 : 1;
    if (end >= place->length)
        return error_set(err, STATUS_INVALID, "line %u: a string that starts here has no end",
                         place->line);
    /* An escape is at least as long as its meaning. */
    char *out = arena_take(arena, end - place->at + 4);
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

/* Returns the end of digits of this base, with single "_" between them. */
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

/* Reads an integer within int64 (decimal, 0x, 0o or 0b), or a finite decimal fraction. "_" may
 * stand between digits. */
static enum status literal_number(struct literal_place *place, struct arena *arena,
                                  struct token *token, struct error *err)
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
        bool after_dot = from > 0 && text[from - 1] == '.'; /* the second number of x.0.1 */
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
    token->kind = is_float ? TOKEN_FLOAT : TOKEN_INT;
    errno = 0;
    if (is_float)
        token->real = strtod(digits, NULL);
    else
        token->integer = strtoll(digits, NULL, base);
    if (is_float && !isfinite(token->real))
        return error_set(err, STATUS_UNSUPPORTED, "line %u: the number %.40s is not finite",
                         place->line, digits);
    if (!is_float && errno)
        return error_set(err, STATUS_UNSUPPORTED, "line %u: the number %.40s is beyond 64 bits",
                         place->line, digits);
    return STATUS_OK;
}

/* --- the state --- */

#define MAX_BRACKETS 256 /* open at once inside a tag */

struct lexer {
    const char *source;
    size_t length, at;
    unsigned line;
    bool line_starts; /* the text read last ends a line */
    struct arena *arena;
    struct token **tail;
    char brackets[MAX_BRACKETS]; /* the closing ones of the open */
    size_t bracket_count;
    struct error *err;
};

static enum status invalid(struct lexer *lexer, const char *what)
{
    return error_set(lexer->err, STATUS_INVALID, "line %u: %s", lexer->line, what);
}

static bool ahead(const struct lexer *lexer, size_t at, const char *text)
{
    size_t count = strlen(text);
    return at <= lexer->length && lexer->length - at >= count &&
           memcmp(lexer->source + at, text, count) == 0;
}

static void advance(struct lexer *lexer, size_t to)
{
    for (; lexer->at < to; lexer->at++)
        lexer->line += lexer->source[lexer->at] == '\n';
}

static size_t behind_spaces(const struct lexer *lexer, size_t at)
{
    while (at < lexer->length) {
        struct utf8_char next = utf8_next(lexer->source + at, lexer->length - at);
        if (!python_is_space(next.code))
            break;
        at += next.length;
    }
    return at;
}

static enum status push(struct lexer *lexer, struct token token)
{
    struct token *made = arena_copy(lexer->arena, &token, sizeof token);
    if (!made)
        return error_set(lexer->err, STATUS_LIMIT, "line %u: the template has too many tokens",
                         lexer->line);
    *lexer->tail = made;
    lexer->tail = &made->next;
    return STATUS_OK;
}

static enum status push_kind(struct lexer *lexer, enum token_kind kind, size_t from, size_t to)
{
    return push(lexer, (struct token){.kind = kind,
                                      .line = lexer->line,
                                      .bytes = lexer->source + from,
                                      .length = to - from});
}

/* --- text between tags --- */

/* Returns the end of source[from, to) after stripping in front of a tag with this sign. */
static size_t stripped_end(const struct lexer *lexer, size_t from, size_t to, char sign,
                           bool is_output)
{
    const char *text = lexer->source + from;
    size_t kept = python_stripped_length(text, to - from);
    if (sign == '-')
        return from + kept;
    if (sign == '+' || is_output)
        return to;
    size_t line_start = to - from;
    while (line_start > 0 && text[line_start - 1] != '\n')
        line_start--;
    bool blank = kept <= line_start;
    return blank && (line_start > 0 || lexer->line_starts) ? from + line_start : to;
}

static enum status push_text(struct lexer *lexer, size_t from, size_t to, char sign, bool is_output)
{
    size_t end = stripped_end(lexer, from, to, sign, is_output);
    return end > from ? push_kind(lexer, TOKEN_TEXT, from, end) : STATUS_OK;
}

static char sign_at(const struct lexer *lexer, size_t at)
{
    return ahead(lexer, at, "-") ? '-' : ahead(lexer, at, "+") ? '+' : 0;
}

/* Returns the place behind a closing "%}" or "#}" at `at`, which may have a sign in front. 0: there
 * is none. */
static size_t behind_close(struct lexer *lexer, size_t at, const char *close)
{
    char sign = sign_at(lexer, at);
    size_t end = at + (sign != 0);
    if (!ahead(lexer, end, close))
        return 0;
    end += 2;
    if (sign == '-')
        end = behind_spaces(lexer, end);
    else if (!sign && ahead(lexer, end, "\n"))
        end++;
    return end;
}

static void close_tag(struct lexer *lexer, size_t end)
{
    advance(lexer, end);
    lexer->line_starts = lexer->source[end - 1] == '\n';
}

static enum status skip_comment(struct lexer *lexer, size_t from)
{
    for (size_t at = from; at < lexer->length; at++) {
        size_t end = behind_close(lexer, at, "#}");
        if (end) {
            close_tag(lexer, end);
            return STATUS_OK;
        }
    }
    return invalid(lexer, "a comment that starts here has no end");
}

/* Returns the place behind "{%", its sign and the word, if they stand at `at`, otherwise 0. */
static size_t behind_word(const struct lexer *lexer, size_t at, const char *word)
{
    if (!ahead(lexer, at, "{%"))
        return 0;
    at += 2;
    at = behind_spaces(lexer, at + (sign_at(lexer, at) != 0));
    return ahead(lexer, at, word) ? behind_spaces(lexer, at + strlen(word)) : 0;
}

/* Returns the place behind `close` at `at`, which may have a "-" in front. Keeps a newline behind
 * it. 0: there is none. */
static size_t behind_close_alone(const struct lexer *lexer, size_t at, const char *close)
{
    bool strips = ahead(lexer, at, "-");
    size_t end = at + strips;
    if (!ahead(lexer, end, close))
        return 0;
    return strips ? behind_spaces(lexer, end + 2) : end + 2;
}

static enum status lex_raw(struct lexer *lexer, size_t from)
{
    advance(lexer, from);
    lexer->line_starts = lexer->source[from - 1] == '\n';
    for (size_t at = from; at < lexer->length; at++) {
        size_t word = behind_word(lexer, at, "endraw");
        size_t end = word ? behind_close(lexer, word, "%}") : 0;
        if (!end)
            continue;
        TRY(push_text(lexer, from, at, sign_at(lexer, at + 2), false));
        close_tag(lexer, end);
        return STATUS_OK;
    }
    return invalid(lexer, "a raw block that starts here has no end");
}

/* --- inside of a tag --- */

static enum status count_brackets(struct lexer *lexer, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c), *close = strchr(closing, c);
    if (open) {
        if (lexer->bracket_count == MAX_BRACKETS)
            return error_set(lexer->err, STATUS_LIMIT, "line %u: more than %d brackets are open",
                             lexer->line, MAX_BRACKETS);
        lexer->brackets[lexer->bracket_count++] = closing[open - opening];
    } else if (close) {
        if (!lexer->bracket_count || lexer->brackets[lexer->bracket_count - 1] != c)
            return error_set(lexer->err, STATUS_INVALID, "line %u: unexpected '%c'", lexer->line,
                             c);
        lexer->bracket_count--;
    }
    return STATUS_OK;
}

static enum status lex_operator(struct lexer *lexer)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!ahead(lexer, lexer->at, operators[i]))
            continue;
        size_t length = strlen(operators[i]);
        TRY(push_kind(lexer, TOKEN_OPERATOR, lexer->at, lexer->at + length));
        if (length == 1)
            TRY(count_brackets(lexer, *operators[i]));
        lexer->at += length;
        return STATUS_OK;
    }
    struct utf8_char next = utf8_next(lexer->source + lexer->at, lexer->length - lexer->at);
    return error_set(lexer->err, STATUS_INVALID, "line %u: unexpected character '%.*s'",
                     lexer->line, (int)next.length, lexer->source + lexer->at);
}

static enum status lex_literal(struct lexer *lexer)
{
    struct token token = {.line = lexer->line};
    struct literal_place place = {
        .text = lexer->source, .length = lexer->length, .at = lexer->at, .line = lexer->line};
    char c = lexer->source[lexer->at];
    if (c == '"' || c == '\'')
        TRY(literal_string(&place, lexer->arena, &token, lexer->err));
    else
        TRY(literal_number(&place, lexer->arena, &token, lexer->err));
    TRY(push(lexer, token));
    advance(lexer, place.at);
    return STATUS_OK;
}

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

static enum status lex_one(struct lexer *lexer)
{
    char c = lexer->source[lexer->at];
    bool digit = c >= '0' && c <= '9';
    if (digit || c == '"' || c == '\'')
        return lex_literal(lexer);
    if (!is_name_character(c))
        return lex_operator(lexer);
    size_t end = lexer->at;
    while (end < lexer->length && is_name_character(lexer->source[end]))
        end++;
    TRY(push_kind(lexer, TOKEN_NAME, lexer->at, end));
    lexer->at = end;
    return STATUS_OK;
}

static enum status lex_tag(struct lexer *lexer, size_t from, bool is_output)
{
    unsigned start_line = lexer->line;
    TRY(push_kind(lexer, is_output ? TOKEN_OUTPUT_BEGIN : TOKEN_BLOCK_BEGIN, lexer->at, from));
    advance(lexer, from);
    for (;;) {
        advance(lexer, behind_spaces(lexer, lexer->at));
        if (lexer->at == lexer->length)
            return error_set(lexer->err, STATUS_INVALID,
                             "line %u: a tag that starts here has no end", start_line);
        size_t end = lexer->bracket_count ? 0
                     : is_output          ? behind_close_alone(lexer, lexer->at, "}}")
                                          : behind_close(lexer, lexer->at, "%}");
        if (end) {
            TRY(push_kind(lexer, is_output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END, lexer->at, end));
            close_tag(lexer, end);
            return STATUS_OK;
        }
        TRY(lex_one(lexer));
    }
}

/* --- the whole --- */

/* Reads the text up to the next tag, and the tag. */
static enum status lex_next(struct lexer *lexer)
{
    size_t from = lexer->at, at = from;
    while (at < lexer->length && !ahead(lexer, at, "{%") && !ahead(lexer, at, "{{") &&
           !ahead(lexer, at, "{#"))
        at++;
    if (at == lexer->length) {
        TRY(push_text(lexer, from, at, '+', false));
        advance(lexer, at);
        return STATUS_OK;
    }
    size_t word = behind_word(lexer, at, "raw");
    size_t raw = word ? behind_close_alone(lexer, word, "%}") : 0;
    char sign = sign_at(lexer, at + 2), kind = lexer->source[at + 1];
    TRY(push_text(lexer, from, at, sign, kind == '{'));
    advance(lexer, at);
    size_t inside = at + 2 + (sign != 0);
    if (raw)
        return lex_raw(lexer, raw);
    return kind == '#' ? skip_comment(lexer, inside) : lex_tag(lexer, inside, kind == '{');
}

/* Returns the source with "\n" for every line end, and without the last one. */
static char *normalized(const char *source, size_t *length, struct arena *arena)
{
    char *text = arena_take(arena, *length + 1);
    size_t count = 0;
    if (!text)
        return NULL;
    for (size_t i = 0; i < *length; i++) {
        bool carriage = source[i] == '\r';
        text[count++] = carriage ? '\n' : source[i];
        i += carriage && i + 1 < *length && source[i + 1] == '\n';
    }
    *length = count && text[count - 1] == '\n' ? count - 1 : count;
    return text;
}

enum status lexer_run(const char *source, size_t length, struct arena *arena, struct token **tokens,
                      struct error *err)
{
    struct token *first = NULL;
    struct lexer lexer = {.source = normalized(source, &length, arena),
                          .line = 1,
                          .line_starts = true,
                          .arena = arena,
                          .tail = &first,
                          .err = err};
    if (!lexer.source)
        return error_set(err, STATUS_LIMIT, "the template of %zu bytes is too long", length);
    lexer.length = length;
    while (lexer.at < length)
        TRY(lex_next(&lexer));
    TRY(push_kind(&lexer, TOKEN_END, length, length));
    *tokens = first;
    return STATUS_OK;
}
