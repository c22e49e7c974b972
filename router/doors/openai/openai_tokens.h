/* POST /tokenize and /detokenize, in vLLM's shape. The functions that read a body and write an
 * answer are PURE; the handlers run on the loops of the HTTP server. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_TOKENS_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_TOKENS_H

#include "router/doors/openai/openai_request.h"

struct http_exchange;

struct openai_tokenize {
    struct arena arena;
    struct json *json;  /* the texts below point into it */
    const char *model;  /* "": none named */
    struct text prompt; /* .bytes NULL: a chat */
    bool add_special_tokens;
    bool token_strings;         /* the answer shows each token's text too */
    struct openai_request chat; /* for openai_render; only the fields for a chat are set */
};

struct openai_detokenize {
    struct arena arena; /* `ids` */
    struct json *json;  /* `model` */
    const char *model;  /* "": none named */
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

struct openai_token_strings {
    /* The text of token `id`, and its length in bytes; NULL: unknown id. */
    const char *(*text)(const void *context, uint32_t id, size_t *length);
    const void *context;
};
/* `context` is the model's, in tokens. `strings`: NULL, or the answer shows the tokens' texts. */
void openai_tokenize_json(struct str *out, const uint32_t *ids, size_t count, uint32_t context,
                          const struct openai_token_strings *strings);
void openai_detokenize_json(struct str *out, const char *text, size_t length);

/* Routes of the HTTP server; `context` is the openai_api. */
void openai_handle_tokenize(void *context, struct http_exchange *exchange);
void openai_handle_detokenize(void *context, struct http_exchange *exchange);

#endif
