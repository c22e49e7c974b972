/* One child process of `baton up`: started with a pipe on which it reports that it is ready,
 * watched, and reaped; when it is started again; and the warnings in its log. Owner: one thread.
 *
 * The child has a process group of its own: the terminal's Ctrl-C is for the parent, which drains.
 * It gets SIGKILL when its parent dies, and inherits only the standard descriptors and the pipe.
 * `--ready-fd N` is appended to its arguments. Once it serves it must write one JSON line there:
 * {"role", "pid", "address", "metrics"}, and the router also "registry" and "http". */
#ifndef BATON_CLI_PROCESS_H
#define BATON_CLI_PROCESS_H

#include "common/base/status.h"
#include "common/cli/cluster_file.h"

#include <stdbool.h>

#define PROCESS_MAX_ARGUMENTS   64
#define PROCESS_MAX_ENVIRONMENT 18

/* A process to start. The caller owns the strings; process_start only reads them. */
struct process_plan {
    char name[64]; /* "prefill-0" */
    const char *role;
    const char *argv[PROCESS_MAX_ARGUMENTS]; /* argv[0]: the program's path */
    size_t argc;
    /* Indices in argv of the addresses to listen on; 0: it has no such address. */
    size_t listen_at, metrics_at, registry_at, front_at;
    bool must_keep_address; /* others know its address, and no other one */
    const char *environment[PROCESS_MAX_ENVIRONMENT]; /* "KEY=VALUE", added to ours */
    size_t environment_count;
    const char *log_path; /* standard error is appended there; NULL: it goes to ours */
};

enum process_state {
    PROCESS_STARTING, /* until its ready line */
    PROCESS_READY,
    PROCESS_ENDED, /* reaped */
};

struct process {
    struct cluster_member member; /* address and metrics: once READY */
    enum process_state state;
    int ready_fd;                      /* -1: closed */
    bool was_ready;                    /* in this life */
    int wait_status;                   /* waitpid's, once ENDED */
    char log_path[CLUSTER_PATH_BYTES]; /* "": none */
    char line[512];                    /* the ready line as far as it came */
    size_t line_length;
};

enum status process_start(const struct process_plan *plan, struct process *process,
                          struct error *err) WARN_UNUSED;
/* Reads ready_fd without blocking. STATUS_INVALID or STATUS_LIMIT: the line can't be understood. A
 * pipe that closed without a line is no failure: process_reap will see the end. */
enum status process_read_ready(struct process *process, struct error *err) WARN_UNUSED;
/* Returns true once, when the process has ended. Its state is ENDED then. */
bool process_reap(struct process *process);
/* True: it ended with exit code 0, or by SIGTERM before it could handle that. */
bool process_ended_in_order(const struct process *process);
/* Writes "was killed by signal 9 (Killed)" or "ended with exit code 3". */
void process_describe_end(const struct process *process, char *text, size_t size);
/* Copies the last lines of its log, at most `size` - 1 bytes, from the start of a line. */
void process_log_tail(const struct process *process, char *text, size_t size);
/* Copies the last whole line of its log from "msg=" on, without time, level and module. "":
 * none. */
void process_last_line(const struct process *process, char *text, size_t size);
/* Copies the last sentence in its log that explains an end: "baton-decode: ...", or the msg of a
 * line of level error. "": none. */
void process_last_words(const struct process *process, char *text, size_t size);

/* --- restarts ---
 *
 * Decides when a process that ended is started again, and when its ends are a crash loop. PURE: one
 * struct a process, the caller passes the time.
 *
 * The first restart comes after RESTART_FIRST_US. Each further one waits twice as long, up to a
 * cap, for ever. A process that has served for RESTART_HEALTHY_US starts from the beginning. An end
 * in order after it has served was ordered by a person: the wait stays the first one, and the end
 * is no part of a crash loop. After RESTART_ORDERLY such ends it is treated like the others. */
#define RESTART_FIRST_US   100000u
#define RESTART_HEALTHY_US 10000000u /* an end after so much service counts as the first again */
#define RESTART_LOOP_ENDS  5         /* so many ends in a row are a crash loop */
#define RESTART_ORDERLY    8         /* ends in order, without RESTART_HEALTHY_US between them */

struct restart {
    uint32_t count;     /* times that it was started again */
    uint32_t in_a_row;  /* ends without RESTART_HEALTHY_US between them, except orderly ones */
    uint32_t orderly;   /* the orderly ones */
    uint64_t wait_us;   /* wait before the restart that is due */
    uint64_t due_us;    /* 0: no restart is due */
    uint64_t served_us; /* when it became ready; 0: not yet in this life */
};

/* The process serves. */
void restart_on_ready(struct restart *restart, uint64_t now_us);
/* The process ended, `in_order` or not: sets wait_us and due_us. Returns true at the end that makes
 * a crash loop, once. */
bool restart_on_end(struct restart *restart, bool in_order, uint64_t cap_us, uint64_t now_us);
/* The process was started again: counts it, and nothing is due. A start that fails is an end. */
void restart_on_started(struct restart *restart);

/* --- log echo ---
 *
 * Repeats the lines of level=warn and level=error in processes' logs on standard error, each behind
 * its process's name. Owner: one thread, which polls, and which never waits for a reader of
 * standard error (log_repeat).
 *
 * All logs together get LOG_ECHO_LINES lines in LOG_ECHO_WINDOW_US. At the end of that time one
 * line says how many more there were, and in which file. A log that grows by more than
 * LOG_ECHO_BACKLOG_BYTES between two polls is read at its end, and one line says that bytes were
 * skipped, at most once in that time. */
#define LOG_ECHO_LINES         20
#define LOG_ECHO_WINDOW_US     10000000u
#define LOG_ECHO_BACKLOG_BYTES (1u << 20) /* a log of level debug must not hold up the poll */

/* The lines that all logs share. All zero at first. */
struct log_echo_room {
    bool errors_only; /* warnings are left out */
    uint64_t since_us;
    unsigned lines;
};

/* State of one log. */
struct log_echo {
    uint64_t read_bytes; /* offset behind the last whole line that was read */
    bool amid_line;      /* the next bytes end a line, and its begin was not read */
    uint64_t left_out;   /* lines left out since the last line about them */
    uint64_t passed_bytes,
        told_passed_us; /* bytes skipped since the last line about them; its time */
};

/* Begins at the end of the file: its present lines are an earlier process's. */
void log_echo_init(struct log_echo *echo, const char *path);
/* Repeats the lines logged since the last call. `last`: no call follows, so lines about left-out
 * lines and skipped bytes come at once. */
void log_echo_take(struct log_echo *echo, struct log_echo_room *room, const char *name,
                   const char *path, uint64_t now_us, bool last);

#endif
