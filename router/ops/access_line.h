/* A request's line of the access log, in logfmt. PURE. Numbers and names only: never the text of
 * the prompt or the answer.
 *
 *     ts=2026-01-02T03:04:05.678Z req=7f3a model=llama tenant= key= peer=127.0.0.1:4242 status=ok
 *     finish=eos prompt_tokens=12 tokens=100 queue_ms=0.12 prefill_ms=45.10 cached_tokens=0
 *     handoff_ms=3.20 ttft_ms=45.30 tpot_ms=4.70 token_1_to_2_ms=5.10 longest_gap_ms=12.30
 *     total_ms=512.00 attempts=1 prefills=1 prefill=prefill-0 decode=decode-0 lane=shm
 *     kv_bytes=123456
 *
 * A phase that did not happen is left out. */
#ifndef BATON_ROUTER_OPS_ACCESS_LINE_H
#define BATON_ROUTER_OPS_ACCESS_LINE_H

#include "common/base/str.h"
#include "router/ops/request_trace.h"

#define ACCESS_LINE_MAX_BYTES 2048 /* with its newline; a longer line is cut */

/* `unix_us`: now, in microseconds since 1970. */
void access_line_ended(const struct request_trace *trace, uint64_t unix_us, struct str *line);
/* The line of a request that the dispatcher didn't get: it was unreadable, there was no place for
 * it, or it was answered at once. */
struct access_line_brief {
    const char *status;                             /* "ok", or a reason */
    const char *method;                             /* "tokenize"; "": a request for an answer */
    const char *name, *model, *tenant, *key, *peer; /* NULL or "": not known, and left out */
    /* No key is known of it, and it was refused. The log bounds such lines (access_log.h). */
    bool stranger;
};
void access_line_brief(const struct access_line_brief *brief, uint64_t unix_us, struct str *line);
/* The line that stands for `count` lines of strangers. */
void access_line_left_out(uint64_t count, uint64_t unix_us, struct str *line);

#endif
