#include "common/net/membership/registrar.h"

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "common/base/str.h"
#include "common/net/membership/worker_message.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CALL_DEADLINE_US  2000000u
#define FIRST_BACKOFF_US  100000u
#define MESSAGE_MAX_BYTES 4096u
#define REGISTER_PATH     "/baton.worker.v1.Registry/RegisterWorker"

struct registrar {
    struct registrar_config config;
    char router_address[128];
    struct rpc_channel *channel;
    struct packed {
        uint8_t *data;
        size_t size;
    } joining, leaving_request; /* RegisterRequest */
    pthread_t thread;
    /* Belong to the thread. */
    uint64_t backoff_us;
    struct registrar_complaint complaint;
    bool accepted_before;

    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t changed;
    bool stopping, session_up;
    bool known;         /* the router has accepted this worker at some time */
    bool leaving, left; /* asked for; done */
    bool answered;      /* the call in flight has ended with `code` and `message` */
    enum rpc_code code;
    char message[sizeof((struct error *)NULL)->text]; /* a whole sentence of the router */
};

static void registrar_on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    (void)call;
    (void)bytes; /* the status is the answer */
}

static void registrar_on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct registrar *registrar = rpc_call_context(call);
    pthread_mutex_lock(&registrar->mutex);
    registrar->answered = true;
    registrar->code = end->code;
    str_copy(registrar->message, sizeof registrar->message, end->message ? end->message : "");
    pthread_cond_broadcast(&registrar->changed);
    pthread_mutex_unlock(&registrar->mutex);
}

bool registrar_complaint_due(struct registrar_complaint *complaint, enum rpc_code code,
                             uint64_t now_us, enum log_level *level)
{
    bool first = !complaint->failing_since_us;
    if (code == RPC_OK) {
        complaint->failing_since_us = 0;
        return false;
    }
    if (first)
        complaint->failing_since_us = now_us;
    bool refused = code == RPC_FAILED_PRECONDITION || code == RPC_INVALID_ARGUMENT;
    if (!refused && now_us - complaint->failing_since_us < REGISTRAR_PATIENCE_US) {
        *level = LOG_INFO;
        return first;
    }
    if (complaint->complained_us && code == complaint->complained_of &&
        now_us - complaint->complained_us < REGISTRAR_COMPLAIN_EVERY_US)
        return false;
    complaint->complained_of = code;
    complaint->complained_us = now_us;
    *level = refused ? LOG_ERROR : LOG_WARN;
    return true;
}

/* `code`: the end of a call, maybe RPC_OK. */
static void complain(struct registrar *registrar, enum rpc_code code, const char *message)
{
    char quoted[600];
    enum log_level level;
    if (registrar_complaint_due(&registrar->complaint, code, clock_now_us(), &level))
        log_write(level, "registrar", "router=%s code=%s reply=%s msg=\"%s; trying again\"",
                  registrar->router_address, rpc_code_name(code),
                  log_quote(message, quoted, sizeof quoted),
                  level == LOG_ERROR ? "the router refused this worker"
                                     : "can't register with the router");
}

/* Makes one call with that request. Under the lock, which is given up while it waits. Sets `code`
 * and `message`: UNAVAILABLE and "" if there was no answer. */
static void registrar_ask(struct registrar *registrar, const struct packed *request,
                          uint64_t deadline_us)
{
    static const struct rpc_handlers handlers = {.message = registrar_on_message,
                                                 .closed = registrar_on_closed};
    struct rpc_call *call = NULL;
    registrar->answered = false;
    pthread_mutex_unlock(&registrar->mutex);
    bool started = rpc_call_start(registrar->channel, REGISTER_PATH, &handlers, registrar,
                                  deadline_us, false, &call) == STATUS_OK;
    if (started && rpc_call_send(call, request->data, request->size) == STATUS_OK)
        rpc_call_half_close(call);
    pthread_mutex_lock(&registrar->mutex);
    while (started && !registrar->answered && !registrar->stopping)
        pthread_cond_wait(&registrar->changed, &registrar->mutex);
    if (!registrar->answered) {
        registrar->code = RPC_UNAVAILABLE;
        registrar->message[0] = 0;
    }
    if (call)
        rpc_call_unref(call);
}

/* Registers once. Under the lock, which is given up while it waits. Returns whether the router
 * accepted. */
static bool registrar_call(struct registrar *registrar)
{
    registrar_ask(registrar, &registrar->joining, CALL_DEADLINE_US);
    enum rpc_code code = registrar->code;
    char message[sizeof registrar->message];
    str_copy(message, sizeof message, registrar->message);
    bool stopping = registrar->stopping || registrar->leaving;
    registrar->known = registrar->known || code == RPC_OK;
    pthread_mutex_unlock(&registrar->mutex);
    if (code == RPC_OK && !registrar->accepted_before)
        log_info("registrar", "router=%s worker=%s msg=\"registered\"", registrar->router_address,
                 registrar->config.info.name);
    if (code == RPC_OK || !stopping)
        complain(registrar, code, message);
    registrar->accepted_before = code == RPC_OK;
    pthread_mutex_lock(&registrar->mutex);
    return code == RPC_OK;
}

