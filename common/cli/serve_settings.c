#include "common/cli/serve_settings.h"

#include "common/base/json/json.h"
#include "common/base/json/json_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_TOKENS "1048576"

const char *const serve_backends[] = {"openai", "openai-chat", "vllm", "baton", NULL};
const char *const serve_datasets[] = {
    "random",     "sharegpt", "sharegpt-like", "prefix_repetition",
    "multi-turn", "azure",    "timed_trace",   "mooncake",
    NULL};
const char *const serve_ramps[] = {"none", "linear", "exponential", NULL};

#define AT(field)    CONFIG_AT(struct serve_settings, field)
#define TOKENS       .min = "1", .max = MOST_TOKENS, .unit = "tokens"
#define OR_NO_TOKENS .min = "0", .max = MOST_TOKENS, .unit = "tokens"
static const struct config_setting table[] = {
    /* the server */
    {"backend", CONFIG_ENUM, AT(backend), "openai", .choices = serve_backends,
     .help = "Completions or chats over HTTP (vllm: the same as openai), or Baton's gRPC"},
    {"base-url", CONFIG_STRING, AT(base_url), "", .value = "URL",
     .help = "The server, as http://HOST:PORT[/PATH]; empty: --host and --port, or the cluster "
             "started here last"},
    {"host", CONFIG_STRING, AT(host), "127.0.0.1", .help = "The server's host", .flag_only = true},
    {"port", CONFIG_U64, AT(port), "8000", "1", "65535", .help = "The server's port",
     .flag_only = true},
    {"endpoint", CONFIG_STRING, AT(endpoint), "", .value = "PATH",
     .help = "Path of requests; empty: /v1/completions or /v1/chat/completions"},
    {"server", CONFIG_STRING, AT(server), "", .value = "HOST:PORT",
     .help = "gRPC address of a router, for --backend baton; empty: the cluster started here last",
     .check = rpc_check_target},
    {"header", CONFIG_LIST, AT(headers), .max = "15", .value = "KEY=VALUE",
     .help = "A further header of each request"},
    CREDENTIAL_ROWS(struct serve_settings, credentials),
    {"model", CONFIG_STRING, AT(model), "", .value = "NAME",
     .help = "Name of the model, or its folder; empty: the server's first", .flag_only = true},
    {"served-model-name", CONFIG_STRING, AT(served), "", .value = "NAME",
     .help = "Name of the model in requests; empty: that of --model"},
    {"tokenizer", CONFIG_STRING, AT(tokenizer), "", .value = "FILE",
     .help = "tokenizer.json of the model, or its folder, for exact numbers of tokens; empty: that "
             "of a folder --model, or of the cluster started here; otherwise they are measured"},
    {"skip-tokenizer-init", CONFIG_BOOL, AT(skip_tokenizer), "false",
     .help = "Look for no tokenizer"},
    /* when */
    {"num-prompts", CONFIG_U64, AT(num_prompts), "1000", "1", "4194304", .help = "Requests"},
    {"request-rate", CONFIG_STRING, AT(request_rate), "inf", .value = "X",
     .help = "Requests a second, open loop; inf: all at once"},
    {"burstiness", CONFIG_STRING, AT(burstiness), "1", .value = "X",
     .help = "Shape of the gamma distribution of gaps; 1: Poisson arrivals; less: bursts; inf: "
             "equal gaps"},
    {"cv", CONFIG_DOUBLE, AT(cv), NULL, "0", "1000",
     .help = "Coefficient of variation of gaps instead: --burstiness is 1 / CV^2"},
    {"ramp-up-strategy", CONFIG_ENUM, AT(ramp), "none", .choices = serve_ramps,
     .help = "How the rate grows, instead of --request-rate"},
    {"ramp-up-start-rps", CONFIG_DOUBLE, AT(ramp_start), NULL, "0",
     .help = "Rate of a ramp's first request"},
    {"ramp-up-end-rps", CONFIG_DOUBLE, AT(ramp_end), NULL, "0", .help = "Rate of its last request"},
    {"max-concurrency", CONFIG_U64, AT(max_concurrency), "0", "0", "65536",
     .help = "Requests at once at most; with rate inf: closed loop; 0: no limit"},
    {"num-warmups", CONFIG_U64, AT(num_warmups), "0", "0", "65536",
     .help = "Copies of the first request, sent before and not counted"},
    {"seed", CONFIG_U64, AT(seed), "0",
     .help =
         "Decides words, lengths and times: a second run with the same seed meets what the server "
         "has cached of the first"},
    {"ready-check-timeout-sec", CONFIG_U64, AT(ready_s), "0", "0", "86400", .unit = "seconds",
     .help = "Wait for a server that doesn't answer yet"},
    {"request-timeout", CONFIG_DURATION, AT(timeout_us), "6h", "1ms", "24h",
     .help = "A request that takes longer has failed"},
    /* requests */
    {"ignore-eos", CONFIG_BOOL, AT(ignore_eos), "false",
     .help = "Answers get their whole length; on unless the dataset is sharegpt or "
             "prefix_repetition"},
    {"temperature", CONFIG_DOUBLE, AT(temperature), NULL, "0", "100",
     .help = "Sampling's; left out: the server's default"},
    {"top-p", CONFIG_DOUBLE, AT(top_p), NULL, "0", "1", .help = "Sampling's"},
    {"top-k", CONFIG_U64, AT(top_k), NULL, "0", "1000000", .help = "Sampling's"},
    {"extra-body", CONFIG_STRING, AT(extra_body), "", .value = "JSON",
     .help = "An object with more members of each request's body"},
    {"slo-class", CONFIG_STRING, AT(slo_class), "", .value = "NAME",
     .help = "SLO class of the requests, one of a Baton router's; empty: its default. The request "
             "before the run, ...probe, and warm-ups have it, too",
     .flag_only = true},
    {"request-id-prefix", CONFIG_STRING, AT(id_prefix), "",
     .help = "Beginning of the header x-request-id, and of ids for `baton explain`; empty: bench- "
             "and eight hex digits that are drawn for each run"},
    /* datasets */
    {"dataset-name", CONFIG_ENUM, AT(dataset), "random", .choices = serve_datasets,
     .help = "The requests' lengths and words"},
    {"dataset-path", CONFIG_STRING, AT(dataset_path), "", .value = "FILE",
     .help = "ShareGPT's JSON, a trace of Azure (CSV) or one of Mooncake (JSON lines)"},
    {"self-timed", CONFIG_BOOL, AT(self_timed), "true",
     .help = "Requests of a trace are sent at its times, instead of --request-rate"},
    {"timed-trace-sec-multiplier", CONFIG_DOUBLE, AT(multiplier), NULL, "0", "1000000",
     .unit = "seconds",
     .help =
         "Unit of a trace's times; smaller plays faster; left out: 1 for azure, 0.001 otherwise"},
    {"max-request-tokens", CONFIG_U64, AT(max_request_tokens), "0", OR_NO_TOKENS,
     .help = "Leave out requests of a file with more, prompt and answer together; 0: none"},
    {"oversample", CONFIG_BOOL, AT(oversample), "true",
     .help = "Repeat the requests of a sharegpt file with fewer than --num-prompts"},
    {"disable-shuffle", CONFIG_BOOL, AT(disable_shuffle), "false",
     .help = "Take a sharegpt file in its order"},
    {"input-len", CONFIG_U64, AT(input_len), NULL, TOKENS,
     .help = "Prompts of random and multi-turn"},
    {"output-len", CONFIG_U64, AT(output_len), NULL, TOKENS,
     .help = "Answers of random, sharegpt, prefix_repetition and multi-turn"},
    {"random-input-len", CONFIG_U64, AT(random.input), "1024", OR_NO_TOKENS, .help = "Prompts"},
    {"random-output-len", CONFIG_U64, AT(random.output), "128", TOKENS, .help = "Answers"},
    {"random-range-ratio", CONFIG_DOUBLE, AT(random.range_ratio), "0", "0", "1",
     .help = "Lengths are uniform in [n (1 - r), n (1 + r)]"},
    {"random-prefix-len", CONFIG_U64, AT(random.prefix), "0", OR_NO_TOKENS,
     .help = "All prompts begin with these, besides their own"},
    {"sharegpt-output-len", CONFIG_U64, AT(sharegpt_output), "0", OR_NO_TOKENS,
     .help = "Answers; 0: as long as those of the file"},
    {"prefix-repetition-prefix-len", CONFIG_U64, AT(prefixes.prefix), "256", OR_NO_TOKENS,
     .help = "Shared part of prompts"},
    {"prefix-repetition-suffix-len", CONFIG_U64, AT(prefixes.suffix), "256", OR_NO_TOKENS,
     .help = "Own part of prompts"},
    {"prefix-repetition-num-prefixes", CONFIG_U64, AT(prefixes.prefixes), "10", "1", "4194304",
     .help = "Different shared parts"},
    {"prefix-repetition-output-len", CONFIG_U64, AT(prefixes.output), "128", TOKENS,
     .help = "Answers"},
    {"multi-turn-turns", CONFIG_U64, AT(turns.turns), "4", "1", "256",
     .help = "Requests of a conversation, one behind another"},
    {"multi-turn-branches", CONFIG_U64, AT(turns.branches), "1", "1", "256",
     .help = "Ways in which it goes on at once from the first answer, as agents do"},
    {"multi-turn-think-time", CONFIG_DOUBLE, AT(turns.think_s), "1", "0", "86400",
     .unit = "seconds", .help = "Mean time between an answer and the next turn, exponential"},
    {"multi-turn-system-len", CONFIG_U64, AT(turns.system), "256", OR_NO_TOKENS,
     .help = "All conversations begin with these"},
    {"multi-turn-input-len", CONFIG_U64, AT(turns.input), "128", TOKENS,
     .help = "New words of each turn"},
    {"multi-turn-output-len", CONFIG_U64, AT(turns.output), "128", TOKENS, .help = "Answers"},
    /* results */
    {"goodput", CONFIG_LIST, AT(goodput), .max = "3", .value = "KEY:MS",
     .help = "Objectives that make a request good: ttft:400 tpot:40 e2el:9000"},
    {"percentile-metrics", CONFIG_STRING, AT(percentile_metrics), "ttft,tpot,itl,e2el",
     .value = "LIST",
     .help = "Figures to show: ttft, tpot, itl, e2el, normalized_latency, client_queue_time, "
             "e2el_including_client_queue, lateness"},
    {"metric-percentiles", CONFIG_STRING, AT(metric_percentiles), "99", .value = "LIST",
     .help = "Their percentiles, as 50,90,99.9"},
    {"save-result", CONFIG_BOOL, AT(save_result), "false", .help = "Write a JSON file"},
    {"save-detailed", CONFIG_BOOL, AT(save_detailed), "false",
     .help = "With lengths, times and texts of each request"},
    {"append-result", CONFIG_BOOL, AT(append_result), "false",
     .help = "Write the JSON behind what the file holds"},
    {"result-dir", CONFIG_STRING, AT(result_dir), "", .value = "DIR", .help = "Folder of the file"},
    {"result-filename", CONFIG_STRING, AT(result_filename), "", .value = "FILE",
     .help = "Name of the file; empty: LABEL-RATEqps-MODEL-DATE.json"},
    {"label", CONFIG_STRING, AT(label), "", .help = "Name of the run; empty: the backend's"},
    {"metadata", CONFIG_LIST, AT(metadata), .value = "KEY=VALUE", .help = "Members of the JSON"},
    {"disable-tqdm", CONFIG_BOOL, AT(disable_tqdm), "false", .help = "No progress lines"},
};

