#include "common/cli/cluster.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define MOD            "up"
#define LOG_TAIL_BYTES 2000

enum status cluster_open(struct cluster *cluster, struct error *err)
{
    *cluster = (struct cluster){.signal_fd = -1};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    if (!sigprocmask(SIG_BLOCK, &signals, NULL))
        cluster->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (cluster->signal_fd < 0)
        return error_set(err, STATUS_IO, "cannot take signals: %s", strerror(errno));
    return STATUS_OK;
}

void cluster_close(struct cluster *cluster)
{
    ASSERT(cluster_running(cluster) == 0);
    close(cluster->signal_fd);
}

enum status cluster_start(struct cluster *cluster, const struct process_plan *plan,
                          const struct process **started, struct error *err)
{
    if (cluster->count == CLUSTER_MAX_PROCESSES)
        return error_set(err, STATUS_LIMIT, "more than %d processes", CLUSTER_MAX_PROCESSES);
    struct process *process = &cluster->processes[cluster->count];
    enum status status = process_start(plan, process, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "cannot start %s", plan->name);
    cluster->count++;
    if (started)
        *started = process;
    return STATUS_OK;
}

size_t cluster_running(const struct cluster *cluster)
{
    size_t running = 0;
    for (size_t i = 0; i < cluster->count; i++)
        running += cluster->processes[i].state != PROCESS_ENDED;
    return running;
}

static void report_end(struct cluster *cluster, const struct process *process)
{
    char cause[128];
    process_describe_end(process, cause, sizeof cause);
    bool told = cluster->draining && process->wait_status == 0;
    if (!cluster->draining)
        cluster->unexpected++;
    log_write(told ? LOG_INFO : LOG_ERROR, MOD, "msg=\"%s %s\" role=%s pid=%d log=%s",
              process->member.name, cause, process->member.role, (int)process->member.pid,
              *process->log_path ? process->log_path : "-");
}

static void take_signals(struct cluster *cluster)
{
    struct signalfd_siginfo info;
    while (read(cluster->signal_fd, &info, sizeof info) == sizeof info)
        cluster->stop_signals += info.ssi_signo != SIGCHLD;
    /* Several ends may share one SIGCHLD. */
    for (size_t i = 0; i < cluster->count; i++)
        if (process_reap(&cluster->processes[i]))
            report_end(cluster, &cluster->processes[i]);
}

static void take_ready(struct process *process)
{
    struct error err;
    if (process_read_ready(process, &err) != STATUS_OK) {
        log_error(MOD, "msg=\"cannot understand a ready line: %s\"", err.text);
        kill(process->member.pid, SIGKILL);
    }
}

void cluster_turn(struct cluster *cluster, uint64_t timeout_us)
{
    struct pollfd fds[1 + CLUSTER_MAX_PROCESSES] = {{.fd = cluster->signal_fd, .events = POLLIN}};
    for (size_t i = 0; i < cluster->count; i++)
        fds[1 + i] =
            (struct pollfd){.fd = cluster->processes[i].ready_fd, .events = POLLIN}; /* -1: none */
    uint64_t timeout_ms = timeout_us / 1000 + (timeout_us % 1000 != 0);
    int wait_ms = timeout_us == UINT64_MAX ? -1 : timeout_ms > 60000 ? 60000 : (int)timeout_ms;
    if (poll(fds, 1 + cluster->count, wait_ms) <= 0)
        return;
    for (size_t i = 0; i < cluster->count; i++)
        if (fds[1 + i].revents)
            take_ready(&cluster->processes[i]);
    if (fds[0].revents)
        take_signals(cluster);
}

static uint64_t left_us(uint64_t deadline_us)
{
    uint64_t now_us = clock_now_us();
    return now_us < deadline_us ? deadline_us - now_us : 0;
}

static enum status explain_end(const struct process *process, struct error *err)
{
    char cause[128], tail[LOG_TAIL_BYTES];
    process_describe_end(process, cause, sizeof cause);
    process_log_tail(process, tail, sizeof tail);
    if (*tail)
        fprintf(stderr, "--- last lines of %s\n%s---\n", process->log_path, tail);
    return error_set(err, STATUS_UNAVAILABLE, "%s %s before it was ready", process->member.name,
                     cause);
}

enum status cluster_wait_ready(struct cluster *cluster, uint64_t deadline_us, struct error *err)
{
    for (;;) {
        const struct process *waiting_for = NULL;
        for (size_t i = 0; i < cluster->count; i++) {
            if (cluster->processes[i].state == PROCESS_ENDED)
                return explain_end(&cluster->processes[i], err);
            if (cluster->processes[i].state == PROCESS_STARTING)
                waiting_for = &cluster->processes[i];
        }
        if (!waiting_for)
            return STATUS_OK;
        if (cluster->stop_signals)
            return error_set(err, STATUS_CANCELLED, "stopped by a signal");
        if (!left_us(deadline_us))
            return error_set(err, STATUS_TIMEOUT, "%s did not get ready in time: see %s",
                             waiting_for->member.name,
                             *waiting_for->log_path ? waiting_for->log_path : "above");
        cluster_turn(cluster, left_us(deadline_us));
    }
}

/* --- stopping --- */

static void signal_all(struct cluster *cluster, size_t first, size_t end, int number)
{
    for (size_t i = first; i < end; i++)
        if (cluster->processes[i].state != PROCESS_ENDED)
            kill(cluster->processes[i].member.pid, number);
}

/* Waits until processes [first, end) have ended; false at the deadline or at one more signal to stop. */
static bool wait_ended(struct cluster *cluster, size_t first, size_t end, uint64_t deadline_us)
{
    int signals = cluster->stop_signals;
    for (;;) {
        size_t running = 0;
        for (size_t i = first; i < end; i++)
            running += cluster->processes[i].state != PROCESS_ENDED;
        if (!running)
            return true;
        if (!left_us(deadline_us) || cluster->stop_signals != signals)
            return false;
        cluster_turn(cluster, left_us(deadline_us));
    }
}

bool cluster_drain(struct cluster *cluster, uint64_t timeout_us)
{
    uint64_t deadline_us = clock_now_us() + timeout_us;
    size_t routers = cluster->count ? 1 : 0; /* the first process */
    cluster->draining = true;
    signal_all(cluster, 0, routers, SIGTERM);
    bool gentle = wait_ended(cluster, 0, routers, deadline_us);
    if (gentle) {
        signal_all(cluster, routers, cluster->count, SIGTERM);
        gentle = wait_ended(cluster, routers, cluster->count, deadline_us);
    }
    if (gentle)
        return true;
    log_warn(MOD, "msg=\"killing what did not end by itself\" processes=%zu",
             cluster_running(cluster));
    signal_all(cluster, 0, cluster->count, SIGKILL);
    while (cluster_running(cluster))
        cluster_turn(cluster, UINT64_MAX);
    return false;
}
