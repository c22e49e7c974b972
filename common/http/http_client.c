#include "common/http/http_client.h"

#include "common/base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_HEAD_BYTES 16384

struct exchange {
    const char *address;
    int fd;
    uint64_t deadline_us;
    struct str received; /* head and body */
};

static enum status wait_for(const struct exchange *exchange, short events, struct error *err)
{
    struct pollfd ready = {.fd = exchange->fd, .events = events};
    for (;;) {
        uint64_t now_us = clock_now_us();
        uint64_t left_us = now_us < exchange->deadline_us ? exchange->deadline_us - now_us : 0;
        int count = poll(&ready, 1, (int)((left_us + 999) / 1000));
        if (count > 0)
            return STATUS_OK;
        if (count == 0)
            return error_set(err, STATUS_TIMEOUT, "%s did not answer in time", exchange->address);
        if (errno != EINTR)
            return error_set(err, STATUS_IO, "waiting for %s: %s", exchange->address,
                             strerror(errno));
    }
}

static enum status split_address(const char *address, char *host, size_t host_size,
                                 const char **port, struct error *err)
{
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    if (!colon || !length || length >= host_size || !colon[1])
        return error_set(err, STATUS_INVALID, "'%s' is not host:port", address);
    if (address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    memcpy(host, address, length);
    host[length] = 0;
    *port = colon + 1;
    return STATUS_OK;
}

static enum status connect_to(struct exchange *exchange, struct error *err)
{
    char host[128];
    const char *port = NULL;
    TRY(split_address(exchange->address, host, sizeof host, &port, err));
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return error_set(err, STATUS_UNAVAILABLE, "%s: %s", exchange->address,
                         gai_strerror(failed));
    exchange->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int refused = exchange->fd < 0 ? -1 : connect(exchange->fd, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    int error = refused ? errno : 0;
    if (error == EINPROGRESS) {
        TRY(wait_for(exchange, POLLOUT, err));
        socklen_t length = sizeof error;
        getsockopt(exchange->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error)
        return error_set(err, STATUS_UNAVAILABLE, "cannot connect to %s: %s", exchange->address,
                         strerror(error));
    return STATUS_OK;
}

static enum status send_request(const struct exchange *exchange, const char *path,
                                struct error *err)
{
    char request[512];
    int length = snprintf(request, sizeof request,
                          "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path,
                          exchange->address);
    if (length >= (int)sizeof request)
        return error_set(err, STATUS_LIMIT, "path '%.64s...' is too long", path);
    for (int sent = 0; sent < length;) {
        TRY(wait_for(exchange, POLLOUT, err));
        ssize_t count = send(exchange->fd, request + sent, (size_t)(length - sent), MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return error_set(err, STATUS_UNAVAILABLE, "sending to %s: %s", exchange->address,
                             strerror(errno));
        sent += count > 0 ? (int)count : 0;
    }
    return STATUS_OK;
}

static enum status receive_all(struct exchange *exchange, struct error *err)
{
    for (;;) {
        char buffer[16384];
        TRY(wait_for(exchange, POLLIN, err));
        ssize_t count = recv(exchange->fd, buffer, sizeof buffer, 0);
        if (count == 0)
            return STATUS_OK;
        if (count < 0 && errno != EAGAIN && errno != EINTR)
            return error_set(err, STATUS_UNAVAILABLE, "reading from %s: %s", exchange->address,
                             strerror(errno));
        str_append(&exchange->received, buffer, count > 0 ? (size_t)count : 0);
        if (exchange->received.truncated)
            return error_set(err, STATUS_LIMIT, "the answer of %s is larger than %zu bytes",
                             exchange->address, exchange->received.limit);
    }
}

static enum status take_body(const struct exchange *exchange, struct str *body, struct error *err)
{
    const char *text = exchange->received.data;
    const char *end = strstr(text, "\r\n\r\n");
    if (strncmp(text, "HTTP/1.", 7) || strlen(text) < 12 || !end)
        return error_set(err, STATUS_INVALID, "%s does not speak HTTP", exchange->address);
    if (strncmp(text + 8, " 200", 4))
        return error_set(err, STATUS_INVALID, "%s answered %.*s", exchange->address,
                         (int)strcspn(text + 9, "\r\n"), text + 9);
    end += 4;
    str_append(body, end, exchange->received.length - (size_t)(end - text));
    return body->truncated
               ? error_set(err, STATUS_LIMIT, "the answer of %s is too large", exchange->address)
               : STATUS_OK;
}

enum status http_get(const char *address, const char *path, uint64_t timeout_us, struct str *body,
                     struct error *err)
{
    struct exchange exchange = {
        .address = address, .fd = -1, .deadline_us = clock_now_us() + timeout_us};
    str_init(&exchange.received, body->limit + MAX_HEAD_BYTES);
    enum status status = connect_to(&exchange, err);
    if (status == STATUS_OK)
        status = send_request(&exchange, path, err);
    if (status == STATUS_OK)
        status = receive_all(&exchange, err);
    if (status == STATUS_OK)
        status = take_body(&exchange, body, err);
    if (exchange.fd >= 0)
        close(exchange.fd);
    str_deinit(&exchange.received);
    return status;
}
