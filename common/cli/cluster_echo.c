#include "common/base/log.h"
#include "common/cli/cluster_ends.h"

#include <string.h>

#define LOG_TAIL_BYTES 2000 /* a screen */

void cluster_show_log_tail(const struct process *process)
{
    char tail[LOG_TAIL_BYTES], *save = NULL;
    process_log_tail(process, tail, sizeof tail);
    if (!*tail)
        return;
    log_repeat("--- last lines of %s", process->log_path);
    for (char *line = strtok_r(tail, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        log_repeat("%s", line);
    log_repeat("---");
}

void cluster_echo(struct cluster *cluster, uint64_t now_us, bool last)
{
    for (size_t i = 0; i < cluster->count; i++) {
        const struct process *process = &cluster->processes[i];
        if (*process->log_path)
            log_echo_take(&cluster->care[i].echo, &cluster->echo_room, process->member.name,
                          process->log_path, now_us, last);
    }
    cluster->echo_us = now_us + CLUSTER_ECHO_US;
}
