#include "common/net/http/http_socket.h"

#include "common/base/failpoint.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define TLS_RECORD_BYTES 16384
#define SEND_PARTS       64

static enum http_io outcome_of(int error, enum http_io wait)
{
    return error == EAGAIN || error == EINTR ? wait : HTTP_IO_CLOSED;
}

enum http_io http_socket_receive(struct http_socket *socket, void *bytes, size_t size,
                                 size_t *count)
{
    if (FAILPOINT_FAILS("http.receive"))
        return HTTP_IO_CLOSED;
    if (socket->tls)
        return http_tls_receive(socket->tls, bytes, size, count);
    ssize_t got = recv(socket->fd, bytes, size, 0);
    if (got < 0)
        return outcome_of(errno, HTTP_IO_WAIT_READ);
    *count = (size_t)got;
    return got ? HTTP_IO_DONE : HTTP_IO_CLOSED;
}

/* evbuffer_write would raise SIGPIPE on threads that aren't a loop's. */
static enum http_io send_plain(struct http_socket *socket, struct evbuffer *out)
{
    struct iovec parts[SEND_PARTS];
    int count = evbuffer_peek(out, -1, NULL, parts, SEND_PARTS);
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = (size_t)(count < SEND_PARTS ? count : SEND_PARTS)};
    ssize_t sent = sendmsg(socket->fd, &message, MSG_NOSIGNAL);
    if (sent < 0)
        return outcome_of(errno, HTTP_IO_WAIT_WRITE);
    evbuffer_drain(out, (size_t)sent);
    return sent ? HTTP_IO_DONE : HTTP_IO_CLOSED;
}

/* A record at a time, whose bytes are made to lie in a row. */
static enum http_io send_tls(struct http_socket *socket, struct evbuffer *out)
{
    size_t length = evbuffer_get_length(out), count = 0;
    length = length < TLS_RECORD_BYTES ? length : TLS_RECORD_BYTES;
    const unsigned char *bytes = evbuffer_pullup(out, (ev_ssize_t)length);
    enum http_io done = http_tls_send(socket->tls, bytes, length, &count);
    if (done == HTTP_IO_DONE)
        evbuffer_drain(out, count);
    return done;
}

enum http_io http_socket_send(struct http_socket *socket, struct evbuffer *out)
{
    if (FAILPOINT_FAILS("http.send"))
        return HTTP_IO_CLOSED;
    return socket->tls ? send_tls(socket, out) : send_plain(socket, out);
}

void http_socket_shut(struct http_socket *socket)
{
    if (socket->tls)
        http_tls_say_goodbye(socket->tls);
    shutdown(socket->fd, SHUT_WR);
}

bool http_socket_is_gone(const struct http_socket *socket)
{
    struct pollfd state = {.fd = socket->fd, .events = POLLRDHUP};
    return poll(&state, 1, 0) > 0 && state.revents;
}

void http_socket_close(struct http_socket *socket, bool hard)
{
    if (socket->tls)
        http_tls_end(socket->tls);
    socket->tls = NULL;
    struct linger reset = {1, 0};
    if (hard)
        setsockopt(socket->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(socket->fd);
}
