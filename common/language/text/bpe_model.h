/* The "model" member of tokenizer.json: a vocabulary and the merges of BPE. */
#ifndef BATON_LANGUAGE_TEXT_BPE_MODEL_H
#define BATON_LANGUAGE_TEXT_BPE_MODEL_H

#include "common/base/json/json.h"
#include "common/language/text/bpe.h"
#include "common/language/text/decoder.h"

struct bpe_model {
    enum bpe_alphabet_kind kind;
    struct vocabulary
        vocabulary; /* BYTES: of bytes, where the spelling is in their alphabet; else as spelled */
    struct bpe bpe;
};

/* Also tells `decoder` of each token. `max_added_id` is the largest id among added_tokens: both
 * have room for it. STATUS_INVALID, STATUS_LIMIT, or STATUS_UNSUPPORTED with a sentence that names
 * the setting. The struct must not move afterwards. */
enum status bpe_model_init(struct bpe_model *model, const struct json_value *json,
                           enum bpe_alphabet_kind kind, uint32_t max_added_id,
                           struct decoder *decoder, struct error *err) WARN_UNUSED;
void bpe_model_deinit(struct bpe_model *model);

/* A token's bytes in the vocabulary: those that its spelling in tokenizer.json stands for, or as
 * spelled (*findable is false then for BYTES: no text becomes it). `bytes` has room for
 * `length`. */
size_t bpe_model_bytes(const struct bpe_model *model, const char *spelling, size_t length,
                       char *bytes, bool *findable);

#endif
