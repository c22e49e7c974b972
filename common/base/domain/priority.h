/* Order of requests on a worker, above every policy: for blocks, for rows, and in preemption (the
 * highest is preempted last). The numbers are those of the protocols. */
#ifndef BATON_BASE_DOMAIN_PRIORITY_H
#define BATON_BASE_DOMAIN_PRIORITY_H

#include <stdbool.h>
#include <stddef.h>

enum priority {
    PRIORITY_NORMAL,
    PRIORITY_HIGH,
    /* takes what the others leave: no blocks while another waits, the rest of a step's budget */
    PRIORITY_OFFLINE,
    PRIORITIES
};

/* Names in settings and requests, by enum priority; NULL ends them. */
extern const char *const priority_names[PRIORITIES + 1];
/* Returns false when there is no such name. */
bool priority_find(const char *name, size_t length, enum priority *priority);

#endif
