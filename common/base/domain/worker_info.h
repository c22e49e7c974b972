/* A worker's description of itself when it registers. PURE; strings are bounded copies. */
#ifndef BATON_BASE_DOMAIN_WORKER_INFO_H
#define BATON_BASE_DOMAIN_WORKER_INFO_H

#include <stdint.h>

/* Limit of workers of both roles in a cluster. A router admits no more, by default as many as a
 * worker may have peers. */
#define CLUSTER_MAX_WORKERS 4096
/* Limit of the workers of the other role that one worker is connected to at once. */
#define CLUSTER_MAX_PEERS 256

/* The longest time that a router gives a worker for a request. If a client waits longer, the worker
 * hears of no deadline. */
#define WORKER_MAX_DEADLINE_US (UINT64_C(365) * 24 * 3600 * 1000000)

enum worker_role { ROLE_PREFILL = 1, ROLE_DECODE = 2 };
const char *worker_role_name(enum worker_role role);

struct worker_info {
    char name[64]; /* "prefill-0": unique in a cluster, stable over restarts */
    enum worker_role role;
    uint64_t incarnation; /* random at process start: tells a restart from a reconnect */
    char address[128];    /* host:port of the worker's gRPC server */
    char model[128];      /* the name that clients use */
    uint64_t model_hash;  /* config and tensor names, shapes, and a sample of the bytes */
    uint64_t layout_hash; /* kv_layout_hash */
    uint64_t numerics_id; /* docs/architecture: workers of one id give equal bytes */
    uint32_t block_tokens, block_count, context, vocab;
    char numerics_name[64];    /* numerics_id for people; may be empty */
    char isa[16];              /* instruction set of its kernels, for people; may be empty */
    char metrics_address[128]; /* host:port of /metrics; empty: none */
    uint32_t process_id;
    /* Hashes of its config.json and tokenizer.json, which a router has too; 0: missing, or not
     * given. */
    uint64_t config_hash, tokenizer_hash;
    uint64_t started_ms;    /* start time by its own clock, since 1970; 0: not given */
    uint32_t max_sequences; /* requests that it holds at once; one more is refused; 0: not given */
    /* Versions of the protocol between Baton's processes that it speaks; newest 0: this build's. */
    uint32_t protocol_least, protocol_newest;
};

#endif
