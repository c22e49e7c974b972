/* Messages to workers and from them. Nothing that a worker says of a request is believed before it
 * is checked against the request. */
#include "common/base/assert.h"
#include "common/base/domain/content_hash.h"
#include "common/base/domain/worker_info.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/membership/worker_message.h"
#include "router/dispatch/dispatch_internal.h"
#include "router/planner/deadline_estimate.h"

#include <stdio.h>
#include <string.h>

#define SCORES_OF_A_PART 32 /* logprobs of a prompt's tokens that are read at once */

/* ------------------------------------------------------------------------------------ commands */

/* A Sampling with room for its biases and its constraint. */
struct sampling_room {
    Baton__Worker__V1__Sampling message;
    uint32_t bias_ids[SAMPLING_MAX_BIASES];
    float biases[SAMPLING_MAX_BIASES];
    Baton__Worker__V1__Constraint constraint;
};

static Baton__Worker__V1__Sampling *sampling_message(const struct request *request,
                                                     struct sampling_room *room)
{
    const struct sampling *sampling = &request->call->sampling;
    Baton__Worker__V1__Sampling *message = &room->message;
    baton__worker__v1__sampling__init(message);
    message->temperature = sampling->temperature;
    message->top_k = sampling->top_k;
    message->top_p = sampling->top_p;
    message->min_p = sampling->min_p;
    message->presence_penalty = sampling->presence_penalty;
    message->frequency_penalty = sampling->frequency_penalty;
    message->repetition_penalty = sampling->repetition_penalty;
    message->seed = sampling->seed;
    message->choice = request->choice;
    message->max_tokens = sampling->max_tokens;
    message->min_tokens = sampling->min_tokens;
    message->ignore_eos = sampling->ignore_eos;
    message->logprobs = sampling->logprobs;
    message->top_logprobs = sampling->top_logprobs;
    message->prompt_logprobs = prompt_echo_waits(&request->call->prompt_echo);
    message->top_prompt_logprobs = sampling->top_prompt_logprobs;
    message->prompt_logprobs_from = request->call->prompt_echo.next;
    message->n_stop_ids = sampling->stop_id_count;
    message->stop_ids = (uint32_t *)sampling->stop_ids; /* packing only reads */
    message->logits_hash = request->call->return_logits_hash;
    message->n_bias_ids = message->n_biases = sampling->bias_count;
    message->bias_ids = room->bias_ids;
    message->biases = room->biases;
    for (uint32_t i = 0; i < sampling->bias_count; i++) {
        room->bias_ids[i] = sampling->biases[i].id;
        room->biases[i] = sampling->biases[i].bias;
    }
    if (request->call->constraint) {
        baton__worker__v1__constraint__init(&room->constraint);
        room->constraint.kind = (Baton__Worker__V1__ConstraintKind)request->call->constraint->kind;
        room->constraint.text = request->call->constraint->text;
        message->constraint = &room->constraint;
    }
    return message;
}

/* Packing only reads. */
static ProtobufCBinaryData salt_of(const struct request *request)
{
    return (ProtobufCBinaryData){request->call->cache_salt_bytes,
                                 (uint8_t *)request->call->cache_salt};
}

/* The tenant as workers know it. Not 0. */
static uint64_t tenant_of(const struct dispatch *dispatch, const struct call *call)
{
    const uint64_t salted[] = {call->tenant, dispatch->tenant_salt};
    return content_hash(salted, sizeof salted) | 1;
}

/* 0: the worker hears of no deadline. It would take an answer without end token for as long as
 * max_tokens, but a stop string may end it, which only the router sees. */
static uint64_t deadline_left_us(const struct dispatch *dispatch, const struct call *call)
{
    uint64_t now_us = dispatch->now_us;
    uint64_t left_us = call->deadline_us > now_us ? call->deadline_us - now_us : 1;
    bool is_open = call->sampling.ignore_eos && call->has_stops;
    return left_us <= WORKER_MAX_DEADLINE_US && !is_open ? left_us : 0;
}

/* Sends a command, or ends the stream where the worker doesn't read. request_life then hears of the
 * lost session. */
static void send_command(struct worker *worker, const Baton__Worker__V1__SessionDown *command)
{
    if (worker_link_send(worker->link, command) != STATUS_LIMIT)
        return;
    log_error_limited("dispatch",
                      "worker=%s msg=\"doesn't read its commands: closing the session\"",
                      worker->info.name);
    worker_link_close(worker->link);
}

