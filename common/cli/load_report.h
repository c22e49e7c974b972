/* Figures about the answers to a benchmark's requests, as `vllm bench serve` names and defines
 * them, and ours:
 *
 *   TTFT     first token - sent                    E2EL   last token - sent
 *   TPOT     (E2EL - TTFT) / (n - 1), n > 1        ITL    gaps between the chunks of all answers
 *   normalized latency: E2EL / n                   lateness: sent - when it could be sent
 *   client queue time: sent - due (with a limit)
 *
 * A request is good if it succeeds and meets every objective; without a second token TPOT counts as
 * 0. Attainment is the share of good ones among all, DistServe's joint attainment (Zhong et al.,
 * OSDI'24). Percentiles are interpolated linearly, deviations are the population's, as numpy's.
 * Pure. */
#ifndef BATON_CLI_LOAD_REPORT_H
#define BATON_CLI_LOAD_REPORT_H

#include "common/cli/load_answer.h"
#include "common/cli/load_plan.h"

#define LOAD_MAX_PERCENTILES 16
#define LOAD_MAX_REASONS     16
#define LOAD_DECILES         10

enum load_metric {
    LOAD_TTFT,
    LOAD_TPOT,
    LOAD_ITL,
    LOAD_E2EL,
    LOAD_NORMALIZED,
    LOAD_QUEUE,
    LOAD_E2EL_QUEUED,
    LOAD_LATENESS,
    LOAD_METRICS,
};
/* "ttft", ..., as in --percentile-metrics and in the fields' names. */
extern const char *const load_metric_names[LOAD_METRICS];

/* Milliseconds. */
struct load_summary {
    size_t count;
    double mean, median, std, max;
    double percentiles[LOAD_MAX_PERCENTILES];
};

struct load_objectives {
    bool given;
    double ttft_ms, tpot_ms, e2el_ms; /* INFINITY: none */
};

/* Parses "ttft:400", "tpot:40" or "e2el:1000". */
enum status load_objective_parse(const char *text, struct load_objectives *objectives,
                                 struct error *err) WARN_UNUSED;

struct load_group {
    uint32_t requests, good;
    uint32_t shortest, longest; /* prompts, tokens */
    double rate;                /* at which they were due, requests a second */
};

struct load_report {
    double percentiles[LOAD_MAX_PERCENTILES]; /* wanted, 0 .. 100 */
    size_t percentile_count;
    struct load_objectives objectives;

    double duration_s;
    uint32_t completed, failed, good;
    uint64_t input_tokens, output_tokens; /* completed requests' */
    double output_peak;                   /* most chunks in a second */
    uint32_t concurrency_peak;
    struct load_summary summaries[LOAD_METRICS];
    double lateness_99_ms;
    struct load_group deciles[LOAD_DECILES]; /* by prompt length */
    /* The objectives times this are met by 90% and by 99% of all requests; INFINITY: by fewer,
     * whatever the objectives. */
    double scale_90, scale_99;
    /* The highest rate up to which 90% and 99% attain: of ten equal parts of the run, the last
     * one's before the first that doesn't. 0: none. */
    double rate_90, rate_99;
    struct {
        char name[48], message[200];
        uint32_t count;
    } reasons[LOAD_MAX_REASONS];
    size_t reason_count;
};

/* Returns the p-th percentile of ascending values; count > 0. */
double load_percentile(const double *sorted, size_t count, double p);
/* Computes everything behind `objectives`. `answers` has one for each request of the plan, in its
 * order; one that was never sent has sent_ns 0. It counts as failed, unless it has no reason. */
void load_report_make(struct load_report *report, const struct load_plan *plan,
                      const struct load_answer *answers, uint64_t start_ns, uint64_t end_ns);

/* --- output --- */

struct load_labels {
    const char *backend, *label, *model, *tokenizer, *dataset, *date;
    uint32_t num_prompts, max_concurrency; /* 0: no limit */
    struct load_arrivals arrivals;
    bool timed;   /* arrivals are a trace's */
    bool at_once; /* all are due at once: there is no rate to attain */
    bool shown[LOAD_METRICS];
    bool detailed;               /* with the fields of each request */
    const char *const *metadata; /* "KEY=VALUE" */
    size_t metadata_count;
    double client_cpu; /* cores that the client used */
};

/* Appends vLLM's table, and ours. */
void load_report_table(const struct load_report *report, const struct load_labels *labels,
                       struct str *out);
/* Appends one JSON object with vLLM's fields, and ours, without a line feed. */
void load_report_json(const struct load_report *report, const struct load_labels *labels,
                      const struct load_plan *plan, const struct load_answer *answers,
                      uint64_t start_ns, struct str *out);

#endif
