/* What /status shows, kept where the HTTP thread may look: the dispatch thread posts copies, readers take copies. */
#ifndef BATON_ROUTER_STATUS_BOARD_H
#define BATON_ROUTER_STATUS_BOARD_H

#include "router/workers.h"

#include <pthread.h>

struct worker_status {
    struct worker_info info;
    enum worker_state state;
    struct worker_load load;
    char lane[16];
    uint64_t lane_bytes_per_second;
};

struct router_status {
    bool draining;
    size_t worker_count;
    struct worker_status workers[ROUTER_MAX_WORKERS];
};

struct status_board {
    pthread_mutex_t mutex;
    struct router_status status;
};

void status_board_init(struct status_board *board);
void status_board_deinit(struct status_board *board);
/* Either waits only for a copy, never for work. */
void status_board_post(struct status_board *board, const struct workers *workers);
void status_board_drain(struct status_board *board); /* from now on */
bool status_board_draining(struct status_board *board);
void status_board_read(struct status_board *board, struct router_status *status);

#endif
