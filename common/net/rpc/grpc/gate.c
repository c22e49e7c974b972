#include "common/net/rpc/grpc/gate_loop.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/fair_queue.h"
#include "common/base/log.h"
#include "common/base/peer_places.h"
#include "common/base/str.h"
#include "common/net/rpc/grpc/listener.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 64
#define PUT_OFF_US     1000000 /* limits of time wait no longer for events that don't end */
/* A connection that ends with so many calls, or units of uploads, left much memory behind. */
#define CROWD_CALLS   256
#define CROWD_UPLOADS 64
#define TRIM_AFTER_US 2000000 /* core has freed it by then */

/* Freed memory of the whole process went back to the system then; 0: never. */
static atomic_uint_fast64_t trimmed_us;

/* --- names and places --- */

/* Core names a connection by this number, and closes the descriptor behind the connection's last
 * call: no call that is taken late finds another connection's name. */
static void note_peer(struct gate *gate, int core_fd, const struct gate_connection *connection)
{
    pthread_mutex_lock(&gate->lock);
    size_t needed = (size_t)core_fd + 1;
    if (needed > gate->peer_count) {
        size_t count = needed * 2;
        gate->peers = realloc(gate->peers, count * sizeof *gate->peers);
        ASSERT(gate->peers);
        memset(gate->peers + gate->peer_count, 0, (count - gate->peer_count) * sizeof *gate->peers);
        gate->peer_count = count;
    }
    struct gate_peer *peer = &gate->peers[core_fd];
    memcpy(peer->name, connection->peer, sizeof peer->name);
    peer->address = connection->address;
    pthread_mutex_unlock(&gate->lock);
}

/* With the lock. */
static size_t calls_of(const struct gate *gate, const struct sockaddr_storage *address)
{
    const struct peer_places *calls = gate->config.calls;
    return calls ? peer_places_held(calls, (const struct sockaddr *)address) : 0;
}

bool gate_peer(struct gate *gate, int core_fd, char *text, size_t size)
{
    bool crowded = false;
    *text = 0;
    pthread_mutex_lock(&gate->lock);
    if (core_fd >= 0 && (size_t)core_fd < gate->peer_count) {
        const struct gate_peer *peer = &gate->peers[core_fd];
        str_copy(text, size, peer->name);
        crowded = calls_of(gate, &peer->address) > gate->config.calls_share;
    }
    pthread_mutex_unlock(&gate->lock);
    return crowded;
}

bool gate_holds(struct gate *gate, const struct gate_connection *connection)
{
    if (!gate->config.calls)
        return false;
    pthread_mutex_lock(&gate->lock);
    size_t calls = calls_of(gate, &connection->address);
    pthread_mutex_unlock(&gate->lock);
    return calls >= gate->config.calls_most;
}

/* Gives back the places of penalties that end by `until_us`. With the lock. */
static void end_penalties(struct gate *gate, uint64_t until_us)
{
    for (struct gate_penalty *one; (one = STAILQ_FIRST(&gate->penalties));) {
        if (one->until_us > until_us)
            return;
        STAILQ_REMOVE_HEAD(&gate->penalties, link);
        for (; one->places > 0; one->places--)
            peer_places_give_back(gate->config.places, (const struct sockaddr *)&one->address);
        free(one);
    }
}

/* Costs the address of a flood some of its places for a while. If it has none left, the
 * connection's own is one of them. An address that isn't counted has none. */
static void punish(struct gate *gate, struct gate_connection *connection)
{
    const struct sockaddr *address = (const struct sockaddr *)&connection->address;
    struct peer_places *places = gate->config.places;
    if (!places || !gate->config.penalty_us)
        return;
    struct gate_penalty *penalty = calloc(1, sizeof *penalty);
    ASSERT(penalty);
    penalty->address = connection->address;
    penalty->until_us = clock_now_us() + gate->config.penalty_us;
    pthread_mutex_lock(&gate->lock);
    while (penalty->places < gate->config.penalty_places &&
           peer_places_take(places, address) != PEER_PLACE_NONE)
        penalty->places++;
    if (penalty->places < gate->config.penalty_places && connection->placed) {
        connection->placed = false;
        penalty->places++;
    }
    bool kept = penalty->places && peer_places_held(places, address);
    if (kept)
        STAILQ_INSERT_TAIL(&gate->penalties, penalty, link);
    pthread_mutex_unlock(&gate->lock);
    if (!kept)
        free(penalty);
}

static bool take_place(struct gate *gate, struct gate_connection *connection)
{
    const struct sockaddr *address = (const struct sockaddr *)&connection->address;
    if (!gate->config.places)
        return true;
    pthread_mutex_lock(&gate->lock);
    end_penalties(gate, clock_now_us());
    connection->placed = peer_places_take(gate->config.places, address) == PEER_PLACE_TAKEN;
    pthread_mutex_unlock(&gate->lock);
    return connection->placed;
}

