/* The UCX transport: lanes, pool, address. */
#include "common/transport/ucx.h"

#include "common/base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_PROGRESS_TURNS 32 /* of one poll; each looks at a few messages */

/* -- lanes -- */

static enum status context_create(enum kv_lane kind, const char *interface, ucp_context_h *context,
                                  struct error *err)
{
    ucp_config_t *options;
    TRY(ucx_config_create(kind, interface, &options, err));
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES,
        .features = UCP_FEATURE_WAKEUP | (kind == KV_LANE_SHM ? UCP_FEATURE_RMA : UCP_FEATURE_AM),
    };
    ucs_status_t got = ucp_init(&params, options, context);
    ucp_config_release(options);
    if (got == UCS_OK)
        return STATUS_OK;
    if (kind == KV_LANE_SHM)
        return error_set(err, ucx_status(got), "UCX %s can't use shared memory: %s",
                         ucp_get_version_string(), ucs_status_string(got));
    return error_set(err, ucx_status(got), "UCX %s can't use tcp on the interface %s: %s",
                     ucp_get_version_string(), interface, ucs_status_string(got));
}

static enum status worker_create(ucp_context_h context, ucp_worker_h *worker, int *fd,
                                 struct error *err)
{
    /* Serialized, not single: set-up may run on another thread than the one that polls afterwards. */
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
    };
    ucs_status_t got = ucp_worker_create(context, &params, worker);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX can't create a worker: %s",
                         ucs_status_string(got));
    got = ucp_worker_get_efd(*worker, fd);
    if (got == UCS_OK)
        return STATUS_OK;
    ucp_worker_destroy(*worker);
    return error_set(err, ucx_status(got), "UCX has no event descriptor: %s",
                     ucs_status_string(got));
}

/* Worker before pool before context: nobody may be served from a pool that is gone. */
static void worker_destroy(struct ucx_lane *lane)
{
    if (lane->context)
        ucp_worker_destroy(lane->worker);
}

static void context_destroy(struct ucx_lane *lane)
{
    if (lane->context)
        ucp_cleanup(lane->context);
}

static enum status lane_open(struct ucx_transport *ucx, enum kv_lane kind, const char *interface,
                             struct ucx_lane *lane, struct error *err)
{
    struct ucx_lane opened;
    TRY(context_create(kind, interface, &opened.context, err));
    enum status status = worker_create(opened.context, &opened.worker, &opened.fd, err);
    if (status != STATUS_OK) {
        ucp_cleanup(opened.context);
        return status;
    }
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(ucx->epoll_fd, EPOLL_CTL_ADD, opened.fd, &event) != 0) {
        worker_destroy(&opened);
        context_destroy(&opened);
        return error_set(err, STATUS_IO, "UCX's events can't be waited for: %s", strerror(errno));
    }
    *lane = opened;
    return STATUS_OK;
}

static enum status lanes_open(struct ucx_transport *ucx, const char *interface, struct error *err)
{
    if (ucx->asked != KV_LANE_TCP)
        TRY(lane_open(ucx, KV_LANE_SHM, interface, &ucx->shm, err));
    if (ucx->asked != KV_LANE_SHM)
        TRY(lane_open(ucx, KV_LANE_TCP, interface, &ucx->tcp, err));
    return STATUS_OK;
}

/* -- pool and address -- */

static ucp_context_h pool_context(const struct ucx_transport *ucx)
{
    return ucx->shm.context ? ucx->shm.context : ucx->tcp.context;
}

static enum status pool_create(struct ucx_transport *ucx, size_t bytes, struct error *err)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = bytes,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_h memory;
    ucs_status_t got = ucp_mem_map(pool_context(ucx), &params, &memory);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "a KV pool of %zu bytes can't be allocated: %s%s",
                         bytes, ucs_status_string(got),
                         ucx->shm.context ? " (shared memory: how large is /dev/shm?)" : "");
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
    got = ucp_mem_query(memory, &attr);
    if (got != UCS_OK || attr.length < bytes) {
        ucp_mem_unmap(pool_context(ucx), memory);
        return error_set(err, STATUS_INTERNAL, "UCX doesn't say where the KV pool is: %s",
                         ucs_status_string(got));
    }
    ucx->memory = memory;
    ucx->base.pool = attr.address;
    madvise(attr.address, attr.length, MADV_HUGEPAGE); /* only faster: may be refused */
    return STATUS_OK;
}

