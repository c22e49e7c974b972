/* Failures in a turn: which workers and pairs get no requests, because they fail them or hang, and
 * which retries wait for the budget. The decisions are breaker.h's, step_watch.h's and
 * retry_budget.h's. */
#include "common/base/log.h"
#include "router/dispatch/dispatch_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* A hung worker's requests stay with it where no other could take them; that is asked again. */
#define STILL_HANGS_US 1000000

enum status failures_init(struct dispatch *dispatch, uint64_t now_us)
{
    const struct dispatch_config *config = &dispatch->config;
    struct breaker_limits breakers = breaker_limits_default();
    struct retry_budget_limits budget = retry_budget_limits_default();
    breakers.failures = config->breaker_failures;
    budget.percent = config->retry_percent;
    for (size_t i = 0; i < SERVED_MODELS_MAX; i++) {
        retry_budget_init(&dispatch->budgets[i], &budget, now_us);
        TAILQ_INIT(&dispatch->held[i]);
    }
    dispatch->failures_due_us = dispatch->breakers_due_us = UINT64_MAX;
    dispatch->failing = calloc(WORKERS_MAX_SLOTS + BREAKER_MAX_PAIRS, sizeof *dispatch->failing);
    if (!dispatch->failing)
        return STATUS_LIMIT;
    return breakers_init(&dispatch->breakers, &breakers, WORKERS_MAX_SLOTS);
}

void failures_deinit(struct dispatch *dispatch)
{
    free(dispatch->failing);
    breakers_deinit(&dispatch->breakers);
}

static void due_at(struct dispatch *dispatch, uint64_t at_us)
{
    if (at_us < dispatch->failures_due_us)
        dispatch->failures_due_us = at_us;
}

/* ---------------------------------------------------------------------------------- the budget */

static const struct model_metrics *metrics_of(const struct dispatch *dispatch, size_t model)
{
    return &dispatch->config.metrics->models[model];
}

/* Lets it wait for the budget, by arrival. */
static void hold(struct dispatch *dispatch, struct request *request)
{
    struct request_list *list = &dispatch->held[request->call->model];
    struct request *before = TAILQ_LAST(list, request_list);
    while (before && before->placing.order > request->placing.order)
        before = TAILQ_PREV(before, request_list, held_link);
    if (before)
        TAILQ_INSERT_AFTER(list, before, request, held_link);
    else
        TAILQ_INSERT_HEAD(list, request, held_link);
    request->held = true;
    dispatch->held_count++;
}

bool request_pays(struct dispatch *dispatch, struct request *request)
{
    size_t model = request->call->model;
    struct retry_budget *budget = &dispatch->budgets[model];
    /* One that fails now must not overtake the ones that wait. */
    bool first = request->held || TAILQ_EMPTY(&dispatch->held[model]);
    bool pays = first && retry_budget_take(budget, dispatch->now_us);
    if (!pays && !request->held) {
        hold(dispatch, request);
        counter_add(metrics_of(dispatch, model)->retries_held, 1);
        log_warn_limited("dispatch",
                         "req=%s msg=\"the retry budget is used up: its prompt is computed again "
                         "when there is some\"",
                         request->call->name);
    }
    if (!pays)
        due_at(dispatch, retry_budget_next_us(budget));
    gauge_set(metrics_of(dispatch, model)->retry_budget,
              retry_budget_left(budget, dispatch->now_us));
    return pays;
}

void request_not_held(struct dispatch *dispatch, struct request *request)
{
    if (!request->held)
        return;
    TAILQ_REMOVE(&dispatch->held[request->call->model], request, held_link);
    dispatch->held_count--;
    request->held = false;
}

/* --------------------------------------------------------------------------- workers that hang */

static void leave(struct dispatch *dispatch, struct request *request, uint64_t worker,
                  const char *why)
{
    struct life_actions actions;
    uint32_t attempt = request->life.attempt;
    request_life_on_silent(&request->life, worker, &actions);
    if (actions.count)
        request_trace_why(&request->trace, attempt, why);
    request_execute(dispatch, request, &actions);
}