void worker_dismiss(struct dispatch *dispatch, const struct candidate *books)
{
    if (!books || !books->is.draining || books->is.requests)
        return;
    struct worker *worker = workers_get(&dispatch->workers, books->is.key);
    if (!worker || worker->state != WORKER_UP || worker->dismissed ||
        worker_message_protocol(&worker->info).newest < WORKER_PROTOCOL_DISMISS)
        return;
    Baton__Worker__V1__Dismiss dismiss = BATON__WORKER__V1__DISMISS__INIT;
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_DISMISS;
    command.dismiss = &dismiss;
    worker->dismissed = true;
    send_command(worker, &command);
}

static void send_prefill(struct dispatch *dispatch, struct request *request, struct worker *worker,
                         const struct life_action *action)
{
    struct sampling_room room;
    Baton__Worker__V1__Prefill prefill = BATON__WORKER__V1__PREFILL__INIT;
    prefill.request = request->id;
    prefill.attempt = action->attempt;
    prefill.n_prompt = request->call->prompt_count;
    prefill.prompt = request->call->prompt;
    prefill.n_emitted = action->emitted_count;
    prefill.emitted = request->emitted;
    prefill.sampling = sampling_message(request, &room);
    prefill.request_name = request->call->name;
    prefill.cache_salt = salt_of(request);
    prefill.priority = (Baton__Worker__V1__Priority)request->call->priority;
    prefill.tenant = tenant_of(dispatch, request->call);
    prefill.deadline_left_us = deadline_left_us(dispatch, request->call);
    if (prefill.deadline_left_us) { /* until the prompt must be there */
        const struct deadline_prompt due = deadline_of_prompt(
            prefill.deadline_left_us, request_least_us(dispatch, request, request->life.decode),
            request->placing.answer_us);
        prefill.deadline_left_us = due.left_us;
        prefill.due_left_us = due.due_us;
    }
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_PREFILL;
    command.prefill = &prefill;

    request->prefilled = request->confirmed = false;
    str_copy(request->timing.prefill_worker, sizeof request->timing.prefill_worker,
             worker->info.name);
    request_trace_prefill_sent(&request->trace, worker->info.name);
    counter_add(dispatch->config.metrics->models[request->call->model].prefill_runs, 1);
    if (!FAILPOINT_FAILS("router.send_prefill"))
        send_command(worker, &command);
}

static void send_decode(struct dispatch *dispatch, struct request *request, struct worker *worker,
                        const struct life_action *action)
{
    struct sampling_room room;
    Baton__Worker__V1__Decode decode = BATON__WORKER__V1__DECODE__INIT;
    decode.request = request->id;
    decode.attempt = action->attempt;
    decode.n_prompt = request->call->prompt_count;
    decode.prompt = request->call->prompt;
    decode.n_emitted = action->emitted_count;
    decode.emitted = request->emitted;
    decode.sampling = sampling_message(request, &room);
    decode.request_name = request->call->name;
    decode.cache_salt = salt_of(request);
    decode.priority = (Baton__Worker__V1__Priority)request->call->priority;
    decode.tenant = tenant_of(dispatch, request->call);
    decode.deadline_left_us = deadline_left_us(dispatch, request->call);
    if (action->with_handle) {
        decode.handle = &request->handle;
        decode.source_address = request->source_address;
        decode.source_name = request->timing.prefill_worker;
    } else {
        request->prefilled = false;
        *request->timing.prefill_worker = 0;
        counter_add(dispatch->config.metrics->models[request->call->model].local_prefills, 1);
    }
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_DECODE;
    command.decode = &decode;

    request->confirmed = false;
    str_copy(request->timing.decode_worker, sizeof request->timing.decode_worker,
             worker->info.name);
    request_trace_decode_sent(&request->trace, worker->info.name, !action->with_handle,
                              dispatch->now_us);
    if (!FAILPOINT_FAILS("router.send_decode"))
        send_command(worker, &command);
}

