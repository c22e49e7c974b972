/* One link: the flows under way share its bytes a second evenly (processor sharing).
 * PURE: the caller hands in the time, which never goes back.
 *
 * A flow begins to move `latency_us` after it was added, and is done when its bytes are through.
 * The caller owns the flows; each is in one link from link_add to link_remove. */
#ifndef BATON_BASE_DOMAIN_LINK_MODEL_H
#define BATON_BASE_DOMAIN_LINK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

struct link_flow {
    struct link_flow *next; /* the link's */
    uint64_t begins_us;
    double left_bytes;
    bool added;
};

struct link_model {
    double bytes_per_us;
    uint64_t latency_us;
    double now_us;
    struct link_flow *flows; /* the last added first */
};

void link_add(struct link_model *link, struct link_flow *flow, double bytes, uint64_t now_us);
/* A flow that isn't in the link is fine. */
void link_remove(struct link_model *link, struct link_flow *flow);
/* Moves bytes until `now_us`. */
void link_advance(struct link_model *link, uint64_t now_us);
/* Returns true if all bytes of the flow are through, as of the last link_advance. */
bool link_done(const struct link_flow *flow);
/* Returns the time at which a flow is done or begins next, rounded up; UINT64_MAX: all are done. */
uint64_t link_next_us(const struct link_model *link);

#endif
