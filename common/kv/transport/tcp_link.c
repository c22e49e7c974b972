/* The reader's side of the tcp lane: one connection for each pairing. The length of the next bytes
 * is known before they come. So they go from the socket straight to their place, several answers
 * with one call; with a pool on a device, by way of a buffer (kv_staging). */
#include "common/base/assert.h"
#include "common/kv/transport/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* While at least so many bytes are to come, the kernel wakes us for no fewer. */
#define WAKE_BYTES (256 << 10)

struct link_ask {
    struct kv_read *read;
    uint64_t number, bytes;
    uint64_t to;   /* offset in the pool */
    uint64_t done; /* received so far: its head, then its bytes */
    bool refused;  /* its head says so: zeros follow */
    uint8_t head[KV_FRAME_BYTES];
};

struct tcp_link {
    struct tcp_source source;
    struct kv_peer *peer;
    uint64_t pool_id;
    bool connecting;
    size_t greeting_bytes; /* received bytes of WELCOME */
    uint8_t greeting[KV_FRAME_BYTES];
    uint64_t next_number;
    uint64_t to_come; /* bytes of all answers */
    bool wakes_late;
    uint32_t first, count;  /* the asks' ring */
    struct kv_stage *stage; /* the bytes that were received last, on their way to the device */
    uint32_t landed;        /* the first asks: received whole, to the stage */
    bool starved;           /* receives again once it has a buffer */
    struct link_ask asks[KV_FRAME_WINDOW];
    size_t out_begin, out_end;
    uint8_t out[(KV_FRAME_WINDOW + 1) * KV_FRAME_BYTES]; /* HELLO, and a full window of asks */
};

static struct link_ask *ask_at(struct tcp_link *link, uint32_t index)
{
    return &link->asks[(link->first + index) % KV_FRAME_WINDOW];
}

static void fail(struct tcp_link *link, enum kv_failure failure, const char *reason)
{
    kv_peer_fail(link->peer, failure, reason);
}

static const char *error_text(int error)
{
    const char *text = strerrordesc_np(error);
    return text ? text : "unknown error";
}

static void fail_by_errno(struct tcp_link *link, int error)
{
    bool gone = error == ECONNRESET || error == EPIPE;
    fail(link, gone ? KV_FAILURE_PEER_GONE : KV_FAILURE_UNREACHABLE,
         gone ? NULL : error_text(error));
}

/* Makes the kernel wake us for fewer, larger reads. It never waits for more bytes than are to come,
 * so the last byte always wakes us. An end of the connection does so, too. */
