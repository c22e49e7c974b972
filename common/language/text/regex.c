#include "common/language/text/regex.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* ---------------------------------------------------------------------- from Oniguruma to PCRE2 */

struct reader {
    const char *text;
    size_t length, at;
    bool in_set;
};

static bool starts_with(const struct reader *reader, const char *prefix)
{
    size_t count = strlen(prefix);
    return reader->length - reader->at >= count &&
           memcmp(reader->text + reader->at, prefix, count) == 0;
}

static void copy(struct reader *reader, size_t count, struct str *out)
{
    if (count > reader->length - reader->at)
        count = reader->length - reader->at;
    str_append(out, reader->text + reader->at, count);
    reader->at += count;
}

/* Translates \p{Han} to \p{sc:Han}. Returns false if it is no script. */
static bool translate_script(struct reader *reader, struct str *out)
{
    static const char *const scripts[] = {"Han",   "Hiragana", "Katakana", "Hangul", "Latin",
                                          "Greek", "Cyrillic", "Arabic",   "Hebrew", "Thai"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        for (int negated = 0; negated < 2; negated++) {
            char written[24] = {'\\', negated ? 'P' : 'p', '{'};
            strcat(strcat(written, scripts[i]), "}");
            if (!starts_with(reader, written))
                continue;
            str_addf(out, "\\%c{sc:%s}", written[1], scripts[i]);
            reader->at += strlen(written);
            return true;
        }
    }
    return false;
}

static void translate_escape(struct reader *reader, struct str *out)
{
    static const struct {
        char letter;
        const char *members;
    } classes[] = {{'s', "\\p{Z}\\x09-\\x0D\\x{85}"}, {'h', "0-9A-Fa-f"}};
    char letter = reader->at + 1 < reader->length ? reader->text[reader->at + 1] : 0;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        bool negated = letter == classes[i].letter - 'a' + 'A';
        if (letter != classes[i].letter && (!negated || reader->in_set))
            continue;
        if (reader->in_set)
            str_add(out, classes[i].members);
        else
            str_addf(out, "[%s%s]", negated ? "^" : "", classes[i].members);
        reader->at += 2;
        return;
    }
    if (!translate_script(reader, out))
        copy(reader, 2, out);
}

/* Copies `[:alpha:]` inside a set as a whole. Returns false if it is none. */
static bool copy_posix_class(struct reader *reader, struct str *out)
{
    if (!starts_with(reader, "[:"))
        return false;
    const char *from = reader->text + reader->at;
    const char *end = memmem(from, reader->length - reader->at, ":]", 2);
    if (!end)
        return false;
    copy(reader, (size_t)(end - from) + 2, out);
    return true;
}

enum status regex_syntax_translate(const char *pattern, size_t length, struct str *out,
                                   struct error *err)
{
    struct reader reader = {.text = pattern, .length = length};
    while (reader.at < length) {
        char c = pattern[reader.at];
        if (c == '\\') {
            translate_escape(&reader, out);
        } else if (!reader.in_set && c == '[') {
            copy(&reader, 1, out);
            if (starts_with(&reader, "^"))
                copy(&reader, 1, out);
            if (starts_with(&reader, "]")) /* right behind the opening: a member */
                copy(&reader, 1, out);
            reader.in_set = true;
        } else if (reader.in_set && c == '[') {
            if (!copy_posix_class(&reader, out))
                return error_set(err, STATUS_UNSUPPORTED,
                                 "a pattern with a set inside a set isn't supported");
        } else if (reader.in_set && starts_with(&reader, "&&")) {
            return error_set(err, STATUS_UNSUPPORTED,
                             "a pattern with an intersection of sets (&&) isn't supported");
        } else {
            reader.in_set = reader.in_set && c != ']';
            copy(&reader, 1, out);
        }
    }
    return STATUS_OK;
}

/* -------------------------------------------------------------------------------------- PCRE2 */

#define PATTERN_LIMIT_BYTES 8192
/* A search begins on 32 KiB of the thread's own stack. Few searches need a stack of their own, and
 * a mapping for each would cost more than the search. */
