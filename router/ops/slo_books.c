#include "router/ops/slo_books.h"

#include "common/base/assert.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS             60
#define ACCURACY_ANSWERS  1000.0  /* older ones are forgotten by halves */
#define LENGTHS_PER_TWICE 4       /* buckets of prompt length in each doubling */
#define LENGTHS           128     /* up to 2^32 tokens */
#define LENGTHS_REQUESTS  65536.0 /* older ones are forgotten by halves */

/* Requests that ended in the last SLOTS slots of time. */
struct window {
    uint64_t slot_us;
    uint64_t newest; /* number of the slot that is being filled */
    struct slo_count slots[SLOTS];
};

struct accuracy {
    double count, predicted_us, measured_us, error; /* sums */
};

struct class_books {
    struct slo_count ever;
    uint64_t uncounted;
    struct window minute, hour;
    struct accuracy ttft, tpot;
    double attained_by[LENGTHS], ended_by[LENGTHS], ended; /* by prompt length; their sum */
    struct counter *attained_total, *missed_total, *uncounted_total, *missed_by_total[SLO_KINDS];
    struct gauge *error_budget_left;
};

struct slo_books {
    const struct slo_classes *classes;
    pthread_mutex_t lock; /* guards all below */
    struct class_books of[SLO_MAX_CLASSES];
};

/* ------------------------------------------------------------------------------------- counting */

static void window_move(struct window *window, uint64_t now_us)
{
    uint64_t slot = now_us / window->slot_us;
    for (uint64_t i = window->newest + 1; i <= slot && i <= window->newest + SLOTS; i++)
        window->slots[i % SLOTS] = (struct slo_count){0};
    if (slot > window->newest)
        window->newest = slot;
}

/* `missed`: bits of enum slo_kind; 0: attained. */
static void count_add(struct slo_count *count, unsigned missed)
{
    count->attained += !missed;
    count->missed += missed != 0;
    for (int kind = 0; kind < SLO_KINDS; kind++)
        count->missed_by[kind] += missed >> kind & 1;
}

static void window_add(struct window *window, unsigned missed, uint64_t now_us)
{
    window_move(window, now_us);
    count_add(&window->slots[window->newest % SLOTS], missed);
}

static struct slo_count window_sum(struct window *window, uint64_t now_us)
{
    struct slo_count sum = {0};
    window_move(window, now_us);
    for (size_t i = 0; i < SLOTS; i++) {
        sum.attained += window->slots[i].attained;
        sum.missed += window->slots[i].missed;
        for (int kind = 0; kind < SLO_KINDS; kind++)
            sum.missed_by[kind] += window->slots[i].missed_by[kind];
    }
    return sum;
}

static void accuracy_add(struct accuracy *sums, uint64_t predicted_us, double measured_us)
{
    if (!predicted_us)
        return;
    sums->count++;
    sums->predicted_us += (double)predicted_us;
    sums->measured_us += measured_us;
    sums->error += fabs(measured_us - (double)predicted_us) / (double)predicted_us;
    if (sums->count > ACCURACY_ANSWERS) {
        sums->count /= 2;
        sums->predicted_us /= 2;
        sums->measured_us /= 2;
        sums->error /= 2;
    }
}

static struct slo_accuracy accuracy_mean(const struct accuracy *sums)
{
    if (sums->count <= 0)
        return (struct slo_accuracy){0};
    return (struct slo_accuracy){.count = sums->count,
                                 .predicted_us = sums->predicted_us / sums->count,
                                 .measured_us = sums->measured_us / sums->count,
                                 .error = sums->error / sums->count};
}

static void lengths_add(struct class_books *of, uint32_t prompt_tokens, bool attained)
{
    if (!prompt_tokens)
        return;
    size_t bucket = (size_t)(log2(prompt_tokens) * LENGTHS_PER_TWICE);
    of->ended_by[bucket]++;
    of->attained_by[bucket] += attained;
    if (++of->ended <= LENGTHS_REQUESTS)
        return;
    of->ended /= 2;
    for (size_t i = 0; i < LENGTHS; i++) {
        of->ended_by[i] /= 2;
        of->attained_by[i] /= 2;
    }
}

