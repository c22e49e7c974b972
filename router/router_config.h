/* The settings of baton-router. Each is one row of a table, which makes its flag, its name in the
 * file and the environment, and its --help. */
#ifndef BATON_ROUTER_ROUTER_CONFIG_H
#define BATON_ROUTER_ROUTER_CONFIG_H

#include "common/base/config/config.h"
#include "common/base/domain/slo.h"
#include "common/language/model_config/model_list.h"
#include "common/net/crypto/tls_settings.h"
#include "common/net/http/http_url.h"
#include "common/net/rpc/link_tls.h"

struct router_config {
    char listen[128], metrics_listen[128], registry_listen[128];
    char http_listen[128]; /* "": none */
    char http_cors_origins[1024], allowed_hosts[1024];
    uint32_t http_threads;
    uint64_t http_keepalive_us; /* 0: never */
    struct tls_settings tls;    /* for clients, gRPC and HTTP */
    struct tls_settings metrics_tls;
    struct link_tls_settings internal_tls;
    char api_keys[1024];
    bool insecure_registry; /* registrations beyond loopback without certificates, beside keys */
    char models[MODEL_LIST_MAX_BYTES], model_name[MODEL_MAX_NAME_BYTES];
    uint32_t ready_fd;                          /* 0: none */
    uint32_t max_requests, max_queue;           /* at once; without a worker yet */
    uint32_t max_workers;                       /* both roles together */
    uint32_t max_connections, max_per_address;  /* at each door; 0: a quarter of all */
    char proxy_addresses[1024];                 /* max_per_address doesn't bound these */
    uint64_t max_text_bytes;                    /* in one request */
    uint64_t default_deadline_us;               /* 0: none */
    uint32_t retries;                           /* prefills after the first */
    uint32_t retry_percent;                     /* retries in all, of a model's requests */
    uint32_t breaker_failures;                  /* in a row; 0: breakers never open */
    uint64_t step_timeout_us, token_timeout_us; /* 0: never */
    uint64_t unconfirmed_tokens;                /* for one decode worker; 0: half of its pool */
    uint64_t worker_wait_us;                    /* a request without workers ends after this */
    uint64_t local_prefill_wait_us;
    uint64_t worker_ttl_us;       /* a silent worker without a session is forgotten after this */
    uint64_t worker_keepalive_us; /* a silent session is lost after this and 2 s */
    uint64_t client_keepalive_us;
    uint64_t client_handshake_us;  /* to HTTP/2's first frames over gRPC; also a call's headers */
    uint64_t client_idle_us;       /* a gRPC connection without a call ends after this; 0: never */
    uint64_t client_buffer_bytes;  /* unsent for one call; beyond that it is cut off */
    uint64_t client_buffers_bytes; /* unsent for all calls */
    uint64_t receive_memory_bytes;
    uint64_t message_timeout_us; /* from a call's begin to its message */
    uint64_t client_linger_us;   /* from an answer's end until it is read */
    uint64_t drain_timeout_us;
    uint32_t rpc_threads;
    int placement_policy; /* enum placement_policy, or PLACEMENT_AUTO */
    uint32_t prefix_index_blocks;
    bool force_local_prefill, mixed_numerics;
    int reasoning; /* 1: on */
    uint32_t trace_requests;
    uint32_t decisions, decision_percent; /* kept; sampled */
    char access_log[1024];
    char otlp_endpoint[HTTP_URL_BYTES];
    struct tls_client_settings otlp_tls;
    char slo_class[SLO_MAX_ROWS_BYTES], slo_default[64];
    int log_level;
};

extern const struct config_program router_program;

/* Places of a router at the descriptors that it has. Each kind has its own, so that clients of one
 * door take none from the other door, nor from workers. */
struct router_room {
    uint64_t open_files, needed; /* the limit; the limit at which each kind has all that it wants */
    uint64_t own;                /* the router's own, for which no connection is needed */
    size_t http_connections, http_surplus; /* let in; let in for a refusal */
    size_t grpc_connections; /* without registry-listen also those of workers that register */
    size_t registrations;    /* connections at registry-listen */
    size_t figures_connections, workers;
    uint64_t fitting; /* the max-connections that all of `open_files` are enough for; 0: none */
};
/* Descriptors that a router needs besides, without those of rpc and HTTP threads: files, other
 * threads' wake-ups, listening sockets, look-ups. */
#define ROUTER_OWN_DESCRIPTORS 48
/* PURE. */
struct router_room router_room_divide(const struct router_config *config, uint64_t open_files);

/* Returns the address at which workers register. */
const char *router_config_registry(const struct router_config *config);
/* Returns whether clients need keys while any process may register as a worker: only certificates
 * on both sides tell workers from strangers. */
bool router_config_registry_is_open(const struct router_config *config);

/* All defaults, for tests that start a router in their own process. */
struct router_config router_config_default(void);

#endif
