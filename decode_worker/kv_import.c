#include "decode_worker/kv_import.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/domain/link_model.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/membership/worker_message.h"
#include "common/worker/request_notes.h"
#include "common/worker/session.h"
#include "common/worker/wire.h"

#include <stdlib.h>
#include <string.h>

#define MODULE            "kv_import"
#define PEER_PATH         "/baton.worker.v1.PrefillPeer/Peer"
#define MAX_MESSAGE_BYTES (4u << 20)
#define MAX_QUEUED_BYTES  (16u << 20)
#define KEEPALIVE_US      5000000

struct prefill_peer {
    uint64_t id;    /* 0: an empty place; an id is never used twice */
    uint64_t asked; /* counts handles of all peers: the last one from here */
    char address[128], name[64];
    struct rpc_channel *channel; /* made by the latest dialling */
    struct stream *stream;       /* the one that counts; NULL: none */
    struct kv_peer *pairing;     /* NULL: none */
    unsigned char transport_address[KV_TRANSPORT_MAX_ADDRESS_BYTES]; /* from the Welcome */
    size_t transport_address_bytes;
    char lane[32], lane_reason[160];
    struct lane_speed speed; /* this pairing's */
    bool up;                 /* the stream was welcomed */
    struct pairing_outcome ends;
};

struct kv_import {
    struct worker *worker;
    struct kv_import_handlers handlers;
    void *role;
    struct stream_service service;
    uint64_t last_peer_id, asked;
    struct prefill_peer peers[PREFILL_PEERS_MAX];
    struct lane_speed speed; /* all reads together */
    uint32_t max_blocks;
    struct block_run *block_runs;  /* [max_blocks] */
    struct kv_read_run *read_runs; /* [max_blocks] */
};

/* ---------------------------------------------------------------- ends of pairings */

void pairing_outcome_welcomed(struct pairing_outcome *ends)
{
    ends->welcomes++;
    ends->in_doubt = false;
}

bool pairing_outcome_may_pair(struct pairing_outcome *ends)
{
    bool may = !ends->in_doubt;
    ends->in_doubt = false;
    ends->paired_after = ends->welcomes;
    return may;
}

enum pair_end pairing_outcome_note(struct pairing_outcome *ends, const struct kv_event *event)
{
    bool gone = event->failure == KV_FAILURE_PEER_GONE;
    if (event->failure == KV_FAILURE_LANE)
        return PAIR_END_REFUSED;
    if (event->welcomed || event->failure == KV_FAILURE_CLOSED)
        return gone ? PAIR_END_GONE : PAIR_END_PLAIN;
    if (!gone && event->failure != KV_FAILURE_UNREACHABLE && event->failure != KV_FAILURE_REFUSED)
        return PAIR_END_REFUSED;
    ends->in_doubt = ends->paired_after == ends->welcomes;
    return PAIR_END_GONE;
}

/* ---------------------------------------------------------------- Peer streams */

static void on_welcome(struct kv_import *imports, struct prefill_peer *peer,
                       const Baton__Worker__V1__PeerWelcome *welcome)
{
    struct protocol_range own = worker_message_protocol(&imports->worker->info);
    if (welcome->version < own.least || welcome->version > own.newest ||
        !welcome->transport_address.len ||
        welcome->transport_address.len > sizeof peer->transport_address) {
        log_error_limited(
            MODULE, "peer=%s version=%u address_bytes=%zu msg=\"a welcome that can't be used\"",
            peer->name, welcome->version, welcome->transport_address.len);
        struct stream *stream = peer->stream;
        peer->stream = NULL;
        peer->up = false;
        stream_cancel(stream);
        imports->handlers.peer_refused(imports->role, peer->id, SINK_REASON_PROTOCOL);
        return;
    }
    memcpy(peer->transport_address, welcome->transport_address.data,
           welcome->transport_address.len);
    peer->transport_address_bytes = welcome->transport_address.len;
    peer->up = true;
    pairing_outcome_welcomed(&peer->ends);
    imports->handlers.peer_up(imports->role, peer->id, welcome->incarnation);
}

