#include "router/dispatch/dispatch.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/domain/tenant_share.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "router/dispatch/dispatch_internal.h"

#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

_Static_assert(CANDIDATES_MAX_MODELS == SERVED_MODELS_MAX, "a pool for each model");
_Static_assert(CANDIDATES_MAX == WORKERS_MAX_SLOTS, "a candidate for each slot");

#define LINK_MESSAGES_AT_ONCE 16384 /* from all workers together, not handled yet */
#define BATCH_MESSAGES        256   /* handled in one turn of the dispatch thread */
#define HELP_MESSAGES         64    /* handled by a helper before it rings for the thread */
#define HELP_SHARE            10    /* helpers may use one of 10 microseconds */
#define HELP_SAVED_US         1000  /* helpers may save up so much of their time */
/* A turn that comes so late, because the process was stopped, waits with what time asks for. */
#define STOPPED_US    1000000
#define AFTER_STOP_US 100000

/* Calls that have places, calls that had them and linger, and calls at the door. */
static uint32_t most_calls(const struct dispatch_config *config)
{
    return 2 * config->max_requests + DISPATCH_MAX_AT_DOOR;
}

/* ----------------------------------------------------------------------------------- admission */

enum reason dispatch_admit(struct dispatch *dispatch, struct call_client client, struct call **call)
{
    enum reason reason = REASON_NONE;
    if (atomic_load(&dispatch->refusing))
        return REASON_DRAINING;
    if (atomic_fetch_add(&dispatch->admitted, 1) >= most_calls(&dispatch->config))
        reason = REASON_OVERLOADED;
    else if (!(*call = call_open(client)))
        reason = REASON_INTERNAL;
    if (reason)
        atomic_fetch_sub(&dispatch->admitted, 1);
    return reason;
}

static uint32_t beyond(uint32_t places, uint32_t reserve)
{
    return places > reserve ? places - reserve : 0;
}

/* Returns the places that a tenant holds. The lock is held. */
static uint32_t places_of(const struct dispatch *dispatch, uint64_t tenant)
{
    return (uint32_t)(uintptr_t)map_get(dispatch->tenants, tenant);
}

/* False: no memory. The lock is held. */
static bool set_places(struct dispatch *dispatch, uint64_t tenant, uint32_t places)
{
    if (!places)
        map_take(dispatch->tenants, tenant);
    return !places || map_put(dispatch->tenants, tenant, (void *)(uintptr_t)places) == STATUS_OK;
}

/* Places of a model beyond its reserve come out of what all models share. One tenant may hold no
 * more than its share of all. */
enum reason dispatch_reserve(struct dispatch *dispatch, struct call *call, size_t model,
                             uint32_t choices)
{
    const struct dispatch_config *config = &dispatch->config;
    uint32_t reserve = placement_reserve(config->max_requests, config->models->count);
    uint32_t shared = config->max_requests - reserve * (uint32_t)config->models->count;
    ASSERT(!call->place_count);
    pthread_mutex_lock(&dispatch->places_lock);
    uint32_t before = dispatch->places[model];
    uint32_t more = beyond(before + choices, reserve) - beyond(before, reserve);
    uint32_t held = places_of(dispatch, call->tenant) + choices;
    bool fits = more <= shared - dispatch->places_beyond &&
                held <= tenant_share(config->max_requests, REQUEST_MAX_CHOICES) &&
                set_places(dispatch, call->tenant, held);
    if (fits) {
        dispatch->places[model] += choices;
        dispatch->places_beyond += more;
        call->model = model;
        call->place_count = choices;
        call->place_tenant = call->tenant;
    }
    pthread_mutex_unlock(&dispatch->places_lock);
    return fits ? REASON_NONE : REASON_OVERLOADED;
}

uint32_t dispatch_retry_after_s(const struct dispatch *dispatch, size_t model)
{
    return atomic_load(&dispatch->retry_after_s[model]);
}