/* Cuts the buckets into tenths of the requests. A bucket that lies in several tenths has the same
 * share of attained requests in each. Returns how many there are. */
static uint32_t lengths_deciles(const struct class_books *of,
                                struct slo_decile deciles[SLO_DECILES])
{
    double tenth = of->ended / SLO_DECILES;
    if (of->ended < SLO_DECILES)
        return 0;
    for (int i = 0; i < SLO_DECILES; i++) {
        double low = i * tenth, high = low + tenth, begin = 0, attained = 0;
        size_t last = 0;
        for (size_t bucket = 0; bucket < LENGTHS; bucket++) {
            double end = begin + of->ended_by[bucket];
            double common = fmin(end, high) - fmax(begin, low);
            if (common > tenth * 1e-6) { /* less is rounding */
                attained += common * of->attained_by[bucket] / of->ended_by[bucket];
                last = bucket;
            }
            begin = end;
        }
        deciles[i] =
            (struct slo_decile){.to_tokens = (uint32_t)exp2((double)(last + 1) / LENGTHS_PER_TWICE),
                                .attained = fmin(attained / tenth, 1)};
    }
    return SLO_DECILES;
}

/* --------------------------------------------------------------------------------------- misses */

/* Returns whether a request that ended so was rejected, or failed, because of the cluster. */
static bool is_ours(enum reason reason)
{
    switch (reason_code(reason)) {
    case RPC_UNAVAILABLE:
    case RPC_DEADLINE_EXCEEDED:
    case RPC_INTERNAL: return true;
    case RPC_RESOURCE_EXHAUSTED:
        return reason != REASON_RATE_LIMITED && reason != REASON_QUOTA &&
               reason != REASON_SLOW_READER && reason != REASON_ANSWER_TOO_LARGE;
    default: return false;
    }
}

/* ---------------------------------------------------------------------------------------- books */

static void create_class(struct class_books *of, const char *name, struct metrics *metrics)
{
    static const char requests[] = "baton_router_slo_requests_total",
                      help[] = "Requests of an SLO class that ended: attained, missed (late, "
                               "failed, rejected), or uncounted (refused or left by the client)";
    char labels[128];
    snprintf(labels, sizeof labels, "slo_class=\"%s\",outcome=\"attained\"", name);
    of->attained_total = metrics_counter(metrics, requests, help, labels);
    snprintf(labels, sizeof labels, "slo_class=\"%s\",outcome=\"missed\"", name);
    of->missed_total = metrics_counter(metrics, requests, help, labels);
    snprintf(labels, sizeof labels, "slo_class=\"%s\",outcome=\"uncounted\"", name);
    of->uncounted_total = metrics_counter(metrics, requests, help, labels);
    for (int kind = 0; kind < SLO_KINDS; kind++) {
        snprintf(labels, sizeof labels, "slo_class=\"%s\",objective=\"%s\"", name,
                 slo_kind_names[kind]);
        of->missed_by_total[kind] = metrics_counter(
            metrics, "baton_router_slo_missed_total",
            "Requests of an SLO class that missed this objective, failed or were rejected", labels);
    }
    snprintf(labels, sizeof labels, "slo_class=\"%s\"", name);
    of->error_budget_left = metrics_gauge(
        metrics, "baton_router_slo_error_budget_left",
        "Share of the misses that the class's percentile allows that the last hour has left",
        labels);
    of->minute.slot_us = SLO_MINUTE_US / SLOTS;
    of->hour.slot_us = SLO_HOUR_US / SLOTS;
}

enum status slo_books_create(const struct slo_classes *classes, struct metrics *metrics,
                             struct slo_books **out)
{
    *out = NULL;
    if (!classes || !classes->count)
        return STATUS_OK;
    struct slo_books *books = calloc(1, sizeof *books);
    if (!books)
        return STATUS_LIMIT;
    books->classes = classes;
    pthread_mutex_init(&books->lock, NULL);
    for (uint32_t i = 0; i < classes->count; i++)
        create_class(&books->of[i], classes->items[i].name, metrics);
    *out = books;
    return STATUS_OK;
}

