#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/dispatch/dispatch_internal.h"

#include <poll.h>
#include <sys/eventfd.h>

#define BATCH_MESSAGES 256  /* taken from the inbox before deltas leave */
#define HELP_MESSAGES  64   /* that a helper takes before the thread is called */
#define HELP_SHARE     10   /* helpers may take one of so many microseconds, */
#define HELP_SAVED_US  1000 /* and save up so many */

void dispatch_let_go(struct dispatch *dispatch, struct client_gone *gone)
{
    struct request *request = gone->request ? map_get(dispatch->requests, gone->request) : NULL;
    dispatch_give_back(dispatch, gone);
    if (request)
        request_client_gone(dispatch, request, gone->code);
    gone->free(gone);
    atomic_fetch_sub(&dispatch->admitted, 1);
}

static void handle(struct dispatch *dispatch, struct inbox_message *message)
{
    switch (message->kind) {
    case INBOX_REQUEST: request_begin(dispatch, (struct request *)message); break;
    case INBOX_CLIENT_GONE: dispatch_let_go(dispatch, (struct client_gone *)message); break;
    case INBOX_LINK_MESSAGE: worker_said(dispatch, (struct link_message *)message); break;
    case INBOX_LINK_CLOSED: worker_link_ended(dispatch, (struct worker_link *)message); break;
    case INBOX_CONSTRAINT:
        request_constraint_checked(dispatch, (struct constraint_checked *)message);
        break;
    case INBOX_MEMBERSHIP:
        atomic_store(&dispatch->membership_pending, false);
        workers_sync(&dispatch->workers, dispatch->now_us);
        route_misfits_forget(&dispatch->misfits);
        dispatch->lapse_us = 0; /* ask again */
        dispatch->place_needed = dispatch->board_changed = true;
        break;
    case INBOX_DRAIN:
        dispatch->draining = true;
        log_info("dispatch", "requests=%zu msg=\"draining\"", map_count(dispatch->requests));
        break;
    case INBOX_STOP:
        dispatch->stopping = dispatch->draining = true;
        request_fail_all(dispatch, REASON_DRAINING);
        workers_stop(&dispatch->workers);
        break;
    }
}

static void tick(struct dispatch *dispatch)
{
    if (dispatch->due_us <= dispatch->now_us)
        request_tick(dispatch);
    workers_tick(&dispatch->workers, dispatch->now_us);
    if (dispatch->lapse_us <= dispatch->now_us)
        dispatch->lapse_us = membership_lapse(dispatch->config.membership, dispatch->now_us);
}

static uint64_t next_due_us(const struct dispatch *dispatch)
{
    if (dispatch->place_needed && dispatch->waiting_count)
        return 0; /* a slow reader was cut off, and made room */
    uint64_t due_us = workers_next_us(&dispatch->workers);
    if (dispatch->due_us < due_us)
        due_us = dispatch->due_us;
    if (dispatch->lapse_us < due_us)
        due_us = dispatch->lapse_us;
    return due_us;
}

static void show(struct dispatch *dispatch)
{
    if (!dispatch->board_changed)
        return;
    dispatch->board_changed = false;
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
    workers_show(&dispatch->workers, dispatch->config.board);
}

/* What may be dealt with on whichever thread brings it: nothing of it waits for other threads, as
 * closing a link does. */
static bool is_for_anybody(enum inbox_kind kind)
{
    return kind == INBOX_REQUEST || kind == INBOX_CLIENT_GONE || kind == INBOX_LINK_MESSAGE;
}

/* How many of `limit` messages weren't there, or not for this thread. */
static int take_messages(struct dispatch *dispatch, int limit, bool helping)
{
    struct inbox_message *message;
    for (; limit && (message = ring_peek(dispatch->inbox.ring)); limit--) {
        if (helping && !is_for_anybody(message->kind))
            break;
        (void)ring_pop(dispatch->inbox.ring);
        dispatch->now_us = clock_now_us(); /* never before the message was made */
        handle(dispatch, message);
    }
    return limit;
}

/* What follows from the messages. */
static void finish_turn(struct dispatch *dispatch)
{
    dispatch_place(dispatch);
    show(dispatch); /* before the client can know of it */
    request_flush(dispatch);
    request_put_away(dispatch); /* last: who hears the end finds all of it done */
    if (dispatch->draining && !atomic_load(&dispatch->admitted))
        eventfd_write(dispatch->idle_fd, 1);
}

bool dispatch_turn(struct dispatch *dispatch)
{
    dispatch->now_us = clock_now_us();
    (void)take_messages(dispatch, BATCH_MESSAGES, false);
    tick(dispatch);
    finish_turn(dispatch);
    return !dispatch->stopping || dispatch->workers.count || map_count(dispatch->requests);
}

/* ------------------------------------------------------------------------------------- whose
 * turn */

static _Thread_local bool has_turn;

static bool is_idle(struct dispatch *dispatch)
{
    return !ring_count(dispatch->inbox.ring);
}

/* Under load the thread is awake anyway, and what comes meanwhile leaves together, in fewer
 * messages; and a helper who reads for many would hold them up by long turns. So helpers have a
 * part of the time, whether in few turns or in many. */
static bool may_help(const struct dispatch *dispatch, uint64_t now_us)
{
    return dispatch->help_from_us <= now_us;
}

static void note_helped(struct dispatch *dispatch, uint64_t begun_us, uint64_t now_us)
{
    if (dispatch->help_from_us + HELP_SAVED_US * HELP_SHARE < now_us)
        dispatch->help_from_us = now_us - HELP_SAVED_US * HELP_SHARE;
    dispatch->help_from_us += (now_us - begun_us) * HELP_SHARE;
}

/* What was posted while somebody else had the turn is left to him: he looks again when he has given
 * it away. True: the thread is needed. */
static bool help(struct dispatch *dispatch)
{
    bool needed = false;
    for (int left = HELP_MESSAGES;
         !needed && !is_idle(dispatch) && !pthread_mutex_trylock(&dispatch->turn);) {
        has_turn = true;
        int before = left;
        uint64_t begun_us = clock_now_us();
        if (may_help(dispatch, begun_us)) {
            left = take_messages(dispatch, left, true);
            finish_turn(dispatch);
            note_helped(dispatch, begun_us, clock_now_us());
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

void dispatch_posted(void *context, enum inbox_kind kind)
{
    struct dispatch *dispatch = context;
    bool may_help = is_for_anybody(kind) && atomic_load(&dispatch->helped);
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
        uint64_t due_us = dispatch->armed_us = next_due_us(dispatch);
        has_turn = false;
        pthread_mutex_unlock(&dispatch->turn);
        if (more && is_idle(dispatch))
            wait_for_bell(dispatch, due_us);
    }
    return NULL;
}
