/* Inside the tokenizer only: the steps of tokenizer.json before the model, in their order. Each is
 * immutable once made and shared by threads. Their `_init` takes the member of tokenizer.json, NULL
 * for none, and fails with STATUS_INVALID, STATUS_LIMIT or STATUS_UNSUPPORTED; the sentence names
 * the component. */
#ifndef BATON_LANGUAGE_TEXT_PIPELINE_H
#define BATON_LANGUAGE_TEXT_PIPELINE_H

#include "common/language/text/regex.h"
#include "common/language/text/tokenizer.h"

#define PIPELINE_LIMIT_DEPTH 4 /* nested Sequences */

/* ------------------------------------------------------------------------------- the normalizer */

/* Changes text before it is split: NFC, Prepend, Replace, or Sequences of these. */
#define NORMALIZER_LIMIT_STEPS   16
#define NORMALIZER_LIMIT_CONTENT 1024 /* bytes that a step inserts */
/* Bytes of a text after any step: NFC may triple a text. */
#define NORMALIZER_LIMIT_BYTES (192u << 20)

struct normalizer_step {
    enum { NORMALIZER_NFC, NORMALIZER_PREPEND, NORMALIZER_REPLACE } kind;
    struct pattern pattern; /* REPLACE */
    char *content;          /* PREPEND, REPLACE */
    size_t content_length;
};

struct normalizer {
    struct normalizer_step steps[NORMALIZER_LIMIT_STEPS];
    size_t step_count;
};

enum status normalizer_init(struct normalizer *normalizer, const struct json_value *json,
                            struct error *err) WARN_UNUSED;
void normalizer_deinit(struct normalizer *normalizer);

/* Two texts that steps write in turns. One for each caller. */
struct normalizer_room {
    struct str texts[2];
};

void normalizer_room_init(struct normalizer_room *room);
void normalizer_room_deinit(struct normalizer_room *room);

/* Normalizes *piece: it then is as it was, or in `room` until the room's next use. STATUS_LIMIT:
 * the text grows over NORMALIZER_LIMIT_BYTES, or a pattern backtracks too much. */
enum status normalizer_apply(const struct normalizer *normalizer, struct regex_scratch *scratch,
                             struct normalizer_room *room, struct piece *piece,
                             struct error *err) WARN_UNUSED;

/* --------------------------------------------------------------------------------- added tokens */

/* Strings that are one token wherever they occur in a text ("added_tokens"). They are found in the
 * text as it came ("normalized": false), or in the normalized text ("normalized": true). At each
 * place the longest wins. */
#define ADDED_TOKENS_LIMIT_COUNT   65536
#define ADDED_TOKENS_LIMIT_BYTES   1024 /* bytes of one */
#define ADDED_TOKENS_LIMIT_PATTERN 2048 /* bytes of one, normalized */

struct added_token {
    char *content; /* as in the file, NUL-terminated */
    char *pattern; /* the string to find: content, or its normalized form */
    size_t content_length, pattern_length;
    uint32_t id;
    bool special;     /* not text */
    bool normalized;  /* found in the normalized text */
    bool lstrip;      /* takes the white space before it too */
    bool rstrip;      /* takes the white space behind it too */
    bool single_word; /* not next to a letter or digit */
};

enum added_tokens_pass { ADDED_TOKENS_RAW, ADDED_TOKENS_NORMALIZED, ADDED_TOKENS_PASSES };

struct added_tokens {
    struct added_token *tokens; /* in the order of pass, then pattern */
    size_t count;
    struct added_tokens_range {
        size_t from, to;  /* tokens[from..to) */
        bool starts[256]; /* by byte: a pattern starts with it */
        bool has_special;
    } passes[ADDED_TOKENS_PASSES];
    uint32_t max_id;
};

enum status added_tokens_init(struct added_tokens *added, const struct json_value *json,
                              const struct normalizer *normalizer, struct error *err) WARN_UNUSED;
void added_tokens_deinit(struct added_tokens *added);

/* Returns the token with this content, or NULL. */
const struct added_token *added_tokens_find(const struct added_tokens *added, const char *content);

struct added_match {
    const struct added_token *token; /* NULL: there is none */
    size_t start, end;               /* with the white space that it takes */
    size_t resume;                   /* end of its pattern: the search goes on here */
};

/* Parts of a text in which special tokens are text, in order and not touching. A special token with
 * a byte in any of them is passed over whole, as `tokenizers` does with encode_special_tokens. */
struct added_tokens_plain {
    const struct byte_range *ranges; /* NULL: none */
    size_t count;
};

/* Returns the first token at or behind last.resume in text[0..length), valid UTF-8. `last` is the
 * match before, or zero. As with `tokenizers`, a token may start inside the white space that the
 * last one took: start is then before last.end. A token that is only white space may have lost all
 * of it: then start >= end, and it doesn't count. */
struct added_match added_tokens_next(const struct added_tokens *added, enum added_tokens_pass pass,
                                     const char *text, size_t length,
                                     struct added_tokens_plain plain, struct added_match last);

/* ---------------------------------------------------------------------------- the pre-tokenizer */

/* Cuts text into the words that BPE works on: Split (all behaviours), Digits, Punctuation,
 * Whitespace, WhitespaceSplit, Metaspace, ByteLevel, or Sequences of these. ByteLevel comes last
 * and makes BPE byte-level. Without a pre-tokenizer a text is one word. */
#define PRE_TOKENIZER_LIMIT_STAGES 16

enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};

enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

/* Metaspace, also as a decoder: a character in place of the space. */
struct metaspace {
    char replacement[5]; /* NUL-terminated */
    size_t length;
    enum prepend_scheme prepend;
    bool split;
};

struct pre_tokenizer_stage {
    enum {
        PRE_TOKENIZER_SPLIT,
        PRE_TOKENIZER_METASPACE,
        PRE_TOKENIZER_SPACE, /* for ByteLevel: a space before a piece without one */
    } kind;
    struct pattern pattern;
    enum split_behavior behavior;
    bool invert; /* text without a match counts as a match */
    struct metaspace metaspace;
};

struct pre_tokenizer {
    struct pre_tokenizer_stage stages[PRE_TOKENIZER_LIMIT_STAGES];
    size_t stage_count;
    bool byte_level;
};

enum status pre_tokenizer_init(struct pre_tokenizer *pre_tokenizer, const struct json_value *json,
                               struct error *err) WARN_UNUSED;
void pre_tokenizer_deinit(struct pre_tokenizer *pre_tokenizer);

enum status metaspace_read(struct metaspace *metaspace, const struct json_value *json,
                           struct error *err) WARN_UNUSED;

/* `take` gets the words in order; any other result than STATUS_OK ends the run. Words are never
 * empty and live for the call. */
struct word_sink {
    enum status (*take)(void *context, const char *word, size_t length, struct error *err);
    void *context;
};

/* STATUS_LIMIT: a pattern backtracks too much. */
enum status pre_tokenizer_run(const struct pre_tokenizer *pre_tokenizer,
                              struct regex_scratch *scratch, struct piece piece,
                              const struct word_sink *sink, struct error *err) WARN_UNUSED;

#endif
