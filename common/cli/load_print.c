/* The figures of load_report.h as a table and as JSON. */
#include "common/base/json/json_quote.h"
#include "common/cli/load_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* vLLM's words for each metric. */
static const struct {
    const char *name, *title;
} metric_words[LOAD_METRICS] = {
    {"TTFT", "Time to First Token"},
    {"TPOT", "Time per Output Token (excl. 1st token)"},
    {"ITL", "Inter-token Latency"},
    {"E2EL", "End-to-end Latency"},
    {"normalized latency", "Normalized Latency (per token)"},
    {"Client Queue Time", "Client-side Queueing"},
    {"E2EL incl. Client Queue", "Queue-inclusive End-to-end Latency"},
    {"lateness", "Lateness of Sending"},
};

/* "99", "99.9" */
static void percent_text(double p, char text[24])
{
    snprintf(text, 24, "%.10g", p);
}

static void add_rule(struct str *out, char c, const char *title)
{
    char line[51];
    size_t length = strlen(title) + (*title ? 2 : 0), left = (50 - length) / 2;
    memset(line, c, 50);
    line[50] = 0;
    if (*title) {
        line[left] = line[left + length - 1] = ' ';
        memcpy(line + left + 1, title, length - 2);
    }
    str_addf(out, "%s\n", line);
}

static void add_number(struct str *out, const char *name, double value)
{
    str_addf(out, "%-40s %-10.2f\n", name, value);
}

static void add_summary(struct str *out, const struct load_report *report, int metric)
{
    const struct load_summary *summary = &report->summaries[metric];
    const char *name = metric_words[metric].name;
    char line[80], p[24];
    add_rule(out, '-', metric_words[metric].title);
    snprintf(line, sizeof line, "Mean %s (ms):", name);
    add_number(out, line, summary->mean);
    snprintf(line, sizeof line, "Median %s (ms):", name);
    add_number(out, line, summary->median);
    for (size_t i = 0; i < report->percentile_count; i++) {
        percent_text(report->percentiles[i], p);
        snprintf(line, sizeof line, "P%s %s (ms):", p, name);
        add_number(out, line, summary->percentiles[i]);
    }
    snprintf(line, sizeof line, "Max %s (ms):", name);
    add_number(out, line, summary->max);
}

/* Adds a number that may be infinite: "never". */
static void add_scale(struct str *out, const char *name, double scale)
{
    if (isinf(scale))
        str_addf(out, "%-40s %-10s\n", name, "never");
    else
        add_number(out, name, scale);
}

static double share_of(uint32_t good, uint32_t all)
{
    return all ? (double)good / all : 0;
}

static void add_attainment(struct str *out, const struct load_report *report,
                           const struct load_labels *labels)
{
    uint32_t all = report->completed + report->failed;
    add_rule(out, '-', "Objectives (all of them met)");
    add_number(out, "Attainment (%):", 100 * share_of(report->good, all));
    if (labels->arrivals.ramp != LOAD_RAMP_NONE) {
        add_number(out, "Rate attained by 90% (req/s):", report->rate_90);
        add_number(out, "Rate attained by 99% (req/s):", report->rate_99);
    }
    add_scale(out, "Scale of objectives that 90% meet:", report->scale_90);
    add_scale(out, "Scale of objectives that 99% meet:", report->scale_99);
    str_add(out, "Attainment by prompt length:\n");
    struct load_group rows[LOAD_DECILES];
    size_t count = 0;
    for (int i = 0; i < LOAD_DECILES; i++) {
        const struct load_group *group = &report->deciles[i];
        if (count && group->requests && group->longest == rows[count - 1].shortest) {
            rows[count - 1].requests += group->requests; /* prompts of one length are one row */
            rows[count - 1].good += group->good;
        } else if (group->requests) {
            rows[count++] = *group;
        }
    }
    for (size_t i = 0; i < count; i++)
        str_addf(out, "%10u .. %-6u tokens, %6u requests %9.1f%%\n", rows[i].shortest,
                 rows[i].longest, rows[i].requests, 100 * share_of(rows[i].good, rows[i].requests));
}

