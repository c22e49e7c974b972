#include "common/net/rpc/grpc/gate_loop.h"

#include "common/base/assert.h"
#include "common/base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define READS_AT_ONCE         4 /* in a row; then it is the turn of other connections */
#define GATE_MAX_LINGER_BYTES (1u << 20)
#define END_US                1000000  /* for a GOAWAY to leave, and for bytes that still come */
#define LAST_BYTES_US         10000000 /* for bytes that core has sent before it closed */
#define PAIR_BYTES            65536    /* the kernel's part of each direction of a pair */

/* --- bytes --- */

static enum tls_io outcome_of(ssize_t done, size_t *count, enum tls_io wait)
{
    if (done > 0) {
        *count = (size_t)done;
        return TLS_DONE;
    }
    return done < 0 && (errno == EAGAIN || errno == EINTR) ? wait : TLS_CLOSED;
}

static enum tls_io receive(struct gate_connection *connection, uint8_t *bytes, size_t size,
                           size_t *count)
{
    if (connection->tls)
        return tls_receive(connection->tls, bytes, size, count);
    return outcome_of(recv(connection->client.fd, bytes, size, 0), count, TLS_WAIT_READ);
}

static enum tls_io send_to_client(struct gate_connection *connection, const uint8_t *bytes,
                                  size_t size, size_t *count)
{
    if (connection->tls)
        return tls_send(connection->tls, bytes, size, count);
    return outcome_of(send(connection->client.fd, bytes, size, MSG_NOSIGNAL), count,
                      TLS_WAIT_WRITE);
}

static enum tls_io send_to_core(struct gate_connection *connection, const uint8_t *bytes,
                                size_t size, size_t *count)
{
    return outcome_of(send(connection->core.fd, bytes, size, MSG_NOSIGNAL), count, TLS_WAIT_WRITE);
}

/* Keeps bytes behind those that are there already. */
static void pipe_keep(struct gate_pipe *pipe, const uint8_t *bytes, size_t size, uint64_t now_us)
{
    size_t room = GATE_PIPE_BYTES + FRAME_GATE_MAX_GOAWAY_BYTES;
    if (!pipe->bytes) {
        *pipe = (struct gate_pipe){.bytes = malloc(room), .moved_us = now_us};
        ASSERT(pipe->bytes);
    }
    ASSERT(size <= room - pipe->end);
    memcpy(pipe->bytes + pipe->end, bytes, size);
    pipe->end += size;
}

static void pipe_clear(struct gate_pipe *pipe)
{
    free(pipe->bytes);
    *pipe = (struct gate_pipe){.bytes = NULL};
}

typedef enum tls_io (*gate_sender)(struct gate_connection *connection, const uint8_t *bytes,
                                   size_t size, size_t *count);

/* Sends bytes of which none wait in the pipe, and keeps what has no room. False: the side takes no
 * more. */
static bool pass_on(struct gate_connection *connection, gate_sender sender, struct gate_pipe *pipe,
                    const uint8_t *bytes, size_t size)
{
    size_t count;
    enum tls_io done = TLS_DONE;
    while (size && (done = sender(connection, bytes, size, &count)) == TLS_DONE) {
        bytes += count;
        size -= count;
    }
    if (done != TLS_CLOSED && size)
        pipe_keep(pipe, bytes, size, connection->loop->now_us);
    return done != TLS_CLOSED;
}

/* Sends what the pipe holds. False: the side takes no more. */
static bool pipe_flush(struct gate_connection *connection, gate_sender sender,
                       struct gate_pipe *pipe)
{
    size_t count;
    enum tls_io done = TLS_DONE;
    while (pipe->bytes && (done = sender(connection, pipe->bytes + pipe->begin,
                                         pipe->end - pipe->begin, &count)) == TLS_DONE) {
        pipe->begin += count;
        pipe->moved_us = connection->loop->now_us;
        if (pipe->begin == pipe->end)
            pipe_clear(pipe);
    }
    return done != TLS_CLOSED;
}

/* --- ends --- */

static void side_close(struct gate_side *side)
{
    if (side->fd >= 0)
        close(side->fd); /* epoll forgets it */
    side->fd = -1;
    side->events = 0;
}

