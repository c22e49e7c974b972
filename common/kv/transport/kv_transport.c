#include "common/kv/transport/kv_transport.h"

#include "common/base/assert.h"
#include "common/base/domain/link_model.h"
#include "common/base/log.h"
#include "common/kv/transport/kv_checksum.h"
#include "common/kv/transport/kv_faults.h"
#include "common/kv/transport/mapped_lane.h"

#include <stdlib.h>
#include <string.h>

/* Bytes that one poll copies from mapped peers, at most: under a millisecond on the slowest known
 * memory, so that the thread stays responsive. After a turn's bytes another peer gets its turn. */
#define COPY_BUDGET_BYTES (1u << 20)
#define COPY_TURN_BYTES   (256u << 10)

static bool lies_inside(uint64_t offset, uint64_t bytes, uint64_t pool_bytes)
{
    return bytes > 0 && bytes <= pool_bytes && offset <= pool_bytes - bytes;
}

/* -- failures -- */

static const struct {
    const char *name;
    enum status status;
    const char *reason;
} failures[KV_FAILURES] = {
    [KV_FAILURE_NONE] = {"none", STATUS_OK, NULL},
    [KV_FAILURE_DEADLINE] = {"deadline", STATUS_TIMEOUT, "deadline"},
    [KV_FAILURE_PEER_DEADLINE] = {"deadline_of_another", STATUS_UNAVAILABLE,
                                  "the deadline of another read of this peer"},
    [KV_FAILURE_CLOSED] = {"closed", STATUS_CANCELLED, "closed by us"},
    [KV_FAILURE_PEER_GONE] = {"peer_gone", STATUS_UNAVAILABLE,
                              "the peer closed its connection: it ended, or dropped this reader"},
    [KV_FAILURE_UNREACHABLE] = {"unreachable", STATUS_UNAVAILABLE, "the peer can't be reached"},
    [KV_FAILURE_REFUSED] = {"refused", STATUS_UNAVAILABLE, "the peer does not admit this reader"},
    [KV_FAILURE_PROTOCOL] = {"protocol", STATUS_INTERNAL, "the peer's answer breaks the protocol"},
    [KV_FAILURE_NOT_GRANTED] = {"not_granted", STATUS_NOT_FOUND,
                                "the peer doesn't let this reader read these blocks"},
    [KV_FAILURE_LANE] = {"lane", STATUS_UNAVAILABLE, "the lane that was asked for can't be had"},
    [KV_FAILURE_INJECTED] = {"injected", STATUS_UNAVAILABLE, "an injected fault: the lane is lost"},
};

const char *kv_failure_name(enum kv_failure failure)
{
    return failures[failure].name;
}

const char *kv_refusal_name(enum kv_refusal refusal)
{
    static const char *const names[KV_REFUSALS] = {
        [KV_REFUSED_NOISE] = "noise",         [KV_REFUSED_VERSION] = "version",
        [KV_REFUSED_SECRET] = "secret",       [KV_REFUSED_LATE] = "late",
        [KV_REFUSED_LIMIT] = "limit",         [KV_REFUSED_MISUSE] = "misuse",
        [KV_REFUSED_RESOURCES] = "resources", [KV_REFUSED_GRANT] = "grant",
    };
    return names[refusal];
}

static enum status status_of(enum kv_failure failure)
{
    return failures[failure].status;
}

static const char *reason_of(enum kv_failure failure, const char *reason)
{
    return reason ? reason : failures[failure].reason;
}

/* -- peers and their reads -- */

static void read_end(struct kv_read *read)
{
    struct kv_peer *peer = read->peer;
    struct kv_transport *transport = peer->transport;
    TAILQ_REMOVE(&peer->reads, read, link);
    TAILQ_INSERT_TAIL(&transport->ended, read, link);
    link_remove(&transport->link, &read->flow);
    peer->events_due++;
    if (!read->failure)
        transport->counters.bytes_read += read->bytes;
    else
        transport->counters.reads_failed[read->failure]++;
}

static void read_fail(struct kv_read *read, enum kv_failure failure, const char *reason)
{
    if (read->failure)
        return;
    read->failure = failure;
    read->reason = reason;
}

