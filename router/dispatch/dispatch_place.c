#include "common/base/failpoint.h"
#include "router/dispatch/dispatch_internal.h"
#include "router/ops/slo_books.h"
#include "router/planner/deadline_estimate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Reports of so many steps tell their cost. */
#define KNOWN_STEPS 64
#define P90_SIGMAS  1.2816

/* True: each place sets anew how long the answer may become. The client set no max_tokens, and no
 * answer of the call has begun. */
static bool is_open(const struct request *request)
{
    return request->call->open_max_tokens && !request->call->choices[0].emitted_count;
}

static uint64_t longest_tokens(const struct request *request)
{
    return (uint64_t)request->call->prompt_count + request->call->sampling.max_tokens;
}

/* Returns the fewest tokens that it needs room for. */
static uint64_t least_tokens(const struct request *request)
{
    const struct sampling *sampling = &request->call->sampling;
    if (!is_open(request))
        return longest_tokens(request);
    return (uint64_t)request->call->prompt_count +
           (sampling->min_tokens ? sampling->min_tokens : 1);
}

static uint64_t prompt_tokens(const struct request *request)
{
    return (uint64_t)request->call->prompt_count + request->emitted_count;
}

/* True: the token that a prefill worker draws will be its last. Not known while its length is
 * open. */
static bool ends_at_prefill(const struct request *request)
{
    bool last =
        request->emitted_count + 1 >= request->call->sampling.max_tokens && !is_open(request);
    return request->place.kind == LIFE_PLACE && (request->call->prompt_only || last);
}

/* Returns its class's; NULL: it has none. */
static const struct slo_class *class_of(const struct dispatch *dispatch, const struct call *call)
{
    const struct slo_classes *classes = dispatch->config.models->items[call->model].limits.slo;
    return classes && call->slo_class < classes->count ? &classes->items[call->slo_class] : NULL;
}

struct predict_request request_predictable(struct dispatch *dispatch, struct request *request)
{
    const struct call *call = request->call;
    const struct request_timing *timing = &request->timing;
    const struct answer_ask asked = request_answer(request);
    struct answer_length whole = answer_lengths_follow(dispatch->placement.answer_lengths, &asked,
                                                       &request->course, request->emitted_count);
    struct predict_request is = {
        .age_us = (double)(dispatch->now_us - request->timing.arrival_us),
        .priority = call->priority,
        .prompt_tokens = prompt_tokens(request),
        .answer_tokens = fmax(whole.mean - request->emitted_count, 1),
        .answer_p90_tokens = fmax(whole.p90 - request->emitted_count, 1),
        .objective = call->objective,
    };
    if (timing->first_us)
        predict_begun(&is, timing->first_us - timing->arrival_us, request->emitted_count,
                      (double)(dispatch->now_us - timing->first_us));
    return is;
}

/* Enters the facts that predictions of others need. */
static void track_times(struct dispatch *dispatch, struct request *request,
                        struct placement_use *use)
{
    const struct call *call = request->call;
    const struct slo_objective *objective = &call->objective;
    const struct request_timing *timing = &request->timing;
    const struct slo_class *class = class_of(dispatch, call);
    const struct predict_request is = request_predictable(dispatch, request);
    double sigma = (is.answer_p90_tokens - is.answer_tokens) / P90_SIGMAS;
    uint64_t first_us = timing->first_us;
    bool late = objective->ttft_us &&
                (first_us ? first_us : dispatch->now_us) - timing->arrival_us > objective->ttft_us;
    use->priority = call->priority;
    use->drawing = request->life.from_decode || (!request->life.prefill && request->prefilled);
    use->cached_tokens = request->placing.cached_tokens;
    use->expected_tokens = use->prompt_tokens + (uint64_t)ceil(is.answer_tokens);
    use->variance = (uint64_t)(sigma * sigma);
    use->slack_us = objective->ttft_us
                        ? (double)objective->ttft_us - request->placing.predicted.ttft_us
                        : (double)INFINITY;
    use->tolerance_us = predict_tolerance_us(
        objective->tpot_us, request->emitted_count + is.answer_tokens, request->emitted_count,
        first_us ? (double)(dispatch->now_us - first_us) : 0);
    if (class && !late)
        use->weight =
            placement_weight(&dispatch->placement, call->model, call->slo_class, class->percentile);
}

