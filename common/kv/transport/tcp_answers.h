/* Internal to this folder: what the owner of a pool still has to send to one reader, a ring of
 * KV_FRAME_WINDOW answers. Each is a head and then bytes of the pool, which are not copied: they
 * must not change until they have left. */
#ifndef BATON_KV_TRANSPORT_TCP_ANSWERS_H
#define BATON_KV_TRANSPORT_TCP_ANSWERS_H

#include "common/kv/transport/kv_frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tcp_answer {
    uint64_t bytes, done; /* done: of the head, then of the bytes */
    const uint8_t *from;
    uint8_t head[KV_FRAME_BYTES];
};

struct tcp_answers { /* all zero: empty */
    uint32_t first, count;
    struct tcp_answer items[KV_FRAME_WINDOW];
};

/* There must be room. `from`: [bytes]. */
void tcp_answers_put(struct tcp_answers *answers, const struct kv_frame *head, const uint8_t *from,
                     uint64_t bytes);
/* One turn: what the socket takes, and at most TCP_TURN_BYTES and *budget of bytes, which is taken
 * from *budget. False: the connection has failed. */
bool tcp_answers_send(struct tcp_answers *answers, int fd, size_t *budget);

#endif
