/* The "added_tokens" of tokenizer.json: strings that are one token wherever they stand in a text,
 * found before anything else is done to it ("normalized": false) or in the normalized text
 * ("normalized": true). At each place the longest wins. Immutable once made and shared by
 * threads. */
#ifndef BATON_LANGUAGE_TEXT_ADDED_TOKENS_H
#define BATON_LANGUAGE_TEXT_ADDED_TOKENS_H

#include "common/base/json/json.h"
#include "common/language/text/byte_range.h"
#include "common/language/text/normalizer.h"

#define ADDED_TOKENS_LIMIT_COUNT   65536
#define ADDED_TOKENS_LIMIT_BYTES   1024 /* of one */
#define ADDED_TOKENS_LIMIT_PATTERN 2048 /* of one, normalized */

struct added_token {
    char *content; /* as in the file, NUL-terminated */
    char *pattern; /* what is looked for: content, or its normalized form */
    size_t content_length, pattern_length;
    uint32_t id;
    bool special;     /* not text */
    bool normalized;  /* looked for in the normalized text */
    bool lstrip;      /* takes the white space in front of it along */
    bool rstrip;      /* and behind it */
    bool single_word; /* not next to a letter or digit */
};

enum added_tokens_pass { ADDED_TOKENS_RAW, ADDED_TOKENS_NORMALIZED, ADDED_TOKENS_PASSES };

struct added_tokens {
    struct added_token *tokens; /* in the order of pass, then pattern */
    size_t count;
    struct added_tokens_range {
        size_t from, to;  /* of tokens */
        bool starts[256]; /* first bytes of the patterns */
        bool has_special;
    } passes[ADDED_TOKENS_PASSES];
    uint32_t max_id;
};

/* `json` may be NULL: none. STATUS_INVALID or STATUS_LIMIT with a sentence. */
enum status added_tokens_init(struct added_tokens *added, const struct json_value *json,
                              const struct normalizer *normalizer, struct error *err) WARN_UNUSED;
void added_tokens_deinit(struct added_tokens *added);

/* The token with this content, or NULL. */
const struct added_token *added_tokens_find(const struct added_tokens *added, const char *content);

struct added_match {
    const struct added_token *token; /* NULL: there is none */
    size_t start, end;               /* with the white space that it takes along */
    size_t resume;                   /* the end of its pattern: where to look for the next one */
};

/* Parts of a text in which special tokens are text: one that has a byte in any of them is passed
 * over whole, as `tokenizers` does with encode_special_tokens. In order, not touching; NULL:
 * none. */
struct added_tokens_plain {
    const struct byte_range *ranges;
    size_t count;
};

/* The first one at or behind `last.resume` in text[0..length), valid UTF-8; `last` is the match
 * before, or zero. As with `tokenizers`, a token may start inside the white space that the last one
 * took along: start is then before last.end. One that is nothing but white space may have lost all
 * of it: start >= end, and it doesn't count. */
struct added_match added_tokens_next(const struct added_tokens *added, enum added_tokens_pass pass,
                                     const char *text, size_t length,
                                     struct added_tokens_plain plain, struct added_match last);

#endif
