/* Views for a terminal: the screen of `baton top`, the timeline of `baton trace`, the tables of
 * `baton explain`. Texts from outside are shown without control bytes. */
#ifndef BATON_CLI_VIEWS_H
#define BATON_CLI_VIEWS_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/cli/cluster_status.h"

#include <stdbool.h>
#include <stdint.h>

/* One look at a cluster. */
struct top_look {
    uint64_t at_us; /* monotonic */
    struct cluster_status status;
};

/* Appends a look, and the rates since the look `before`. NULL: there was none, or it was at another
 * router, so there are no rates. `lines`: at most so many (0: no limit), of which the last says how
 * many workers have no line. Fits into 80 columns. */
void top_view_print(const struct top_look *before, const struct top_look *now, unsigned lines,
                    bool color, struct str *out);

/* --- a request's timeline --- */

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

/* A request's trace, as the router answers GET /trace/ID (router/ops/request_trace.h). */
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
/* Appends lines of at most `columns`, which is put between TRACE_VIEW_MIN_COLUMNS and
 * TRACE_VIEW_MAX_COLUMNS. `color`: with escapes. */
void trace_view_print(const struct trace_view *view, unsigned columns, bool color, struct str *out);

/* --- the decisions about a request --- */

/* Appends the decisions that the router answers GET /decisions/ID with
 * (router/ops/decision_ring.h): for each a table of the choices, why one of them won, and how the
 * request ended. Fits into 80 columns. STATUS_NOT_FOUND: the router has none, and the sentence says
 * how it would have. STATUS_INVALID: not such an answer. */
enum status explain_view_print(const char *json, size_t length, bool color, struct str *out,
                               struct error *err) WARN_UNUSED;

#endif
