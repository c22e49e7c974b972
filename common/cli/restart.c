#include "common/cli/restart.h"

void restart_on_ready(struct restart *restart, uint64_t now_us)
{
    restart->served_us = now_us;
}

bool restart_on_end(struct restart *restart, uint64_t cap_us, uint64_t now_us)
{
    if (restart->served_us && now_us - restart->served_us >= RESTART_HEALTHY_US)
        restart->in_a_row = 0;
    restart->served_us = 0;
    restart->wait_us = restart->in_a_row++ ? restart->wait_us * 2 : RESTART_FIRST_US;
    if (restart->wait_us > cap_us)
        restart->wait_us = cap_us;
    restart->due_us = now_us + restart->wait_us;
    return restart->in_a_row == RESTART_LOOP_ENDS;
}

void restart_on_started(struct restart *restart)
{
    restart->count++;
    restart->due_us = 0;
}
