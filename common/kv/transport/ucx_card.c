/* The lane rdma: cards read the memory of a peer's GPU. **No card has ever run it.** Tests run it
 * over UCX's sockets in host memory, by a failpoint; then it is named so. */
#include "common/base/clock.h"
#include "common/base/domain/kv_copier.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/kv/transport/ucx_parts.h"

#include <stdlib.h>
#include <string.h>

#define MAX_COPIES         16 /* a peer's, under way */
#define MAX_PROGRESS_TURNS 32
#define STOP_US            1000000 /* for a forced close, which needs no answer */

struct ucx_card {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    void *start;
    ucp_address_t *worker_address;
    void *rkey;
    size_t worker_bytes, rkey_bytes;
    int fd;
    bool by_sockets; /* a test's */
};

/* A copy is as many reads as it has moves. */
struct ucx_copy {
    struct ucx_remote *remote;
    uint32_t left;
    enum status status;
};

struct ucx_remote {
    struct ucx_card *card;
    ucp_ep_h endpoint;
    ucp_rkey_h rkey;
    uint64_t base, last; /* last: counts the copies, from 1 */
    struct ucx_copy copies[MAX_COPIES];
    bool failed;
};

static ucs_memory_type_t memory_type(const struct ucx_card *card)
{
    return card->by_sockets ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA;
}

static enum status card_context(struct ucx_card *card, struct error *err)
{
    /* Cards alone: UCX takes sockets, or copies by the CPU, where it is free to. */
    const struct ucx_option settings[] = {
        {"TLS", card->by_sockets ? "tcp" : "rc,dc,gdr_copy,cuda_copy"},
        {"KEEPALIVE_INTERVAL", "inf"}, /* the pairing's socket reports a death */
        {NULL, NULL},
    };
    ucp_config_t *options = NULL;
    TRY(ucx_config(settings, &options, err));
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP};
    ucs_status_t got = ucp_init(&params, options, &card->context);
    ucp_config_release(options);
    if (got != UCS_OK)
        return error_set(err, STATUS_UNSUPPORTED,
                         "UCX %s finds no card for RDMA: %s. Take the lane tcp",
                         ucp_get_version_string(), ucs_status_string(got));
    ucp_context_attr_t attributes = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    got = ucp_context_query(card->context, &attributes);
    if (got != UCS_OK || !(attributes.memory_types & UCS_BIT(memory_type(card))))
        return error_set(err, STATUS_UNSUPPORTED,
                         "UCX %s can't reach the memory of a GPU: it was built without CUDA, or "
                         "finds no driver. Take the lane tcp",
                         ucp_get_version_string());
    ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    got = ucp_worker_create(card->context, &worker, &card->worker);
    if (got == UCS_OK)
        got = ucp_worker_get_efd(card->worker, &card->fd);
    return got == UCS_OK ? STATUS_OK
                         : error_set(err, ucx_status(got), "UCX can't create a worker: %s",
                                     ucs_status_string(got));
}

static enum status card_register(struct ucx_card *card, void *memory, size_t bytes,
                                 struct error *err)
{
    ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                 UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                 UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                   .address = memory,
                                   .length = bytes,
                                   .memory_type = memory_type(card)};
    card->start = memory;
    ucs_status_t got = ucp_mem_map(card->context, &params, &card->memory);
    if (got == UCS_OK)
        got = ucp_rkey_pack(card->context, card->memory, &card->rkey, &card->rkey_bytes);
    if (got == UCS_OK)
        got = ucp_worker_get_address(card->worker, &card->worker_address, &card->worker_bytes);
    if (got == UCS_OK && (card->worker_bytes > UINT16_MAX || card->rkey_bytes > UINT16_MAX))
        got = UCS_ERR_EXCEEDS_LIMIT;
    return got == UCS_OK ? STATUS_OK
                         : error_set(err, ucx_status(got),
                                     "UCX can't register the GPU's memory with a card: %s",
                                     ucs_status_string(got));
}

enum status ucx_card_open(void *memory, size_t bytes, struct ucx_card **out, struct error *err)
{
    ucx_init_once();
    struct ucx_card *card = calloc(1, sizeof *card);
    if (!card)
        return error_set(err, STATUS_LIMIT, "no memory for a transport");
    card->by_sockets = FAILPOINT_FAILS("transport.card");
    ucs_log_push_handler(ucx_drop_message); /* our sentences say it all */
    enum status status = card_context(card, err);
    if (status == STATUS_OK)
        status = card_register(card, memory, bytes, err);
    ucs_log_pop_handler();
    if (status != STATUS_OK)
        ucx_card_close(card);
    else
        *out = card;
    return status;
}

void ucx_card_close(struct ucx_card *card)
{
    if (!card)
        return;
    if (card->rkey)
        ucp_rkey_buffer_release(card->rkey);
    if (card->worker_address)
        ucp_worker_release_address(card->worker, card->worker_address);
    if (card->worker)
        ucp_worker_destroy(card->worker);
    if (card->memory)
        ucp_mem_unmap(card->context, card->memory);
    if (card->context)
        ucp_cleanup(card->context);
    free(card);
}