/* Options of vLLM's benchmark, or nearly so, that aren't here. */
static const struct config_hint hints[] = {
    {"endpoint-type", "--backend is its name"},
    {"logprobs", "--extra-body '{\"logprobs\": 1}' asks for them"},
    {"min-p", "--extra-body '{\"min_p\": 0.1}' asks for it"},
    {"frequency-penalty", "--extra-body '{\"frequency_penalty\": 1}' asks for it"},
    {"presence-penalty", "--extra-body '{\"presence_penalty\": 1}' asks for it"},
    {"repetition-penalty", "--extra-body '{\"repetition_penalty\": 1.1}' asks for it"},
    {"insecure", "certificates are always checked: --tls-ca names the CA"},
    {"tokenizer-mode", "--tokenizer reads a tokenizer.json"},
    {"trust-remote-code", "no code is loaded: --tokenizer reads a tokenizer.json"},
    {NULL, NULL},
};

/* --- texts of settings --- */

static bool parse_positive(const char *text, double *value)
{
    *value = (double)INFINITY;
    return !strcmp(text, "inf") || (str_to_double(text, 0, 1e9, value) && *value > 0);
}

enum status serve_settings_arrivals(const struct serve_settings *settings,
                                    struct load_arrivals *arrivals, struct error *err)
{
    *arrivals = (struct load_arrivals){
        .ramp = settings->ramp, .start = settings->ramp_start, .end = settings->ramp_end};
    if (!parse_positive(settings->request_rate, &arrivals->rate))
        return error_set(err, STATUS_INVALID,
                         "--request-rate %s: must be requests a second above 0, or inf",
                         settings->request_rate);
    if (!parse_positive(settings->burstiness, &arrivals->burstiness))
        return error_set(err, STATUS_INVALID, "--burstiness %s: must be above 0, or inf",
                         settings->burstiness);
    if (settings->cv >= 0 && arrivals->burstiness != 1)
        return error_set(err, STATUS_INVALID, "--cv and --burstiness say the same: give one");
    if (settings->cv >= 0)
        arrivals->burstiness = 1 / (settings->cv * settings->cv); /* 0: INFINITY */
    if (settings->ramp == LOAD_RAMP_NONE)
        return settings->ramp_start < 0 && settings->ramp_end < 0
                   ? STATUS_OK
                   : error_set(err, STATUS_INVALID,
                               "--ramp-up-start-rps and --ramp-up-end-rps need "
                               "--ramp-up-strategy");
    if (!isinf(arrivals->rate))
        return error_set(err, STATUS_INVALID,
                         "--request-rate and --ramp-up-strategy both set the rate: give one");
    if (!(settings->ramp_start > 0) || !(settings->ramp_end >= settings->ramp_start))
        return error_set(err, STATUS_INVALID,
                         "--ramp-up-strategy needs --ramp-up-start-rps above 0 and "
                         "--ramp-up-end-rps, which is at least as high");
    return STATUS_OK;
}

