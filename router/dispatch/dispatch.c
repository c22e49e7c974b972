#include "router/dispatch/dispatch.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "router/dispatch/dispatch_internal.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

_Static_assert(ROUTE_MAX_POOLS == SERVED_MODELS_MAX, "a pool for each model");
_Static_assert(ROUTE_MAX_WORKERS == WORKERS_MAX_SLOTS, "a candidate for each slot");

#define LINK_MESSAGES_AT_ONCE 16384 /* unread, of all workers together */

/* Those that have places, those that had them and are there until their clients have read the end,
 * and those at the door. */
static uint32_t most_calls(const struct dispatch_config *config)
{
    return 2 * config->max_requests + DISPATCH_MAX_AT_DOOR;
}

enum reason dispatch_admit(struct dispatch *dispatch)
{
    if (atomic_load(&dispatch->refusing))
        return REASON_DRAINING;
    if (atomic_fetch_add(&dispatch->admitted, 1) < most_calls(&dispatch->config))
        return REASON_NONE;
    atomic_fetch_sub(&dispatch->admitted, 1);
    return REASON_OVERLOADED;
}

static uint32_t reserve_of(const struct dispatch *dispatch)
{
    return route_pools_reserve(dispatch->config.max_requests, dispatch->config.models->count);
}

static uint32_t beyond(uint32_t places, uint32_t reserve)
{
    return places > reserve ? places - reserve : 0;
}

void dispatch_give_back(struct dispatch *dispatch, struct client_gone *gone)
{
    uint32_t reserve = reserve_of(dispatch);
    if (!gone->model)
        return;
    pthread_mutex_lock(&dispatch->places_lock);
    uint32_t *places = &dispatch->places[gone->model - 1], before = *places;
    *places -= gone->choices;
    dispatch->places_beyond -= beyond(before, reserve) - beyond(*places, reserve);
    pthread_mutex_unlock(&dispatch->places_lock);
    gone->model = 0;
}

/* What a model has beyond its reserve comes out of what all models share. */
enum reason dispatch_admit_to(struct dispatch *dispatch, struct client_gone *gone, size_t model,
                              uint32_t choices)
{
    uint32_t reserve = reserve_of(dispatch);
    uint32_t shared =
        dispatch->config.max_requests - reserve * (uint32_t)dispatch->config.models->count;
    pthread_mutex_lock(&dispatch->places_lock);
    uint32_t before = dispatch->places[model];
    uint32_t more = beyond(before + choices, reserve) - beyond(before, reserve);
    bool fits = more <= shared - dispatch->places_beyond;
    if (fits) {
        dispatch->places[model] += choices;
        dispatch->places_beyond += more;
        gone->model = model + 1;
        gone->choices = choices;
    }
    pthread_mutex_unlock(&dispatch->places_lock);
    return fits ? REASON_NONE : REASON_OVERLOADED;
}

void dispatch_submit(struct dispatch *dispatch, struct request *request)
{
    for (struct request *first = request; first; first = first->next_prompt) {
        uint64_t id = atomic_fetch_add(&dispatch->next_id, 1 + first->other_count);
        first->id = first->call->request = id;
        for (uint32_t i = 0; i < first->other_count; i++)
            first->others[i]->id = id + 1 + i;
    }
    inbox_post_reserved(&dispatch->inbox, &request->message);
}

void dispatch_client_gone(struct dispatch *dispatch, struct client_gone *gone)
{
    gone->message.kind = INBOX_CLIENT_GONE;
    inbox_post_reserved(&dispatch->inbox, &gone->message);
}

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
    atomic_store(&dispatch->helped, false); /* the end is the thread's own matter */
    inbox_post_reserved(&dispatch->inbox, &dispatch->stop_message);
}

/* ------------------------------------------------------------------------------- start and end */

static void close_fds(struct dispatch *dispatch)
{
    if (dispatch->idle_fd >= 0)
        close(dispatch->idle_fd);
    if (dispatch->bell_fd >= 0)
        close(dispatch->bell_fd);
}

