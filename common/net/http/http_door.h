/* The listening socket of a server: takes connections in, as long as there is room and there are
 * descriptors, and hands them to the loops in turn. Belongs to the first loop's thread once that
 * runs. Internal to this folder. */
#ifndef BATON_NET_HTTP_HTTP_DOOR_H
#define BATON_NET_HTTP_HTTP_DOOR_H

#include "common/net/http/http_loop.h"
#include "common/net/http/http_service.h"

#define HTTP_ADDRESS_BYTES 64
#define HTTP_MAX_SURPLUS                                                                           \
    64 /* connections beyond the limit that are told so; further ones are closed */

struct evconnlistener;

struct http_door {
    struct http_service *service;
    struct http_loop **loops; /* the server's */
    unsigned loop_count, next_loop;
    struct http_tls *tls; /* NULL: none is spoken */
    struct evconnlistener *listener;
    struct event *open_event; /* to open again */
    bool complained;          /* since the last connection that came in and left room */
    char address[HTTP_ADDRESS_BYTES];
};

/* Before the loops run. loops[0] takes the connections in. */
enum status http_door_open(struct http_door *door, struct http_service *service,
                           struct http_loop **loops, struct error *err) WARN_UNUSED;
/* Takes no more. On the first loop's thread. */
void http_door_stop(struct http_door *door);
/* After the loops' threads have ended, and before the loops go. {0} is fine. */
void http_door_close(struct http_door *door);

#endif
