#include "router/ops/otlp.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "common/base/rng.h"
#include "router/ops/otlp_json.h"

#include <pthread.h>
#include <stdlib.h>

#define MOD  "otlp"
#define PATH "/v1/traces"

struct otlp {
    char endpoint[HTTP_URL_BYTES];
    struct http_remote collector; /* its URL is `endpoint` */
    struct counter *dropped;
    struct ring *ring; /* struct request_trace; the one without a name is the end */
    pthread_t thread;
};

static void post(struct otlp *otlp, const struct str *body, uint64_t count)
{
    struct error err;
    char quoted[700];
    if (http_post(&otlp->collector, PATH, "application/json", body, OTLP_TIMEOUT_US, &err) ==
        STATUS_OK)
        return;
    counter_add(otlp->dropped, count);
    log_warn_limited(MOD, "endpoint=%s requests=%llu why=%s msg=\"spans are dropped\"",
                     otlp->endpoint, (unsigned long long)count,
                     log_quote(err.text, quoted, sizeof quoted));
}

/* From this one on what waits. False: the end came. */
static bool send_batch(struct otlp *otlp, struct request_trace *trace)
{
    struct str body;
    uint64_t count = 0;
    bool more = true;
    str_init(&body, OTLP_MAX_POST_BYTES);
    otlp_json_begin(&body);
    int64_t offset_us = (int64_t)(clock_unix_us() - clock_now_us());
    while (trace && more) {
        more = *trace->name != 0;
        if (more)
            otlp_json_spans(trace, rng_entropy(), offset_us, &body);
        count += more;
        free(trace);
        trace = more && count < OTLP_MAX_BATCH ? ring_pop(otlp->ring) : NULL;
    }
    otlp_json_end(&body);
    ASSERT(!body.truncated); /* a request's spans are bounded, far below their share */
    if (count)
        post(otlp, &body, count);
    str_deinit(&body);
    return more;
}

static void *send_spans(void *argument)
{
    struct otlp *otlp = argument;
    pthread_setname_np(pthread_self(), "otlp");
    while (send_batch(otlp, ring_wait(otlp->ring, UINT64_MAX)))
        ;
    return NULL;
}

void otlp_ended(struct otlp *otlp, const struct request_trace *trace)
{
    struct request_trace *copy = NULL;
    if (*trace->name && ring_count(otlp->ring) < OTLP_MAX_WAITING)
        copy = malloc(sizeof *copy);
    if (copy)
        *copy = *trace;
    if (!copy || ring_push(otlp->ring, copy) != STATUS_OK) {
        free(copy);
        counter_add(otlp->dropped, 1);
    }
}

enum status otlp_start(const struct http_remote *collector, struct counter *dropped,
                       struct otlp **out, struct error *err)
{
    TRY(http_remote_check(collector, err));
    struct otlp *otlp = calloc(1, sizeof *otlp);
    if (!otlp)
        return error_set(err, STATUS_LIMIT, "out of memory for otlp-endpoint");
    otlp->dropped = dropped;
    otlp->collector = *collector;
    str_copy(otlp->endpoint, sizeof otlp->endpoint, collector->url);
    otlp->collector.url = otlp->endpoint;
    if (ring_create(OTLP_MAX_WAITING + 1, &otlp->ring) != STATUS_OK || /* and the end */
        pthread_create(&otlp->thread, NULL, send_spans, otlp)) {
        ring_destroy(otlp->ring);
        free(otlp);
        return error_set(err, STATUS_LIMIT, "cannot start the thread of otlp-endpoint");
    }
    *out = otlp;
    return STATUS_OK;
}

/* What the collector has not taken by now goes with the end, but for the batch that is in hand. */
void otlp_stop(struct otlp *otlp)
{
    if (!otlp)
        return;
    for (struct request_trace *trace;
         ring_count(otlp->ring) > OTLP_MAX_BATCH - 1 && (trace = ring_pop(otlp->ring));) {
        free(trace);
        counter_add(otlp->dropped, 1);
    }
    struct request_trace *end = calloc(1, sizeof *end);
    enum status status = end ? ring_push(otlp->ring, end) : STATUS_LIMIT;
    ASSERT(status == STATUS_OK); /* there is a place for it */
    pthread_join(otlp->thread, NULL);
    ring_destroy(otlp->ring);
    free(otlp);
}