void gate_count_calls(struct gate *gate, struct gate_connection *connection)
{
    struct peer_places *calls = gate->config.calls;
    const struct sockaddr *address = (const struct sockaddr *)&connection->address;
    size_t open = frame_gate_streams(&connection->judge);
    if (!calls || open == connection->calls)
        return;
    pthread_mutex_lock(&gate->lock);
    for (; connection->calls > open; connection->calls--)
        peer_places_give_back(calls, address);
    while (connection->calls < open && peer_places_take(calls, address) != PEER_PLACE_NONE)
        connection->calls++;
    pthread_mutex_unlock(&gate->lock);
}

/* With the lock. */
static void set_uploads(struct gate *gate, struct gate_connection *connection, size_t units)
{
    struct peer_places *uploads = gate->config.uploads;
    const struct sockaddr *address = (const struct sockaddr *)&connection->address;
    for (; connection->uploads > units; connection->uploads--, gate->uploads--)
        peer_places_give_back(uploads, address);
    for (; connection->uploads < units; connection->uploads++, gate->uploads++)
        if (peer_places_take(uploads, address) == PEER_PLACE_NONE)
            return;
}

bool gate_count_uploads(struct gate *gate, struct gate_connection *connection)
{
    struct peer_places *uploads = gate->config.uploads;
    size_t streams, bytes = frame_gate_uploads(&connection->judge, &streams);
    size_t units = bytes / GATE_UPLOAD_UNIT_BYTES, before = connection->uploads;
    if (!uploads || units == before)
        return true;
    pthread_mutex_lock(&gate->lock);
    set_uploads(gate, connection, units);
    size_t own = peer_places_held(uploads, (const struct sockaddr *)&connection->address);
    bool only = streams == 1 && own <= connection->uploads;
    bool holds = fair_share_holds(only ? 0 : own, gate->uploads, gate->config.uploads_most);
    pthread_mutex_unlock(&gate->lock);
    return holds || units < before;
}

void gate_give_places_back(struct gate *gate, struct gate_connection *connection)
{
    const struct sockaddr *address = (const struct sockaddr *)&connection->address;
    struct gate_loop *loop = connection->loop;
    if (connection->calls >= CROWD_CALLS || connection->uploads >= CROWD_UPLOADS) {
        loop->trim_last_us = loop->now_us + TRIM_AFTER_US;
        if (loop->trim_us == UINT64_MAX)
            loop->trim_us = loop->trim_last_us;
        gate_loop_due(loop, loop->trim_us);
    }
    pthread_mutex_lock(&gate->lock);
    if (connection->placed)
        peer_places_give_back(gate->config.places, address);
    set_uploads(gate, connection, 0);
    for (; connection->calls > 0; connection->calls--)
        peer_places_give_back(gate->config.calls, address);
    pthread_mutex_unlock(&gate->lock);
}

void gate_report(struct gate *gate, struct gate_connection *connection, enum frame_gate_end end)
{
    if (gate->config.ended)
        gate->config.ended(gate->config.context, end);
    if (frame_gate_end_is_flood(end))
        punish(gate, connection);
    if (frame_gate_end_is_flood(end) || end == FRAME_GATE_ADDRESS_SHARE ||
        end == FRAME_GATE_NO_DESCRIPTOR || end == FRAME_GATE_UPLOADS)
        log_warn_limited("gate", "peer=%s reason=%s msg=\"connection ended: %s\"", connection->peer,
                         frame_gate_end_name(end), frame_gate_end_sentence(end));
    else
        log_debug("gate", "peer=%s reason=%s msg=\"connection ended: %s\"", connection->peer,
                  frame_gate_end_name(end), frame_gate_end_sentence(end));
}

/* --- the loop --- */

void gate_enter(struct gate *gate, int core_fd, const struct gate_connection *connection)
{
    note_peer(gate, core_fd, connection);
    pthread_mutex_lock(&gate->door_lock);
    if (gate->shut)
        close(core_fd); /* the same as a core that closes at once */
    else
        gate->config.enter(gate->config.context, core_fd);
    pthread_mutex_unlock(&gate->door_lock);
}

void gate_loop_due(struct gate_loop *loop, uint64_t due_us)
{
    if (due_us < loop->due_us)
        loop->due_us = due_us;
}

static void take_arrivals(struct gate_loop *loop)
{
    struct gate_list arrivals = TAILQ_HEAD_INITIALIZER(arrivals);
    pthread_mutex_lock(&loop->lock);
    TAILQ_CONCAT(&arrivals, &loop->arrivals, link);
    pthread_mutex_unlock(&loop->lock);
    for (struct gate_connection *one; (one = TAILQ_FIRST(&arrivals));) {
        TAILQ_REMOVE(&arrivals, one, link);
        TAILQ_INSERT_TAIL(&loop->connections, one, link);
        gate_connection_begin(one); /* its first bytes may be here */
    }
}

