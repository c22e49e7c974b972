#include "common/base/failpoint.h"
#include "router/dispatch/dispatch_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct route_worker *candidate(struct candidates *candidates, uint64_t key)
{
    struct route_worker *found = key ? candidates->of_slot[key % WORKERS_MAX_SLOTS] : NULL;
    return found && found->key == key ? found : NULL;
}

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

/* Adds the work that a request is to its workers, and the place that it takes there. */
static void add_work(struct candidates *candidates, const struct request *request)
{
    const struct request_life *life = &request->life;
    struct route_worker *prefill = candidate(candidates, life->prefill);
    if (prefill && !request->confirmed) /* otherwise its handle is gone there */
        prefill->requests++;
    if (life->state != REQUEST_PREFILL && life->state != REQUEST_DECODE)
        return;
    struct route_worker *decode = candidate(candidates, life->decode);
    if (prefill && !request->prefilled)
        prefill->work_tokens += prompt_tokens(request);
    if (decode) {
        decode->requests++;
        decode->work_tokens += longest_tokens(request);
    }
    if (decode && !request->confirmed)
        decode->unconfirmed_tokens += prompt_tokens(request);
}

static void add_candidate(const struct dispatch *dispatch, struct candidates *candidates,
                          const struct worker *worker)
{
    const struct worker_info *info = &worker->info;
    uint64_t pool_tokens = (uint64_t)info->block_count * info->block_tokens;
    uint64_t limit_tokens = dispatch->config.unconfirmed_tokens;
    bool ready = worker_is_ready(worker);
    const struct route_worker added = {
        .key = worker->key,
        .role = info->role,
        .ready = ready,
        .away_since_us = worker->away_since_us,
        .model_hash = info->model_hash,
        .layout_hash = info->layout_hash,
        .numerics_id = info->numerics_id,
        .capacity_tokens = worker_capacity_tokens(info),
        .unconfirmed_limit_tokens = limit_tokens ? limit_tokens : pool_tokens / 2,
        .max_requests = info->max_sequences,
        .placed_at = worker->placed_at,
    };
    candidates->of_slot[worker->key % WORKERS_MAX_SLOTS] = route_pools_add(
        &candidates->pools, worker->model, &added, worker->state == WORKER_UP && !ready);
}

static void count_work(const struct dispatch *dispatch, struct candidates *candidates)
{
    const struct workers *workers = &dispatch->workers;
    size_t counts[SERVED_MODELS_MAX] = {0};
    for (size_t i = 0; i < workers->count; i++)
        counts[workers->items[i]->model] += workers->items[i]->state != WORKER_LEAVING;
    route_pools_reset(&candidates->pools, dispatch->config.models->count, counts);
    memset(candidates->of_slot, 0, sizeof candidates->of_slot);
    for (size_t i = 0; i < workers->count; i++)
        if (workers->items[i]->state != WORKER_LEAVING)
            add_candidate(dispatch, candidates, workers->items[i]);
    const struct request *request;
    TAILQ_FOREACH(request, &dispatch->all, all_link)
    add_work(candidates, request);
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *worker = workers->items[i];
        struct route_worker *counted = candidate(candidates, worker->key);
        if (counted && worker->load.queued_tokens > counted->work_tokens)
            counted->work_tokens = worker->load.queued_tokens;
    }
}

/* Returns the tokens that it is placed for. With an open length it is placed for as much of the
 * most as the largest decode worker that could take it has room for. The worker need not be
 * free: how long an answer may be must not depend on load. */
static uint64_t total_tokens(const struct candidates *candidates, const struct request *request,
                             const struct route_request *asked, const struct route_handle *handle)
{
    if (!is_open(request))
        return longest_tokens(request);
    uint64_t most = (uint64_t)request->call->prompt_count + request->call->open_max_tokens;
    uint64_t room = route_pools_room(&candidates->pools, request->call->model, asked, handle);
    if (!room)
        return asked->total_tokens; /* the sentence then says what it lacks */
    return room < most ? room : most;
}