void ucx_card_describe(const struct ucx_card *card, struct kv_address *address)
{
    address->base = (uintptr_t)card->start;
    address->worker = (const uint8_t *)card->worker_address;
    address->worker_bytes = (uint16_t)card->worker_bytes;
    address->rkey = card->rkey;
    address->rkey_bytes = (uint16_t)card->rkey_bytes;
}

int ucx_card_fd(const struct ucx_card *card)
{
    return card->fd;
}

const char *ucx_card_name(const struct ucx_card *card)
{
    return card->by_sockets ? "sockets in place of rdma" : "rdma";
}

bool ucx_card_progress(struct ucx_card *card)
{
    for (int turns = 0; turns < MAX_PROGRESS_TURNS; turns++)
        if (!ucp_worker_progress(card->worker) && ucp_worker_arm(card->worker) != UCS_ERR_BUSY)
            return false;
    return true;
}

static void on_remote_failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint, (void)status;
    ((struct ucx_remote *)argument)->failed = true;
}

enum status ucx_remote_open(struct ucx_card *card, const struct kv_address *address,
                            struct ucx_remote **out, struct error *err)
{
    struct ucx_remote *remote = calloc(1, sizeof *remote);
    if (!remote)
        return error_set(err, STATUS_LIMIT, "no memory for a peer");
    remote->card = card;
    remote->base = address->base;
    /* UCX takes both without a length: they are aligned, and zeros follow. */
    uint64_t copy[2 * KV_TRANSPORT_MAX_ADDRESS_BYTES / sizeof(uint64_t)] = {0};
    memcpy(copy, address->worker, address->worker_bytes);
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .address = (const ucp_address_t *)copy,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_remote_failed, remote},
    };
    ucs_status_t got = ucp_ep_create(card->worker, &params, &remote->endpoint);
    memset(copy, 0, sizeof copy);
    memcpy(copy, address->rkey, address->rkey_bytes);
    if (got == UCS_OK)
        got = ucp_ep_rkey_unpack(remote->endpoint, copy, &remote->rkey);
    if (got == UCS_OK) {
        *out = remote;
        return STATUS_OK;
    }
    ucx_remote_close(remote);
    return error_set(err, STATUS_UNAVAILABLE, "no card reaches the peer's memory: %s",
                     ucs_status_string(got));
}

static struct ucx_copy *copy_at(struct ucx_remote *remote, uint64_t copy)
{
    return &remote->copies[copy % MAX_COPIES];
}

static bool has_reads(const struct ucx_remote *remote)
{
    for (int i = 0; i < MAX_COPIES; i++)
        if (remote->copies[i].left)
            return true;
    return false;
}

void ucx_remote_stop(struct ucx_remote *remote)
{
    const ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                        .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_worker_h worker = remote->card->worker;
    const uint64_t late_us = clock_now_us() + STOP_US;
    if (!remote->endpoint)
        return;
    ucs_status_ptr_t request = ucp_ep_close_nbx(remote->endpoint, &params);
    remote->endpoint = NULL;
    remote->failed = true;
    while ((has_reads(remote) ||
            (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)) &&
           clock_now_us() < late_us)
        ucp_worker_progress(worker);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
    if (!has_reads(remote))
        return;
    log_error("transport", "msg=\"a card doesn't end its reads, which may still write into the KV "
                           "pool: this process ends\" code=kv_card_stuck");
    abort();
}

void ucx_remote_close(struct ucx_remote *remote)
{
    if (!remote)
        return;
    ucx_remote_stop(remote);
    if (remote->rkey)
        ucp_rkey_destroy(remote->rkey);
    free(remote);
}

static void on_read(void *request, ucs_status_t status, void *argument)
{
    struct ucx_copy *copy = argument;
    copy->left--;
    if (status != UCS_OK)
        copy->status = STATUS_UNAVAILABLE;
    ucp_request_free(request);
}

enum status ucx_remote_read(struct ucx_remote *remote, const struct kv_move *moves, uint32_t count,
                            uint64_t *out)
{
    struct ucx_copy *copy = copy_at(remote, remote->last + 1);
    if (remote->failed || copy->left)
        return STATUS_UNAVAILABLE;
    *copy = (struct ucx_copy){.remote = remote, .status = STATUS_OK};
    ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                  UCP_OP_ATTR_FIELD_USER_DATA |
                                                  UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                  .cb.send = on_read,
                                  .user_data = copy,
                                  .memory_type = memory_type(remote->card)};
    for (uint32_t i = 0; i < count; i++) {
        ucs_status_ptr_t request =
            ucp_get_nbx(remote->endpoint, (char *)remote->card->start + moves[i].to, moves[i].bytes,
                        remote->base + moves[i].from, remote->rkey, &params);
        if (UCS_PTR_IS_ERR(request))
            copy->status = STATUS_UNAVAILABLE;
        else if (UCS_PTR_IS_PTR(request))
            copy->left++; /* on_read counts it down: none runs before the next progress */
    }
    *out = ++remote->last;
    return STATUS_OK;
}

bool ucx_remote_poll(struct ucx_remote *remote, uint64_t copy, enum status *status)
{
    const struct ucx_copy *one = copy_at(remote, copy);
    (void)ucx_card_progress(remote->card);
    *status = remote->failed ? STATUS_UNAVAILABLE : one->status;
    return one->left == 0;
}