#define JIT_STACK_START_BYTES (64 * 1024)
#define JIT_STACK_LIMIT_BYTES (1024 * 1024)
/* Backtracking steps of one search. Published patterns need a few steps for each character. */
#define MATCH_LIMIT    10000000
#define HEAP_LIMIT_KIB (64 * 1024)
#define COMPILE_OPTIONS                                                                            \
    (PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE)

struct regex {
    pcre2_code *code;
    bool jit;
};

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack; /* NULL: not needed yet */
};

static enum status compile(const struct str *pattern, struct regex *regex, struct error *err)
{
    int code;
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    ASSERT(context);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    regex->code = pcre2_compile((PCRE2_SPTR)pattern->data, pattern->length, COMPILE_OPTIONS, &code,
                                &offset, context);
    pcre2_compile_context_free(context);
    if (!regex->code) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return error_set(err, STATUS_UNSUPPORTED, "the pattern %.200s can't be used: %s",
                         pattern->data, reason);
    }
    /* Without a JIT for this machine the interpreter does it, at a quarter of the speed. */
    regex->jit = pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE) == 0;
    return STATUS_OK;
}

enum status regex_create(const char *pattern, size_t length, struct regex **regex,
                         struct error *err)
{
    if (length > PATTERN_LIMIT_BYTES)
        return error_set(err, STATUS_LIMIT, "a pattern of %zu bytes is over the limit of %d",
                         length, PATTERN_LIMIT_BYTES);
    struct str translated;
    struct regex made = {0};
    str_init(&translated, 16 * PATTERN_LIMIT_BYTES);
    enum status status = regex_syntax_translate(pattern, length, &translated, err);
    if (status == STATUS_OK)
        status = compile(&translated, &made, err);
    str_deinit(&translated);
    if (status != STATUS_OK)
        return status;
    *regex = malloc(sizeof **regex);
    ASSERT(*regex);
    **regex = made;
    return STATUS_OK;
}

void regex_destroy(struct regex *regex)
{
    if (!regex)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

struct regex_scratch *regex_scratch_create(void)
{
    struct regex_scratch *scratch = malloc(sizeof *scratch);
    ASSERT(scratch);
    scratch->data = pcre2_match_data_create(1, NULL);
    scratch->context = pcre2_match_context_create(NULL);
    ASSERT(scratch->data && scratch->context);
    pcre2_set_match_limit(scratch->context, MATCH_LIMIT);
    pcre2_set_heap_limit(scratch->context, HEAP_LIMIT_KIB);
    scratch->stack = NULL;
    return scratch;
}

void regex_scratch_destroy(struct regex_scratch *scratch)
{
    pcre2_jit_stack_free(scratch->stack);
    pcre2_match_context_free(scratch->context);
    pcre2_match_data_free(scratch->data);
    free(scratch);
}

/* Without NO_UTF_CHECK each search would validate the whole rest of the text: O(n^2) in all. The
 * JIT's own entry skips the checks of pcre2_match, which cost as much as finding a short word. */
static int match_at(const struct regex *regex, struct regex_scratch *scratch, const char *text,
                    size_t length, size_t from)
{
    return regex->jit ? pcre2_jit_match(regex->code, (PCRE2_SPTR)text, length, from, 0,
                                        scratch->data, scratch->context)
                      : pcre2_match(regex->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK,
                                    scratch->data, scratch->context);
}

enum status regex_find(const struct regex *regex, struct regex_scratch *scratch, const char *text,
                       size_t length, size_t from, struct regex_match *match, struct error *err)
{
    int code = match_at(regex, scratch, text, length, from);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT && !scratch->stack) {
        scratch->stack = pcre2_jit_stack_create(JIT_STACK_START_BYTES, JIT_STACK_LIMIT_BYTES, NULL);
        if (scratch->stack) {
            pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
            code = match_at(regex, scratch, text, length, from);
        }
    }
    *match = (struct regex_match){.start = length, .end = length};
    if (code == PCRE2_ERROR_NOMATCH)
        return STATUS_OK;
    if (code < 0) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return error_set(err, STATUS_LIMIT, "splitting the text failed near byte %zu: %s", from,
                         reason);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch->data);
    /* \K inside a lookahead could set the start behind the end. */
    *match = (struct regex_match){true, ends[0] < ends[1] ? ends[0] : ends[1], ends[1]};
    return STATUS_OK;
}