void request_track(struct dispatch *dispatch, struct request *request)
{
    const struct request_life *life = &request->life;
    struct placement_use use = {
        .prefill = life->prefill,
        .decode = life->decode,
        .working = request_life_works(life),
        .prefilled = request->prefilled,
        .confirmed = request->confirmed,
        .reserved = life->has_handle,
        .prompt_tokens = prompt_tokens(request),
        .longest_tokens = longest_tokens(request),
        .now_us = dispatch->now_us,
    };
    if (use.working && request->state != CHOICE_CLOSED)
        track_times(dispatch, request, &use);
    const struct candidate *before[] = {request->placing.prefill.worker,
                                        request->placing.decode.worker};
    if (request->state == CHOICE_CLOSED)
        placement_ended(&dispatch->placement, &request->placing);
    else
        placement_track(&dispatch->placement, &request->placing, &use);
    for (int i = 0; i < 2; i++)
        worker_dismiss(dispatch, before[i]);
}

static struct route_request asked_of(const struct request *request)
{
    return (struct route_request){.kind = request->emitted_count ? &request->kind : NULL,
                                  .prompt_tokens = prompt_tokens(request),
                                  .total_tokens = least_tokens(request)};
}

bool request_could_move(const struct dispatch *dispatch, const struct request *request)
{
    const struct route_request asked = asked_of(request);
    return placement_takes(&dispatch->placement, request->call->model, &asked, dispatch->now_us);
}

struct answer_ask request_answer(const struct request *request)
{
    const struct call *call = request->call;
    const struct sampling *sampling = &call->sampling;
    return (struct answer_ask){
        .model = call->model,
        .prompt_tokens = call->prompt_count,
        .max_tokens = is_open(request) ? call->open_max_tokens : sampling->max_tokens,
        .open = call->open_max_tokens,
        .exact = call->prompt_only || (sampling->ignore_eos && !sampling->stop_id_count &&
                                       !call->has_stops && !call->constraint),
    };
}

bool request_cut_short(const struct dispatch *dispatch, const struct request *request,
                       enum reason reason)
{
    const struct request_timing *timing = &request->timing;
    uint64_t age_us = dispatch->now_us - timing->arrival_us;
    const struct slo_outcome so_far = {
        .ok = true,
        .ttft_us = timing->first_us ? timing->first_us - timing->arrival_us : age_us,
        .e2e_us = age_us,
        .longest_gap_us = request->trace.longest_gap_us,
        .answer_tokens = request->emitted_count};
    return reason == REASON_DEADLINE && slo_attained(&request->call->objective, &so_far);
}

void request_teach(struct dispatch *dispatch, const struct request *request, enum reason reason)
{
    const struct call *call = request->call;
    const struct request_timing *timing = &request->timing;
    if (request->life.attempt == 1)
        placement_learn_times(&dispatch->placement, &request->placing, timing->first_us,
                              timing->last_us, request->emitted_count);
    if (call->slo_class >= SLO_MAX_CLASSES || !class_of(dispatch, call) ||
        reason == REASON_CANCELLED || !timing->arrival_us)
        return;
    const struct slo_outcome outcome = {.ok = !reason,
                                        .ttft_us = timing->first_us - timing->arrival_us,
                                        .e2e_us = timing->last_us - timing->arrival_us,
                                        .longest_gap_us = request->trace.longest_gap_us,
                                        .answer_tokens = request->emitted_count};
    const struct slo_verdict verdict = slo_judge(
        &(struct slo_ending){.objective = call->objective, .reason = reason, .outcome = outcome});
    /* Clients don't set the worth of their class. */
    if (verdict.counts && !request_cut_short(dispatch, request, reason))
        goodput_ended(&dispatch->placement.classes[call->model][call->slo_class],
                      &request->placing.predicted, &outcome, !verdict.missed);
}

/* Returns how many tokens its answer surely still has. */
static uint32_t tokens_left(const struct request *request)
{
    const struct call *call = request->call;
    const struct sampling *sampling = &call->sampling;
    bool has_length = sampling->ignore_eos && !sampling->stop_id_count && !call->has_stops &&
                      !call->constraint && !call->prompt_only && !is_open(request);
    return deadline_least_tokens(has_length, sampling->max_tokens,
                                 call->prompt_only ? 0 : sampling->min_tokens,
                                 request->emitted_count);
}

