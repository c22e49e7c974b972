#include "common/cli/cluster.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOD            "up"
#define NO_FAILPOINTS  "BATON_FAILPOINTS="
#define LOG_TAIL_BYTES 2000 /* a screen */

enum status cluster_open(struct cluster *cluster, struct error *err)
{
    *cluster = (struct cluster){.child_fd = -1,
                                .end_grace_us = CLUSTER_END_GRACE_US,
                                .start_tell_us = CLUSTER_START_TELL_US};
    TRY(stop_signals_open(&cluster->stop, err));
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (!sigprocmask(SIG_BLOCK, &child, NULL))
        cluster->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (cluster->child_fd >= 0)
        return STATUS_OK;
    stop_signals_close(&cluster->stop);
    return error_set(err, STATUS_IO, "cannot take signals: %s", strerror(errno));
}

void cluster_close(struct cluster *cluster)
{
    ASSERT(cluster_running(cluster) == 0);
    close(cluster->child_fd);
    stop_signals_close(&cluster->stop);
}

enum status cluster_start(struct cluster *cluster, const struct process_plan *plan,
                          const struct process **started, struct error *err)
{
    if (cluster->count == CLUSTER_MAX_PROCESSES)
        return error_set(err, STATUS_LIMIT, "more than %d processes", CLUSTER_MAX_PROCESSES);
    struct process *process = &cluster->processes[cluster->count];
    struct log_echo echo = {0};
    if (plan->log_path)
        log_echo_init(&echo, plan->log_path);
    enum status status = process_start(plan, process, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "cannot start %s", plan->name);
    cluster->care[cluster->count++] = (struct cluster_care){
        .plan = *plan, .started_us = clock_now_us(), .echo = echo, .question = {.fd = -1}};
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

void cluster_keep(struct cluster *cluster, uint64_t restart_cap_us, uint64_t start_limit_us)
{
    cluster->restart_cap_us = restart_cap_us;
    cluster->start_limit_us = start_limit_us;
}

void cluster_watch(struct cluster *cluster, uint64_t limit_us)
{
    cluster->watching = true;
    cluster->silence_limit_us = limit_us;
    for (size_t i = 0; i < cluster->count; i++)
        if (cluster->processes[i].state == PROCESS_READY)
            liveness_begin(&cluster->care[i].liveness, limit_us, clock_now_us());
}

size_t cluster_down(const struct cluster *cluster)
{
    size_t down = 0;
    for (size_t i = 0; i < cluster->count; i++)
        down += cluster->care[i].down;
    return down;
}

/* --- logs --- */

/* To standard error, without waiting for its reader. */
static void show_log_tail(const struct process *process)
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

/* `last`: no lines come after these. */
static void echo_logs(struct cluster *cluster, uint64_t now_us, bool last)
{
    for (size_t i = 0; i < cluster->count; i++) {
        const struct process *process = &cluster->processes[i];
        if (*process->log_path)
            log_echo_take(&cluster->care[i].echo, &cluster->echo_room, process->member.name,
                          process->log_path, now_us, last);
    }
    cluster->echo_us = now_us + CLUSTER_ECHO_US;
}

/* --- ends and restarts --- */

/* The child is being ended, or has ended: nothing is asked any more. */
static void stop_watching(struct cluster_care *care)
{
    care->liveness = (struct liveness){0};
    liveness_drop(&care->question);
}

/* Tells child `index`, which must not have ended, to end now. cluster_turn tells it again, and
 * kills it after its grace. SIGKILL at once would leave the name of a pool in /dev/shm. */
static void end_child(struct cluster *cluster, size_t index)
{
    const struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    uint64_t now_us = clock_now_us();
    kill(process->member.pid, SIGTERM);
    stop_watching(care);
    care->tell_us = now_us + CLUSTER_TELL_AGAIN_US;
    if (!care->kill_us)
        care->kill_us =
            now_us + (process->was_ready ? cluster->end_grace_us : CLUSTER_START_GRACE_US);
}

static void kill_child(struct cluster *cluster, size_t index)
{
    const struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    kill(process->member.pid, SIGKILL);
    care->kill_us = care->tell_us = UINT64_MAX; /* nothing is left to do: SIGCHLD comes */
    care->killed = true;
    if (process->was_ready)
        cluster->forced = true;
}

static const char *log_of(const struct process *process)
{
    return *process->log_path ? process->log_path : "-";
}

static void report_loop(const struct cluster *cluster, const struct process *process)
{
    log_error(MOD,
              "msg=\"%s has ended %d times in a row: it is started again, at most every "
              "%" PRIu64 " ms\" role=%s log=%s",
              process->member.name, RESTART_LOOP_ENDS, cluster->restart_cap_us / 1000,
              process->member.role, log_of(process));
    show_log_tail(process);
}

/* Reports the end of a child that was reaped by one line, and plans its restart, unless it followed
 * an order. */
static void take_end(struct cluster *cluster, size_t index)
{
    const struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    char cause[128], next[64] = "";
    uint64_t now_us = clock_now_us();
    bool in_order = process_ended_in_order(process), again = false, loops = false;
    bool told = cluster->draining && (in_order || !process->was_ready || care->killed);
    bool by_us = care->kill_us != 0;
    care->kill_us = 0;
    stop_watching(care);
    process_describe_end(process, cause, sizeof cause);
    if (!told && !care->down) {
        care->down = true;
        care->down_us = now_us;
    }
    if (cluster->restart_cap_us && !cluster->draining) {
        again = true;
        if (!process->was_ready)
            care->any_address = !care->any_address;
        loops = restart_on_end(&care->restart, in_order && !by_us, cluster->restart_cap_us, now_us);
        snprintf(next, sizeof next, " restart_in_ms=%" PRIu64, care->restart.wait_us / 1000);
    }
    enum log_level level = told || (again && in_order) ? LOG_INFO : again ? LOG_WARN : LOG_ERROR;
    log_write(level, MOD, "msg=\"%s %s\" role=%s pid=%d log=%s%s", process->member.name, cause,
              process->member.role, (int)process->member.pid, log_of(process), next);
    if (loops)
        report_loop(cluster, process);
}

/* Takes failpoints out of the plan: they belong to the first life. A file of them ("@") stays,
 * since it may have changed. */
static void drop_failpoints(struct process_plan *plan)
{
    const size_t name = strlen(NO_FAILPOINTS);
    const char *kept[PROCESS_MAX_ENVIRONMENT], *given = getenv("BATON_FAILPOINTS");
    size_t count = 0;
    for (size_t i = 0; i < plan->environment_count; i++) {
        if (!strncmp(plan->environment[i], NO_FAILPOINTS, name))
            given = plan->environment[i] + name;
        else
            kept[count++] = plan->environment[i];
    }
    if (given && *given == '@')
        return;
    kept[count++] = NO_FAILPOINTS;
    memcpy(plan->environment, kept, count * sizeof *kept);
    plan->environment_count = count;
}

/* Returns the plan of the next life, at the addresses of the last one. */
static struct process_plan plan_again(const struct cluster_care *care,
                                      const struct cluster_member *last)
{
    struct process_plan plan = care->plan;
    if (plan.listen_at && *last->address && (plan.must_keep_address || !care->any_address))
        plan.argv[plan.listen_at] = last->address;
    if (plan.registry_at && *last->registry)
        plan.argv[plan.registry_at] = last->registry;
    if (plan.front_at && *last->front)
        plan.argv[plan.front_at] = last->front;
    if (plan.metrics_at && *last->metrics && !care->any_address)
        plan.argv[plan.metrics_at] = last->metrics;
    drop_failpoints(&plan);
    return plan;
}

static void start_again(struct cluster *cluster, size_t index)
{
    struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    const struct cluster_member last = process->member;
    struct process_plan plan = plan_again(care, &last);
    struct error err;
    if (process_start(&plan, process, &err) == STATUS_OK) {
        care->started_us = clock_now_us();
        care->killed = false;
        restart_on_started(&care->restart);
        /* Expected, until its ready line. */
        str_copy(process->member.address, sizeof process->member.address, last.address);
        str_copy(process->member.metrics, sizeof process->member.metrics, last.metrics);
        str_copy(process->member.registry, sizeof process->member.registry, last.registry);
        str_copy(process->member.front, sizeof process->member.front, last.front);
        process->member.restarts = care->restart.count;
        return;
    }
    log_error(MOD, "msg=\"cannot start %s: %s\"", plan.name, err.text);
    if (restart_on_end(&care->restart, false, cluster->restart_cap_us, clock_now_us()))
        report_loop(cluster, process);
}

/* Returns the time at which `tend` must act on child `index`. UINT64_MAX: never. */
static uint64_t due_us(const struct cluster *cluster, size_t index)
{
    const struct cluster_care *care = &cluster->care[index];
    if (care->kill_us)
        return care->tell_us < care->kill_us ? care->tell_us : care->kill_us;
    if (cluster->draining)
        return UINT64_MAX;
    if (cluster->processes[index].state == PROCESS_READY)
        return liveness_next_us(&care->liveness, cluster->silence_limit_us);
    if (!cluster->restart_cap_us)
        return UINT64_MAX;
    if (cluster->processes[index].state == PROCESS_STARTING)
        return care->started_us + cluster->start_limit_us;
    return care->restart.due_us ? care->restart.due_us : UINT64_MAX;
}

static void ask(struct cluster *cluster, size_t index, uint64_t now_us)
{
    const struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    uint64_t limit_us = cluster->silence_limit_us;
    switch (liveness_ask(&care->question, process->member.address)) {
    case LIVENESS_OUT: break;
    case LIVENESS_REFUSED: liveness_failed(&care->liveness, limit_us, now_us); break;
    case LIVENESS_CANNOT:
        if (liveness_postponed(&care->liveness, limit_us, now_us))
            log_warn(MOD,
                     "msg=\"cannot ask whether %s still answers: no descriptor or port is left, or "
                     "its address is none of this machine\" role=%s pid=%d address=%s",
                     process->member.name, process->member.role, (int)process->member.pid,
                     process->member.address);
        break;
    }
}

/* Asks child `index`, says that it is silent, or ends it. */
static void watch(struct cluster *cluster, size_t index, uint64_t now_us)
{
    const struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    uint64_t limit_us = cluster->silence_limit_us, heard_us = care->liveness.heard_us;
    switch (liveness_turn(&care->liveness, limit_us, now_us)) {
    case LIVENESS_WAIT: break;
    case LIVENESS_ASK: ask(cluster, index, now_us); break;
    case LIVENESS_SAY:
        log_warn(MOD,
                 "msg=\"%s runs, but does not answer%s\" role=%s pid=%d silent_ms=%" PRIu64
                 " liveness_timeout_ms=%" PRIu64 " log=%s",
                 process->member.name,
                 limit_us ? ": it is ended at liveness-timeout" : "; nothing ends it",
                 process->member.role, (int)process->member.pid, (now_us - heard_us) / 1000,
                 limit_us / 1000, log_of(process));
        break;
    case LIVENESS_END:
        log_error(MOD,
                  "msg=\"%s has not answered for %" PRIu64
                  " ms: ending it (liveness-timeout)\" role=%s pid=%d log=%s",
                  process->member.name, (now_us - heard_us) / 1000, process->member.role,
                  (int)process->member.pid, log_of(process));
        end_child(cluster, index);
        kill(process->member.pid, SIGCONT); /* one that was stopped can end in order */
        break;
    }
}

static void take_answer(struct cluster *cluster, size_t index, uint64_t now_us)
{
    const struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    uint64_t limit_us = cluster->silence_limit_us, heard_us = care->liveness.heard_us;
    if (!liveness_answered(&care->question))
        liveness_failed(&care->liveness, limit_us, now_us);
    else if (liveness_heard(&care->liveness, limit_us, now_us))
        log_info(MOD, "msg=\"%s answers again\" role=%s pid=%d silent_ms=%" PRIu64,
                 process->member.name, process->member.role, (int)process->member.pid,
                 (now_us - heard_us) / 1000);
}

/* Starts, ends or kills the children that are due. */
static void tend(struct cluster *cluster, uint64_t now_us)
{
    for (size_t i = 0; i < cluster->count; i++) {
        const struct process *process = &cluster->processes[i];
        if (due_us(cluster, i) > now_us)
            continue;
        if (process->state == PROCESS_ENDED) {
            start_again(cluster, i);
            continue;
        }
        if (process->state == PROCESS_READY && !cluster->care[i].kill_us) {
            watch(cluster, i, now_us);
            continue;
        }
        bool late = cluster->care[i].kill_us != 0; /* for its end, not for its start */
        if (late && cluster->care[i].kill_us > now_us) {
            end_child(cluster, i);
            continue;
        }
        log_write(!late                ? LOG_ERROR
                  : process->was_ready ? LOG_WARN
                                       : LOG_INFO,
                  MOD, "msg=\"%s did not %s in time: %s it\" pid=%d log=%s", process->member.name,
                  late ? "end" : "get ready", late ? "killing" : "ending", (int)process->member.pid,
                  log_of(process));
        if (late)
            kill_child(cluster, i);
        else
            end_child(cluster, i);
    }
}

/* --- events --- */

static void take_ready(struct cluster *cluster, size_t index)
{
    struct process *process = &cluster->processes[index];
    struct cluster_care *care = &cluster->care[index];
    struct error err;
    if (process_read_ready(process, &err) != STATUS_OK) {
        log_error(MOD, "msg=\"cannot understand a ready line: %s\"", err.text);
        end_child(cluster, index);
    }
    if (process->state != PROCESS_READY)
        return;
    uint64_t now_us = clock_now_us();
    restart_on_ready(&care->restart, now_us);
    care->any_address = false;
    cluster->changed = true;
    if (cluster->watching)
        liveness_begin(&care->liveness, cluster->silence_limit_us, now_us);
    if (care->down)
        log_info(MOD, "msg=\"%s is back\" role=%s pid=%d address=%s restarts=%u down_ms=%" PRIu64,
                 process->member.name, process->member.role, (int)process->member.pid,
                 process->member.address, care->restart.count, (now_us - care->down_us) / 1000);
    care->down = false;
}

static int wait_ms(const struct cluster *cluster, uint64_t timeout_us)
{
    uint64_t now_us = clock_now_us();
    if (cluster->count && *cluster->processes[0].log_path) {
        uint64_t left = cluster->echo_us > now_us ? cluster->echo_us - now_us : 0;
        timeout_us = left < timeout_us ? left : timeout_us;
    }
    for (size_t i = 0; i < cluster->count; i++) {
        uint64_t due = due_us(cluster, i), left = due > now_us ? due - now_us : 0;
        if (due != UINT64_MAX && left < timeout_us)
            timeout_us = left;
    }
    uint64_t timeout_ms = timeout_us / 1000 + (timeout_us % 1000 != 0);
    return timeout_us == UINT64_MAX ? -1 : timeout_ms > 60000 ? 60000 : (int)timeout_ms;
}

void cluster_turn(struct cluster *cluster, uint64_t timeout_us)
{
    struct pollfd fds[2 + 2 * CLUSTER_MAX_PROCESSES] = {
        {.fd = cluster->stop.fd, .events = POLLIN}, {.fd = cluster->child_fd, .events = POLLIN}};
    struct pollfd *ready = fds + 2, *answers = ready + cluster->count;
    for (size_t i = 0; i < cluster->count; i++) { /* -1: poll skips it */
        ready[i] = (struct pollfd){.fd = cluster->processes[i].ready_fd, .events = POLLIN};
        answers[i] = (struct pollfd){.fd = cluster->care[i].question.fd, .events = POLLIN};
    }
    if (poll(fds, 2 + 2 * cluster->count, wait_ms(cluster, timeout_us)) > 0) {
        for (size_t i = 0; i < cluster->count; i++) {
            if (ready[i].revents)
                take_ready(cluster, i);
            if (answers[i].revents)
                take_answer(cluster, i, clock_now_us());
        }
        if (fds[1].revents) {
            struct signalfd_siginfo info;
            while (read(cluster->child_fd, &info, sizeof info) == sizeof info)
                ; /* several ends may share one SIGCHLD */
            for (size_t i = 0; i < cluster->count; i++)
                if (process_reap(&cluster->processes[i]))
                    take_end(cluster, i);
        }
        if (fds[0].revents)
            stop_signals_take(&cluster->stop, clock_now_us());
    }
    uint64_t now_us = clock_now_us();
    if (now_us >= cluster->echo_us)
        echo_logs(cluster, now_us, false);
    tend(cluster, now_us);
}

/* Returns the time from now to the deadline; 0: it has passed. */
static uint64_t left_us(uint64_t deadline_us)
{
    uint64_t now_us = clock_now_us();
    return now_us < deadline_us ? deadline_us - now_us : 0;
}

static enum status explain_end(const struct process *process, struct error *err)
{
    char cause[128], words[sizeof err->text - 80]; /* room for the name and the cause */
    process_describe_end(process, cause, sizeof cause);
    process_last_words(process, words, sizeof words);
    if (!*words)
        show_log_tail(process);
    bool wrong_settings = WIFEXITED(process->wait_status) && WEXITSTATUS(process->wait_status) == 2;
    return error_set(err, wrong_settings ? STATUS_INVALID : STATUS_UNAVAILABLE,
                     "%s %s before it was ready%s%s", process->member.name, cause,
                     *words ? ": " : "", words);
}

enum status cluster_wait_ready(struct cluster *cluster, uint64_t deadline_us, struct error *err)
{
    uint64_t tell_us = clock_now_us() + cluster->start_tell_us;
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
        if (cluster->stop.wishes)
            return error_set(err, STATUS_CANCELLED, "stopped by a signal");
        if (!left_us(deadline_us))
            return error_set(
                err, STATUS_TIMEOUT, "%s did not get ready in time (--start-timeout): see %s",
                waiting_for->member.name, *waiting_for->log_path ? waiting_for->log_path : "above");
        if (!left_us(tell_us)) {
            char last[512]; /* a large model loads for minutes, and its log says how far it is */
            process_last_line(waiting_for, last, sizeof last);
            if (*waiting_for->log_path)
                log_info(MOD, "waiting_for=%s log=%s %s", waiting_for->member.name,
                         log_of(waiting_for), *last ? last : "msg=\"it starts\"");
            tell_us = clock_now_us() + cluster->start_tell_us;
        }
        cluster_turn(cluster, left_us(tell_us < deadline_us ? tell_us : deadline_us));
    }
}

