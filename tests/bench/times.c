#include "tests/bench/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void times_init(struct times *times)
{
    times->us = malloc(TIMES_MAX * sizeof *times->us);
    memset(times->us, 1, TIMES_MAX * sizeof *times->us); /* its pages are there */
}

void times_deinit(struct times *times)
{
    free(times->us);
}

void times_add(struct times *times, double us)
{
    if (times->count < TIMES_MAX)
        times->us[times->count++] = us;
}

void times_least(struct times *times, size_t index, double us)
{
    if (index >= times->count)
        times_add(times, us);
    else if (us < times->us[index])
        times->us[index] = us;
}

static int by_time(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

void times_print(const char *what, struct times *times)
{
    double sum = 0;
    if (!times->count)
        return;
    qsort(times->us, times->count, sizeof *times->us, by_time);
    for (size_t i = 0; i < times->count; i++)
        sum += times->us[i];
    printf("%-40s %8zu times: mean %8.1f us, p50 %8.1f, p99 %8.1f, max %8.1f\n", what, times->count,
           sum / (double)times->count, times->us[times->count / 2],
           times->us[times->count * 99 / 100], times->us[times->count - 1]);
    times->count = 0;
}