void dispatch_give_back(struct dispatch *dispatch, struct call *call)
{
    const struct dispatch_config *config = &dispatch->config;
    uint32_t reserve = placement_reserve(config->max_requests, config->models->count);
    call_settle_grant(call);
    if (!call->place_count)
        return;
    pthread_mutex_lock(&dispatch->places_lock);
    uint32_t *places = &dispatch->places[call->model], before = *places;
    *places -= call->place_count;
    dispatch->places_beyond -= beyond(before, reserve) - beyond(*places, reserve);
    uint32_t left = places_of(dispatch, call->place_tenant) - call->place_count;
    bool fewer = set_places(dispatch, call->place_tenant, left);
    ASSERT(fewer); /* it has an entry */
    pthread_mutex_unlock(&dispatch->places_lock);
    call->place_count = 0;
}

void dispatch_submit(struct dispatch *dispatch, struct call *const *calls, size_t count)
{
    call_make_group(calls, count);
    for (size_t i = 0; i < count; i++) {
        struct call *call = calls[i];
        uint64_t id = atomic_fetch_add(&dispatch->next_id, call->choice_count);
        for (uint32_t choice = 0; choice < call->choice_count; choice++)
            call->choices[choice].id = id + choice;
        call->state = CALL_SUBMITTED;
    }
    inbox_post_reserved(&dispatch->inbox, &calls[0]->submitted);
}

void dispatch_close(struct dispatch *dispatch, struct call *call, enum rpc_code code)
{
    if (atomic_exchange(&call->closing, true))
        return;
    call->code = code;
    inbox_post_reserved(&dispatch->inbox, &call->closed);
}

/* --------------------------------------------------------------------- other threads' messages */

void dispatch_membership_changed(struct dispatch *dispatch)
{
    if (!atomic_exchange(&dispatch->membership_pending, true))
        inbox_post_reserved(&dispatch->inbox, &dispatch->membership_message);
}

void dispatch_drain(struct dispatch *dispatch)
{
    atomic_store(&dispatch->refusing, true);
    status_board_drain(dispatch->config.board);
    inbox_post_reserved(&dispatch->inbox, &dispatch->drain_message);
}

int dispatch_idle_fd(const struct dispatch *dispatch)
{
    return dispatch->idle_fd;
}

void dispatch_stop(struct dispatch *dispatch)
{
    atomic_store(&dispatch->refusing, true);
    atomic_store(&dispatch->helped, false); /* the dispatch thread takes all turns from now on */
    inbox_post_reserved(&dispatch->inbox, &dispatch->stop_message);
}

/* -------------------------------------------------------------------------------------- a turn */

static struct call *call_of_closed(struct inbox_message *message)
{
    return (struct call *)((char *)message - offsetof(struct call, closed));
}

static void handle(struct dispatch *dispatch, struct inbox_message *message)
{
    switch (message->kind) {
    case INBOX_CALL: call_begin(dispatch, (struct call *)message); break;
    case INBOX_CALL_CLOSED: call_closed(dispatch, call_of_closed(message)); break;
    case INBOX_LINK_MESSAGE: worker_said(dispatch, (struct link_message *)message); break;
    case INBOX_LINK_CLOSED: worker_link_ended(dispatch, (struct worker_link *)message); break;
    case INBOX_CONSTRAINT:
        requests_constraint_checked(dispatch, (struct constraint_checked *)message);
        break;
    case INBOX_MEMBERSHIP:
        atomic_store(&dispatch->membership_pending, false);
        workers_sync(&dispatch->workers, dispatch->now_us);
        dispatch->lapse_us = 0; /* ask again */
        dispatch->place_needed = dispatch->board_changed = true;
        break;
    case INBOX_DRAIN:
        dispatch->draining = true;
        log_info("dispatch", "requests=%zu msg=\"draining\"", map_count(dispatch->requests));
        break;
    case INBOX_STOP:
        dispatch->stopping = dispatch->draining = true;
        requests_fail_all(dispatch, REASON_DRAINING);
        workers_stop(&dispatch->workers);
        break;
    }
}

/* Returns when a turn is due, at the earliest now. */
static uint64_t next_due_us(const struct dispatch *dispatch)
{
    uint64_t due_us = workers_next_us(&dispatch->workers);
    if (requests_next_us(dispatch) < due_us)
        due_us = requests_next_us(dispatch);
    if (dispatch->lapse_us < due_us)
        due_us = dispatch->lapse_us;
    if (dispatch->board_due_us < due_us)
        due_us = dispatch->board_due_us;
    if (failures_next_us(dispatch) < due_us)
        due_us = failures_next_us(dispatch);
    if (due_us < dispatch->judge_from_us)
        due_us = dispatch->judge_from_us;
    if (dispatch->place_needed && dispatch->placement.waiting)
        due_us = 0; /* a slow reader was cut off after the placement pass, and made room */
    return due_us > dispatch->now_us ? due_us : dispatch->now_us;
}

