/* Times that a benchmark takes while it runs, without touching new memory, and prints at the
 * end. */
#ifndef BATON_TESTS_BENCH_TIMES_H
#define BATON_TESTS_BENCH_TIMES_H

#include <stddef.h>

#define TIMES_MAX (256u << 10) /* those behind are left out */

struct times {
    double *us; /* [TIMES_MAX] */
    size_t count;
};

void times_init(struct times *times);
void times_deinit(struct times *times);
void times_add(struct times *times, double us);
/* Of the index-th: the least of what is told of it. Each index is told first after those below
 * it. */
void times_least(struct times *times, size_t index, double us);
/* Sorted, and begins anew; nothing where there are none. */
void times_print(const char *what, struct times *times);

#endif
