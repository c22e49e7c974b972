#include "router/ops/phase_metrics.h"

#include <stdio.h>

static const double token_bounds[] = {1,   2,    4,    8,    16,   32,    64,    128,   256,
                                      512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

#define LABEL_BYTES 192 /* a model's name is a label's value as it is */

static struct histogram *seconds(struct metrics *metrics, const char *model, const char *name,
                                 const char *help)
{
    return metrics_histogram(metrics, name, help, model, metrics_seconds_bounds,
                             metrics_seconds_bound_count);
}

static struct histogram *tokens(struct metrics *metrics, const char *model, const char *name,
                                const char *help)
{
    return metrics_histogram(metrics, name, help, model, token_bounds,
                             sizeof token_bounds / sizeof *token_bounds);
}

void phase_metrics_create(struct phase_metrics *phases, struct metrics *metrics, const char *model)
{
    char of_model[LABEL_BYTES], labels[LABEL_BYTES + 64];
    snprintf(of_model, sizeof of_model, "model_name=\"%s\"", model);
    *phases = (struct phase_metrics){
        .inter_token_seconds = seconds(metrics, of_model, "baton_inter_token_latency_seconds",
                                       "One token to the next of a request, for each token"),
        .prefill_seconds = seconds(metrics, of_model, "baton_request_prefill_time_seconds",
                                   "First dispatch to the first token of answered requests"),
        .decode_seconds = seconds(metrics, of_model, "baton_request_decode_time_seconds",
                                  "First token to the last of answered requests"),
        .handoff_seconds = seconds(metrics, of_model, "baton_request_handoff_time_seconds",
                                   "First read of KV bytes to the end of the pull"),
        .prompt_tokens = tokens(metrics, of_model, "baton_request_prompt_tokens",
                                "Prompt tokens of answered requests"),
        .generation_tokens = tokens(metrics, of_model, "baton_request_generation_tokens",
                                    "Generated tokens of answered requests"),
    };
    for (int finish = FINISH_NONE + 1; finish < PHASE_FINISHES; finish++) {
        snprintf(labels, sizeof labels, "%s,finished_reason=\"%s\"", of_model,
                 finish_reason_name((enum finish_reason)finish));
        phases->answered[finish] = metrics_counter(metrics, "baton_request_success_total",
                                                   "Answers, by how they ended", labels);
    }
}

static double seconds_between(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) / 1e6 : 0;
}

void phase_metrics_token(struct phase_metrics *phases, uint64_t gap_us)
{
    histogram_observe(phases->inter_token_seconds, (double)gap_us / 1e6);
}

void phase_metrics_answered(struct phase_metrics *phases, const struct request_trace *trace,
                            enum finish_reason finish)
{
    const struct trace_attempt *attempt = request_trace_last(trace);
    histogram_observe(phases->prefill_seconds,
                      seconds_between(trace->dispatched_us, trace->first_us));
    histogram_observe(phases->decode_seconds, seconds_between(trace->first_us, trace->last_us));
    histogram_observe(phases->prompt_tokens, trace->prompt_tokens);
    histogram_observe(phases->generation_tokens, trace->tokens);
    if (attempt && attempt->handoff.known && attempt->handoff.read_us)
        histogram_observe(phases->handoff_seconds,
                          seconds_between(attempt->handoff.read_us, attempt->handoff.done_us));
    if (finish > FINISH_NONE && finish < PHASE_FINISHES)
        counter_add(phases->answered[finish], 1);
}