/* Takes the next item of a list with commas into `item`. False: there is none. */
static bool next_item(const char **list, char item[64])
{
    size_t length = strcspn(*list, ",");
    if (!**list)
        return false;
    snprintf(item, 64, "%.*s", length < 63 ? (int)length : 63, *list);
    *list += length + ((*list)[length] == ',');
    return true;
}

enum status serve_settings_shown(const struct serve_settings *settings, bool shown[LOAD_METRICS],
                                 struct error *err)
{
    char item[64];
    for (const char *list = settings->percentile_metrics; next_item(&list, item);) {
        int metric = 0;
        while (metric < LOAD_METRICS && strcmp(item, load_metric_names[metric]) != 0)
            metric++;
        if (metric == LOAD_METRICS)
            return error_set(err, STATUS_INVALID,
                             "--percentile-metrics: '%s' is none of ttft, tpot, itl, e2el, "
                             "normalized_latency, client_queue_time, "
                             "e2el_including_client_queue, lateness",
                             item);
        shown[metric] = true;
    }
    return STATUS_OK;
}

enum status serve_settings_percentiles(const struct serve_settings *settings,
                                       struct load_report *report, struct error *err)
{
    char item[64];
    for (const char *list = settings->metric_percentiles; next_item(&list, item);) {
        if (report->percentile_count == LOAD_MAX_PERCENTILES)
            return error_set(err, STATUS_INVALID, "--metric-percentiles: more than %d",
                             LOAD_MAX_PERCENTILES);
        if (!str_to_double(item, 0, 100, &report->percentiles[report->percentile_count++]))
            return error_set(err, STATUS_INVALID,
                             "--metric-percentiles: '%s' is not a number from 0 to 100", item);
    }
    return STATUS_OK;
}