/* A worker that hangs counts as away. Its requests leave it once others could take them, and look
 * again until then. */
static void leave_hung(struct dispatch *dispatch, const struct worker *worker)
{
    struct placement_request *next;
    uint64_t key = worker->key;
    due_at(dispatch, dispatch->now_us + STILL_HANGS_US);
    for (struct placement_request *placing = placement_first_of(&dispatch->placement, key); placing;
         placing = next) {
        next = placement_next_of(placing, key);
        if (request_could_move(dispatch, request_of(placing)))
            leave(dispatch, request_of(placing), key, "step_hangs");
    }
}

/* The worker hangs from now on, or gets on again (`by` -1). */
static void count_hung(struct dispatch *dispatch, const struct worker *worker, int by)
{
    bool decode = worker->info.role == ROLE_DECODE;
    gauge_add(metrics_of(dispatch, worker->model)->workers_hung[decode], by);
    dispatch->board_changed = true;
}

/* Looks at one worker. Returns when it is due again. */
static uint64_t watch(struct dispatch *dispatch, struct worker *worker)
{
    uint64_t limit_us = dispatch->config.step_timeout_us, at_us;
    if (worker->state != WORKER_UP)
        return UINT64_MAX;
    if (step_watch_tick(&worker->watch, limit_us, dispatch->now_us)) {
        count_hung(dispatch, worker, 1);
        worker_changed(&dispatch->workers, worker, dispatch->now_us);
        log_error_limited(
            "dispatch",
            "worker=%s limit_ms=%" PRIu64 " running=%u others=%d msg=\"a step of this worker does "
            "not end: it counts as away, and its requests go elsewhere\"",
            worker->info.name, limit_us / 1000, worker->load.running,
            placement_serves(&dispatch->placement, worker->model, dispatch->now_us, &at_us));
        counter_add(dispatch->config.metrics->hangs, 1);
        breakers_left(&dispatch->breakers, worker->key, dispatch->now_us);
    }
    if (worker->watch.hangs)
        leave_hung(dispatch, worker);
    return step_watch_next_us(&worker->watch, limit_us);
}

static bool has_queue(const struct worker *worker)
{
    return worker->load.queued_requests || worker->load.queued_tokens;
}

void worker_reported_steps(struct dispatch *dispatch, struct worker *worker,
                           const struct step_report_seen *report)
{
    bool hung = worker->watch.hangs;
    if (has_queue(worker))
        worker->queued_us = dispatch->now_us;
    if (!report) {
        worker->watch = (struct step_watch){.reported = false};
    } else if (step_watch_report(&worker->watch, report, dispatch->now_us)) {
        log_warn_limited("dispatch", "worker=%s msg=\"the step of this worker has ended\"",
                         worker->info.name);
        worker_changed(&dispatch->workers, worker, dispatch->now_us);
    }
    if (hung && !worker->watch.hangs)
        count_hung(dispatch, worker, -1);
    due_at(dispatch, step_watch_next_us(&worker->watch, dispatch->config.step_timeout_us));
}

void request_is_silent(struct dispatch *dispatch, struct request *request, uint64_t key)
{
    struct worker *worker = workers_get(&dispatch->workers, key);
    if (!worker || has_queue(worker) ||
        (worker->watch.hangs && !request_could_move(dispatch, request)))
        return; /* it waits in the worker's queue, or couldn't go anywhere */
    /* It may have waited there until then: the silence begins after the wait. It gets this time
     * once, as a later report is about the queue of others. */
    const struct request_life *life = &request->life;
    bool left = request->left_queue.worker == key && request->left_queue.attempt == life->attempt;
    if (!left && worker->queued_us &&
        dispatch->now_us - worker->queued_us < life->limits.silence_us) {
        request->left_queue.worker = key;
        request->left_queue.attempt = life->attempt;
        request_life_on_sign(&request->life, worker->queued_us, key, life->attempt);
        return;
    }
    log_warn_lifecycle("dispatch",
                       "req=%s attempt=%u worker=%s msg=\"this worker owes it a token and says "
                       "nothing: it goes elsewhere\"",
                       request->call->name, request->life.attempt, worker->info.name);
    breakers_left(&dispatch->breakers, key, dispatch->now_us);
    leave(dispatch, request, key, "silent");
}

