#include "common/base/log.h"
#include "router/dispatch/dispatch_internal.h"

#define SCORES_OF_A_PART 32 /* logprobs of a prompt's tokens, on the stack */

/* Ids that workers may send for it are below. */
static uint32_t vocab_of(const struct dispatch *dispatch, const struct request *request)
{
    return dispatch->config.models->items[request->model].limits.vocab;
}

static bool read_logprobs(const struct dispatch *dispatch, const struct request *request,
                          const Baton__Worker__V1__Logprobs *message, struct token_logprobs *out)
{
    struct logprobs_lists lists = {message->drawn, message->top_ids, message->top,
                                   message->n_top_ids, message->n_top};
    return token_logprobs_read(&lists, out) && token_logprobs_fit(out, vocab_of(dispatch, request));
}

/* A part of a message; false: no worker sends it. */
static bool take_scores(struct dispatch *dispatch, struct request *request, uint32_t first,
                        Baton__Worker__V1__Logprobs *const *messages, uint32_t count)
{
    struct token_logprobs logprobs[SCORES_OF_A_PART];
    for (uint32_t i = 0; i < count; i++)
        if (!read_logprobs(dispatch, request, messages[i], &logprobs[i]))
            return false;
    if (!prompt_echo_take(&request->prompt_echo, first, logprobs, count))
        return false;
    if (request->once ||
        request->client.ops->prompt_logprobs(request, first, logprobs, count) != STATUS_LIMIT)
        return true;
    struct life_actions actions;
    request_life_on_fail(&request->life, TERMINAL_OVERLOADED, reason_name(REASON_SLOW_READER),
                         &actions);
    request_execute(dispatch, request, &actions);
    return true;
}

static void stop_waiting_for_scores(struct dispatch *dispatch, struct worker *worker,
                                    struct request *request)
{
    if (prompt_echo_waits(&request->prompt_echo))
        return;
    request_life_on_told(&request->life);
    if (request->opened_attempt != request->life.attempt)
        return;
    Baton__Worker__V1__Opened opened = BATON__WORKER__V1__OPENED__INIT;
    opened.attempt = request->opened_attempt;
    opened.handle = &request->handle;
    request->opened_attempt = 0;
    worker_take_opened(dispatch, worker, request, &opened);
}

void worker_prompt_logprobs(struct dispatch *dispatch, struct worker *worker,
                            const Baton__Worker__V1__PromptLogprobs *said)
{
    struct request *request = dispatch_find_request(dispatch, said->request);
    if (!request || said->attempt != request->life.attempt)
        return;
    for (size_t done = 0; done < said->n_logprobs && !request->ended;) {
        size_t left = said->n_logprobs - done;
        uint32_t count = left < SCORES_OF_A_PART ? (uint32_t)left : SCORES_OF_A_PART;
        if (!take_scores(dispatch, request, said->first_token + (uint32_t)done,
                         said->logprobs + done, count)) {
            worker_misbehaved(worker, "prompt_logprobs");
            return;
        }
        done += count;
    }
    if (!request->ended)
        stop_waiting_for_scores(dispatch, worker, request);
}

/* A token that the client has comes again as another one: no order of events explains that, so the
 * answer can't be trusted. */
static bool differs(struct dispatch *dispatch, const struct worker *worker, struct request *request,
                    const Baton__Worker__V1__Token *said)
{
    if (said->index > request->emitted_count || request->emitted[said->index - 1] == said->id)
        return false;
    log_error_limited(
        "dispatch",
        "req=%s worker=%s prefill=%s decode=%s index=%u sent=%u said=%u msg=\"workers differ "
        "about a token: request ended\"",
        request->name, worker->info.name, request->timing.prefill_worker,
        request->timing.decode_worker, said->index, request->emitted[said->index - 1], said->id);
    struct life_actions actions;
    request_life_on_fail(&request->life, TERMINAL_INTERNAL, "tokens_differ", &actions);
    request_execute(dispatch, request, &actions);
    return true;
}

/* Whether the token has what was asked for, after what comes before it. */
static bool read_token(const struct dispatch *dispatch, const struct request *request,
                       const Baton__Worker__V1__Token *said, struct token_logprobs *logprobs)
{
    *logprobs = (struct token_logprobs){.given = false};
    if (said->id >= vocab_of(dispatch, request) || said->finish > FINISH_COMPLETE || !said->index)
        return false;
    if (said->attempt == request->life.attempt && prompt_echo_waits(&request->prompt_echo))
        return false;
    if (said->logprobs)
        return read_logprobs(dispatch, request, said->logprobs, logprobs);
    return !request->sampling.logprobs;
}

static void on_token(struct dispatch *dispatch, struct worker *worker,
                     const Baton__Worker__V1__Token *said)
{
    struct request *request = dispatch_find_request(dispatch, said->request);
    if (!request)
        return;
    struct token_logprobs logprobs;
    if (!read_token(dispatch, request, said, &logprobs)) {
        worker_misbehaved(worker, "token");
        return;
    }
    bool current = said->attempt == request->life.attempt;
    if (current && differs(dispatch, worker, request, said))
        return;
    if (current && !request->prefilled) {
        request->prefilled = true;
        dispatch->place_needed = true;
    }
    struct life_token token = {.worker = worker->key,
                               .attempt = said->attempt,
                               .index = said->index,
                               .id = said->id,
                               .logits_hash = said->logits_hash,
                               .logprobs = &logprobs,
                               .finish = (enum finish_reason)said->finish};
    struct life_actions actions;
    uint32_t delivered = request->life.delivered;
    request_life_on_token(&request->life, &token, &actions);
    if (!request->prompt_only)
        worker->tokens += request->life.delivered - delivered;
    if (request->life.from_decode && !request->confirmed) {
        request->confirmed = true;
        dispatch->place_needed = true;
    }
    request_execute(dispatch, request, &actions);
}

void worker_tokens(struct dispatch *dispatch, struct worker *worker,
                   const Baton__Worker__V1__Tokens *tokens)
{
    for (size_t i = 0; i < tokens->n_tokens; i++)
        on_token(dispatch, worker, tokens->tokens[i]);
}