static void send_release(struct request *request, struct worker *worker,
                         const struct life_action *action)
{
    Baton__Worker__V1__Release release = BATON__WORKER__V1__RELEASE__INIT;
    release.request = request->id;
    release.attempt = action->attempt;
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_RELEASE;
    command.release = &release;
    if (!FAILPOINT_FAILS("router.send_release"))
        send_command(worker, &command);
}

void worker_command(struct dispatch *dispatch, struct request *request,
                    const struct life_action *action)
{
    struct worker *worker = workers_get(&dispatch->workers, action->worker);
    if (!worker || !worker->link || !worker->link->up)
        return; /* its session is down, which request_life has heard or is about to hear */
    switch (action->kind) {
    case LIFE_SEND_PREFILL: send_prefill(dispatch, request, worker, action); break;
    case LIFE_SEND_DECODE: send_decode(dispatch, request, worker, action); break;
    default: send_release(request, worker, action);
    }
}

/* ------------------------------------------------------------------------------------- answers */

static void misbehaved(struct worker *worker, const char *what)
{
    log_error_limited("dispatch", "worker=%s what=%s msg=\"bad message: closing the session\"",
                      worker->info.name, what);
    worker_link_close(worker->link);
}

/* NULL: it has ended, and its workers have not heard of that yet. */
static struct request *find_request(struct dispatch *dispatch, uint64_t id)
{
    struct request *request = map_get(dispatch->requests, id);
    return request && request->state == CHOICE_OPEN ? request : NULL;
}

static void take_opened(struct dispatch *dispatch, struct worker *worker, struct request *request,
                        const Baton__Worker__V1__Opened *opened)
{
    const Baton__Worker__V1__Handle *handle = opened->handle;
    struct handle_ref ref = {handle->incarnation, handle->id, handle->generation};
    struct life_actions actions;
    const struct candidate *guess =
        candidates_get(&dispatch->placement.candidates, request->life.decode);
    if (guess && guess->is.draining)
        request_life_keep_guess(&request->life);
    request_life_on_sign(&request->life, dispatch->now_us, worker->key, opened->attempt);
    if (request_life_on_opened(&request->life, worker->key, opened->attempt, ref, &actions)) {
        if (!request_keep_handle(request, handle))
            request_life_on_fail(&request->life, TERMINAL_INTERNAL, "memory", &actions);
        str_copy(request->source_address, sizeof request->source_address, worker->info.address);
    }
    if (request->life.prefill == worker->key && request->state == CHOICE_OPEN)
        request_trace_opened(&request->trace, opened->attempt, dispatch->now_us);
    request_execute(dispatch, request, &actions);
    request_observers_moved(&dispatch->config.views, request);
}

/* Returns the limit of the ids that workers may send for it. */
static uint32_t vocab_of(const struct dispatch *dispatch, const struct request *request)
{
    return dispatch->config.models->items[request->call->model].limits.vocab;
}

static bool read_logprobs(const struct dispatch *dispatch, const struct request *request,
                          const Baton__Worker__V1__Logprobs *message, struct token_logprobs *out)
{
    struct logprobs_lists lists = {message->drawn, message->top_ids, message->top,
                                   message->n_top_ids, message->n_top};
    return token_logprobs_read(&lists, out) && token_logprobs_fit(out, vocab_of(dispatch, request));
}

/* Takes a part of a message. False: it is bad. */
static bool take_scores(struct dispatch *dispatch, struct request *request, uint32_t first,
                        Baton__Worker__V1__Logprobs *const *messages, uint32_t count)
{
    struct token_logprobs logprobs[SCORES_OF_A_PART];
    for (uint32_t i = 0; i < count; i++)
        if (!read_logprobs(dispatch, request, messages[i], &logprobs[i]))
            return false;
    if (!prompt_echo_take(&request->call->prompt_echo, first, logprobs, count))
        return false;
    if (request->call->once || request->call->client.ops->prompt_logprobs(
                                   request->call, first, logprobs, count) != STATUS_LIMIT)
        return true;
    request_fail(dispatch, request, TERMINAL_OVERLOADED, reason_name(REASON_SLOW_READER));
    return true;
}

static void stop_waiting_for_scores(struct dispatch *dispatch, struct worker *worker,
                                    struct request *request)
{
    if (prompt_echo_waits(&request->call->prompt_echo))
        return;
    request_life_on_told(&request->life);
    if (request->opened_attempt != request->life.attempt)
        return;
    Baton__Worker__V1__Opened opened = BATON__WORKER__V1__OPENED__INIT;
    opened.attempt = request->opened_attempt;
    opened.handle = &request->handle;
    request->opened_attempt = 0;
    take_opened(dispatch, worker, request, &opened);
}