static bool is_paced(const struct kv_transport *transport)
{
    return transport->pace.bytes_per_second > 0;
}

/* Ends the read, now or when its pace lets it. */
static void read_landed(struct kv_read *read)
{
    read->landed = true;
    if (!is_paced(read->peer->transport) || (read->flow.added && link_done(&read->flow)))
        read_end(read);
}

/* Begins the pace of the reads that were asked for since the last poll, and ends those that were
 * held back by nothing else. */
static void keep_pace(struct kv_transport *transport, uint64_t now_us)
{
    struct kv_peer *peer;
    link_advance(&transport->link, now_us);
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        struct kv_read *read;
        for (struct kv_read *next = TAILQ_FIRST(&peer->reads); (read = next);) {
            next = TAILQ_NEXT(read, link);
            if (!read->flow.added)
                link_add(&transport->link, &read->flow, (double)read->bytes * transport->pace.scale,
                         now_us);
            else if (read->landed && !read->failure && link_done(&read->flow))
                read_end(read);
        }
    }
}

/* Ends the reads that a fault held back until now, or, with `reordered`, until another one
 * ended. */
static void release_held(struct kv_transport *transport, bool reordered)
{
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        struct kv_read *read;
        for (struct kv_read *next = TAILQ_FIRST(&peer->reads); (read = next);) {
            next = TAILQ_NEXT(read, link);
            if (read->held_us && !read->failure &&
                (read->held_us <= transport->polled_us || (reordered && read->reordered))) {
                read->held_us = 0;
                read_landed(read);
            }
        }
    }
}

/* All bytes of the read have landed. */
static void read_complete(struct kv_read *read)
{
    struct kv_transport *transport = read->peer->transport;
    if (transport->faults && !kv_faults_landed(transport, read))
        return;
    read_landed(read);
    if (transport->faults)
        release_held(transport, true);
}

void kv_read_part_done(struct kv_read *read, enum kv_failure failure, const char *reason)
{
    ASSERT(read->parts > 0);
    read->parts--;
    if (failure)
        read_fail(read, failure, reason);
    if (failure == KV_FAILURE_NOT_GRANTED)
        read->next_run = read->run_count; /* nothing more is asked for */
    else if (failure)
        kv_peer_fail(read->peer, failure, reason);
    if (read->parts > 0 || read->next_run < read->run_count)
        return;
    if (!read->failure)
        read_complete(read);
    else if (read->failure == KV_FAILURE_NOT_GRANTED && read->peer->state == KV_PEER_OPEN)
        read_end(read); /* any other read that failed ends with its peer */
}

/* Returns the first read with runs that were not started. */
static struct kv_read *first_unfinished(const struct kv_peer *peer)
{
    struct kv_read *read;
    TAILQ_FOREACH(read, &peer->reads, link)
    if (read->next_run < read->run_count)
        return read;
    return NULL;
}

/* Copies up to `budget` bytes of the peer's reads from its mapped pool. Returns the bytes left of
 * the budget. */
static size_t copy_reads(struct kv_peer *peer, size_t budget)
{
    struct kv_read *read;
    while (budget > 0 && !peer->failed && (read = first_unfinished(peer))) {
        const struct kv_read_run *run = &read->runs[read->next_run];
        uint64_t left = run->bytes - read->next_bytes;
        size_t bytes = left < budget ? left : budget;
        memcpy(peer->transport->pool + run->local_offset + read->next_bytes,
               peer->mapped + run->remote_offset + read->next_bytes, bytes);
        budget -= bytes;
        read->next_bytes += bytes;
        if (read->next_bytes < run->bytes)
            continue;
        read->next_bytes = 0;
        if (++read->next_run == read->run_count)
            read_complete(read);
    }
    return budget;
}

static bool has_copies(const struct kv_peer *peer)
{
    return peer->state == KV_PEER_OPEN && peer->welcomed && !peer->failed && peer->mapped &&
           first_unfinished(peer);
}