uint64_t dispatch_arm(struct dispatch *dispatch)
{
    dispatch->armed_us = next_due_us(dispatch);
    return dispatch->armed_us;
}

/* Returns whether this turn does what time asks for. After a stop it waits a moment, once: other
 * threads haven't read yet what workers and clients sent meanwhile. */
static bool judges_time(struct dispatch *dispatch)
{
    uint64_t now_us = dispatch->now_us, due_us = dispatch->armed_us;
    bool waited = dispatch->judge_from_us != 0;
    if (!waited && now_us > due_us && now_us - due_us >= STOPPED_US) {
        log_warn("dispatch", "late_ms=%" PRIu64 " msg=\"the process was stopped, or had no core\"",
                 (now_us - due_us) / 1000);
        dispatch->judge_from_us = now_us + AFTER_STOP_US;
    }
    if (now_us < dispatch->judge_from_us)
        return false;
    dispatch->judge_from_us = 0;
    return true;
}

void dispatch_show_soon(struct dispatch *dispatch)
{
    uint64_t due_us = dispatch->board_shown_us + BOARD_EVERY_US;
    if (due_us < dispatch->board_due_us)
        dispatch->board_due_us = due_us;
}

static void show_workers(struct dispatch *dispatch)
{
    if (dispatch->board_changed && dispatch->workers.count > BOARD_AT_ONCE)
        dispatch_show_soon(dispatch);
    else if (dispatch->board_changed)
        dispatch->board_due_us = 0;
    if (dispatch->board_due_us > dispatch->now_us)
        return;
    dispatch->board_changed = false;
    dispatch->board_shown_us = dispatch->now_us;
    int up[SERVED_MODELS_MAX][2] = {0}, known[SERVED_MODELS_MAX][2] = {0};
    for (size_t i = 0; i < dispatch->workers.count; i++) {
        const struct worker *worker = dispatch->workers.items[i];
        bool decode = worker->info.role == ROLE_DECODE;
        known[worker->model][decode] += worker->state != WORKER_LEAVING;
        up[worker->model][decode] += worker->state == WORKER_UP;
    }
    for (size_t model = 0; model < dispatch->config.models->count; model++) {
        const struct model_metrics *metrics = &dispatch->config.metrics->models[model];
        for (int role = 0; role < 2; role++) {
            gauge_set(metrics->workers_up[role], up[model][role]);
            gauge_set(metrics->workers_known[role], known[model][role]);
        }
    }
    dispatch->board_due_us =
        workers_show(&dispatch->workers, dispatch->config.board, dispatch->now_us);
}

/* True: any thread may handle it. The others may wait for threads, as closing a link does. */
static bool is_for_helpers(enum inbox_kind kind)
{
    return kind == INBOX_CALL || kind == INBOX_CALL_CLOSED || kind == INBOX_LINK_MESSAGE;
}

/* Handles up to `limit` messages, a helper only those that are for helpers. Returns how many fewer
 * than `limit` it handled. */
static int take_messages(struct dispatch *dispatch, int limit, bool helping)
{
    struct inbox_message *message;
    for (; limit && (message = ring_peek(dispatch->inbox.ring)); limit--) {
        if (helping && !is_for_helpers(message->kind))
            break;
        (void)ring_pop(dispatch->inbox.ring);
        dispatch->now_us = clock_now_us(); /* never before the message was made */
        handle(dispatch, message);
    }
    return limit;
}

/* Wakes no thread for it: workers report their loads all the time. */
static void show_tenants(struct dispatch *dispatch)
{
    if (dispatch->now_us - dispatch->tenants_shown_us < BOARD_EVERY_US)
        return;
    dispatch->tenants_shown_us = dispatch->now_us;
    for (size_t model = 0; model < dispatch->config.models->count; model++) {
        const struct model_metrics *metrics = &dispatch->config.metrics->models[model];
        const struct placement_tenants_here here =
            placement_tenants_here(&dispatch->placement, model);
        gauge_set(metrics->tenants, (double)here.known);
        gauge_set(metrics->tenants_waiting, (double)here.waiting);
        gauge_set(metrics->tenant_share,
                  here.running ? (double)here.most / (double)here.running : 0);
    }
}

