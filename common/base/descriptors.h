/* The process's limit of open files. */
#ifndef BATON_BASE_DESCRIPTORS_H
#define BATON_BASE_DESCRIPTORS_H

#include <stdint.h>

#define DESCRIPTORS_MAX 65536

/* Raises the soft limit (RLIMIT_NOFILE) to the hard one, or to DESCRIPTORS_MAX: the usual soft
 * limit of 1024 is for programs that use select(). At start, before threads. Returns what it is
 * now. */
uint64_t descriptors_raise(void);

#endif
