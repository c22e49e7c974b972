/* Links between workers: a model of one, and the measured speed of one. PURE: the caller hands in
 * the time, which never goes back.
 *
 * The model: the flows under way share the link's bytes a second evenly (processor sharing).
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

/* The speed of a lane: the bytes of its reads over the time in which at least one was under way,
 * for about the last second of such time. */
struct lane_speed {
    uint32_t under_way;
    uint64_t busy_since_us; /* while a read is under way */
    uint64_t busy_us, bytes;
};

void lane_speed_on_read(struct lane_speed *speed, uint64_t now_us);
/* `bytes`: 0 for a read that failed. */
void lane_speed_on_read_done(struct lane_speed *speed, uint64_t bytes, uint64_t now_us);
/* Reads are measured anew from now on, also those under way. */
void lane_speed_forget(struct lane_speed *speed, uint64_t now_us);
/* Returns 0 if nothing is known yet. */
uint64_t lane_speed_bytes_per_second(const struct lane_speed *speed);

#endif
