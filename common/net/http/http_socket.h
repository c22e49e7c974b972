/* The bytes of one connection, with or without TLS, never blocking. One thread. Internal to this
 * folder. */
#ifndef BATON_NET_HTTP_HTTP_SOCKET_H
#define BATON_NET_HTTP_HTTP_SOCKET_H

#include "common/net/http/http_tls.h"

#include <event2/buffer.h>

struct http_socket {
    int fd;
    struct http_tls_session *tls; /* NULL: none is spoken */
};

/* Up to `size` bytes, HTTP_IO_DONE: *count of them, 1 or more. */
enum http_io http_socket_receive(struct http_socket *socket, void *bytes, size_t size,
                                 size_t *count);
/* As much of `out` as goes, which isn't empty; what went is gone from it. HTTP_IO_DONE: some
 * did. */
enum http_io http_socket_send(struct http_socket *socket, struct evbuffer *out);
/* Nothing more is sent. */
void http_socket_shut(struct http_socket *socket);
/* Whether the other end has closed it, or its half, behind bytes that nobody reads. */
bool http_socket_is_gone(const struct http_socket *socket);
/* `hard`: so that the other end knows that something is missing. */
void http_socket_close(struct http_socket *socket, bool hard);

#endif