/* ---------------------------------------------------------- workers and pairs that are kept out */

/* Pools of a model: its prefill workers, its decode workers, its pairs, and the pairs of prefill
 * workers that drain: prompts that these have computed may still need a reader. */
enum { POOLS = 4, OF_PAIRS = 2, OF_LAST_READERS = 3 };

/* Lists the ready workers, and the pairs of them, that have failed lately; and the readers that
 * failed to read from a worker that drains. Returns how many. */
static size_t list_failing(struct dispatch *dispatch)
{
    struct breakers *breakers = &dispatch->breakers;
    struct breaker_candidate *list = dispatch->failing;
    size_t count = 0;
    for (size_t i = 0; i < breakers->noted_count; i++) {
        struct worker *worker = workers_get(&dispatch->workers, breakers->noted[i]);
        if (!worker)
            continue;
        worker->breaker = breakers_of(breakers, worker->key)->state;
        uint32_t pool = (uint32_t)worker->model * POOLS + (worker->info.role == ROLE_DECODE);
        if (worker_is_ready(worker) || worker->breaker == BREAKER_CLOSED) /* it is let in */
            list[count++] = (struct breaker_candidate){.worker = worker->key, .pool = pool};
    }
    for (size_t i = 0; i < breakers->pair_count; i++) {
        const struct pair_breaker *pair = &breakers->pairs[i];
        const struct worker *prefill = workers_get(&dispatch->workers, pair->prefill),
                            *decode = workers_get(&dispatch->workers, pair->decode);
        bool drains = prefill && prefill->state == WORKER_UP && prefill->load.draining;
        if (prefill && decode && (worker_is_ready(prefill) || drains) && worker_is_ready(decode))
            list[count++] = (struct breaker_candidate){
                .worker = pair->prefill,
                .reader = pair->decode,
                .pool = (uint32_t)prefill->model * POOLS + (drains ? OF_LAST_READERS : OF_PAIRS)};
    }
    return count;
}

static void keep_worker_out(struct dispatch *dispatch, struct breaker_candidate out)
{
    struct worker *worker = workers_get(&dispatch->workers, out.worker);
    const struct breaker *breaker = breakers_of(&dispatch->breakers, out.worker);
    bool kept_out = out.until_us != 0;
    if (kept_out && !worker->kept_out)
        log_warn_lifecycle("dispatch",
                           "worker=%s for_ms=%" PRIu64 " opened=%" PRIu64 " msg=\"requests fail at "
                           "this worker: it is kept out, and tried again then\"",
                           worker->info.name, breaker->backoff_us / 1000, breaker->opened_count);
    else if (!kept_out && worker->kept_out)
        log_info_lifecycle("dispatch", "worker=%s state=%s msg=\"this worker is let in again\"",
                           worker->info.name, breaker_state_name(breaker->state));
    worker->kept_out = kept_out;
    candidates_block(&dispatch->placement.candidates, out.worker, out.until_us);
}

static void keep_pair_out(struct dispatch *dispatch, struct breaker_candidate out)
{
    struct pair_breaker *pair =
        breakers_pair(&dispatch->breakers, out.worker, out.reader); /* it is there */
    bool kept_out = out.until_us != 0;
    const char *prefill = workers_get(&dispatch->workers, out.worker)->info.name,
               *decode = workers_get(&dispatch->workers, out.reader)->info.name;
    if (kept_out && !pair->kept_out)
        log_warn_lifecycle("dispatch",
                           "prefill=%s decode=%s for_ms=%" PRIu64 " opened=%" PRIu64 " msg=\"reads "
                           "fail between these workers: they are paired with others, and tried "
                           "again then\"",
                           prefill, decode, pair->breaker.backoff_us / 1000,
                           pair->breaker.opened_count);
    else if (!kept_out && pair->kept_out)
        log_info_lifecycle("dispatch",
                           "prefill=%s decode=%s state=%s msg=\"these workers may be paired "
                           "again\"",
                           prefill, decode, breaker_state_name(pair->breaker.state));
    pair->kept_out = kept_out;
}

