/* The process's limit of open files. */
#ifndef BATON_BASE_DESCRIPTORS_H
#define BATON_BASE_DESCRIPTORS_H

#include <stdint.h>

#define DESCRIPTORS_MAX 65536

/* Raises the soft limit (RLIMIT_NOFILE) to the hard one, or to DESCRIPTORS_MAX. The usual soft
 * limit of 1024 is for programs that use select(). Call at start, before threads. Returns the new
 * limit. */
uint64_t descriptors_raise(void);

#endif
