/* The time at which a worker of this process sent each token of a request, for the client of this
 * process that gets it through a router. Any thread. The tables have a fixed size: a newer request
 * or token overwrites an older one in its place. */
#ifndef BATON_TESTS_BENCH_STAMPS_H
#define BATON_TESTS_BENCH_STAMPS_H

#include <stddef.h>
#include <stdint.h>

#define STAMPS_NAME "load-" /* stands before a request's number, in its body and in its id */

void stamps_set(uint32_t request, uint32_t token); /* now */
uint64_t stamps_get_ns(uint32_t request, uint32_t token);
/* Returns the number after the first STAMPS_NAME; 0: there is none. */
uint32_t stamps_number(const char *text, size_t length);

#endif
