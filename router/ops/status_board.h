/* The content of /status, for HTTP threads: the dispatcher posts copies, readers take copies.
 * Any thread, except where noted. No function waits for more than a copy. */
#ifndef BATON_ROUTER_OPS_STATUS_BOARD_H
#define BATON_ROUTER_OPS_STATUS_BOARD_H

#include "common/base/domain/cost_fit.h"
#include "router/planner/breaker.h"
#include "router/planner/worker_state.h"
#include "router/reasons.h"
#include "router/served_models.h"

#include <pthread.h>

struct worker_status {
    uint64_t key; /* the dispatcher's, never shown */
    struct worker_info info;
    size_t model; /* index of served_models */
    enum worker_state state;
    struct worker_load load;
    enum breaker_state breaker;
    bool hangs;                    /* a step of it doesn't end */
    struct cost_fit_figures steps; /* learnt from its reports */
    char lane[16], lane_reason[160];
    uint64_t lane_bytes_per_second;
    uint64_t prompt_tokens, tokens; /* since its session began */
};

/* A pair with a breaker that isn't closed. */
struct pair_status {
    uint64_t prefill, decode; /* keys */
    enum breaker_state breaker;
};

/* For people: "up", "hung", "draining" or "down". A draining worker is "draining" until its session
 * ends. */
const char *worker_status_state(const struct worker_status *worker);

/* The workers of one model that take work. */
struct model_workers {
    uint32_t prefill, decode;
    bool serves; /* a request would be served now, or wait for room */
    /* The most tokens of one request, prompt and answer: where it could be placed now, otherwise
     * on any decode worker that is known. 0: there is none. */
    uint64_t request_tokens;
};

/* A refused registration. The worker asks again every few seconds. */
#define STATUS_MAX_REFUSED      16 /* the newest */
#define STATUS_REFUSED_SHOWN_US 30000000u
struct refused_worker {
    char name[64], address[128], model[128], sentence[512];
    enum worker_role role;
    enum reason reason;
    uint64_t at_us; /* 0: none */
};

/* A worker that the router hasn't heard of for worker-ttl, and that didn't leave. */
#define STATUS_MAX_MISSING      64
#define STATUS_MISSING_SHOWN_US 3600000000u
struct missing_worker {
    char name[64], address[128], model[128];
    enum worker_role role;
    uint64_t heard_us;
};

struct router_status {
    bool draining;
    size_t missing_count;
    struct missing_worker missing[STATUS_MAX_MISSING];
    size_t worker_count, worker_capacity;
    struct worker_status *workers; /* [worker_count] */
    size_t pair_count;
    struct pair_status pairs[BREAKER_MAX_PAIRS];
    struct model_workers models[SERVED_MODELS_MAX];
    struct refused_worker refused[STATUS_MAX_REFUSED];
};

struct status_board {
    pthread_mutex_t mutex;
    struct router_status status;
};

/* Makes room for so many workers. Returns how many fit: fewer where there is no memory. */
size_t router_status_room(struct router_status *status, size_t count);
/* Frees a copy. */
void router_status_deinit(struct router_status *status);

void status_board_init(struct status_board *board);
void status_board_deinit(struct status_board *board);
void status_board_count_workers(struct status_board *board,
                                struct model_workers workers[SERVED_MODELS_MAX]);
/* The most tokens of one request: the model's context, or fewer if no worker has room for that. */
uint32_t router_status_context(const struct router_status *status,
                               const struct served_models *models, size_t model);
/* The same with the current status. */
uint32_t status_board_context(struct status_board *board, const struct served_models *models,
                              size_t model);
/* A registration was refused, or accepted (REASON_NONE), which removes the refusals of that
 * name. */
void status_board_registered(struct status_board *board, const struct worker_info *info,
                             enum reason reason, const char *sentence, uint64_t now_us);
void status_board_drain(struct status_board *board); /* sets `draining` for good */
bool status_board_draining(struct status_board *board);
/* Copies it. router_status_deinit frees the copy. */
void status_board_read(struct status_board *board, struct router_status *status);

#endif