void gate_connection_destroy(struct gate_connection *connection)
{
    struct gate_loop *loop = connection->loop;
    if (connection->phase == PHASE_DEAD)
        return;
    connection->phase = PHASE_DEAD;
    connection->deadline_us = UINT64_MAX;
    side_close(&connection->core);
    tls_free(connection->tls);
    side_close(&connection->client);
    pipe_clear(&connection->up);
    pipe_clear(&connection->down);
    frame_gate_deinit(&connection->judge);
    gate_give_places_back(loop->gate, connection);
    TAILQ_REMOVE(&loop->connections, connection, link);
    connection->next_dead = loop->dead;
    loop->dead = connection;
}

static void set_deadline(struct gate_connection *connection, uint64_t after_us)
{
    connection->deadline_us = connection->loop->now_us + after_us;
    gate_loop_due(connection->loop, connection->deadline_us);
}

/* The client has got all. It closes as soon as it has read that. */
static void linger(struct gate_connection *connection)
{
    if (connection->tls)
        tls_shut(connection->tls);
    shutdown(connection->client.fd, SHUT_WR);
    if (connection->client_done) {
        gate_connection_destroy(connection);
        return;
    }
    connection->phase = PHASE_LINGERING;
    set_deadline(connection, END_US);
}

/* Nothing more passes; what waits for the client is sent within the time. */
static void finish(struct gate_connection *connection, uint64_t within_us)
{
    side_close(&connection->core);
    pipe_clear(&connection->up);
    connection->phase = PHASE_FLUSHING;
    set_deadline(connection, within_us);
    if (!pipe_flush(connection, send_to_client, &connection->down))
        gate_connection_destroy(connection);
    else if (!connection->down.bytes)
        linger(connection);
}

static void end_by(struct gate_connection *connection, enum frame_gate_end end)
{
    uint8_t goaway[FRAME_GATE_MAX_GOAWAY_BYTES];
    size_t size = frame_gate_goaway(&connection->judge, end, goaway);
    gate_report(connection->loop->gate, connection, end);
    if (size)
        pipe_keep(&connection->down, goaway, size, connection->loop->now_us);
    finish(connection, END_US);
}

/* --- bytes of the client --- */

/* Gives core its end of a new pair, and the preface. False: there is none. */
static bool open_core(struct gate_connection *connection)
{
    int pair[2], bytes = PAIR_BYTES;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
        return false;
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    connection->core.fd = pair[0];
    connection->phase = PHASE_PASSING;
    gate_enter(connection->loop->gate, pair[1], connection);
    connection->core_deaf = !pass_on(connection, send_to_core, &connection->up, frame_gate_preface,
                                     FRAME_GATE_PREFACE_BYTES);
    return true;
}

static void take_from_client(struct gate_connection *connection, const uint8_t *bytes, size_t size)
{
    struct gate_loop *loop = connection->loop;
    struct frame_gate *judge = &connection->judge;
    enum frame_gate_end end;
    size_t before = judge->preface_bytes;
    size_t passed = frame_gate_from_client(judge, bytes, size, loop->now_us, &end);
    size_t preface = judge->preface_bytes - before; /* open_core sends it as a whole */
    if (!end && connection->phase == PHASE_GREETING && frame_gate_has_preface(judge) &&
        !open_core(connection))
        end = FRAME_GATE_NO_DESCRIPTOR;
    if (!end && !gate_count_uploads(loop->gate, connection))
        end = FRAME_GATE_UPLOADS;
    if (end) {
        end_by(connection, end);
        return;
    }
    gate_count_calls(loop->gate, connection); /* before core asks for the count */
    if (passed > preface && !connection->core_deaf) {
        bytes += preface;
        size = passed - preface;
        if (connection->up.bytes) /* the preface had no room */
            pipe_keep(&connection->up, bytes, size, loop->now_us);
        else
            connection->core_deaf =
                !pass_on(connection, send_to_core, &connection->up, bytes, size);
    }
    gate_loop_due(loop, frame_gate_due_us(judge));
}

