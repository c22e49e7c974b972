#include "router/ops/access_log.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ring.h"
#include "router/ops/access_file.h"
#include "router/ops/access_line.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOD "access_log"

struct line {
    size_t length; /* 0: the end */
    char text[];
};

struct access_log {
    struct access_file file; /* the writing thread's, while there is one */
    struct ring *ring;
    pthread_t thread;
    atomic_bool reopen;
    struct counter *lost;
};

/* --- the writing thread --- */

static void put(struct access_log *log, const struct line *line)
{
    struct access_file *file = &log->file;
    if (atomic_exchange(&log->reopen, false))
        access_file_open_again(file);
    if (access_file_put(file, line->text, line->length))
        return;
    counter_add(log->lost, 1);
    log_error_limited(MOD, "path=%s why=\"%s\" msg=\"a line can't be written\"",
                      *file->path ? file->path : "stderr", strerror(errno));
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

static void destroy(struct access_log *log)
{
    ring_destroy(log->ring);
    access_file_close(&log->file);
    free(log);
}

enum status access_log_open(const char *where, struct counter *lost, struct access_log **out,
                            struct error *err)
{
    struct access_log *log = calloc(1, sizeof *log);
    if (!log)
        return error_set(err, STATUS_LIMIT, "out of memory for the access log");
    log->lost = lost;
    enum status status = access_file_open(&log->file, where, err);
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
    access_file_hurry(&log->file);
    pthread_join(log->thread, NULL);
    destroy(log);
}
