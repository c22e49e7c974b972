/* The speed of a lane: the bytes of its reads over the time in which at least one was under way,
 * for about the last second of such time. PURE. */
#ifndef BATON_DECODE_WORKER_LANE_SPEED_H
#define BATON_DECODE_WORKER_LANE_SPEED_H

#include <stdint.h>

struct lane_speed {
    uint32_t under_way;
    uint64_t busy_since_us; /* while a read is under way */
    uint64_t busy_us, bytes;
};

void lane_speed_on_read(struct lane_speed *speed, uint64_t now_us);
/* `bytes`: 0 for a read that failed. */
void lane_speed_on_read_done(struct lane_speed *speed, uint64_t bytes, uint64_t now_us);
/* Returns 0 if nothing is known yet. */
uint64_t lane_speed_bytes_per_second(const struct lane_speed *speed);

#endif
