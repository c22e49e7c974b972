#include "common/cli/generate_answer.h"

#include "common/base/domain/sampling.h"
#include "common/base/json/json_quote.h"

#include <inttypes.h>
#include <string.h>

#define MAX_PART_BYTES (32u << 20)

void generate_answer_init(struct generate_answer *answer)
{
    *answer = (struct generate_answer){0};
    str_init(&answer->text, MAX_PART_BYTES);
    str_init(&answer->token_ids, MAX_PART_BYTES);
    str_init(&answer->logits_hashes, MAX_PART_BYTES);
    str_init(&answer->logprobs, MAX_PART_BYTES);
    str_init(&answer->prompt_logprobs, MAX_PART_BYTES);
    for (int i = 0; i < GENERATE_MAX_OTHERS; i++) {
        str_init(&answer->others[i].text, MAX_PART_BYTES);
        str_init(&answer->others[i].token_ids, MAX_PART_BYTES);
    }
}

void generate_answer_deinit(struct generate_answer *answer)
{
    str_deinit(&answer->text);
    str_deinit(&answer->token_ids);
    str_deinit(&answer->logits_hashes);
    str_deinit(&answer->logprobs);
    str_deinit(&answer->prompt_logprobs);
    for (int i = 0; i < GENERATE_MAX_OTHERS; i++) {
        str_deinit(&answer->others[i].text);
        str_deinit(&answer->others[i].token_ids);
    }
}

static void add_logprobs(struct str *out, const Baton__V1__Logprobs *logprobs)
{
    str_addf(out, "%s{\"drawn\": %.9g, \"top\": [", out->length ? ", " : "",
             (double)logprobs->drawn);
    for (size_t i = 0; i < logprobs->n_top_ids && i < logprobs->n_top; i++)
        str_addf(out, "%s[%" PRIu32 ", %.9g]", i ? ", " : "", logprobs->top_ids[i],
                 (double)logprobs->top[i]);
    str_add(out, "]}");
}

/* NULL: more than there can be. */
static struct generate_choice *other_of(struct generate_answer *answer, uint32_t choice)
{
    if (choice > GENERATE_MAX_OTHERS)
        return NULL;
    if (choice > answer->other_count)
        answer->other_count = choice;
    return &answer->others[choice - 1];
}

static enum status take_other(struct generate_answer *answer, const Baton__V1__Delta *delta,
                              struct error *err)
{
    struct generate_choice *other = other_of(answer, delta->choice);
    if (!other)
        return error_set(err, STATUS_INTERNAL, "a part of choice %u came", delta->choice);
    str_add(&other->text, delta->text);
    for (size_t i = 0; i < delta->n_token_ids; i++)
        str_addf(&other->token_ids, "%s%" PRIu32, other->tokens++ ? ", " : "", delta->token_ids[i]);
    if (other->text.truncated || other->token_ids.truncated)
        return error_set(err, STATUS_LIMIT, "choice %u is too long to keep", delta->choice);
    return STATUS_OK;
}

static enum status take_delta(struct generate_answer *answer, const Baton__V1__Delta *delta,
                              struct error *err)
{
    if (delta->choice)
        return take_other(answer, delta, err);
    if (delta->n_token_ids && delta->first_index != answer->tokens)
        return error_set(err, STATUS_INTERNAL, "token %u came where token %u was due",
                         delta->first_index, answer->tokens);
    str_add(&answer->text, delta->text);
    for (size_t i = 0; i < delta->n_token_ids; i++)
        str_addf(&answer->token_ids, "%s%" PRIu32, answer->tokens++ ? ", " : "",
                 delta->token_ids[i]);
    for (size_t i = 0; i < delta->n_logits_hashes; i++)
        str_addf(&answer->logits_hashes, "%s\"%016" PRIx64 "\"",
                 answer->logits_hashes.length ? ", " : "", delta->logits_hashes[i]);
    for (size_t i = 0; i < delta->n_logprobs; i++)
        add_logprobs(&answer->logprobs, delta->logprobs[i]);
    if (answer->text.truncated || answer->token_ids.truncated || answer->logits_hashes.truncated ||
        answer->logprobs.truncated || answer->prompt_logprobs.truncated)
        return error_set(err, STATUS_LIMIT, "the answer is too long to keep");
    return STATUS_OK;
}

static void take_finished(struct generate_answer *answer, const Baton__V1__Finished *finished)
{
    if (finished->choice) {
        struct generate_choice *other = other_of(answer, finished->choice);
        if (other)
            other->reason = finished->reason;
        return;
    }
    answer->finished = true;
    answer->reason = finished->reason;
    struct str matched;
    str_init(&matched, sizeof answer->matched - 1);
    if (finished->matched_case == BATON__V1__FINISHED__MATCHED_STOP_STRING)
        str_add(&matched, finished->stop_string);
    else if (finished->matched_case == BATON__V1__FINISHED__MATCHED_STOP_TOKEN)
        str_addf(&matched, "%" PRIu32, finished->stop_token);
    str_copy(answer->matched, sizeof answer->matched, matched.data);
    str_deinit(&matched);
}