/* --- the drain --- */

/* Sends SIGTERM to processes [first, end). `now`: they must not finish their requests. A process
 * that still starts has none, and is ended now in any case: it may read its model for long. */
static void tell_to_end(struct cluster *cluster, size_t first, size_t end, bool now)
{
    for (size_t i = first; i < end; i++) {
        const struct process *process = &cluster->processes[i];
        if (process->state == PROCESS_STARTING || (process->state == PROCESS_READY && now))
            end_child(cluster, i);
        else if (process->state == PROCESS_READY)
            kill(process->member.pid, SIGTERM);
    }
}

/* Waits until processes [first, end) have ended. False: the deadline came, or one more signal to
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
        if (!left_us(deadline_us) || cluster->stop.wishes != wishes)
            return false;
        cluster_turn(cluster, left_us(deadline_us));
    }
}

/* Ends processes [first, end): in order, or now after a second signal to stop. False: some are left
 * at the deadline, or at a third signal. */
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
            kill_child(cluster, i);
    while (cluster_running(cluster))
        cluster_turn(cluster, UINT64_MAX);
    return false;
}

bool cluster_drain(struct cluster *cluster, uint64_t timeout_us)
{
    echo_logs(cluster, clock_now_us(), false);
    cluster->echo_room.errors_only = true; /* they warn of each other's ends */
    bool gentle = drain(cluster, timeout_us);
    echo_logs(cluster, clock_now_us(), true);
    return gentle;
}