static void set_wake(struct tcp_link *link)
{
    bool late = link->to_come >= (link->wakes_late ? WAKE_BYTES : 2 * WAKE_BYTES);
    if (late == link->wakes_late)
        return;
    int bytes = late ? WAKE_BYTES : 1;
    if (setsockopt(link->source.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0)
        link->wakes_late = late;
}

/* -- out: HELLO and asks -- */

static void put_frame(struct tcp_link *link, const struct kv_frame *frame)
{
    if (link->out_begin == link->out_end)
        link->out_begin = link->out_end = 0;
    if (link->out_end + KV_FRAME_BYTES > sizeof link->out) {
        memmove(link->out, link->out + link->out_begin, link->out_end - link->out_begin);
        link->out_end -= link->out_begin;
        link->out_begin = 0;
    }
    ASSERT(link->out_end + KV_FRAME_BYTES <= sizeof link->out);
    kv_frame_encode(frame, link->out + link->out_end);
    link->out_end += KV_FRAME_BYTES;
}

static void flush(struct tcp_lane *lane, struct tcp_link *link)
{
    while (link->out_begin < link->out_end && !link->connecting) {
        ssize_t sent = send(link->source.fd, link->out + link->out_begin,
                            link->out_end - link->out_begin, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (sent < 0) {
            fail_by_errno(link, errno);
            return;
        }
        link->out_begin += (size_t)sent;
    }
    bool more = link->connecting || link->out_begin < link->out_end;
    bool takes = !link->stage && !link->starved;
    if (!tcp_wait_for(lane, &link->source, (takes ? EPOLLIN : 0) | (more ? EPOLLOUT : 0)))
        fail(link, KV_FAILURE_UNREACHABLE, error_text(errno));
}

static void ask(struct tcp_link *link, struct kv_read *read)
{
    const struct kv_read_run *run = &read->runs[read->next_run++];
    struct link_ask *slot = ask_at(link, link->count++);
    *slot = (struct link_ask){
        .read = read,
        .number = link->next_number++,
        .bytes = run->bytes,
        .to = run->local_offset,
    };
    read->parts++;
    link->to_come += KV_FRAME_BYTES + slot->bytes;
    put_frame(link, &(struct kv_frame){
                        .kind = KV_FRAME_ASK,
                        .ask = {slot->number, run->remote_offset, run->bytes, run->grant}});
}

void tcp_link_start(struct tcp_lane *lane, struct tcp_link *link)
{
    if (!link->peer->welcomed)
        return;
    uint32_t before = link->count;
    struct kv_read *read;
    TAILQ_FOREACH(read, &link->peer->reads, link)
    while (read->next_run < read->run_count && link->count < KV_FRAME_WINDOW)
        ask(link, read);
    if (link->count == before)
        return;
    flush(lane, link);
    set_wake(link);
}

/* -- in: WELCOME, then answers -- */

static void take_greeting(struct tcp_link *link)
{
    ssize_t got = recv(link->source.fd, link->greeting + link->greeting_bytes,
                       KV_FRAME_BYTES - link->greeting_bytes, 0);
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        fail_by_errno(link, errno);
    if (got == 0)
        fail(link, KV_FAILURE_PEER_GONE, NULL);
    if (got <= 0)
        return;
    link->greeting_bytes += (size_t)got;
    if (link->greeting_bytes < KV_FRAME_BYTES)
        return;
    struct kv_frame frame;
    enum kv_frame_fault fault = kv_frame_decode(link->greeting, &frame);
    if (fault == KV_FRAME_OTHER_VERSION)
        fail(link, KV_FAILURE_REFUSED, "the peer speaks another version of the KV lane");
    else if (fault || frame.kind != KV_FRAME_WELCOME)
        fail(link, KV_FAILURE_PROTOCOL, NULL);
    else if (frame.welcome.verdict == KV_NOT_ADMITTED)
        fail(link, KV_FAILURE_REFUSED, NULL);
    else if (frame.welcome.verdict != KV_ADMITTED)
        fail(link, KV_FAILURE_REFUSED, "the peer speaks another version of the KV lane");
    else if (frame.welcome.pool_id != link->pool_id ||
             frame.welcome.pool_bytes != link->peer->pool_bytes)
        fail(link, KV_FAILURE_REFUSED, "another process answers at the peer's address");
    else
        link->peer->welcomed = true;
}

/* Fills `parts` with the places of the next answers, `limit` bytes at most. Returns their
 * number. */
static int next_parts(struct tcp_link *link, size_t limit, struct iovec parts[TCP_MAX_PARTS])
{
    int count = 0;
    uint8_t *staged = link->stage ? link->stage->memory : NULL;
    for (uint32_t i = 0; i < link->count && count + 2 <= TCP_MAX_PARTS && limit > 0; i++) {
        struct link_ask *slot = ask_at(link, i);
        uint64_t done = slot->done;
        if (done < KV_FRAME_BYTES) {
            parts[count++] = (struct iovec){slot->head + done, KV_FRAME_BYTES - done};
            done = KV_FRAME_BYTES;
        }
        uint64_t at = done - KV_FRAME_BYTES, left = slot->bytes - at;
        size_t bytes = left < limit ? left : limit;
        parts[count++] =
            (struct iovec){staged ? staged : link->peer->transport->pool + slot->to + at, bytes};
        if (staged)
            staged += bytes;
        limit -= bytes;
        if (bytes < left)
            break;
    }
    return count;
}

/* The first answer is whole, in its place. */
static void end_first(struct tcp_link *link)
{
    const struct link_ask *slot = ask_at(link, 0);
    link->first = (link->first + 1) % KV_FRAME_WINDOW;
    link->count--;
    kv_read_part_done(slot->read, slot->refused ? KV_FAILURE_NOT_GRANTED : KV_FAILURE_NONE, NULL);
}

/* Accounts for `got` bytes that have landed. Some may have landed in runs behind a wrong head:
 * those runs are landing, and the pairing is closed for the head. */
static void took(struct tcp_link *link, size_t got)
{
    size_t staged = 0;
    while (got > 0) {
        struct link_ask *slot = ask_at(link, link->landed);
        uint64_t left = KV_FRAME_BYTES + slot->bytes - slot->done;
        uint64_t bytes = got < left ? got : left;
        uint64_t before = slot->done < KV_FRAME_BYTES ? KV_FRAME_BYTES : slot->done;
        bool had_head = slot->done >= KV_FRAME_BYTES;
        slot->done += bytes;
        got -= bytes;
        if (!had_head && slot->done >= KV_FRAME_BYTES) {
            struct kv_frame frame;
            /* An ask must have left before its answer, or asks would pile up behind it. */
            size_t unsent = (link->out_end - link->out_begin + KV_FRAME_BYTES - 1) / KV_FRAME_BYTES;
            if (unsent >= link->count - link->landed ||
                kv_frame_decode(slot->head, &frame) != KV_FRAME_GOOD ||
                frame.kind != KV_FRAME_ANSWER || frame.answer.number != slot->number ||
                frame.answer.bytes != slot->bytes) {
                fail(link, KV_FAILURE_PROTOCOL, NULL);
                return;
            }
            slot->refused = frame.answer.refused;
        }
        if (link->stage && slot->done > before) {
            kv_stage_in(link->stage, slot->to + (before - KV_FRAME_BYTES), staged,
                        slot->done - before);
            staged += slot->done - before;
        }
        if (slot->done < KV_FRAME_BYTES + slot->bytes)
            return;
        if (link->stage)
            link->landed++;
        else
            end_first(link);
    }
}

bool tcp_link_stage(struct tcp_lane *lane, struct tcp_link *link)
{
    if (link->stage && !kv_stage_done(link->stage))
        return true;
    if (link->stage) {
        bool failed = link->stage->status != STATUS_OK;
        kv_stage_give(link->stage);
        link->stage = NULL;
        if (failed) {
            fail(link, KV_FAILURE_UNREACHABLE, "the own device failed to copy bytes of the pool");
            return false;
        }
        for (; link->landed > 0; link->landed--)
            end_first(link);
    } else if (!link->starved) {
        return false;
    }
    link->starved = false; /* if there is no buffer it is again */
    flush(lane, link);
    return link->starved;
}

static void take_answers(struct tcp_lane *lane, struct tcp_link *link, size_t *budget)
{
    if (link->count == 0) { /* no answer is to come: this is an end, or bytes without an ask */
        char byte;
        ssize_t got = recv(link->source.fd, &byte, 1, 0);
        if (got > 0)
            fail(link, KV_FAILURE_PROTOCOL, NULL);
        else if (got == 0)
            fail(link, KV_FAILURE_PEER_GONE, NULL);
        else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            fail_by_errno(link, errno);
        return;
    }
    struct iovec parts[TCP_MAX_PARTS];
    size_t limit = *budget < TCP_TURN_BYTES ? *budget : TCP_TURN_BYTES;
    if (lane->transport->staging) {
        link->stage = kv_staging_take(lane->transport->staging);
        link->starved = !link->stage;
        if (link->starved) {
            flush(lane, link);
            return;
        }
        limit = limit < link->stage->bytes ? limit : link->stage->bytes;
    }
    int count = next_parts(link, limit, parts);
    ssize_t got = readv(link->source.fd, parts, count);
    if (got == 0)
        fail(link, KV_FAILURE_PEER_GONE, NULL);
    else if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        fail_by_errno(link, errno);
    if (got > 0) {
        *budget -= (size_t)got < *budget ? (size_t)got : *budget;
        link->to_come -= (uint64_t)got;
        took(link, (size_t)got);
        set_wake(link);
    }
    if (link->stage && tcp_link_stage(lane, link))
        flush(lane, link);
}

void tcp_link_ready(struct tcp_lane *lane, struct tcp_source *source, uint32_t events,
                    size_t *budget)
{
    struct tcp_link *link = (struct tcp_link *)source;
    struct kv_peer *peer = link->peer;
    if (peer->failed)
        return; /* this poll closes it */
    if (link->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        int error = 0;
        socklen_t bytes = sizeof error;
        if (getsockopt(source->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
            error = errno;
        if (error)
            fail(link, KV_FAILURE_UNREACHABLE, error_text(error));
        link->connecting = false;
    }
    if (peer->failed || link->connecting || link->stage || link->starved)
        return;
    if (events & EPOLLOUT)
        flush(lane, link);
    if (peer->failed || !(events & (EPOLLIN | EPOLLERR | EPOLLHUP)))
        return;
    if (!peer->welcomed)
        take_greeting(link);
    else
        take_answers(lane, link, budget);
}

/* -- open, close -- */

enum status tcp_link_open(struct tcp_lane *lane, const struct kv_address *address,
                          struct kv_peer *peer, struct tcp_link **out, struct error *err)
{
    struct tcp_at at;
    char name[TCP_NAME_BYTES];
    if (!tcp_at_from_address(address, &at))
        return error_set(err, STATUS_INVALID, "the peer does not say where its KV lane listens");
    tcp_at_name(&at, name);
    struct tcp_link *link = calloc(1, sizeof *link);
    if (!link)
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    int fd = socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        free(link);
        return error_set(err, STATUS_LIMIT, "no socket for the KV lane to %s: %s", name,
                         strerror(errno));
    }
    tcp_set_options(fd);
    link->source = (struct tcp_source){.kind = TCP_LINK, .fd = fd, .events = TCP_UNKNOWN};
    link->peer = peer;
    link->pool_id = address->id;
    link->connecting = true;
    struct kv_frame hello = {.kind = KV_FRAME_HELLO, .hello.admission = address->admission};
    memcpy(hello.hello.secret, address->secret, KV_SECRET_BYTES);
    put_frame(link, &hello);
    if ((connect(fd, (const struct sockaddr *)&at.address, at.bytes) != 0 &&
         errno != EINPROGRESS) ||
        !tcp_wait_for(lane, &link->source, EPOLLIN | EPOLLOUT)) {
        enum status status =
            error_set(err, STATUS_UNAVAILABLE, "the peer can't be reached by the KV lane at %s: %s",
                      name, strerror(errno));
        close(fd);
        free(link);
        return status;
    }
    *out = link;
    return STATUS_OK;
}

void tcp_link_close(struct tcp_lane *lane, struct tcp_link *link)
{
    if (link->source.fd < 0)
        return;
    tcp_close(lane, &link->source);
    if (link->stage) {
        kv_stage_wait(link->stage); /* no byte lands after the close */
        kv_stage_give(link->stage);
        link->stage = NULL;
        link->landed = 0;
    }
    while (link->count > 0) {
        struct kv_read *read = ask_at(link, 0)->read;
        link->first = (link->first + 1) % KV_FRAME_WINDOW;
        link->count--;
        kv_read_part_done(read, KV_FAILURE_CLOSED, NULL);
    }
}

void tcp_link_free(struct tcp_lane *lane, struct tcp_link *link)
{
    if (!link)
        return;
    tcp_link_close(lane, link);
    free(link);
}
