#include "common/base/observe/metrics.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_NAME_BYTES  80
#define MAX_HELP_BYTES  160
#define MAX_LABEL_BYTES 192

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM };
static const char *const kind_names[] = {"counter", "gauge", "histogram"};

/* The bits of a double that many threads may change. */
struct shared_double {
    _Atomic uint64_t bits;
};

struct counter {
    _Atomic uint64_t value;
};

struct gauge {
    struct shared_double value;
};

struct histogram {
    size_t bound_count;
    double bounds[METRICS_MAX_BUCKETS];
    _Atomic uint64_t
        /* each counts its own range, not cumulative; the last is +Inf */
        buckets[METRICS_MAX_BUCKETS + 1];
    struct shared_double sum;
};

struct series {
    char name[MAX_NAME_BYTES], help[MAX_HELP_BYTES], labels[MAX_LABEL_BYTES];
    enum kind kind;
    struct series *family; /* the first series of this name; points to itself in that one */
    /* Each series' numbers start a cache line, so that threads that update different series don't
     * slow each other down. */
    union {
        _Alignas(64) struct counter counter;
        struct gauge gauge;
        struct histogram histogram;
    };
};

struct metrics {
    size_t count;
    uint64_t start_unix_us;
    struct series *series[METRICS_MAX_SERIES];
};

const double metrics_seconds_bounds[] = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005,
                                         0.01,   0.02,   0.05,   0.1,   0.2,   0.5,
                                         1,      2,      5,      10,    20,    60};
const size_t metrics_seconds_bound_count =
    sizeof metrics_seconds_bounds / sizeof *metrics_seconds_bounds;

static double shared_double_get(const struct shared_double *shared)
{
    uint64_t bits = atomic_load_explicit(&shared->bits, memory_order_relaxed);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void shared_double_set(struct shared_double *shared, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    atomic_store_explicit(&shared->bits, bits, memory_order_relaxed);
}

static void shared_double_add(struct shared_double *shared, double amount)
{
    uint64_t old_bits = atomic_load_explicit(&shared->bits, memory_order_relaxed), new_bits;
    do {
        double value;
        memcpy(&value, &old_bits, sizeof value);
        value += amount;
        memcpy(&new_bits, &value, sizeof new_bits);
    } while (!atomic_compare_exchange_weak_explicit(&shared->bits, &old_bits, new_bits,
                                                    memory_order_relaxed, memory_order_relaxed));
}

struct metrics *metrics_create(void)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);
    ASSERT(metrics);
    metrics->start_unix_us = clock_unix_us();
    return metrics;
}

void metrics_destroy(struct metrics *metrics)
{
    if (!metrics)
        return;
    for (size_t i = 0; i < metrics->count; i++)
        free(metrics->series[i]);
    free(metrics);
}

static struct series *add_series(struct metrics *metrics, enum kind kind, const char *name,
                                 const char *help, const char *labels)
{
    ASSERT(metrics->count < METRICS_MAX_SERIES);
    struct series *series = aligned_alloc(64, (sizeof *series + 63) / 64 * 64);
    ASSERT(series);
    memset(series, 0, sizeof *series);
    bool fits = str_copy(series->name, sizeof series->name, name) &&
                str_copy(series->help, sizeof series->help, help) &&
                str_copy(series->labels, sizeof series->labels, labels ? labels : "");
    ASSERT(fits);
    series->kind = kind;
    series->family = series;
    for (size_t i = metrics->count; i-- > 0;) {
        struct series *other = metrics->series[i];
        if (strcmp(other->name, name))
            continue;
        ASSERT(other->kind == kind);
        ASSERT(strcmp(other->labels, series->labels));
        series->family = other->family;
    }
    metrics->series[metrics->count++] = series;
    return series;
}

struct counter *metrics_counter(struct metrics *metrics, const char *name, const char *help,
                                const char *labels)
{
    return &add_series(metrics, KIND_COUNTER, name, help, labels)->counter;
}

struct gauge *metrics_gauge(struct metrics *metrics, const char *name, const char *help,
                            const char *labels)
{
    return &add_series(metrics, KIND_GAUGE, name, help, labels)->gauge;
}

struct histogram *metrics_histogram(struct metrics *metrics, const char *name, const char *help,
                                    const char *labels, const double *bounds, size_t bound_count)
{
    ASSERT(bound_count > 0 && bound_count <= METRICS_MAX_BUCKETS);
    struct histogram *histogram =
        &add_series(metrics, KIND_HISTOGRAM, name, help, labels)->histogram;
    for (size_t i = 0; i < bound_count; i++) {
        ASSERT(i == 0 || bounds[i] > bounds[i - 1]);
        histogram->bounds[i] = bounds[i];
    }
    histogram->bound_count = bound_count;
    return histogram;
}