/* Copies a bounded amount from mapped peers. They take turns, also over polls. */
static void copy_mapped(struct kv_transport *transport)
{
    size_t budget = COPY_BUDGET_BYTES;
    uint32_t idle = 0;
    while (budget > 0 && idle < transport->peer_count) {
        struct kv_peer *peer = TAILQ_FIRST(&transport->peers);
        size_t turn = budget < COPY_TURN_BYTES ? budget : COPY_TURN_BYTES;
        size_t left = has_copies(peer) ? copy_reads(peer, turn) : turn;
        idle = left == turn ? idle + 1 : 0;
        budget -= turn - left;
        TAILQ_REMOVE(&transport->peers, peer, link);
        TAILQ_INSERT_TAIL(&transport->peers, peer, link);
    }
}

void kv_peer_fail(struct kv_peer *peer, enum kv_failure failure, const char *reason)
{
    if (peer->failed)
        return;
    peer->failed = failure;
    peer->failed_reason = reason;
}

/* The forced close. Every read in flight ends with this failure, or with its own if it has one. */
static void peer_close(struct kv_peer *peer, enum kv_failure failure, const char *reason)
{
    ASSERT(peer->state == KV_PEER_OPEN && failure);
    peer->state = KV_PEER_CLOSED;
    peer->failure = failure;
    peer->reason = reason;
    struct kv_read *read;
    TAILQ_FOREACH(read, &peer->reads, link)
    read_fail(read, failure == KV_FAILURE_DEADLINE ? KV_FAILURE_PEER_DEADLINE : failure, reason);
    peer->transport->ops->close_peer(peer);
    while ((read = TAILQ_FIRST(&peer->reads))) {
        ASSERT(read->parts == 0);
        read_end(read);
    }
}

/* Ends the reads with a deadline that has come, and closes their peers. */
static void end_expired(struct kv_transport *transport, uint64_t now_us)
{
    if (now_us < transport->deadline_floor_us)
        return;
    uint64_t floor_us = UINT64_MAX;
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (peer->state != KV_PEER_OPEN)
            continue;
        bool expired = false;
        struct kv_read *read;
        TAILQ_FOREACH(read, &peer->reads, link)
        {
            if (read->deadline_us <= now_us) {
                expired = true;
                read_fail(read, KV_FAILURE_DEADLINE, NULL);
            } else if (read->deadline_us < floor_us) {
                floor_us = read->deadline_us;
            }
        }
        if (expired)
            peer_close(peer, KV_FAILURE_DEADLINE, NULL);
    }
    transport->deadline_floor_us = floor_us;
}

/* Starts the reads of the other peers, and closes peers that failed. */
static void advance(struct kv_transport *transport)
{
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (peer->state == KV_PEER_OPEN && !peer->failed && !peer->mapped) {
            peer->unstarted = false;
            transport->ops->start(peer);
        }
        if (peer->state == KV_PEER_OPEN && peer->failed)
            peer_close(peer, peer->failed, peer->failed_reason);
    }
}

/* -- open, close -- */

enum status kv_transport_check_interface(const char *bind_interface, struct error *err)
{
    struct tcp_at at;
    return tcp_at_parse(bind_interface, &at, err);
}

enum status kv_transport_check_socket(const char *path, struct error *err)
{
    return mapped_lane_check(path, err);
}

enum status kv_transport_check_faults(const char *specification, struct error *err)
{
    struct kv_faults *faults;
    TRY(kv_faults_create(specification, &faults, err));
    kv_faults_destroy(faults);
    return STATUS_OK;
}