void slo_books_destroy(struct slo_books *books)
{
    if (!books)
        return;
    pthread_mutex_destroy(&books->lock);
    free(books);
}

const struct slo_classes *slo_books_classes(const struct slo_books *books)
{
    return books ? books->classes : NULL;
}

struct slo_verdict slo_judge(const struct slo_ending *ending)
{
    struct slo_outcome outcome = ending->outcome;
    outcome.ok = !is_ours(ending->reason);
    unsigned missed = slo_missed(&ending->objective, &outcome);
    if (!outcome.ok && reason_code(ending->reason) == RPC_RESOURCE_EXHAUSTED)
        missed = 1u << SLO_REJECTED;
    /* A client that leaves when an objective is missed already doesn't undo the miss. */
    bool left_late = ending->reason == REASON_CANCELLED && missed;
    return (struct slo_verdict){.counts = !ending->reason || !outcome.ok || left_late,
                                .missed = missed};
}

void slo_books_ended(struct slo_books *books, const struct slo_ending *ending, uint64_t now_us)
{
    if (!books || ending->slo_class == SLO_NONE)
        return;
    ASSERT(ending->slo_class < books->classes->count);
    struct class_books *of = &books->of[ending->slo_class];
    const struct slo_outcome *outcome = &ending->outcome;
    struct slo_verdict verdict = slo_judge(ending);
    unsigned missed = verdict.missed;
    bool counts = verdict.counts;
    counter_add(!counts ? of->uncounted_total : missed ? of->missed_total : of->attained_total, 1);
    for (int kind = 0; counts && kind < SLO_KINDS; kind++)
        counter_add(of->missed_by_total[kind], missed >> kind & 1);
    pthread_mutex_lock(&books->lock);
    of->uncounted += !counts;
    if (counts) {
        count_add(&of->ever, missed);
        window_add(&of->minute, missed, now_us);
        window_add(&of->hour, missed, now_us);
        lengths_add(of, ending->prompt_tokens, !missed);
    }
    if (!ending->reason) {
        accuracy_add(&of->ttft, ending->predicted.ttft_us, (double)outcome->ttft_us);
        if (outcome->answer_tokens > 1)
            accuracy_add(&of->tpot, ending->predicted.tpot_us,
                         (double)(outcome->e2e_us - outcome->ttft_us) /
                             (outcome->answer_tokens - 1));
    }
    pthread_mutex_unlock(&books->lock);
}

void slo_books_refused(struct slo_books *books, const char *class_name, enum reason reason,
                       uint64_t now_us)
{
    if (!books)
        return;
    struct slo_ending ending = {.slo_class = slo_choose(books->classes, class_name),
                                .reason = reason};
    slo_books_ended(books, &ending, now_us);
}

static double budget_left(const struct slo_class *class, const struct slo_count *hour)
{
    double allowed = (double)(hour->attained + hour->missed) * (1 - class->percentile / 100);
    return allowed > 0 ? 1 - (double)hour->missed / allowed : 1;
}

void slo_books_read(struct slo_books *books, uint32_t slo_class, uint64_t now_us,
                    struct slo_figures *figures)
{
    ASSERT(slo_class < books->classes->count);
    struct class_books *of = &books->of[slo_class];
    pthread_mutex_lock(&books->lock);
    *figures = (struct slo_figures){.minute = window_sum(&of->minute, now_us),
                                    .hour = window_sum(&of->hour, now_us),
                                    .ever = of->ever,
                                    .uncounted = of->uncounted,
                                    .ttft = accuracy_mean(&of->ttft),
                                    .tpot = accuracy_mean(&of->tpot)};
    figures->error_budget_left = budget_left(&books->classes->items[slo_class], &figures->hour);
    figures->decile_count = lengths_deciles(of, figures->deciles);
    pthread_mutex_unlock(&books->lock);
}

