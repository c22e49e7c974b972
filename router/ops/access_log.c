#include "router/ops/access_log.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "common/base/str.h"
#include "router/ops/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOD           "access_log"
#define TELL_EVERY_US 1000000u
#define FLAGS         (O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

/* The open end of the log. Used by one thread, except hurry_fd. */
struct sink {
    char path[1024]; /* "": standard error */
    int fd, hurry_fd;
    bool is_socket;
    bool torn;            /* the last line has no end */
    uint64_t deadline_us; /* for all writes, once hurry_fd was written; 0: none */
};

struct line {
    size_t length; /* 0: the end */
    char text[];
};

struct access_log {
    struct sink sink; /* used by the writing thread while it runs */
    struct ring *ring;
    pthread_t thread;
    atomic_bool reopen;
    struct counter *lost;

    pthread_mutex_t lock;   /* for the lines of strangers, below */
    struct quota strangers; /* counts lines instead of requests */
    uint64_t left_out, told_us;
};

/* --------------------------------------------------------------------------------- the open end */

static int open_path(const char *path)
{
    return open(path, FLAGS | O_CREAT, 0640);
}

/* Opens a pipe or a terminal again: the inherited description blocks, and our parent shares it. */
static int open_standard_error(struct sink *sink)
{
    struct stat status;
    bool known = fstat(STDERR_FILENO, &status) == 0;
    sink->is_socket = known && S_ISSOCK(status.st_mode);
    int fd = known && (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode))
                 ? open("/proc/self/fd/2", FLAGS)
                 : -1;
    return fd < 0 ? STDERR_FILENO : fd;
}

static void sink_close(struct sink *sink)
{
    if (sink->fd >= 0 && sink->fd != STDERR_FILENO)
        close(sink->fd);
    if (sink->hurry_fd >= 0)
        close(sink->hurry_fd);
    sink->fd = sink->hurry_fd = -1;
}

static enum status sink_open(struct sink *sink, const char *where, struct error *err)
{
    *sink = (struct sink){.fd = -1, .hurry_fd = -1};
    bool to_stderr = !strcmp(where, "stderr");
    if (!to_stderr && !str_copy(sink->path, sizeof sink->path, where))
        return error_set(err, STATUS_INVALID, "access-log: the path is too long");
    sink->hurry_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sink->hurry_fd < 0)
        return error_set(err, STATUS_IO, "access-log: %s", strerror(errno));
    sink->fd = to_stderr ? open_standard_error(sink) : open_path(sink->path);
    if (sink->fd >= 0)
        return STATUS_OK;
    enum status status = error_set(err, STATUS_IO, "access-log: cannot write to %s: %s", sink->path,
                                   errno == ENXIO ? "no process reads it" : strerror(errno));
    sink_close(sink);
    return status;
}

static void reopen(struct sink *sink)
{
    if (!*sink->path)
        return;
    int fd = open_path(sink->path);
    if (fd < 0) {
        log_error(MOD, "path=%s why=\"%s\" msg=\"the access log can't be opened again\"",
                  sink->path, strerror(errno));
        return;
    }
    close(sink->fd);
    sink->fd = fd;
    sink->torn = false;
    log_info(MOD, "path=%s msg=\"the access log is opened again\"", sink->path);
}

/* Waits until the reader takes more. False: an error, or no more time after hurry_fd was
 * written. */
