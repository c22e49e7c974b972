#include "common/cli/load_report.h"

#include "common/base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const load_metric_names[LOAD_METRICS] = {"ttft",
                                                     "tpot",
                                                     "itl",
                                                     "e2el",
                                                     "normalized_latency",
                                                     "client_queue_time",
                                                     "e2el_including_client_queue",
                                                     "lateness"};

enum status load_objective_parse(const char *text, struct load_objectives *objectives,
                                 struct error *err)
{
    double *const fields[] = {&objectives->ttft_ms, &objectives->tpot_ms, &objectives->e2el_ms};
    static const char *const names[] = {"ttft:", "tpot:", "e2el:"};
    for (int i = 0; i < 3; i++) {
        if (strncmp(text, names[i], 5) != 0)
            continue;
        double value;
        if (!str_to_double(text + 5, 0, 1e12, &value))
            return error_set(err, STATUS_INVALID, "--goodput %.60s: '%.40s' is no milliseconds",
                             text, text + 5);
        *fields[i] = value;
        objectives->given = true;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "--goodput %.60s: must be ttft:MS, tpot:MS or e2el:MS",
                     text);
}

/* --- figures --- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double load_percentile(const double *sorted, size_t count, double p)
{
    double at = p / 100 * (double)(count - 1);
    size_t below = (size_t)at;
    if (below + 1 >= count)
        return sorted[count - 1];
    double low = sorted[below], high = sorted[below + 1];
    return isinf(high) ? (at > (double)below ? high : low)
                       : low + (high - low) * (at - (double)below);
}

struct values {
    double *items;
    size_t count, capacity;
};

static void add_value(struct values *values, double value)
{
    if (values->count == values->capacity) {
        values->capacity = values->capacity ? 2 * values->capacity : 1024;
        values->items = realloc(values->items, values->capacity * sizeof *values->items);
        ASSERT(values->items);
    }
    values->items[values->count++] = value;
}

static struct load_summary summarize(struct values *values, const struct load_report *report)
{
    struct load_summary summary = {.count = values->count};
    double sum = 0, squares = 0;
    if (!values->count)
        return summary;
    qsort(values->items, values->count, sizeof *values->items, by_value);
    for (size_t i = 0; i < values->count; i++)
        sum += values->items[i];
    summary.mean = sum / (double)values->count;
    for (size_t i = 0; i < values->count; i++)
        squares += (values->items[i] - summary.mean) * (values->items[i] - summary.mean);
    summary.std = sqrt(squares / (double)values->count);
    summary.median = load_percentile(values->items, values->count, 50);
    summary.max = values->items[values->count - 1];
    for (size_t i = 0; i < report->percentile_count; i++)
        summary.percentiles[i] =
            load_percentile(values->items, values->count, report->percentiles[i]);
    return summary;
}

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-6 : 0;
}

static bool has_failed(const struct load_answer *answer)
{
    return *answer->reason != 0;
}

static double tpot_ms(const struct load_answer *answer)
{
    return answer->output_tokens > 1
               ? ms_between(answer->first_ns, answer->last_ns) / (double)(answer->output_tokens - 1)
               : 0;
}

/* Returns by how much the objectives must grow for the request to meet them; INFINITY: failed. */
static double scale_of(const struct load_objectives *objectives, const struct load_answer *answer)
{
    const double pairs[][2] = {{ms_between(answer->sent_ns, answer->first_ns), objectives->ttft_ms},
                               {tpot_ms(answer), objectives->tpot_ms},
                               {ms_between(answer->sent_ns, answer->last_ns), objectives->e2el_ms}};
    double scale = 0;
    if (has_failed(answer))
        return INFINITY;
    for (size_t i = 0; i < 3; i++)
        if (!isinf(pairs[i][1]) && pairs[i][0] > 0)
            scale = fmax(scale, pairs[i][0] / pairs[i][1]); /* by 0: INFINITY */
    return scale;
}