/* ------------------------------------------------------------------------------------- patterns */

enum status pattern_read(struct pattern *pattern, const struct json_value *json, struct error *err)
{
    const char *text;
    size_t length;
    *pattern = (struct pattern){0};
    if (json_find(json, "Regex")) {
        TRY(json_get_string(json, "Regex", &text, &length, err));
        return regex_create(text, length, &pattern->regex, err);
    }
    TRY(json_get_string(json, "String", &text, &length, err));
    if (length == 0) /* matches between any two characters, as an empty regex does */
        return regex_create("", 0, &pattern->regex, err);
    if (length > PATTERN_LIMIT_STRING)
        return error_set(err, STATUS_LIMIT, "a string of %zu bytes is over the limit of %d", length,
                         PATTERN_LIMIT_STRING);
    pattern->string = malloc(length);
    ASSERT(pattern->string);
    memcpy(pattern->string, text, length);
    pattern->string_length = length;
    return STATUS_OK;
}

void pattern_deinit(struct pattern *pattern)
{
    regex_destroy(pattern->regex);
    free(pattern->string);
    *pattern = (struct pattern){0};
}

/* Finds the first match at or behind search->from. */
static enum status find(const struct pattern *pattern, const struct pattern_search *search,
                        struct regex_match *match, struct error *err)
{
    *match = (struct regex_match){.start = search->length, .end = search->length};
    if (pattern->string) {
        const char *found = memmem(search->text + search->from, search->length - search->from,
                                   pattern->string, pattern->string_length);
        size_t start = found ? (size_t)(found - search->text) : 0;
        if (found)
            *match = (struct regex_match){true, start, start + pattern->string_length};
        return STATUS_OK;
    }
    if (!pattern->has)
        return regex_find(pattern->regex, search->scratch, search->text, search->length,
                          search->from, match, err);
    for (size_t at = search->from; at < search->length && !match->found;) {
        struct utf8_char next = utf8_next(search->text + at, search->length - at);
        if (pattern->has(next.code))
            *match = (struct regex_match){true, at, at + next.length};
        at += next.length;
    }
    return STATUS_OK;
}

enum status pattern_next(const struct pattern *pattern, struct pattern_search *search,
                         struct regex_match *match, struct error *err)
{
    *match = (struct regex_match){.start = search->length, .end = search->length};
    while (search->from <= search->length) {
        struct regex_match found;
        TRY(find(pattern, search, &found, err));
        if (!found.found)
            break;
        if (found.start < found.end || !search->has_last || search->last_end != found.end) {
            search->from = search->last_end = found.end;
            search->has_last = true;
            *match = found;
            return STATUS_OK;
        }
        search->from +=
            search->from < search->length
                ? utf8_next(search->text + search->from, search->length - search->from).length
                : 1;
    }
    search->from = search->length + 1;
    return STATUS_OK;
}

enum status pattern_replace(const struct pattern *pattern, struct pattern_search *search,
                            const char *content, size_t content_length, struct str *out,
                            struct error *err)
{
    struct regex_match match = {.found = true};
    size_t head = 0;
    for (size_t at = 0; match.found && !out->truncated; at = match.end) {
        TRY(pattern_next(pattern, search, &match, err));
        str_append(out, search->text + at, match.start - at);
        head += head_of_part(search->head, at, match.start);
        if (match.found) {
            str_append(out, content, content_length);
            head += match.end <= search->head ? content_length : 0;
        }
    }
    search->head = head;
    return STATUS_OK;
}