/* Sets *placed_tokens to the tokens that it is placed for. */
static struct route_choice choose(struct dispatch *dispatch, struct request *request,
                                  struct decision *decision, uint64_t *placed_tokens)
{
    struct placement_ask ask = {.request = asked_of(request)};
    ask.request.ends_at_prefill = ends_at_prefill(request);
    ask.request.decision = decision;
    ask.request.avoid_prefill = request->place.avoid_prefill;
    ask.request.avoid_decode = request->place.avoid_decode;
    const struct route_handle handle = {
        .prefill = request->life.prefill,
        .model_hash = request->handle.model_hash,
        .layout_hash = request->handle.layout_hash,
        .numerics_id = dispatch->workers.mixed_numerics ? 0 : request->handle.numerics_id};
    if (request->place.kind != LIFE_PLACE)
        ask.handle = &handle;
    if (dispatch->placement.prefix_index) {
        struct call *call = request->call;
        const struct prompt_text prompt = {call->prompt, call->prompt_count, call->cache_salt,
                                           call->cache_salt_bytes};
        prompt_names_update(&call->names, &prompt,
                            &dispatch->placement.candidates.pools[call->model]);
        ask.prefixes = call->names.kinds;
        ask.prefix_kind_count = call->names.count;
    }
    if (is_open(request))
        ask.most_tokens = (uint64_t)request->call->prompt_count + request->call->open_max_tokens;
    const struct slo_class *class = class_of(dispatch, request->call);
    ask.predict = request_predictable(dispatch, request);
    ask.deadline_us = request->call->deadline_us;
    if (ask.deadline_us != UINT64_MAX) {
        const struct answer_ask asked = request_answer(request);
        ask.likely_tokens = answer_length_likely(dispatch->placement.answer_lengths, &asked,
                                                 request->emitted_count, tokens_left(request));
    }
    ask.ready_us = request->life.binding ? request->placing.predicted.prefill_us : 0;
    ask.slo_class = class ? request->call->slo_class : SLO_NONE;
    ask.percentile = class ? class->percentile : 0;
    return placement_choose(&dispatch->placement, &request->placing, &ask, placed_tokens);
}

static void place(struct dispatch *dispatch, struct request *request, struct route_choice choice,
                  uint64_t placed_tokens)
{
    struct life_actions actions;
    struct call *call = request->call;
    uint64_t reader = choice.prefill && ends_at_prefill(request) ? 0 : choice.decode;
    placement_stop_waiting(&dispatch->placement, &request->placing);
    if (is_open(request)) {
        call->sampling.max_tokens = (uint32_t)(placed_tokens - call->prompt_count);
        for (uint32_t i = 0; i < call->choice_count; i++) /* all may become equally long */
            call->choices[i].trace.max_tokens = call->sampling.max_tokens;
    }
    FAILPOINT("router.placed");
    if (!request->timing.dispatched_us)
        request->timing.dispatched_us = dispatch->now_us;
    if (!request->life.binding) /* its attempt goes on */
        request_trace_placed(&request->trace, request->life.attempt,
                             request->place.kind == LIFE_PLACE_DECODE, dispatch->now_us);
    if (!request->emitted_count) {
        const struct candidate *decode =
            candidates_get(&dispatch->placement.candidates, choice.decode);
        request->kind = (struct route_kind){decode->is.model_hash, decode->is.numerics_id};
    }
    const struct prediction *predicted = &request->placing.predicted;
    if (predicted->known && !request->predicted.ttft_us)
        request->predicted.ttft_us = (uint64_t)predicted->ttft_us;
    if (predicted->known && !request->predicted.tpot_us) /* perhaps not before it is bound */
        request->predicted.tpot_us = (uint64_t)predicted->tpot_us;
    request_life_on_placed(&request->life, dispatch->now_us, choice.prefill, reader, &actions);
    breakers_placed(&dispatch->breakers, &request->life, dispatch->now_us);
    request_execute(dispatch, request, &actions);
    request_observers_moved(&dispatch->config.views, request);
    placement_placed(&dispatch->placement, &request->placing, choice.prefill, reader);
    failures_apply(dispatch); /* if it is a probe, no other goes there */
}

static void no_place(struct dispatch *dispatch, struct request *request, bool worker_exists,
                     uint64_t away_since_us)
{
    struct life_actions actions;
    request_life_on_no_place(&request->life, dispatch->now_us, worker_exists, away_since_us,
                             &actions);
    request_execute(dispatch, request, &actions);
}

