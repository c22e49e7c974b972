/* One Generate request, made from the flags of `baton generate`, and the answer to it, collected
 * from its messages and written as a line or as JSON. */
#ifndef BATON_CLI_GENERATE_H
#define BATON_CLI_GENERATE_H

#include "common/base/arena.h"
#include "common/base/domain/priority.h"
#include "common/cli/router_call.h"

struct generate_settings {
    char server[128], model[128], request_id[160];
    struct credential_settings credentials;
    struct config_list prompt_ids, stop, stop_ids, logit_bias;
    float temperature, top_p, min_p;
    float presence_penalty, frequency_penalty, repetition_penalty;
    uint32_t top_k, max_tokens, min_tokens, logprobs, prompt_logprobs, n;
    uint64_t seed, timeout_us;
    enum priority priority;
    char slo_class[64];
    bool ignore_eos, logits_hash, echo, json, special, skip_special;
};
extern const struct config_program generate_program;

/* Builds the request in the arena. It holds only settings that were given; the server has defaults
 * for the rest. prompt.bytes: NULL if --prompt-ids has the ids. STATUS_INVALID: both or neither are
 * given, or a value can't be right. */
enum status generate_request_build(const struct generate_settings *settings,
                                   const struct config_result *result, struct text prompt,
                                   struct arena *arena, Baton__V1__GenerateRequest **request,
                                   struct error *err) WARN_UNUSED;

/* --- the answer --- */

/* A choice after the first. */
struct generate_choice {
    struct str text, token_ids;
    uint32_t tokens;
    Baton__V1__FinishReason reason;
};
#define GENERATE_MAX_OTHERS 15 /* the server's limit */

struct generate_answer {
    const char *request_id; /* the caller's; NULL: not known */
    struct str text;        /* begins with the prompt if echo */
    struct str token_ids, logits_hashes, logprobs, prompt_logprobs; /* items of JSON lists */
    struct generate_choice others[GENERATE_MAX_OTHERS];
    uint32_t other_count; /* highest choice from which anything came */
    uint32_t tokens;
    bool finished;
    Baton__V1__FinishReason reason;
    struct str matched; /* the stop string or id that ended it */
    uint32_t prompt_tokens, completion_tokens;
    bool timed;
    double ttft_us, tpot_us, total_us, queue_us, token_1_to_2_us;
    char prefill_worker[64], decode_worker[64], lane[32];
    uint64_t kv_bytes, kv_bytes_before_complete, seed;
    uint32_t prefills;
};

void generate_answer_init(struct generate_answer *answer);
void generate_answer_deinit(struct generate_answer *answer);
/* Adds one message. STATUS_INTERNAL: a token's index isn't the next one, or a choice can't be.
 * STATUS_LIMIT: too long to keep. */
enum status generate_answer_take(struct generate_answer *answer,
                                 const Baton__V1__GenerateResponse *message,
                                 struct error *err) WARN_UNUSED;
/* Appends one JSON object and a line feed. */
void generate_answer_json(const struct generate_answer *answer, struct str *out);
/* Appends one line for a person, without a line feed. */
void generate_answer_figures(const struct generate_answer *answer, struct str *out);

#endif