/* Tells placement which workers and pairs get requests only if there are no others. Costs as much
 * as there are ones that have failed. Returns when that changes by itself. */
static uint64_t keep_out(struct dispatch *dispatch)
{
    size_t ready[POOLS * SERVED_MODELS_MAX] = {0}, out[POOLS * SERVED_MODELS_MAX] = {0}, pairs = 0;
    struct candidate_pair apart[BREAKER_MAX_PAIRS];
    size_t count = list_failing(dispatch);
    for (size_t model = 0; model < dispatch->config.models->count; model++) {
        const struct candidate_pool *pool = &dispatch->placement.candidates.pools[model];
        size_t *of = &ready[model * POOLS];
        of[0] = pool->roles[ROLE_PREFILL].up;
        of[1] = pool->roles[ROLE_DECODE].up;
        of[OF_PAIRS] = of[0] * of[1];
        of[OF_LAST_READERS] = pool->roles[ROLE_PREFILL].draining * of[1];
    }
    uint64_t next_us =
        breakers_keep_out(&dispatch->breakers, dispatch->failing, count, ready, dispatch->now_us);
    for (size_t i = 0; i < count; i++) {
        struct breaker_candidate one = dispatch->failing[i];
        out[one.pool] += one.until_us != 0;
        if (!one.reader)
            keep_worker_out(dispatch, one);
        else
            keep_pair_out(dispatch, one);
        if (one.reader && one.until_us)
            apart[pairs++] = (struct candidate_pair){one.worker, one.reader, one.until_us};
    }
    if (candidates_block_pairs(&dispatch->placement.candidates, apart, pairs) != STATUS_OK)
        log_error_limited("dispatch", "msg=\"no memory: pairs that fail get requests\"");
    for (size_t model = 0; model < dispatch->config.models->count; model++) {
        const struct model_metrics *metrics = metrics_of(dispatch, model);
        gauge_set(metrics->workers_kept_out[0], (double)out[model * POOLS]);
        gauge_set(metrics->workers_kept_out[1], (double)out[model * POOLS + 1]);
        gauge_set(metrics->pairs_kept_out,
                  (double)(out[model * POOLS + OF_PAIRS] + out[model * POOLS + OF_LAST_READERS]));
    }
    breakers_tidy(&dispatch->breakers);
    return next_us;
}

void failures_tick(struct dispatch *dispatch)
{
    if (dispatch->failures_due_us > dispatch->now_us)
        return;
    dispatch->failures_due_us = UINT64_MAX;
    for (size_t model = 0; dispatch->held_count && model < dispatch->config.models->count; model++)
        for (struct request *request; (request = TAILQ_FIRST(&dispatch->held[model]));) {
            if (!request_pays(dispatch, request))
                break; /* the others came later */
            request_not_held(dispatch, request);
            request_wait_for_place(dispatch, request);
        }
    for (size_t i = 0; i < dispatch->workers.count; i++)
        due_at(dispatch, watch(dispatch, dispatch->workers.items[i]));
}

void failures_apply(struct dispatch *dispatch)
{
    if (dispatch->workers.changes == dispatch->workers_seen &&
        dispatch->breakers.changes == dispatch->breakers_seen &&
        dispatch->breakers_due_us > dispatch->now_us)
        return;
    dispatch->workers_seen = dispatch->workers.changes;
    dispatch->breakers_seen = dispatch->breakers.changes;
    dispatch->breakers_due_us = keep_out(dispatch);
    dispatch->place_needed = dispatch->board_changed = true;
}

uint64_t failures_next_us(const struct dispatch *dispatch)
{
    return dispatch->breakers_due_us < dispatch->failures_due_us ? dispatch->breakers_due_us
                                                                 : dispatch->failures_due_us;
}
