#include "common/cli/restart.h"

void restart_on_ready(struct restart *restart, uint64_t now_us)
{
    restart->served_us = now_us;
}

bool restart_on_end(struct restart *restart, bool in_order, uint64_t cap_us, uint64_t now_us)
{
    if (restart->served_us && now_us - restart->served_us >= RESTART_HEALTHY_US)
        restart->in_a_row = restart->orderly = 0;
    bool wished = in_order && restart->served_us && restart->orderly < RESTART_ORDERLY;
    restart->served_us = 0;
    uint32_t doubled = 0;
    if (wished)
        restart->orderly++;
    else
        doubled = restart->in_a_row++;
    restart->wait_us = RESTART_FIRST_US;
    while (doubled-- && restart->wait_us < cap_us)
        restart->wait_us *= 2;
    if (restart->wait_us > cap_us)
        restart->wait_us = cap_us;
    restart->due_us = now_us + restart->wait_us;
    return !wished && restart->in_a_row == RESTART_LOOP_ENDS;
}

void restart_on_started(struct restart *restart)
{
    restart->count++;
    restart->due_us = 0;
}
