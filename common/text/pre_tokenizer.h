/* The "pre_tokenizer" of tokenizer.json: cuts text into the words that BPE works on. Split (a pattern or a string; Isolated or
 * Removed), Digits, ByteLevel, and Sequences of these that end in ByteLevel: that is what makes BPE a byte-level one.
 * Immutable once made and shared by threads. */
#ifndef BATON_TEXT_PRE_TOKENIZER_H
#define BATON_TEXT_PRE_TOKENIZER_H

#include "common/json/json.h"
#include "common/text/regex.h"

#define PRE_TOKENIZER_LIMIT_STAGES 16

struct pre_tokenizer_stage {
    struct regex *regex; /* NULL: puts a space in front of a piece that has none */
    bool drop_matches;   /* what matches is thrown away */
    bool drop_rest;      /* what doesn't match is */
};

struct pre_tokenizer {
    struct pre_tokenizer_stage stages[PRE_TOKENIZER_LIMIT_STAGES];
    size_t stage_count;
};

/* STATUS_UNSUPPORTED with a sentence that names the component. */
enum status pre_tokenizer_init(struct pre_tokenizer *pre_tokenizer, const struct json_value *json,
                               struct error *err) WARN_UNUSED;
void pre_tokenizer_deinit(struct pre_tokenizer *pre_tokenizer);

/* Takes the words in order; what it returns but STATUS_OK ends the run. Words are never empty and live for the call. */
struct word_sink {
    enum status (*take)(void *context, const char *word, size_t length, struct error *err);
    void *context;
};

/* `text` is valid UTF-8. STATUS_LIMIT where a pattern backtracks too much. */
enum status pre_tokenizer_run(const struct pre_tokenizer *pre_tokenizer,
                              struct regex_scratch *scratch, const char *text, size_t length,
                              const struct word_sink *sink, struct error *err) WARN_UNUSED;

#endif
