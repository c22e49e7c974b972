/* The owner's side of the tcp lane: admits readers and answers their asks. */
#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/kv/transport/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define DEFAULT_CONNECTIONS 512
#define MAX_ACCEPTS         16 /* in one poll */
#define HELLO_TIMEOUT_US    3000000
#define ACCEPT_RETRY_US     50000   /* after descriptors or memory ran out */
#define LOG_INTERVAL_US     1000000 /* between two lines about strangers */
#define IN_BYTES            (64 * KV_FRAME_BYTES)

/* Answers that one reader still gets. Each is a head and then bytes of the pool. A pool in host
 * memory isn't copied: its bytes must not change until they have left. */
struct answer {
    uint64_t bytes, done; /* done: sent so far, of the head and then of the bytes */
    uint64_t offset, grant;
    bool granted; /* otherwise zeros: the reader may not read it, or no longer */
    /* A pool on a device: the next bytes to send that lie in the client's stage. */
    const uint8_t *staged;
    size_t staged_bytes;
    uint8_t head[KV_FRAME_BYTES];
};

struct answers { /* all zero: empty */
    uint32_t first, count;
    struct answer items[KV_FRAME_WINDOW];
};

struct admission {
    uint64_t id; /* 0: not given */
    uint8_t secret[KV_SECRET_BYTES];
    struct tcp_client *client; /* the connection that it admitted, or NULL */
};

struct tcp_client {
    struct tcp_source source;
    TAILQ_ENTRY(tcp_client) link; /* in owner->strangers, ->readers or ->closed */
    struct admission *admission;  /* NULL: a stranger */
    uint64_t accepted_us, number; /* number: counts the connections */
    struct tcp_at from;
    struct kv_frames frames;
    struct answers answers; /* first of all the WELCOME */
    struct kv_stage *stage; /* holds bytes of answers that leave next; NULL: none */
    size_t staged;          /* bytes in it that have not left */
    uint64_t staged_us;     /* when bytes left it last, or it was taken */
};
TAILQ_HEAD(tcp_clients, tcp_client);

struct tcp_owner {
    struct tcp_source source; /* the listener */
    uint64_t retry_us;        /* accepting pauses until then; 0: it doesn't pause */
    uint64_t pool_id;
    struct tcp_clients strangers, readers; /* in order of arrival */
    /* freed by the next tick, because events may still point to them */
    struct tcp_clients closed;
    uint32_t client_count, max_clients;
    uint64_t last_admission, last_client, log_us, unlogged;
    uint32_t max_admissions;
    struct admission admissions[];
};

/* -- answers -- */

static struct answer *answer_at(struct answers *answers, uint32_t index)
{
    return &answers->items[(answers->first + index) % KV_FRAME_WINDOW];
}

/* Queues an answer and returns it; there must be room. Only its head is set. */
static struct answer *answers_put(struct answers *answers, const struct kv_frame *head)
{
    ASSERT(answers->count < KV_FRAME_WINDOW);
    struct answer *slot = answer_at(answers, answers->count++);
    *slot = (struct answer){0};
    kv_frame_encode(head, slot->head);
    return slot;
}

/* Asks the owner's worker whether the client may read these bytes of the pool now. */
static bool may_read(const struct tcp_lane *lane, const struct tcp_client *client, uint64_t grant,
                     uint64_t offset, uint64_t bytes)
{
    const struct kv_transport *transport = lane->transport;
    const struct kv_claim claim = {client->admission->id, grant, offset, bytes};
    return transport->may_read && transport->may_read(transport->owner, &claim);
}

/* Adds at most `bytes` of the pool at `from`, or as many zeros. Returns how many it added: all that
 * the pool has, and of zeros what fits into `parts`. */
static size_t add_bytes(const uint8_t *from, size_t bytes, struct iovec parts[TCP_MAX_PARTS],
                        int *count)
{
    static const uint8_t zeros[64 << 10];
    size_t added = 0;
    while (added < bytes && *count < TCP_MAX_PARTS) {
        size_t part = from || bytes - added < sizeof zeros ? bytes - added : sizeof zeros;
        /* sendmsg only reads */
        parts[(*count)++] = (struct iovec){(void *)(uintptr_t)(from ? from : zeros), part};
        added += part;
    }
    return added;
}

/* Forgets bytes of an answer that lie in the client's stage. */
static void unstage(struct tcp_client *client, struct answer *slot)
{
    client->staged -= slot->staged_bytes;
    slot->staged_bytes = 0;
}