enum status kv_transport_open(const struct kv_transport_config *config, struct kv_transport **out,
                              struct error *err)
{
    const struct kv_transport_ops *ops =
        config->kind == KV_TRANSPORT_LOCAL ? &kv_local_ops : &kv_remote_ops;
    if (config->pool_bytes == 0 || config->pool_bytes > KV_ADDRESS_MAX_POOL_BYTES)
        return error_set(err, STATUS_INVALID, "a KV pool of %zu bytes: give 1 to %llu",
                         config->pool_bytes, (unsigned long long)KV_ADDRESS_MAX_POOL_BYTES);
    if (config->max_reads == 0)
        return error_set(err, STATUS_INVALID, "max_reads is 0: give at least 1");
    if (config->copier && (config->kind == KV_TRANSPORT_LOCAL || config->lane == KV_LANE_SHM))
        return error_set(err, STATUS_UNSUPPORTED,
                         "the KV pool is in the memory of a device, which processes don't map by "
                         "the lane shm: take cuda, tcp or auto");
    if (!config->copier && (config->lane == KV_LANE_CUDA || config->lane == KV_LANE_RDMA))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the lanes cuda and rdma join pools in the memory of GPUs, and this one is in the "
            "host's: take the lane shm, tcp or auto");
    struct kv_faults *faults = NULL;
    if (config->faults && *config->faults)
        TRY(kv_faults_create(config->faults, &faults, err));
    struct kv_transport *transport;
    enum status status = ops->open(config, &transport, err);
    if (status != STATUS_OK) {
        kv_faults_destroy(faults);
        return status;
    }
    transport->ops = ops;
    transport->faults = faults;
    transport->pool_bytes = config->pool_bytes;
    if (config->layout)
        kv_summing_init(&transport->summing, config->layout);
    transport->max_reads = config->max_reads;
    transport->pace = config->pace;
    transport->link = (struct link_model){.bytes_per_us = config->pace.bytes_per_second / 1e6,
                                          .latency_us = config->pace.latency_us};
    transport->deadline_floor_us = UINT64_MAX;
    TAILQ_INIT(&transport->peers);
    TAILQ_INIT(&transport->ended);
    *out = transport;
    return STATUS_OK;
}

static void peer_free(struct kv_peer *peer)
{
    struct kv_transport *transport = peer->transport;
    TAILQ_REMOVE(&transport->peers, peer, link);
    transport->peer_count--;
    transport->ops->peer_free(peer);
}

void kv_transport_close(struct kv_transport *transport)
{
    if (!transport)
        return;
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    kv_transport_unpair(transport, peer);
    struct kv_read *read;
    while ((read = TAILQ_FIRST(&transport->ended))) {
        TAILQ_REMOVE(&transport->ended, read, link);
        free(read);
    }
    while ((peer = TAILQ_FIRST(&transport->peers)))
        peer_free(peer);
    kv_faults_destroy(transport->faults);
    transport->ops->close(transport);
}

void *kv_transport_pool(const struct kv_transport *transport)
{
    return transport->pool;
}

enum status kv_transport_block_sums(struct kv_transport *transport, const uint32_t *blocks,
                                    uint32_t count, struct kv_block_sum *sums)
{
    const struct kv_summing *summing = &transport->summing;
    size_t bytes = summing->run_bytes * summing->run_count;
    ASSERT(bytes > 0);
    for (uint32_t i = 0; i < count; i++)
        ASSERT(lies_inside(blocks[i] * bytes, bytes, transport->pool_bytes));
    if (!transport->staging) {
        for (uint32_t i = 0; i < count; i++)
            sums[i] = kv_block_sum(summing, transport->pool + blocks[i] * bytes);
        return STATUS_OK;
    }
    uint32_t most = kv_staging_sums_at_once(transport->staging, summing->run_count);
    for (uint32_t at = 0, part; at < count; at += part) {
        const uint32_t *runs;
        part = count - at < most ? count - at : most;
        struct kv_sum_job job = {.block_bytes = bytes,
                                 .run_bytes = summing->run_bytes,
                                 .blocks = blocks + at,
                                 .count = part};
        TRY(kv_staging_sums(transport->staging, &job, &runs));
        for (uint32_t i = 0; i < part; i++) {
            sums[at + i] = (struct kv_block_sum){0};
            for (uint32_t run = 0; run < summing->run_count; run++)
                kv_sum_run(summing, run, *runs++, &sums[at + i]);
        }
    }
    return STATUS_OK;
}

uint32_t kv_transport_failed_copies(const struct kv_transport *transport)
{
    return transport->staging ? kv_staging_failures(transport->staging) : 0;
}

