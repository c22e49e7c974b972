#include "prefill_worker/kv_export.h"

#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/membership/worker_message.h"
#include "common/worker/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE    "kv_export"
#define MAX_PEERS CLUSTER_MAX_PEERS

struct peer {
    uint64_t id; /* 0: an empty slot; an id is never used twice */
    struct stream *stream;
    uint64_t admission; /* to the KV lane, until the stream's end */
    uint64_t asked;     /* counts messages of all peers: its last one */
    uint32_t version;   /* the protocol's */
    char name[64];      /* the peer's own name, made safe for logs */
};

struct exported {
    struct sequence_key key;
    const uint32_t *blocks;        /* NULL: an empty slot */
    uint32_t block_count, tokens;  /* tokens: computed */
    uint32_t computed, summed;     /* blocks; computed: they don't change any more */
    bool untold, complete;         /* untold: the role hasn't heard of all that is computed */
    struct source_completion last; /* complete */
};

struct kv_export {
    struct worker *worker;
    struct kv_export_handlers handlers;
    void *role;
    uint64_t next_peer_id, asked;
    struct peer peers[MAX_PEERS];
    uint32_t max_exported, max_blocks, turn; /* turn: the slot that works next */
    struct kv_block_sum *block_sums;         /* [worker->block_count] sums by block of the pool, */
    bool *summed;        /* [worker->block_count] which are those of its bytes */
    uint64_t *sums;      /* [max_blocks] of the source that the role hears of */
    uint32_t *checksums; /* the same */
    struct exported exported[];
};

/* Answers for the transport: finds the peer of an admission, and the blocks that hold the bytes. */
static bool may_read(void *owner, const struct kv_claim *claim)
{
    const struct kv_export *exports = owner;
    uint64_t block_bytes = exports->worker->block_bytes;
    uint64_t first = claim->offset / block_bytes;
    uint64_t last = (claim->offset + claim->bytes - 1) / block_bytes;
    for (int i = 0; i < MAX_PEERS; i++) {
        const struct peer *peer = &exports->peers[i];
        if (peer->id && peer->admission == claim->admission)
            return exports->handlers.may_read(exports->role, peer->id, claim->grant, first,
                                              last - first + 1);
    }
    return false;
}

enum status kv_export_create(struct worker *worker, const struct kv_export_handlers *handlers,
                             void *role, struct kv_export **out)
{
    uint32_t count = worker->config.max_sequences;
    struct kv_export *exports = calloc(1, sizeof *exports + count * sizeof *exports->exported);
    if (!exports)
        return STATUS_LIMIT;
    exports->worker = worker;
    exports->handlers = *handlers;
    exports->role = role;
    exports->max_exported = count;
    exports->max_blocks = worker->info.context / worker->info.block_tokens + 1;
    exports->block_sums = calloc(worker->block_count, sizeof *exports->block_sums);
    exports->summed = calloc(worker->block_count, sizeof *exports->summed);
    exports->sums = calloc(exports->max_blocks, sizeof *exports->sums);
    exports->checksums = calloc(exports->max_blocks, sizeof *exports->checksums);
    if (!exports->block_sums || !exports->summed || !exports->sums || !exports->checksums) {
        kv_export_destroy(exports);
        return STATUS_LIMIT;
    }
    kv_transport_serve(worker->transport, may_read, exports);
    *out = exports;
    return STATUS_OK;
}

void kv_export_destroy(struct kv_export *exports)
{
    if (!exports)
        return;
    free(exports->block_sums);
    free(exports->summed);
    free(exports->sums);
    free(exports->checksums);
    free(exports);
}

/* ---------------------------------------------------------------- Peer streams */

static struct peer *peer_find(struct kv_export *exports, uint64_t id)
{
    for (int i = 0; i < MAX_PEERS; i++)
        if (exports->peers[i].id == id)
            return &exports->peers[i];
    return NULL;
}

/* Does nothing: a stream is a peer's once its hello names this worker. (The server ends one that
 * says nothing.) So strangers take no peer's place. */
