/* Counters, gauges and histograms, and their Prometheus text (format 0.0.4).
 *
 *      struct counter *ok = metrics_counter(m, "baton_requests_total", "Requests by status",
 *                                           "status=\"ok\"");
 *      counter_add(ok, 1);
 *
 * Register at start, on one thread. The same name with other labels is another series of the same
 * family, with the same help, and for a histogram the same bounds. Labels are fixed text,
 * `name="value",name="value"`, or NULL, and never text that a client can choose. An impossible
 * registration (the same series twice, a full table, a name that changes its kind) is a
 * programmer's error. Updates are lock-free, allocate nothing and may come from any thread.
 * metrics_render may run on any thread, too. */
#ifndef BATON_BASE_OBSERVE_METRICS_H
#define BATON_BASE_OBSERVE_METRICS_H

#include "common/base/str.h"

#include <stdint.h>

#define METRICS_MAX_SERIES   2048
#define METRICS_MAX_BUCKETS  32
#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics;
struct counter;
struct gauge;
struct histogram;

struct metrics *metrics_create(void);
/* No thread may still update a metric. */
void metrics_destroy(struct metrics *metrics);

struct counter *metrics_counter(struct metrics *metrics, const char *name, const char *help,
                                const char *labels);
struct gauge *metrics_gauge(struct metrics *metrics, const char *name, const char *help,
                            const char *labels);
/* `bounds`: upper bounds in rising order, copied; +Inf is added. */
struct histogram *metrics_histogram(struct metrics *metrics, const char *name, const char *help,
                                    const char *labels, const double *bounds, size_t bound_count);

/* Seconds, from 100 us to 60 s in steps of about 2: bounds for latencies of requests, steps and
 * handoffs. */
extern const double metrics_seconds_bounds[];
extern const size_t metrics_seconds_bound_count;

void counter_add(struct counter *counter, uint64_t amount);
uint64_t counter_value(const struct counter *counter);
void gauge_set(struct gauge *gauge, double value);
void gauge_add(struct gauge *gauge, double amount); /* negative: down */
double gauge_value(const struct gauge *gauge);
void histogram_observe(struct histogram *histogram, double value);
uint64_t histogram_count(const struct histogram *histogram);

/* Appends the text of all families, with process_* (CPU seconds, resident bytes, open files, start
 * time) and the number of lost log lines. */
void metrics_render(const struct metrics *metrics, struct str *out);

#endif