void load_report_table(const struct load_report *report, const struct load_labels *labels,
                       struct str *out)
{
    double seconds = report->duration_s > 0 ? report->duration_s : 1e-9;
    add_rule(out, '=', "Serving Benchmark Result");
    str_addf(out, "%-40s %-10u\n", "Successful requests:", report->completed);
    str_addf(out, "%-40s %-10u\n", "Failed requests:", report->failed);
    for (size_t i = 0; i < report->reason_count; i++)
        str_addf(out, "  %-38s %-10u %s\n", report->reasons[i].name, report->reasons[i].count,
                 report->reasons[i].message);
    if (labels->max_concurrency)
        str_addf(out, "%-40s %-10u\n", "Maximum request concurrency:", labels->max_concurrency);
    if (!isinf(labels->arrivals.rate))
        add_number(out, "Request rate configured (RPS):", labels->arrivals.rate);
    add_number(out, "Benchmark duration (s):", report->duration_s);
    str_addf(out, "%-40s %-10llu\n",
             "Total input tokens:", (unsigned long long)report->input_tokens);
    str_addf(out, "%-40s %-10llu\n",
             "Total generated tokens:", (unsigned long long)report->output_tokens);
    add_number(out, "Request throughput (req/s):", report->completed / seconds);
    if (report->objectives.given)
        add_number(out, "Request goodput (req/s):", report->good / seconds);
    add_number(out, "Output token throughput (tok/s):", (double)report->output_tokens / seconds);
    add_number(out, "Peak output token throughput (tok/s):", report->output_peak);
    str_addf(out, "%-40s %-10u\n", "Peak concurrent requests:", report->concurrency_peak);
    add_number(out, "Total token throughput (tok/s):",
               (double)(report->input_tokens + report->output_tokens) / seconds);
    add_number(out, "Client's CPU (cores):", labels->client_cpu);
    for (int i = 0; i < LOAD_METRICS; i++)
        if (labels->shown[i])
            add_summary(out, report, i);
    if (report->objectives.given)
        add_attainment(out, report, labels);
    add_rule(out, '=', "");
}

/* --- JSON --- */

static void add_key(struct str *out, const char *key)
{
    str_addf(out, "%s\"%s\": ", out->data[out->length - 1] == '{' ? "" : ", ", key);
}

static void add_double(struct str *out, const char *key, double value)
{
    add_key(out, key);
    if (isfinite(value))
        str_addf(out, "%.17g", value);
    else
        str_add(out, "null");
}

static void add_integer(struct str *out, const char *key, uint64_t value)
{
    add_key(out, key);
    str_addf(out, "%llu", (unsigned long long)value);
}

/* NULL: null. */
static void add_string(struct str *out, const char *key, const char *text)
{
    add_key(out, key);
    if (text)
        json_quote(out, text, strlen(text));
    else
        str_add(out, "null");
}

static void add_labels(struct str *out, const struct load_labels *labels)
{
    static const char *const ramps[] = {NULL, "linear", "exponential"};
    add_string(out, "date", labels->date);
    add_string(out, "endpoint_type", labels->backend);
    add_string(out, "backend", labels->backend);
    add_string(out, "label", labels->label);
    add_string(out, "model_id", labels->model);
    add_string(out, "tokenizer_id", labels->tokenizer);
    add_string(out, "dataset_name", labels->dataset);
    add_integer(out, "num_prompts", labels->num_prompts);
    for (size_t i = 0; i < labels->metadata_count; i++) {
        const char *text = labels->metadata[i], *value = strchr(text, '=') + 1;
        str_add(out, ", ");
        json_quote(out, text, (size_t)(value - 1 - text));
        str_add(out, ": ");
        json_quote(out, value, strlen(value));
    }
    if (isinf(labels->arrivals.rate))
        add_string(out, "request_rate", "inf");
    else
        add_double(out, "request_rate", labels->arrivals.rate);
    add_double(out, "burstiness", labels->arrivals.burstiness);
    add_key(out, "max_concurrency");
    if (labels->max_concurrency)
        str_addf(out, "%u", labels->max_concurrency);
    else
        str_add(out, "null");
    add_key(out, "self_timed");
    str_add(out, labels->timed ? "true" : "false");
    if (labels->arrivals.ramp == LOAD_RAMP_NONE)
        return;
    add_string(out, "ramp_up_strategy", ramps[labels->arrivals.ramp]);
    add_double(out, "ramp_up_start_rps", labels->arrivals.start);
    add_double(out, "ramp_up_end_rps", labels->arrivals.end);
}

static void add_groups(struct str *out, const struct load_report *report)
{
    str_add(out, ", \"attainment_by_input_decile\": [");
    bool first = true;
    for (int i = 0; i < LOAD_DECILES; i++) {
        const struct load_group *group = &report->deciles[i];
        if (!group->requests)
            continue;
        str_add(out, first ? "{" : ", {");
        first = false;
        add_integer(out, "input_len_min", group->shortest);
        add_integer(out, "input_len_max", group->longest);
        add_integer(out, "requests", group->requests);
        add_double(out, "attainment", share_of(group->good, group->requests));
        str_add(out, "}");
    }
    str_add(out, "]");
}