enum status serve_settings_extra(const struct serve_settings *settings, struct str *extra,
                                 struct error *err)
{
    static const char *const ours[] = {"model",
                                       "prompt",
                                       "messages",
                                       "stream",
                                       "stream_options",
                                       "max_tokens",
                                       "max_completion_tokens",
                                       "ignore_eos",
                                       "temperature",
                                       "top_p",
                                       "top_k"};
    const struct json_limits limits = {.max_bytes = sizeof settings->extra_body, .max_depth = 64};
    struct json *json;
    if (!isnan(settings->temperature))
        str_addf(extra, ", \"temperature\": %.9g", settings->temperature);
    if (!isnan(settings->top_p))
        str_addf(extra, ", \"top_p\": %.9g", settings->top_p);
    if (settings->top_k)
        str_addf(extra, ", \"top_k\": %u", settings->top_k);
    if (!*settings->extra_body)
        return STATUS_OK;
    enum status status =
        json_parse(settings->extra_body, strlen(settings->extra_body), limits, &json, err);
    if (status != STATUS_OK)
        return error_prefix(err, status, "--extra-body");
    if (json_kind(json_root(json)) != JSON_OBJECT)
        status = error_set(err, STATUS_INVALID, "--extra-body must be an object, but is %s",
                           json_kind_name(json_root(json)));
    for (size_t i = 0; i < sizeof ours / sizeof *ours && status == STATUS_OK; i++)
        for (struct json_member m = {0}; json_next(json_root(json), &m);)
            if (!strcmp(m.key, ours[i]))
                status = error_set(err, STATUS_INVALID,
                                   "--extra-body: \"%s\" is in each body already, by its own "
                                   "setting or by the dataset",
                                   ours[i]);
    struct str object;
    str_init(&object, SERVE_MAX_EXTRA_BYTES);
    json_write(&object, json_root(json));
    if (status == STATUS_OK && json_count(json_root(json)))
        str_addf(extra, ", %.*s", (int)object.length - 2, object.data + 1);
    str_deinit(&object);
    json_destroy(json);
    return status;
}

