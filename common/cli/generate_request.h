/* The flags of `baton generate` and the request that they mean. Only what was given is put into the
 * request: the rest is the server's default. */
#ifndef BATON_CLI_GENERATE_REQUEST_H
#define BATON_CLI_GENERATE_REQUEST_H

#include "common/base/arena.h"
#include "common/base/config/config.h"
#include "common/base/domain/priority.h"
#include "common/cli/call_credentials.h"
#include "proto/baton.pb-c.h"

struct generate_settings {
    char server[128], model[128], request_id[160];
    struct credential_settings credentials;
    struct config_list prompt_ids, stop, stop_ids, logit_bias;
    float temperature, top_p, min_p;
    float presence_penalty, frequency_penalty, repetition_penalty;
    uint32_t top_k, max_tokens, min_tokens, logprobs, prompt_logprobs, n;
    uint64_t seed, timeout_us;
    enum priority priority;
    bool ignore_eos, logits_hash, echo, json, special, skip_special;
};
extern const struct config_program generate_program;

/* Builds the request in the arena. `prompt`: NULL where --prompt-ids gives ids. STATUS_INVALID:
 * both or neither, or what is no id. */
enum status generate_request_build(const struct generate_settings *settings,
                                   const struct config_result *result, const char *prompt,
                                   struct arena *arena, Baton__V1__GenerateRequest **request,
                                   struct error *err) WARN_UNUSED;

#endif