static bool wait_for_room(struct sink *sink)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = sink->fd, .events = POLLOUT},
                                {.fd = sink->deadline_us ? -1 : sink->hurry_fd, .events = POLLIN}};
        uint64_t now_us = clock_now_us();
        uint64_t left_us = now_us < sink->deadline_us ? sink->deadline_us - now_us : 0;
        int count = poll(fds, 2, sink->deadline_us ? (int)((left_us + 999) / 1000) : -1);
        if (count < 0 && errno != EINTR)
            return false;
        if (count > 0 && fds[0].revents)
            return true;
        if (count > 0)
            sink->deadline_us = clock_now_us() + ACCESS_LOG_HURRY_US;
        else if (count == 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static bool write_all(struct sink *sink, const char *bytes, size_t count)
{
    while (count) {
        ssize_t now = sink->is_socket ? send(sink->fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL)
                                      : write(sink->fd, bytes, count);
        if (now < 0 && (errno == EAGAIN ? !wait_for_room(sink) : errno != EINTR))
            return false;
        if (now > 0) {
            bytes += now;
            count -= (size_t)now;
            sink->torn = bytes[-1] != '\n';
        }
    }
    return true;
}

/* --- the writing thread --- */

static void put(struct access_log *log, const struct line *line)
{
    struct sink *sink = &log->sink;
    if (atomic_exchange(&log->reopen, false))
        reopen(sink);
    bool whole = !sink->torn || write_all(sink, "\n", 1);
    if (whole && write_all(sink, line->text, line->length))
        return;
    counter_add(log->lost, 1);
    log_error_limited(MOD, "path=%s why=\"%s\" msg=\"a line can't be written\"",
                      *sink->path ? sink->path : "stderr", strerror(errno));
}

/* --- any thread --- */

/* The ring's last places are for the line that ends the thread. */
static void post(struct access_log *log, const struct str *text)
{
    struct line *line = NULL;
    if (ring_count(log->ring) < ACCESS_LOG_MAX_LINES)
        line = malloc(sizeof *line + text->length);
    if (line) {
        line->length = text->length;
        memcpy(line->text, text->data, text->length);
        if (ring_push(log->ring, line) == STATUS_OK)
            return;
    }
    free(line);
    counter_add(log->lost, 1);
}

static bool let_stranger_in(struct access_log *log)
{
    static const struct quota_limits limits = {.requests_per_minute = ACCESS_LOG_STRANGERS};
    uint64_t now_us = clock_now_us(), retry_us;
    pthread_mutex_lock(&log->lock);
    bool in = quota_begin(&log->strangers, &limits, now_us, &retry_us) == QUOTA_GRANTED;
    if (in)
        quota_end(&log->strangers, &limits, 0, 0, now_us); /* a line doesn't go on running */
    log->left_out += !in;
    pthread_mutex_unlock(&log->lock);
    return in;
}

/* Says how many lines were left out, if any were, and it wasn't said just now. */
static void tell_left_out(struct access_log *log, bool at_the_end)
{
    struct str text;
    uint64_t now_us = clock_now_us(), count = 0;
    pthread_mutex_lock(&log->lock);
    if (at_the_end || now_us - log->told_us >= TELL_EVERY_US) {
        count = log->left_out;
        log->left_out = 0;
        log->told_us = count ? now_us : log->told_us;
    }
    pthread_mutex_unlock(&log->lock);
    if (!count)
        return;
    str_init(&text, ACCESS_LINE_MAX_BYTES);
    access_line_left_out(count, clock_unix_us(), &text);
    post(log, &text);
    str_deinit(&text);
}

/* --- the writing thread's loop --- */

/* A line is left out only while the bucket is empty, so shortly after one that was let in: a while
 * after the last line nothing is left to tell, until the next one comes. */
static void *write_lines(void *argument)
{
    struct access_log *log = argument;
    pthread_setname_np(pthread_self(), "access-log");
    uint64_t wait_us = UINT64_MAX;
    for (bool more = true; more;) {
        struct line *line = ring_wait(log->ring, wait_us);
        wait_us = line ? TELL_EVERY_US : UINT64_MAX;
        if (!line) {
            tell_left_out(log, false);
            continue;
        }
        more = line->length > 0;
        if (more)
            put(log, line);
        free(line);
    }
    return NULL;
}

void access_log_ended(struct access_log *log, const struct request_trace *trace)
{
    struct str text;
    tell_left_out(log, false);
    str_init(&text, ACCESS_LINE_MAX_BYTES);
    access_line_ended(trace, clock_unix_us(), &text);
    post(log, &text);
    str_deinit(&text);
}

void access_log_brief(struct access_log *log, const struct access_line_brief *brief)
{
    struct str text;
    if (!log || (brief->stranger && !let_stranger_in(log)))
        return;
    tell_left_out(log, false);
    str_init(&text, ACCESS_LINE_MAX_BYTES);
    access_line_brief(brief, clock_unix_us(), &text);
    post(log, &text);
    str_deinit(&text);
}

void access_log_reopen(struct access_log *log)
{
    atomic_store(&log->reopen, true);
}

/* --- start and end --- */

static void destroy(struct access_log *log)
{
    ring_destroy(log->ring);
    sink_close(&log->sink);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

enum status access_log_open(const char *where, struct counter *lost, struct access_log **out,
                            struct error *err)
{
    struct access_log *log = calloc(1, sizeof *log);
    if (!log)
        return error_set(err, STATUS_LIMIT, "out of memory for the access log");
    log->lost = lost;
    pthread_mutex_init(&log->lock, NULL);
    enum status status = sink_open(&log->sink, where, err);
    if (status != STATUS_OK) {
        free(log);
        return status;
    }
    /* Threads that read the count at the same moment may each add one: hence twice the room. */
    if (ring_create(ACCESS_LOG_MAX_LINES * 2, &log->ring) != STATUS_OK ||
        pthread_create(&log->thread, NULL, write_lines, log)) {
        destroy(log);
        return error_set(err, STATUS_LIMIT, "cannot start the access log's thread");
    }
    *out = log;
    return STATUS_OK;
}

void access_log_close(struct access_log *log)
{
    if (!log)
        return;
    tell_left_out(log, true);
    struct line *end = calloc(1, sizeof *end);
    enum status status = end ? ring_push(log->ring, end) : STATUS_LIMIT;
    ASSERT(status == STATUS_OK); /* no thread logs any more, and there is twice the room */
    (void)!eventfd_write(log->sink.hurry_fd, 1);
    pthread_join(log->thread, NULL);
    destroy(log);
}