void slo_books_show(struct slo_books *books, uint64_t now_us)
{
    for (uint32_t i = 0; books && i < books->classes->count; i++) {
        pthread_mutex_lock(&books->lock);
        struct slo_count hour = window_sum(&books->of[i].hour, now_us);
        pthread_mutex_unlock(&books->lock);
        gauge_set(books->of[i].error_budget_left, budget_left(&books->classes->items[i], &hour));
    }
}

/* ------------------------------------------------------------------------------------- /status */

static void add_count(struct str *out, const char *name, const struct slo_count *count)
{
    str_addf(out, "\"%s\": {\"attained\": %" PRIu64 ", \"missed\": %" PRIu64 ", \"missed_by\": {",
             name, count->attained, count->missed);
    for (int kind = 0; kind < SLO_KINDS; kind++)
        str_addf(out, "%s\"%s\": %" PRIu64, kind ? ", " : "", slo_kind_names[kind],
                 count->missed_by[kind]);
    str_add(out, "}}, ");
}

static void add_accuracy(struct str *out, const char *name, const struct slo_accuracy *accuracy)
{
    str_addf(out,
             "\"%s\": {\"answers\": %.0f, \"predicted_ms\": %.3f, \"measured_ms\": %.3f, "
             "\"error\": %.4f}",
             name, accuracy->count, accuracy->predicted_us / 1e3, accuracy->measured_us / 1e3,
             accuracy->error);
}

static void add_class(struct str *out, const struct slo_class *class, bool standard)
{
    const struct slo_objective *objective = &class->objective;
    str_addf(out,
             "\"name\": \"%s\", \"default\": %s, \"priority\": \"%s\", \"offline\": %s, "
             "\"percentile\": %g, \"objective\": {\"ttft_ms\": %.3f, \"tpot_ms\": %.3f, "
             "\"itl_ms\": %.3f, \"e2e_ms\": %.3f}, ",
             class->name, standard ? "true" : "false", priority_names[class->priority],
             class->offline ? "true" : "false", class->percentile, (double)objective->ttft_us / 1e3,
             (double)objective->tpot_us / 1e3, (double)objective->itl_us / 1e3,
             (double)objective->e2e_us / 1e3);
}

static void add_figures(struct str *out, const struct slo_figures *figures, uint32_t devices)
{
    double goodput = (double)figures->minute.attained / (SLO_MINUTE_US / 1e6);
    add_count(out, "minute", &figures->minute);
    add_count(out, "hour", &figures->hour);
    add_count(out, "ever", &figures->ever);
    str_addf(out,
             "\"uncounted\": %" PRIu64 ", \"goodput_per_second\": %.4f, "
             "\"goodput_per_device\": %.4f, \"error_budget_left\": %.4f, \"predicted\": {",
             figures->uncounted, goodput, devices ? goodput / devices : 0,
             figures->error_budget_left);
    add_accuracy(out, "ttft", &figures->ttft);
    str_add(out, ", ");
    add_accuracy(out, "tpot", &figures->tpot);
    str_add(out, "}, \"deciles\": [");
    for (uint32_t i = 0; i < figures->decile_count; i++)
        str_addf(out, "%s{\"to_tokens\": %u, \"attained\": %.4f}", i ? ", " : "",
                 figures->deciles[i].to_tokens, figures->deciles[i].attained);
    str_add(out, "]");
}

void slo_books_json(struct slo_books *books, uint32_t devices, uint64_t now_us, struct str *out)
{
    str_add(out, "[");
    for (uint32_t i = 0; books && i < books->classes->count; i++) {
        struct slo_figures figures;
        slo_books_read(books, i, now_us, &figures);
        str_add(out, i ? ", {" : "{");
        add_class(out, &books->classes->items[i], i == books->classes->standard);
        add_figures(out, &figures, devices);
        str_add(out, "}");
    }
    str_add(out, "]");
}