static void handle(struct gate_loop *loop, const struct epoll_event *event)
{
    eventfd_t count;
    if (event->data.ptr) {
        gate_connection_event(event->data.ptr, event->events);
        return;
    }
    eventfd_read(loop->wake_fd, &count);
    take_arrivals(loop);
}

uint64_t gate_trim_at(uint64_t first_us, uint64_t last_us, uint64_t trimmed)
{
    if (first_us == UINT64_MAX || trimmed >= last_us)
        return UINT64_MAX;
    uint64_t next_us = trimmed ? trimmed + GATE_TRIM_EVERY_US : 0;
    return first_us > next_us ? first_us : next_us;
}

/* Gives freed memory back to the system, which the C library would keep. It locks each of the
 * library's arenas for a while, and other threads wait for these: so it is rare. */
static void trim(struct gate_loop *loop)
{
    uint_fast64_t before_us = atomic_load(&trimmed_us);
    loop->trim_us = gate_trim_at(loop->trim_us, loop->trim_last_us, before_us);
    if (loop->now_us < loop->trim_us ||
        !atomic_compare_exchange_strong(&trimmed_us, &before_us, loop->now_us))
        return;
    loop->trim_us = loop->trim_last_us > loop->now_us ? loop->trim_last_us : UINT64_MAX;
    malloc_trim(0);
}

/* Ends the connections with a limit of time that is over. */
static void look_through(struct gate_loop *loop)
{
    uint64_t due_us = UINT64_MAX;
    for (struct gate_connection *one = TAILQ_FIRST(&loop->connections), *next; one; one = next) {
        next = TAILQ_NEXT(one, link);
        uint64_t one_us = gate_connection_look(one);
        due_us = one_us < due_us ? one_us : due_us;
    }
    trim(loop);
    due_us = loop->trim_us < due_us ? loop->trim_us : due_us;
    uint64_t soonest_us = loop->now_us + GATE_LOOK_EVERY_US;
    loop->due_us = due_us > soonest_us ? due_us : soonest_us;
}

/* The gate stops: a client that hasn't begun gets nothing more. */
static void end_greetings(struct gate_loop *loop)
{
    for (struct gate_connection *one = TAILQ_FIRST(&loop->connections), *next; one; one = next) {
        next = TAILQ_NEXT(one, link);
        if (one->phase == PHASE_GREETING)
            gate_connection_destroy(one);
    }
}

static void bury(struct gate_loop *loop)
{
    while (loop->dead) {
        struct gate_connection *one = loop->dead;
        loop->dead = one->next_dead;
        free(one);
    }
}

/* Time is judged behind bytes that have come: the process may have been stopped. */
static bool look_is_due(struct gate_loop *loop, bool more_events)
{
    if (loop->now_us < loop->due_us)
        return false;
    if (more_events && !loop->put_off_us)
        loop->put_off_us = loop->now_us;
    if (more_events && loop->now_us - loop->put_off_us < PUT_OFF_US)
        return false;
    loop->put_off_us = 0;
    return true;
}

static int wait_ms(const struct gate_loop *loop, uint64_t until_us)
{
    uint64_t now_us = clock_now_us();
    until_us = loop->due_us < until_us ? loop->due_us : until_us;
    if (until_us <= now_us)
        return 0;
    uint64_t ms = (until_us - now_us + 999) / 1000;
    return ms < 3600000 ? (int)ms : 3600000;
}

static void *gate_main(void *argument)
{
    struct gate_loop *loop = argument;
    struct epoll_event events[EVENTS_AT_ONCE];
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    pthread_setname_np(pthread_self(), "gate");
    for (;;) {
        uint64_t stop_us = atomic_load(&loop->stop_us);
        int count = epoll_wait(loop->epoll_fd, events, EVENTS_AT_ONCE, wait_ms(loop, stop_us));
        loop->now_us = clock_now_us();
        for (int i = 0; i < count; i++)
            handle(loop, &events[i]);
        if (look_is_due(loop, count == EVENTS_AT_ONCE))
            look_through(loop);
        stop_us = atomic_load(&loop->stop_us);
        if (stop_us != UINT64_MAX)
            end_greetings(loop);
        bury(loop);
        if (stop_us != UINT64_MAX && (TAILQ_EMPTY(&loop->connections) || loop->now_us >= stop_us))
            return NULL;
    }
}

/* --- the gate --- */

