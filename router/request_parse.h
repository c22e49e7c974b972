/* The one validator of what clients ask: a GenerateRequest becomes bounded parameters, or a reason
 * and a sentence. PURE. Strings are UTF-8 without NUL already (proto/proto_unpack.h). */
#ifndef BATON_ROUTER_REQUEST_PARSE_H
#define BATON_ROUTER_REQUEST_PARSE_H

#include "common/base/domain/priority.h"
#include "common/base/domain/sampling.h"
#include "common/base/request_id.h"
#include "common/base/status.h"
#include "common/language/model_config/model_config.h"
#include "proto/baton.pb-c.h"
#include "router/reasons.h"

#include <stddef.h>

#define REQUEST_MAX_TEXT_BYTES   (4u << 20) /* unless the settings say otherwise */
#define REQUEST_MAX_STOP_STRINGS 16
#define REQUEST_MAX_STOP_BYTES   256
#define REQUEST_MAX_CHOICES      16
#define REQUEST_MAX_ONCE_SCORED  16384 /* prompt tokens with logprobs, of an answer in one message */
/* Of the packed message: the ids of a context of 1 Mi tokens; or the longest text, if that is more,
 * and all else. */
#define REQUEST_MAX_MESSAGE_BYTES (5u << 20)
#define REQUEST_MORE_BYTES        (1u << 20)

/* What a request is checked against: the model that it names (served_models.h), which the caller
 * has found. */
struct request_model {
    const char *name;
    uint32_t context, vocab;
    uint64_t max_text_bytes; /* 0: REQUEST_MAX_TEXT_BYTES */
    bool has_tokenizer;
    bool tokens_have_text; /* what a constraint is about (token_text.h) */
    struct generation_defaults defaults;
};

/* Pointers lead into the message. */
struct request_params {
    char id[REQUEST_MAX_ID_BYTES + 1]; /* "": the client gave none */
    const char *text;                  /* NULL: token ids */
    const uint32_t *token_ids;
    size_t token_count;
    bool add_special_tokens;
    struct sampling sampling; /* its biases are those below; a copy must point to its own */
    struct logit_bias biases[SAMPLING_MAX_BIASES];
    uint32_t choices; /* answers, at least 1 */
    enum priority priority;
    bool seed_given, max_tokens_given;
    /* It asks for no token (max_tokens 0), only for what is told of its prompt. Workers are asked
     * for one, which isn't told: sampling is not what was asked then, and a constraint is looked at
     * and passed over. */
    bool prompt_only;
    size_t stop_count;
    const char *stops[REQUEST_MAX_STOP_STRINGS];
    bool return_token_ids, skip_special_tokens, return_timing, return_logits_hash, echo;
};

/* Whether prompt_only is to become true: it asks for no token, but about its prompt. */
bool request_prompt_only(const Baton__V1__GenerateRequest *message);

/* How a door calls what sentences name; the others have one name at all doors. */
struct request_fields {
    const char *ids, *stops, *stop_ids;
};
extern const struct request_fields request_fields_grpc; /* those of the message */

/* REASON_NONE: fine. The length is checked by request_fit, when the number of tokens is known. */
enum reason request_parse(const Baton__V1__GenerateRequest *message,
                          const struct request_fields *fields, const struct request_model *model,
                          struct request_params *params, struct error *err) WARN_UNUSED;

/* How many choices it asks for; where that is not within 1 .. REQUEST_MAX_CHOICES, the nearest:
 * request_parse refuses it. */
uint32_t request_choices(const Baton__V1__GenerateRequest *message);

/* Prompt and answer must fit into the context. Where the client named no max_tokens the default
 * shrinks to the room there is. */
enum reason request_fit(const struct request_model *model, size_t prompt_tokens,
                        struct request_params *params, struct error *err) WARN_UNUSED;

/* Of one that fits: as many tokens as it may use, its prompt and all its answers. */
uint64_t request_most_tokens(const struct request_model *model, size_t prompt_tokens,
                             const struct request_params *params);

/* Of a request that is answered in one message: what is kept for that is bounded. */
enum reason request_fit_once(size_t prompt_tokens, const struct request_params *params,
                             struct error *err) WARN_UNUSED;

/* Of Tokenize and Detokenize too. */
enum reason request_check_text(const struct request_model *model, const char *text,
                               struct error *err) WARN_UNUSED;
enum reason request_check_ids(const struct request_model *model, const char *field,
                              const uint32_t *ids, size_t count, struct error *err) WARN_UNUSED;

/* Whether it may be a request id: at most REQUEST_MAX_ID_BYTES of printable ASCII without
 * blanks. */
bool request_id_valid(const char *id);

#endif
