/* The bytes of one connection, with or without TLS (common/net/crypto/tls_server.h), and its
 * address. Never blocks. A socket belongs to one thread at a time. Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_SOCKET_H
#define BATON_NET_HTTP_HTTP_SOCKET_H

#include "common/base/status.h"

#include <event2/buffer.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

struct ssl_st;
struct tls_server;

/* --- addresses --- */

/* IPv4 or IPv6. */
struct http_peer {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
};

/* Parses an address to listen on: "127.0.0.1:80", "[::1]:80"; "localhost" is 127.0.0.1.
 * STATUS_INVALID: `text` is no such host with a port. */
enum status http_peer_parse(const char *text, struct http_peer *peer, socklen_t *length,
                            struct error *err) WARN_UNUSED;
void http_peer_name(const struct http_peer *peer, char *text, size_t size);

/* --- bytes --- */

struct http_socket {
    int fd;
    struct ssl_st *tls; /* NULL: no TLS */
};

enum http_io {
    HTTP_IO_DONE,
    HTTP_IO_WAIT_READ,  /* until the socket can be read */
    HTTP_IO_WAIT_WRITE, /* until the socket can be written */
    HTTP_IO_CLOSED,     /* by the other end, or an error: nothing more comes or goes */
    HTTP_IO_FLOOD,      /* too many TLS messages (tls_server.h): nothing more comes */
};

/* Begins a connection. `tls` NULL: without TLS. False: out of memory; `fd` stays the caller's. */
bool http_socket_begin(struct tls_server *tls, int fd, struct http_socket *socket);
/* Receives up to `size` bytes. HTTP_IO_DONE: *count of them, 1 or more. */
enum http_io http_socket_receive(struct http_socket *socket, void *bytes, size_t size,
                                 size_t *count);
/* Sends from `out`, which isn't empty, and removes from it what was sent. HTTP_IO_DONE: some bytes
 * were sent. */
enum http_io http_socket_send(struct http_socket *socket, struct evbuffer *out);
/* Tells the other end that nothing more is sent. */
void http_socket_shut(struct http_socket *socket);
/* Returns whether the other end has closed the connection, or its half, behind unread bytes. */
bool http_socket_is_gone(const struct http_socket *socket);
/* `hard`: so that the other end can tell that something is missing. */
void http_socket_close(struct http_socket *socket, bool hard);

#endif