/* Returns how many of the `left` bytes of an answer can be sent now. */
static size_t sendable(const struct tcp_lane *lane, const struct tcp_client *client,
                       const struct answer *slot, uint64_t left)
{
    if (!slot->granted || !lane->transport->staging)
        return left;
    return client->stage && !client->stage->copying ? slot->staged_bytes : 0;
}

static int next_parts(const struct tcp_lane *lane, struct tcp_client *client, size_t limit,
                      struct iovec parts[TCP_MAX_PARTS])
{
    struct answers *answers = &client->answers;
    const uint8_t *pool = lane->transport->pool;
    int count = 0;
    for (uint32_t i = 0; i < answers->count && count + 2 <= TCP_MAX_PARTS && limit > 0; i++) {
        struct answer *slot = answer_at(answers, i);
        uint64_t done = slot->done;
        if (done < KV_FRAME_BYTES) {
            parts[count++] = (struct iovec){slot->head + done, KV_FRAME_BYTES - done};
            done = KV_FRAME_BYTES;
        }
        uint64_t at = done - KV_FRAME_BYTES, left = slot->bytes - at;
        /* The grant may have ended since the bytes were asked for. The head that left says nothing
         * of it: these zeros look like bytes. The reader finds them by the blocks' checksums, which
         * each read through host memory has (host_path of sink_config). */
        if (slot->granted && !may_read(lane, client, slot->grant, slot->offset, slot->bytes)) {
            slot->granted = false;
            unstage(client, slot);
        }
        const uint8_t *from = !slot->granted ? NULL
                              : pool         ? pool + slot->offset + at
                                             : slot->staged;
        size_t bytes = sendable(lane, client, slot, left);
        bytes = add_bytes(from, bytes < limit ? bytes : limit, parts, &count);
        limit -= bytes;
        if (bytes < left)
            break;
    }
    return count;
}

static void sent(struct tcp_client *client, size_t bytes)
{
    struct answers *answers = &client->answers;
    while (bytes > 0) {
        struct answer *slot = answer_at(answers, 0);
        uint64_t left = KV_FRAME_BYTES + slot->bytes - slot->done;
        uint64_t part = bytes < left ? bytes : left;
        uint64_t before = slot->done < KV_FRAME_BYTES ? KV_FRAME_BYTES : slot->done;
        slot->done += part;
        bytes -= part;
        if (slot->staged_bytes > 0 && slot->done > before) {
            slot->staged += slot->done - before;
            slot->staged_bytes -= slot->done - before;
            client->staged -= slot->done - before;
        }
        if (part < left)
            return;
        answers->first = (answers->first + 1) % KV_FRAME_WINDOW;
        answers->count--;
    }
}

/* One turn: sends as much as the socket takes, at most TCP_TURN_BYTES and *budget, and takes that
 * from *budget. Returns false if the connection has failed. */
