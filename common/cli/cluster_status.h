/* A router's view of its cluster, as it answers GET /status:
 *
 *     {"queue": 0, "running": 1,
 *      "models": [{"name": "llama", "numerics": "...", "isa": "avx512", "queue": 0, "running": 1}],
 *      "workers": [{"name": "decode-0", "model": "llama", "role": "decode",
 *                   "address": "127.0.0.1:4003", "state": "up",
 *                   "pairs": [{"worker": "prefill-1", "breaker": "open"}], "lane": "shm",
 *                   "lane_bytes_per_second": 5100000000, "started_ms": 1700000000000, "queue": 0,
 *                   "running": 1, "blocks_free": 1020, "blocks_cached": 4, "blocks_pinned": 0,
 *                   "blocks_landing": 0, "incarnation": "9f..."}],
 *      "missing": [{"name": "decode-2", "model": "llama", "role": "decode",
 *                   "address": "127.0.0.1:4005", "silent_ms": 12000}],
 *      "refused": [{"name": "decode-1", "role": "decode", "address": "127.0.0.1:4004",
 *                   "sentence": "..."}],
 *      "slo": [{"name": "chat", "hour": {"attained": 97, "missed": 3, "missed_by": {"ttft": 3}},
 *               "goodput_per_second": 1.6, "goodput_per_device": 0.4, "error_budget_left": 0.7}]}
 *
 * state: "up" (the router has a session with it), "draining", or "down" (it registered, but there
 * is no session). Missing: it didn't leave, and isn't heard of any more; it is read as a worker of
 * state "missing". Pairs: it is kept apart from these workers, as reads failed. Each member may be
 * absent, except name, role, address and state. A router of one model also has the model's name and
 * numerics as "model" and "numerics". */
#ifndef BATON_CLI_CLUSTER_STATUS_H
#define BATON_CLI_CLUSTER_STATUS_H

#include "common/base/domain/slo.h"
#include "common/base/domain/worker_info.h"
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/cli/cluster_file.h"
#include "common/language/model_config/model_list.h"
#include "common/net/http/http_client.h"

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_STATUS_MAX_WORKERS CLUSTER_MAX_WORKERS /* as many as a router shows */
#define CLUSTER_STATUS_MAX_MODELS  MODEL_LIST_MAX
#define CLUSTER_STATUS_MAX_REFUSED 16

struct worker_status {
    char name[64], model[128], role[16], address[128], state[16], lane[32], incarnation[24];
    char lane_reason[160]; /* why not a faster lane; "": nothing to say */
    char apart[200];       /* "decode-1 (open), decode-2 (half_open)", perhaps cut; "": none */
    int64_t queue, running, blocks, blocks_free, blocks_cached, blocks_pinned, blocks_landing;
    int64_t lane_bytes_per_second, started_ms; /* 0: not known */
    int64_t prompt_tokens, tokens; /* computed, and generated, since its session is up */
    int64_t restarts;              /* by `baton up`; -1: not known */
};

/* Quantiles of the requests that ended in the last minute. */
struct status_figure {
    int64_t count;
    double p50_ms, p99_ms;
};

struct model_status {
    char name[128], numerics[64], isa[16]; /* the last two: of its first worker; "": it has none */
    int64_t queue, running;
    int64_t prompt_tokens, tokens; /* all its requests' since the router started */
};

/* A worker that registered lately and was refused. */
struct refused_status {
    char name[64], role[16], address[128], sentence[512];
};

/* An SLO class. */
struct class_status {
    char name[SLO_MAX_NAME_BYTES + 1];
    int64_t attained, missed;          /* in the last hour */
    int64_t missed_by[SLO_KINDS];      /* a request may miss several */
    double goodput, goodput_of_device; /* a second, in the last minute */
    double error_budget_left;          /* 1: all; below 0: overdrawn */
};

/* Some 3 MiB: not for the stack. */
struct cluster_status {
    size_t class_count;
    struct class_status classes[SLO_MAX_CLASSES];
    size_t model_count;
    struct model_status models[CLUSTER_STATUS_MAX_MODELS];
    size_t refused_count;
    struct refused_status refused[CLUSTER_STATUS_MAX_REFUSED];
    int64_t queue, running;
    int64_t router_restarts;       /* -1: not known */
    int64_t prompt_tokens, tokens; /* all requests' since the router started */
    int64_t window_s;              /* 0: the router has no figures */
    struct status_figure queue_time, ttft, tpot, e2e;
    size_t count;
    struct worker_status workers[CLUSTER_STATUS_MAX_WORKERS]; /* [count] are written, and read */
};

enum status cluster_status_parse(const char *json, size_t length, struct cluster_status *status,
                                 struct error *err) WARN_UNUSED;
/* Gets the router's JSON. `router` is the address of its figures. */
enum status cluster_status_get(const struct http_remote *router, uint64_t timeout_us,
                               struct str *text, struct error *err) WARN_UNUSED;
/* Gets it and parses it. `status` is empty on failure. */
enum status cluster_status_fetch(const struct http_remote *router, uint64_t timeout_us,
                                 struct cluster_status *status, struct error *err) WARN_UNUSED;
/* Returns whether the worker's figures are known: it is neither down nor missing. */
bool worker_status_known(const struct worker_status *worker);
/* Returns the number of workers that are "up". */
size_t cluster_status_up(const struct cluster_status *status);
/* Adds the restarts that `baton up` wrote down, and as missing the workers that it has started and
 * the router doesn't know. */
void cluster_status_add_restarts(struct cluster_status *status, const struct cluster_file *file);
/* Appends a table for a terminal. now_ms: since 1970. */
void cluster_status_print(const struct cluster_status *status, int64_t now_ms, struct str *out);

#endif