static void on_opened(struct stream *stream)
{
    (void)stream;
}

static void forget(struct kv_export *exports, struct peer *peer)
{
    kv_transport_revoke(exports->worker->transport, peer->admission);
    uint64_t id = peer->id;
    *peer = (struct peer){0};
    exports->handlers.lost(exports->role, id);
}

/* Ends the stream of the peer that has asked nothing for longest, of those that read no handle. It
 * dials again when it needs one. Returns its place. NULL: all read. */
static struct peer *make_room(struct kv_export *exports)
{
    struct peer *idle = NULL;
    for (int i = 0; i < MAX_PEERS; i++) {
        struct peer *peer = &exports->peers[i];
        if ((!idle || peer->asked < idle->asked) &&
            !exports->handlers.used(exports->role, peer->id))
            idle = peer;
    }
    if (!idle)
        return NULL;
    log_info_limited(MODULE, "peer=%s msg=\"idle: its place is another decode worker's\"",
                     idle->name);
    struct stream *stream = idle->stream;
    forget(exports, idle);
    stream_finish(stream, RPC_UNAVAILABLE, PEER_MADE_ROOM, "another decode worker has this place");
    return idle;
}

/* Returns the new peer's place, with its name and its admission to the KV lane, or NULL: the stream
 * was ended. */
static struct peer *peer_add(struct kv_export *exports, struct stream *stream, const char *name,
                             struct kv_admission *admission)
{
    struct error err;
    struct peer *peer = peer_find(exports, 0);
    if (!peer)
        peer = make_room(exports);
    if (!peer) {
        stream_finish(stream, RPC_RESOURCE_EXHAUSTED, PEER_NO_ROOM,
                      "this prefill worker serves as many decode workers as it can, and all of "
                      "them read");
        return NULL;
    }
    if (kv_transport_admit(exports->worker->transport, admission, &err) != STATUS_OK) {
        stream_finish(stream, RPC_RESOURCE_EXHAUSTED, PEER_NO_ROOM, err.text);
        return NULL;
    }
    *peer = (struct peer){.id = ++exports->next_peer_id,
                          .stream = stream,
                          .admission = admission->id,
                          .asked = ++exports->asked};
    str_copy(peer->name, sizeof peer->name, name);
    stream_set_context(stream, peer);
    return peer;
}

static void welcome(struct kv_export *exports, struct stream *stream, const char *name,
                    uint32_t version)
{
    struct kv_admission admission;
    struct peer *peer = peer_add(exports, stream, name, &admission);
    if (!peer)
        return;
    peer->version = version;
    Baton__Worker__V1__PeerWelcome message = BATON__WORKER__V1__PEER_WELCOME__INIT;
    message.version = version;
    message.incarnation = exports->worker->info.incarnation;
    message.transport_address.data = admission.address;
    message.transport_address.len = admission.bytes;
    message.lease_us = exports->worker->config.lease_us;
    Baton__Worker__V1__PeerUp up = BATON__WORKER__V1__PEER_UP__INIT;
    up.message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_WELCOME;
    up.welcome = &message;
    stream_send(stream, &up.base);
    log_info_lifecycle(MODULE, "peer=%s msg=\"a decode worker is welcomed\"", peer->name);
}

/* Checks that the hello means this worker, and that versions, models, layouts and numerics agree,
 * before a byte may be read. The sentence holds both sides' values. */