void kv_transport_flip(struct kv_transport *transport, uint64_t offset, uint8_t bits)
{
    ASSERT(offset < transport->pool_bytes);
    if (!transport->staging)
        transport->pool[offset] ^= bits;
    else if (kv_staging_flip(transport->staging, offset, bits) != STATUS_OK)
        log_warn("transport", "msg=\"the device didn't copy: no bit was flipped\"");
}

enum status kv_transport_admit(struct kv_transport *transport, struct kv_admission *out,
                               struct error *err)
{
    struct kv_address address = transport->self;
    struct kv_admission admission;
    if (transport->ops->admit)
        TRY(transport->ops->admit(transport, &address, err));
    admission.id = address.admission;
    enum status status = kv_address_encode(&address, admission.address, &admission.bytes, err);
    if (status == STATUS_OK)
        *out = admission;
    else
        kv_transport_revoke(transport, address.admission);
    return status;
}

void kv_transport_revoke(struct kv_transport *transport, uint64_t admission)
{
    if (transport->ops->revoke)
        transport->ops->revoke(transport, admission);
}

void kv_transport_serve(struct kv_transport *transport,
                        bool (*may_read)(void *owner, const struct kv_claim *claim), void *owner)
{
    transport->may_read = may_read;
    transport->owner = owner;
}

enum status kv_transport_pair(struct kv_transport *transport, const void *bytes, size_t count,
                              struct kv_peer **out, struct error *err)
{
    struct kv_address address;
    TRY(kv_address_decode(bytes, count, transport->self.kind, &address, err));
    if (transport->peer_count >= KV_TRANSPORT_MAX_PEERS)
        return error_set(err, STATUS_LIMIT, "paired with %d peers already, the maximum",
                         KV_TRANSPORT_MAX_PEERS);
    struct kv_peer *peer;
    TRY(transport->ops->pair(transport, &address, &peer, err));
    peer->transport = transport;
    peer->state = KV_PEER_OPEN;
    peer->pool_bytes = address.pool_bytes;
    peer->told = peer->ready;
    TAILQ_INIT(&peer->reads);
    TAILQ_INSERT_TAIL(&transport->peers, peer, link);
    transport->peer_count++;
    *out = peer;
    return STATUS_OK;
}

const char *kv_peer_lane(const struct kv_peer *peer)
{
    return peer->lane;
}

const char *kv_peer_lane_reason(const struct kv_peer *peer)
{
    return peer->lane_reason.text;
}

bool kv_peer_is_ready(const struct kv_peer *peer)
{
    return peer->ready;
}

void kv_transport_unpair(struct kv_transport *transport, struct kv_peer *peer)
{
    ASSERT(peer->transport == transport);
    if (peer->state == KV_PEER_OPEN)
        peer_close(peer, KV_FAILURE_CLOSED, NULL);
}

/* -- reads -- */

enum status kv_transport_read(struct kv_transport *transport, struct kv_peer *peer,
                              const struct kv_read_run *runs, size_t run_count,
                              uint64_t deadline_us, uint64_t cookie)
{
    ASSERT(peer->transport == transport);
    if (run_count == 0 || run_count > KV_TRANSPORT_MAX_RUNS)
        return STATUS_INVALID;
    uint64_t bytes = 0;
    for (size_t i = 0; i < run_count; i++) {
        if (!lies_inside(runs[i].remote_offset, runs[i].bytes, peer->pool_bytes) ||
            !lies_inside(runs[i].local_offset, runs[i].bytes, transport->pool_bytes) ||
            (peer->multiple &&
             (runs[i].remote_offset | runs[i].local_offset | runs[i].bytes) % peer->multiple))
            return STATUS_INVALID;
        bytes += runs[i].bytes;
    }
    if (peer->state != KV_PEER_OPEN || peer->failed)
        return STATUS_UNAVAILABLE;
    if (transport->read_count >= transport->max_reads)
        return STATUS_LIMIT;
    struct kv_read *read = malloc(sizeof *read + run_count * sizeof *runs);
    if (!read)
        return STATUS_LIMIT;
    *read = (struct kv_read){
        .peer = peer,
        .cookie = cookie,
        .deadline_us = deadline_us,
        .bytes = bytes,
        .index = transport->counters.reads,
        .run_count = run_count,
    };
    memcpy(read->runs, runs, run_count * sizeof *runs);
    TAILQ_INSERT_TAIL(&peer->reads, read, link);
    peer->unstarted = !peer->mapped;
    transport->read_count++;
    transport->counters.reads++;
    if (deadline_us < transport->deadline_floor_us)
        transport->deadline_floor_us = deadline_us;
    return STATUS_OK;
}

