/* What `baton up` starts: the command lines of the router and the workers, and which cores each
 * worker gets. No action here.
 *
 * Each model has prefill and decode workers of its own, as many as the settings say, and each
 * worker a KV pool of its own. Cores: a worker takes cores / workers threads by default, all
 * models' workers counted. Where all threads fit, each worker gets cores of its own, is pinned to
 * them and its idle threads may spin; where they don't, or `pin` is off (a machine that others use
 * too), nobody is pinned and nobody spins. */
#ifndef BATON_CLI_UP_PLAN_H
#define BATON_CLI_UP_PLAN_H

#include "common/base/arena.h"
#include "common/base/config/config.h"
#include "common/cli/process.h"
#include "common/language/model_config/model_list.h"
#include "common/net/crypto/tls_settings.h"
#include "common/net/rpc/link_tls.h"

#include <stdint.h>

#define UP_MAX_CORES       1024
#define UP_MAX_ENVIRONMENT 16 /* --env of one process */

/* What is the processes' own matter and only passed on, as it was written; what it may be is said
 * by their tables. "": not given. */
struct up_passed {
    /* To workers, and to the router. */
    char kv_tokens[32], context[32], max_sequences[32], chunk_tokens[32], chunk_time[32];
    char access_log[1024], http_cors_origins[1024];
};
#define UP_PASSED_ROW(owner, row, field, word, text, ...)                                          \
    {                                                                                              \
        .name = row, .type = CONFIG_STRING, CONFIG_AT(owner, passed.field), .default_text = "",    \
        .value = word, .help = text, __VA_ARGS__                                                   \
    }
#define UP_PASSED_ROWS(owner)                                                                      \
    UP_PASSED_ROW(owner, "kv-tokens", kv_tokens, "NUMBER", "Size of each worker's KV pool",        \
                  .taker = worker_config_row),                                                     \
        UP_PASSED_ROW(owner, "context", context, "NUMBER",                                         \
                      "Prompt and answer at most; empty: the model's own limit",                   \
                      .taker = worker_config_row),                                                 \
        UP_PASSED_ROW(owner, "max-sequences", max_sequences, "NUMBER",                             \
                      "Requests that a worker holds at the same time",                             \
                      .taker = worker_config_row),                                                 \
        UP_PASSED_ROW(owner, "chunk-tokens", chunk_tokens, "NUMBER",                               \
                      "Prompt rows of a worker's step at most", .taker = worker_config_row),       \
        UP_PASSED_ROW(                                                                             \
            owner, "chunk-time", chunk_time, "TIME",                                               \
            "How long prompts may hold up the answers beside them (decode workers only)",          \
            .taker = worker_config_row),                                                           \
        UP_PASSED_ROW(owner, "access-log", access_log, "WHERE",                                    \
                      "A line of the router at each request's end: off, stderr, or a file"),       \
        UP_PASSED_ROW(owner, "http-cors-origins", http_cors_origins, "ORIGIN,...",                 \
                      "Origins of browsers' pages that may read what HTTP answers; *: all",        \
                      .check = http_check_origins)

struct up_settings {
    uint64_t prefill, decode; /* of each model */
    char models[MODEL_LIST_MAX_BYTES], model_name[MODEL_MAX_NAME_BYTES],
        weight_cache[CLUSTER_PATH_BYTES];
    struct model_list list; /* of models and model_name, by up_read_models */
    int compute, weights, kv, isa, transport, log_level; /* indices into the tables below */
    uint32_t port;
    char http_listen[128]; /* "": none */
    struct tls_settings tls, metrics_tls;
    char api_keys[1024];
    struct link_tls_settings internal_tls;
    struct up_passed passed;
    uint64_t threads; /* of each worker; 0: cores / workers */
    bool pin;
    char ready_file[CLUSTER_PATH_BYTES], log_dir[CLUSTER_PATH_BYTES];
    bool verbose, restart;
    uint64_t restart_wait_us, start_timeout_us, drain_timeout_us;
    struct config_list environment; /* "PROCESS:KEY=VALUE" */
};
extern const char *const up_compute_names[], *const up_transport_names[],
                                                 *const up_log_level_names[];

struct up_cores {
    uint32_t ids[UP_MAX_CORES]; /* that this process may run on */
    uint32_t count;
};

struct up_context {
    const struct up_settings *settings;
    const struct up_cores *cores;
    const char *bin_dir; /* where the programs are */
    const char *log_dir; /* NULL: children log to our standard error */
    struct arena *arena; /* holds the plans' strings */
};

enum status up_read_models(struct up_settings *settings, struct error *err) WARN_UNUSED;
/* Of all models together. */
uint64_t up_worker_count(const struct up_settings *settings);
uint64_t up_threads(const struct up_settings *settings, const struct up_cores *cores);
/* STATUS_INVALID: an --env that names no process of this plan, or isn't PROCESS:KEY=VALUE, or a KEY
 * of one process twice; STATUS_LIMIT: too many workers, or too many --env of one process. */
enum status up_check(const struct up_settings *settings, struct error *err) WARN_UNUSED;
struct process_plan up_plan_router(const struct up_context *context);
/* index: prefill workers first, then decode workers; of each role those of the first model first.
 * They are numbered through: with two prefill workers a model, prefill-2 is the first one of the
 * second model. */
struct process_plan up_plan_worker(const struct up_context *context, uint64_t index,
                                   const char *router_address);

#endif