/* Sets *placed_tokens to the tokens that it is placed for. */
static struct route_choice choose(const struct dispatch *dispatch,
                                  const struct candidates *candidates,
                                  const struct request *request, uint64_t *placed_tokens)
{
    uint64_t wait_us = dispatch->config.limits.local_us;
    struct route_request asked = {.kind = request->emitted_count ? &request->kind : NULL,
                                  .prompt_tokens = prompt_tokens(request),
                                  .total_tokens = least_tokens(request),
                                  .ends_at_prefill = ends_at_prefill(request),
                                  .avoid_prefill = request->place.avoid_prefill,
                                  .avoid_decode = request->place.avoid_decode,
                                  .local = dispatch->config.force_local_prefill,
                                  .local_away_us =
                                      dispatch->now_us > wait_us ? dispatch->now_us - wait_us : 0,
                                  .misfits = dispatch->misfits.items,
                                  .misfit_count = dispatch->misfits.count};
    struct route_handle handle = {.prefill = request->life.prefill,
                                  .model_hash = request->handle.model_hash,
                                  .layout_hash = request->handle.layout_hash,
                                  .numerics_id = request->handle.numerics_id};
    const struct route_handle *held = request->place.kind == LIFE_PLACE ? NULL : &handle;
    asked.total_tokens = *placed_tokens = total_tokens(candidates, request, &asked, held);
    if (!held)
        return route_pools_request(&candidates->pools, request->call->model, &asked);
    return route_pools_handle(&candidates->pools, request->call->model, &asked, held);
}

static void mark_placed(struct dispatch *dispatch, struct candidates *candidates, uint64_t key)
{
    struct worker *worker = workers_get(&dispatch->workers, key);
    struct route_worker *placed = candidate(candidates, key);
    if (worker && placed)
        worker->placed_at = placed->placed_at = dispatch->placements;
}

/* All choices of a call may become equally long. */
static void set_max_tokens(struct request *request, uint64_t placed_tokens)
{
    struct call *call = request->call;
    if (!is_open(request))
        return;
    call->sampling.max_tokens = (uint32_t)(placed_tokens - call->prompt_count);
    for (uint32_t i = 0; i < call->choice_count; i++)
        call->choices[i].trace.max_tokens = call->sampling.max_tokens;
}

static void place(struct dispatch *dispatch, struct candidates *candidates, struct request *request,
                  struct route_choice choice, uint64_t placed_tokens)
{
    struct life_actions actions;
    uint64_t reader = choice.prefill && ends_at_prefill(request) ? 0 : choice.decode;
    request_stop_waiting(dispatch, request);
    set_max_tokens(request, placed_tokens);
    FAILPOINT("router.placed");
    if (!request->timing.dispatched_us)
        request->timing.dispatched_us = dispatch->now_us;
    request_trace_placed(&request->trace, request->life.attempt,
                         request->place.kind == LIFE_PLACE_DECODE, dispatch->now_us);
    request_life_on_placed(&request->life, dispatch->now_us, choice.prefill, reader, &actions);
    request_execute(dispatch, request, &actions);
    request_observers_moved(&dispatch->config.views, request);
    dispatch->placements++;
    mark_placed(dispatch, candidates, choice.prefill);
    mark_placed(dispatch, candidates, reader);
    const struct route_worker *decode = candidate(candidates, choice.decode);
    if (!request->emitted_count)
        request->kind = (struct route_kind){decode->model_hash, decode->numerics_id};
    add_work(candidates, request);
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
static void count_away(const struct route_pool *pool, enum worker_role role, char *text,
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
    const struct route_pool *pool = &dispatch->candidates.pools.pools[request->call->model];
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

/* Places the requests of one list, first come, first served. None passes one that all workers are
 * too full for, or large prompts would starve. A request is passed while its constraint is being
 * compiled. */
static void place_list(struct dispatch *dispatch, struct candidates *candidates,
                       struct request_list *list)
{
    bool full = false;
    struct request *next;
    for (struct request *request = TAILQ_FIRST(list); request; request = next) {
        next = TAILQ_NEXT(request, waiting_link);
        if (request->call->constraint_waits)
            continue;
        if (full) {
            no_place(dispatch, request, true, UINT64_MAX);
            continue;
        }
        uint64_t placed_tokens;
        struct route_choice choice = choose(dispatch, candidates, request, &placed_tokens);
        struct life_actions actions;
        switch (choice.outcome) {
        case ROUTE_PLACED: place(dispatch, candidates, request, choice, placed_tokens); break;
        case ROUTE_FULL:
            full = true;
            no_place(dispatch, request, true, UINT64_MAX);
            break;
        case ROUTE_NO_WORKER:
            request->lack = choice.lack;
            no_place(dispatch, request, false, choice.away_since_us);
            break;
        case ROUTE_NO_READER:
            request_stop_waiting(dispatch, request);
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
}

void dispatch_place(struct dispatch *dispatch)
{
    if (!dispatch->place_needed)
        return;
    dispatch->place_needed = false;
    workers_note_away(&dispatch->workers, dispatch->now_us);
    if (!dispatch->waiting_count)
        return;
    struct candidates *candidates = &dispatch->candidates;
    count_work(dispatch, candidates);
    for (size_t i = 0; i < dispatch->config.models->count; i++) {
        place_list(dispatch, candidates, &dispatch->queues[i].regiving);
        place_list(dispatch, candidates, &dispatch->queues[i].waiting);
    }
}
