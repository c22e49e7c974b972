/* Internal to the decoder: the steps that each token's spelling goes through, in their order.
 * decoder.c reads them from tokenizer.json; here they run. Immutable once read. */
#ifndef BATON_LANGUAGE_TEXT_DECODER_STEPS_H
#define BATON_LANGUAGE_TEXT_DECODER_STEPS_H

#include "common/base/str.h"
#include "common/language/text/decoder.h"
#include "common/language/text/pre_tokenizer.h"

struct decoder_step {
    enum { STEP_REPLACE, STEP_STRIP, STEP_METASPACE } kind;
    struct pattern pattern; /* REPLACE */
    char *content;
    size_t content_length;
    char stripped[5]; /* STRIP: one character */
    size_t stripped_length, start, stop;
    struct metaspace metaspace;
};

/* What the spelling becomes, in `text`, which has it now; `other` is room. `first`: of a text.
 * STATUS_LIMIT, or what a pattern fails with. */
enum status decoder_steps_run(const struct decoder *decoder, struct regex_scratch *scratch,
                              bool first, struct str *text, struct str *other,
                              struct error *err) WARN_UNUSED;
/* Whether a token reads differently at the start of a text. */
bool decoder_steps_know_first(const struct decoder *decoder);

#endif
