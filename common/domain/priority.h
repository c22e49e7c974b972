/* Who goes first on a worker, above every policy: for blocks, for rows, and in who is preempted last. The numbers are those of the
 * protocols. */
#ifndef BATON_DOMAIN_PRIORITY_H
#define BATON_DOMAIN_PRIORITY_H

enum priority {
    PRIORITY_NORMAL,
    PRIORITY_HIGH,
    PRIORITY_OFFLINE, /* only what the others leave: no blocks while one of them waits, the rest of a step's budget */
    PRIORITIES
};

#endif