static void finish_turn(struct dispatch *dispatch)
{
    failures_apply(dispatch);
    dispatch_place(dispatch);
    show_workers(dispatch); /* before a client can know of it */
    show_tenants(dispatch);
    requests_flush(dispatch);
    calls_tell(dispatch); /* last: a client that is told its end finds all of it done */
    if (dispatch->draining && !atomic_load(&dispatch->admitted))
        eventfd_write(dispatch->idle_fd, 1);
}

bool dispatch_turn(struct dispatch *dispatch)
{
    dispatch->now_us = clock_now_us();
    (void)take_messages(dispatch, BATCH_MESSAGES, false);
    if (judges_time(dispatch)) {
        requests_tick(dispatch);
        workers_tick(&dispatch->workers, dispatch->now_us);
        failures_tick(dispatch);
        if (dispatch->lapse_us <= dispatch->now_us)
            dispatch->lapse_us = membership_lapse(dispatch->config.membership, dispatch->now_us);
    }
    finish_turn(dispatch);
    return !dispatch->stopping || dispatch->workers.count || !TAILQ_EMPTY(&dispatch->all) ||
           !TAILQ_EMPTY(&dispatch->closing);
}

/* ----------------------------------------------------------------------- which thread takes it */

static _Thread_local bool has_turn;

static bool is_idle(struct dispatch *dispatch)
{
    return !ring_count(dispatch->inbox.ring);
}

/* Takes turns on a thread that has posted, while messages are there and no thread has the turn. A
 * message posted while another thread has the turn is left to that thread, which looks again when
 * it has given the turn up.
 *
 * Helpers have a part of the time, in few turns or in many. Under load the dispatch thread is awake
 * anyway, and deltas that it takes together leave in fewer messages; and long turns of a helper
 * would hold up the clients that it reads for. True: the dispatch thread is needed. */
static bool help(struct dispatch *dispatch)
{
    bool needed = false;
    for (int left = HELP_MESSAGES;
         !needed && !is_idle(dispatch) && !pthread_mutex_trylock(&dispatch->turn);) {
        has_turn = true;
        int before = left;
        uint64_t begun_us = clock_now_us();
        if (dispatch->help_from_us <= begun_us) {
            left = take_messages(dispatch, left, true);
            finish_turn(dispatch);
            uint64_t now_us = clock_now_us();
            if (dispatch->help_from_us + HELP_SAVED_US * HELP_SHARE < now_us)
                dispatch->help_from_us = now_us - HELP_SAVED_US * HELP_SHARE;
            dispatch->help_from_us += (now_us - begun_us) * HELP_SHARE;
        }
        uint64_t due_us = next_due_us(dispatch);
        needed = left == before || !left || due_us < dispatch->armed_us;
        if (due_us < dispatch->armed_us)
            dispatch->armed_us = due_us;
        has_turn = false;
        pthread_mutex_unlock(&dispatch->turn);
    }
    return needed;
}

/* The inbox's hook. */
static void on_posted(void *context, enum inbox_kind kind)
{
    struct dispatch *dispatch = context;
    bool may_help = is_for_helpers(kind) && atomic_load(&dispatch->helped);
    if (has_turn || (may_help && !help(dispatch)))
        return;
    eventfd_write(dispatch->bell_fd, 1);
}

static void wait_for_bell(const struct dispatch *dispatch, uint64_t until_us)
{
    uint64_t now_us = clock_now_us(),
             left_ms = until_us > now_us ? (until_us - now_us + 999) / 1000 : 0;
    struct pollfd bell = {.fd = dispatch->bell_fd, .events = POLLIN};
    eventfd_t rung;
    poll(&bell, 1, until_us == UINT64_MAX ? -1 : left_ms > 60000 ? 60000 : (int)left_ms);
    eventfd_read(dispatch->bell_fd, &rung);
}

