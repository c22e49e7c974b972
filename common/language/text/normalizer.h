/* The "normalizer" of tokenizer.json: what happens to text before it is split. NFC, Prepend,
 * Replace, Sequences of these, or none. Immutable once made and shared by threads. */
#ifndef BATON_LANGUAGE_TEXT_NORMALIZER_H
#define BATON_LANGUAGE_TEXT_NORMALIZER_H

#include "common/base/str.h"
#include "common/language/text/pattern.h"
#include "common/language/text/piece.h"

#define NORMALIZER_LIMIT_STEPS   16
#define NORMALIZER_LIMIT_CONTENT 1024         /* bytes of what is put in */
#define NORMALIZER_LIMIT_BYTES   (192u << 20) /* of a text after any step: form C may triple it */

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

/* STATUS_UNSUPPORTED with a sentence that names the component. `json` may be NULL: none. */
enum status normalizer_init(struct normalizer *normalizer, const struct json_value *json,
                            struct error *err) WARN_UNUSED;
void normalizer_deinit(struct normalizer *normalizer);

/* Where steps write, in turns; one caller at a time. */
struct normalizer_room {
    struct str texts[2];
};

void normalizer_room_init(struct normalizer_room *room);
void normalizer_room_deinit(struct normalizer_room *room);

/* *piece is the normalized one afterwards: either untouched, or in `room` until its next use.
 * STATUS_LIMIT where the text grows over its limit, or a pattern backtracks too much. */
enum status normalizer_apply(const struct normalizer *normalizer, struct regex_scratch *scratch,
                             struct normalizer_room *room, struct piece *piece,
                             struct error *err) WARN_UNUSED;

#endif
