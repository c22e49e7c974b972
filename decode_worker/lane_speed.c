#include "decode_worker/lane_speed.h"

#define WINDOW_US 1000000u

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
    while (speed->busy_us > 2 * WINDOW_US) { /* the older half counts half */
        speed->busy_us /= 2;
        speed->bytes /= 2;
    }
}

uint64_t lane_speed_bytes_per_second(const struct lane_speed *speed)
{
    return speed->busy_us ? (uint64_t)((double)speed->bytes * 1e6 / (double)speed->busy_us) : 0;
}