void counter_add(struct counter *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&counter->value, amount, memory_order_relaxed);
}

uint64_t counter_value(const struct counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

void gauge_set(struct gauge *gauge, double value)
{
    shared_double_set(&gauge->value, value);
}

void gauge_add(struct gauge *gauge, double amount)
{
    shared_double_add(&gauge->value, amount);
}

double gauge_value(const struct gauge *gauge)
{
    return shared_double_get(&gauge->value);
}

void histogram_observe(struct histogram *histogram, double value)
{
    size_t bucket = 0;
    while (bucket < histogram->bound_count && value > histogram->bounds[bucket])
        bucket++;
    atomic_fetch_add_explicit(&histogram->buckets[bucket], 1, memory_order_relaxed);
    shared_double_add(&histogram->sum, value);
}

uint64_t histogram_count(const struct histogram *histogram)
{
    uint64_t count = 0;
    for (size_t i = 0; i <= histogram->bound_count; i++)
        count += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
    return count;
}

/* Appends name, suffix and {labels}. Either part of the labels may be empty. */
static void render_name(struct str *out, const struct series *series, const char *suffix,
                        const char *label)
{
    str_addf(out, "%s%s", series->name, suffix);
    if (*series->labels || *label)
        str_addf(out, "{%s%s%s}", series->labels, *series->labels && *label ? "," : "", label);
    str_add(out, " ");
}

static void render_histogram(struct str *out, const struct series *series)
{
    const struct histogram *histogram = &series->histogram;
    uint64_t cumulative = 0;
    for (size_t i = 0; i <= histogram->bound_count; i++) {
        char label[48] = "le=\"+Inf\"";
        if (i < histogram->bound_count)
            snprintf(label, sizeof label, "le=\"%.10g\"", histogram->bounds[i]);
        cumulative += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
        render_name(out, series, "_bucket", label);
        str_addf(out, "%llu\n", (unsigned long long)cumulative);
    }
    render_name(out, series, "_sum", "");
    str_addf(out, "%.17g\n", shared_double_get(&histogram->sum));
    render_name(out, series, "_count", "");
    str_addf(out, "%llu\n", (unsigned long long)cumulative);
}

static void render_series(struct str *out, const struct series *series)
{
    switch (series->kind) {
    case KIND_COUNTER:
        render_name(out, series, "", "");
        str_addf(out, "%llu\n", (unsigned long long)counter_value(&series->counter));
        break;
    case KIND_GAUGE:
        render_name(out, series, "", "");
        str_addf(out, "%.17g\n", gauge_value(&series->gauge));
        break;
    case KIND_HISTOGRAM: render_histogram(out, series); break;
    }
}

static void render_head(struct str *out, const char *name, const char *help, const char *kind)
{
    str_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

static size_t open_files(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        return 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count > 3 ? count - 3 : 0; /* ".", ".." and the directory itself */
}

static void render_process(const struct metrics *metrics, struct str *out)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage))
        memset(&usage, 0, sizeof usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    long resident_pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");
    if (statm) {
        if (fscanf(statm, "%*d %ld", &resident_pages) != 1)
            resident_pages = 0;
        fclose(statm);
    }
    render_head(out, "process_cpu_seconds_total", "User and system CPU time", "counter");
    str_addf(out, "process_cpu_seconds_total %.6f\n", cpu);
    render_head(out, "process_resident_memory_bytes", "Resident memory", "gauge");
    str_addf(out, "process_resident_memory_bytes %lld\n",
             (long long)resident_pages * sysconf(_SC_PAGESIZE));
    render_head(out, "process_open_fds", "Open file descriptors", "gauge");
    str_addf(out, "process_open_fds %zu\n", open_files());
    render_head(out, "process_start_time_seconds", "Start, in seconds since 1970", "gauge");
    str_addf(out, "process_start_time_seconds %.3f\n", (double)metrics->start_unix_us * 1e-6);
    render_head(out, "baton_log_lines_lost_total", "Log lines that could not be written",
                "counter");
    str_addf(out, "baton_log_lines_lost_total %llu\n", (unsigned long long)log_lost_lines());
}

void metrics_render(const struct metrics *metrics, struct str *out)
{
    for (size_t i = 0; i < metrics->count; i++) {
        const struct series *first = metrics->series[i];
        if (first->family != first)
            continue;
        render_head(out, first->name, first->help, kind_names[first->kind]);
        for (size_t j = i; j < metrics->count; j++)
            if (metrics->series[j]->family == first)
                render_series(out, metrics->series[j]);
    }
    render_process(metrics, out);
}
