/* The process's limit of open files: how much each use of them may take, and how a client is turned
 * away when none is left. */
#ifndef BATON_BASE_DESCRIPTORS_H
#define BATON_BASE_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

#define DESCRIPTORS_MAX 65536

/* Raises the soft limit (RLIMIT_NOFILE) to the hard one, but not beyond DESCRIPTORS_MAX or
 * `needed`, whichever is more. The usual soft limit of 1024 is for programs that use select(). Call
 * at start, before threads. Returns the new limit. */
uint64_t descriptors_raise(uint64_t needed);

/* One use of descriptors: the connections of a door, sessions with workers. */
struct descriptor_use {
    uint64_t wanted; /* places at most, by the settings; 0: this use is off */
    uint32_t each;   /* descriptors of one place; at least 1 */
    uint64_t places; /* set by descriptors_divide: 1 to `wanted`, or 0 if it is off */
};
/* Divides what is left of `limit` behind `own` (files, threads, listening sockets): an equal part
 * of the descriptors for each use, and what one doesn't need goes to the others. So no use takes
 * another's. Returns the limit at which each has all its places. PURE. */
uint64_t descriptors_divide(uint64_t limit, uint64_t own, struct descriptor_use *uses,
                            size_t count);

/* Opens a descriptor to be given up in an emergency. -1: none is left. */
int descriptors_spare(void);
/* Out of descriptors: gives up *spare for a moment, and closes the next connection that waits at
 * the listening socket `door`, which must not block. Sets *spare again if it is -1. Returns 0,
 * EAGAIN (none waits), or the errno that prevents even this. */
int descriptors_turn_away(int *spare, int door);

#endif
