/* The "post_processor" of tokenizer.json: special tokens in front of and behind the text's.
 * TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (it only concerns offsets),
 * Sequences of these, or none. */
#ifndef BATON_LANGUAGE_TEXT_POST_PROCESSOR_H
#define BATON_LANGUAGE_TEXT_POST_PROCESSOR_H

#include "common/base/json/json.h"

#define POST_PROCESSOR_LIMIT_COUNT 32 /* tokens on each side */

struct post_processor {
    uint32_t before[POST_PROCESSOR_LIMIT_COUNT], after[POST_PROCESSOR_LIMIT_COUNT];
    size_t before_count, after_count;
};

/* Ids are checked against the vocabulary's count. STATUS_UNSUPPORTED with a sentence that names the
 * component. `json` may be NULL: none. */
enum status post_processor_init(struct post_processor *processor, const struct json_value *json,
                                uint32_t vocabulary_count, struct error *err) WARN_UNUSED;

#endif
