/* The processes that `baton up` started, and the signals to it. Owner: one thread, the one that
 * called cluster_open.
 *
 * All waiting happens in cluster_turn: for a signal to stop, a child's end, a ready line, an
 * answer, or a restart that is due. Dead children are reaped at once, since a zombie looks alive to
 * UCX's peers. One log line reports each end with name, pid and cause.
 *
 * After cluster_keep a child that ended is started again (process.h), at its old address, so that
 * its peers find it. A worker takes any other address if the old one is taken. The router keeps its
 * own, since the workers know no other. Failpoints happen in a process's first life only.
 *
 * After cluster_watch a child that runs and doesn't answer is reported, and ended if it is silent
 * for too long (liveness.h).
 *
 * The warnings and errors in the processes' logs are repeated on standard error; during a drain
 * only errors. */
#ifndef BATON_CLI_CLUSTER_H
#define BATON_CLI_CLUSTER_H

#include "common/base/stop_signals.h"
#include "common/cli/liveness.h"
#include "common/cli/process.h"

/* A child that got SIGTERM is killed after its grace. One that has served may have a large pool,
 * which the kernel needs seconds to take apart. One that still starts may read its model for
 * minutes. Until then SIGTERM is sent again and again: the child may take the first for an order to
 * drain, and the second for an echo of the first. */
#define CLUSTER_END_GRACE_US   5000000u
#define CLUSTER_START_GRACE_US 1000000u
#define CLUSTER_TELL_AGAIN_US  (2 * STOP_SIGNALS_ONE_US)
/* Interval of the log lines that say which process a start waits for. */
#define CLUSTER_START_TELL_US 3000000u
/* Interval at which the processes' logs are read for warnings and errors. */
#define CLUSTER_ECHO_US 500000u

/* State of a child across its lives. */
struct cluster_care {
    struct process_plan plan; /* for its first start */
    struct restart restart;
    bool down;           /* ended without an order, and not back yet */
    bool any_address;    /* its old address could not be had: take any */
    uint64_t started_us; /* begin of this life */
    uint64_t down_us;    /* when it went down */
    uint64_t kill_us;    /* it got SIGTERM, and gets SIGKILL at this time; 0: neither */
    uint64_t tell_us;    /* it gets SIGTERM again at this time */
    bool killed;         /* by us */
    struct liveness liveness;
    struct liveness_question question;
    struct log_echo echo; /* its log */
};

struct cluster {
    size_t count;
    struct process processes[CLUSTER_MAX_PROCESSES];
    struct cluster_care care[CLUSTER_MAX_PROCESSES];
    struct stop_signals stop;
    struct log_echo_room echo_room;
    uint64_t echo_us;       /* when the logs are read next */
    int child_fd;           /* signalfd of SIGCHLD */
    bool draining;          /* a child that ends now follows an order */
    bool forced;            /* a child that had served had to be killed */
    bool changed;           /* a child is back with another pid; the reader clears it */
    uint64_t end_grace_us;  /* CLUSTER_END_GRACE_US, except in tests */
    uint64_t start_tell_us; /* CLUSTER_START_TELL_US, except in tests */
    uint64_t restart_cap_us, start_limit_us; /* set by cluster_keep; 0: no restarts */
    bool watching;                           /* since cluster_watch */
    uint64_t silence_limit_us;
};

/* Takes over SIGINT, SIGTERM, SIGHUP and SIGCHLD of the process. Call it before threads start. */
enum status cluster_open(struct cluster *cluster, struct error *err) WARN_UNUSED;
/* All processes must have ended. */
void cluster_close(struct cluster *cluster);

/* Starts one more process. *started (may be NULL) stays valid as long as the cluster, and so must
 * the plan's strings. */
enum status cluster_start(struct cluster *cluster, const struct process_plan *plan,
                          const struct process **started, struct error *err) WARN_UNUSED;

/* Waits for one event, at most timeout_us (UINT64_MAX: for ever), and acts on it. */
void cluster_turn(struct cluster *cluster, uint64_t timeout_us);
/* Waits until all processes are ready. STATUS_UNAVAILABLE: one ended instead, and its log's last
 * lines went to stderr. STATUS_INVALID: one ended because of its settings. STATUS_CANCELLED: a
 * signal to stop came. STATUS_TIMEOUT. */
enum status cluster_wait_ready(struct cluster *cluster, uint64_t deadline_us,
                               struct error *err) WARN_UNUSED;
size_t cluster_running(const struct cluster *cluster);
/* Children are started again from now on, at most restart_cap_us after their end. A new life that
 * isn't ready after start_limit_us is ended, and counts as one more end. */
void cluster_keep(struct cluster *cluster, uint64_t restart_cap_us, uint64_t start_limit_us);
/* Children are asked from now on whether they answer. One that is silent for limit_us is ended; 0:
 * it is only reported. */
void cluster_watch(struct cluster *cluster, uint64_t limit_us);
/* Returns how many children ended without an order and are not back. */
size_t cluster_down(const struct cluster *cluster);

/* Ends all processes. SIGTERM goes to the router first, which finishes its requests while the
 * workers still serve it, then to the workers. A process that is left at the deadline gets SIGKILL.
 * One more signal to stop is passed on to all, which ends requests with their status: from then on
 * each has CLUSTER_END_GRACE_US. A process that still starts has CLUSTER_START_GRACE_US from its
 * first SIGTERM on. Returns true if no process that had served was killed. */
bool cluster_drain(struct cluster *cluster, uint64_t timeout_us);

#endif
