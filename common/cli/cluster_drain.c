#include "common/cli/cluster.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/cli/cluster_ends.h"

#include <signal.h>

#define MOD "up"

/* `now`: whatever it has to do yet. What is still starting has nothing to drain, and may be busy
 * for long with reading its model. */
static void tell_to_end(struct cluster *cluster, size_t first, size_t end, bool now)
{
    for (size_t i = first; i < end; i++) {
        const struct process *process = &cluster->processes[i];
        if (process->state == PROCESS_STARTING || (process->state == PROCESS_READY && now))
            cluster_end_child(cluster, i);
        else if (process->state == PROCESS_READY)
            kill(process->member.pid, SIGTERM);
    }
}

/* Waits until processes [first, end) have ended; false at the deadline or at one more signal to
 * stop. */
static bool wait_ended(struct cluster *cluster, size_t first, size_t end, uint64_t deadline_us)
{
    uint32_t wishes = cluster->stop.wishes;
    for (;;) {
        size_t running = 0;
        for (size_t i = first; i < end; i++)
            running += cluster->processes[i].state != PROCESS_ENDED;
        if (!running)
            return true;
        if (!cluster_left_us(deadline_us) || cluster->stop.wishes != wishes)
            return false;
        cluster_turn(cluster, cluster_left_us(deadline_us));
    }
}

/* Processes [first, end): in order, or, once somebody has asked again, now. False: some are left at
 * the deadline, or at a third asking. */
static bool end_all(struct cluster *cluster, size_t first, size_t end, uint64_t deadline_us,
                    bool *now)
{
    uint32_t wishes = cluster->stop.wishes;
    tell_to_end(cluster, first, end, *now);
    if (wait_ended(cluster, first, end, deadline_us))
        return true;
    if (*now || cluster->stop.wishes == wishes)
        return false;
    log_info(MOD, "msg=\"asked a second time: ending what still runs\" processes=%zu",
             cluster_running(cluster));
    *now = true;
    tell_to_end(cluster, first, end, true);
    return wait_ended(cluster, first, end, UINT64_MAX);
}

static bool drain(struct cluster *cluster, uint64_t timeout_us)
{
    uint64_t deadline_us = clock_now_us() + timeout_us;
    size_t routers = cluster->count ? 1 : 0; /* the first process */
    bool now = false;
    cluster->draining = true;
    if (end_all(cluster, 0, routers, deadline_us, &now) &&
        end_all(cluster, routers, cluster->count, now ? UINT64_MAX : deadline_us, &now))
        return !cluster->forced;
    log_warn(MOD, "msg=\"killing what did not end by itself\" processes=%zu",
             cluster_running(cluster));
    for (size_t i = 0; i < cluster->count; i++)
        if (cluster->processes[i].state != PROCESS_ENDED)
            cluster_kill_child(cluster, i);
    while (cluster_running(cluster))
        cluster_turn(cluster, UINT64_MAX);
    return false;
}

bool cluster_drain(struct cluster *cluster, uint64_t timeout_us)
{
    cluster_echo(cluster, clock_now_us(), false);
    cluster->echo_room.errors_only =
        true; /* they warn of each other's ends, which are wished for */
    bool gentle = drain(cluster, timeout_us);
    cluster_echo(cluster, clock_now_us(), true);
    return gentle;
}
