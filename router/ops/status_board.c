#include "router/ops/status_board.h"

#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>

const char *worker_status_state(const struct worker_status *worker)
{
    if (worker->load.draining)
        return "draining";
    return worker->state != WORKER_UP ? "down" : worker->hangs ? "hung" : "up";
}

size_t router_status_room(struct router_status *status, size_t count)
{
    if (count <= status->worker_capacity)
        return count;
    size_t capacity = count + count / 2;
    struct worker_status *workers = realloc(status->workers, capacity * sizeof *workers);
    if (!workers)
        return status->worker_capacity;
    status->workers = workers;
    status->worker_capacity = capacity;
    return count;
}

void router_status_deinit(struct router_status *status)
{
    free(status->workers);
    status->workers = NULL;
    status->worker_count = status->worker_capacity = 0;
}

void status_board_init(struct status_board *board)
{
    memset(&board->status, 0, sizeof board->status);
    pthread_mutex_init(&board->mutex, NULL);
}

void status_board_deinit(struct status_board *board)
{
    router_status_deinit(&board->status);
    pthread_mutex_destroy(&board->mutex);
}

void status_board_count_workers(struct status_board *board,
                                struct model_workers workers[SERVED_MODELS_MAX])
{
    pthread_mutex_lock(&board->mutex);
    memcpy(workers, board->status.models, sizeof board->status.models);
    pthread_mutex_unlock(&board->mutex);
}

uint32_t router_status_context(const struct router_status *status,
                               const struct served_models *models, size_t model)
{
    uint32_t context = models->items[model].limits.context;
    uint64_t tokens = status->models[model].request_tokens;
    return tokens && tokens < context ? (uint32_t)tokens : context;
}

uint32_t status_board_context(struct status_board *board, const struct served_models *models,
                              size_t model)
{
    pthread_mutex_lock(&board->mutex);
    uint32_t context = router_status_context(&board->status, models, model);
    pthread_mutex_unlock(&board->mutex);
    return context;
}

/* Returns the place of this name's refusal, otherwise that of the oldest refusal. */
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
    status->workers = NULL;
    status->worker_capacity = 0;
    status->worker_count = router_status_room(status, board->status.worker_count);
    if (status->worker_count)
        memcpy(status->workers, board->status.workers,
               status->worker_count * sizeof *status->workers);
    pthread_mutex_unlock(&board->mutex);
}
