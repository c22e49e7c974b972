/* Internal to this folder: how a child is ended and what its log says, for the turns of the cluster
 * and for its drain. */
#ifndef BATON_CLI_CLUSTER_ENDS_H
#define BATON_CLI_CLUSTER_ENDS_H

#include "common/cli/cluster.h"

/* Told to end now: nothing to wait for but what it does about its end (a pool that fell back to
 * /dev/shm has a name, which outlives a killed one). It must not have ended; cluster_turn tells it
 * again, and kills it after its grace. */
void cluster_end_child(struct cluster *cluster, size_t index);
void cluster_kill_child(struct cluster *cluster, size_t index);
/* Repeats what the logs warn of; `last`: no line comes after it. */
void cluster_echo(struct cluster *cluster, uint64_t now_us, bool last);
/* On standard error, for whose reader nobody waits. */
void cluster_show_log_tail(const struct process *process);
/* From now to the deadline; 0: it is over. */
uint64_t cluster_left_us(uint64_t deadline_us);

#endif