static void on_prompt_logprobs(struct dispatch *dispatch, struct worker *worker,
                               const Baton__Worker__V1__PromptLogprobs *said)
{
    struct request *request = find_request(dispatch, said->request);
    if (!request || said->attempt != request->life.attempt)
        return;
    request_life_on_sign(&request->life, dispatch->now_us, worker->key, said->attempt);
    for (size_t done = 0; done < said->n_logprobs && request->state == CHOICE_OPEN;) {
        size_t left = said->n_logprobs - done;
        uint32_t count = left < SCORES_OF_A_PART ? (uint32_t)left : SCORES_OF_A_PART;
        if (!take_scores(dispatch, request, said->first_token + (uint32_t)done,
                         said->logprobs + done, count)) {
            misbehaved(worker, "prompt_logprobs");
            return;
        }
        done += count;
    }
    if (request->state == CHOICE_OPEN)
        stop_waiting_for_scores(dispatch, worker, request);
}

/* True: a token that the client has comes again as another one, and the request has failed. No
 * order of events explains that, so the answer can't be trusted. */
static bool differs(struct dispatch *dispatch, const struct worker *worker, struct request *request,
                    const Baton__Worker__V1__Token *said)
{
    if (said->index > request->emitted_count || request->emitted[said->index - 1] == said->id)
        return false;
    log_error_limited(
        "dispatch",
        "req=%s worker=%s prefill=%s decode=%s index=%u sent=%u said=%u msg=\"workers differ "
        "about a token: request ended\"",
        request->call->name, worker->info.name, request->timing.prefill_worker,
        request->timing.decode_worker, said->index, request->emitted[said->index - 1], said->id);
    request_fail(dispatch, request, TERMINAL_INTERNAL, "tokens_differ");
    return true;
}

/* Checks that the token has what was asked for, and comes after the prompt's logprobs. */
static bool read_token(const struct dispatch *dispatch, const struct request *request,
                       const Baton__Worker__V1__Token *said, struct token_logprobs *logprobs)
{
    *logprobs = (struct token_logprobs){.given = false};
    if (said->id >= vocab_of(dispatch, request) || said->finish > FINISH_COMPLETE || !said->index)
        return false;
    if (said->attempt == request->life.attempt && prompt_echo_waits(&request->call->prompt_echo))
        return false;
    if (said->logprobs)
        return read_logprobs(dispatch, request, said->logprobs, logprobs);
    return !request->call->sampling.logprobs;
}

