/* TLS of a server's connections: 1.2 and 1.3, ALPN http/1.1, certificates of clients where the set
 * of certificates holds CAs. OpenSSL is known to http_tls.c only. Each connection begins with the
 * set that there is (certificates.h reads changed files again); those that are open keep what they
 * began with. No session is resumed: each connection shows what is in force now, and nothing is
 * kept of those that ended.
 *
 * `http_tls` belongs to the thread that accepts, a session to that of its connection. Internal to
 * this folder. */
#ifndef BATON_NET_HTTP_HTTP_TLS_H
#define BATON_NET_HTTP_HTTP_TLS_H

#include "common/net/http/http_server.h"

struct http_tls;
struct http_tls_session;

enum http_io {
    HTTP_IO_DONE,
    HTTP_IO_WAIT_READ,  /* until the socket can be read */
    HTTP_IO_WAIT_WRITE, /* or written */
    HTTP_IO_CLOSED,     /* by the other end, or an error: nothing more comes or goes */
};

/* The certificates must outlive it. STATUS_INVALID: they can't be used; the sentence says which,
 * and why. */
enum status http_tls_open(struct certificates *certificates, struct http_tls **tls,
                          struct error *err) WARN_UNUSED;
void http_tls_close(struct http_tls *tls); /* NULL is fine; sessions may outlive it */
/* By the set that there is now. NULL: out of memory. */
struct http_tls_session *http_tls_begin(struct http_tls *tls, int fd);
enum http_io http_tls_receive(struct http_tls_session *session, void *bytes, size_t size,
                              size_t *count);
enum http_io http_tls_send(struct http_tls_session *session, const void *bytes, size_t size,
                           size_t *count);
void http_tls_say_goodbye(struct http_tls_session *session);
void http_tls_end(struct http_tls_session *session);

#endif
