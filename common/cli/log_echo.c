#include "common/cli/log_echo.h"

#include "common/base/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES (8 * LOG_MAX_LINE_BYTES)

static uint64_t file_bytes(const char *path)
{
    struct stat found;
    return stat(path, &found) ? 0 : (uint64_t)found.st_size;
}

void log_echo_init(struct log_echo *echo, const char *path)
{
    *echo = (struct log_echo){.read_bytes = file_bytes(path)};
}

/* "ts=... level=warn ...": as log.h writes them, and nothing that a line quotes. */
static bool is_for_somebody(const char *line, size_t length, bool errors_only)
{
    const char *blank = memchr(line, ' ', length);
    size_t left = blank ? length - (size_t)(blank + 1 - line) : 0;
    return length > 3 && !memcmp(line, "ts=", 3) &&
           ((!errors_only && left > 11 && !memcmp(blank + 1, "level=warn ", 11)) ||
            (left > 12 && !memcmp(blank + 1, "level=error ", 12)));
}

static void take_line(struct log_echo *echo, struct log_echo_room *room, const char *name,
                      const char *line, size_t length)
{
    bool whole = !echo->amid_line;
    echo->amid_line = false;
    if (!whole || !is_for_somebody(line, length, room->errors_only))
        return;
    if (room->lines == LOG_ECHO_LINES) {
        echo->left_out++;
        return;
    }
    room->lines++;
    log_repeat("%s: %.*s", name, (int)length, line);
}

/* The whole lines of a chunk; returns their bytes. A line that has no room in one is passed
 * over. */
static size_t take_lines(struct log_echo *echo, struct log_echo_room *room, const char *name,
                         const char *chunk, size_t count)
{
    size_t taken = 0;
    for (const char *end; (end = memchr(chunk + taken, '\n', count - taken));) {
        size_t length = (size_t)(end - chunk) - taken;
        take_line(echo, room, name, chunk + taken, length);
        taken += length + 1;
    }
    if (taken || count < CHUNK_BYTES)
        return taken;
    echo->amid_line = true;
    return count;
}

/* As far as the file went when its size was asked for, and no further than one chunk beyond. */
static void read_lines(struct log_echo *echo, struct log_echo_room *room, const char *name,
                       const char *path, uint64_t bytes)
{
    char chunk[CHUNK_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while (echo->read_bytes < bytes) {
        ssize_t count = pread(fd, chunk, sizeof chunk, (off_t)echo->read_bytes);
        size_t taken = count > 0 ? take_lines(echo, room, name, chunk, (size_t)count) : 0;
        echo->read_bytes += taken;
        if (!taken)
            break;
    }
    close(fd);
}

/* The newest lines are those that tell why a process ended: a log that grows faster than it may be
 * read is read at its end. The first byte read ends a line, or is of one whose rest says
 * nothing. */
static void pass_over(struct log_echo *echo, uint64_t bytes)
{
    if (bytes - echo->read_bytes <= LOG_ECHO_BACKLOG_BYTES)
        return;
    echo->passed_bytes += bytes - LOG_ECHO_BACKLOG_BYTES - echo->read_bytes;
    echo->read_bytes = bytes - LOG_ECHO_BACKLOG_BYTES;
    echo->amid_line = true;
}

static void tell_passed_over(struct log_echo *echo, const char *name, const char *path,
                             uint64_t now_us)
{
    log_repeat("%s: %" PRIu64 " bytes of %s were passed over: it grows faster than it is read",
               name, echo->passed_bytes, path);
    echo->passed_bytes = 0;
    echo->told_passed_us = now_us;
}

static void tell_left_out(struct log_echo *echo, const char *name, const char *path)
{
    if (echo->left_out)
        log_repeat("%s: %" PRIu64 " more of level=warn or level=error in %s", name, echo->left_out,
                   path);
    echo->left_out = 0;
}

void log_echo_take(struct log_echo *echo, struct log_echo_room *room, const char *name,
                   const char *path, uint64_t now_us, bool last)
{
    uint64_t bytes = file_bytes(path);
    if (now_us - room->since_us >= LOG_ECHO_WINDOW_US)
        *room = (struct log_echo_room){.errors_only = room->errors_only, .since_us = now_us};
    if (room->lines < LOG_ECHO_LINES)
        tell_left_out(echo, name, path);
    if (bytes < echo->read_bytes) { /* somebody has cut it */
        echo->read_bytes = 0;
        echo->amid_line = false;
    }
    pass_over(echo, bytes);
    if (echo->passed_bytes && (last || now_us - echo->told_passed_us >= LOG_ECHO_WINDOW_US))
        tell_passed_over(echo, name, path, now_us);
    if (bytes > echo->read_bytes)
        read_lines(echo, room, name, path, bytes);
    if (last)
        tell_left_out(echo, name, path);
}
