#include "common/worker/wire_peer.h"

#include "common/base/assert.h"
#include "common/worker/wire.h"
#include "common/worker/wire_logprobs.h"

size_t wire_peer_down_count(const Baton__Worker__V1__PeerDown *message)
{
    switch (message->message_case) {
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_SUBSCRIBE:
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_CONFIRM:
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_RELEASE: return 1;
    case BATON__WORKER__V1__PEER_DOWN__MESSAGE_EXTEND: return message->extend->n_handles;
    default: return 0;
    }
}

struct peer_down wire_peer_down(const Baton__Worker__V1__PeerDown *message, size_t index)
{
    ASSERT(index < wire_peer_down_count(message));
    if (message->message_case == BATON__WORKER__V1__PEER_DOWN__MESSAGE_CONFIRM) {
        const Baton__Worker__V1__Confirm *confirm = message->confirm;
        return (struct peer_down){PEER_CONFIRM, confirm->request, confirm->attempt,
                                  wire_ref(confirm->handle)};
    }
    if (message->message_case == BATON__WORKER__V1__PEER_DOWN__MESSAGE_RELEASE) {
        const Baton__Worker__V1__PeerRelease *release = message->release;
        return (struct peer_down){PEER_RELEASE, release->request, release->attempt,
                                  wire_ref(release->handle)};
    }
    bool extends = message->message_case == BATON__WORKER__V1__PEER_DOWN__MESSAGE_EXTEND;
    const Baton__Worker__V1__Subscribe *named =
        extends ? message->extend->handles[index] : message->subscribe;
    return (struct peer_down){extends ? PEER_EXTEND : PEER_SUBSCRIBE, named->request,
                              named->attempt, wire_ref(named->handle)};
}

bool wire_peer_up(const Baton__Worker__V1__PeerUp *message, struct peer_up *up)
{
    static const struct token_logprobs none;
    struct token_logprobs logprobs;
    bool sound;
    switch (message->message_case) {
    case BATON__WORKER__V1__PEER_UP__MESSAGE_READY:
        *up = (struct peer_up){.kind = PEER_READY,
                               .request = message->ready->request,
                               .attempt = message->ready->attempt,
                               .ready_tokens = message->ready->tokens};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_COMPLETE:
        sound = wire_logprobs(message->complete->logprobs, &logprobs);
        *up = (struct peer_up){.kind = PEER_COMPLETE,
                               .request = message->complete->request,
                               .attempt = message->complete->attempt,
                               .first_token = sound ? message->complete->first_token : UINT32_MAX,
                               .logits_hash = message->complete->logits_hash,
                               .logprobs = sound ? logprobs : none,
                               .finish = (enum finish_reason)message->complete->finish,
                               .checksum_count = (uint32_t)message->complete->n_checksums,
                               .checksums = message->complete->checksums};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_HELD:
        *up = (struct peer_up){.kind = PEER_HELD,
                               .request = message->held->request,
                               .attempt = message->held->attempt};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_GONE:
        *up = (struct peer_up){.kind = PEER_GONE,
                               .request = message->gone->request,
                               .attempt = message->gone->attempt};
        return true;
    case BATON__WORKER__V1__PEER_UP__MESSAGE_EXTENDED:
        *up = (struct peer_up){.kind = PEER_EXTENDED,
                               .request = message->extended->request,
                               .attempt = message->extended->attempt,
                               .left_us = message->extended->left_us};
        return true;
    default: return false;
    }
}

/* A Subscribe, or the one handle of an Extend. */
static void pack_named(const struct peer_down *down, struct wire_peer_down_room *room)
{
    baton__worker__v1__subscribe__init(&room->subscribe);
    room->subscribe.request = down->request;
    room->subscribe.attempt = down->attempt;
    room->subscribe.handle = &room->ref;
    if (down->kind == PEER_SUBSCRIBE) {
        room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_SUBSCRIBE;
        room->message.subscribe = &room->subscribe;
        return;
    }
    baton__worker__v1__extend__init(&room->extend);
    room->handles[0] = &room->subscribe;
    room->extend.n_handles = 1;
    room->extend.handles = room->handles;
    room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_EXTEND;
    room->message.extend = &room->extend;
}

void wire_peer_down_pack(const struct peer_down *down, struct wire_peer_down_room *room)
{
    baton__worker__v1__peer_down__init(&room->message);
    wire_ref_pack(down->ref, &room->ref);
    switch (down->kind) {
    case PEER_SUBSCRIBE:
    case PEER_EXTEND: pack_named(down, room); break;
    case PEER_CONFIRM:
        baton__worker__v1__confirm__init(&room->confirm);
        room->confirm.request = down->request;
        room->confirm.attempt = down->attempt;
        room->confirm.handle = &room->ref;
        room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_CONFIRM;
        room->message.confirm = &room->confirm;
        break;
    case PEER_RELEASE:
        baton__worker__v1__peer_release__init(&room->release);
        room->release.request = down->request;
        room->release.attempt = down->attempt;
        room->release.handle = &room->ref;
        room->message.message_case = BATON__WORKER__V1__PEER_DOWN__MESSAGE_RELEASE;
        room->message.release = &room->release;
        break;
    }
}

static void pack_complete(const struct peer_up *up, struct wire_peer_up_room *room)
{
    Baton__Worker__V1__Complete *complete = &room->complete;
    baton__worker__v1__complete__init(complete);
    complete->request = up->request;
    complete->attempt = up->attempt;
    complete->first_token = up->first_token;
    complete->logits_hash = up->logits_hash;
    complete->logprobs = wire_logprobs_pack(&up->logprobs, &room->logprobs);
    complete->finish = up->finish;
    complete->n_checksums = up->checksum_count;
    complete->checksums = (uint32_t *)up->checksums; /* packing only reads */
}

void wire_peer_up_pack(const struct peer_up *up, struct wire_peer_up_room *room)
{
    Baton__Worker__V1__PeerUp *message = &room->message;
    baton__worker__v1__peer_up__init(message);
    switch (up->kind) {
    case PEER_COMPLETE:
        pack_complete(up, room);
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_COMPLETE;
        message->complete = &room->complete;
        break;
    case PEER_READY:
        baton__worker__v1__ready__init(&room->ready);
        room->ready.request = up->request;
        room->ready.attempt = up->attempt;
        room->ready.tokens = up->ready_tokens;
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_READY;
        message->ready = &room->ready;
        break;
    case PEER_HELD:
        baton__worker__v1__held__init(&room->held);
        room->held.request = up->request;
        room->held.attempt = up->attempt;
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_HELD;
        message->held = &room->held;
        break;
    case PEER_GONE:
        baton__worker__v1__gone__init(&room->gone);
        room->gone.request = up->request;
        room->gone.attempt = up->attempt;
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_GONE;
        message->gone = &room->gone;
        break;
    case PEER_EXTENDED:
        baton__worker__v1__extended__init(&room->extended);
        room->extended.request = up->request;
        room->extended.attempt = up->attempt;
        room->extended.left_us = up->left_us;
        message->message_case = BATON__WORKER__V1__PEER_UP__MESSAGE_EXTENDED;
        message->extended = &room->extended;
        break;
    }
}
