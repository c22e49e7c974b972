/* The middle of a benchmark's rounds: one disturbed round doesn't move it. */
#ifndef BATON_CLI_MEDIAN_H
#define BATON_CLI_MEDIAN_H

#include <stddef.h>

/* Sorts the values, ascending; of an even count, the mean of the two in the middle. count > 0. */
double median(double *values, size_t count);

#endif