static void on_message(struct stream *stream, const ProtobufCMessage *base)
{
    struct kv_import *imports = stream_role(stream);
    struct prefill_peer *peer = stream_context(stream);
    if (peer->stream != stream)
        return; /* a message of a stream that was given up */
    if (FAILPOINT_FAILS("decode.peer_lose")) {
        stream_cancel(stream);
        return;
    }
    const Baton__Worker__V1__PeerUp *up = (const Baton__Worker__V1__PeerUp *)base;
    struct peer_up message;
    if (up->message_case == BATON__WORKER__V1__PEER_UP__MESSAGE_WELCOME)
        on_welcome(imports, peer, up->welcome);
    else if (wire_peer_up(up, &message)) {
        if (message.kind == PEER_COMPLETE && up->complete->prefilled &&
            up->complete->prefilled->n_chunk_end_us <= REQUEST_NOTES_MAX_CHUNKS)
            session_relay_prefilled(&imports->worker->session, up->complete->prefilled);
        imports->handlers.message(imports->role, peer->id, &message);
    }
}

static void on_ended(struct stream *stream, const struct rpc_end *end)
{
    struct kv_import *imports = stream_role(stream);
    struct prefill_peer *peer = stream_context(stream);
    if (peer->stream != stream)
        return;
    bool was_up = peer->up;
    peer->stream = NULL;
    peer->up = false;
    char reason[100], why[300];                       /* texts from the peer */
    bool idle = !strcmp(end->reason, PEER_MADE_ROOM); /* it had nothing to read there */
    log_limited(idle ? LOG_INFO : LOG_WARN, MODULE, "peer=%s code=%s reason=%s why=%s msg=\"%s\"",
                peer->name, rpc_code_name(end->code),
                log_quote(*end->reason ? end->reason : "none", reason, sizeof reason),
                log_quote(end->message, why, sizeof why),
                was_up ? "the Peer stream ended" : "no Peer stream came up");
    if (idle || !strcmp(end->reason, PEER_NO_ROOM))
        imports->handlers.peer_full(imports->role, peer->id);
    else if (end->code == RPC_NOT_FOUND && !was_up)
        imports->handlers.peer_replaced(imports->role, peer->id);
    else if (end->code != RPC_FAILED_PRECONDITION)
        imports->handlers.peer_lost(imports->role, peer->id, end->refused);
    else if (!strcmp(end->reason, "numerics_mismatch"))
        imports->handlers.peer_refused(imports->role, peer->id, SINK_REASON_NUMERICS_MISMATCH);
    else
        imports->handlers.peer_refused(imports->role, peer->id, SINK_REASON_LAYOUT_MISMATCH);
}

static const struct stream_kind peer_stream_kind = {
    .name = "peer",
    .incoming = &baton__worker__v1__peer_up__descriptor,
    .message = on_message,
    .ended = on_ended,
};

static void send_down(struct prefill_peer *peer, Baton__Worker__V1__PeerDown *down)
{
    if (peer->stream)
        stream_send(peer->stream, &down->base);
}

static void send_hello(struct kv_import *imports, struct prefill_peer *peer, uint64_t incarnation)
{
    const struct worker_info *info = &imports->worker->info;
    Baton__Worker__V1__PeerHello hello = BATON__WORKER__V1__PEER_HELLO__INIT;
    hello.version = worker_message_protocol(info).least;
    hello.version_max = worker_message_protocol(info).newest;
    hello.name = (char *)info->name; /* packing only reads it */
    hello.incarnation = info->incarnation;
    hello.model_hash = info->model_hash;
    hello.layout_hash = info->layout_hash;
    hello.numerics_id = info->numerics_id;
    hello.worker = peer->name;
    hello.worker_incarnation = incarnation;
    if (FAILPOINT_FAILS("decode.hello_layout"))
        hello.layout_hash ^= 1;
    if (FAILPOINT_FAILS("decode.hello_numerics"))
        hello.numerics_id ^= 1;
    Baton__Worker__V1__PeerDown down = BATON__WORKER__V1__PEER_DOWN__INIT;
    down.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_HELLO;
    down.hello = &hello;
    send_down(peer, &down);
}

/* ---------------------------------------------------------------- peers */

static struct prefill_peer *peer_find(struct kv_import *imports, uint64_t id)
{
    for (int i = 0; i < PREFILL_PEERS_MAX; i++)
        if (imports->peers[i].id == id)
            return &imports->peers[i];
    return NULL;
}

static struct prefill_peer *peer_of(const struct kv_import *imports, uint64_t id)
{
    struct prefill_peer *peer = peer_find((struct kv_import *)imports, id);
    ASSERT(id && peer);
    return peer;
}

