/* The answer of one Generate call, put together from its messages, and told to a person or as
 * JSON. */
#ifndef BATON_CLI_GENERATE_ANSWER_H
#define BATON_CLI_GENERATE_ANSWER_H

#include "common/base/str.h"
#include "proto/baton.pb-c.h"

/* One of those after the first. */
struct generate_choice {
    struct str text, token_ids;
    uint32_t tokens;
    Baton__V1__FinishReason reason;
};
#define GENERATE_MAX_OTHERS 15 /* as the server */

struct generate_answer {
    struct str text; /* with echo, the prompt first */
    struct str token_ids, logits_hashes, logprobs,
        prompt_logprobs; /* items of JSON lists, with commas */
    struct generate_choice others[GENERATE_MAX_OTHERS];
    uint32_t other_count; /* that have said anything, or others after them */
    uint32_t tokens;
    bool finished;
    Baton__V1__FinishReason reason;
    char matched[300]; /* the stop string or id that ended it */
    uint32_t prompt_tokens, completion_tokens;
    bool timed;
    double ttft_us, tpot_us, total_us, queue_us, token_1_to_2_us;
    char prefill_worker[64], decode_worker[64], lane[32];
    uint64_t kv_bytes, kv_bytes_before_complete, seed;
    uint32_t prefills;
};

void generate_answer_init(struct generate_answer *answer);
void generate_answer_deinit(struct generate_answer *answer);
/* Takes one message in. STATUS_INTERNAL: token indices that don't follow each other. STATUS_LIMIT:
 * too long to keep. */
enum status generate_answer_take(struct generate_answer *answer,
                                 const Baton__V1__GenerateResponse *message,
                                 struct error *err) WARN_UNUSED;
/* One JSON object and a line feed. */
void generate_answer_json(const struct generate_answer *answer, struct str *out);
/* One line for a person. */
void generate_answer_figures(const struct generate_answer *answer, struct str *out);

#endif
