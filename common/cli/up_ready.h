/* What `baton up` prints once its cluster serves: the models, the addresses, and what to try. */
#ifndef BATON_CLI_UP_READY_H
#define BATON_CLI_UP_READY_H

#include "common/cli/cluster_status.h"
#include "common/cli/up_plan.h"

struct up_ready {
    const struct up_settings *settings;
    const struct cluster_file *file;
    const struct model_status *models; /* as the router tells them, in the order of the settings */
    uint64_t threads;                  /* of each worker */
    const char *bin_dir;
    bool own_log_dir; /* the logs' folder goes with the cluster */
};

void up_ready_print(const struct up_ready *ready);

#endif