/* -- poll -- */

/* Its lane is settled, and the caller doesn't know. */
static bool is_news(const struct kv_peer *peer)
{
    return peer->state == KV_PEER_OPEN && peer->ready && !peer->told;
}

static size_t take_events(struct kv_transport *transport, struct kv_event *events, size_t capacity)
{
    size_t count = 0;
    struct kv_read *read;
    while (count < capacity && (read = TAILQ_FIRST(&transport->ended))) {
        events[count++] = (struct kv_event){
            .kind = KV_EVENT_READ_DONE,
            .peer = read->peer,
            .cookie = read->cookie,
            .failure = read->failure,
            .status = status_of(read->failure),
            .bytes = read->failure ? 0 : read->bytes,
            .reason = reason_of(read->failure, read->reason),
        };
        read->peer->events_due--;
        transport->read_count--;
        TAILQ_REMOVE(&transport->ended, read, link);
        free(read);
    }
    struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (count == capacity)
            break;
        if (is_news(peer)) {
            peer->told = true;
            events[count++] = (struct kv_event){.kind = KV_EVENT_PEER_READY, .peer = peer};
        }
        if (count == capacity || peer->state != KV_PEER_CLOSED || peer->events_due > 0)
            continue;
        peer->state = KV_PEER_GONE;
        transport->counters.peers_closed++;
        events[count++] = (struct kv_event){
            .kind = KV_EVENT_PEER_CLOSED,
            .peer = peer,
            .failure = peer->failure,
            .status = status_of(peer->failure),
            .welcomed = peer->welcomed,
            .reason = reason_of(peer->failure, peer->reason),
        };
    }
    return count;
}

size_t kv_transport_poll(struct kv_transport *transport, uint64_t now_us, struct kv_event *events,
                         size_t capacity)
{
    transport->polled_us = now_us;
    struct kv_peer *peer;
    for (struct kv_peer *next = TAILQ_FIRST(&transport->peers); (peer = next);) {
        next = TAILQ_NEXT(peer, link);
        if (peer->state == KV_PEER_GONE)
            peer_free(peer);
    }
    transport->ops->progress(transport);
    end_expired(transport, now_us);
    if (is_paced(transport))
        keep_pace(transport, now_us);
    copy_mapped(transport);
    if (transport->faults)
        release_held(transport, false);
    advance(transport);
    return take_events(transport, events, capacity);
}

int kv_transport_fd(const struct kv_transport *transport)
{
    return transport->ops->fd(transport);
}

bool kv_transport_arm(struct kv_transport *transport)
{
    if (!TAILQ_EMPTY(&transport->ended))
        return false;
    const struct kv_peer *peer;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        if (has_copies(peer) || is_news(peer) || (peer->state == KV_PEER_OPEN && peer->unstarted) ||
            peer->state == KV_PEER_CLOSED || (peer->state == KV_PEER_OPEN && peer->failed))
            return false;
    }
    return true;
}

uint64_t kv_transport_next_deadline_us(const struct kv_transport *transport)
{
    const struct kv_peer *peer;
    bool reads = false;
    uint64_t next_us = transport->timer_us, link_us = link_next_us(&transport->link);
    if (link_us < next_us)
        next_us = link_us;
    TAILQ_FOREACH(peer, &transport->peers, link)
    {
        reads = reads || !TAILQ_EMPTY(&peer->reads);
        const struct kv_read *read;
        if (transport->faults)
            TAILQ_FOREACH(read, &peer->reads, link)
        if (read->held_us && read->held_us < next_us)
            next_us = read->held_us;
    }
    return reads && transport->deadline_floor_us < next_us ? transport->deadline_floor_us : next_us;
}

struct kv_transport_counters kv_transport_counters(const struct kv_transport *transport)
{
    return transport->counters;
}
