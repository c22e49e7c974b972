#include "common/base/log.h"
#include "common/base/str.h"
#include "common/net/membership/worker_message.h"
#include "common/net/rpc/message.h"
#include "proto/proto_unpack.h"
#include "router/dispatch/workers.h"

#include <stdlib.h>

#define SESSION_PATH "/baton.worker.v1.Worker/Session"

void link_message_free(struct link_message *message)
{
    rpc_call_worked_off(message->link->call, message->size);
    arena_deinit(&message->arena);
    free(message);
}

/* Ends the stream: a worker that sends what can't be read is not to be relied on. */
static void give_up(struct worker_link *link, struct rpc_call *call, const char *why)
{
    char quoted[300];
    log_error_limited("worker_link", "worker_key=%llu why=%s msg=\"closing the session\"",
                      (unsigned long long)link->worker, log_quote(why, quoted, sizeof quoted));
    rpc_call_cancel(call);
}

static void on_message(struct rpc_call *call, struct rpc_bytes bytes)
{
    struct worker_link *link = rpc_call_context(call);
    struct error err;
    struct link_message *message = calloc(1, sizeof *message);
    if (!message) {
        give_up(link, call, "out of memory");
        return;
    }
    *message =
        (struct link_message){.message = {INBOX_LINK_MESSAGE}, .link = link, .size = bytes.size};
    rpc_call_put_aside(call, bytes.size);
    arena_init(&message->arena, proto_arena_bytes(bytes.size));
    ProtobufCMessage *up = NULL;
    if (proto_unpack(&baton__worker__v1__session_up__descriptor, bytes.data, bytes.size,
                     &message->arena, &up, &err) != STATUS_OK) {
        give_up(link, call, err.text);
        link_message_free(message);
        return;
    }
    message->up = (const Baton__Worker__V1__SessionUp *)up;
    if (inbox_post(link->inbox, &message->message) != STATUS_OK) {
        give_up(link, call, "the inbox is full");
        link_message_free(message);
    }
}

static void on_closed(struct rpc_call *call, const struct rpc_end *end)
{
    struct worker_link *link = rpc_call_context(call);
    link->code = end->code;
    str_copy(link->message, sizeof link->message, end->message ? end->message : "");
    inbox_post_reserved(link->inbox, &link->closed_message);
}

static void say_hello(struct worker_link *link, const struct worker_link_config *config)
{
    Baton__Worker__V1__RouterHello hello = BATON__WORKER__V1__ROUTER_HELLO__INIT;
    hello.incarnation = config->router_incarnation;
    hello.worker = (char *)config->worker_name; /* packing only reads */
    hello.worker_incarnation = config->worker_incarnation;
    hello.version = WORKER_PROTOCOL_VERSION;
    hello.version_min = WORKER_PROTOCOL_LEAST;
    Baton__Worker__V1__SessionDown command = BATON__WORKER__V1__SESSION_DOWN__INIT;
    command.command_case = BATON__WORKER__V1__SESSION_DOWN__COMMAND_HELLO;
    command.hello = &hello;
    if (worker_link_send(link, &command) == STATUS_LIMIT) /* with an empty queue: no memory */
        worker_link_close(link);
}

enum status worker_link_open(const struct worker_link_config *config, struct worker_link **out,
                             struct error *err)
{
    static const struct rpc_handlers handlers = {.message = on_message, .closed = on_closed};
    struct worker_link *link = calloc(1, sizeof *link);
    if (!link)
        return error_set(err, STATUS_LIMIT, "out of memory");
    link->closed_message.kind = INBOX_LINK_CLOSED;
    link->worker = config->worker;
    link->inbox = config->inbox;
    struct rpc_channel_config channel = {.target = config->address,
                                         .tls = config->tls,
                                         .max_message_bytes = WORKER_LINK_MAX_UP_BYTES,
                                         .max_queued_bytes = WORKER_LINK_MAX_QUEUED_BYTES,
                                         .keepalive_us = config->keepalive_us};
    enum status status = rpc_channel_create(config->runtime, &channel, &link->channel, err);
    if (status != STATUS_OK)
        goto fail_link;
    status = rpc_call_start(link->channel, SESSION_PATH, &handlers, link, 0, false, &link->call);
    if (status != STATUS_OK) {
        error_set(err, status, "can't start a call to %s", config->address);
        goto fail_channel;
    }
    say_hello(link, config);
    *out = link;
    return STATUS_OK;

fail_channel:
    rpc_channel_destroy(link->channel);
fail_link:
    free(link);
    return status;
}

enum status worker_link_send(struct worker_link *link,
                             const Baton__Worker__V1__SessionDown *command)
{
    return rpc_call_send_message(link->call, &command->base);
}

void worker_link_close(struct worker_link *link)
{
    rpc_call_cancel(link->call);
}

void worker_link_destroy(struct worker_link *link)
{
    rpc_call_unref(link->call);
    rpc_channel_destroy(link->channel);
    free(link);
}