void *dispatch_main(void *context)
{
    struct dispatch *dispatch = context;
    for (bool more = true; more;) {
        pthread_mutex_lock(&dispatch->turn);
        has_turn = true;
        more = dispatch_turn(dispatch);
        uint64_t due_us = dispatch_arm(dispatch);
        has_turn = false;
        pthread_mutex_unlock(&dispatch->turn);
        if (more && is_idle(dispatch))
            wait_for_bell(dispatch, due_us);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------- start and end */

static void close_fds(struct dispatch *dispatch)
{
    if (dispatch->idle_fd >= 0)
        close(dispatch->idle_fd);
    if (dispatch->bell_fd >= 0)
        close(dispatch->bell_fd);
}

static void init_state(struct dispatch *dispatch, const struct dispatch_config *config)
{
    dispatch->config = *config;
    pthread_mutex_init(&dispatch->places_lock, NULL);
    pthread_mutex_init(&dispatch->turn, NULL);
    dispatch->membership_message.kind = INBOX_MEMBERSHIP;
    dispatch->drain_message.kind = INBOX_DRAIN;
    dispatch->stop_message.kind = INBOX_STOP;
    /* Far from the ids of another router, or of an earlier life. */
    atomic_init(&dispatch->next_id, rng_entropy() | 1);
    dispatch->tenant_salt = rng_entropy();
    dispatch->lapse_us = dispatch->armed_us = UINT64_MAX;
    dispatch->board_due_us = UINT64_MAX;
    TAILQ_INIT(&dispatch->all);
    TAILQ_INIT(&dispatch->dirty);
    TAILQ_INIT(&dispatch->ended);
    TAILQ_INIT(&dispatch->closing);
    dispatch->workers = (struct workers){.membership = config->membership,
                                         .models = config->models,
                                         .runtime = config->runtime,
                                         .inbox = &dispatch->inbox,
                                         .tls = config->tls,
                                         .keepalive_us = config->keepalive_us,
                                         .router_incarnation = config->incarnation,
                                         .placement = &dispatch->placement,
                                         .breakers = &dispatch->breakers,
                                         .unconfirmed_tokens = config->unconfirmed_tokens,
                                         .mixed_numerics = config->mixed_numerics};
}

enum status dispatch_create(const struct dispatch_config *config, struct dispatch **out,
                            struct error *err)
{
    struct dispatch *dispatch = calloc(1, sizeof *dispatch);
    if (!dispatch)
        return error_set(err, STATUS_LIMIT, "dispatch: out of memory");
    init_state(dispatch, config);
    size_t calls = most_calls(config);
    const struct placement_config placement = {.model_count = config->models->count,
                                               .policy = config->policy,
                                               .binds_late = config->limits.bind_late,
                                               .has_classes =
                                                   config->models->items[0].limits.slo &&
                                                   config->models->items[0].limits.slo->count,
                                               .seed = rng_entropy(),
                                               .prefix_limit = config->prefix_limit,
                                               .held_limit = (config->max_queue + 1) / 2,
                                               .force_local = config->force_local_prefill,
                                               .local_us = config->limits.local_us};
    size_t reserved = config->max_requests /* INBOX_CALL */ + calls /* INBOX_CALL_CLOSED */ +
                      2 * ROUTER_MAX_WORKERS + CONSTRAINT_WAITING_MAX + 3;
    enum status status = STATUS_LIMIT;
    dispatch->idle_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dispatch->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (dispatch->idle_fd < 0 || dispatch->bell_fd < 0)
        goto fail_fds;
    if (inbox_init(&dispatch->inbox, LINK_MESSAGES_AT_ONCE, reserved) != STATUS_OK)
        goto fail_fds;
    dispatch->inbox.posted = on_posted;
    dispatch->inbox.context = dispatch;
    /* Choices of ended calls are there until the end of the turn, when others have their places. */
    if (map_create(calls + config->max_requests, &dispatch->requests) != STATUS_OK)
        goto fail_inbox;
    if (map_create(config->max_requests, &dispatch->tenants) != STATUS_OK)
        goto fail_requests;
    if (placement_init(&dispatch->placement, &placement) != STATUS_OK)
        goto fail_tenants;
    if (failures_init(dispatch, clock_now_us()) != STATUS_OK ||
        decisions_init(dispatch) != STATUS_OK)
        goto fail_placement;
    if (due_heap_init(&dispatch->due_requests, calls + config->max_requests) != STATUS_OK ||
        due_heap_init(&dispatch->due_calls, calls) != STATUS_OK)
        goto fail_heaps;
    *out = dispatch;
    return STATUS_OK;

fail_heaps:
    due_heap_deinit(&dispatch->due_requests);
    due_heap_deinit(&dispatch->due_calls);
fail_placement:
    failures_deinit(dispatch);
    placement_deinit(&dispatch->placement);
fail_tenants:
    map_destroy(dispatch->tenants);
fail_requests:
    map_destroy(dispatch->requests);
fail_inbox:
    inbox_deinit(&dispatch->inbox);
fail_fds:
    close_fds(dispatch);
    pthread_mutex_destroy(&dispatch->places_lock);
    pthread_mutex_destroy(&dispatch->turn);
    free(dispatch);
    return error_set(err, status, "dispatch: can't start (%s)", status_name(status));
}

static void on_constraint_checked(void *context, struct constraint_checked *checked)
{
    struct dispatch *dispatch = context;
    inbox_post_reserved(&dispatch->inbox, &checked->message);
}

enum status dispatch_start(const struct dispatch_config *config, struct dispatch **out,
                           struct error *err)
{
    struct dispatch *dispatch;
    TRY(dispatch_create(config, &dispatch, err));
    if (config->checks &&
        constraint_checks_start(config->checks, on_constraint_checked, dispatch) != STATUS_OK) {
        dispatch_free(dispatch);
        return error_set(err, STATUS_IO, "dispatch: can't start the thread that compiles");
    }
    atomic_store(&dispatch->helped, true);
    if (pthread_create(&dispatch->thread, NULL, dispatch_main, dispatch)) {
        constraint_checks_stop(config->checks);
        dispatch_free(dispatch);
        return error_set(err, STATUS_IO, "dispatch: can't start its thread");
    }
    *out = dispatch;
    return STATUS_OK;
}

/* Ends a group that was submitted when the dispatch thread had ended. */
static void discard_group(struct call *first)
{
    struct call_client client = first->client;
    struct call *call, *next;
    TAILQ_FOREACH(call, &first->group.calls, group_link)
    {
        call_empty(call);
        call->state = CALL_TOLD;
    }
    client.ops->status(client.handle, REASON_DRAINING, reason_when(REASON_DRAINING));
    for (call = TAILQ_FIRST(&first->group.calls); call; call = next) {
        next = TAILQ_NEXT(call, group_link);
        if (!client.ops->break_off && !atomic_exchange(&call->closing, true))
            call_release(call);
    }
}

static void discard(struct inbox_message *message)
{
    switch (message->kind) {
    case INBOX_CALL: discard_group((struct call *)message); break;
    case INBOX_CALL_CLOSED: call_release(call_of_closed(message)); break;
    case INBOX_CONSTRAINT: constraint_checked_free((struct constraint_checked *)message); break;
    case INBOX_LINK_MESSAGE:
    case INBOX_LINK_CLOSED: ASSERT(false); /* the dispatch thread has waited for the last link */
    case INBOX_MEMBERSHIP:
    case INBOX_DRAIN:
    case INBOX_STOP: break;
    }
}

void dispatch_free(struct dispatch *dispatch)
{
    for (struct inbox_message *message; (message = ring_pop(dispatch->inbox.ring));)
        discard(message);
    due_heap_deinit(&dispatch->due_requests);
    due_heap_deinit(&dispatch->due_calls);
    failures_deinit(dispatch);
    free(dispatch->decisions);
    placement_deinit(&dispatch->placement);
    map_destroy(dispatch->requests);
    map_destroy(dispatch->tenants);
    inbox_deinit(&dispatch->inbox);
    close_fds(dispatch);
    pthread_mutex_destroy(&dispatch->places_lock);
    pthread_mutex_destroy(&dispatch->turn);
    free(dispatch);
}

void dispatch_destroy(struct dispatch *dispatch)
{
    pthread_join(dispatch->thread, NULL);
    constraint_checks_stop(dispatch->config.checks); /* it posts to the inbox until now */
    dispatch_free(dispatch);
}
