/* POST /tokenize and /detokenize, in vLLM's shape. PURE: reading what is asked and writing the
 * answer; the tokenizer is the caller's. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_TOKENS_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_TOKENS_H

#include "router/doors/openai/openai_request.h"

struct openai_tokenize {
    struct arena arena; /* with what is in it */
    struct json *json;
    const char *model;  /* "": none named */
    const char *prompt; /* NULL: a chat */
    bool add_special_tokens;
    bool token_strings;         /* wanted too */
    struct openai_request chat; /* of messages: to be rendered with openai_render */
};

struct openai_detokenize {
    struct arena arena;
    struct json *json;
    const char *model;
    const uint32_t *ids;
    size_t id_count;
};

/* False: *refusal says why, and there is nothing to deinit. */
bool openai_tokenize_read(struct openai_tokenize *tokenize, const char *body, size_t length,
                          size_t max_bytes, struct openai_refusal *refusal);
void openai_tokenize_deinit(struct openai_tokenize *tokenize);
bool openai_detokenize_read(struct openai_detokenize *detokenize, const char *body, size_t length,
                            size_t max_bytes, struct openai_refusal *refusal);
void openai_detokenize_deinit(struct openai_detokenize *detokenize);

/* `strings[i]` of each id, with its length; NULL: not wanted. */
struct openai_token_strings {
    const char *(*text)(const void *context, uint32_t id, size_t *length);
    const void *context;
};
void openai_tokenize_json(struct str *out, const uint32_t *ids, size_t count, uint32_t context,
                          const struct openai_token_strings *strings);
void openai_detokenize_json(struct str *out, const char *text, size_t length);

#endif
