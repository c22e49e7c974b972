/* One connection of a client: blocking, until a deadline, with TLS or without. One thread. Internal
 * to this folder. */
#ifndef BATON_NET_HTTP_HTTP_CLIENT_LINK_H
#define BATON_NET_HTTP_HTTP_CLIENT_LINK_H

#include "common/net/http/http_client_tls.h"

struct http_client_link {
    const struct http_url *url;
    int fd;
    uint64_t deadline_us;
    struct http_client_tls *tls; /* NULL: in the clear */
    bool over;                   /* the other end has said that nothing more comes */
};

/* Connects, with TLS where plan->url says so, to whichever of the host's addresses takes it, and
 * makes the handshake; plan->fd is not looked at. STATUS_UNAVAILABLE: nobody is there;
 * STATUS_TIMEOUT; STATUS_INVALID: TLS, with the sentence of http_client_tls.h. To be closed also
 * after a failure. */
enum status http_client_link_open(struct http_client_link *link,
                                  const struct http_client_tls_plan *plan,
                                  struct error *err) WARN_UNUSED;
void http_client_link_close(struct http_client_link *link);

/* What the other end, having closed, takes no more is dropped: its answer may say why. */
enum status http_client_link_send(struct http_client_link *link, const char *bytes, size_t count,
                                  struct error *err) WARN_UNUSED;
/* *count 0: the connection has ended; unless link->over it was cut. */
enum status http_client_link_receive(struct http_client_link *link, char *bytes, size_t size,
                                     size_t *count, struct error *err) WARN_UNUSED;

#endif
