/* The access log: one line at each request's end, on standard error or in a file that can be moved
 * away (access_log_reopen).
 *
 * Never waits: lines go through a bounded queue to a thread that writes; those that find it full,
 * or can't be written, are lost, and counted. Any thread may log. */
#ifndef BATON_ROUTER_OPS_ACCESS_LOG_H
#define BATON_ROUTER_OPS_ACCESS_LOG_H

#include "common/base/observe/metrics.h"
#include "common/base/status.h"
#include "router/ops/access_line.h"

#define ACCESS_LOG_MAX_LINES 8192 /* that wait to be written */

struct access_log;

/* `where`: "stderr", or a path: appended to, made if it isn't there. `lost` counts the lines that
 * are. */
enum status access_log_open(const char *where, struct counter *lost, struct access_log **log,
                            struct error *err) WARN_UNUSED;
/* Writes what waits; what nobody takes within ACCESS_FILE_HURRY_US is lost. Nobody may log any
 * more. NULL is fine. */
void access_log_close(struct access_log *log);

void access_log_ended(struct access_log *log, const struct request_trace *trace);
/* `log` NULL: none is kept. */
void access_log_brief(struct access_log *log, const struct access_line_brief *brief);

/* The file by its name anew, before the next line: the one that was open may have another name by
 * now. Any thread. */
void access_log_reopen(struct access_log *log);

#endif
