#include "common/base/assert.h"
#include "common/base/utf8.h"
#include "common/language/text/pipeline.h"
#include "common/language/text/unicode.h"
#include "common/language/text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

static enum status read_flags(const struct json_value *json, struct added_token *token,
                              struct error *err)
{
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{"special", &token->special},
                 {"normalized", &token->normalized},
                 {"lstrip", &token->lstrip},
                 {"rstrip", &token->rstrip},
                 {"single_word", &token->single_word}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        TRY(json_get_optional_bool(json, flags[i].key, flags[i].value, err));
    return STATUS_OK;
}

/* Sets *pattern to the token in normalized text, NUL-terminated. The caller frees it. */
static enum status normalize(const struct normalizer *normalizer, const char *text, size_t length,
                             char **pattern, size_t *pattern_length, struct error *err)
{
    struct normalizer_room room;
    struct piece piece = {text, length, 0};
    normalizer_room_init(&room);
    struct regex_scratch *scratch = regex_scratch_create();
    enum status status = normalizer_apply(normalizer, scratch, &room, &piece, err);
    if (status == STATUS_OK && (piece.length == 0 || memchr(piece.text, 0, piece.length)))
        status = error_set(err, STATUS_INVALID, "the normalizer leaves it empty, or with a NUL");
    if (status == STATUS_OK && piece.length > ADDED_TOKENS_LIMIT_PATTERN)
        status =
            error_set(err, STATUS_LIMIT, "%zu bytes after normalizing are over the limit of %d",
                      piece.length, ADDED_TOKENS_LIMIT_PATTERN);
    if (status == STATUS_OK) {
        *pattern = strndup(piece.text, piece.length);
        *pattern_length = piece.length;
    }
    regex_scratch_destroy(scratch);
    normalizer_room_deinit(&room);
    return status;
}

static enum status read_token(const struct json_value *json, const struct normalizer *normalizer,
                              struct added_token *token, struct error *err)
{
    int64_t id;
    const char *content;
    TRY(json_get_i64(json, "id", 0, VOCABULARY_LIMIT_COUNT - 1, &id, err));
    TRY(json_get_string(json, "content", &content, NULL, err));
    TRY(read_flags(json, token, err));
    size_t length = strlen(content);
    if (length == 0 || length > ADDED_TOKENS_LIMIT_BYTES)
        return error_set(err, STATUS_INVALID, "\"content\" has %zu bytes, which isn't within 1..%d",
                         length, ADDED_TOKENS_LIMIT_BYTES);
    token->id = (uint32_t)id;
    token->content = strdup(content);
    token->content_length = length;
    if (token->normalized && normalizer->step_count) {
        TRY(normalize(normalizer, content, length, &token->pattern, &token->pattern_length, err));
    } else {
        token->pattern = strdup(content);
        token->pattern_length = length;
    }
    ASSERT(token->content && token->pattern);
    return STATUS_OK;
}

static int by_pattern(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    if (a->normalized != b->normalized)
        return a->normalized - b->normalized;
    return strcmp(a->pattern, b->pattern);
}

/* Sorts the tokens and finds the range of each pass. STATUS_INVALID: a token is there twice. */
static enum status index_passes(struct added_tokens *added, struct error *err)
{
    qsort(added->tokens, added->count, sizeof *added->tokens, by_pattern);
    for (size_t i = 0; i < added->count; i++) {
        const struct added_token *token = &added->tokens[i];
        if (i && by_pattern(token - 1, token) == 0)
            return error_set(err, STATUS_INVALID, "\"%.40s\" is there twice", token->content);
        struct added_tokens_range *pass =
            &added->passes[token->normalized ? ADDED_TOKENS_NORMALIZED : ADDED_TOKENS_RAW];
        if (pass->to == 0)
            pass->from = i;
        pass->to = i + 1;
        pass->starts[(unsigned char)token->pattern[0]] = true;
        pass->has_special |= token->special;
        if (token->id > added->max_id)
            added->max_id = token->id;
    }
    return STATUS_OK;
}

enum status added_tokens_init(struct added_tokens *added, const struct json_value *json,
                              const struct normalizer *normalizer, struct error *err)
{
    *added = (struct added_tokens){0};
    if (!json)
        return STATUS_OK;
    if (json_kind(json) != JSON_ARRAY)
        return error_set(err, STATUS_INVALID, "expected an array, found %s", json_kind_name(json));
    if (json_count(json) > ADDED_TOKENS_LIMIT_COUNT)
        return error_set(err, STATUS_LIMIT, "%zu are over the limit of %d", json_count(json),
                         ADDED_TOKENS_LIMIT_COUNT);
    added->tokens = calloc(json_count(json) + 1, sizeof *added->tokens);
    ASSERT(added->tokens);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < json_count(json) && status == STATUS_OK; i++) {
        added->count++;
        status = read_token(json_at(json, i), normalizer, &added->tokens[i], err);
        if (status != STATUS_OK)
            error_prefix(err, status, "number %zu", i);
    }
    if (status == STATUS_OK)
        status = index_passes(added, err);
    if (status != STATUS_OK)
        added_tokens_deinit(added);
    return status;
}

