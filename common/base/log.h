/* Structured log lines (logfmt) on standard error, one fact a line:
 *
 *      log_warn("kv_import", "msg=\"read timed out\" req=%s peer=%s waited_us=%llu", ...)
 *      -> ts=2026-01-02T03:04:05.678Z level=warn proc=decode-0 mod=kv_import msg="read timed out"
 *
 * error = a person must act; warn = degraded; info = lifecycle; debug = per request; never per
 * token. A line is one write(2) of at most 2 KiB (longer ones are cut), so lines of several threads
 * or processes never mix. Any thread may log. Bytes from outside pass log_quote() before they go
 * into a line.
 *
 * Logging never waits and never fails. A line that can't be written at once (full disk, full pipe)
 * is lost and counted. The next written line is preceded by one with the number of lost lines, and
 * by a newline if a full disk took a part of the lost one: every line starts where a line starts.
 *
 * log_*_limited is for events that another machine can cause as often as it likes: a refused
 * connection, a hello, a bad message. One place writes at most LOG_LIMIT_LINES of one level in
 * LOG_LIMIT_US. The others are counted, and the place's next line of that level has left_out=N.
 * Thus no peer can fill the disk, or hide a line among a million.
 *
 * log_*_lifecycle is for events that each process of a cluster causes when it comes or goes, and
 * for their effect on each request. It allows LOG_LIFECYCLE_LINES, so that the start of a whole
 * cluster is seen. */
#ifndef BATON_BASE_LOG_H
#define BATON_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_MAX_LINE_BYTES  2048 /* with the newline; no more than a pipe takes whole (PIPE_BUF) */
#define LOG_LIMIT_LINES     20
#define LOG_LIFECYCLE_LINES 512 /* each of 256 workers, and its next life */
#define LOG_LIMIT_US        10000000

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
#define LOG_LEVELS 4

/* Call before threads start. Copies `process` ("prefill-0") and drops lines below `level`. Looks up
 * what kind of file standard error is. A process must ignore SIGPIPE if that may be
 * a pipe. */
void log_init(const char *process, enum log_level level);
bool log_level_parse(const char *name, enum log_level *level);
bool log_enabled(enum log_level level);
uint64_t log_lost_lines(void); /* since the start */

void log_write(enum log_level level, const char *module, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Repeats a line that another process logged, whatever its level, with nothing before it. The
 * format's last part has no newline. The line is cut, lost and counted as own lines are. */
void log_repeat(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_error(module, ...) log_write(LOG_ERROR, module, __VA_ARGS__)
#define log_warn(module, ...)  log_write(LOG_WARN, module, __VA_ARGS__)
#define log_info(module, ...)  log_write(LOG_INFO, module, __VA_ARGS__)
#define log_debug(module, ...)                                                                     \
    do {                                                                                           \
        if (log_enabled(LOG_DEBUG))                                                                \
            log_write(LOG_DEBUG, module, __VA_ARGS__);                                             \
    } while (0)

/* Counts the lines that one place has written at one level. */
struct log_limit {
    unsigned most; /* lines in LOG_LIMIT_US */
    atomic_flag busy;
    bool begun;
    uint64_t since_us, left_out;
    unsigned lines;
};
/* Returns whether one more line may be written at now_us. Then *left_out is the number of lines
 * left out before it. Any thread. */
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

/* Writes `text` into buffer as one logfmt value that needs no quotes. It is cut to fit, and '?'
 * replaces each blank, quote and byte that isn't printable ASCII. Returns buffer. size > 0. */
const char *log_word(const char *text, char *buffer, size_t size);
/* Writes `text` into buffer as a quoted logfmt value: control bytes and quotes are escaped, and it
 * is cut to fit. Returns buffer. */
const char *log_quote(const char *text, char *buffer, size_t size);

#endif