uint64_t kv_import_peer(struct kv_import *imports, const char *address, const char *name)
{
    struct prefill_peer *place = NULL;
    for (int i = 0; i < PREFILL_PEERS_MAX; i++) {
        struct prefill_peer *peer = &imports->peers[i];
        if (!peer->id || strcmp(peer->address, address) != 0)
            continue;
        str_copy(peer->name, sizeof peer->name, name);
        peer->asked = ++imports->asked;
        return peer->id;
    }
    bool connected = true; /* the place's peer is */
    for (int i = 0; *address && i < PREFILL_PEERS_MAX; i++) {
        struct prefill_peer *peer = &imports->peers[i];
        bool has_any = peer->stream || peer->pairing;
        bool better =
            !place || has_any < connected || (has_any == connected && peer->asked < place->asked);
        if (!better || (peer->id && imports->handlers.peer_used(imports->role, peer->id)))
            continue;
        place = peer;
        connected = has_any;
    }
    if (!place)
        return 0;
    if (connected) {
        log_info_limited(MODULE, "peer=%s msg=\"idle: its place is another prefill worker's\"",
                         place->name);
        kv_import_disconnect(imports, place->id);
    }
    if (place->channel)
        rpc_channel_destroy(place->channel);
    *place = (struct prefill_peer){.id = ++imports->last_peer_id, .asked = ++imports->asked};
    str_copy(place->address, sizeof place->address, address);
    str_copy(place->name, sizeof place->name, name);
    return place->id;
}

/* Dials with a new channel. A channel that was refused repeats that, for its back-off of up to a
 * second, to each call that follows, though a successor may listen at the address by then. */
enum status kv_import_connect(struct kv_import *imports, uint64_t id, uint64_t incarnation)
{
    struct prefill_peer *peer = peer_of(imports, id);
    ASSERT(!peer->stream);
    if (peer->channel)
        rpc_channel_destroy(peer->channel);
    peer->channel = NULL;
    struct rpc_channel_config config = {.target = peer->address,
                                        .tls = imports->worker->tls,
                                        .max_message_bytes = MAX_MESSAGE_BYTES,
                                        .max_queued_bytes = MAX_QUEUED_BYTES,
                                        .keepalive_us = KEEPALIVE_US};
    struct error err;
    enum status status =
        rpc_channel_create(imports->worker->runtime, &config, &peer->channel, &err);
    if (status != STATUS_OK) {
        char quoted[600];
        log_error_limited(MODULE, "peer=%s why=%s msg=\"can't connect\"", peer->name,
                          log_quote(err.text, quoted, sizeof quoted));
        return status;
    }
    TRY(stream_dial(&imports->service, peer->channel, PEER_PATH, peer, &peer->stream));
    send_hello(imports, peer, incarnation);
    return STATUS_OK;
}

void kv_import_disconnect(struct kv_import *imports, uint64_t id)
{
    struct prefill_peer *peer = peer_find(imports, id);
    if (!peer)
        return; /* forgotten: it had neither */
    struct stream *stream = peer->stream;
    peer->stream = NULL;
    peer->up = false;
    if (stream)
        stream_cancel(stream);
    if (peer->pairing)
        kv_transport_unpair(imports->worker->transport, peer->pairing);
    peer->pairing = NULL;
}

void kv_import_send(struct kv_import *imports, uint64_t id, const struct peer_down *message)
{
    static const char *const failpoints[] = {"decode.send_subscribe", "decode.send_extend",
                                             "decode.send_confirm", "decode.send_release"};
    if (FAILPOINT_FAILS(failpoints[message->kind]))
        return;
    struct wire_peer_down_room room;
    wire_peer_down_pack(message, &room);
    send_down(peer_of(imports, id), &room.message);
}

/* ---------------------------------------------------------------- bytes */

