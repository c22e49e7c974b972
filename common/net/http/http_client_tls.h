/* TLS of a client's connection: 1.2 and 1.3, the server's certificate checked against CAs (a file
 * of them may hold that certificate itself) and against the name that it is called by, a
 * certificate shown where it asks for one. Never blocks. One thread. What goes wrong is a sentence:
 * who, why, what to do. Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_CLIENT_TLS_H
#define BATON_NET_HTTP_HTTP_CLIENT_TLS_H

#include "common/net/http/http_tls.h"
#include "common/net/http/http_url.h"

struct http_client_tls;

struct http_client_tls_plan {
    const struct http_url *url;
    struct certificates *certificates; /* NULL: the machine's own CAs, and none to show */
    const char *peer_name;             /* that the certificate must hold; NULL and "": the host */
    int fd;                            /* connected, not blocking, and the caller's */
};

/* url and fd must outlive it. STATUS_INVALID: the certificates or the name can't be used. */
enum status http_client_tls_begin(const struct http_client_tls_plan *plan,
                                  struct http_client_tls **tls, struct error *err) WARN_UNUSED;
void http_client_tls_end(struct http_client_tls *tls); /* NULL is fine */

/* How far a step came. HTTP_IO_CLOSED: *status and its sentence say why; STATUS_OK: the other end
 * has closed, as it should or by cutting. */
enum http_io http_client_tls_handshake(struct http_client_tls *tls, enum status *status,
                                       struct error *err);
enum http_io http_client_tls_receive(struct http_client_tls *tls, void *bytes, size_t size,
                                     size_t *count, enum status *status, struct error *err);
enum http_io http_client_tls_send(struct http_client_tls *tls, const void *bytes, size_t size,
                                  size_t *count, enum status *status, struct error *err);
/* The other end has said that nothing more comes. */
bool http_client_tls_is_over(const struct http_client_tls *tls);

#endif