/* Core learns that the client sends no more behind all that it has sent. */
static void tell_client_done(struct gate_connection *connection)
{
    if (connection->client_done && !connection->up.bytes && connection->core.fd >= 0)
        shutdown(connection->core.fd, SHUT_WR);
}

static void on_client_done(struct gate_connection *connection)
{
    connection->client_done = true;
    if (connection->phase == PHASE_GREETING) {
        gate_connection_destroy(connection);
        return;
    }
    tell_client_done(connection);
    set_deadline(connection, END_US);
}

static bool reads_client(const struct gate_connection *connection)
{
    return connection->phase <= PHASE_PASSING && !connection->client_done && !connection->held &&
           !connection->up.bytes;
}

static void read_client(struct gate_connection *connection)
{
    struct gate_loop *loop = connection->loop;
    uint8_t *bytes = loop->scratch;
    size_t size = TLS_RECORD_BYTES, count;
    for (int i = 0; i < READS_AT_ONCE && reads_client(connection); i++) {
        connection->held = gate_holds(loop->gate, connection);
        if (connection->held) {
            gate_loop_due(loop, loop->now_us + GATE_LOOK_EVERY_US);
            return;
        }
        switch (receive(connection, bytes, size, &count)) {
        case TLS_DONE: break;
        case TLS_WAIT_READ: return;
        case TLS_WAIT_WRITE: connection->receive_wants_write = true; return;
        case TLS_CLOSED: on_client_done(connection); return;
        case TLS_FLOOD: end_by(connection, FRAME_GATE_TLS_MESSAGES); return;
        }
        if (connection->tls && !tls_agreed(connection->tls)) {
            end_by(connection, FRAME_GATE_PREFACE);
            return;
        }
        take_from_client(connection, bytes, count);
        if (!connection->tls && count < size)
            return;
    }
}

/* Drops what a client still sends to a connection that is over. */
static void drop_from_client(struct gate_connection *connection)
{
    for (int i = 0; i < READS_AT_ONCE; i++) {
        ssize_t count = recv(connection->client.fd, connection->loop->scratch, GATE_PIPE_BYTES, 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        connection->lingered_bytes += count > 0 ? (size_t)count : 0;
        if (count <= 0 || connection->lingered_bytes > GATE_MAX_LINGER_BYTES) {
            gate_connection_destroy(connection);
            return;
        }
    }
}

static void on_client(struct gate_connection *connection, uint32_t events)
{
    bool broken = events & (EPOLLERR | EPOLLHUP);
    if (connection->down.bytes && (broken || (events & EPOLLOUT))) {
        if (!pipe_flush(connection, send_to_client, &connection->down)) {
            gate_connection_destroy(connection);
            return;
        }
        if (connection->phase == PHASE_FLUSHING && !connection->down.bytes)
            linger(connection);
    }
    if (events & EPOLLOUT)
        connection->receive_wants_write = false;
    if (connection->phase == PHASE_LINGERING)
        drop_from_client(connection);
    else if (reads_client(connection))
        read_client(connection);
    else if (broken)
        gate_connection_destroy(connection);
}

/* --- bytes of core --- */

/* Returns when the client has taken nothing for too long; UINT64_MAX: nothing waits for it. */
static uint64_t stall_due_us(const struct gate_connection *connection)
{
    const struct gate_pipe *down = &connection->down;
    return down->bytes ? down->moved_us + connection->loop->gate->config.stall_us : UINT64_MAX;
}

/* Returns when a limit of time is reached. */
static uint64_t limit_us(const struct gate_connection *connection)
{
    uint64_t judge_us = frame_gate_due_us(&connection->judge), stall_us = stall_due_us(connection);
    return judge_us < stall_us ? judge_us : stall_us;
}

static void read_core(struct gate_connection *connection)
{
    struct gate_loop *loop = connection->loop;
    size_t count;
    enum tls_io done = outcome_of(recv(connection->core.fd, loop->scratch, GATE_PIPE_BYTES, 0),
                                  &count, TLS_WAIT_READ);
    if (done == TLS_CLOSED)
        finish(connection, LAST_BYTES_US);
    if (done != TLS_DONE)
        return;
    enum frame_gate_end end =
        frame_gate_from_server(&connection->judge, loop->scratch, count, loop->now_us);
    gate_count_calls(loop->gate, connection);
    (void)gate_count_uploads(loop->gate, connection); /* answers only make them less */
    if (!pass_on(connection, send_to_client, &connection->down, loop->scratch, count))
        gate_connection_destroy(connection);
    else if (end)
        end_by(connection, end);
    else
        gate_loop_due(loop, limit_us(connection)); /* the last call may have ended */
}

static void on_core(struct gate_connection *connection, uint32_t events)
{
    if (connection->up.bytes && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
        connection->core_deaf |= !pipe_flush(connection, send_to_core, &connection->up);
        if (connection->core_deaf)
            pipe_clear(&connection->up);
        tell_client_done(connection);
    }
    if (!connection->down.bytes && (events & ~(uint32_t)EPOLLOUT)) {
        read_core(connection);
    } else if (events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
        connection->core_done = true;
        set_deadline(connection, LAST_BYTES_US);
    }
}

/* --- events and time --- */

/* False: the kernel has no room for it. */
static bool side_watch(struct gate_loop *loop, struct gate_side *side, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = side};
    if (side->fd < 0 || side->events == events)
        return true;
    int how = !side->events ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    if (epoll_ctl(loop->epoll_fd, how, side->fd, &event))
        return false;
    side->events = events;
    return true;
}

