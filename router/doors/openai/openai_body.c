#include "router/doors/openai/openai_body.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "router/doors/body_readers.h"
#include "router/doors/openai/openai_admit.h"
#include "router/doors/openai/openai_submit.h"
#include "router/ops/router_metrics.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

/* A large body until it is read, or its client has left. */
struct large_body {
    struct body_job job;
    atomic_uint references; /* one of the readers, one of the exchange's watcher */
    struct openai_api *api;
    struct http_exchange *exchange;
    const char *method;
    openai_body_read *read;
    uint64_t arrival_us;
};

static void unref(struct large_body *body)
{
    if (atomic_fetch_sub(&body->references, 1) > 1)
        return;
    http_exchange_drop(body->exchange);
    free(body);
}

/* Writes the lines of a request that nothing was read of. */
static void leave(const struct large_body *body)
{
    char name[REQUEST_ID_BYTES];
    openai_request_id(body->exchange, name);
    openai_log_answer(body->api, body->exchange, body->method, name, NULL, REASON_CANCELLED);
    if (!*body->method)
        router_metrics_ended(body->api->metrics, ROUTER_NO_MODEL, REASON_CANCELLED);
}

/* The client has left, or the server stops. On the loop's thread, or the one that stops it. */
static void on_over(void *context, struct http_exchange *exchange, enum http_outcome outcome)
{
    (void)exchange;
    (void)outcome;
    struct large_body *body = context;
    if (body_readers_take_back(body->api->readers, &body->job)) {
        leave(body);
        unref(body);
    }
    unref(body);
}

/* On a reader's thread. */
static void on_turn(struct body_job *job)
{
    struct large_body *body = (struct large_body *)((char *)job - offsetof(struct large_body, job));
    if (http_exchange_unwatch(body->exchange)) {
        body->read(body->api, body->exchange, body->arrival_us);
        unref(body); /* for the watcher, which isn't called any more */
    } else {
        leave(body);
    }
    unref(body);
}

void openai_body_take(struct openai_api *api, struct http_exchange *exchange, const char *method,
                      openai_body_read *read)
{
    uint64_t arrival_us = clock_now_us();
    if (!body_readers_wanted(api->readers, http_exchange_body(exchange)->length)) {
        read(api, exchange, arrival_us);
        return;
    }
    struct large_body *body = malloc(sizeof *body);
    ASSERT(body);
    *body = (struct large_body){.job = {.read = on_turn},
                                .references = 2,
                                .api = api,
                                .exchange = exchange,
                                .method = method,
                                .read = read,
                                .arrival_us = arrival_us};
    http_exchange_keep(exchange);
    uint64_t owner = openai_owner(exchange);
    bool watched = http_exchange_watch(exchange, on_over, body);
    bool given = body_readers_give(api->readers, &body->job, owner);
    ASSERT(watched && given); /* this is its loop's thread; the HTTP server counts the bytes */
}
