/* The access log: one line at each request's end, on standard error or in a file. The file may also
 * be a FIFO, and may be moved away (access_log_reopen).
 *
 * Lines of strangers are bounded, so that a flood of calls without a key neither fills the disk nor
 * hides other lines: a token bucket lets them in. The others are counted, and one line says how
 * many they were: at most once a second, within two seconds of the last one, and at the end.
 *
 * Never waits: a thread writes the lines of a bounded queue. A line that finds the queue full, or
 * can't be written, is lost and counted. Lines are written whole: one that an error has cut is
 * ended before the next. Any thread may log. */
#ifndef BATON_ROUTER_OPS_ACCESS_LOG_H
#define BATON_ROUTER_OPS_ACCESS_LOG_H

#include "common/base/observe/metrics.h"
#include "common/base/status.h"
#include "router/ops/access_line.h"

#define ACCESS_LOG_MAX_LINES 8192     /* waiting to be written */
#define ACCESS_LOG_STRANGERS 600      /* lines of strangers a minute, and at once */
#define ACCESS_LOG_HURRY_US  2000000u /* access_log_close waits this long for a slow reader */

struct access_log;

/* Opens "stderr", or a path, which is created or appended to. `lost` counts lost lines.
 * STATUS_IO: `where` can't be written, or is a FIFO without a reader. */
enum status access_log_open(const char *where, struct counter *lost, struct access_log **log,
                            struct error *err) WARN_UNUSED;
/* Writes the waiting lines; those not taken within ACCESS_LOG_HURRY_US are lost. No thread may log
 * any more. `log` may be NULL. */
void access_log_close(struct access_log *log);

void access_log_ended(struct access_log *log, const struct request_trace *trace);
/* `log` may be NULL. */
void access_log_brief(struct access_log *log, const struct access_line_brief *brief);

/* Before the next line, opens the file by its name again, as the open one may have been renamed. If
 * that fails, the open one goes on. Any thread. */
void access_log_reopen(struct access_log *log);

#endif
