#include "tests/fuzz/fake_rpc.h"

#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>

struct rpc_channel {
    bool destroyed;
};

struct rpc_call {
    struct rpc_handlers handlers;
    const char *path;
    void *context;
    struct rpc_channel *channel; /* NULL: a client called us */
    unsigned references;
    bool client_streams, received; /* a unary call gets one message */
    bool half_closed;              /* by the other side */
    bool ended;                    /* by either side: only `closed` is due */
    /* its status waits behind messages that the client doesn't read */
    bool unread;
    bool closed;
    size_t aside; /* messages that were not worked off */
    enum rpc_code code;
    char reason[64], message[1100];
};

struct fake_rpc fake_rpc;

static struct rpc_call *call_new(const char *path, const struct rpc_handlers *handlers)
{
    if (fake_rpc.count == FAKE_MAX_CALLS)
        return NULL;
    struct rpc_call *call = calloc(1, sizeof *call);
    FUZZ_CHECK(call);
    call->path = path;
    call->handlers = *handlers;
    call->references = 1; /* ours, until it is forgotten */
    fake_rpc.calls[fake_rpc.count++] = call;
    return call;
}

static void call_end(struct rpc_call *call, enum rpc_code code, const char *reason,
                     const char *message)
{
    if (call->ended)
        return;
    call->ended = true;
    call->code = code;
    str_copy(call->reason, sizeof call->reason, reason ? reason : "");
    str_copy(call->message, sizeof call->message, message ? message : "");
}

struct rpc_call *fake_call_open(const struct rpc_method *method)
{
    struct rpc_call *call = call_new(method->path, &method->handlers);
    if (call) {
        call->client_streams = method->client_streams;
        call->handlers.open(call, method->service);
    }
    return call;
}

void fake_call_receive(struct rpc_call *call, struct fuzz_bytes bytes)
{
    bool second = !call->channel && !call->client_streams && call->received;
    if (call->ended || call->half_closed || second)
        return;
    call->received = true;
    /* Just as long, so that a read behind its end is seen. */
    uint8_t *copy = malloc(bytes.size + !bytes.size);
    FUZZ_CHECK(copy);
    memcpy(copy, bytes.data, bytes.size);
    call->handlers.message(call, (struct rpc_bytes){bytes.size ? copy : NULL, bytes.size});
    free(copy);
}

void fake_call_half_close(struct rpc_call *call)
{
    if (call->ended || call->half_closed || call->channel)
        return;
    call->half_closed = true;
    if (call->handlers.half_close)
        call->handlers.half_close(call);
}

void fake_call_end(struct rpc_call *call, enum rpc_code code)
{
    call->unread = false;
    call_end(call, code, "told", "the other side ended it");
}

static void call_settle(struct rpc_call *call)
{
    if (!call->ended || call->closed || (call->unread && fake_rpc.full))
        return;
    call->closed = true;
    if (call->handlers.closed)
        call->handlers.closed(call,
                              &(struct rpc_end){call->code, call->reason, call->message, false});
}

void fake_rpc_settle(void)
{
    for (size_t i = 0; i < fake_rpc.count; i++)
        call_settle(fake_rpc.calls[i]);
}

bool fake_call_closed(const struct rpc_call *call)
{
    return call->closed;
}

bool fake_call_is_client(const struct rpc_call *call)
{
    return call->channel != NULL;
}

bool fake_call_is_to(const struct rpc_call *call, const char *path)
{
    return !strcmp(call->path, path);
}

enum rpc_code fake_call_code(const struct rpc_call *call)
{
    return call->code;
}

void fake_rpc_forget(void)
{
    fake_rpc.full = false;
    for (size_t i = 0; i < fake_rpc.count; i++) {
        struct rpc_call *call = fake_rpc.calls[i];
        fake_call_end(call, RPC_CANCELLED);
        call_settle(call);
        FUZZ_CHECK(call->references == 1 && !call->aside);
        free(call);
    }
    fake_rpc.count = 0;
}

/* --- rpc.h, as targets call it --- */

enum status rpc_channel_create(struct rpc_runtime *runtime, const struct rpc_channel_config *config,
                               struct rpc_channel **channel, struct error *err)
{
    (void)runtime;
    if (!*config->target)
        return error_set(err, STATUS_INVALID, "no address to dial");
    *channel = calloc(1, sizeof **channel);
    FUZZ_CHECK(*channel);
    return STATUS_OK;
}