static enum status shm_address_encode(struct ucx_transport *ucx, struct kv_address *address,
                                      struct error *err)
{
    ucp_address_t *worker;
    size_t worker_bytes, rkey_bytes;
    ucs_status_t got = ucp_worker_get_address(ucx->shm.worker, &worker, &worker_bytes);
    if (got != UCS_OK)
        return error_set(err, ucx_status(got), "UCX gives no address: %s", ucs_status_string(got));
    void *rkey;
    got = ucp_rkey_pack(ucx->shm.context, ucx->memory, &rkey, &rkey_bytes);
    if (got != UCS_OK) {
        ucp_worker_release_address(ucx->shm.worker, worker);
        return error_set(err, ucx_status(got), "UCX gives no key of the KV pool: %s",
                         ucs_status_string(got));
    }
    enum status status;
    if (worker_bytes > UINT16_MAX || rkey_bytes > UINT16_MAX) {
        status =
            error_set(err, STATUS_LIMIT, "UCX's address of %zu bytes and key of %zu are too long",
                      worker_bytes, rkey_bytes);
    } else {
        address->worker = (const uint8_t *)worker;
        address->worker_bytes = (uint16_t)worker_bytes;
        address->rkey = rkey;
        address->rkey_bytes = (uint16_t)rkey_bytes;
        status = kv_address_encode(address, ucx->base.address, &ucx->base.address_bytes, err);
    }
    ucp_rkey_buffer_release(rkey);
    ucp_worker_release_address(ucx->shm.worker, worker);
    return status;
}

static enum status address_create(struct ucx_transport *ucx, size_t pool_bytes,
                                  struct kv_address *address, struct error *err)
{
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    ucx->library = major << 16 | minor;
    address->kind = KV_TRANSPORT_UCX;
    address->library = ucx->library;
    address->id = ucx->pool_id;
    address->base = (uintptr_t)ucx->base.pool;
    address->pool_bytes = pool_bytes;
    if (ucx->shm.context)
        return shm_address_encode(ucx, address, err);
    return kv_address_encode(address, ucx->base.address, &ucx->base.address_bytes, err);
}

/* -- the transport -- */

static void ucx_close(struct kv_transport *transport)
{
    struct ucx_transport *ucx = (struct ucx_transport *)transport;
    ucx_server_close(ucx);
    worker_destroy(&ucx->tcp);
    worker_destroy(&ucx->shm);
    ucx_parts_close(ucx);
    if (ucx->memory)
        ucp_mem_unmap(pool_context(ucx), ucx->memory);
    context_destroy(&ucx->tcp);
    context_destroy(&ucx->shm);
    if (ucx->epoll_fd >= 0)
        close(ucx->epoll_fd);
    free(ucx);
}

static enum status ucx_open_parts(struct ucx_transport *ucx,
                                  const struct kv_transport_config *config, struct error *err)
{
    const char *interface = config->bind_interface ? config->bind_interface : "lo";
    struct kv_address address = {0};
    ucx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ucx->epoll_fd < 0)
        return error_set(err, STATUS_IO, "no epoll descriptor: %s", strerror(errno));
    TRY(lanes_open(ucx, interface, err));
    TRY(pool_create(ucx, config->pool_bytes, err));
    ucx->base.pool_bytes = config->pool_bytes;
    ucx->pool_id = rng_entropy();
    if (ucx->tcp.context) {
        TRY(ucx_parts_open(ucx, err));
        TRY(ucx_server_open(ucx, interface, &address, err));
    }
    return address_create(ucx, config->pool_bytes, &address, err);
}

static enum status ucx_open(const struct kv_transport_config *config, struct kv_transport **out,
                            struct error *err)
{
    ucx_process_init();
    struct ucx_transport *ucx = calloc(1, sizeof *ucx);
    if (!ucx)
        return error_set(err, STATUS_LIMIT, "no memory for a transport");
    ucx->asked = config->lane;
    ucx->epoll_fd = -1;
    enum status status = ucx_open_parts(ucx, config, err);
    if (status != STATUS_OK) {
        ucx_close(&ucx->base);
        return status;
    }
    *out = &ucx->base;
    return STATUS_OK;
}

static void ucx_progress(struct kv_transport *transport)
{
    struct ucx_transport *ucx = (struct ucx_transport *)transport;
    if (ucx->shm.context)
        for (int i = 0; i < MAX_PROGRESS_TURNS && ucp_worker_progress(ucx->shm.worker); i++)
            ;
    if (!ucx->tcp.context)
        return;
    for (int i = 0; i < MAX_PROGRESS_TURNS && ucp_worker_progress(ucx->tcp.worker); i++)
        ;
    ucx_server_progress(ucx);
}

static int ucx_fd(const struct kv_transport *transport)
{
    return ((const struct ucx_transport *)transport)->epoll_fd;
}

static bool ucx_arm(struct kv_transport *transport)
{
    struct ucx_transport *ucx = (struct ucx_transport *)transport;
    return (!ucx->shm.context || ucp_worker_arm(ucx->shm.worker) == UCS_OK) &&
           (!ucx->tcp.context || ucp_worker_arm(ucx->tcp.worker) == UCS_OK);
}

const struct kv_transport_ops kv_ucx_ops = {
    .open = ucx_open,
    .close = ucx_close,
    .pair = ucx_pair,
    .progress = ucx_progress,
    .start = ucx_parts_start,
    .close_begin = ucx_close_begin,
    .close_done = ucx_close_done,
    .peer_free = ucx_peer_free,
    .fd = ucx_fd,
    .arm = ucx_arm,
};
