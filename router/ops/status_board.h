/* What /status shows, kept where the HTTP thread may look: the dispatch thread posts copies,
 * readers take copies. */
#ifndef BATON_ROUTER_OPS_STATUS_BOARD_H
#define BATON_ROUTER_OPS_STATUS_BOARD_H

#include "router/planner/worker_state.h"
#include "router/reasons.h"
#include "router/served_models.h"

#include <pthread.h>

struct worker_status {
    struct worker_info info;
    size_t model; /* index of served_models */
    enum worker_state state;
    struct worker_load load;
    char lane[16];
    uint64_t lane_bytes_per_second;
    uint64_t prompt_tokens, tokens; /* since its session is up */
};

/* For people: "up", "draining" or "down". Who drains is never "down", until the session with it is
 * over. */
const char *worker_status_state(const struct worker_status *worker);

/* Those of one model that take work. */
struct model_workers {
    uint32_t prefill, decode;
    /* That one request may have, prompt and answer, on the largest decode worker of those that a
     * prefill worker fits; where there is none, of those; where none takes work, of all that are
     * known. 0: none is */
    uint64_t request_tokens;
    unsigned request_rank; /* which of the three: 2, 1, 0 */
};

/* A worker whose registration was refused lately: it goes on asking, every few seconds. */
#define STATUS_MAX_REFUSED      16 /* the newest */
#define STATUS_REFUSED_SHOWN_US 30000000u
struct refused_worker {
    char name[64], address[128], model[128], sentence[512];
    enum worker_role role;
    enum reason reason;
    uint64_t at_us; /* 0: none */
};

struct router_status {
    bool draining;
    size_t worker_count;
    struct worker_status workers[ROUTER_MAX_WORKERS];
    struct model_workers models[SERVED_MODELS_MAX];
    struct refused_worker refused[STATUS_MAX_REFUSED];
};

struct status_board {
    pthread_mutex_t mutex;
    struct router_status status;
};

void status_board_init(struct status_board *board);
void status_board_deinit(struct status_board *board);
/* Waits only for a copy, never for work. */
void status_board_count_workers(struct status_board *board,
                                struct model_workers workers[SERVED_MODELS_MAX]);
/* How many tokens one request of the model may have: its context, or what its workers take. */
uint32_t router_status_context(const struct router_status *status,
                               const struct served_models *models, size_t model);
/* The same, now. Any thread. */
uint32_t status_board_context(struct status_board *board, const struct served_models *models,
                              size_t model);
/* Any thread: a registration of that name was refused, or (REASON_NONE) accepted, which forgets its
 * refusals. */
void status_board_registered(struct status_board *board, const struct worker_info *info,
                             enum reason reason, const char *sentence, uint64_t now_us);
void status_board_drain(struct status_board *board); /* from now on */
bool status_board_draining(struct status_board *board);
void status_board_read(struct status_board *board, struct router_status *status);

#endif
