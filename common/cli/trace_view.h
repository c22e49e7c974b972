/* One request's trace, as the router tells it at GET /trace/ID (router/ops/trace_json.h), and its
 * timeline for a terminal. */
#ifndef BATON_CLI_TRACE_VIEW_H
#define BATON_CLI_TRACE_VIEW_H

#include "common/base/status.h"
#include "common/base/str.h"

#include <stdbool.h>
#include <stdint.h>

#define TRACE_VIEW_MAX_BARS    48
#define TRACE_VIEW_MIN_COLUMNS 60
#define TRACE_VIEW_MAX_COLUMNS 400

/* One line of the timeline. */
struct trace_bar {
    char label[24], worker[64], note[224];
    double begin_ms,
        end_ms; /* from the request's arrival; end before begin: a line without a bar */
    char fill;
};

struct trace_view {
    char id[160], model[128], tenant[65], key[65], peer[64], status[40], finish[24];
    int64_t arrived_unix_ms, prompt_tokens, tokens, attempts, prefills, choice;
    double ttft_ms, second_ms, tpot_ms, longest_gap_ms, total_ms; /* below 0: not there */
    int64_t longest_gap_token;
    size_t bar_count;
    struct trace_bar bars[TRACE_VIEW_MAX_BARS];
};

enum status trace_view_parse(const char *json, size_t length, struct trace_view *view,
                             struct error *err) WARN_UNUSED;
/* Lines of `columns` at most, if those are no fewer than the smallest. `color`: with escapes. */
void trace_view_print(const struct trace_view *view, unsigned columns, bool color, struct str *out);

#endif
