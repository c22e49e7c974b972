#include "common/base/domain/link_model.h"

#include "common/base/assert.h"

#include <math.h>

#define SPEED_WINDOW_US 1000000u

/* A flow with fewer bytes left is done: sums of shares round. */
#define LEFT_BYTES 1e-3

void link_add(struct link_model *link, struct link_flow *flow, double bytes, uint64_t now_us)
{
    ASSERT(!flow->added);
    link_advance(link, now_us);
    *flow = (struct link_flow){.next = link->flows,
                               .begins_us = now_us + link->latency_us,
                               .left_bytes = bytes,
                               .added = true};
    link->flows = flow;
}

void link_remove(struct link_model *link, struct link_flow *flow)
{
    if (!flow->added)
        return;
    struct link_flow **place = &link->flows;
    while (*place != flow)
        place = &(*place)->next;
    *place = flow->next;
    flow->added = false;
}

bool link_done(const struct link_flow *flow)
{
    return flow->left_bytes <= LEFT_BYTES;
}

/* The flows that move at `at_us`, the fewest bytes that one of them has left, and the time at which
 * the next one begins. */
struct moving {
    uint32_t count;
    double least_bytes, next_begin_us;
};

static struct moving find_moving(const struct link_model *link, double at_us)
{
    struct moving moving = {.least_bytes = INFINITY, .next_begin_us = INFINITY};
    for (const struct link_flow *flow = link->flows; flow; flow = flow->next) {
        if (link_done(flow))
            continue;
        if ((double)flow->begins_us > at_us) {
            moving.next_begin_us = fmin(moving.next_begin_us, (double)flow->begins_us);
            continue;
        }
        moving.count++;
        moving.least_bytes = fmin(moving.least_bytes, flow->left_bytes);
    }
    return moving;
}

/* Returns when the first of the flows that move now is done. */
static double next_done_us(const struct link_model *link, const struct moving *moving)
{
    return moving->count ? link->now_us + moving->least_bytes * moving->count / link->bytes_per_us
                         : INFINITY;
}

void link_advance(struct link_model *link, uint64_t now_us)
{
    while (link->now_us < (double)now_us) {
        struct moving moving = find_moving(link, link->now_us);
        double done_us = next_done_us(link, &moving);
        double until_us = fmin(fmin(done_us, moving.next_begin_us), (double)now_us);
        /* The bytes of the flow that is done are taken as they are: at a large now_us its last
         * moment may be too short for a double, and the loop must go on. */
        double each = until_us >= done_us ? moving.least_bytes
                      : moving.count ? (until_us - link->now_us) * link->bytes_per_us / moving.count
                                     : 0;
        for (struct link_flow *flow = link->flows; flow; flow = flow->next)
            if (!link_done(flow) && (double)flow->begins_us <= link->now_us)
                flow->left_bytes -= each;
        link->now_us = until_us;
    }
}

uint64_t link_next_us(const struct link_model *link)
{
    struct moving moving = find_moving(link, link->now_us);
    double next_us = fmin(next_done_us(link, &moving), moving.next_begin_us);
    return next_us < 0x1p63 ? (uint64_t)ceil(next_us) : UINT64_MAX;
}

void lane_speed_on_read(struct lane_speed *speed, uint64_t now_us)
{
    if (speed->under_way++ == 0)
        speed->busy_since_us = now_us;
}

void lane_speed_on_read_done(struct lane_speed *speed, uint64_t bytes, uint64_t now_us)
{
    if (speed->under_way == 0)
        return; /* a read that began before the last reset */
    speed->bytes += bytes;
    speed->busy_us += now_us - speed->busy_since_us;
    speed->busy_since_us = now_us;
    speed->under_way--;
    while (speed->busy_us > 2 * SPEED_WINDOW_US) { /* the older half counts half */
        speed->busy_us /= 2;
        speed->bytes /= 2;
    }
}

void lane_speed_forget(struct lane_speed *speed, uint64_t now_us)
{
    *speed = (struct lane_speed){.under_way = speed->under_way, .busy_since_us = now_us};
}

uint64_t lane_speed_bytes_per_second(const struct lane_speed *speed)
{
    return speed->busy_us ? (uint64_t)((double)speed->bytes * 1e6 / (double)speed->busy_us) : 0;
}