static void add_totals(struct str *out, const struct load_report *report, bool at_once)
{
    double seconds = report->duration_s > 0 ? report->duration_s : 1e-9;
    uint32_t all = report->completed + report->failed;
    add_double(out, "duration", report->duration_s);
    add_integer(out, "completed", report->completed);
    add_integer(out, "failed", report->failed);
    add_integer(out, "total_input_tokens", report->input_tokens);
    add_integer(out, "total_output_tokens", report->output_tokens);
    add_double(out, "request_throughput", report->completed / seconds);
    add_double(out, "request_goodput",
               report->objectives.given ? report->good / seconds : (double)NAN);
    add_double(out, "output_throughput", (double)report->output_tokens / seconds);
    add_double(out, "total_token_throughput",
               (double)(report->input_tokens + report->output_tokens) / seconds);
    add_double(out, "max_output_tokens_per_s", report->output_peak);
    add_integer(out, "max_concurrent_requests", report->concurrency_peak);
    if (report->objectives.given) {
        add_key(out, "goodput_objectives_ms");
        str_add(out, "{");
        add_double(out, "ttft", report->objectives.ttft_ms);
        add_double(out, "tpot", report->objectives.tpot_ms);
        add_double(out, "e2el", report->objectives.e2el_ms);
        str_add(out, "}");
        add_double(out, "attainment", share_of(report->good, all));
        add_double(out, "request_rate_attained_90", at_once ? (double)NAN : report->rate_90);
        add_double(out, "request_rate_attained_99", at_once ? (double)NAN : report->rate_99);
        add_double(out, "objective_scale_90", report->scale_90);
        add_double(out, "objective_scale_99", report->scale_99);
        add_groups(out, report);
    }
    add_key(out, "failures");
    str_add(out, "{");
    for (size_t i = 0; i < report->reason_count; i++) {
        str_add(out, i ? ", " : "");
        json_quote(out, report->reasons[i].name, strlen(report->reasons[i].name));
        str_addf(out, ": %u", report->reasons[i].count);
    }
    str_add(out, "}");
}

static void add_metric(struct str *out, const struct load_report *report, int metric)
{
    static const char *const parts[] = {"mean", "median", "std", "max"};
    const struct load_summary *summary = &report->summaries[metric];
    const double values[] = {summary->mean, summary->median, summary->std, summary->max};
    char key[80], p[24];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(key, sizeof key, "%s_%s_ms", parts[i], load_metric_names[metric]);
        add_double(out, key, values[i]);
    }
    for (size_t i = 0; i < report->percentile_count; i++) {
        percent_text(report->percentiles[i], p);
        snprintf(key, sizeof key, "p%s_%s_ms", p, load_metric_names[metric]);
        add_double(out, key, summary->percentiles[i]);
    }
}

static double seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

/* One request's value of a detailed field. */
static void add_detail(struct str *out, int field, const struct load_answer *answer,
                       const struct load_request *request, uint64_t start_ns)
{
    bool fine = answer->sent_ns && !*answer->reason;
    switch (field) {
    case 0:
        str_addf(out, "%u", answer->has_usage ? answer->input_tokens : request->input_tokens);
        return;
    case 1: str_addf(out, "%u", fine ? answer->output_tokens : 0); return;
    case 2: str_addf(out, "%.9f", seconds_between(answer->sent_ns, answer->first_ns)); return;
    case 3:
        str_add(out, "[");
        for (uint32_t i = 0; i + 1 < answer->chunks; i++)
            str_addf(out, "%s%.9f", i ? ", " : "", (double)answer->itls[i]);
        str_add(out, "]");
        return;
    case 4: str_addf(out, "%.9f", seconds_between(answer->sent_ns, answer->last_ns)); return;
    case 5: str_addf(out, "%.9f", seconds_between(start_ns, answer->sent_ns)); return;
    case 6: str_addf(out, "%.9f", seconds_between(answer->due_ns, answer->sent_ns)); return;
    case 7: json_quote(out, answer->text.data, answer->text.length); return;
    default: json_quote(out, answer->message, strlen(answer->message)); return;
    }
}

void load_report_json(const struct load_report *report, const struct load_labels *labels,
                      const struct load_plan *plan, const struct load_answer *answers,
                      uint64_t start_ns, struct str *out)
{
    static const char *const details[] = {"input_lens",  "output_lens",     "ttfts",
                                          "itls",        "latencies",       "start_times",
                                          "queue_times", "generated_texts", "errors"};
    str_add(out, "{");
    add_labels(out, labels);
    add_totals(out, report, labels->at_once);
    add_double(out, "client_cpu_cores", labels->client_cpu);
    for (int i = 0; i < LOAD_METRICS; i++)
        if (labels->shown[i])
            add_metric(out, report, i);
    for (int field = 0; labels->detailed && field < 9; field++) {
        add_key(out, details[field]);
        str_add(out, "[");
        for (uint32_t i = 0; i < plan->request_count; i++) {
            str_add(out, i ? ", " : "");
            add_detail(out, field, &answers[i], &plan->requests[i], start_ns);
        }
        str_add(out, "]");
    }
    str_add(out, "}");
}