/* Waits for what each side can do now. A side that can do nothing isn't watched: it would report
 * its end again and again. */
static void watch(struct gate_connection *connection)
{
    uint32_t client = 0, core = 0;
    if (connection->phase == PHASE_LINGERING || reads_client(connection))
        client |= EPOLLIN;
    if (connection->down.bytes || connection->receive_wants_write)
        client |= EPOLLOUT;
    if (!connection->down.bytes)
        core |= EPOLLIN;
    else if (!connection->core_done)
        core |= EPOLLRDHUP;
    if (connection->up.bytes)
        core |= EPOLLOUT;
    if (!side_watch(connection->loop, &connection->client, client) ||
        !side_watch(connection->loop, &connection->core, core)) {
        log_warn_limited("gate", "peer=%s msg=\"connection ended: it can't be watched: %s\"",
                         connection->peer, strerrordesc_np(errno));
        gate_connection_destroy(connection);
    }
}

void gate_connection_begin(struct gate_connection *connection)
{
    struct gate_loop *loop = connection->loop;
    /* With the loop's time: it is behind the clock, and the judge's never goes back. */
    enum status status =
        frame_gate_init(&connection->judge, &loop->gate->config.limits, loop->now_us);
    ASSERT(status == STATUS_OK);
    gate_loop_due(loop, frame_gate_due_us(&connection->judge));
    read_client(connection);
    watch(connection);
}

void gate_connection_event(struct gate_side *side, uint32_t events)
{
    struct gate_connection *connection = side->of;
    if (side->fd < 0) /* closed after an event before this one */
        return;
    if (side == &connection->client)
        on_client(connection, events);
    else
        on_core(connection, events);
    watch(connection);
}

uint64_t gate_connection_look(struct gate_connection *connection)
{
    uint64_t now_us = connection->loop->now_us;
    if (now_us >= connection->deadline_us) {
        gate_connection_destroy(connection);
        return UINT64_MAX;
    }
    if (connection->phase > PHASE_PASSING)
        return connection->deadline_us;
    enum frame_gate_end end = frame_gate_at(&connection->judge, now_us);
    if (now_us >= stall_due_us(connection))
        end = FRAME_GATE_STALLED;
    if (end) {
        end_by(connection, end);
        watch(connection);
        return connection->deadline_us;
    }
    if (connection->held) {
        connection->held = gate_holds(connection->loop->gate, connection);
        watch(connection);
        if (connection->phase == PHASE_DEAD)
            return UINT64_MAX;
        if (connection->held)
            return now_us + GATE_LOOK_EVERY_US;
    }
    uint64_t due_us = limit_us(connection);
    return due_us < connection->deadline_us ? due_us : connection->deadline_us;
}