static void add_times(struct values values[LOAD_METRICS], const struct load_answer *answer)
{
    double e2el = ms_between(answer->sent_ns, answer->last_ns);
    double queued = ms_between(answer->due_ns, answer->sent_ns);
    add_value(&values[LOAD_TTFT], ms_between(answer->sent_ns, answer->first_ns));
    if (answer->output_tokens > 1)
        add_value(&values[LOAD_TPOT], tpot_ms(answer));
    for (uint32_t i = 0; i + 1 < answer->chunks; i++)
        add_value(&values[LOAD_ITL], 1e3 * (double)answer->itls[i]);
    add_value(&values[LOAD_E2EL], e2el);
    if (answer->output_tokens)
        add_value(&values[LOAD_NORMALIZED], e2el / answer->output_tokens);
    add_value(&values[LOAD_QUEUE], queued);
    add_value(&values[LOAD_E2EL_QUEUED], e2el + queued);
}

static void add_reason(struct load_report *report, const struct load_answer *answer)
{
    size_t i = 0;
    while (i < report->reason_count && strcmp(report->reasons[i].name, answer->reason) != 0)
        i++;
    if (i == LOAD_MAX_REASONS) /* the last one takes all others */
        i--;
    if (i == report->reason_count) {
        str_copy(report->reasons[i].name, sizeof report->reasons[i].name, answer->reason);
        str_copy(report->reasons[i].message, sizeof report->reasons[i].message, answer->message);
        report->reason_count++;
    }
    report->reasons[i].count++;
}

/* The most chunks in a second since the start, and the most requests at once. */
static void find_peaks(struct load_report *report, const struct load_answer *answers,
                       uint32_t count, uint64_t start_ns)
{
    uint32_t seconds = (uint32_t)report->duration_s + 2;
    uint32_t *chunks = calloc(seconds, sizeof *chunks);
    struct values edges = {0}; /* ends count before starts of the same time */
    ASSERT(chunks);
    for (uint32_t i = 0; i < count; i++) {
        const struct load_answer *answer = &answers[i];
        double at = (double)(answer->first_ns - start_ns) * 1e-9;
        if (!answer->sent_ns || has_failed(answer))
            continue;
        for (uint32_t k = 0; k < answer->chunks; k++) {
            at += k ? (double)answer->itls[k - 1] : 0;
            chunks[at < seconds ? (uint32_t)at : seconds - 1]++;
        }
        add_value(&edges, 2 * (double)(answer->sent_ns - start_ns) + 1);
        add_value(&edges, 2 * (double)(answer->last_ns - start_ns));
    }
    for (uint32_t i = 0; i < seconds; i++)
        report->output_peak = fmax(report->output_peak, chunks[i]);
    if (edges.count)
        qsort(edges.items, edges.count, sizeof *edges.items, by_value);
    uint32_t running = 0;
    for (size_t i = 0; i < edges.count; i++) {
        running += fmod(edges.items[i], 2) > 0 ? 1 : UINT32_MAX;
        if (running != UINT32_MAX && running > report->concurrency_peak)
            report->concurrency_peak = running;
    }
    free(edges.items);
    free(chunks);
}

/* --- attainment --- */

struct place {
    uint64_t key; /* to sort by */
    uint32_t request, input;
    bool good;
    uint64_t due_ns;
};

static int by_key(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->request > y->request) - (x->request < y->request);
}