static void explain_too_long(struct request *request, uint64_t most_tokens)
{
    char answer[96] = ", and its answer needs room";
    if (!is_open(request))
        snprintf(answer, sizeof answer, " and %s %u, together %" PRIu64,
                 request->call->open_max_tokens ? "its answer was to have at most"
                 : request->call->prompt_only   ? "to compute it takes room for"
                                                : "max_tokens is",
                 request->call->sampling.max_tokens, longest_tokens(request));
    snprintf(
        request->refusal, sizeof request->refusal,
        "the prompt has %u token%s%s, but one request may have %" PRIu64 " on a decode worker%s",
        request->call->prompt_count, request->call->prompt_count == 1 ? "" : "s", answer,
        most_tokens,
        least_tokens(request) > most_tokens ? "" : ", and its prompt fits into no prefill worker");
}

/* Writes "2 known, 1 down". */
static void count_away(const struct candidate_pool *pool, enum worker_role role, char *text,
                       size_t size)
{
    unsigned known = pool->roles[role].known, draining = pool->roles[role].draining;
    unsigned down = known - pool->roles[role].up - draining;
    if (!known)
        snprintf(text, size, "none known");
    else if (!draining)
        snprintf(text, size, "%u known, %u down", known, down);
    else
        snprintf(text, size, "%u known, %u down, %u draining", known, down, draining);
}

/* Writes the model's name where several models are served. */
static void name_model(const struct dispatch *dispatch, const struct request *request, char *text,
                       size_t size)
{
    const struct served_models *models = dispatch->config.models;
    snprintf(text, size, "%s%s%s", models->count > 1 ? " of model \"" : "",
             models->count > 1 ? models->items[request->call->model].name : "",
             models->count > 1 ? "\"" : "");
}

static void tell_size(const struct request *request, char *text, size_t size)
{
    if (is_open(request))
        snprintf(text, size, "%u tokens of prompt, and its answer needs room",
                 request->call->prompt_count);
    else if (request->call->prompt_only)
        snprintf(text, size, "%u tokens of prompt, and room for 1 more",
                 request->call->prompt_count);
    else
        snprintf(text, size, "%" PRIu64 " tokens, prompt and %s", longest_tokens(request),
                 request->call->open_max_tokens ? "longest answer" : "max_tokens");
}

void dispatch_explain_no_worker(const struct dispatch *dispatch, struct request *request)
{
    char decode[64], prefill[64], model[160], tokens[80];
    char *text = request->refusal;
    size_t size = sizeof request->refusal;
    const struct candidate_pool *pool = &dispatch->placement.candidates.pools[request->call->model];
    count_away(pool, ROLE_DECODE, decode, sizeof decode);
    count_away(pool, ROLE_PREFILL, prefill, sizeof prefill);
    name_model(dispatch, request, model, sizeof model);
    switch (request->lack) {
    case ROUTE_LACKS_NOTHING: *text = 0; break;
    case ROUTE_LACKS_DECODE:
        snprintf(text, size, "no decode worker%s is up (%s)", model, decode);
        break;
    case ROUTE_LACKS_KIND:
        snprintf(text, size,
                 "the decode workers%s that are up (%s) have other weights or numerics than its "
                 "answer began with",
                 model, decode);
        break;
    case ROUTE_LACKS_FIT:
        snprintf(text, size,
                 "no decode worker%s that is up (%s) fits a prefill worker (%s): model, KV layout "
                 "and numerics must be the same",
                 model, decode, prefill);
        break;
    case ROUTE_LACKS_SPACE:
        tell_size(request, tokens, sizeof tokens);
        snprintf(text, size,
                 "the workers%s that are up (decode: %s; prefill: %s) are too small for its %s",
                 model, decode, prefill, tokens);
        break;
    case ROUTE_LACKS_PREFILL:
        snprintf(text, size,
                 "no prefill worker%s that could take it is up (%s), and local-prefill-wait is not "
                 "over",
                 model, prefill);
        break;
    }
}

static bool is_known(const struct worker *worker)
{
    return worker && worker->learnt.steps.figures.steps >= KNOWN_STEPS;
}

/* Returns the least time of its answer there. NULL, or a worker of unknown cost: 0. */
static uint64_t least_on_us(const struct request *request, const struct worker *worker)
{
    const struct deadline_work work = {.answer_tokens = tokens_left(request),
                                       .context = prompt_tokens(request)};
    return deadline_least_us(NULL, is_known(worker) ? &worker->learnt.steps.figures.cost : NULL,
                             &work);
}