void rpc_channel_destroy(struct rpc_channel *channel)
{
    for (size_t i = 0; i < fake_rpc.count; i++)
        if (fake_rpc.calls[i]->channel == channel) {
            fake_call_end(fake_rpc.calls[i], RPC_CANCELLED);
            call_settle(fake_rpc.calls[i]);
        }
    free(channel);
}

enum status rpc_call_start(struct rpc_channel *channel, const char *path,
                           const struct rpc_handlers *handlers, void *context, uint64_t deadline_us,
                           bool wait_for_ready, struct rpc_call **out)
{
    (void)deadline_us;
    (void)wait_for_ready;
    struct rpc_call *call = call_new(path, handlers);
    if (!call)
        return STATUS_CANCELLED;
    call->channel = channel;
    call->context = context;
    call->references++;
    *out = call;
    return STATUS_OK;
}

void rpc_call_put_aside(struct rpc_call *call, size_t size)
{
    (void)size;
    call->aside++;
}

void rpc_call_worked_off(struct rpc_call *call, size_t size)
{
    (void)size;
    FUZZ_CHECK(call->aside);
    call->aside--;
}

void rpc_call_ref(struct rpc_call *call)
{
    call->references++;
}

void rpc_call_unref(struct rpc_call *call)
{
    FUZZ_CHECK(call->references > 1);
    call->references--;
}

void rpc_call_set_context(struct rpc_call *call, void *context)
{
    call->context = context;
}

void *rpc_call_context(const struct rpc_call *call)
{
    return call->context;
}

enum status rpc_call_send(struct rpc_call *call, const void *data, size_t size)
{
    if (call->ended)
        return STATUS_CANCELLED;
    if (fake_rpc.full)
        return STATUS_LIMIT;
    if (fake_rpc.sent)
        fake_rpc.sent(fake_rpc.observer, call, (struct rpc_bytes){data, size});
    return STATUS_OK;
}

enum status rpc_call_send_packed(struct rpc_call *call, size_t size,
                                 void (*pack)(void *target, const void *source), const void *source)
{
    uint8_t *bytes = malloc(size + !size);
    FUZZ_CHECK(bytes);
    pack(bytes, source);
    enum status status = rpc_call_send(call, bytes, size);
    free(bytes);
    return status;
}

size_t rpc_call_queued_bytes(struct rpc_call *call)
{
    (void)call;
    return fake_rpc.full ? 1 : 0;
}

void rpc_call_cancel(struct rpc_call *call)
{
    call_end(call, RPC_CANCELLED, NULL, NULL);
}

void rpc_call_finish(struct rpc_call *call, enum rpc_code code, const char *reason,
                     const char *message)
{
    FUZZ_CHECK(!call->channel);
    if (code != RPC_OK) {
        FUZZ_CHECK(reason && message);
        fuzz_check_sentence(reason);
        fuzz_check_sentence(message);
    }
    if (!call->ended)
        call->unread = fake_rpc.full;
    call_end(call, code, reason, message);
}

void rpc_call_break(struct rpc_call *call, enum rpc_code code, const char *message)
{
    FUZZ_CHECK(!call->channel);
    fuzz_check_sentence(message);
    call_end(call, code, "", message);
    call->unread = false;
}

/* Nothing waits here. */
void rpc_call_drop_queued(struct rpc_call *call)
{
    (void)call;
}

uint64_t rpc_call_deadline_left_us(const struct rpc_call *call)
{
    (void)call;
    return 60000000;
}

const char *rpc_call_peer(const struct rpc_call *call)
{
    (void)call;
    return "ipv4:127.0.0.1:9";
}

const char *rpc_call_metadata(const struct rpc_call *call, const char *key)
{
    (void)call;
    (void)key;
    return fake_rpc.header ? fake_rpc.header : "";
}

size_t rpc_call_metadata_count(const struct rpc_call *call, const char *key)
{
    (void)call;
    (void)key;
    return fake_rpc.header != NULL;
}

enum status rpc_call_add_trailer(struct rpc_call *call, const char *key, const char *value)
{
    return rpc_call_add_metadata(call, key, value);
}

enum status rpc_call_add_metadata(struct rpc_call *call, const char *key, const char *value)
{
    (void)key;
    for (const char *at = value; *at; at++)
        FUZZ_CHECK(*at >= ' ' && *at <= '~');
    return call->ended ? STATUS_CANCELLED : STATUS_OK;
}