static void on_hello(struct kv_export *exports, struct stream *stream,
                     const Baton__Worker__V1__PeerHello *hello)
{
    const struct worker_info *info = &exports->worker->info;
    char name[sizeof((struct peer *)NULL)->name], text[256] = "";
    log_word(hello->name, name, sizeof name);
    if (!worker_message_names(info, hello->worker, hello->worker_incarnation)) {
        log_info_limited(MODULE,
                         "peer=%s from=%s msg=\"refused a hello for another worker, or for an "
                         "earlier life of this one\"",
                         name, stream_peer(stream));
        stream_finish(stream, RPC_NOT_FOUND, WORKER_OTHER, WORKER_OTHER_TEXT);
        return;
    }
    struct error err;
    struct protocol_range theirs = {hello->version,
                                    hello->version_max ? hello->version_max : hello->version};
    uint32_t version =
        worker_message_agree(worker_message_protocol(info), theirs, "the decode worker", &err);
    if (!version)
        str_copy(text, sizeof text, err.text);
    else if (hello->model_hash != info->model_hash || hello->layout_hash != info->layout_hash)
        snprintf(text, sizeof text,
                 "model %016llx layout %016llx here, model %016llx layout %016llx there",
                 (unsigned long long)info->model_hash, (unsigned long long)info->layout_hash,
                 (unsigned long long)hello->model_hash, (unsigned long long)hello->layout_hash);
    if (!*text && hello->numerics_id != info->numerics_id &&
        !exports->worker->config.mixed_numerics) {
        snprintf(text, sizeof text, "numerics id %016llx here, %016llx there",
                 (unsigned long long)info->numerics_id, (unsigned long long)hello->numerics_id);
        stream_finish(stream, RPC_FAILED_PRECONDITION, "numerics_mismatch", text);
    } else if (*text)
        stream_finish(stream, RPC_FAILED_PRECONDITION, "layout_mismatch", text);
    if (*text) {
        char quoted[300];
        log_error_limited(MODULE, "peer=%s why=%s msg=\"refused to pair\"", name,
                          log_quote(text, quoted, sizeof quoted));
        return;
    }
    welcome(exports, stream, name, version);
}

static void on_message(struct stream *stream, const ProtobufCMessage *base)
{
    struct kv_export *exports = stream_role(stream);
    const Baton__Worker__V1__PeerDown *down = (const Baton__Worker__V1__PeerDown *)base;
    struct peer *peer = stream_context(stream);
    if (peer && peer->stream != stream)
        return; /* its place is another one's */
    if (FAILPOINT_FAILS("prefill.peer_lose"))
        stream_cancel(stream);
    else if (!peer && down->message_case == BATON__WORKER__V1__PEER_DOWN__MESSAGE_HELLO)
        on_hello(exports, stream, down->hello);
    else if (!peer)
        stream_finish(stream, RPC_FAILED_PRECONDITION, "no_hello",
                      "the first message must be a hello");
    else
        for (size_t i = 0; i < wire_peer_down_count(down); i++) { /* a second hello asks nothing */
            struct peer_down message = wire_peer_down(down, i);
            exports->handlers.message(exports->role, peer->id, &message);
            peer->asked = ++exports->asked;
        }
}

static void on_ended(struct stream *stream, const struct rpc_end *end)
{
    struct kv_export *exports = stream_role(stream);
    struct peer *peer = stream_context(stream);
    if (!peer || peer->stream != stream)
        return;
    log_info_lifecycle(MODULE, "peer=%s code=%s msg=\"a decode worker's stream ended\"", peer->name,
                       rpc_code_name(end->code));
    forget(exports, peer);
}

const struct stream_kind kv_export_stream_kind = {
    .name = "peer",
    .incoming = &baton__worker__v1__peer_down__descriptor,
    .opened = on_opened,
    .message = on_message,
    .ended = on_ended,
};

void kv_export_send(struct kv_export *exports, uint64_t peer_id, const struct peer_up *message,
                    Baton__Worker__V1__Prefilled *prefilled)
{
    struct peer *peer = peer_find(exports, peer_id);
    if (!peer)
        return; /* its loss is on the way, or was reported */
    static const char *const failpoints[] = {"prefill.send_ready", "prefill.send_complete",
                                             "prefill.send_held", "prefill.send_gone",
                                             "prefill.send_extended"};
    if (FAILPOINT_FAILS(failpoints[message->kind]))
        return;
    struct wire_peer_up_room room;
    wire_peer_up_pack(message, peer->version, &room);
    if (message->kind == PEER_COMPLETE)
        room.complete.prefilled = prefilled;
    stream_send(peer->stream, &room.message.base);
}

