#include "router/access_log.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "router/access_line.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOD "access_log"

struct line {
    size_t length; /* 0: the end */
    char text[];
};

struct access_log {
    char path[1024]; /* "": standard error */
    int fd;
    struct ring *ring;
    pthread_t thread;
    atomic_bool reopen;
    struct counter *lost;
};

static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
}

/* --- the writing thread --- */

/* Where it can't be opened again, the one that is open goes on: lines under another name are better than none. */
static void open_again(struct access_log *log)
{
    int fd = open_file(log->path);
    if (fd < 0) {
        log_error(MOD, "path=%s why=\"%s\" msg=\"the access log can't be opened again\"", log->path,
                  strerror(errno));
        return;
    }
    close(log->fd);
    log->fd = fd;
    log_info(MOD, "path=%s msg=\"the access log is opened again\"", log->path);
}

static void put(struct access_log *log, const struct line *line)
{
    if (*log->path && atomic_exchange(&log->reopen, false))
        open_again(log);
    if (write(log->fd, line->text, line->length) == (ssize_t)line->length)
        return;
    counter_add(log->lost, 1);
    log_error_limited(MOD, "path=%s why=\"%s\" msg=\"a line can't be written\"",
                      *log->path ? log->path : "stderr", strerror(errno));
}

static void *write_lines(void *argument)
{
    struct access_log *log = argument;
    pthread_setname_np(pthread_self(), "access-log");
    for (bool more = true; more;) {
        struct line *line = ring_wait(log->ring, UINT64_MAX);
        more = line->length > 0;
        if (more)
            put(log, line);
        free(line);
    }
    return NULL;
}

/* --- any thread --- */

/* The last place is the end's. */
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

void access_log_ended(struct access_log *log, const struct request_trace *trace)
{
    struct str text;
    str_init(&text, ACCESS_LINE_MAX_BYTES);
    access_line_ended(trace, clock_unix_us(), &text);
    post(log, &text);
    str_deinit(&text);
}

void access_log_brief(struct access_log *log, const struct access_line_brief *brief)
{
    struct str text;
    if (!log)
        return;
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

static enum status open_target(struct access_log *log, const char *where, struct error *err)
{
    if (!strcmp(where, "stderr")) {
        log->fd = STDERR_FILENO;
        return STATUS_OK;
    }
    if (!str_copy(log->path, sizeof log->path, where))
        return error_set(err, STATUS_INVALID, "access-log: the path is too long");
    log->fd = open_file(log->path);
    if (log->fd < 0)
        return error_set(err, STATUS_IO, "access-log: cannot write to %s: %s", log->path,
                         strerror(errno));
    return STATUS_OK;
}

static void destroy(struct access_log *log)
{
    ring_destroy(log->ring);
    if (*log->path && log->fd >= 0)
        close(log->fd);
    free(log);
}

enum status access_log_open(const char *where, struct counter *lost, struct access_log **out,
                            struct error *err)
{
    struct access_log *log = calloc(1, sizeof *log);
    if (!log)
        return error_set(err, STATUS_LIMIT, "out of memory for the access log");
    log->lost = lost;
    enum status status = open_target(log, where, err);
    if (status != STATUS_OK) {
        free(log);
        return status;
    }
    /* Threads that ask for the fill at the same moment may each add one. */
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
    struct line *end = calloc(1, sizeof *end);
    enum status status = end ? ring_push(log->ring, end) : STATUS_LIMIT;
    ASSERT(status == STATUS_OK); /* nobody logs any more, and there is twice the room */
    pthread_join(log->thread, NULL);
    destroy(log);
}
