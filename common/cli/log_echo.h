/* What the logs of other processes say that somebody must know, repeated where somebody reads:
 * their lines of level=warn and level=error, on standard error, each behind its process's name.
 * Owner: one thread, which asks for it again and again, and never waits for a reader of standard
 * error (log_repeat).
 *
 * All logs together get LOG_ECHO_LINES in LOG_ECHO_WINDOW_US; how many were left out, and of which
 * file, is told when that time is over. Of a log that grows by more than LOG_ECHO_BACKLOG_BYTES
 * from one time to the next the newest are read; that bytes were passed over is told as well, once
 * in that time. */
#ifndef BATON_CLI_LOG_ECHO_H
#define BATON_CLI_LOG_ECHO_H

#include <stdbool.h>
#include <stdint.h>

#define LOG_ECHO_LINES         20
#define LOG_ECHO_WINDOW_US     10000000u
#define LOG_ECHO_BACKLOG_BYTES (1u << 20) /* a log of level debug doesn't hold up who asks */

/* How much may be said, of all logs. All zero at first. */
struct log_echo_room {
    bool errors_only; /* warnings are of no news any more */
    uint64_t since_us;
    unsigned lines;
};

/* Of one log. */
struct log_echo {
    uint64_t read_bytes; /* of the file, as far as whole lines went */
    bool amid_line;      /* what comes next is the rest of a line whose begin was not read */
    uint64_t left_out;   /* lines, not told of yet */
    uint64_t passed_bytes, told_passed_us; /* likewise bytes; and when it was told last */
};

/* From here on: what is in the file already is an earlier process's. */
void log_echo_init(struct log_echo *echo, const char *path);
/* Repeats what was logged since the last time. `last`: nothing comes after it, and what was left
 * out is told at once. */
void log_echo_take(struct log_echo *echo, struct log_echo_room *room, const char *name,
                   const char *path, uint64_t now_us, bool last);

#endif
