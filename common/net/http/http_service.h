/* What all loops of a server share: its settings, and what is counted over all of them. Internal to
 * this folder. */
#ifndef BATON_NET_HTTP_HTTP_SERVICE_H
#define BATON_NET_HTTP_HTTP_SERVICE_H

#include "common/net/http/http_server.h"

#include <pthread.h>
#include <stdatomic.h>

struct http_service {
    struct http_server_config config; /* with the defaults */
    atomic_bool draining;
    atomic_size_t connections, body_bytes, unsent_bytes;
    atomic_uint_fast64_t accepted, turned_away, made_room, requests, refused, slow, gone;
    pthread_mutex_t lock; /* for `empty` */
    pthread_cond_t empty; /* connections has become 0 */
};

#endif
