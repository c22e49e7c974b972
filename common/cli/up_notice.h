/* What `baton up` tells scripts and the other commands of its cluster, and where: the well-known
 * file (cluster_file.h), and that of --ready-file. Starts and ends nothing. */
#ifndef BATON_CLI_UP_NOTICE_H
#define BATON_CLI_UP_NOTICE_H

#include "common/cli/cluster.h"
#include "common/cli/cluster_status.h"
#include "common/cli/up_plan.h"

struct up_notice {
    const struct up_settings *settings;
    const struct cluster *cluster;     /* the router is its first process */
    const struct model_status *models; /* as the router tells them, in the order of the settings */
    const char *log_dir;               /* "": none */
};

/* Before anything is started. STATUS_INVALID: --ready-file names what is there and no file, or a
 * folder that can't be written. */
enum status up_notice_check(const struct up_settings *settings, struct error *err) WARN_UNUSED;
/* Once the cluster serves. */
struct cluster_file up_notice_describe(const struct up_notice *notice);
enum status up_notice_publish(const struct up_settings *settings, const struct cluster_file *file,
                              struct error *err) WARN_UNUSED;
/* Of this process, and of an earlier one with the same settings. */
void up_notice_withdraw(const struct up_settings *settings);

#endif