/* All that can't fail. */
static void init_state(struct dispatch *dispatch, const struct dispatch_config *config)
{
    dispatch->config = *config;
    pthread_mutex_init(&dispatch->places_lock, NULL);
    pthread_mutex_init(&dispatch->turn, NULL);
    dispatch->membership_message.kind = INBOX_MEMBERSHIP;
    dispatch->drain_message.kind = INBOX_DRAIN;
    dispatch->stop_message.kind = INBOX_STOP;
    atomic_init(&dispatch->next_id,
                rng_entropy() | 1); /* apart from another router's, or an earlier life's */
    dispatch->due_us = dispatch->lapse_us = dispatch->armed_us = UINT64_MAX;
    TAILQ_INIT(&dispatch->all);
    for (size_t i = 0; i < SERVED_MODELS_MAX; i++) {
        TAILQ_INIT(&dispatch->queues[i].waiting);
        TAILQ_INIT(&dispatch->queues[i].regiving);
    }
    TAILQ_INIT(&dispatch->dirty);
    TAILQ_INIT(&dispatch->ended);
    TAILQ_INIT(&dispatch->closing);
    dispatch->workers = (struct workers){.membership = config->membership,
                                         .models = config->models,
                                         .runtime = config->runtime,
                                         .inbox = &dispatch->inbox,
                                         .tls = config->tls,
                                         .keepalive_us = config->keepalive_us,
                                         .router_incarnation = config->incarnation};
}

enum status dispatch_create(const struct dispatch_config *config, struct dispatch **out,
                            struct error *err)
{
    struct dispatch *dispatch = calloc(1, sizeof *dispatch);
    if (!dispatch)
        return error_set(err, STATUS_LIMIT, "dispatch: out of memory");
    init_state(dispatch, config);
    size_t calls = most_calls(config);
    size_t reserved = config->max_requests /* requests */ + calls /* their ends */ +
                      2 * ROUTER_MAX_WORKERS + CONSTRAINT_WAITING_MAX + 3;
    enum status status = STATUS_LIMIT;
    dispatch->idle_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    dispatch->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (dispatch->idle_fd < 0 || dispatch->bell_fd < 0)
        goto fail_fds;
    if (inbox_init(&dispatch->inbox, LINK_MESSAGES_AT_ONCE, reserved) != STATUS_OK)
        goto fail_fds;
    dispatch->inbox.posted = dispatch_posted;
    dispatch->inbox.context = dispatch;
    if (map_create(calls + config->max_requests /* further choices */, &dispatch->requests) !=
        STATUS_OK)
        goto fail_inbox;
    *out = dispatch;
    return STATUS_OK;

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

/* What came when the thread had ended. */
static void discard(struct inbox_message *message)
{
    switch (message->kind) {
    case INBOX_REQUEST:
        for (struct request *next, *request = (struct request *)message; request; request = next) {
            next = request->next_prompt;
            request_settle(request);
            request->client.ops->status(request, REASON_DRAINING, reason_when(REASON_DRAINING));
            request_destroy(request);
        }
        break;
    case INBOX_CLIENT_GONE: {
        struct client_gone *gone = (struct client_gone *)message;
        gone->free(gone);
        break;
    }
    case INBOX_CONSTRAINT: constraint_checked_free((struct constraint_checked *)message); break;
    case INBOX_LINK_MESSAGE:
    case INBOX_LINK_CLOSED: ASSERT(false); /* the thread waits for the last link */
    case INBOX_MEMBERSHIP:
    case INBOX_DRAIN:
    case INBOX_STOP: break;
    }
}

void dispatch_free(struct dispatch *dispatch)
{
    for (struct inbox_message *message; (message = ring_pop(dispatch->inbox.ring));)
        discard(message);
    map_destroy(dispatch->requests);
    inbox_deinit(&dispatch->inbox);
    close_fds(dispatch);
    pthread_mutex_destroy(&dispatch->places_lock);
    pthread_mutex_destroy(&dispatch->turn);
    free(dispatch);
}

void dispatch_destroy(struct dispatch *dispatch)
{
    pthread_join(dispatch->thread, NULL);
    constraint_checks_stop(dispatch->config.checks); /* it speaks to the inbox */
    dispatch_free(dispatch);
}
