/* The settings of `baton bench serve`, with the names that `vllm bench serve` has, and ours. The
 * texts among them are read by the functions below, which the program's check has called, too. */
#ifndef BATON_CLI_SERVE_SETTINGS_H
#define BATON_CLI_SERVE_SETTINGS_H

#include "common/cli/load_report.h"
#include "common/cli/load_run.h"

#define SERVE_PATH_BYTES      4096
#define SERVE_MAX_EXTRA_BYTES (1u << 16)

enum serve_dataset {
    SERVE_RANDOM,
    SERVE_SHAREGPT,
    SERVE_SHAREGPT_LIKE,
    SERVE_PREFIXES,
    SERVE_TURNS,
    SERVE_AZURE,
    SERVE_TIMED_TRACE,
    SERVE_MOONCAKE
};

/* Their names, NULL at the end. */
extern const char *const serve_backends[], *const serve_datasets[], *const serve_ramps[];

/* The caller sets cv, ramp_start, ramp_end and multiplier to -1, temperature and top_p to NAN, and
 * the rest to 0: not given. */
struct serve_settings {
    char base_url[HTTP_URL_BYTES + 512], host[256], endpoint[256], model[512], served[512];
    char tokenizer[SERVE_PATH_BYTES], server[128], request_rate[32], burstiness[32];
    char dataset_path[SERVE_PATH_BYTES], result_dir[SERVE_PATH_BYTES],
        result_filename[SERVE_PATH_BYTES], label[128];
    char percentile_metrics[256], metric_percentiles[256], id_prefix[101], extra_body[16384],
        slo_class[64];
    struct credential_settings credentials;
    struct config_list headers, metadata, goodput;
    enum load_backend backend;
    enum serve_dataset dataset;
    enum load_ramp ramp;
    double cv, ramp_start, ramp_end, multiplier, temperature, top_p;
    uint32_t top_k, port, num_prompts, max_concurrency, num_warmups, input_len, output_len;
    uint32_t sharegpt_output, max_request_tokens, ready_s;
    struct load_lengths random;
    struct load_prefixes prefixes;
    struct load_turns turns;
    uint64_t seed, timeout_us;
    bool ignore_eos, self_timed, oversample, disable_shuffle, skip_tokenizer;
    bool save_result, save_detailed, append_result, disable_tqdm;
};

extern const struct config_program serve_program;

bool serve_is_trace(enum serve_dataset dataset);
enum status serve_settings_arrivals(const struct serve_settings *settings,
                                    struct load_arrivals *arrivals, struct error *err) WARN_UNUSED;
enum status serve_settings_shown(const struct serve_settings *settings, bool shown[LOAD_METRICS],
                                 struct error *err) WARN_UNUSED;
/* Adds to the report's percentiles. */
enum status serve_settings_percentiles(const struct serve_settings *settings,
                                       struct load_report *report, struct error *err) WARN_UNUSED;
/* Appends the members of --extra-body and of sampling, each behind ", ". */
enum status serve_settings_extra(const struct serve_settings *settings, struct str *extra,
                                 struct error *err) WARN_UNUSED;

#endif