void added_tokens_deinit(struct added_tokens *added)
{
    for (size_t i = 0; i < added->count; i++) {
        free(added->tokens[i].content);
        free(added->tokens[i].pattern);
    }
    free(added->tokens);
    *added = (struct added_tokens){0};
}

const struct added_token *added_tokens_find(const struct added_tokens *added, const char *content)
{
    for (size_t i = 0; i < added->count; i++)
        if (strcmp(added->tokens[i].content, content) == 0)
            return &added->tokens[i];
    return NULL;
}

/* Returns the first pattern of a range with at least `byte` at `depth`. The range is equal before
 * `depth`. A pattern's end counts as byte 0, which no pattern has. */
static size_t first_not_below(const struct added_token *tokens, size_t from, size_t to,
                              size_t depth, unsigned byte)
{
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if ((unsigned char)tokens[middle].pattern[depth] < byte)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Returns the longest token that the text starts with, or NULL. */
static const struct added_token *longest_at(const struct added_tokens *added,
                                            const struct added_tokens_range *pass, const char *text,
                                            size_t length)
{
    const struct added_token *longest = NULL;
    size_t from = pass->from, to = pass->to;
    for (size_t depth = 0; depth < length; depth++) {
        unsigned byte = (unsigned char)text[depth];
        if (byte == 0)
            break;
        from = first_not_below(added->tokens, from, to, depth, byte);
        to = first_not_below(added->tokens, from, to, depth, byte + 1);
        if (from == to)
            break;
        if (added->tokens[from].pattern_length == depth + 1)
            longest = &added->tokens[from];
    }
    return longest;
}

/* Returns the character that ends right before text[at]; at > 0, valid UTF-8. */
static struct utf8_char character_before(const char *text, size_t at)
{
    size_t start = at - 1;
    while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80)
        start--;
    return utf8_next(text + start, at - start);
}

/* Returns the match at `start`, with the white space that it takes. The last match ended at
 * `from`. */
static struct added_match with_spaces(const struct added_token *token, const char *text,
                                      size_t length, size_t from, size_t start)
{
    size_t resume = start + token->pattern_length, end = resume;
    if (token->lstrip && start < from) /* the last match took it already, maybe all of it */
        start = from;
    while (token->lstrip && start > from) {
        struct utf8_char before = character_before(text, start);
        if (!unicode_is_space(before.code))
            break;
        start -= before.length;
    }
    if (token->rstrip && end < from) /* white space that the last match took */
        end = from;
    while (token->rstrip && end < length) {
        struct utf8_char behind = utf8_next(text + end, length - end);
        if (!unicode_is_space(behind.code))
            break;
        end += behind.length;
    }
    return (struct added_match){token, start, end, resume};
}

/* Returns whether [from, to) has a byte in common with a plain part. */
static bool touches(struct added_tokens_plain plain, size_t from, size_t to)
{
    size_t low = 0, high = plain.count; /* finds the first part that ends behind `from` */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plain.ranges[middle].to <= from)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plain.count && plain.ranges[low].from < to;
}

struct added_match added_tokens_next(const struct added_tokens *added, enum added_tokens_pass pass,
                                     const char *text, size_t length,
                                     struct added_tokens_plain plain, struct added_match last)
{
    const struct added_tokens_range *range = &added->passes[pass];
    for (size_t at = last.resume; range->to > range->from && at < length; at++) {
        if (!range->starts[(unsigned char)text[at]])
            continue;
        const struct added_token *token = longest_at(added, range, text + at, length - at);
        if (!token)
            continue;
        size_t end = at + token->pattern_length;
        bool is_text = token->special && touches(plain, at, end);
        bool in_word =
            token->single_word &&
            ((at > 0 && unicode_is_word(character_before(text, at).code)) ||
             (end < length && unicode_is_word(utf8_next(text + end, length - end).code)));
        if (!is_text && !in_word)
            return with_spaces(token, text, length, last.end, at);
        at += token->pattern_length - 1; /* as in `tokenizers`, nothing is found inside it */
    }
    return (struct added_match){0};
}