bool serve_is_trace(enum serve_dataset dataset)
{
    return dataset == SERVE_AZURE || dataset == SERVE_TIMED_TRACE || dataset == SERVE_MOONCAKE;
}

static enum status check_dataset(const struct serve_settings *settings, struct error *err)
{
    bool needs = serve_is_trace(settings->dataset) || settings->dataset == SERVE_SHAREGPT;
    if (needs && !*settings->dataset_path)
        return error_set(err, STATUS_INVALID, "--dataset-name %s needs --dataset-path FILE",
                         serve_datasets[settings->dataset]);
    if (!needs && *settings->dataset_path)
        return error_set(err, STATUS_INVALID,
                         "--dataset-path is for the datasets sharegpt, azure, timed_trace and "
                         "mooncake, but --dataset-name is %s",
                         serve_datasets[settings->dataset]);
    if (settings->backend == LOAD_BATON && (*settings->extra_body || settings->headers.count))
        return error_set(err, STATUS_INVALID,
                         "--extra-body and --header are for HTTP, but --backend is baton");
    if (settings->backend != LOAD_BATON && *settings->server)
        return error_set(err, STATUS_INVALID, "--server needs --backend baton");
    return STATUS_OK;
}

static void check(const void *context, struct str *mistakes)
{
    const struct serve_settings *settings = context;
    struct load_arrivals arrivals;
    struct load_report report = {0};
    struct load_objectives objectives;
    struct error err;
    bool shown[LOAD_METRICS];
    struct str extra;
    config_mistake(mistakes, call_credentials_check(&settings->credentials, &err), &err);
    config_mistake(mistakes, serve_settings_arrivals(settings, &arrivals, &err), &err);
    config_mistake(mistakes, serve_settings_shown(settings, shown, &err), &err);
    config_mistake(mistakes, serve_settings_percentiles(settings, &report, &err), &err);
    config_mistake(mistakes, check_dataset(settings, &err), &err);
    str_init(&extra, SERVE_MAX_EXTRA_BYTES);
    config_mistake(mistakes, serve_settings_extra(settings, &extra, &err), &err);
    str_deinit(&extra);
    for (size_t i = 0; i < settings->goodput.count; i++)
        config_mistake(mistakes,
                       load_objective_parse(settings->goodput.items[i], &objectives, &err), &err);
    const struct config_list *lists[] = {&settings->headers, &settings->metadata};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->count; i++)
            if (strcspn(lists[k]->items[i], "=") - 1 >= strlen(lists[k]->items[i]) - 1 ||
                strlen(lists[k]->items[i]) > 1024) {
                error_set(&err, STATUS_INVALID, "--%s '%.60s': must be KEY=VALUE",
                          k ? "metadata" : "header", lists[k]->items[i]);
                config_mistake(mistakes, STATUS_INVALID, &err);
            }
}

const struct config_program serve_program = {
    .name = "baton bench serve",
    .summary =
        "Sends requests to a running server and reports latencies, throughput and goodput: any "
        "server\nof OpenAI's interface over HTTP, or a Baton router over gRPC. Options and fields "
        "are those of\n`vllm bench serve`. OPENAI_API_KEY, or --api-key-file, holds the API "
        "key.\n\n"
        "  Open loop:    baton bench serve --request-rate 4 --num-prompts 400 "
        "--goodput ttft:400 tpot:40\n"
        "  Closed loop:  baton bench serve --base-url http://HOST:8000 --max-concurrency 16\n"
        "  A trace:      baton bench serve --dataset-name mooncake --dataset-path "
        "conversation.jsonl\n"
        "  Agents:       baton bench serve --dataset-name multi-turn --multi-turn-branches 4 "
        "--request-rate 1",
    .settings = table,
    .setting_count = sizeof table / sizeof *table,
    .check = check,
    .hints = hints,
};
