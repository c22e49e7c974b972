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
    memset(status->models, 0, sizeof status->models);
    for (size_t i = 0; i < workers->count && status->worker_count < ROUTER_MAX_WORKERS; i++) {
        const struct worker *worker = workers->items[i];
        struct worker_status *shown = &status->workers[status->worker_count++];
        shown->info = worker->info;
        shown->model = worker->model;
        shown->state = worker->state;
        shown->load = worker->load;
        shown->lane_bytes_per_second = worker->lane_bytes_per_second;
        shown->prompt_tokens = worker->prompt_tokens;
        shown->tokens = worker->tokens;
        str_copy(shown->lane, sizeof shown->lane, worker->lane);
        struct model_workers *taking = &status->models[worker->model];
        taking->prefill += worker->info.role == ROLE_PREFILL && worker_is_ready(worker);
        taking->decode += worker->info.role == ROLE_DECODE && worker_is_ready(worker);
    }
    pthread_mutex_unlock(&board->mutex);
}

void status_board_count_workers(struct status_board *board,
                                struct model_workers workers[SERVED_MODELS_MAX])
{
    pthread_mutex_lock(&board->mutex);
    memcpy(workers, board->status.models, sizeof board->status.models);
    pthread_mutex_unlock(&board->mutex);
}

/* The place of that name's refusal, else the oldest one's. */
static struct refused_worker *place_of(struct router_status *status, const char *name)
{
    struct refused_worker *oldest = status->refused;
    for (size_t i = 0; i < STATUS_MAX_REFUSED; i++) {
        struct refused_worker *refused = &status->refused[i];
        if (refused->at_us && !strcmp(refused->name, name))
            return refused;
        if (refused->at_us < oldest->at_us)
            oldest = refused;
    }
    return oldest;
}

void status_board_registered(struct status_board *board, const struct worker_info *info,
                             enum reason reason, const char *sentence, uint64_t now_us)
{
    pthread_mutex_lock(&board->mutex);
    struct refused_worker *place = place_of(&board->status, info->name);
    if (reason) {
        *place = (struct refused_worker){.role = info->role, .reason = reason, .at_us = now_us};
        str_copy(place->name, sizeof place->name, info->name);
        str_copy(place->address, sizeof place->address, info->address);
        str_copy(place->model, sizeof place->model, info->model);
        str_copy(place->sentence, sizeof place->sentence, sentence);
    } else if (!strcmp(place->name, info->name)) {
        place->at_us = 0;
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