/* Waits until the time is over, or something changed that the loop must look at. Under the lock. */
static void registrar_rest(struct registrar *registrar, uint64_t rest_us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + rest_us % 1000000 * 1000;
    until.tv_sec += (time_t)(rest_us / 1000000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    bool was_up = registrar->session_up;
    while (!registrar->stopping && !registrar->leaving && registrar->session_up == was_up)
        if (pthread_cond_timedwait(&registrar->changed, &registrar->mutex, &until))
            break;
}

static void *registrar_main(void *argument)
{
    struct registrar *registrar = argument;
    pthread_mutex_lock(&registrar->mutex);
    while (!registrar->stopping) {
        if (registrar->leaving && !registrar->left) {
            if (registrar->known)
                registrar_ask(registrar, &registrar->leaving_request, REGISTRAR_LEAVE_US);
            registrar->left = true;
            pthread_cond_broadcast(&registrar->changed);
        }
        if (registrar->left) {
            pthread_cond_wait(&registrar->changed, &registrar->mutex);
            continue;
        }
        if (registrar->session_up) {
            registrar->backoff_us = FIRST_BACKOFF_US;
            registrar->accepted_before = false;
            registrar->complaint.failing_since_us = 0;
            pthread_cond_wait(&registrar->changed, &registrar->mutex);
            continue;
        }
        uint64_t rest_us = registrar->config.heartbeat_us;
        if (registrar_call(registrar)) {
            registrar->backoff_us = FIRST_BACKOFF_US;
        } else {
            rest_us = registrar->backoff_us * 3 / 4 + rng_entropy() % (registrar->backoff_us / 2);
            registrar->backoff_us *= 2;
            if (registrar->backoff_us > registrar->config.max_backoff_us)
                registrar->backoff_us = registrar->config.max_backoff_us;
        }
        if (!registrar->session_up)
            registrar_rest(registrar, rest_us);
    }
    pthread_mutex_unlock(&registrar->mutex);
    return NULL;
}

static enum status registrar_pack(const struct registrar *registrar, bool leaving,
                                  struct packed *packed)
{
    Baton__Worker__V1__WorkerInfo info = worker_message_of(&registrar->config.info);
    Baton__Worker__V1__RegisterRequest request = BATON__WORKER__V1__REGISTER_REQUEST__INIT;
    request.info = &info;
    request.leaving = leaving;
    packed->size = baton__worker__v1__register_request__get_packed_size(&request);
    packed->data = malloc(packed->size);
    if (!packed->data)
        return STATUS_LIMIT;
    baton__worker__v1__register_request__pack(&request, packed->data);
    return STATUS_OK;
}

enum status registrar_start(const struct registrar_config *config, struct registrar **out,
                            struct error *err)
{
    struct registrar *registrar = calloc(1, sizeof *registrar);
    if (!registrar)
        return error_set(err, STATUS_LIMIT, "registrar: out of memory");
    registrar->config = *config;
    registrar->config.heartbeat_us = config->heartbeat_us ? config->heartbeat_us : 1000000;
    registrar->config.max_backoff_us = config->max_backoff_us ? config->max_backoff_us : 2000000;
    registrar->backoff_us = FIRST_BACKOFF_US;
    str_copy(registrar->router_address, sizeof registrar->router_address, config->router_address);
    registrar->config.router_address = registrar->router_address;
    pthread_mutex_init(&registrar->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&registrar->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);

    struct rpc_channel_config channel = {.target = registrar->router_address,
                                         .tls = config->tls,
                                         .max_message_bytes = MESSAGE_MAX_BYTES,
                                         .max_queued_bytes = MESSAGE_MAX_BYTES};
    enum status status = registrar_pack(registrar, false, &registrar->joining);
    if (status == STATUS_OK)
        status = registrar_pack(registrar, true, &registrar->leaving_request);
    if (status != STATUS_OK)
        goto fail_registrar;
    status = rpc_channel_create(config->runtime, &channel, &registrar->channel, err);
    if (status != STATUS_OK)
        goto fail_registrar;
    if (pthread_create(&registrar->thread, NULL, registrar_main, registrar)) {
        status = error_set(err, STATUS_IO, "registrar: can't start a thread");
        goto fail_channel;
    }
    *out = registrar;
    return STATUS_OK;

fail_channel:
    rpc_channel_destroy(registrar->channel);
fail_registrar:
    pthread_cond_destroy(&registrar->changed);
    pthread_mutex_destroy(&registrar->mutex);
    free(registrar->joining.data);
    free(registrar->leaving_request.data);
    free(registrar);
    return status;
}

void registrar_session_up(struct registrar *registrar, bool up)
{
    pthread_mutex_lock(&registrar->mutex);
    registrar->session_up = up;
    pthread_cond_broadcast(&registrar->changed);
    pthread_mutex_unlock(&registrar->mutex);
}

void registrar_leave(struct registrar *registrar)
{
    pthread_mutex_lock(&registrar->mutex);
    registrar->leaving = true;
    pthread_cond_broadcast(&registrar->changed);
    while (!registrar->left)
        pthread_cond_wait(&registrar->changed, &registrar->mutex);
    pthread_mutex_unlock(&registrar->mutex);
}

void registrar_stop(struct registrar *registrar)
{
    if (!registrar)
        return;
    pthread_mutex_lock(&registrar->mutex);
    registrar->stopping = true;
    pthread_cond_broadcast(&registrar->changed);
    pthread_mutex_unlock(&registrar->mutex);
    pthread_join(registrar->thread, NULL);
    rpc_channel_destroy(registrar->channel);
    pthread_cond_destroy(&registrar->changed);
    pthread_mutex_destroy(&registrar->mutex);
    free(registrar->joining.data);
    free(registrar->leaving_request.data);
    free(registrar);
}