static bool answers_send(const struct tcp_lane *lane, struct tcp_client *client, size_t *budget)
{
    struct iovec parts[TCP_MAX_PARTS];
    size_t limit = *budget < TCP_TURN_BYTES ? *budget : TCP_TURN_BYTES;
    struct msghdr message = {.msg_iov = parts};
    message.msg_iovlen = (size_t)next_parts(lane, client, limit, parts);
    if (message.msg_iovlen == 0)
        return true;
    ssize_t got = sendmsg(client->source.fd, &message, MSG_NOSIGNAL);
    if (got < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    *budget -= (size_t)got < *budget ? (size_t)got : *budget;
    sent(client, (size_t)got);
    client->staged_us = lane->transport->polled_us;
    return true;
}

/* -- the end of a connection -- */

static void stage_drop(struct tcp_client *client)
{
    if (client->stage)
        kv_stage_give(client->stage);
    client->stage = NULL;
    for (uint32_t i = 0; i < client->answers.count; i++)
        unstage(client, answer_at(&client->answers, i));
}

static void client_close(struct tcp_lane *lane, struct tcp_client *client)
{
    struct tcp_owner *owner = lane->owner;
    if (client->source.fd < 0)
        return;
    tcp_close(lane, &client->source);
    stage_drop(client);
    TAILQ_REMOVE(client->admission ? &owner->readers : &owner->strangers, client, link);
    TAILQ_INSERT_TAIL(&owner->closed, client, link);
    owner->client_count--;
    if (client->admission)
        client->admission->client = NULL;
    client->admission = NULL;
}

/* Counts a refusal, and logs at most one line a second. */
static void turn_away(struct tcp_lane *lane, const struct tcp_at *from, enum kv_refusal refusal)
{
    struct tcp_owner *owner = lane->owner;
    uint64_t now_us = lane->transport->polled_us;
    lane->transport->counters.refused[refusal]++;
    if (now_us < owner->log_us) {
        owner->unlogged++;
        return;
    }
    char name[TCP_NAME_BYTES];
    tcp_at_name(from, name);
    log_warn("transport",
             "msg=\"a connection to the KV lane was closed\" from=%s reason=%s unlogged=%llu", name,
             kv_refusal_name(refusal), (unsigned long long)owner->unlogged);
    owner->log_us = now_us + LOG_INTERVAL_US;
    owner->unlogged = 0;
}

static void client_refuse(struct tcp_lane *lane, struct tcp_client *client, enum kv_refusal refusal)
{
    turn_away(lane, &client->from, refusal);
    client_close(lane, client);
}

/* -- bytes of a pool on a device -- */

/* Returns a buffer, one of a stalled reader's if need be; NULL: each one is in use. */
static struct kv_stage *stage_take(struct tcp_lane *lane)
{
    struct kv_stage *stage = kv_staging_take(lane->transport->staging);
    struct tcp_clients *readers = &lane->owner->readers;
    struct tcp_client *client, *next;
    for (client = TAILQ_FIRST(readers); client && !stage; client = next) {
        next = TAILQ_NEXT(client, link);
        if (!client->stage || client->stage->copying ||
            lane->transport->polled_us < client->staged_us + TCP_STALLED_US)
            continue;
        stage_drop(client);
        TAILQ_REMOVE(readers, client, link); /* others have waited for longer */
        TAILQ_INSERT_TAIL(readers, client, link);
        stage = kv_staging_take(lane->transport->staging);
    }
    return stage;
}

/* Copies the bytes that leave next to the client's buffer, as many as it holds. */
static void stage_fill(struct tcp_lane *lane, struct tcp_client *client)
{
    struct kv_stage *stage = client->stage;
    for (uint32_t i = 0; i < client->answers.count && client->staged < stage->bytes; i++) {
        struct answer *slot = answer_at(&client->answers, i);
        uint64_t at = slot->done < KV_FRAME_BYTES ? 0 : slot->done - KV_FRAME_BYTES;
        uint64_t left = slot->granted ? slot->bytes - at : 0;
        size_t room = stage->bytes - client->staged, bytes = left < room ? left : room;
        if (bytes == 0)
            continue;
        kv_stage_out(stage, slot->offset + at, client->staged, bytes);
        slot->staged = stage->memory + client->staged;
        slot->staged_bytes = bytes;
        client->staged += bytes;
    }
    client->staged_us = lane->transport->polled_us;
}

/* Goes on with the client's buffer. Returns whether it waits for one, or for its copies. A device
 * that fails to copy ends the connection. */
static bool stage_advance(struct tcp_lane *lane, struct tcp_client *client)
{
    bool wants = false;
    if (client->stage && !kv_stage_done(client->stage))
        return true;
    if (client->stage && client->stage->status != STATUS_OK) {
        client_refuse(lane, client, KV_REFUSED_RESOURCES);
        return false;
    }
    if (client->stage && client->staged == 0)
        stage_drop(client);
    for (uint32_t i = 0; i < client->answers.count && !client->stage && !wants; i++)
        wants = answer_at(&client->answers, i)->granted;
    if (!wants)
        return false;
    client->stage = stage_take(lane);
    if (client->stage)
        stage_fill(lane, client);
    return !client->stage || !kv_stage_done(client->stage);
}

/* Waits for room in the socket only if there are bytes for it. */
static bool wait_for_room(const struct tcp_lane *lane, struct tcp_client *client)
{
    const struct answer *slot = answer_at(&client->answers, 0);
    bool sends = client->answers.count > 0 &&
                 (slot->done < KV_FRAME_BYTES || sendable(lane, client, slot, 1) > 0);
    return tcp_wait_for(lane, &client->source, EPOLLIN | (sends ? EPOLLOUT : 0));
}

bool tcp_owner_stage(struct tcp_lane *lane)
{
    bool waits = false;
    struct tcp_client *client;
    for (struct tcp_client *next = TAILQ_FIRST(&lane->owner->readers); (client = next);) {
        next = TAILQ_NEXT(client, link);
        waits |= stage_advance(lane, client);
        if (client->source.fd >= 0 && !wait_for_room(lane, client))
            client_close(lane, client);
    }
    return waits;
}

/* -- frames of readers -- */

static struct admission *admission_find(struct tcp_owner *owner, uint64_t id)
{
    for (uint32_t i = 0; id && i < owner->max_admissions; i++)
        if (owner->admissions[i].id == id)
            return &owner->admissions[i];
    return NULL;
}

bool tcp_owner_knows(const struct tcp_lane *lane, uint64_t id, const uint8_t given[KV_SECRET_BYTES])
{
    static const uint8_t none[KV_SECRET_BYTES];
    const struct admission *admission = admission_find(lane->owner, id);
    const uint8_t *secret = admission ? admission->secret : none;
    volatile uint8_t difference = 0; /* the comparison takes the same time for every secret */
    for (size_t i = 0; i < KV_SECRET_BYTES; i++)
        difference |= (uint8_t)(given[i] ^ secret[i]);
    return admission && !difference;
}

/* Sends at once or not at all. Nothing was sent before, so there is room. */
static void send_verdict(const struct tcp_client *client, enum kv_verdict verdict)
{
    struct kv_frame welcome = {.kind = KV_FRAME_WELCOME, .welcome.verdict = verdict};
    uint8_t bytes[KV_FRAME_BYTES];
    kv_frame_encode(&welcome, bytes);
    (void)send(client->source.fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

static void on_hello(struct tcp_lane *lane, struct tcp_client *client, const struct kv_frame *hello)
{
    struct tcp_owner *owner = lane->owner;
    struct admission *admission = admission_find(owner, hello->hello.admission);
    if (!tcp_owner_knows(lane, hello->hello.admission, hello->hello.secret)) {
        send_verdict(client, KV_NOT_ADMITTED);
        client_refuse(lane, client, KV_REFUSED_SECRET);
        return;
    }
    FAILPOINT("transport.hello");
    /* The reader has given up the earlier connection, and pairs again. Either of the two may be
     * heard first. */
    bool given_up = admission->client && admission->client->number > client->number;
    if (admission->client)
        client_close(lane, given_up ? client : admission->client);
    if (given_up)
        return;
    TAILQ_REMOVE(&owner->strangers, client, link);
    TAILQ_INSERT_TAIL(&owner->readers, client, link);
    client->admission = admission;
    admission->client = client;
    struct kv_frame welcome = {
        .kind = KV_FRAME_WELCOME,
        .welcome = {KV_ADMITTED, owner->pool_id, lane->transport->pool_bytes},
    };
    (void)answers_put(&client->answers, &welcome);
}

/* An ask that the reader has no grant for, most often for a request that has just ended, costs it
 * nothing but this answer. */
static void on_ask(struct tcp_lane *lane, struct tcp_client *client, const struct kv_frame *frame)
{
    uint64_t bytes = frame->ask.bytes;
    bool granted = may_read(lane, client, frame->ask.grant, frame->ask.offset, bytes);
    const struct kv_frame head = {.kind = KV_FRAME_ANSWER,
                                  .answer = {frame->ask.number, bytes, !granted}};
    struct answer *answer = answers_put(&client->answers, &head);
    answer->bytes = bytes;
    answer->grant = frame->ask.grant;
    answer->offset = frame->ask.offset;
    answer->granted = granted;
    lane->transport->counters.refused[KV_REFUSED_GRANT] += !granted;
}

static void take_frames(struct tcp_lane *lane, struct tcp_client *client)
{
    uint8_t in[IN_BYTES];
    ssize_t got = recv(client->source.fd, in, sizeof in, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (got <= 0) {
        client_close(lane, client); /* no error: readers come and go */
        return;
    }
    for (size_t at = 0, taken; at < (size_t)got && client->source.fd >= 0; at += taken) {
        struct kv_frame frame;
        enum kv_frame_fault fault;
        if (!kv_frames_take(&client->frames, in + at, (size_t)got - at, &taken, &frame)) {
            fault = client->frames.bad;
            if (fault == KV_FRAME_OTHER_VERSION)
                send_verdict(client, KV_OTHER_VERSION);
            if (fault)
                client_refuse(lane, client,
                              fault == KV_FRAME_NOT_OURS        ? KV_REFUSED_NOISE
                              : fault == KV_FRAME_OTHER_VERSION ? KV_REFUSED_VERSION
                                                                : KV_REFUSED_MISUSE);
        } else if (frame.kind == KV_FRAME_HELLO) {
            on_hello(lane, client, &frame);
        } else if (!lane->serves || client->answers.count == KV_FRAME_WINDOW) {
            client_refuse(lane, client, KV_REFUSED_MISUSE);
        } else {
            on_ask(lane, client, &frame);
        }
    }
}

void tcp_client_ready(struct tcp_lane *lane, struct tcp_source *source, uint32_t events,
                      size_t *budget)
{
    struct tcp_client *client = (struct tcp_client *)source;
    if (source->fd < 0)
        return; /* an earlier event closed it */
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        take_frames(lane, client);
    if (source->fd < 0)
        return;
    if (lane->transport->staging && client->admission)
        (void)stage_advance(lane, client);
    if (source->fd < 0)
        return;
    if (!answers_send(lane, client, budget) || !wait_for_room(lane, client))
        client_close(lane, client);
}

/* -- connections and admissions -- */

static void client_add(struct tcp_lane *lane, int fd, const struct tcp_at *from)
{
    struct tcp_owner *owner = lane->owner;
    if (owner->client_count == owner->max_clients && !TAILQ_EMPTY(&owner->strangers))
        client_refuse(lane, TAILQ_FIRST(&owner->strangers), KV_REFUSED_LIMIT);
    struct tcp_client *client =
        owner->client_count < owner->max_clients ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        turn_away(lane, from, KV_REFUSED_LIMIT);
        close(fd);
        return;
    }
    tcp_set_options(fd);
    tcp_limit_queue(fd, from);
    client->source = (struct tcp_source){.kind = TCP_CLIENT, .fd = fd, .events = TCP_UNKNOWN};
    client->accepted_us = lane->transport->polled_us;
    client->number = ++owner->last_client;
    client->from = *from;
    client->frames.pool_bytes = lane->transport->pool_bytes;
    TAILQ_INSERT_TAIL(&owner->strangers, client, link);
    owner->client_count++;
    if (!tcp_wait_for(lane, &client->source, EPOLLIN))
        client_close(lane, client);
}

void tcp_owner_accept(struct tcp_lane *lane)
{
    struct tcp_owner *owner = lane->owner;
    for (int i = 0; i < MAX_ACCEPTS; i++) {
        struct tcp_at from = {.bytes = sizeof from.address};
        int fd = accept4(owner->source.fd, (struct sockaddr *)&from.address, &from.bytes,
                         SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            client_add(lane, fd, &from);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            continue; /* the connection is gone again, or its network */
        /* Connections wait in the backlog. The listener stays readable, so epoll must not wait for
         * it. */
        turn_away(lane, &from, KV_REFUSED_RESOURCES);
        owner->retry_us = lane->transport->polled_us + ACCEPT_RETRY_US;
        (void)tcp_wait_for(lane, &owner->source, 0);
        return;
    }
}

void tcp_owner_tick(struct tcp_lane *lane)
{
    struct tcp_owner *owner = lane->owner;
    uint64_t now_us = lane->transport->polled_us;
    struct tcp_client *client;
    while ((client = TAILQ_FIRST(&owner->strangers)) &&
           now_us >= client->accepted_us + HELLO_TIMEOUT_US)
        client_refuse(lane, client, KV_REFUSED_LATE);
    if (owner->retry_us && now_us >= owner->retry_us && tcp_wait_for(lane, &owner->source, EPOLLIN))
        owner->retry_us = 0;
    while ((client = TAILQ_FIRST(&owner->closed))) {
        TAILQ_REMOVE(&owner->closed, client, link);
        free(client);
    }
}

uint64_t tcp_owner_next_us(const struct tcp_lane *lane)
{
    const struct tcp_owner *owner = lane->owner;
    const struct tcp_client *stranger = TAILQ_FIRST(&owner->strangers);
    uint64_t next_us = stranger ? stranger->accepted_us + HELLO_TIMEOUT_US : UINT64_MAX;
    return owner->retry_us && owner->retry_us < next_us ? owner->retry_us : next_us;
}

enum status tcp_owner_admit(struct tcp_lane *lane, uint64_t *id, uint8_t secret[KV_SECRET_BYTES],
                            struct error *err)
{
    struct tcp_owner *owner = lane->owner;
    struct admission *slot = owner->admissions;
    while (slot < owner->admissions + owner->max_admissions && slot->id)
        slot++;
    if (slot == owner->admissions + owner->max_admissions)
        return error_set(err, STATUS_LIMIT, "%u readers are admitted already, the maximum",
                         owner->max_admissions);
    uint64_t words[2] = {rng_entropy(), rng_entropy()};
    memcpy(slot->secret, words, sizeof words);
    memcpy(secret, words, sizeof words);
    slot->id = *id = ++owner->last_admission;
    return STATUS_OK;
}

void tcp_owner_revoke(struct tcp_lane *lane, uint64_t id)
{
    struct admission *admission = admission_find(lane->owner, id);
    if (!admission)
        return;
    if (admission->client)
        client_close(lane, admission->client);
    *admission = (struct admission){0};
}

/* -- open, close -- */

/* Sets the address that readers get: the one that is listened on, or, if that is every address, the
 * advertised one. */
static enum status set_address(const struct kv_transport_config *config, const struct tcp_at *at,
                               struct kv_address *address, struct error *err)
{
    tcp_at_to_address(at, address);
    if (!tcp_at_is_any(at))
        return STATUS_OK;
    if (!config->advertise || !*config->advertise)
        return error_set(err, STATUS_INVALID,
                         "the KV lane would listen on every address: give the one that readers "
                         "get, or one to listen on");
    struct tcp_at advertised;
    uint16_t port = address->port;
    TRY(tcp_at_resolve(config->advertise, at, &advertised, err));
    tcp_at_to_address(&advertised, address);
    address->port = port;
    return STATUS_OK;
}

static void log_listening(const struct tcp_at *at, const struct kv_address *address)
{
    struct tcp_at advertised;
    char name[TCP_NAME_BYTES], seen[TCP_NAME_BYTES];
    tcp_at_name(at, name);
    if (!tcp_at_from_address(address, &advertised))
        return;
    tcp_at_name(&advertised, seen);
    if (tcp_at_is_loopback(at))
        log_info("transport", "msg=\"the KV lane listens\" address=%s", name);
    else
        log_warn("transport",
                 "msg=\"the KV lane listens beyond loopback: its bytes are not encrypted, keep it "
                 "on a private network\" address=%s advertised=%s",
                 name, seen);
}

enum status tcp_owner_open(struct tcp_lane *lane, const struct kv_transport_config *config,
                           struct kv_address *address, struct error *err)
{
    uint32_t max = config->max_connections ? config->max_connections : DEFAULT_CONNECTIONS;
    struct tcp_at at;
    const char *listen =
        config->bind_interface && *config->bind_interface ? config->bind_interface : "lo";
    TRY(tcp_at_parse(listen, &at, err));
    int fd;
    TRY(tcp_listen(&at, &fd, err));
    enum status status = set_address(config, &at, address, err);
    struct tcp_owner *owner = calloc(1, sizeof *owner + max * sizeof *owner->admissions);
    if (status == STATUS_OK && !owner)
        status = error_set(err, STATUS_LIMIT, "no memory for a transport");
    if (status != STATUS_OK) {
        free(owner);
        close(fd);
        return status;
    }
    owner->source = (struct tcp_source){.kind = TCP_LISTENER, .fd = fd, .events = TCP_UNKNOWN};
    owner->pool_id = address->id;
    owner->max_clients = owner->max_admissions = max;
    TAILQ_INIT(&owner->strangers);
    TAILQ_INIT(&owner->readers);
    TAILQ_INIT(&owner->closed);
    lane->owner = owner;
    if (!tcp_wait_for(lane, &owner->source, EPOLLIN))
        return error_set(err, STATUS_IO, "epoll can't watch the tcp lane: %s", strerror(errno));
    log_listening(&at, address);
    return STATUS_OK;
}

void tcp_owner_close(struct tcp_lane *lane)
{
    struct tcp_owner *owner = lane->owner;
    if (!owner)
        return;
    tcp_close(lane, &owner->source);
    struct tcp_client *client;
    while ((client = TAILQ_FIRST(&owner->strangers)) || (client = TAILQ_FIRST(&owner->readers)))
        client_close(lane, client);
    while ((client = TAILQ_FIRST(&owner->closed))) {
        TAILQ_REMOVE(&owner->closed, client, link);
        free(client);
    }
    free(owner);
    lane->owner = NULL;
}
