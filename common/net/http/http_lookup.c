#include "common/net/http/http_lookup.h"

#include "common/base/assert.h"
#include "common/base/failpoint.h"
#include "common/base/str.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Shared by who waits and the thread; the last of them frees it. */
struct lookup {
    char host[HTTP_URL_MAX_HOST_BYTES + 1], port[6];
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool done, left; /* the latter: nobody waits any more */
    int failed;      /* of getaddrinfo */
    struct addrinfo *found;
};

static atomic_uint under_way;

static int look_up(const char *host, const char *port, int flags, struct addrinfo **found)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    return getaddrinfo(host, port, &hints, found);
}

static struct lookup *lookup_create(const struct http_url *url)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    pthread_condattr_t monotonic;
    ASSERT(lookup);
    str_copy(lookup->host, sizeof lookup->host, url->host);
    str_copy(lookup->port, sizeof lookup->port, url->port);
    pthread_mutex_init(&lookup->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return lookup;
}

static void lookup_destroy(struct lookup *lookup)
{
    if (lookup->found)
        freeaddrinfo(lookup->found);
    pthread_cond_destroy(&lookup->changed);
    pthread_mutex_destroy(&lookup->lock);
    free(lookup);
    atomic_fetch_sub(&under_way, 1);
}

static void *lookup_main(void *argument)
{
    struct lookup *lookup = argument;
    struct addrinfo *found = NULL;
    pthread_setname_np(pthread_self(), "lookup");
    FAILPOINT("http.lookup");
    int failed = look_up(lookup->host, lookup->port, 0, &found);
    pthread_mutex_lock(&lookup->lock);
    lookup->failed = failed;
    lookup->found = failed ? NULL : found;
    lookup->done = true;
    bool left = lookup->left;
    pthread_cond_signal(&lookup->changed);
    pthread_mutex_unlock(&lookup->lock);
    if (left)
        lookup_destroy(lookup);
    return NULL;
}

static bool start_thread(struct lookup *lookup)
{
    pthread_attr_t detached;
    pthread_t thread;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int failed = pthread_create(&thread, &detached, lookup_main, lookup);
    pthread_attr_destroy(&detached);
    return !failed;
}

/* False: it isn't done, and the thread's. */
static bool wait_done(struct lookup *lookup, uint64_t deadline_us)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_us / 1000000),
                             .tv_nsec = (long)(deadline_us % 1000000) * 1000};
    pthread_mutex_lock(&lookup->lock);
    int late = 0;
    while (!lookup->done && !late)
        late = pthread_cond_timedwait(&lookup->changed, &lookup->lock, &until);
    bool done = lookup->done;
    lookup->left = !done;
    pthread_mutex_unlock(&lookup->lock);
    return done;
}

enum status http_lookup(const struct http_url *url, uint64_t deadline_us, struct addrinfo **found,
                        struct error *err)
{
    if (!look_up(url->host, url->port, AI_NUMERICHOST, found))
        return STATUS_OK;
    if (atomic_fetch_add(&under_way, 1) >= HTTP_LOOKUPS_MAX) {
        atomic_fetch_sub(&under_way, 1);
        return error_set(err, STATUS_UNAVAILABLE,
                         "%s: %d names are being looked up, and no name server answers",
                         url->authority, HTTP_LOOKUPS_MAX);
    }
    struct lookup *lookup = lookup_create(url);
    if (!start_thread(lookup)) {
        lookup_destroy(lookup);
        return error_set(err, STATUS_UNAVAILABLE, "%s: no thread can look it up", url->authority);
    }
    if (!wait_done(lookup, deadline_us))
        return error_set(err, STATUS_TIMEOUT, "%s: its address was not found in time",
                         url->authority);
    int failed = lookup->failed;
    *found = lookup->found;
    lookup->found = NULL;
    lookup_destroy(lookup);
    return failed
               ? error_set(err, STATUS_UNAVAILABLE, "%s: %s", url->authority, gai_strerror(failed))
               : STATUS_OK;
}
