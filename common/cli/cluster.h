/* The processes that `baton up` started, and the signals about them. Owner: one thread, the one
 * that called cluster_open.
 *
 * Everything waits in one place, cluster_turn: a signal to stop, a child that ended, a ready line,
 * a restart that is due. Dead children are reaped at once (a zombie looks alive to UCX's peers) and
 * reported by one log line with name, pid and cause.
 *
 * After cluster_keep a child that ended is started again (restart.h says when), at the address that
 * it had, so that its peers find it: a worker that can't have it any more takes any, the router
 * never, for the workers know no other. Failpoints happen in a process's first life only. What the
 * processes' logs warn of is repeated on standard error (log_echo.h), in a drain only what is an
 * error. */
#ifndef BATON_CLI_CLUSTER_H
#define BATON_CLI_CLUSTER_H

#include "common/base/stop_signals.h"
#include "common/cli/log_echo.h"
#include "common/cli/process.h"
#include "common/cli/restart.h"

/* What was told to end now is killed if it is still there after so long: what has served may have a
 * large pool, which takes the kernel seconds to take apart, and what is still starting may read its
 * model for minutes. Meanwhile it is told again and again, for the first time may count as an order
 * to drain, and the second as no more than an echo of the first. */
#define CLUSTER_END_GRACE_US   5000000u
#define CLUSTER_START_GRACE_US 1000000u
#define CLUSTER_TELL_AGAIN_US  (2 * STOP_SIGNALS_ONE_US)
/* Who waits for a start hears of it so often. */
#define CLUSTER_START_TELL_US 3000000u
/* Warnings and errors in the processes' logs are repeated so late at most. */
#define CLUSTER_ECHO_US 500000u

/* What it takes to start a child again. */
struct cluster_care {
    struct process_plan plan; /* of its first start */
    struct restart restart;
    bool down;            /* ended untold, and not back yet */
    bool any_address;     /* the one that it had was not to be had: take any */
    uint64_t started_us;  /* of this life */
    uint64_t down_us;     /* when it went down */
    uint64_t kill_us;     /* told to end, and killed if it is still there then; 0: not */
    uint64_t tell_us;     /* and told again then */
    bool killed;          /* by us */
    struct log_echo echo; /* of its log */
};

struct cluster {
    size_t count;
    struct process processes[CLUSTER_MAX_PROCESSES];
    struct cluster_care care[CLUSTER_MAX_PROCESSES];
    struct stop_signals stop;
    struct log_echo_room echo_room;
    uint64_t echo_us;       /* when the logs are looked at next */
    int child_fd;           /* signalfd of SIGCHLD */
    bool draining;          /* a child that ends now does what it was told */
    bool forced;            /* one that had served had to be killed */
    bool changed;           /* a child is back, with another pid: the reader clears it */
    uint64_t end_grace_us;  /* CLUSTER_END_GRACE_US, but in tests */
    uint64_t start_tell_us; /* CLUSTER_START_TELL_US, but in tests */
    uint64_t restart_cap_us, start_limit_us; /* of cluster_keep; 0: what ended stays down */
};

/* Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of the process; before threads start. */
enum status cluster_open(struct cluster *cluster, struct error *err) WARN_UNUSED;
/* All processes must have ended. */
void cluster_close(struct cluster *cluster);

/* Starts one more process; *started (may be NULL) stays valid as long as the cluster, and so must
 * the plan's strings. */
enum status cluster_start(struct cluster *cluster, const struct process_plan *plan,
                          const struct process **started, struct error *err) WARN_UNUSED;

/* Waits for one thing to happen, at most timeout_us (UINT64_MAX: for ever), and takes it in. */
void cluster_turn(struct cluster *cluster, uint64_t timeout_us);
/* Waits until all processes are ready. STATUS_UNAVAILABLE: one ended instead (its log's last lines
 * go to stderr); STATUS_CANCELLED: a signal to stop came; STATUS_TIMEOUT. */
enum status cluster_wait_ready(struct cluster *cluster, uint64_t deadline_us,
                               struct error *err) WARN_UNUSED;
size_t cluster_running(const struct cluster *cluster);
/* From now on what ends is started again, after restart_cap_us at most; a new life that is not
 * ready after start_limit_us is ended, and counts as one more end. */
void cluster_keep(struct cluster *cluster, uint64_t restart_cap_us, uint64_t start_limit_us);
/* Children that ended without having been told, and are not back. */
size_t cluster_down(const struct cluster *cluster);

/* Ends all processes: SIGTERM to the router first, which finishes what it has while the workers
 * still serve it, then to the workers; SIGKILL to what is left at the deadline. One more signal to
 * stop is passed on, to workers that have not been told yet too, which ends requests with their
 * status; from then on each has CLUSTER_END_GRACE_US, and what is still starting
 * CLUSTER_START_GRACE_US from the first on. True if nothing that had served was killed. */
bool cluster_drain(struct cluster *cluster, uint64_t timeout_us);

#endif
