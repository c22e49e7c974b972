/* Failures in a turn: which workers get no requests, because they fail them or hang, and which
 * retries wait for the budget. The decisions are breaker.h's, step_watch.h's, retry_budget.h's. */
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
    for (size_t i = 0; i < SERVED_MODELS_MAX; i++)
        retry_budget_init(&dispatch->budgets[i], &budget, now_us);
    dispatch->failures_due_us = dispatch->breakers_due_us = UINT64_MAX;
    dispatch->kept_out = calloc(WORKERS_MAX_SLOTS, sizeof *dispatch->kept_out);
    if (!dispatch->kept_out)
        return STATUS_LIMIT;
    return breakers_init(&dispatch->breakers, &breakers, WORKERS_MAX_SLOTS);
}

void failures_deinit(struct dispatch *dispatch)
{
    free(dispatch->kept_out);
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

bool request_pays(struct dispatch *dispatch, struct request *request)
{
    size_t model = request->call->model;
    struct retry_budget *budget = &dispatch->budgets[model];
    bool pays = retry_budget_take(budget, dispatch->now_us);
    if (!pays && !request->held) {
        request->held = true;
        dispatch->held_count++;
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
    dispatch->held_count -= request->held;
    request->held = false;
}

/* Lets requests go on that wait for the budget, by arrival, as far as it reaches. */
static void release_held(struct dispatch *dispatch)
{
    struct request *next;
    for (struct request *request = TAILQ_FIRST(&dispatch->all); request && dispatch->held_count;
         request = next) {
        next = TAILQ_NEXT(request, all_link);
        if (!request->held || !request_pays(dispatch, request))
            continue;
        request_not_held(dispatch, request);
        request_wait_for_place(dispatch, request);
    }
}

/* --------------------------------------------------------------------------- workers that hang */

/* True: another worker of its model and role takes work, and gets on. An answer that has begun goes
 * on at a worker of its kind only. `request` NULL: for any request. */
static bool is_replaceable(const struct dispatch *dispatch, const struct worker *worker,
                           const struct request *request)
{
    const struct workers *workers = &dispatch->workers;
    const struct route_kind *kind = request && request->emitted_count ? &request->kind : NULL;
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *other = workers->items[i];
        if (other != worker && other->model == worker->model &&
            other->info.role == worker->info.role && worker_is_ready(other) &&
            !other->watch.hangs &&
            (!kind || (other->info.model_hash == kind->model_hash &&
                       other->info.numerics_id == kind->numerics_id)))
            return true;
    }
    return false;
}

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

static void leave_hung(struct dispatch *dispatch, const struct worker *worker)
{
    struct placement_request *next;
    uint64_t key = worker->key;
    due_at(dispatch, dispatch->now_us + STILL_HANGS_US);
    if (!is_replaceable(dispatch, worker, NULL))
        return;
    for (struct placement_request *placing = placement_first_of(&dispatch->placement, key); placing;
         placing = next) {
        next = placement_next_of(placing, key);
        if (is_replaceable(dispatch, worker, request_of(placing)))
            leave(dispatch, request_of(placing), key, "step_hangs");
    }
}

/* Looks at one worker. Returns when it is due again. */
static uint64_t watch(struct dispatch *dispatch, struct worker *worker)
{
    uint64_t limit_us = dispatch->config.step_timeout_us;
    if (worker->state != WORKER_UP)
        return UINT64_MAX;
    if (step_watch_tick(&worker->watch, limit_us, dispatch->now_us)) {
        log_error_limited("dispatch",
                          "worker=%s limit_ms=%" PRIu64 " running=%u can_move=%d msg=\"a step of "
                          "this worker does not end: its requests go elsewhere\"",
                          worker->info.name, limit_us / 1000, worker->load.running,
                          is_replaceable(dispatch, worker, NULL));
        counter_add(dispatch->config.metrics->hangs, 1);
        breakers_left(&dispatch->breakers, worker->key, dispatch->now_us);
        dispatch->board_changed = true;
    }
    if (worker->watch.hangs) {
        leave_hung(dispatch, worker);
        dispatch->workers.changes++; /* and it is kept out for longer */
    }
    return step_watch_next_us(&worker->watch, limit_us);
}

void worker_reported_steps(struct dispatch *dispatch, struct worker *worker,
                           const struct step_report_seen *report)
{
    bool hung = worker->watch.hangs;
    if (!report)
        worker->watch = (struct step_watch){.reported = false};
    else if (step_watch_report(&worker->watch, report, dispatch->now_us))
        log_warn_limited("dispatch", "worker=%s msg=\"the step of this worker has ended\"",
                         worker->info.name);
    dispatch->workers.changes += hung != worker->watch.hangs;
    dispatch->board_changed |= hung != worker->watch.hangs;
    due_at(dispatch, step_watch_next_us(&worker->watch, dispatch->config.step_timeout_us));
}

void request_is_silent(struct dispatch *dispatch, struct request *request, uint64_t key)
{
    struct worker *worker = workers_get(&dispatch->workers, key);
    if (!worker || worker->load.queued_requests || worker->load.queued_tokens ||
        (worker->watch.hangs && !is_replaceable(dispatch, worker, request)))
        return; /* it waits in the worker's queue, or couldn't go anywhere */
    log_warn_lifecycle("dispatch",
                       "req=%s attempt=%u worker=%s msg=\"this worker owes it a token and says "
                       "nothing: it goes elsewhere\"",
                       request->call->name, request->life.attempt, worker->info.name);
    breakers_left(&dispatch->breakers, key, dispatch->now_us);
    leave(dispatch, request, key, "silent");
}

/* -------------------------------------------------------------------- workers that are kept out */

static void tell_change(const struct worker *worker, const struct breaker *breaker, bool kept_out)
{
    if (kept_out)
        log_warn_lifecycle("dispatch",
                           "worker=%s for_ms=%" PRIu64 " opened=%" PRIu64 " msg=\"requests fail at "
                           "this worker: it is kept out, and tried again then\"",
                           worker->info.name, breaker->backoff_us / 1000, breaker->opened_count);
    else
        log_info_lifecycle("dispatch", "worker=%s state=%s msg=\"this worker is let in again\"",
                           worker->info.name, breaker_state_name(breaker->state));
}

/* Tells placement which workers of a model and role get requests only if there are no others.
 * Returns when that changes by itself. */
static uint64_t keep_out(struct dispatch *dispatch, size_t model, enum worker_role role)
{
    const struct workers *workers = &dispatch->workers;
    size_t count = 0, out = 0, hung = 0;
    for (size_t i = 0; i < workers->count; i++) {
        const struct worker *worker = workers->items[i];
        if (worker->model == model && worker->info.role == role && worker_is_ready(worker))
            dispatch->kept_out[count++].worker = worker->key;
    }
    uint64_t next_us =
        breakers_keep_out(&dispatch->breakers, dispatch->kept_out, count, dispatch->now_us);
    for (size_t i = 0; i < count; i++) {
        struct worker *worker = workers_get(workers, dispatch->kept_out[i].worker);
        const struct breaker *breaker = breakers_of(&dispatch->breakers, worker->key);
        bool kept_out = dispatch->kept_out[i].kept_out;
        if (kept_out != worker->kept_out)
            tell_change(worker, breaker, kept_out);
        dispatch->board_changed |= worker->breaker != breaker->state;
        worker->kept_out = kept_out;
        worker->breaker = breaker->state;
        uint64_t until_us = kept_out ? breaker_next_us(breaker, &dispatch->breakers.limits) : 0;
        uint64_t hangs_us = worker->watch.hangs ? dispatch->now_us + 2 * STILL_HANGS_US : 0;
        candidates_block(&dispatch->placement.candidates, worker->key,
                         until_us > hangs_us ? until_us : hangs_us);
        out += kept_out;
        hung += worker->watch.hangs;
    }
    gauge_set(metrics_of(dispatch, model)->workers_kept_out[role == ROLE_DECODE], (double)out);
    gauge_set(metrics_of(dispatch, model)->workers_hung[role == ROLE_DECODE], (double)hung);
    return next_us;
}

void failures_tick(struct dispatch *dispatch)
{
    if (dispatch->failures_due_us > dispatch->now_us)
        return;
    dispatch->failures_due_us = UINT64_MAX;
    release_held(dispatch);
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
    dispatch->breakers_due_us = UINT64_MAX;
    for (size_t model = 0; model < dispatch->config.models->count; model++)
        for (int role = ROLE_PREFILL; role <= ROLE_DECODE; role++) {
            uint64_t next_us = keep_out(dispatch, model, (enum worker_role)role);
            if (next_us < dispatch->breakers_due_us)
                dispatch->breakers_due_us = next_us;
        }
    dispatch->place_needed = true;
}

uint64_t failures_next_us(const struct dispatch *dispatch)
{
    return dispatch->breakers_due_us < dispatch->failures_due_us ? dispatch->breakers_due_us
                                                                 : dispatch->failures_due_us;
}
