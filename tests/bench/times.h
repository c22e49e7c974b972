/* Times of a benchmark. Adding one touches no new memory; times_print prints them at the end. */
#ifndef BATON_TESTS_BENCH_TIMES_H
#define BATON_TESTS_BENCH_TIMES_H

#include <stddef.h>

#define TIMES_MAX (256u << 10) /* later ones are left out */

struct times {
    double *us; /* [TIMES_MAX] */
    size_t count;
};

void times_init(struct times *times);
void times_deinit(struct times *times);
void times_add(struct times *times, double us);
/* Keeps the least time of the index-th. The first call for an index comes after all lower
 * indexes. */
void times_least(struct times *times, size_t index, double us);
/* Prints the sorted times and clears them. Prints nothing if there are none. */
void times_print(const char *what, struct times *times);

#endif