/* Takes the lane that the pairing has settled for. */
static void note_lane(struct kv_import *imports, struct prefill_peer *peer)
{
    char quoted[600];
    const char *reason = kv_peer_lane_reason(peer->pairing);
    str_copy(peer->lane, sizeof peer->lane, kv_peer_lane(peer->pairing));
    str_copy(peer->lane_reason, sizeof peer->lane_reason, reason);
    const char *own = imports->worker->info.address, *port = strrchr(peer->address, ':');
    bool same_host = port && !strncmp(peer->address, own, (size_t)(port + 1 - peer->address)) &&
                     strrchr(own, ':') == own + (port - peer->address);
    if (same_host && imports->worker->config.transport == KV_LANE_AUTO &&
        !strcmp(peer->lane, "tcp"))
        log_warn_limited(
            MODULE,
            "peer=%s lane=%s why=%s msg=\"paired over a slower lane than shm or cuda, one of which "
            "two workers on one machine should have: see --transport of both\"",
            peer->name, peer->lane, log_quote(*reason ? reason : "none", quoted, sizeof quoted));
    else
        log_info_lifecycle(MODULE, "peer=%s lane=%s msg=\"paired\"", peer->name, peer->lane);
}

enum status kv_import_pair(struct kv_import *imports, uint64_t id, bool *ready, struct error *err)
{
    struct prefill_peer *peer = peer_of(imports, id);
    ASSERT(!peer->pairing);
    if (!pairing_outcome_may_pair(&peer->ends))
        return error_set(err, STATUS_UNAVAILABLE,
                         "the peer answers, but its KV lane ended the pairing before it began");
    TRY(kv_transport_pair(imports->worker->transport, peer->transport_address,
                          peer->transport_address_bytes, &peer->pairing, err));
    peer->speed = (struct lane_speed){0};
    *ready = kv_peer_is_ready(peer->pairing);
    if (*ready)
        note_lane(imports, peer);
    return STATUS_OK;
}

void kv_import_unpair(struct kv_import *imports, uint64_t id)
{
    struct prefill_peer *peer = peer_of(imports, id);
    if (peer->pairing)
        kv_transport_unpair(imports->worker->transport, peer->pairing);
}

enum status kv_import_read(struct kv_import *imports, const struct sink_action *read)
{
    struct prefill_peer *peer = peer_of(imports, read->peer);
    ASSERT(read->block_count <= imports->max_blocks);
    if (!peer->pairing)
        return STATUS_UNAVAILABLE;
    uint32_t count = block_runs(read->remote, read->local, read->block_count, imports->block_runs);
    uint64_t block_bytes = imports->worker->block_bytes;
    for (uint32_t i = 0; i < count; i++)
        imports->read_runs[i] =
            (struct kv_read_run){.remote_offset = imports->block_runs[i].remote_block * block_bytes,
                                 .local_offset = imports->block_runs[i].local_block * block_bytes,
                                 .bytes = imports->block_runs[i].block_count * block_bytes,
                                 .grant = read->grant};
    uint64_t deadline_us = clock_now_us() + imports->worker->config.read_timeout_us;
    enum status status = kv_transport_read(imports->worker->transport, peer->pairing,
                                           imports->read_runs, count, deadline_us, read->cookie);
    if (status == STATUS_OK) {
        lane_speed_on_read(&peer->speed, clock_now_us());
        lane_speed_on_read(&imports->speed, clock_now_us());
    }
    return status;
}

bool kv_import_verify(const struct kv_import *imports, const uint32_t *local, const uint64_t *sums,
                      bool crc, uint32_t block_count)
{
    struct kv_transport *transport = imports->worker->transport;
    uint64_t block_bytes = imports->worker->block_bytes;
    if (block_count && FAILPOINT_FAILS("decode.flip"))
        kv_transport_flip(transport, local[block_count - 1] * block_bytes, 1);
    struct kv_block_sum found[KV_SUMS_AT_ONCE];
    for (uint32_t i = 0; i < block_count; i++) {
        uint32_t at = i % KV_SUMS_AT_ONCE, left = block_count - i;
        bool good =
            at > 0 || kv_transport_block_sums(transport, local + i,
                                              left < KV_SUMS_AT_ONCE ? left : KV_SUMS_AT_ONCE,
                                              found) == STATUS_OK;
        if (!good || (crc ? found[at].crc32c : found[at].runs) != sums[i]) {
            log_error_limited(MODULE, "block=%u of=%u msg=\"the checksum of a KV block is wrong\"",
                              i, block_count);
            return false;
        }
    }
    if (block_count && FAILPOINT_FAILS("decode.rot"))
        kv_transport_flip(transport, local[block_count - 1] * block_bytes, 1);
    return true;
}

const char *kv_import_name(const struct kv_import *imports, uint64_t id)
{
    return peer_of(imports, id)->name;
}

const char *kv_import_lane(const struct kv_import *imports, uint64_t id)
{
    return peer_of(imports, id)->lane;
}

