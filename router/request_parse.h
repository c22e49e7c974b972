/* The one validator of requests: a GenerateRequest becomes bounded parameters, or a reason and a
 * sentence. PURE. proto/proto_unpack.h has checked that texts are UTF-8, and names are it without a
 * NUL. */
#ifndef BATON_ROUTER_REQUEST_PARSE_H
#define BATON_ROUTER_REQUEST_PARSE_H

#include "common/base/domain/priority.h"
#include "common/base/domain/sampling.h"
#include "common/base/domain/slo.h"
#include "common/base/request_id.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/language/model_config/model_config.h"
#include "proto/baton.pb-c.h"
#include "router/reasons.h"

#include <stddef.h>

#define REQUEST_MAX_TEXT_BYTES   (4u << 20) /* the default of max-text */
#define REQUEST_MAX_STOP_STRINGS 16
#define REQUEST_MAX_STOP_BYTES   256
#define REQUEST_MAX_CHOICES      16
#define REQUEST_MAX_ONCE_SCORED  16384 /* prompt tokens with logprobs in an answer of one message */
/* Bytes of a packed message: room for the ids of 1 Mi tokens, or for a longer max-text and
 * REQUEST_MORE_BYTES for the other fields. */
#define REQUEST_MAX_MESSAGE_BYTES (5u << 20)
#define REQUEST_MORE_BYTES        (1u << 20)

/* The model that a request names. served_models.h finds it. */
struct request_model {
    const char *name;
    uint32_t context, vocab;
    uint64_t max_text_bytes; /* 0: REQUEST_MAX_TEXT_BYTES */
    bool has_tokenizer;
    bool tokens_have_text; /* constraints are possible (detokenizer.h) */
    struct generation_defaults defaults;
    const struct slo_classes *slo; /* the router's; NULL: none */
};

/* Pointers point into the message. */
struct request_params {
    char id[REQUEST_MAX_ID_BYTES + 1]; /* "": the client gave none */
    struct text text;                  /* .bytes NULL: token ids */
    const uint32_t *token_ids;
    size_t token_count;
    bool add_special_tokens;
    struct sampling sampling; /* its `biases` points to those below; a copy must set its own */
    struct logit_bias biases[SAMPLING_MAX_BIASES];
    uint32_t choices;               /* answers, at least 1 */
    uint32_t slo_class;             /* index of the model's `slo`; SLO_NONE: none */
    struct slo_objective objective; /* the class's, as the request loosens it */
    enum priority priority;         /* the request's, otherwise its class's */
    bool seed_given, max_tokens_given;
    /* The request asks for no token (max_tokens 0), only for output about its prompt. Workers then
     * draw one token, which is dropped: `sampling` isn't the client's, and a constraint is only
     * checked. */
    bool prompt_only;
    size_t stop_count;
    struct text stops[REQUEST_MAX_STOP_STRINGS];
    bool return_token_ids, skip_special_tokens, return_timing, return_logits_hash, echo;
};

/* The message asks for no token, only for output about its prompt. */
bool request_prompt_only(const Baton__V1__GenerateRequest *message);

/* The names of fields in sentences, where the doors differ. */
struct request_fields {
    const char *ids, *stops, *stop_ids;
};
extern const struct request_fields request_fields_grpc; /* the names in the message */

/* REASON_NONE: valid. request_fit checks the length, once the number of tokens is known. */
enum reason request_parse(const Baton__V1__GenerateRequest *message,
                          const struct request_fields *fields, const struct request_model *model,
                          struct request_params *params, struct error *err) WARN_UNUSED;

#define REQUEST_SLO_CLASS "x-baton-slo-class" /* the header, or entry of metadata */
/* Makes the class of the header (NULL: none) the message's, which then points to it. `count`: how
 * many such headers there are. REASON_SLO_CLASS_CONFLICT: the message has another class.
 * REASON_MALFORMED: more than one header. */
enum reason request_take_class(Baton__V1__GenerateRequest *message, const char *header,
                               size_t count, struct error *err) WARN_UNUSED;

/* The number of choices, moved into 1 .. REQUEST_MAX_CHOICES; request_parse refuses others. */
uint32_t request_choices(const Baton__V1__GenerateRequest *message);

/* Checks that prompt and answer fit into the context. Without max_tokens any room is enough: the
 * context ends the answer. */
enum reason request_fit(const struct request_model *model, size_t prompt_tokens,
                        struct request_params *params, struct error *err) WARN_UNUSED;

/* The most tokens that a fitting request may use, for its prompt and all its answers. */
uint64_t request_most_tokens(const struct request_model *model, size_t prompt_tokens,
                             const struct request_params *params);

/* Bounds the memory of a request that is answered in one message. REASON_ANSWER_TOO_LARGE: too many
 * prompt tokens to score. */
enum reason request_fit_once(size_t prompt_tokens, const struct request_params *params,
                             struct error *err) WARN_UNUSED;

/* For Tokenize and Detokenize too. `field` is the name in sentences. */
enum reason request_check_text(const struct request_model *model, struct text text,
                               struct error *err) WARN_UNUSED;
enum reason request_check_ids(const struct request_model *model, const char *field,
                              const uint32_t *ids, size_t count, struct error *err) WARN_UNUSED;

/* True: at most REQUEST_MAX_ID_BYTES of printable ASCII without blanks. */
bool request_id_valid(const char *id);

#endif
