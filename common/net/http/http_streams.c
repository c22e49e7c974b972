#include "common/net/http/http_streams.h"

#include "common/base/assert.h"
#include "common/net/http/http_transfer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MAX_EVENTS = 256 };

struct exchange {
    struct http_transfer transfer;
    struct http_streams *streams;
    void *context;
    char *path;
    struct error err; /* from its transfer's callbacks */
    struct exchange *previous, *next;
};

struct http_streams {
    const struct http_remote *remote;
    struct http_stream_handlers handlers;
    CURLM *multi;
    int loop, timer; /* the epoll instance, and libcurl's timer in it */
    struct exchange *first;
};

/* libcurl says which sockets it waits for. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *known)
{
    struct http_streams *streams = context;
    struct epoll_event event = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(streams->loop, EPOLL_CTL_DEL, fd, NULL); /* it may be closed already */
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0) |
                   (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0);
    if (epoll_ctl(streams->loop, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0)
        return -1;
    curl_multi_assign(streams->multi, fd, streams);
    return 0;
}

/* libcurl says when it wants to be called at the latest: in `ms`, or, -1, whenever. */
static int on_timer(CURLM *multi, long ms, void *context)
{
    const struct http_streams *streams = context;
    struct itimerspec at = {{0, 0}, {0, 0}};
    (void)multi;
    if (ms >= 0)
        at.it_value = (struct timespec){ms / 1000, ms ? ms % 1000 * 1000000 : 1};
    return timerfd_settime(streams->timer, 0, &at, NULL);
}

enum status http_streams_open(const struct http_remote *remote,
                              const struct http_stream_handlers *handlers,
                              struct http_streams **out, struct error *err)
{
    TRY(http_remote_check(remote, err));
    struct http_streams *streams = calloc(1, sizeof *streams);
    ASSERT(streams);
    *streams =
        (struct http_streams){.remote = remote,
                              .handlers = *handlers,
                              .loop = epoll_create1(EPOLL_CLOEXEC),
                              .timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = streams->timer};
    if (streams->loop < 0 || streams->timer < 0 ||
        epoll_ctl(streams->loop, EPOLL_CTL_ADD, streams->timer, &event) < 0) {
        error_set(err, STATUS_IO, "no descriptors for HTTP: %s", strerror(errno));
        http_streams_close(streams);
        return STATUS_IO;
    }
    unsigned bad = curl_global_init(CURL_GLOBAL_DEFAULT);
    streams->multi = curl_multi_init();
    ASSERT(streams->multi);
    bad |= curl_multi_setopt(streams->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    bad |= curl_multi_setopt(streams->multi, CURLMOPT_SOCKETDATA, streams);
    bad |= curl_multi_setopt(streams->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    bad |= curl_multi_setopt(streams->multi, CURLMOPT_TIMERDATA, streams);
    ASSERT(!bad);
    *out = streams;
    return STATUS_OK;
}

static size_t take(struct http_transfer *transfer, const char *bytes, size_t count)
{
    const struct exchange *exchange = (const struct exchange *)transfer;
    exchange->streams->handlers.bytes(exchange->context, (int)transfer->status, bytes, count);
    return count;
}

static void exchange_free(struct exchange *exchange)
{
    free(exchange->path);
    free(exchange);
}

enum status http_streams_post(struct http_streams *streams, const struct http_stream_post *post,
                              struct error *err)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    ASSERT(exchange);
    exchange->path = strdup(post->path);
    ASSERT(exchange->path);
    exchange->streams = streams;
    exchange->context = post->context;
    exchange->transfer = (struct http_transfer){.remote = streams->remote,
                                                .path = exchange->path,
                                                .content_type = "application/json",
                                                .headers = post->headers,
                                                .header_count = post->header_count,
                                                .body = post->body,
                                                .take = take,
                                                .err = &exchange->err};
    enum status status = http_transfer_open(&exchange->transfer, post->timeout_us, err);
    if (status != STATUS_OK) {
        exchange_free(exchange);
        return status;
    }
    CURLcode bad = curl_easy_setopt(exchange->transfer.curl, CURLOPT_PRIVATE, exchange);
    CURLMcode bad_too = curl_multi_add_handle(streams->multi, exchange->transfer.curl);
    ASSERT(!bad && !bad_too);
    exchange->next = streams->first;
    if (streams->first)
        streams->first->previous = exchange;
    streams->first = exchange;
    return STATUS_OK;
}

int http_streams_fd(const struct http_streams *streams)
{
    return streams->loop;
}

/* Takes the exchange out of libcurl's hands and out of the list. */
static void withdraw(struct http_streams *streams, struct exchange *exchange)
{
    curl_multi_remove_handle(streams->multi, exchange->transfer.curl);
    if (exchange->next)
        exchange->next->previous = exchange->previous;
    *(exchange->previous ? &exchange->previous->next : &streams->first) = exchange->next;
}

static void end(struct http_streams *streams, struct exchange *exchange, CURLcode result)
{
    struct error err = {""};
    enum status outcome = http_transfer_judge(&exchange->transfer, result, &err);
    if (exchange->transfer.failed != STATUS_OK)
        err = exchange->err;
    int status = exchange->transfer.has_head ? (int)exchange->transfer.status : 0;
    void *context = exchange->context;
    withdraw(streams, exchange);
    http_transfer_close(&exchange->transfer);
    exchange_free(exchange);
    streams->handlers.ended(context, status, outcome, &err);
}

void http_streams_run(struct http_streams *streams)
{
    struct epoll_event events[MAX_EVENTS];
    int running, count = epoll_wait(streams->loop, events, MAX_EVENTS, 0);
    for (int i = 0; i < count; i++) {
        uint64_t ignored;
        int fd = events[i].data.fd;
        bool is_timer = fd == streams->timer;
        uint32_t seen = events[i].events;
        if (is_timer && read(fd, &ignored, sizeof ignored) < 0)
            continue; /* it was set anew meanwhile */
        int flags = (seen & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
                    (seen & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                    (seen & EPOLLERR ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(streams->multi, is_timer ? CURL_SOCKET_TIMEOUT : fd,
                                 is_timer ? 0 : flags, &running);
    }
    for (CURLMsg *message; (message = curl_multi_info_read(streams->multi, &running));) {
        struct exchange *exchange = NULL;
        CURLcode result = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        end(streams, exchange, result);
    }
}

void http_streams_close(struct http_streams *streams)
{
    while (streams->first) {
        struct exchange *exchange = streams->first;
        withdraw(streams, exchange);
        http_transfer_close(&exchange->transfer);
        exchange_free(exchange);
    }
    if (streams->multi)
        curl_multi_cleanup(streams->multi);
    if (streams->loop >= 0)
        close(streams->loop);
    if (streams->timer >= 0)
        close(streams->timer);
    free(streams);
}
