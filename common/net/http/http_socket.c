#include "common/net/http/http_socket.h"

#include "common/base/failpoint.h"
#include "common/base/str.h"
#include "common/net/crypto/tls_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/util.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEND_PARTS 64

/* --- addresses --- */

enum status http_peer_parse(const char *text, struct http_peer *peer, socklen_t *length,
                            struct error *err)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    uint64_t port;
    *peer = (struct http_peer){0};
    bool shaped = colon && (size_t)(colon - text) < sizeof host &&
                  str_to_u64(colon + 1, 0, UINT16_MAX, &port);
    if (shaped) {
        int size = sizeof peer->address;
        memcpy(host, text, (size_t)(colon - text));
        host[colon - text] = 0;
        const char *numeric = strcmp(host, "localhost") ? host : "127.0.0.1";
        shaped = evutil_parse_sockaddr_port(numeric, &peer->address.any, &size) == 0;
        *length = (socklen_t)size;
    }
    if (!shaped)
        return error_set(err, STATUS_INVALID,
                         "cannot listen on '%s' for HTTP: give a numeric host, or localhost, and a "
                         "port, like 127.0.0.1:9090, [::1]:9090, or 0.0.0.0:9090 for all addresses",
                         text);
    /* sin_port and sin6_port lie at the same place. */
    peer->address.v4.sin_port = htons((uint16_t)port);
    return STATUS_OK;
}

void http_peer_name(const struct http_peer *peer, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (peer->address.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &peer->address.v4.sin_addr, host, sizeof host);
        snprintf(text, size, "%s:%d", host, ntohs(peer->address.v4.sin_port));
    } else {
        inet_ntop(AF_INET6, &peer->address.v6.sin6_addr, host, sizeof host);
        snprintf(text, size, "[%s]:%d", host, ntohs(peer->address.v6.sin6_port));
    }
}

/* --- bytes --- */

bool http_socket_begin(struct tls_server *tls, int fd, struct http_socket *socket)
{
    *socket = (struct http_socket){.fd = fd};
    if (tls)
        socket->tls = tls_server_begin(tls, fd);
    return !tls || socket->tls;
}

static enum http_io outcome_of(ssize_t done, enum http_io wait)
{
    if (done > 0)
        return HTTP_IO_DONE;
    return done < 0 && (errno == EAGAIN || errno == EINTR) ? wait : HTTP_IO_CLOSED;
}

static enum http_io outcome_of_tls(enum tls_io done)
{
    switch (done) {
    case TLS_DONE: return HTTP_IO_DONE;
    case TLS_WAIT_READ: return HTTP_IO_WAIT_READ;
    case TLS_WAIT_WRITE: return HTTP_IO_WAIT_WRITE;
    case TLS_FLOOD: return HTTP_IO_FLOOD;
    case TLS_CLOSED: break;
    }
    return HTTP_IO_CLOSED;
}

enum http_io http_socket_receive(struct http_socket *socket, void *bytes, size_t size,
                                 size_t *count)
{
    if (FAILPOINT_FAILS("http.receive"))
        return HTTP_IO_CLOSED;
    if (socket->tls)
        return outcome_of_tls(tls_receive(socket->tls, bytes, size, count));
    ssize_t got = recv(socket->fd, bytes, size, 0);
    if (got > 0)
        *count = (size_t)got;
    return outcome_of(got, HTTP_IO_WAIT_READ);
}

/* evbuffer_write would raise SIGPIPE on threads that aren't a loop's. */
static enum http_io send_plain(struct http_socket *socket, struct evbuffer *out)
{
    struct iovec parts[SEND_PARTS];
    int count = evbuffer_peek(out, -1, NULL, parts, SEND_PARTS);
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = (size_t)(count < SEND_PARTS ? count : SEND_PARTS)};
    ssize_t sent = sendmsg(socket->fd, &message, MSG_NOSIGNAL);
    if (sent > 0)
        evbuffer_drain(out, (size_t)sent);
    return outcome_of(sent, HTTP_IO_WAIT_WRITE);
}

enum http_io http_socket_send(struct http_socket *socket, struct evbuffer *out)
{
    if (FAILPOINT_FAILS("http.send"))
        return HTTP_IO_CLOSED;
    if (!socket->tls)
        return send_plain(socket, out);
    /* One record. Its bytes have to lie in a row. */
    size_t length = evbuffer_get_length(out), count = 0;
    length = length < TLS_RECORD_BYTES ? length : TLS_RECORD_BYTES;
    const unsigned char *bytes = evbuffer_pullup(out, (ev_ssize_t)length);
    enum http_io done = outcome_of_tls(tls_send(socket->tls, bytes, length, &count));
    if (done == HTTP_IO_DONE)
        evbuffer_drain(out, count);
    return done;
}

void http_socket_shut(struct http_socket *socket)
{
    if (socket->tls)
        tls_shut(socket->tls);
    shutdown(socket->fd, SHUT_WR);
}

bool http_socket_is_gone(const struct http_socket *socket)
{
    struct pollfd state = {.fd = socket->fd, .events = POLLRDHUP};
    return poll(&state, 1, 0) > 0 && state.revents;
}

void http_socket_close(struct http_socket *socket, bool hard)
{
    struct linger reset = {1, 0};
    tls_free(socket->tls);
    socket->tls = NULL;
    if (hard)
        setsockopt(socket->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(socket->fd);
}
