/* The settings of `baton up`, and what it starts with them: the command lines of the router and the
 * workers, and the cores of each worker. Starts nothing.
 *
 * Each model has prefill and decode workers of its own, as many as the settings say. Each worker
 * has a KV pool of its own. A worker takes cores / workers threads by default, with the workers of
 * all models counted. If all threads fit, each worker gets cores of its own, is pinned to them, and
 * its idle threads may spin. If they don't fit, or `pin` is off (on a machine that others use too),
 * no worker is pinned and none spins. Workers with the mock engine take one thread, which sleeps:
 * none of them is pinned. */
#ifndef BATON_CLI_UP_PLAN_H
#define BATON_CLI_UP_PLAN_H

#include "common/base/arena.h"
#include "common/base/config/config.h"
#include "common/base/domain/slo.h"
#include "common/cli/process.h"
#include "common/language/model_config/model_list.h"
#include "common/net/crypto/tls_settings.h"
#include "common/net/rpc/link_tls.h"

#include <stdint.h>

#define UP_MAX_CORES       1024
#define UP_MAX_ENVIRONMENT 16 /* --env of one process */

/* Settings of the processes that are passed on as they were written: the processes' own tables
 * check them. "": not given. */
struct up_passed {
    /* for the workers */
    char kv_tokens[32], context[32], max_sequences[32], chunk_tokens[32], chunk_time[32];
    char profile[1024];
    char devices[1024]; /* taken in turns */
    /* for the router */
    char access_log[1024], http_cors_origins[1024], allowed_hosts[1024];
    char slo_class[SLO_MAX_ROWS_BYTES], slo_default[64];
};

struct up_settings {
    uint64_t prefill, decode; /* workers of each model */
    char models[MODEL_LIST_MAX_BYTES], model_name[MODEL_MAX_NAME_BYTES],
        weight_cache[CLUSTER_PATH_BYTES];
    struct model_list list; /* models and model_name, read by up_read_models */
    /* Indices of names. */
    int engine, compute, weights, kv, isa, transport, placement_policy, reasoning, log_level;
    uint32_t port;
    char http_listen[128]; /* "": none */
    struct tls_settings tls, metrics_tls;
    char api_keys[1024];
    int internal_tls_mode; /* enum up_internal_tls */
    struct link_tls_settings internal_tls;
    struct up_passed passed;
    uint32_t decision_percent, decisions; /* for the router */
    uint64_t threads;                     /* each worker's; 0: cores / workers */
    bool pin;
    char ready_file[CLUSTER_PATH_BYTES], log_dir[CLUSTER_PATH_BYTES];
    bool verbose, restart;
    uint64_t restart_wait_us, liveness_timeout_us, start_timeout_us, drain_timeout_us;
    struct config_list environment; /* "PROCESS:KEY=VALUE" */
};
extern const struct config_program up_program;
extern const char *const up_compute_names[];

struct up_cores {
    uint32_t ids[UP_MAX_CORES]; /* CPUs that this process may run on */
    uint32_t count;
};

struct up_context {
    const struct up_settings *settings;
    const struct up_cores *cores;
    const char *bin_dir; /* folder of the programs */
    const char *log_dir; /* NULL: children log to our standard error */
    struct arena *arena; /* holds the plans' strings */
};

enum up_internal_tls { UP_INTERNAL_AUTO, UP_INTERNAL_OFF };
/* Returns whether this run makes certificates of its own for the links between its processes:
 * clients need keys, none are given, and that isn't switched off. */
bool up_makes_certificates(const struct up_settings *settings);
/* Sets the settings of the links to the files that cluster_ca_make has made in `folder`.
 * STATUS_LIMIT: the path is too long. */
enum status up_use_certificates(struct up_settings *settings, const char *folder,
                                struct error *err) WARN_UNUSED;
enum status up_read_models(struct up_settings *settings, struct error *err) WARN_UNUSED;
/* Returns the number of workers of all models together. */
uint64_t up_worker_count(const struct up_settings *settings);
/* Returns the threads of each worker. */
uint64_t up_threads(const struct up_settings *settings, const struct up_cores *cores);
/* STATUS_INVALID: an --env names no process of this plan, isn't PROCESS:KEY=VALUE, or sets a KEY of
 * one process twice. STATUS_LIMIT: too many workers, or too many --env of one process. */
enum status up_check(const struct up_settings *settings, struct error *err) WARN_UNUSED;
/* Checks each model of settings->list before anything is started: its folder, config.json, the
 * files and type of its weights, its name, and the place of its packed weights. Fails like the
 * functions that read these; the sentence names the folder. */
enum status up_check_models(const struct up_settings *settings, struct error *err) WARN_UNUSED;
struct process_plan up_plan_router(const struct up_context *context);
/* `index` counts prefill workers first, then decode workers; in each role those of the first model
 * come first. Names go on from model to model: with two prefill workers a model, prefill-2 is the
 * first one of the second model. */
struct process_plan up_plan_worker(const struct up_context *context, uint64_t index,
                                   const char *router_address);

#endif
