#include "router/ops/recent_times.h"

#include <pthread.h>
#include <stdlib.h>

struct recent_times {
    pthread_mutex_t mutex;
    uint64_t count; /* that ever were; the newest is samples[(count - 1) % capacity] */
    struct recent_sample samples[RECENT_TIMES_CAPACITY];
};

const char *recent_kind_name(enum recent_kind kind)
{
    static const char *const names[RECENT_KINDS] = {"queue", "ttft", "tpot", "e2e"};
    return names[kind];
}

enum status recent_times_create(struct recent_times **out)
{
    struct recent_times *times = calloc(1, sizeof *times);
    if (!times)
        return STATUS_LIMIT;
    pthread_mutex_init(&times->mutex, NULL);
    *out = times;
    return STATUS_OK;
}

void recent_times_destroy(struct recent_times *times)
{
    if (!times)
        return;
    pthread_mutex_destroy(&times->mutex);
    free(times);
}

void recent_times_note(struct recent_times *times, const struct recent_sample *sample)
{
    pthread_mutex_lock(&times->mutex);
    times->samples[times->count++ % RECENT_TIMES_CAPACITY] = *sample;
    pthread_mutex_unlock(&times->mutex);
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

/* The nearest rank: the smallest one that `share` of all are not above. */
static double quantile(const double *sorted, size_t count, unsigned percent)
{
    size_t rank = (count * percent + 99) / 100;
    return sorted[rank ? rank - 1 : 0];
}

static struct recent_figure figure(const struct recent_sample *samples, size_t count,
                                   enum recent_kind kind, double *scratch)
{
    struct recent_figure figure = {0};
    for (size_t i = 0; i < count; i++)
        if (samples[i].us[kind] >= 0)
            scratch[figure.count++] = samples[i].us[kind];
    if (!figure.count)
        return figure;
    qsort(scratch, figure.count, sizeof *scratch, by_size);
    figure.p50_us = quantile(scratch, figure.count, 50);
    figure.p99_us = quantile(scratch, figure.count, 99);
    return figure;
}

/* Those of the window; they ended one after the other. */
static size_t copy_window(struct recent_times *times, uint64_t now_us,
                          struct recent_sample *samples)
{
    uint64_t since_us = now_us > RECENT_TIMES_WINDOW_US ? now_us - RECENT_TIMES_WINDOW_US : 0;
    size_t taken = 0;
    pthread_mutex_lock(&times->mutex);
    for (uint64_t i = times->count; i > 0 && taken < RECENT_TIMES_CAPACITY; i--) {
        const struct recent_sample *sample = &times->samples[(i - 1) % RECENT_TIMES_CAPACITY];
        if (sample->ended_us < since_us)
            break;
        samples[taken++] = *sample;
    }
    pthread_mutex_unlock(&times->mutex);
    return taken;
}

bool recent_times_read(struct recent_times *times, uint64_t now_us,
                       struct recent_figure figures[RECENT_KINDS])
{
    struct recent_sample *samples = malloc(RECENT_TIMES_CAPACITY * sizeof *samples);
    double *scratch = malloc(RECENT_TIMES_CAPACITY * sizeof *scratch);
    bool possible = samples && scratch;
    if (possible) {
        size_t count = copy_window(times, now_us, samples);
        for (int kind = 0; kind < RECENT_KINDS; kind++)
            figures[kind] = figure(samples, count, (enum recent_kind)kind, scratch);
    }
    free(scratch);
    free(samples);
    return possible;
}
