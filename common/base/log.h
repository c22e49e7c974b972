/* Structured log lines (logfmt) on standard error, one fact a line:
 *
 *     log_warn("kv_import", "msg=\"read timed out\" req=%s peer=%s waited_us=%llu", ...)
 *     -> ts=2026-01-02T03:04:05.678Z level=warn proc=decode-0 mod=kv_import msg="read timed out" req=7f3a ...
 *
 * error = a person must act; warn = degraded; info = lifecycle; debug = per request; never per
 * token. A line is one write(2) of at most 2 KiB (longer ones are cut), so lines of several threads
 * or processes never mix. Any thread may log. Outside bytes go through log_quote() before they go
 * into a line.
 *
 * Logging never waits and never fails: a line that can't be written at once (the disk is full,
 * nobody reads the pipe) is lost and counted, and the next line that can be written is preceded by
 * one that tells how many are missing.
 *
 * What another machine can cause as often as it likes (a connection refused, a hello, a bad
 * message) is logged by log_*_limited: LOG_LIMIT_LINES of one place and level in LOG_LIMIT_US, the
 * rest is counted, and told by the place's next line of that level (left_out=N). So that nobody can
 * fill the disk, or hide a line among a million. What each process of a cluster causes when it
 * comes or goes, and what that does to each request, is logged by log_*_lifecycle:
 * LOG_LIFECYCLE_LINES, so that all of a cluster that starts at once are seen.
 */
#ifndef BATON_BASE_LOG_H
#define BATON_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_MAX_LINE_BYTES  2048 /* with the newline; no more than a pipe takes whole (PIPE_BUF) */
#define LOG_LIMIT_LINES     20
#define LOG_LIFECYCLE_LINES 512 /* each of the largest cluster's workers, and its next life */
#define LOG_LIMIT_US        10000000

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
#define LOG_LEVELS 4

/* Before threads start. `process` ("prefill-0") is copied; lines below `level` are dropped. Looks
 * at what standard error is. SIGPIPE must be ignored in a process whose standard error may be a
 * pipe. */
void log_init(const char *process, enum log_level level);
bool log_level_parse(const char *name, enum log_level *level);
bool log_enabled(enum log_level level);
uint64_t log_lost_lines(void); /* since the start */

void log_write(enum log_level level, const char *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A line that somebody else logged (the format's last part has no newline), whatever its level: as
 * it is, with nothing before it. It is cut, lost and counted as ours are. */
void log_repeat(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_error(module, ...) log_write(LOG_ERROR, module, __VA_ARGS__)
#define log_warn(module, ...)  log_write(LOG_WARN, module, __VA_ARGS__)
#define log_info(module, ...)  log_write(LOG_INFO, module, __VA_ARGS__)
#define log_debug(module, ...)                                                                     \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_write(LOG_DEBUG, module, __VA_ARGS__);                                             \
    } while (0)

/* What one place has written of one level. */
struct log_limit {
    unsigned most; /* lines in LOG_LIMIT_US */
    atomic_flag busy;
    bool begun;
    uint64_t since_us, left_out;
    unsigned lines;
};
/* Whether one more line may be written at now_us; then *left_out is how many were not, before it.
 * Any thread. */
bool log_limit_take(struct log_limit *limit, uint64_t now_us, uint64_t *left_out);
void log_write_limited(struct log_limit *limit, enum log_level level, const char *module,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

#define LOG_LIMIT(lines)                                                                           \
    {                                                                                              \
        .most = (lines), .busy = ATOMIC_FLAG_INIT                                                  \
    }

#define LOG_LIMITED(lines, level, module, ...)                                                     \
    do {                                                                                           \
        static struct log_limit log_limits_of_this_place[LOG_LEVELS] = {                           \
            LOG_LIMIT(lines), LOG_LIMIT(lines), LOG_LIMIT(lines), LOG_LIMIT(lines)};               \
        enum log_level log_level_of_this_line = (level);                                           \
        log_write_limited(&log_limits_of_this_place[log_level_of_this_line],                       \
                          log_level_of_this_line, module, __VA_ARGS__);                            \
    } while (0)
#define log_limited(level, module, ...) LOG_LIMITED(LOG_LIMIT_LINES, level, module, __VA_ARGS__)
#define log_error_limited(module, ...)  log_limited(LOG_ERROR, module, __VA_ARGS__)
#define log_warn_limited(module, ...)   log_limited(LOG_WARN, module, __VA_ARGS__)
#define log_info_limited(module, ...)   log_limited(LOG_INFO, module, __VA_ARGS__)
#define log_lifecycle(level, module, ...)                                                          \
    LOG_LIMITED(LOG_LIFECYCLE_LINES, level, module, __VA_ARGS__)
#define log_warn_lifecycle(module, ...) log_lifecycle(LOG_WARN, module, __VA_ARGS__)
#define log_info_lifecycle(module, ...) log_lifecycle(LOG_INFO, module, __VA_ARGS__)

/* Writes `text` into buffer as one logfmt value that needs no quotes: cut to fit, with a '?' for
 * each byte that is not printable ASCII, a blank or a quote; returns buffer. size > 0. */
const char *log_word(const char *text, char *buffer, size_t size);
/* Writes `text` into buffer as a quoted logfmt value (control bytes and quotes escaped, cut to
 * fit); returns buffer. */
const char *log_quote(const char *text, char *buffer, size_t size);

#endif
