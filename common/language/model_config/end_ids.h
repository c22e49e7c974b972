/* The tokens that end an answer: the union of the ids that config.json and generation_config.json
 * call eos_token_id, and of the token that tokenizer_config.json calls eos_token. Published models
 * often name only some of them in each file (mlx-vlm#2112, vllm#4180).
 *
 * The two files of ids must be right: a wrong id is an error of model_config_read. An eos_token
 * that can't be used is left out, and `note` says why: the ids alone may be all there is to it. */
#ifndef BATON_LANGUAGE_MODEL_CONFIG_END_IDS_H
#define BATON_LANGUAGE_MODEL_CONFIG_END_IDS_H

#include "common/base/status.h"
#include "common/base/str.h"

#include <stdint.h>

#define MODEL_MAX_END_IDS    32
#define END_IDS_NAME_BYTES   64
#define END_IDS_LIMIT_CONFIG (8u << 20)  /* bytes of tokenizer_config.json */
#define END_IDS_LIMIT_FILE   (64u << 20) /* bytes of tokenizer.json */

enum end_source { END_FROM_CONFIG = 1, END_FROM_GENERATION = 2, END_FROM_TOKENIZER = 4 };

struct end_ids {
    uint32_t count;
    uint32_t ids[MODEL_MAX_END_IDS];                   /* each once, below vocab */
    uint8_t sources[MODEL_MAX_END_IDS];                /* bits of enum end_source */
    char names[MODEL_MAX_END_IDS][END_IDS_NAME_BYTES]; /* spellings; "": not known, or longer */
    struct error note; /* why an eos_token isn't among them; .text "": none is left out */
};

struct json_value;

/* Adds the member eos_token_id of `object`: an id, or a list of ids. STATUS_INVALID: an id isn't
 * below vocab. STATUS_LIMIT: the list, or all ids, are more than MODEL_MAX_END_IDS. On errors
 * *end_ids stays as it is. */
enum status end_ids_add(struct end_ids *end_ids, const struct json_value *object,
                        enum end_source source, uint32_t vocab, struct error *err) WARN_UNUSED;

/* Adds the eos_token of the folder's tokenizer_config.json, a text or an object with "content", and
 * the names of all ids that are found with it. The token's id comes from that file's
 * added_tokens_decoder, or from tokenizer.json. */
void end_ids_add_token(struct end_ids *end_ids, const char *model_dir, uint32_t vocab);

/* Appends one line: each id, its name, and the files that have it. */
void end_ids_describe(const struct end_ids *end_ids, struct str *line);

#endif
