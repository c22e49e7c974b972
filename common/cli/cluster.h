/* The processes that `baton up` started, and the signals about them. Owner: one thread, the one that called cluster_open.
 *
 * Everything waits in one place, cluster_turn: a signal to stop, a child that ended, a ready line. Dead children are reaped at
 * once (a zombie looks alive to UCX's peers) and reported by one log line with name, pid and cause. */
#ifndef BATON_CLI_CLUSTER_H
#define BATON_CLI_CLUSTER_H

#include "common/cli/process.h"

struct cluster {
    size_t count;
    struct process processes[CLUSTER_MAX_PROCESSES];
    int signal_fd;
    int stop_signals;  /* SIGINT, SIGTERM, SIGHUP so far */
    bool draining;     /* a child that ends now does what it was told */
    size_t unexpected; /* children that ended untold */
};

/* Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of the process; before threads start. */
enum status cluster_open(struct cluster *cluster, struct error *err) WARN_UNUSED;
/* All processes must have ended. */
void cluster_close(struct cluster *cluster);

/* Starts one more process; *started (may be NULL) stays valid as long as the cluster. */
enum status cluster_start(struct cluster *cluster, const struct process_plan *plan,
                          const struct process **started, struct error *err) WARN_UNUSED;

/* Waits for one thing to happen, at most timeout_us (UINT64_MAX: for ever), and takes it in. */
void cluster_turn(struct cluster *cluster, uint64_t timeout_us);
/* Waits until all processes are ready. STATUS_UNAVAILABLE: one ended instead (its log's last lines go to stderr);
 * STATUS_CANCELLED: a signal to stop came; STATUS_TIMEOUT. */
enum status cluster_wait_ready(struct cluster *cluster, uint64_t deadline_us,
                               struct error *err) WARN_UNUSED;
size_t cluster_running(const struct cluster *cluster);

/* Ends all processes: SIGTERM to the router first, which finishes what it has while the workers still serve it, then to the
 * workers; SIGKILL to what is left at the deadline or at a second signal. True if nothing had to be killed. */
bool cluster_drain(struct cluster *cluster, uint64_t timeout_us);

#endif