static enum status loop_start(struct gate *gate, struct gate_loop *loop, struct error *err)
{
    *loop = (struct gate_loop){
        .gate = gate, .due_us = UINT64_MAX, .trim_us = UINT64_MAX, .epoll_fd = -1};
    TAILQ_INIT(&loop->connections);
    TAILQ_INIT(&loop->arrivals);
    atomic_init(&loop->stop_us, UINT64_MAX);
    pthread_mutex_init(&loop->lock, NULL);
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = NULL};
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->wake_fd < 0 || loop->epoll_fd < 0 ||
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &wake))
        return error_set(err, STATUS_IO, "the frame gate can't be set up: %s",
                         strerrordesc_np(errno));
    int failed = pthread_create(&loop->thread, NULL, gate_main, loop);
    if (failed)
        return error_set(err, STATUS_IO, "the frame gate's thread can't start: %s",
                         strerrordesc_np(failed));
    loop->started = true;
    return STATUS_OK;
}

static void loop_stop(struct gate_loop *loop)
{
    if (loop->started)
        pthread_join(loop->thread, NULL);
    if (loop->gate) {
        loop->now_us = clock_now_us();
        TAILQ_CONCAT(&loop->connections, &loop->arrivals, link);
        while (!TAILQ_EMPTY(&loop->connections))
            gate_connection_destroy(TAILQ_FIRST(&loop->connections));
        bury(loop);
        pthread_mutex_destroy(&loop->lock);
        close(loop->wake_fd);
        close(loop->epoll_fd);
    }
}

enum status gate_open(const struct gate_config *config, struct gate **out, struct error *err)
{
    ASSERT(config->threads >= 1 && config->threads <= GATE_MAX_THREADS);
    struct gate *gate = calloc(1, sizeof *gate);
    ASSERT(gate);
    gate->config = *config;
    gate->loops = calloc(config->threads, sizeof *gate->loops);
    ASSERT(gate->loops);
    pthread_mutex_init(&gate->door_lock, NULL);
    pthread_mutex_init(&gate->lock, NULL);
    STAILQ_INIT(&gate->penalties);
    const struct tls_server_config tls = {
        .certificates = config->certificates, .protocol = "\x02h2", .module = "gate"};
    enum status status = STATUS_OK;
    if (tls.certificates)
        status = tls_server_open(&tls, &gate->tls, err);
    for (unsigned i = 0; status == STATUS_OK && i < config->threads; i++)
        status = loop_start(gate, &gate->loops[i], err);
    if (status == STATUS_OK)
        *out = gate;
    else
        gate_close(gate, 0);
    return status;
}

static void take_address(struct gate_connection *connection, int fd)
{
    socklen_t length = sizeof connection->address;
    if (getpeername(fd, (struct sockaddr *)&connection->address, &length))
        connection->address.ss_family = AF_UNSPEC;
    listener_peer(fd, connection->peer, sizeof connection->peer);
}

void gate_take(struct gate *gate, int fd)
{
    struct gate_loop *loop = &gate->loops[gate->next++ % gate->config.threads];
    struct gate_connection *made = calloc(1, sizeof *made);
    ASSERT(made);
    made->loop = loop;
    made->client = (struct gate_side){.of = made, .fd = fd};
    made->core = (struct gate_side){.of = made, .fd = -1};
    made->deadline_us = UINT64_MAX;
    take_address(made, fd);
    if (!take_place(gate, made)) {
        gate_report(gate, made, FRAME_GATE_ADDRESS_SHARE);
        close(fd);
        free(made);
        return;
    }
    if (gate->tls) {
        made->tls = tls_server_begin(gate->tls, fd);
        ASSERT(made->tls);
    }
    pthread_mutex_lock(&loop->lock);
    TAILQ_INSERT_TAIL(&loop->arrivals, made, link);
    pthread_mutex_unlock(&loop->lock);
    eventfd_write(loop->wake_fd, 1);
}

void gate_shut(struct gate *gate)
{
    pthread_mutex_lock(&gate->door_lock);
    gate->shut = true;
    pthread_mutex_unlock(&gate->door_lock);
}

void gate_close(struct gate *gate, uint64_t grace_us)
{
    if (!gate)
        return;
    uint64_t stop_us = clock_now_us() + grace_us;
    for (unsigned i = 0; i < gate->config.threads; i++)
        if (gate->loops[i].started) {
            atomic_store(&gate->loops[i].stop_us, stop_us);
            eventfd_write(gate->loops[i].wake_fd, 1);
        }
    for (unsigned i = 0; i < gate->config.threads; i++)
        loop_stop(&gate->loops[i]);
    tls_server_close(gate->tls);
    end_penalties(gate, UINT64_MAX);
    peer_places_destroy(gate->config.places);
    peer_places_destroy(gate->config.calls);
    peer_places_destroy(gate->config.uploads);
    pthread_mutex_destroy(&gate->door_lock);
    pthread_mutex_destroy(&gate->lock);
    free(gate->peers);
    free(gate->loops);
    free(gate);
}
