#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/net/rpc/grpc/call.h"
#include "common/net/rpc/grpc/runtime.h"
#include "common/net/rpc/grpc/tls.h"

#include <grpc/grpc_security.h>

#include <stdlib.h>
#include <string.h>

struct rpc_channel {
    struct rpc_runtime *runtime;
    char *target, *peer_name;
    size_t max_message_bytes, max_queued_bytes;
    uint64_t keepalive_us;
    struct certificates *certificates; /* NULL: in the clear */
    pthread_mutex_t lock;              /* guards the next two */
    grpc_channel *core;
    uint64_t version; /* the set of certificates that core has */
    struct call_set calls;
};

static void add_settings(const struct rpc_channel *channel, struct channel_args *args)
{
    channel_args_add_common(args, channel->max_message_bytes, channel->keepalive_us);
    /* A connection for each channel, and no long waits before a restarted peer is tried again. */
    channel_args_add(args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_args_add(args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    channel_args_add(args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    channel_args_add(args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000); /* one attempt at most */
    /* Nothing behind our back: retries are the caller's, peers are reached directly, no lookups in
     * DNS records. */
    channel_args_add(args, GRPC_ARG_ENABLE_RETRIES, 0);
    channel_args_add(args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    channel_args_add(args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    if (*channel->peer_name)
        channel_args_add_string(args, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, channel->peer_name);
}

/* Makes core's channel with the current certificates. */
static grpc_channel *dial(struct rpc_channel *channel)
{
    struct channel_args args = {0};
    add_settings(channel, &args);
    grpc_channel_credentials *credentials;
    if (channel->certificates) {
        const struct certificate_set *set = certificates_take(channel->certificates);
        channel->version = set->version;
        credentials = tls_channel_credentials(set);
        certificate_set_give(set);
    } else {
        credentials = grpc_insecure_credentials_create();
    }
    grpc_channel_args core_args = {args.count, args.items};
    grpc_channel *core = grpc_channel_create(channel->target, credentials, &core_args);
    grpc_channel_credentials_release(credentials);
    return core;
}

enum status rpc_channel_create(struct rpc_runtime *runtime, const struct rpc_channel_config *config,
                               struct rpc_channel **channel, struct error *err)
{
    if (!*config->target || strlen(config->target) > 1024)
        return error_set(err, STATUS_INVALID, "channel target \"%.100s\" is not host:port",
                         config->target);
    struct rpc_channel *made = calloc(1, sizeof *made);
    ASSERT(made);
    made->runtime = runtime;
    made->target = strdup(config->target);
    made->peer_name =
        strdup(config->tls.certificates && config->tls.peer_name ? config->tls.peer_name : "");
    ASSERT(made->target && made->peer_name);
    made->max_message_bytes = config->max_message_bytes;
    made->max_queued_bytes =
        config->max_queued_bytes ? config->max_queued_bytes : RPC_DEFAULT_BYTES;
    made->keepalive_us = config->keepalive_us;
    made->certificates = config->tls.certificates;
    pthread_mutex_init(&made->lock, NULL);
    call_set_init(&made->calls);
    made->core = dial(made);
    *channel = made;
    return STATUS_OK;
}

/* A call over a connection made with the current certificates: calls that run keep theirs. */
static struct rpc_call *new_call(struct rpc_channel *channel, const char *path,
                                 gpr_timespec deadline)
{
    grpc_completion_queue *queue = rpc_runtime_next_queue(channel->runtime);
    grpc_slice slice = grpc_slice_from_copied_string(path);
    pthread_mutex_lock(&channel->lock);
    if (channel->certificates && certificates_version(channel->certificates) != channel->version) {
        grpc_channel_destroy(channel->core); /* its calls live on */
        channel->core = dial(channel);
    }
    grpc_call *call = grpc_channel_create_call(channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                               slice, NULL, deadline, NULL);
    pthread_mutex_unlock(&channel->lock);
    grpc_slice_unref(slice);
    return call_create(call, queue, false);
}

static void cancel(void *unused, struct rpc_call *call)
{
    (void)unused;
    rpc_call_cancel(call);
}

void rpc_channel_destroy(struct rpc_channel *channel)
{
    ASSERT(!rpc_runtime_on_thread());
    call_set_close(&channel->calls);
    call_set_each(&channel->calls, cancel, NULL); /* core leaves calls of a dead channel alive */
    pthread_mutex_lock(&channel->calls.lock);
    while (channel->calls.count)
        call_set_wait(&channel->calls, UINT64_MAX);
    pthread_mutex_unlock(&channel->calls.lock);
    grpc_channel_destroy(channel->core);
    call_set_deinit(&channel->calls);
    pthread_mutex_destroy(&channel->lock);
    free(channel->peer_name);
    free(channel->target);
    free(channel);
}

enum status rpc_call_start_with(struct rpc_channel *channel, const struct rpc_call_options *options,
                                struct rpc_call **call)
{
    struct header_list headers = {0};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < options->metadata_count && status == STATUS_OK; i++)
        status = header_list_add(&headers, options->metadata[i].key, options->metadata[i].value);
    if (status != STATUS_OK) {
        header_list_deinit(&headers);
        return status;
    }
    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (options->deadline_us && options->deadline_us <= INT64_MAX / 2)
        deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_micros((int64_t)options->deadline_us, GPR_TIMESPAN));
    struct rpc_call *made = new_call(channel, options->path, deadline);
    made->handlers = options->handlers;
    made->set = &channel->calls;
    made->max_queued_bytes = channel->max_queued_bytes;
    made->own_headers = headers;
    if (options->deadline_us) {
        made->allowed_us = options->deadline_us;
        made->deadline_us = clock_now_us() + options->deadline_us;
    }
    rpc_call_set_context(made, options->context);
    if (!call_set_add(&channel->calls, made)) {
        call_abandon(made);
        return STATUS_CANCELLED;
    }
    rpc_call_ref(made);
    *call = made;
    call_begin_client(made, options->wait_for_ready);
    return STATUS_OK;
}

enum status rpc_call_start(struct rpc_channel *channel, const char *path,
                           const struct rpc_handlers *handlers, void *context, uint64_t deadline_us,
                           bool wait_for_ready, struct rpc_call **call)
{
    const struct rpc_call_options options = {.path = path,
                                             .handlers = *handlers,
                                             .context = context,
                                             .deadline_us = deadline_us,
                                             .wait_for_ready = wait_for_ready};
    return rpc_call_start_with(channel, &options, call);
}
