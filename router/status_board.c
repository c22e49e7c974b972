#include "router/status_board.h"

#include "common/base/str.h"

#include <string.h>

void status_board_init(struct status_board *board)
{
    memset(&board->status, 0, sizeof board->status);
    pthread_mutex_init(&board->mutex, NULL);
}

void status_board_deinit(struct status_board *board)
{
    pthread_mutex_destroy(&board->mutex);
}

void status_board_post(struct status_board *board, const struct workers *workers)
{
    pthread_mutex_lock(&board->mutex);
    struct router_status *status = &board->status;
    status->worker_count = 0;
    for (size_t i = 0; i < workers->count && status->worker_count < ROUTER_MAX_WORKERS; i++) {
        const struct worker *worker = workers->items[i];
        struct worker_status *shown = &status->workers[status->worker_count++];
        shown->info = worker->info;
        shown->state = worker->state;
        shown->load = worker->load;
        shown->lane_bytes_per_second = worker->lane_bytes_per_second;
        str_copy(shown->lane, sizeof shown->lane, worker->lane);
    }
    pthread_mutex_unlock(&board->mutex);
}

void status_board_drain(struct status_board *board)
{
    pthread_mutex_lock(&board->mutex);
    board->status.draining = true;
    pthread_mutex_unlock(&board->mutex);
}

bool status_board_draining(struct status_board *board)
{
    pthread_mutex_lock(&board->mutex);
    bool draining = board->status.draining;
    pthread_mutex_unlock(&board->mutex);
    return draining;
}

void status_board_read(struct status_board *board, struct router_status *status)
{
    pthread_mutex_lock(&board->mutex);
    *status = board->status;
    pthread_mutex_unlock(&board->mutex);
}
