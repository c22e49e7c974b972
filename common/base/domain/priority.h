/* Who goes first on a worker, above every policy: for blocks, for rows, and in who is preempted
 * last. The numbers are those of the protocols. */
#ifndef BATON_BASE_DOMAIN_PRIORITY_H
#define BATON_BASE_DOMAIN_PRIORITY_H

#include <stdbool.h>
#include <stddef.h>

enum priority {
    PRIORITY_NORMAL,
    PRIORITY_HIGH,
    /* only what the others leave: no blocks while one of them waits, the rest of a step's budget */
    PRIORITY_OFFLINE,
    PRIORITIES
};

/* As people write them, by enum priority; NULL ends them. */
extern const char *const priority_names[PRIORITIES + 1];
/* False: none is called so. */
bool priority_find(const char *name, size_t length, enum priority *priority);

#endif
