#include "common/base/log.h"

#include "common/base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char log_process[64] = "-";
static enum log_level log_threshold = LOG_INFO;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

/* Lines go to this descriptor. It is standard error itself when that is a file (its writes never
 * wait for long), and before log_init. */
static int log_fd = STDERR_FILENO;
static bool log_is_socket;
static atomic_uint_fast64_t lost_lines, untold_lines; /* untold: not yet logged */
/* Held for a write. Writers of one file wait for each other in the kernel anyway. */
static pthread_mutex_t write_lock = PTHREAD_MUTEX_INITIALIZER;
static bool torn; /* our last bytes, or those that log_init has found, end no line */

/* A former process may have left its last line without an end. */
static bool ends_amid_line(const struct stat *status)
{
    char last = '\n';
    int fd = S_ISREG(status->st_mode) && status->st_size > 0
                 ? open("/proc/self/fd/2", O_RDONLY | O_CLOEXEC | O_NOCTTY)
                 : -1;
    if (fd >= 0 && pread(fd, &last, 1, status->st_size - 1) != 1)
        last = '\n';
    if (fd >= 0)
        close(fd);
    return last != '\n';
}

void log_init(const char *process, enum log_level level)
{
    log_word(process, log_process, sizeof log_process);
    log_threshold = level;
    if (log_fd != STDERR_FILENO)
        close(log_fd);
    log_fd = STDERR_FILENO;
    struct stat status;
    bool known = fstat(STDERR_FILENO, &status) == 0;
    log_is_socket = known && S_ISSOCK(status.st_mode);
    torn = known && ends_amid_line(&status);
    if (known && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))) {
        /* A description of its own may be made non-blocking: the inherited one is shared with the
         * process that started this one. */
        int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        log_fd = fd < 0 ? STDERR_FILENO : fd;
    }
}

bool log_level_parse(const char *name, enum log_level *level)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (!strcmp(name, level_names[i])) {
            *level = (enum log_level)i;
            return true;
        }
    return false;
}

bool log_enabled(enum log_level level)
{
    return level >= log_threshold;
}

uint64_t log_lost_lines(void)
{
    return atomic_load(&lost_lines);
}

/* Writes a line, which has a free byte before it, by one call. A full disk or a terminal may take a
 * part of it: the line counts as lost, and the next one ends it first. */
static bool put(char *line, size_t length)
{
    pthread_mutex_lock(&write_lock);
    size_t ends = torn;
    char *from = line - ends;
    length += ends;
    if (ends)
        *from = '\n';
    ssize_t written = log_is_socket ? send(log_fd, from, length, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : write(log_fd, from, length);
    if (written > 0)
        torn = from[written - 1] != '\n';
    pthread_mutex_unlock(&write_lock);
    return written == (ssize_t)length;
}

static size_t stamp(char *line, size_t size, enum log_level level, const char *module)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t used = strftime(line, size, "ts=%Y-%m-%dT%H:%M:%S", &utc);
    return used + (size_t)snprintf(line + used, size - used, ".%03ldZ level=%s proc=%s mod=%s ",
                                   now.tv_nsec / 1000000, level_names[level], log_process, module);
}

/* Writes the number of lost lines as soon as a line can be written again. */
static void tell_lost(void)
{
    uint64_t count = atomic_exchange(&untold_lines, 0);
    if (!count)
        return;
    char room[256], *line = room + 1;
    size_t size = sizeof room - 1, used = stamp(line, size, LOG_WARN, "log");
    used +=
        (size_t)snprintf(line + used, size - used, "lost=%llu msg=\"lines could not be written\"\n",
                         (unsigned long long)count);
    if (!put(line, used))
        atomic_fetch_add(&untold_lines, count);
}

/* Writes the first `used` bytes of `line`, a buffer of LOG_MAX_LINE_BYTES behind one more byte, as
 * a line. */
static void put_counted(char *line, size_t used)
{
    if (used > LOG_MAX_LINE_BYTES - 1)
        used = LOG_MAX_LINE_BYTES - 1;
    line[used++] = '\n';
    tell_lost();
    if (put(line, used))
        return;
    atomic_fetch_add(&lost_lines, 1);
    atomic_fetch_add(&untold_lines, 1);
}

__attribute__((format(printf, 4, 0))) static void write_line(enum log_level level,
                                                             const char *module, uint64_t left_out,
                                                             const char *format, va_list args)
{
    char room[1 + LOG_MAX_LINE_BYTES], *line = room + 1;
    size_t used = stamp(line, LOG_MAX_LINE_BYTES, level, module);
    if (left_out)
        used += (size_t)snprintf(line + used, LOG_MAX_LINE_BYTES - used, "left_out=%llu ",
                                 (unsigned long long)left_out);
    int body = vsnprintf(line + used, LOG_MAX_LINE_BYTES - used, format, args);
    used += body > 0 ? (size_t)body : 0;
    put_counted(line, used);
}

void log_repeat(const char *format, ...)
{
    char room[1 + LOG_MAX_LINE_BYTES], *line = room + 1;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, LOG_MAX_LINE_BYTES, format, args);
    va_end(args);
    put_counted(line, length > 0 ? (size_t)length : 0);
}

void log_write(enum log_level level, const char *module, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    va_list args;
    va_start(args, format);
    write_line(level, module, 0, format, args);
    va_end(args);
}

bool log_limit_take(struct log_limit *limit, uint64_t now_us, uint64_t *left_out)
{
    while (atomic_flag_test_and_set_explicit(&limit->busy, memory_order_acquire))
        ; /* a few instructions of another thread */
    /* Another thread's clock may have been read later, and have begun the window after now_us. */
    if (!limit->begun || now_us >= limit->since_us + LOG_LIMIT_US) {
        limit->begun = true;
        limit->since_us = now_us;
        limit->lines = 0;
    }
    bool may = limit->lines < limit->most;
    if (may) {
        limit->lines++;
        *left_out = limit->left_out;
        limit->left_out = 0;
    } else {
        limit->left_out++;
    }
    atomic_flag_clear_explicit(&limit->busy, memory_order_release);
    return may;
}

void log_write_limited(struct log_limit *limit, enum log_level level, const char *module,
                       const char *format, ...)
{
    uint64_t left_out;
    if (!log_enabled(level) || !log_limit_take(limit, clock_now_us(), &left_out))
        return;
    va_list args;
    va_start(args, format);
    write_line(level, module, left_out, format, args);
    va_end(args);
}

const char *log_word(const char *text, char *buffer, size_t size)
{
    size_t length = 0;
    for (; text[length] && length + 1 < size; length++) {
        unsigned char c = (unsigned char)text[length];
        buffer[length] = c > ' ' && c <= '~' && c != '"' ? (char)c : '?';
    }
    buffer[length] = 0;
    return buffer;
}

const char *log_quote(const char *text, char *buffer, size_t size)
{
    size_t used = 0;
    if (size < 9) {
        if (size)
            buffer[0] = 0;
        return buffer;
    }
    buffer[used++] = '"';
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (used + 9 > size) { /* "...", the quote, the NUL, behind one of four */
            memcpy(buffer + used, "...", 3);
            used += 3;
            break;
        }
        if (*p == '"' || *p == '\\')
            used += (size_t)snprintf(buffer + used, size - used, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            used += (size_t)snprintf(buffer + used, size - used, "\\x%02x", *p);
        else
            buffer[used++] = (char)*p;
    }
    buffer[used++] = '"';
    buffer[used] = 0;
    return buffer;
}
