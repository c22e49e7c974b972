#include "common/language/template/lexer.h"

#include "common/base/utf8.h"
#include "common/language/template/lexer_literal.h"
#include "common/language/template/python_text.h"

#include <string.h>

#define MAX_BRACKETS 256 /* open at once inside a tag */

struct lexer {
    const char *source;
    size_t length, at;
    unsigned line;
    bool line_starts; /* what was read last ends a line */
    struct arena *arena;
    struct token **tail;
    char brackets[MAX_BRACKETS]; /* their closing ones */
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

/* Moves on, counting lines. */
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

/* ------------------------------------------------------------------------------------- text
 * between tags */

/* How much of source[from, to) is left in front of a tag with this sign. */
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

/* Behind a closing "%}" or "#}" at `at`, which may have a sign in front; 0: there is none. */
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

/* Behind "{%", its sign and the word, if that is what stands at `at`; 0 otherwise. */
static size_t behind_word(const struct lexer *lexer, size_t at, const char *word)
{
    if (!ahead(lexer, at, "{%"))
        return 0;
    at += 2;
    at = behind_spaces(lexer, at + (sign_at(lexer, at) != 0));
    return ahead(lexer, at, word) ? behind_spaces(lexer, at + strlen(word)) : 0;
}

/* {% raw %} at `at`: behind it, or 0. */
static size_t behind_raw(const struct lexer *lexer, size_t at)
{
    size_t end = behind_word(lexer, at, "raw");
    if (!end)
        return 0;
    if (ahead(lexer, end, "-%}"))
        return behind_spaces(lexer, end + 3);
    return ahead(lexer, end, "%}") ? end + 2 : 0;
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

/* ------------------------------------------------------------------------------------- inside of a
 * tag */

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

/* Behind the tag's end, if it is here. */
static size_t behind_tag(struct lexer *lexer, bool is_output)
{
    if (lexer->bracket_count)
        return 0;
    if (!is_output)
        return behind_close(lexer, lexer->at, "%}");
    if (ahead(lexer, lexer->at, "-}}"))
        return behind_spaces(lexer, lexer->at + 3);
    return ahead(lexer, lexer->at, "}}") ? lexer->at + 2 : 0;
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
        size_t end = behind_tag(lexer, is_output);
        if (end) {
            TRY(push_kind(lexer, is_output ? TOKEN_OUTPUT_END : TOKEN_BLOCK_END, lexer->at, end));
            close_tag(lexer, end);
            return STATUS_OK;
        }
        TRY(lex_one(lexer));
    }
}

/* ------------------------------------------------------------------------------------- the
 * whole */

/* The text up to the next tag, and the tag. */
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
    size_t raw = behind_raw(lexer, at);
    char sign = sign_at(lexer, at + 2), kind = lexer->source[at + 1];
    TRY(push_text(lexer, from, at, sign, kind == '{'));
    advance(lexer, at);
    size_t inside = at + 2 + (sign != 0);
    if (raw)
        return lex_raw(lexer, raw);
    return kind == '#' ? skip_comment(lexer, inside) : lex_tag(lexer, inside, kind == '{');
}

/* With "\n" for every line end, and without the last one. */
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