/* ---------------------------------------------------------------- sums of blocks */

static struct exported *exported_find(struct kv_export *exports, struct sequence_key key)
{
    for (uint32_t i = 0; i < exports->max_exported; i++) {
        struct exported *exported = &exports->exported[i];
        if (exported->blocks && exported->key.request == key.request &&
            exported->key.attempt == key.attempt)
            return exported;
    }
    return NULL;
}

void kv_export_add(struct kv_export *exports, struct sequence_key key, const uint32_t *blocks,
                   uint32_t block_count, uint32_t cached_blocks)
{
    ASSERT(block_count <= exports->max_blocks && cached_blocks <= block_count);
    struct exported *slot = exports->exported;
    while (slot->blocks)
        slot++;
    ASSERT(slot < exports->exported + exports->max_exported);
    *slot = (struct exported){.key = key, .blocks = blocks, .block_count = block_count};
    for (uint32_t i = cached_blocks; i < block_count; i++)
        exports->summed[blocks[i]] = false;
}

void kv_export_forget_sums(struct kv_export *exports)
{
    memset(exports->summed, 0, exports->worker->block_count * sizeof *exports->summed);
}

void kv_export_filled(struct kv_export *exports, struct sequence_key key, uint32_t tokens,
                      const struct source_completion *completion)
{
    struct exported *exported = exported_find(exports, key);
    if (!exported)
        return;
    exported->tokens = tokens;
    exported->computed =
        completion ? exported->block_count : tokens / exports->worker->info.block_tokens;
    ASSERT(exported->computed <= exported->block_count);
    exported->untold = true;
    exported->complete = completion != NULL;
    if (completion)
        exported->last = *completion;
}

static void tell(struct kv_export *exports, struct exported *exported)
{
    for (uint32_t i = 0; i < exported->summed; i++) {
        const struct kv_block_sum *sum = &exports->block_sums[exported->blocks[i]];
        exports->sums[i] = sum->runs;
        exports->checksums[i] = sum->crc32c;
    }
    exported->untold = false;
    exports->handlers.summed(exports->role, exported->key, exported->tokens,
                             (struct source_sums){exports->sums, exports->checksums},
                             exported->complete ? &exported->last : NULL);
}

/* Sums the next blocks of a prompt that have no sum yet, for about a turn's time. */
static void sum_next(struct kv_export *exports, struct exported *exported)
{
    uint32_t blocks[KV_SUMS_AT_ONCE], count = 0;
    struct kv_block_sum sums[KV_SUMS_AT_ONCE];
    uint64_t turn = TRANSFER_TURN_BYTES / exports->worker->block_bytes + 1;
    uint32_t most = turn < KV_SUMS_AT_ONCE ? (uint32_t)turn : KV_SUMS_AT_ONCE;
    for (; exported->summed < exported->computed && count < most; exported->summed++)
        if (!exports->summed[exported->blocks[exported->summed]])
            blocks[count++] = exported->blocks[exported->summed];
    if (!count)
        return;
    /* If the device can't read a block, its reader can't either: the read fails. */
    bool good =
        kv_transport_block_sums(exports->worker->transport, blocks, count, sums) == STATUS_OK;
    for (uint32_t i = 0; i < count; i++) {
        exports->summed[blocks[i]] = good;
        exports->block_sums[blocks[i]] = good ? sums[i] : (struct kv_block_sum){0};
    }
}

bool kv_export_work(struct kv_export *exports)
{
    struct exported *exported = NULL;
    for (uint32_t i = 0; i < exports->max_exported && !exported; i++) {
        struct exported *slot = &exports->exported[exports->turn++ % exports->max_exported];
        if (slot->blocks && slot->untold)
            exported = slot;
    }
    if (!exported)
        return false;
    sum_next(exports, exported);
    if (exported->summed == exported->computed)
        tell(exports, exported);
    return true;
}

void kv_export_remove(struct kv_export *exports, struct sequence_key key)
{
    struct exported *exported = exported_find(exports, key);
    if (exported)
        exported->blocks = NULL;
}
