/* When a process that ended is started again, and when that is a crash loop. PURE: one struct a
 * process, time is handed in.
 *
 * The first restart comes almost at once, each further one after twice the wait, up to a cap, for
 * ever; a process that has served for a while starts from the beginning. One that served and ended
 * in order was asked to, by somebody: it comes back as after a first end, and is no end of a crash
 * loop, unless that happens so often that it must be one. */
#ifndef BATON_CLI_RESTART_H
#define BATON_CLI_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#define RESTART_FIRST_US   100000u
#define RESTART_HEALTHY_US 10000000u /* having served so long, an end is the first again */
#define RESTART_LOOP_ENDS  5         /* so many ends in a row are a crash loop */
#define RESTART_ORDERLY                                                                            \
    8 /* ends in order, without a healthy while between them, that are taken for wishes */

struct restart {
    uint32_t count;     /* times that it was started again */
    uint32_t in_a_row;  /* ends without a healthy while between them, but for orderly ones */
    uint32_t orderly;   /* likewise, in order */
    uint64_t wait_us;   /* of the restart that is due */
    uint64_t due_us;    /* 0: none is */
    uint64_t served_us; /* when it became ready; 0: not yet in this life */
};

/* It serves. */
void restart_on_ready(struct restart *restart, uint64_t now_us);
/* It ended, `in_order` (process.h) or not: sets due_us. True: this makes a crash loop of it, which
 * is worth saying, once. */
bool restart_on_end(struct restart *restart, bool in_order, uint64_t cap_us, uint64_t now_us);
/* It was started again: counted, nothing is due. A start that fails is one more end. */
void restart_on_started(struct restart *restart);

#endif
