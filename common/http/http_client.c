#include "common/http/http_client.h"

#include "common/base/clock.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_HEAD_BYTES        16384
#define MAX_POST_ANSWER_BYTES 65536

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

static enum status send_all(const struct exchange *exchange, const char *bytes, size_t count,
                            struct error *err)
{
    for (size_t sent = 0; sent < count;) {
        TRY(wait_for(exchange, POLLOUT, err));
        ssize_t now = send(exchange->fd, bytes + sent, count - sent, MSG_NOSIGNAL);
        if (now < 0 && errno != EAGAIN && errno != EINTR)
            return error_set(err, STATUS_UNAVAILABLE, "sending to %s: %s", exchange->address,
                             strerror(errno));
        sent += now > 0 ? (size_t)now : 0;
    }
    return STATUS_OK;
}

/* `body` NULL: a GET. */
static enum status send_request(const struct exchange *exchange, const char *path,
                                const char *content_type, const struct str *body, struct error *err)
{
    char request[512], of_body[160] = "";
    if (body)
        snprintf(of_body, sizeof of_body, "Content-Type: %s\r\nContent-Length: %zu\r\n",
                 content_type, body->length);
    int length = snprintf(request, sizeof request,
                          "%s %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n",
                          body ? "POST" : "GET", path, exchange->address, of_body);
    if (length >= (int)sizeof request)
        return error_set(err, STATUS_LIMIT, "path '%.64s...' is too long", path);
    TRY(send_all(exchange, request, (size_t)length, err));
    return body ? send_all(exchange, body->data, body->length, err) : STATUS_OK;
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
        return error_set(err, strncmp(text + 8, " 404", 4) ? STATUS_INVALID : STATUS_NOT_FOUND,
                         "%s answered %.*s", exchange->address, (int)strcspn(text + 9, "\r\n"),
                         text + 9);
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
        status = send_request(&exchange, path, "", NULL, err);
    if (status == STATUS_OK)
        status = receive_all(&exchange, err);
    if (status == STATUS_OK)
        status = take_body(&exchange, body, err);
    if (exchange.fd >= 0)
        close(exchange.fd);
    str_deinit(&exchange.received);
    return status;
}

enum status http_post(const char *address, const char *path, const char *content_type,
                      const struct str *body, uint64_t timeout_us, struct error *err)
{
    struct exchange exchange = {
        .address = address, .fd = -1, .deadline_us = clock_now_us() + timeout_us};
    str_init(&exchange.received, MAX_POST_ANSWER_BYTES);
    enum status status = connect_to(&exchange, err);
    if (status == STATUS_OK)
        status = send_request(&exchange, path, content_type, body, err);
    if (status == STATUS_OK)
        status = receive_all(&exchange, err);
    const char *text = exchange.received.data;
    if (status == STATUS_OK && (strncmp(text, "HTTP/1.", 7) || strlen(text) < 12))
        status = error_set(err, STATUS_INVALID, "%s does not speak HTTP", address);
    else if (status == STATUS_OK && strncmp(text + 8, " 2", 2))
        status = error_set(err, STATUS_INVALID, "%s answered %.*s", address,
                           (int)strcspn(text + 9, "\r\n"), text + 9);
    if (exchange.fd >= 0)
        close(exchange.fd);
    str_deinit(&exchange.received);
    return status;
}