static void on_token(struct dispatch *dispatch, struct worker *worker,
                     const Baton__Worker__V1__Token *said)
{
    struct request *request = find_request(dispatch, said->request);
    if (!request)
        return;
    struct token_logprobs logprobs;
    if (!read_token(dispatch, request, said, &logprobs)) {
        misbehaved(worker, "token");
        return;
    }
    bool current = said->attempt == request->life.attempt;
    if (current && differs(dispatch, worker, request, said))
        return;
    bool goes_on = request->prefilled || !current;
    if (!goes_on) {
        /* The prefill worker's own report may come later, by another stream. */
        const struct request_life *life = &request->life;
        struct worker *prefill =
            life->prefill ? workers_get(&dispatch->workers, life->prefill) : worker;
        if (prefill)
            prefill->prompt_tokens += (uint64_t)request->call->prompt_count + life->handle_emitted;
        request->prefilled = true;
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
    breakers_token(&dispatch->breakers, &request->life, &token, dispatch->now_us);
    request_life_on_sign(&request->life, dispatch->now_us, worker->key, said->attempt);
    request_life_on_token(&request->life, &token, &actions);
    if (!request->call->prompt_only)
        worker->tokens += request->life.delivered - delivered;
    goes_on &= request->confirmed || !request->life.from_decode;
    request->confirmed |= request->life.from_decode;
    if (!goes_on) { /* this may be its last token, too: its workers keep what was computed */
        request_track(dispatch, request);
        dispatch->place_needed = true;
    }
    request_execute(dispatch, request, &actions);
}

/* -------------------------------------------------------------------------------- other events */

/* True: the handle must wait. Logprobs of the prompt come before the answer. The prefill worker
 * sends them before its first token, but nothing orders them before the decode worker's tokens:
 * that worker gets the handle when they have come. It gets none where the prefill worker ends
 * the answer. */
static bool must_wait(const struct request *request, const struct worker *worker,
                      const Baton__Worker__V1__Opened *opened)
{
    const struct request_life *life = &request->life;
    return !life->ends_at_prefill && prompt_echo_waits(&request->call->prompt_echo) &&
           life->state == REQUEST_PREFILL && life->prefill == worker->key &&
           life->attempt == opened->attempt;
}

static void on_opened(struct dispatch *dispatch, struct worker *worker,
                      const Baton__Worker__V1__Opened *opened)
{
    const Baton__Worker__V1__Handle *handle = opened->handle;
    struct request *request = find_request(dispatch, opened->request);
    if (!request)
        return;
    if (!handle || handle->incarnation != worker->info.incarnation) {
        misbehaved(worker, "opened");
        return;
    }
    FAILPOINT("router.opened");
    if (must_wait(request, worker, opened) && request_keep_handle(request, handle))
        request->opened_attempt = opened->attempt;
    else
        take_opened(dispatch, worker, request, opened);
}

/* Ends a request that a worker gave up because its deadline can't be met. Another worker would
 * begin later. False: it has no deadline, or this is not about its running attempt. */
static bool end_late(struct dispatch *dispatch, const struct worker *worker,
                     struct request *request, uint32_t attempt, const char *reason,
                     const char *sentence)
{
    const struct request_life *life = &request->life;
    bool is_its = worker->key == life->prefill || worker->key == life->decode;
    if (strcmp(reason, reason_name(REASON_DEADLINE)) || attempt != life->attempt || !is_its ||
        request->call->deadline_us == UINT64_MAX)
        return false;
    str_copy(request->refusal, sizeof request->refusal, sentence);
    request_trace_why(&request->trace, attempt, reason);
    request_fail(dispatch, request, TERMINAL_DEADLINE, REQUEST_LATE);
    return true;
}

static void on_lost(struct dispatch *dispatch, struct worker *worker,
                    const Baton__Worker__V1__Lost *lost)
{
    struct request *request = find_request(dispatch, lost->request);
    if (!request || end_late(dispatch, worker, request, lost->attempt, lost->reason, lost->message))
        return;
    char quoted[100], sentence[300];
    bool step_failed = !strcmp(lost->reason, "step_failed");
    bool banned = !strcmp(lost->reason, reason_name(REASON_NO_TOKEN_ALLOWED));
    log_warn_lifecycle(
        "dispatch", "req=%s attempt=%u worker=%s prefill=%s why=%s sentence=%s msg=\"%s\"",
        request->call->name, lost->attempt, worker->info.name, request->timing.prefill_worker,
        log_quote(lost->reason, quoted, sizeof quoted),
        log_quote(lost->message, sentence, sizeof sentence),
        step_failed ? "a step failed"
        : banned    ? "no token may be drawn"
                    : "handoff is lost");
    if (banned)
        str_copy(request->refusal, sizeof request->refusal, lost->message);
    if (step_failed)
        snprintf(request->failure, sizeof request->failure,
                 "a %s worker could not compute a step: %s", worker_role_name(worker->info.role),
                 lost->message);
    struct life_actions actions;
    breakers_said(&dispatch->breakers, &request->life,
                  &(struct breaker_said){worker->key, lost->attempt, lost->reason, false},
                  dispatch->now_us);
    if (banned)
        request_life_on_banned(&request->life, worker->key, lost->attempt, &actions);
    else
        request_life_on_lost(&request->life, worker->key, lost->attempt, step_failed, &actions);
    if (actions.count)
        request_trace_why(&request->trace, lost->attempt, lost->reason);
    request_execute(dispatch, request, &actions);
}

/* Notes two workers that fit by what they told this router, and refused to pair. They are not
 * paired again while both live. */
static void note_misfit(struct dispatch *dispatch, const struct request *request,
                        const struct worker *worker, const char *reason)
{
    const struct request_life *life = &request->life;
    if (worker->key != life->decode || !life->has_handle || !life->prefill ||
        (strcmp(reason, "layout_mismatch") && strcmp(reason, "numerics_mismatch")))
        return;
    log_error_limited(
        "dispatch",
        "prefill=%s decode=%s why=%s msg=\"these workers don't fit together: not paired "
        "again until one of them restarts\"",
        request->timing.prefill_worker, worker->info.name, reason);
    if (candidates_misfit(&dispatch->placement.candidates, life->prefill, worker->key) != STATUS_OK)
        log_error_limited("dispatch", "msg=\"no memory: the two may be paired again\"");
    dispatch->board_changed = true; /* fewer requests may be served now */
}

static void on_refused(struct dispatch *dispatch, struct worker *worker,
                       const Baton__Worker__V1__Refused *refused)
{
    struct request *request = find_request(dispatch, refused->request);
    if (!request ||
        end_late(dispatch, worker, request, refused->attempt, refused->reason, refused->message))
        return;
    char why[100], sentence[300];
    log_warn_lifecycle("dispatch",
                       "req=%s attempt=%u worker=%s retry=%d why=%s sentence=%s msg=\"refused\"",
                       request->call->name, refused->attempt, worker->info.name, refused->retry,
                       log_quote(refused->reason, why, sizeof why),
                       log_quote(refused->message, sentence, sizeof sentence));
    str_copy(request->refusal, sizeof request->refusal, refused->message);
    if (refused->attempt == request->life.attempt)
        note_misfit(dispatch, request, worker, refused->reason);
    if (!strcmp(refused->reason, "draining")) {
        worker->load.draining = true; /* its own report comes later */
        dispatch->board_changed = true;
        worker_changed(&dispatch->workers, worker, dispatch->now_us);
    }
    struct life_actions actions;
    breakers_said(&dispatch->breakers, &request->life,
                  &(struct breaker_said){worker->key, refused->attempt, refused->reason, true},
                  dispatch->now_us);
    request_life_on_refused(&request->life, worker->key, refused->attempt, refused->retry,
                            &actions);
    if (actions.count)
        request_trace_why(&request->trace, refused->attempt, refused->reason);
    request_execute(dispatch, request, &actions);
}

/* Notes the lane of the last handoff at this worker, at either end, and the bytes of a token. */
static void note_lane(struct dispatch *dispatch, struct worker *worker,
                      const struct request *request, const Baton__Worker__V1__Pulled *pulled)
{
    if (!worker || !*pulled->lane)
        return;
    dispatch->board_changed |= strcmp(worker->lane, pulled->lane) != 0;
    str_copy(worker->lane, sizeof worker->lane, pulled->lane);
    str_copy(worker->lane_reason, sizeof worker->lane_reason, pulled->lane_reason);
    if (request && pulled->attempt == request->life.attempt && pulled->bytes)
        worker->learnt.kv_bytes_per_token =
            (double)pulled->bytes / (request->call->prompt_count + request->life.handle_emitted);
    worker->learnt.lane_bytes_per_second =
        pulled->lane_bytes_per_second < INT64_MAX ? pulled->lane_bytes_per_second : INT64_MAX;
    dispatch_show_soon(dispatch);
}

static void on_pulled(struct dispatch *dispatch, struct worker *worker,
                      const Baton__Worker__V1__Pulled *pulled)
{
    router_metrics_pulled(dispatch->config.metrics, pulled->lane, pulled->bytes);
    struct request *request = find_request(dispatch, pulled->request);
    note_lane(dispatch, worker, request, pulled);
    worker->learnt.link_bytes_per_second = pulled->link_bytes_per_second;
    if (!request || pulled->attempt != request->life.attempt)
        return;
    request_life_on_sign(&request->life, dispatch->now_us, worker->key, pulled->attempt);
    note_lane(dispatch, workers_get(&dispatch->workers, request->life.prefill), request, pulled);
    struct request_timing *timing = &request->timing;
    str_copy(timing->lane, sizeof timing->lane, pulled->lane);
    timing->kv_bytes = pulled->bytes;
    timing->kv_bytes_before_complete = pulled->bytes_before_complete;
    request_observers_pulled(&dispatch->config.views, request, pulled, dispatch->now_us);
    request->confirmed = true;
    request_track(dispatch, request);
    dispatch->place_needed = true;
}

static void on_prefilled(struct dispatch *dispatch, struct worker *worker,
                         const Baton__Worker__V1__Prefilled *prefilled)
{
    struct request *request = find_request(dispatch, prefilled->request);
    if (!request)
        return;
    struct call *call = request->call;
    request_life_on_prefilled(&request->life, dispatch->now_us, worker->key, prefilled->attempt);
    if (prefilled->attempt != request->life.attempt)
        return;
    request_life_on_sign(&request->life, dispatch->now_us, worker->key, prefilled->attempt);
    if (!request->prefilled)
        placement_found_cached(&dispatch->placement, &request->placing, prefilled->cached_tokens);
    if (!call->cached_known) /* other choices, and later attempts, find more */
        call->cached_tokens = prefilled->cached_tokens < call->prompt_count
                                  ? prefilled->cached_tokens
                                  : call->prompt_count;
    call->cached_known = true;
    request_observers_prefilled(&dispatch->config.views, request, prefilled);
}

static void on_load(struct dispatch *dispatch, struct worker *worker,
                    const Baton__Worker__V1__Load *load)
{
    bool drained = worker->load.draining;
    if (!worker_take_load(worker, load)) {
        misbehaved(worker, "load");
        return;
    }
    dispatch->place_needed = true;
    dispatch->board_changed |= worker->load.draining != drained;
    if (worker->load.draining != drained)
        worker_changed(&dispatch->workers, worker, dispatch->now_us);
    else
        placement_worker_load(&dispatch->placement, worker->key, load->queued_tokens);
    if (dispatch->placement.prefix_index)
        prefix_index_free_blocks(dispatch->placement.prefix_index, worker->key, load->blocks_free);
    worker_dismiss(dispatch, candidates_get(&dispatch->placement.candidates, worker->key));
    worker_reported_steps(dispatch, worker,
                          &(struct step_report_seen){.steps_done = load->steps_done,
                                                     .busy_us = load->busy_us,
                                                     .running = load->running});
    dispatch_show_soon(dispatch);
}

/* Takes over the tokens of steps, and what they say of the worker. */
static void on_tokens(struct dispatch *dispatch, struct worker *worker,
                      const Baton__Worker__V1__Tokens *said)
{
    uint64_t prefill_rows = 0;
    if (!worker_take_steps(worker, said->steps, said->n_steps)) {
        misbehaved(worker, "steps");
        return;
    }
    for (size_t i = 0; i < said->n_steps; i++) {
        router_metrics_step(dispatch->config.metrics, worker->info.role, said->steps[i]->took_us);
        prefill_rows += said->steps[i]->prefill_rows;
    }
    /* Before the tokens: prompts that end with these steps take their rows along. */
    placement_worker_stepped(&dispatch->placement, worker->key, prefill_rows);
    for (size_t i = 0; i < said->n_tokens; i++)
        on_token(dispatch, worker, said->tokens[i]);
    if (said->load && said->n_steps)
        worker_learn_kv(worker, said->steps[said->n_steps - 1], said->load);
    if (said->load)
        on_load(dispatch, worker, said->load);
}

/* Events of the worker's cache were lost: asks for all of them again. An older worker can't be
 * asked. Nothing is known of its cache until its next session. */
static void restart_cache(struct dispatch *dispatch, struct worker *worker)
{
    bool knows = worker_message_protocol(&worker->info).newest >= WORKER_PROTOCOL_CACHE_RESTART;
    log_warn_limited("dispatch",
                     "worker=%s asked=%d msg=\"events of its prefix cache are missing\"",
                     worker->info.name, knows);
    if (!knows)
        return;
    Baton__Worker__V1__CacheRestart restart = BATON__WORKER__V1__CACHE_RESTART__INIT;
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_CACHE_RESTART;
    command.cache_restart = &restart;
    counter_add(dispatch->config.metrics->cache_restarts, 1);
    send_command(worker, &command);
}

static void on_cache(struct dispatch *dispatch, struct worker *worker,
                     const Baton__Worker__V1__CacheEvents *said)
{
    struct prefix_index *index = dispatch->placement.prefix_index;
    enum prefix_take taken = PREFIX_TAKE_OK;
    for (size_t i = 0; index && i < said->n_events && taken != PREFIX_TAKE_BAD; i++) {
        const Baton__Worker__V1__CacheEvent *event = said->events[i];
        const struct prefix_event one = {.number = said->first_number + i,
                                         .kind = (enum prefix_event_kind)event->kind,
                                         .hash = {event->hash_low, event->hash_high},
                                         .parent = {event->parent_low, event->parent_high},
                                         .position = event->position,
                                         .token_count = event->token_count};
        taken = prefix_index_take(index, worker->key, &one, 1);
        if (taken == PREFIX_TAKE_GAP)
            restart_cache(dispatch, worker);
    }
    dispatch_show_prefixes(dispatch);
    if (taken == PREFIX_TAKE_BAD)
        misbehaved(worker, "cache");
}

static void on_event(struct dispatch *dispatch, struct worker *worker,
                     const Baton__Worker__V1__SessionUp *up)
{
    switch (up->event_case) {
    case BATON__WORKER__V1__SESSION_UP__EVENT_OPENED:
        on_opened(dispatch, worker, up->opened);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_TOKENS:
        on_tokens(dispatch, worker, up->tokens);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_PROMPT_LOGPROBS:
        on_prompt_logprobs(dispatch, worker, up->prompt_logprobs);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_LOST: on_lost(dispatch, worker, up->lost); break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_REFUSED:
        on_refused(dispatch, worker, up->refused);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_PULLED:
        on_pulled(dispatch, worker, up->pulled);
        break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_LOAD: on_load(dispatch, worker, up->load); break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_CACHE: on_cache(dispatch, worker, up->cache); break;
    case BATON__WORKER__V1__SESSION_UP__EVENT_PREFILLED:
        on_prefilled(dispatch, worker, up->prefilled);
        break;
    default: misbehaved(worker, "event");
    }
}

void worker_said(struct dispatch *dispatch, struct link_message *message)
{
    struct worker *worker = workers_get(&dispatch->workers, message->link->worker);
    ASSERT(worker && worker->link == message->link);
    if (worker->state == WORKER_UP) {
        on_event(dispatch, worker, message->up);
    } else if (worker->state == WORKER_DIALLING && !message->link->refused) {
        workers_hello(&dispatch->workers, worker, message->up, dispatch->now_us);
        dispatch->place_needed = dispatch->board_changed = true;
    }
    link_message_free(message);
}

/* Reports the loss to all requests, so that none waits for a worker that can't answer any more.
 * `planned`: the worker was draining, or said that it leaves. */
static void session_lost(struct dispatch *dispatch, uint64_t key, bool planned)
{
    counter_add(dispatch->config.metrics->sessions_lost, 1);
    if (!planned)
        breakers_left(&dispatch->breakers, key, dispatch->now_us);
    struct placement_request *next;
    for (struct placement_request *placing = placement_first_of(&dispatch->placement, key); placing;
         placing = next) {
        next = placement_next_of(placing, key);
        struct life_actions actions;
        struct request *request = request_of(placing);
        uint32_t attempt = request->life.attempt;
        if (planned)
            request_life_on_moved(&request->life, key, &actions);
        else
            request_life_on_session_lost(&request->life, key, &actions);
        if (actions.count)
            request_trace_why(&request->trace, attempt, planned ? "drained" : "session_lost");
        request_execute(dispatch, request, &actions);
    }
}

void worker_link_ended(struct dispatch *dispatch, struct worker_link *link)
{
    uint64_t key = link->worker;
    const struct candidate *books = candidates_get(&dispatch->placement.candidates, key);
    struct worker *worker = workers_get(&dispatch->workers, key);
    /* A worker that goes without a word, or is replaced by its next life, has crashed. A short
     * drain ends before its first report: the worker only says that it leaves. */
    bool planned = worker->load.draining ||
                   membership_left(dispatch->config.membership, worker->info.incarnation);
    worker_reported_steps(dispatch, worker, NULL);
    if (dispatch->placement.prefix_index)
        prefix_index_drop(dispatch->placement.prefix_index, key);
    bool was_up = workers_link_closed(&dispatch->workers, link, books && books->is.requests,
                                      dispatch->now_us);
    dispatch->place_needed = dispatch->board_changed = true;
    if (was_up)
        session_lost(dispatch, key, planned);
    if (!workers_get(&dispatch->workers, key))
        placement_worker_remove(&dispatch->placement, key);
}