/* Cuts sorted places into ten groups as equal as can be. */
static void cut(const struct place *places, size_t count, struct load_group groups[LOAD_DECILES])
{
    for (size_t g = 0; g < LOAD_DECILES; g++) {
        size_t from = count * g / LOAD_DECILES, to = count * (g + 1) / LOAD_DECILES;
        struct load_group group = {.shortest = UINT32_MAX};
        for (size_t i = from; i < to; i++) {
            group.requests++;
            group.good += places[i].good;
            group.shortest = group.shortest < places[i].input ? group.shortest : places[i].input;
            group.longest = group.longest > places[i].input ? group.longest : places[i].input;
        }
        if (group.requests) { /* up to the next group's first, which ends the last gap */
            uint64_t begin = places[from].due_ns, end = places[to < count ? to : to - 1].due_ns;
            double gaps = (double)(to < count ? to - from : to - 1 - from);
            group.rate = end > begin ? gaps / ((double)(end - begin) * 1e-9) : 0;
        } else {
            group.shortest = 0;
        }
        groups[g] = group;
    }
}

static double attained_rate(const struct load_group parts[LOAD_DECILES], double share)
{
    double rate = 0;
    for (int i = 0; i < LOAD_DECILES; i++) {
        if (parts[i].requests && parts[i].good < share * parts[i].requests)
            break;
        rate = fmax(rate, parts[i].rate);
    }
    return rate;
}

static void attain(struct load_report *report, const struct load_plan *plan,
                   const struct load_answer *answers)
{
    struct place *places = calloc(plan->request_count + 1, sizeof *places);
    struct load_group parts[LOAD_DECILES];
    struct values scales = {0};
    size_t count = 0;
    ASSERT(places);
    for (uint32_t i = 0; i < plan->request_count; i++) {
        const struct load_answer *answer = &answers[i];
        /* A request that was never sent because the run was ended has no reason. */
        if (!answer->sent_ns && !has_failed(answer))
            continue;
        double scale = scale_of(&report->objectives, answer);
        uint32_t input = answer->has_usage ? answer->input_tokens : plan->requests[i].input_tokens;
        places[count++] = (struct place){.key = input,
                                         .request = i,
                                         .input = input,
                                         .good = scale <= 1,
                                         .due_ns = answer->due_ns};
        add_value(&scales, scale);
        report->good += places[count - 1].good;
    }
    if (count) {
        qsort(places, count, sizeof *places, by_key);
        cut(places, count, report->deciles);
        for (size_t i = 0; i < count; i++)
            places[i].key = places[i].due_ns;
        qsort(places, count, sizeof *places, by_key);
        cut(places, count, parts);
        report->rate_90 = attained_rate(parts, 0.9);
        report->rate_99 = attained_rate(parts, 0.99);
        qsort(scales.items, count, sizeof *scales.items, by_value);
        report->scale_90 = scales.items[(size_t)ceil(0.9 * (double)count) - 1];
        report->scale_99 = scales.items[(size_t)ceil(0.99 * (double)count) - 1];
    }
    free(scales.items);
    free(places);
}

void load_report_make(struct load_report *report, const struct load_plan *plan,
                      const struct load_answer *answers, uint64_t start_ns, uint64_t end_ns)
{
    struct values values[LOAD_METRICS] = {{0}};
    report->duration_s = ms_between(start_ns, end_ns) * 1e-3;
    for (uint32_t i = 0; i < plan->request_count; i++) {
        const struct load_answer *answer = &answers[i];
        if (answer->sent_ns)
            add_value(&values[LOAD_LATENESS], ms_between(answer->ready_ns, answer->sent_ns));
        if (has_failed(answer)) {
            report->failed++;
            add_reason(report, answer);
        } else if (answer->sent_ns) {
            report->completed++;
            report->input_tokens +=
                answer->has_usage ? answer->input_tokens : plan->requests[i].input_tokens;
            report->output_tokens += answer->output_tokens;
            add_times(values, answer);
        }
    }
    for (int i = 0; i < LOAD_METRICS; i++) {
        report->summaries[i] = summarize(&values[i], report); /* sorts */
        if (i == LOAD_LATENESS && values[i].count)
            report->lateness_99_ms = load_percentile(values[i].items, values[i].count, 99);
        free(values[i].items);
    }
    find_peaks(report, answers, plan->request_count, start_ns);
    attain(report, plan, answers);
}
