#include "common/language/text/regex_syntax.h"

#include <string.h>

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

/* \p{Han} -> \p{sc:Han}; true when it was one. */
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

/* `[:alpha:]` inside a set, whole. */
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

/* The opening of a set; a `]` right behind it is a member. */
static void open_set(struct reader *reader, struct str *out)
{
    copy(reader, 1, out);
    if (starts_with(reader, "^"))
        copy(reader, 1, out);
    if (starts_with(reader, "]"))
        copy(reader, 1, out);
    reader->in_set = true;
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
            open_set(&reader, out);
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
