/* Settings of a worker process (baton-prefill, baton-decode). The table in worker_config.c is the
 * one place where they are defined; `--help` prints it. */
#ifndef BATON_WORKER_WORKER_CONFIG_H
#define BATON_WORKER_WORKER_CONFIG_H

#include "common/base/config/config.h"
#include "common/base/domain/step_profile.h"
#include "common/base/domain/worker_info.h"
#include "common/engine/engine_choices.h"
#include "common/engine/mock/mock_engine.h"
#include "common/engine/model/weight_types.h"
#include "common/engine/sched/scheduler.h"
#include "common/engine/step_buckets.h"
#include "common/kv/transport/kv_transport.h"
#include "common/net/crypto/tls_settings.h"
#include "common/net/membership/advertise.h"
#include "common/net/rpc/link_tls.h"
#include "kernels/kernels.h"

enum worker_compute { COMPUTE_FAST, COMPUTE_F32 };

#define WORKER_MAX_CPUS 256
/* Prompt rows of a step where the settings give none: of a GPU from the one to the other. */
#define WORKER_CHUNK_TOKENS     512 /* a CPU's at most */
#define WORKER_GPU_CHUNK_TOKENS 2048

struct worker_config {
    char name[64], router[128], model[1024], model_name[128], weight_cache[1024];
    char allowed_hosts[1024]; /* for metrics_listen */
    char listen[128], metrics_listen[128], log_level[8], cpus[512], interface[128], kv_faults[512];
    char kv_socket[128];
    bool mixed_numerics;
    enum engine_kind engine;
    char profile[1024];       /* the mock engine's; "": another engine */
    struct step_profile mock; /* worker_engine_open reads `profile` */
    bool kv_tokens_given;     /* otherwise the profile's, if there is one */
    enum worker_compute compute;
    enum weight_choice weights;
    enum kv_choice kv;
    enum isa isa;
    char device[32]; /* read into device_kind and device_ordinal */
    enum device device_kind;
    uint32_t device_ordinal;
    char device_graphs[192]; /* read into recorded */
    struct step_bucket_sizes recorded;
    enum kv_lane transport;
    uint32_t chunk_tokens; /* 0: worker_engine_open settles it */
    uint32_t threads, max_sequences, block_tokens, kv_tokens, context;
    uint32_t max_batch_sequences, max_batch_tokens; /* never 0 */
    bool batch_tokens_given;                        /* otherwise they follow from chunk_tokens */
    uint32_t draft_tokens;
    enum policy_kind batch_policy;
    uint64_t chunk_us; /* 0: any */
    bool prompts_first;
    uint64_t starve_us, overtake_us;
    bool prefix_cache;
    enum eviction_policy prefix_eviction;
    double swap_share, device_memory_share;
    uint64_t constraint_bytes;
    uint64_t lease_us, heartbeat_us, read_timeout_us, peer_timeout_us, hello_timeout_us,
        drain_timeout_us;
    uint32_t kv_connections;
    uint32_t failed_steps;  /* 0: any number may fail */
    uint64_t step_stall_us; /* 0: a step may take any time */
    uint32_t test_protocol; /* 0: all versions of this build */
    uint32_t ready_fd;      /* 0: none */
    bool spin;
    char advertise[128];
    struct link_tls_settings internal_tls;
    struct tls_settings metrics_tls;
    /* The address at which others dial this machine, for every lane and server: from `advertise`,
     * `listen` or the way to the router. worker_main fills it before it opens anything. */
    struct advertise advertised;
    int cpu_list[WORKER_MAX_CPUS]; /* `cpus`, parsed */
    uint32_t cpu_count;
};

/* Returns the table's row of this setting, for a program that passes the setting on. It must be in
 * the table. */
const struct config_setting *worker_config_row(const char *name);

/* Reads flags, environment and file. Prints help or all mistakes, and exits, where a main
 * should. */
void worker_config_load(enum worker_role role, int argc, char **argv, struct worker_config *config);

#endif