const char *kv_import_lane_reason(const struct kv_import *imports, uint64_t id)
{
    return peer_of(imports, id)->lane_reason;
}

uint64_t kv_import_lane_speed(const struct kv_import *imports, uint64_t id)
{
    return lane_speed_bytes_per_second(&peer_of(imports, id)->speed);
}

uint64_t kv_import_link_speed(const struct kv_import *imports)
{
    return lane_speed_bytes_per_second(&imports->speed);
}

void kv_import_kv_event(struct kv_import *imports, const struct kv_event *event)
{
    if (event->kind == KV_EVENT_READ_DONE) { /* also of a pairing that was given up */
        lane_speed_on_read_done(&imports->speed, event->bytes, clock_now_us());
        if (event->status != STATUS_OK) /* one peer may have hung: that isn't the link's speed */
            lane_speed_forget(&imports->speed, clock_now_us());
    }
    struct prefill_peer *peer = NULL;
    for (int i = 0; i < PREFILL_PEERS_MAX && !peer; i++)
        if (imports->peers[i].pairing == event->peer)
            peer = &imports->peers[i];
    if (!peer)
        return; /* a pairing that was given up, and that no sink used */
    bool closed = event->kind == KV_EVENT_PEER_CLOSED;
    if (event->kind == KV_EVENT_PEER_READY) {
        note_lane(imports, peer);
        imports->handlers.pair_up(imports->role, peer->id);
        return;
    }
    if (event->status != STATUS_OK)
        log_limited(event->failure == KV_FAILURE_NOT_GRANTED ? LOG_INFO : LOG_WARN, MODULE,
                    "peer=%s lane=%s status=%s failure=%s why=\"%s\" msg=\"%s\"", peer->name,
                    peer->lane, status_name(event->status), kv_failure_name(event->failure),
                    event->reason,
                    !closed           ? "a read failed"
                    : event->welcomed ? "the pairing was closed"
                                      : "the pairing ended before it began");
    if (event->kind == KV_EVENT_READ_DONE) {
        lane_speed_on_read_done(&peer->speed, event->status == STATUS_OK ? event->bytes : 0,
                                clock_now_us());
        if (event->status == STATUS_OK)
            counter_add(worker_metrics_lane(&imports->worker->metrics, peer->lane), event->bytes);
        imports->handlers.read_done(imports->role, event->cookie, event->status, event->failure);
        return;
    }
    peer->pairing = NULL;
    switch (pairing_outcome_note(&peer->ends, event)) {
    case PAIR_END_PLAIN: imports->handlers.pair_closed(imports->role, peer->id, false); break;
    case PAIR_END_GONE: imports->handlers.pair_closed(imports->role, peer->id, true); break;
    case PAIR_END_REFUSED: /* pairing again at once would end in the same way */
        imports->handlers.peer_refused(imports->role, peer->id, SINK_REASON_PAIRING);
        break;
    }
}

/* ---------------------------------------------------------------- life */

enum status kv_import_create(struct worker *worker, const struct kv_import_handlers *handlers,
                             void *role, struct kv_import **out)
{
    struct kv_import *imports = calloc(1, sizeof *imports);
    if (!imports)
        return STATUS_LIMIT;
    imports->worker = worker;
    imports->handlers = *handlers;
    imports->role = role;
    imports->service = (struct stream_service){worker->loop, &peer_stream_kind, imports};
    imports->max_blocks = worker->info.context / worker->info.block_tokens + 1;
    imports->block_runs = calloc(imports->max_blocks, sizeof *imports->block_runs);
    imports->read_runs = calloc(imports->max_blocks, sizeof *imports->read_runs);
    if (!imports->block_runs || !imports->read_runs) {
        kv_import_destroy(imports);
        return STATUS_LIMIT;
    }
    *out = imports;
    return STATUS_OK;
}

void kv_import_close(struct kv_import *imports)
{
    for (int i = 0; i < PREFILL_PEERS_MAX; i++) {
        struct prefill_peer *peer = &imports->peers[i];
        peer->stream = NULL; /* its end is not reported any more */
        if (peer->channel)
            rpc_channel_destroy(peer->channel);
        peer->channel = NULL;
    }
}

void kv_import_destroy(struct kv_import *imports)
{
    if (!imports)
        return;
    free(imports->block_runs);
    free(imports->read_runs);
    free(imports);
}
