/* The "pre_tokenizer" of tokenizer.json: cuts text into the words that BPE works on. Split (all
 * behaviours), Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, ByteLevel, Sequences of
 * these, or none. ByteLevel comes last: it makes BPE a byte-level one. Immutable once made and
 * shared by threads. */
#ifndef BATON_LANGUAGE_TEXT_PRE_TOKENIZER_H
#define BATON_LANGUAGE_TEXT_PRE_TOKENIZER_H

#include "common/language/text/pattern.h"
#include "common/language/text/piece.h"

#define PRE_TOKENIZER_LIMIT_STAGES 16

enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
};

enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

/* Metaspace, here and as a decoder: a character for the space. */
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
        PRE_TOKENIZER_SPACE, /* ByteLevel's: in front of a piece that has none */
    } kind;
    struct pattern pattern;
    enum split_behavior behavior;
    bool invert; /* what doesn't match counts as a match */
    struct metaspace metaspace;
};

struct pre_tokenizer {
    struct pre_tokenizer_stage stages[PRE_TOKENIZER_LIMIT_STAGES];
    size_t stage_count;
    bool byte_level;
};

/* STATUS_UNSUPPORTED with a sentence that names the component. `json` may be NULL: none, a text is
 * one word. */
enum status pre_tokenizer_init(struct pre_tokenizer *pre_tokenizer, const struct json_value *json,
                               struct error *err) WARN_UNUSED;
void pre_tokenizer_deinit(struct pre_tokenizer *pre_tokenizer);

enum status metaspace_read(struct metaspace *metaspace, const struct json_value *json,
                           struct error *err) WARN_UNUSED;

/* Takes the words in order; what it returns but STATUS_OK ends the run. Words are never empty and
 * live for the call. */
struct word_sink {
    enum status (*take)(void *context, const char *word, size_t length, struct error *err);
    void *context;
};

/* STATUS_LIMIT where a pattern backtracks too much. */
enum status pre_tokenizer_run(const struct pre_tokenizer *pre_tokenizer,
                              struct regex_scratch *scratch, struct piece piece,
                              const struct word_sink *sink, struct error *err) WARN_UNUSED;

#endif
