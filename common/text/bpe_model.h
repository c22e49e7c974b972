/* The "model" member of tokenizer.json: a vocabulary and the merges of byte-level BPE. */
#ifndef BATON_TEXT_BPE_MODEL_H
#define BATON_TEXT_BPE_MODEL_H

#include "common/json/json.h"
#include "common/text/bpe.h"

struct bpe_model {
    struct vocabulary vocabulary;
    struct bpe bpe;
};

/* `max_added_id` is the largest id among added_tokens: the vocabulary has room for it. STATUS_INVALID, STATUS_LIMIT, or
 * STATUS_UNSUPPORTED with a sentence that names the setting. The struct must not move afterwards. */
enum status bpe_model_init(struct bpe_model *model, const struct json_value *json,
                           uint32_t max_added_id, struct error *err) WARN_UNUSED;
void bpe_model_deinit(struct bpe_model *model);

/* The bytes that a token's spelling in tokenizer.json stands for: byte-level where every character is of that alphabet,
 * as written otherwise (*spelled_in_bytes is false then). `bytes` has room for `length`. */
size_t bpe_model_bytes(const char *spelling, size_t length, char *bytes, bool *spelled_in_bytes);

#endif
