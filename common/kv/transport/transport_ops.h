/* Internal to this folder: the parts that kv_transport.c keeps for every transport, and the table
 * of operations that each transport fills in. kv_transport.c checks, counts, queues events, keeps
 * deadlines and the life of a peer, and copies from mapped pools. A transport only opens, pairs,
 * moves and closes. It embeds struct kv_transport and struct kv_peer as the first members of its
 * own structs. */
#ifndef BATON_KV_TRANSPORT_TRANSPORT_OPS_H
#define BATON_KV_TRANSPORT_TRANSPORT_OPS_H

#include "common/base/domain/link_model.h"
#include "common/kv/transport/kv_address.h"
#include "common/kv/transport/kv_staging.h"
#include "common/kv/transport/kv_transport.h"

#include <sys/queue.h>

enum kv_peer_state {
    KV_PEER_OPEN,   /* -> CLOSED: unpair, a deadline, or the transport saw it fail */
    KV_PEER_CLOSED, /* -> GONE: the events of all its reads were taken, then its own was */
    KV_PEER_GONE,   /* freed by the next poll */
};

struct kv_faults;

struct kv_read {
    TAILQ_ENTRY(kv_read) link; /* in peer->reads, then in transport->ended */
    struct kv_peer *peer;
    uint64_t cookie, deadline_us, bytes;
    enum kv_failure failure; /* set when the failure is known, before the event */
    const char *reason;
    uint32_t parts;      /* handed to the library and not back yet: their memory is landing */
    size_t next_run;     /* first run that was not started */
    uint64_t next_bytes; /* bytes of that run that were copied (mapped peers only) */
    uint64_t index;      /* its number among all reads of the transport; draws its fault */
    /* its bytes have landed, but a fault holds it back until then; 0: none does */
    uint64_t held_us;
    bool reordered; /* held until another read ends, too */
    bool repeated;  /* moves for the second time */
    bool landed;    /* its bytes have landed, and only its pace holds it back */
    struct link_flow flow;
    size_t run_count;
    struct kv_read_run runs[];
};
TAILQ_HEAD(kv_reads, kv_read);

struct kv_peer {
    TAILQ_ENTRY(kv_peer) link;
    struct kv_transport *transport;
    enum kv_peer_state state;
    bool welcomed; /* set by the transport: the owner has admitted it; no byte moves before */
    enum kv_failure failed; /* set by the transport when it saw the peer fail; poll closes it */
    const char *failed_reason;
    enum kv_failure failure; /* from CLOSED on: why */
    const char *reason;
    const char *lane;
    /* Set by the transport: the lane is settled. `told`: the caller knows. */
    bool ready, told;
    struct error lane_reason; /* kv_peer_lane_reason */
    uint64_t pool_bytes;
    uint32_t multiple; /* set by the transport: of bytes and offsets of its runs; 0: any */
    bool unstarted;    /* a read came since ops->start */
    /* its pool in our address space: poll copies from it; NULL: ops->start moves */
    const uint8_t *mapped;
    struct kv_reads reads; /* in flight, in the order they were asked for */
    uint32_t events_due;   /* reads that have ended; their events were not taken yet */
};
TAILQ_HEAD(kv_peers, kv_peer);

struct kv_transport_ops {
    enum status (*open)(const struct kv_transport_config *config, struct kv_transport **transport,
                        struct error *err);
    void (*close)(struct kv_transport *transport); /* frees it; it has no peers any more */
    /* Makes a copy of the transport's address good for one reader. NULL: the address is good for
     * all, and nothing is to be revoked. */
    enum status (*admit)(struct kv_transport *transport, struct kv_address *address,
                         struct error *err);
    void (*revoke)(struct kv_transport *transport, uint64_t admission);
    /* Allocates a peer and fills everything that kv_transport.c doesn't keep. `address` was
     * checked, except for parts that only the library can judge. */
    enum status (*pair)(struct kv_transport *transport, const struct kv_address *address,
                        struct kv_peer **peer, struct error *err);
    void (*progress)(struct kv_transport *transport);
    void (*start)(struct kv_peer *peer); /* starts runs of its reads, as many as may be in flight */
    /* The forced close: all parts in flight come back by kv_read_part_done, before it returns, and
     * no byte lands any more. */
    void (*close_peer)(struct kv_peer *peer);
    void (*peer_free)(struct kv_peer *peer);
    int (*fd)(const struct kv_transport *transport); /* readable while progress has work */
};

extern const struct kv_transport_ops kv_local_ops, kv_remote_ops;

struct kv_transport {
    const struct kv_transport_ops *ops;
    uint8_t *pool;              /* NULL: it is on a device, and staging leads to it */
    struct kv_staging *staging; /* NULL: the pool is the host's */
    struct kv_summing summing;  /* zeroed: no layout was given */
    uint64_t pool_bytes;
    struct kv_address self; /* without the parts that admit adds */
    uint64_t timer_us;      /* set by progress: call it then, even if nothing wakes us */
    /* kv_transport_serve's; NULL: no byte is sent */
    bool (*may_read)(void *owner, const struct kv_claim *claim);
    void *owner;
    /* From here on kv_transport.c's own. */
    uint32_t max_reads, read_count; /* a read counts until its event was taken */
    uint32_t peer_count;
    uint64_t polled_us, deadline_floor_us; /* no read in flight has an earlier deadline */
    struct kv_peers peers;
    struct kv_reads ended;
    struct kv_transport_counters counters;
    struct kv_faults *faults; /* NULL: none are injected */
    struct kv_pace pace;      /* zeroed: none */
    struct link_model link;   /* the pace's */
};

/* For transports that move by themselves: one part of the read came back. The last part ends the
 * read. `reason` is static text; NULL: the failure's general text. Any failure except NOT_GRANTED
 * ends the pairing, too. */
void kv_read_part_done(struct kv_read *read, enum kv_failure failure, const char *reason);
/* The transport saw the peer fail. Poll then closes it. The first failure is kept. */
void kv_peer_fail(struct kv_peer *peer, enum kv_failure failure, const char *reason);

#endif