uint64_t request_least_us(const struct dispatch *dispatch, const struct request *request,
                          uint64_t decode)
{
    const struct workers *workers = &dispatch->workers;
    uint64_t least_us = least_on_us(request, workers_get(workers, decode));
    if (!deadline_is_missed(dispatch->now_us, request->call->deadline_us, least_us))
        return least_us;
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *other = workers->items[i];
        if (other->model != request->call->model || other->info.role != ROLE_DECODE ||
            !worker_is_ready(other) || !is_known(other))
            continue;
        uint64_t there_us = least_on_us(request, other);
        least_us = there_us < least_us ? there_us : least_us;
    }
    return least_us;
}

/* Ends a request that surely misses its deadline. False: it may be in time. */
static bool end_hopeless(struct dispatch *dispatch, struct request *request, uint64_t decode)
{
    uint64_t now_us = dispatch->now_us, deadline_us = request->call->deadline_us;
    uint64_t least_us = request_least_us(dispatch, request, decode);
    if (!deadline_is_missed(now_us, deadline_us, least_us))
        return false;
    snprintf(request->refusal, sizeof request->refusal,
             "its deadline can't be met any more: %u of %u tokens of the answer are there, and the "
             "others take %" PRIu64 " ms at least",
             request->emitted_count, request->call->sampling.max_tokens, least_us / 1000);
    request_fail(dispatch, request, TERMINAL_DEADLINE, REQUEST_LATE);
    return true;
}

/* Finds a place for one request. */
static void try_request(struct dispatch *dispatch, struct request *request)
{
    uint64_t placed_tokens;
    struct decision decision;
    decision_begin(&decision, placement_policy_names[dispatch->placement.config.policy]);
    struct route_choice choice = choose(dispatch, request, &decision, &placed_tokens);
    struct life_actions actions;
    switch (choice.outcome) {
    case ROUTE_PLACED:
        if (end_hopeless(dispatch, request, choice.decode))
            break;
        switch (request_admit(dispatch, request, &decision, &choice)) {
        case ADMISSION_TAKEN:
        case ADMISSION_LET_THROUGH: place(dispatch, request, choice, placed_tokens); break;
        case ADMISSION_HELD: no_place(dispatch, request, true, UINT64_MAX); break;
        case ADMISSION_REJECTED: break;
        }
        break;
    case ROUTE_FULL: no_place(dispatch, request, true, UINT64_MAX); break;
    case ROUTE_NO_WORKER:
        request->lack = choice.lack;
        no_place(dispatch, request, false, choice.away_since_us);
        break;
    case ROUTE_NO_READER:
        placement_stop_waiting(&dispatch->placement, &request->placing);
        request_life_on_no_reader(&request->life, &actions);
        request_execute(dispatch, request, &actions);
        break;
    case ROUTE_TOO_LONG:
        explain_too_long(request, choice.most_tokens);
        request_fail(dispatch, request, TERMINAL_INVALID,
                     reason_name(REASON_CONTEXT_LENGTH_EXCEEDED));
        break;
    }
}

void dispatch_place(struct dispatch *dispatch)
{
    struct placement *placement = &dispatch->placement;
    if (!dispatch->place_needed)
        return;
    dispatch->place_needed = false;
    for (size_t i = 0; i < dispatch->config.models->count; i++)
        atomic_store(&dispatch->retry_after_s[i],
                     (uint32_t)(placement_retry_us(placement, i, dispatch->now_us) / 1000000));
    for (size_t i = 0; placement->waiting && i < dispatch->config.models->count; i++) {
        placement_begin(placement, i, dispatch->now_us);
        for (struct placement_request *next; (next = placement_next(placement));)
            if (!request_of(next)->call->constraint_waits) /* it is passed while it is compiled */
                try_request(dispatch, request_of(next));
    }
    if (placement->prefix_index)
        prefix_index_expire(placement->prefix_index, dispatch->now_us);
    dispatch_show_prefixes(dispatch);
}

void dispatch_show_prefixes(struct dispatch *dispatch)
{
    if (!dispatch->placement.prefix_index)
        return;
    const struct prefix_index_figures figures =
        prefix_index_figures(dispatch->placement.prefix_index);
    router_metrics_prefix(dispatch->config.metrics, &figures);
}
