/* One child process: started with a pipe on which it says that it is ready, watched, and ended.
 * Owner: one thread.
 *
 * The child is in a process group of its own (the terminal's Ctrl-C is for the parent, which
 * drains), gets SIGKILL when its parent dies, and inherits no descriptor but standard ones and the
 * pipe. `--ready-fd N` is appended to its arguments; it must write one JSON line {"role", "pid",
 * "address", "metrics"}, the router's with its "registry" and "http", there once it serves.
 */
#ifndef BATON_CLI_PROCESS_H
#define BATON_CLI_PROCESS_H

#include "common/base/status.h"
#include "common/cli/cluster_file.h"

#include <stdbool.h>

#define PROCESS_MAX_ARGUMENTS   64
#define PROCESS_MAX_ENVIRONMENT 17

/* What to start. Strings belong to the caller and are only read by process_start. */
struct process_plan {
    char name[64]; /* "prefill-0" */
    const char *role;
    const char *argv[PROCESS_MAX_ARGUMENTS]; /* argv[0]: the program's path */
    size_t argc;
    size_t listen_at, metrics_at, registry_at,
        front_at;           /* where argv has the addresses to listen on; 0: nowhere */
    bool must_keep_address; /* others know its address, and only that */
    const char *environment[PROCESS_MAX_ENVIRONMENT]; /* "KEY=VALUE", on top of ours */
    size_t environment_count;
    const char *log_path; /* standard error goes there (appended); NULL: to ours */
};

enum process_state {
    PROCESS_STARTING, /* until its ready line */
    PROCESS_READY,
    PROCESS_ENDED, /* reaped */
};

struct process {
    struct cluster_member member; /* address and metrics: once READY */
    enum process_state state;
    int ready_fd;                      /* -1 when done with */
    bool was_ready;                    /* in this life */
    int wait_status;                   /* of waitpid, once ENDED */
    char log_path[CLUSTER_PATH_BYTES]; /* "": none */
    char line[512];                    /* the ready line as far as it came */
    size_t line_length;
};

enum status process_start(const struct process_plan *plan, struct process *process,
                          struct error *err) WARN_UNUSED;
/* Reads what came on ready_fd; without blocking. A line that can't be understood fails with
 * STATUS_INVALID; a closed pipe without one is left to process_reap. */
enum status process_read_ready(struct process *process, struct error *err) WARN_UNUSED;
/* True once when the process has ended: state ENDED, nothing left of it. */
bool process_reap(struct process *process);
/* By itself with exit code 0, or by SIGTERM before it could do better. */
bool process_ended_in_order(const struct process *process);
/* "was killed by signal 9 (Killed)", "ended with exit code 3". */
void process_describe_end(const struct process *process, char *text, size_t size);
/* The last lines of its log, at most `size` - 1 bytes, starting at a line. */
void process_log_tail(const struct process *process, char *text, size_t size);
/* What it said last, without time, level and module: "msg=... percent=44" of its log's last whole
 * line. "": nothing. */
void process_last_line(const struct process *process, char *text, size_t size);
/* Why it ended, by the last sentence in its log that says so: "baton-decode: ...", or the msg of a
 * line of level error. "": none. */
void process_last_words(const struct process *process, char *text, size_t size);

#endif
