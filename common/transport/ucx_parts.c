/* A reader's parts in flight over tcp. A part is a piece of a run that was asked for; its slot is found by a token that the owner
 * gives back, so nothing that an owner sends can name our memory. */
#include "common/transport/ucx.h"

#include "common/base/assert.h"

#include <stdlib.h>
#include <string.h>

/* Of all peers: that many windows of peers that answer nothing, before others have to wait for their deadlines. */
#define MAX_PARTS (64 * UCX_WINDOW)

struct ucx_part {
    uint32_t generation;  /* a token of an earlier use is not this part's */
    bool sending;         /* UCX still needs the ask */
    struct kv_read *read; /* NULL: nothing is waited for */
    uint8_t *to;
    struct ucx_ask ask;
    struct ucx_parts *parts;
    struct ucx_part *next_free;
};

struct ucx_parts {
    struct ucx_part *free;
    struct ucx_part part[MAX_PARTS];
};

static void part_give_back(struct ucx_part *part)
{
    if (part->sending || part->read)
        return;
    part->generation++;
    part->next_free = part->parts->free;
    part->parts->free = part;
}

static struct ucx_part *part_by_token(struct ucx_parts *parts, uint64_t token)
{
    uint64_t index = token & UINT32_MAX;
    if (index >= MAX_PARTS || parts->part[index].generation != token >> 32)
        return NULL;
    return parts->part[index].read ? &parts->part[index] : NULL;
}

/* The part is no longer landing. */
static void part_end(struct ucx_part *part, enum status status, const char *reason)
{
    struct kv_read *read = part->read;
    part->read = NULL;
    ((struct ucx_peer *)read->peer)->parts--;
    part_give_back(part);
    kv_read_part_done(read, status, reason);
}

static ucs_status_t answer_came(void *arg, const void *header, size_t header_bytes, void *data,
                                size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ucx_transport *ucx = arg;
    struct ucx_answer answer;
    if (header_bytes != sizeof answer)
        return UCS_OK;
    memcpy(&answer, header, sizeof answer);
    struct ucx_part *part = part_by_token(ucx->parts, answer.token);
    if (!part)
        return UCS_OK; /* of a read that has ended */
    if (bytes != part->ask.bytes || param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        part_end(part, STATUS_INTERNAL, "the peer answered with something else");
        return UCS_OK;
    }
    memcpy(part->to, data, bytes);
    part_end(part, STATUS_OK, NULL);
    return UCS_OK;
}

enum status ucx_parts_open(struct ucx_transport *ucx, struct error *err)
{
    ucx->parts = calloc(1, sizeof *ucx->parts);
    if (!ucx->parts)
        return error_set(err, STATUS_LIMIT, "no memory for a transport");
    for (size_t i = 0; i < MAX_PARTS; i++) {
        ucx->parts->part[i].parts = ucx->parts;
        part_give_back(&ucx->parts->part[i]);
    }
    ucp_am_handler_param_t params = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_ANSWER,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = answer_came,
        .arg = ucx,
    };
    ucs_status_t got = ucp_worker_set_am_recv_handler(ucx->tcp.worker, &params);
    if (got == UCS_OK)
        return STATUS_OK;
    return error_set(err, ucx_status(got), "UCX takes no handler: %s", ucs_status_string(got));
}

void ucx_parts_close(struct ucx_transport *ucx)
{
    free(ucx->parts);
}

static void ask_sent(void *request, ucs_status_t status, void *user_data)
{
    (void)status; /* one that failed is the endpoint's failure, which is reported */
    struct ucx_part *part = user_data;
    part->sending = false;
    part_give_back(part);
    ucp_request_free(request);
}

static void part_start(struct ucx_transport *ucx, struct ucx_peer *peer, struct kv_read *read)
{
    struct ucx_part *part = ucx->parts->free;
    ucx->parts->free = part->next_free;
    const struct kv_read_run *run = &read->runs[read->next_run];
    uint64_t left = run->bytes - read->next_bytes;
    part->read = read;
    part->to = ucx->base.pool + run->local_offset + read->next_bytes;
    part->ask = (struct ucx_ask){
        .pool_id = peer->pool_id,
        .token = (uint64_t)part->generation << 32 | (uint64_t)(part - ucx->parts->part),
        .offset = run->remote_offset + read->next_bytes,
        .bytes = left < UCX_PART_BYTES ? left : UCX_PART_BYTES,
    };
    read->next_bytes += part->ask.bytes;
    if (read->next_bytes == run->bytes) {
        read->next_bytes = 0;
        read->next_run++;
    }
    read->parts++;
    peer->parts++;
    part->sending = true;
    ucp_request_param_t params = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY,
        .cb.send = ask_sent,
        .user_data = part,
    };
    ucs_status_ptr_t got =
        ucp_am_send_nbx(peer->endpoint, UCX_ASK, &part->ask, sizeof part->ask, NULL, 0, &params);
    if (UCS_PTR_IS_PTR(got))
        return;
    part->sending = false;
    if (UCS_PTR_IS_ERR(got))
        part_end(part, STATUS_UNAVAILABLE, ucs_status_string(UCS_PTR_STATUS(got)));
}

void ucx_parts_start(struct kv_peer *base)
{
    struct ucx_peer *peer = (struct ucx_peer *)base;
    struct ucx_transport *ucx = (struct ucx_transport *)base->transport;
    struct kv_read *read;
    for (struct kv_read *next = TAILQ_FIRST(&base->reads); (read = next);) {
        next = TAILQ_NEXT(read, link);
        while (read->next_run < read->run_count) {
            if (peer->parts >= UCX_WINDOW || !ucx->parts->free || base->failed)
                return;
            part_start(ucx, peer, read);
        }
    }
}

void ucx_parts_abandon(struct ucx_peer *peer)
{
    struct ucx_transport *ucx = (struct ucx_transport *)peer->base.transport;
    for (size_t i = 0; peer->parts > 0; i++) {
        ASSERT(i < MAX_PARTS);
        struct ucx_part *part = &ucx->parts->part[i];
        if (part->read && part->read->peer == &peer->base)
            part_end(part, STATUS_CANCELLED, "closed");
    }
}