static void take_timing(struct generate_answer *answer, const Baton__V1__Timing *timing)
{
    answer->timed = true;
    answer->queue_us = (double)timing->queue_us;
    answer->ttft_us = (double)timing->ttft_us;
    answer->total_us = (double)timing->total_us;
    answer->tpot_us = timing->tpot_us;
    answer->token_1_to_2_us = (double)timing->token_1_to_2_us;
    str_copy(answer->prefill_worker, sizeof answer->prefill_worker, timing->prefill_worker);
    str_copy(answer->decode_worker, sizeof answer->decode_worker, timing->decode_worker);
    str_copy(answer->lane, sizeof answer->lane, timing->lane);
    answer->kv_bytes = timing->kv_bytes;
    answer->kv_bytes_before_complete = timing->kv_bytes_before_complete;
    answer->prefills = timing->prefills;
    answer->seed = timing->seed;
}

enum status generate_answer_take(struct generate_answer *answer,
                                 const Baton__V1__GenerateResponse *message, struct error *err)
{
    switch (message->event_case) {
    case BATON__V1__GENERATE_RESPONSE__EVENT_DELTA: return take_delta(answer, message->delta, err);
    case BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT:
        str_add(&answer->text, message->prompt->text);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_PROMPT_LOGPROBS:
        for (size_t i = 0; i < message->prompt_logprobs->n_logprobs; i++)
            add_logprobs(&answer->prompt_logprobs, message->prompt_logprobs->logprobs[i]);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_FINISHED:
        take_finished(answer, message->finished);
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_USAGE:
        answer->prompt_tokens = message->usage->prompt_tokens;
        answer->completion_tokens = message->usage->completion_tokens;
        break;
    case BATON__V1__GENERATE_RESPONSE__EVENT_TIMING: take_timing(answer, message->timing); break;
    default: break; /* of a newer server */
    }
    return STATUS_OK;
}

static void add_text(struct str *out, const char *key, const char *value, size_t length)
{
    str_addf(out, ", \"%s\": ", key);
    json_quote(out, value, length);
}

static void add_others(struct str *out, const struct generate_answer *answer)
{
    str_add(out, ", \"others\": [");
    for (uint32_t i = 0; i < answer->other_count; i++) {
        const struct generate_choice *other = &answer->others[i];
        const char *reason = finish_reason_name((enum finish_reason)other->reason);
        str_addf(out, "%s{\"token_ids\": [%s]", i ? ", " : "", other->token_ids.data);
        add_text(out, "text", other->text.data, other->text.length);
        add_text(out, "finish_reason", reason, strlen(reason));
        str_add(out, "}");
    }
    str_add(out, "]");
}

void generate_answer_json(const struct generate_answer *answer, struct str *out)
{
    str_add(out, "{\"text\": ");
    json_quote(out, answer->text.data, answer->text.length);
    str_addf(out, ", \"token_ids\": [%s]", answer->token_ids.data);
    const char *reason = finish_reason_name((enum finish_reason)answer->reason);
    add_text(out, "finish_reason", reason, strlen(reason));
    add_text(out, "matched", answer->matched, strlen(answer->matched));
    str_addf(out, ", \"logits_hashes\": [%s]", answer->logits_hashes.data);
    if (answer->logprobs.length)
        str_addf(out, ", \"logprobs\": [%s]", answer->logprobs.data);
    if (answer->other_count)
        add_others(out, answer);
    if (answer->prompt_logprobs.length)
        str_addf(out, ", \"prompt_logprobs\": [%s]", answer->prompt_logprobs.data);
    str_addf(out, ", \"ttft_ms\": %.3f, \"tpot_ms\": %.3f, \"total_ms\": %.3f, \"queue_ms\": %.3f",
             answer->ttft_us * 1e-3, answer->tpot_us * 1e-3, answer->total_us * 1e-3,
             answer->queue_us * 1e-3);
    str_addf(out, ", \"token_1_to_2_ms\": %.3f", answer->token_1_to_2_us * 1e-3);
    add_text(out, "prefill_worker", answer->prefill_worker, strlen(answer->prefill_worker));
    add_text(out, "decode_worker", answer->decode_worker, strlen(answer->decode_worker));
    add_text(out, "lane", answer->lane, strlen(answer->lane));
    str_addf(out, ", \"kv_bytes\": %" PRIu64 ", \"kv_bytes_before_complete\": %" PRIu64,
             answer->kv_bytes, answer->kv_bytes_before_complete);
    str_addf(out, ", \"prefills\": %" PRIu32 ", \"seed\": %" PRIu64, answer->prefills,
             answer->seed);
    str_addf(out,
             ", \"usage\": {\"prompt_tokens\": %" PRIu32 ", \"completion_tokens\": %" PRIu32 "}}\n",
             answer->prompt_tokens, answer->completion_tokens);
}

void generate_answer_figures(const struct generate_answer *answer, struct str *out)
{
    str_addf(out, "%" PRIu32 " + %" PRIu32 " tokens (%s)", answer->prompt_tokens,
             answer->completion_tokens, finish_reason_name((enum finish_reason)answer->reason));
    if (!answer->timed)
        return;
    str_addf(out, ", TTFT %.1f ms", answer->ttft_us * 1e-3);
    if (answer->completion_tokens > 1)
        str_addf(out, ", TPOT %.2f ms", answer->tpot_us * 1e-3);
    const char *between = *answer->prefill_worker && *answer->decode_worker ? " -> " : "";
    str_addf(out, ", %s%s%s", answer->prefill_worker, between, answer->decode_worker);
    if (*answer->lane)
        str_addf(out, " over %s (%.1f KiB of KV)", answer->lane, (double)answer->kv_bytes / 1024);
    if (answer->prefills > 1)
        str_addf(out, ", %" PRIu32 " prefills", answer->prefills);
}
