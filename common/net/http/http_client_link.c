#include "common/net/http/http_client_link.h"

#include "common/base/clock.h"
#include "common/net/http/http_lookup.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum status wait_for(const struct http_client_link *link, short events, struct error *err)
{
    struct pollfd ready = {.fd = link->fd, .events = events};
    for (;;) {
        uint64_t now_us = clock_now_us();
        uint64_t left_us = now_us < link->deadline_us ? link->deadline_us - now_us : 0;
        int count = poll(&ready, 1, (int)((left_us + 999) / 1000));
        if (count > 0)
            return STATUS_OK;
        if (count == 0)
            return error_set(err, STATUS_TIMEOUT, "%s did not answer in time",
                             link->url->authority);
        if (errno != EINTR)
            return error_set(err, STATUS_IO, "waiting for %s: %s", link->url->authority,
                             strerror(errno));
    }
}

static void close_socket(struct http_client_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

static enum status connect_to(struct http_client_link *link, const struct addrinfo *address,
                              struct error *err)
{
    link->fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int refused = link->fd < 0 ? -1 : connect(link->fd, address->ai_addr, address->ai_addrlen);
    int error = refused ? errno : 0;
    if (error == EINPROGRESS) {
        TRY(wait_for(link, POLLOUT, err));
        socklen_t length = sizeof error;
        getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    return error ? error_set(err, STATUS_UNAVAILABLE, "cannot connect to %s: %s",
                             link->url->authority, strerror(error))
                 : STATUS_OK;
}

/* A name may stand for several addresses ("localhost" for one of IPv6, too): the first that takes
 * it. */
static enum status dial(struct http_client_link *link, struct error *err)
{
    struct addrinfo *found;
    TRY(http_lookup(link->url, link->deadline_us, &found, err));
    enum status status = STATUS_UNAVAILABLE;
    for (const struct addrinfo *next = found; next && status == STATUS_UNAVAILABLE;
         next = next->ai_next) {
        close_socket(link);
        status = connect_to(link, next, err);
    }
    freeaddrinfo(found);
    return status;
}

/* After a step of TLS that must wait. */
static enum status wait_as(const struct http_client_link *link, enum http_io io, struct error *err)
{
    return wait_for(link, io == HTTP_IO_WAIT_READ ? POLLIN : POLLOUT, err);
}

static enum status shake_hands(struct http_client_link *link, struct error *err)
{
    for (;;) {
        enum status status;
        enum http_io io = http_client_tls_handshake(link->tls, &status, err);
        if (io == HTTP_IO_DONE || io == HTTP_IO_CLOSED)
            return status;
        TRY(wait_as(link, io, err));
    }
}

enum status http_client_link_open(struct http_client_link *link,
                                  const struct http_client_tls_plan *plan, struct error *err)
{
    TRY(dial(link, err));
    if (!plan->url->tls)
        return STATUS_OK;
    struct http_client_tls_plan connected = *plan;
    connected.fd = link->fd;
    TRY(http_client_tls_begin(&connected, &link->tls, err));
    return shake_hands(link, err);
}

void http_client_link_close(struct http_client_link *link)
{
    http_client_tls_end(link->tls);
    link->tls = NULL;
    close_socket(link);
}

static enum http_io send_some(struct http_client_link *link, const char *bytes, size_t count,
                              size_t *sent, enum status *status, struct error *err)
{
    *status = STATUS_OK;
    if (link->tls)
        return http_client_tls_send(link->tls, bytes, count, sent, status, err);
    ssize_t now = send(link->fd, bytes, count, MSG_NOSIGNAL);
    *sent = now > 0 ? (size_t)now : 0;
    if (now < 0 && (errno == EAGAIN || errno == EINTR))
        return HTTP_IO_WAIT_WRITE;
    return now < 0 ? HTTP_IO_CLOSED : HTTP_IO_DONE;
}

enum status http_client_link_send(struct http_client_link *link, const char *bytes, size_t count,
                                  struct error *err)
{
    while (count) {
        enum status status;
        size_t sent = 0;
        enum http_io io = send_some(link, bytes, count, &sent, &status, err);
        if (io == HTTP_IO_CLOSED)
            return status;
        if (io != HTTP_IO_DONE)
            TRY(wait_as(link, io, err));
        bytes += sent;
        count -= sent;
    }
    return STATUS_OK;
}

static enum http_io receive_some(struct http_client_link *link, char *bytes, size_t size,
                                 size_t *count, enum status *status, struct error *err)
{
    *status = STATUS_OK;
    if (link->tls)
        return http_client_tls_receive(link->tls, bytes, size, count, status, err);
    ssize_t now = recv(link->fd, bytes, size, 0);
    *count = now > 0 ? (size_t)now : 0;
    if (now < 0 && (errno == EAGAIN || errno == EINTR))
        return HTTP_IO_WAIT_READ;
    link->over = now == 0;
    return now > 0 ? HTTP_IO_DONE : HTTP_IO_CLOSED;
}

enum status http_client_link_receive(struct http_client_link *link, char *bytes, size_t size,
                                     size_t *count, struct error *err)
{
    for (;;) {
        enum status status;
        *count = 0;
        enum http_io io = receive_some(link, bytes, size, count, &status, err);
        if (link->tls)
            link->over = http_client_tls_is_over(link->tls);
        if (io == HTTP_IO_DONE || io == HTTP_IO_CLOSED)
            return status;
        TRY(wait_as(link, io, err));
    }
}
