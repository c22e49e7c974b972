#include "common/cli/commands.h"

#include "common/base/clock.h"
#include "common/base/json/json.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/standard_output.h"
#include "common/cli/bench.h"
#include "common/cli/load_prompt.h"
#include "common/cli/serve_settings.h"
#include "common/language/text/tokenizer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_JSON_BYTES   (1u << 30)
#define MAX_TABLE_BYTES  (1u << 20)
#define MODELS_BYTES     (1u << 20)
#define MODELS_US        10000000u
#define LATE_MS          10.0 /* at the 99th percentile: the client is the bottleneck */
#define EXIT_INTERRUPTED 130

/* Writes the flag again in front of each further value, as vLLM's lists have them: "--goodput
 * ttft:400 tpot:40". The caller frees it. */
static char **spread_lists(int *argc, char **argv)
{
    static const char *const lists[] = {"--goodput", "--metadata", "--header"};
    char **spread = calloc(2 * (size_t)*argc + 1, sizeof *spread);
    const char *list = NULL;
    int count = 0;
    for (int i = 0; spread && i < *argc; i++) {
        bool is_flag = argv[i][0] == '-', is_first = list && !strcmp(argv[i - 1], list);
        if (list && !is_flag && !is_first)
            spread[count++] = (char *)list;
        spread[count++] = argv[i];
        if (!is_flag)
            continue;
        list = NULL;
        for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
            if (!strcmp(argv[i], lists[k]))
                list = lists[k];
    }
    *argc = count;
    return spread;
}

/* --- the command --- */

struct bench {
    struct serve_settings settings;
    struct config_result result;
    struct load_arrivals arrivals;
    struct load_report report;
    struct load_labels labels;
    struct load_target target;
    struct call_credentials credentials;
    struct cluster_file cluster; /* the one found here; otherwise empty */
    struct stop_signals signals;
    struct tokenizer *tokenizer;
    struct load_words words;
    struct load_plan plan;
    struct load_run run;
    struct figures_file file;
    FILE *appended;
    struct str extra;
    char url[HTTP_URL_BYTES], model[512], tokenizer_path[SERVE_PATH_BYTES + 32],
        path[3 * SERVE_PATH_BYTES];
    char date[32], header_names[LOAD_MAX_HEADERS][1025];
};

static bool given(const struct bench *bench, const char *name)
{
    return config_given(&serve_program, &bench->result, name);
}

/* Finds the server: the settings', the cluster that runs here, or vLLM's default. */
static enum status find_server(struct bench *bench, struct error *err)
{
    const struct serve_settings *settings = &bench->settings;
    struct load_target *target = &bench->target;
    bool grpc = settings->backend == LOAD_BATON, named = grpc ? *settings->server : false;
    named = named || *settings->base_url || given(bench, "host") || given(bench, "port");
    if (!named) {
        enum status status =
            cluster_file_find(grpc ? "--server" : "--base-url", &bench->cluster, err);
        if (status != STATUS_OK && (grpc || status != STATUS_NOT_FOUND))
            return status;
        named = status != STATUS_OK || (!grpc && !*bench->cluster.openai);
    }
    if (grpc) {
        if (named && !*settings->server)
            return error_set(err, STATUS_INVALID, "--backend baton needs --server HOST:PORT");
        target->grpc = call_credentials_target(&bench->credentials,
                                               named ? settings->server : bench->cluster.grpc);
        return STATUS_OK;
    }
    const char *base = *settings->base_url ? settings->base_url : NULL, *path = "";
    if (!named) {
        str_copy(bench->url, sizeof bench->url, bench->cluster.openai);
    } else if (base) {
        const char *host = strstr(base, "://");
        host = host ? host + 3 : base;
        path = host + strcspn(host, "/");
        snprintf(bench->url, sizeof bench->url, "%.*s", (int)(path - base), base);
    } else {
        bool is_6 = strchr(settings->host, ':') && *settings->host != '[';
        snprintf(bench->url, sizeof bench->url, "%s%s%s:%u", is_6 ? "[" : "", settings->host,
                 is_6 ? "]" : "", settings->port);
    }
    size_t length = strlen(path);
    const char *endpoint = *settings->endpoint                     ? settings->endpoint
                           : settings->backend == LOAD_OPENAI_CHAT ? "/v1/chat/completions"
                                                                   : "/v1/completions";
    snprintf(target->base, sizeof target->base, "%.*s",
             (int)(length && path[length - 1] == '/' ? length - 1 : length), path);
    str_copy(target->endpoint, sizeof target->endpoint, endpoint);
    target->remote = (struct http_remote){.url = bench->url,
                                          .certificates = bench->credentials.certificates,
                                          .peer_name = bench->credentials.peer_name,
                                          .api_key = bench->credentials.api_key};
    return http_remote_check(&target->remote, err);
}

/* Asks the server for its first model. */
static enum status ask_model(struct bench *bench, struct error *err)
{
    struct str body;
    struct json *json;
    const char *id;
    char path[sizeof bench->target.base + 16];
    snprintf(path, sizeof path, "%s/v1/models", bench->target.base);
    str_init(&body, MODELS_BYTES);
    enum status status = http_get(&bench->target.remote, path, MODELS_US, &body, err);
    if (status == STATUS_OK)
        status = json_parse(body.data, body.length,
                            (struct json_limits){.max_bytes = MODELS_BYTES, .max_depth = 16}, &json,
                            err);
    str_deinit(&body);
    if (status != STATUS_OK)
        return error_prefix(err, status, "cannot ask for the server's models (--model names one)");
    const struct json_value *list = json_find(json_root(json), "data");
    if (!json_count(list))
        status = error_set(err, STATUS_NOT_FOUND, "the server names no models");
    if (status == STATUS_OK)
        status = json_get_string(json_at(list, 0), "id", &id, NULL, err);
    if (status == STATUS_OK)
        str_copy(bench->model, sizeof bench->model, id);
    json_destroy(json);
    return status;
}

/* Finds the tokenizer's file, if there is one: of --tokenizer, of a folder --model, or of the
 * cluster's model. */
static void find_tokenizer(struct bench *bench)
{
    const struct serve_settings *settings = &bench->settings;
    const char *paths[] = {settings->tokenizer, settings->model,
                           cluster_file_model_dir(&bench->cluster, bench->model)};
    struct stat found;
    *bench->tokenizer_path = 0;
    for (size_t i = 0; i < 3 && !settings->skip_tokenizer; i++) {
        char *path = bench->tokenizer_path;
        bool folder = *paths[i] && stat(paths[i], &found) == 0 && S_ISDIR(found.st_mode);
        snprintf(path, sizeof bench->tokenizer_path, "%s%s", paths[i],
                 folder ? "/tokenizer.json" : "");
        if ((i == 0 && *paths[0]) || (folder && access(path, R_OK) == 0))
            return;
        *path = 0;
    }
}

static enum status find_model(struct bench *bench, struct error *err)
{
    const struct serve_settings *settings = &bench->settings;
    const char *name = *settings->served ? settings->served : settings->model;
    struct stat found;
    size_t length = strlen(name);
    while (length > 1 && name[length - 1] == '/')
        length--;
    snprintf(bench->model, sizeof bench->model, "%.*s", (int)length, name);
    if (!*settings->served && stat(bench->model, &found) == 0 && S_ISDIR(found.st_mode)) {
        const char *last = strrchr(bench->model, '/'); /* its name, as `baton up` gives it */
        if (last)
            memmove(bench->model, last + 1, strlen(last));
    }
    if (!*bench->model && settings->backend != LOAD_BATON)
        TRY(ask_model(bench, err));
    bench->target.model = bench->model;
    find_tokenizer(bench);
    return *bench->tokenizer_path ? tokenizer_open(bench->tokenizer_path, &bench->tokenizer, err)
                                  : STATUS_OK;
}

static void fill_target(struct bench *bench)
{
    struct serve_settings *settings = &bench->settings;
    struct load_target *target = &bench->target;
    if (!*settings->id_prefix) /* other runs have ids of their own */
        snprintf(settings->id_prefix, sizeof settings->id_prefix, "bench-%08x-",
                 (uint32_t)rng_entropy());
    bool forced = settings->dataset != SERVE_SHAREGPT && settings->dataset != SERVE_PREFIXES;
    target->backend = settings->backend;
    target->id_prefix = settings->id_prefix;
    target->ignore_eos = given(bench, "ignore-eos") ? settings->ignore_eos : forced;
    target->temperature = settings->temperature;
    target->top_p = settings->top_p;
    target->top_k = settings->top_k;
    target->timeout_us = settings->timeout_us;
    for (size_t i = 0; i < settings->headers.count; i++) {
        char *name = bench->header_names[i];
        str_copy(name, sizeof bench->header_names[i], settings->headers.items[i]);
        char *value = strchr(name, '=');
        *value++ = 0;
        target->headers[target->header_count++] = (struct http_header){name, value};
    }
    target->slo_class = settings->slo_class;
    if (*settings->slo_class)
        target->headers[target->header_count++] =
            (struct http_header){"x-baton-slo-class", settings->slo_class};
    target->extra = bench->extra.data;
}

/* --- the plan --- */

static enum status add_requests(struct bench *bench, struct error *err)
{
    struct serve_settings *settings = &bench->settings;
    struct load_plan *plan = &bench->plan;
    const uint32_t count = settings->num_prompts, output = settings->output_len;
    double second = settings->multiplier >= 0          ? settings->multiplier
                    : settings->dataset == SERVE_AZURE ? 1
                                                       : 1e-3;
    const struct load_file file = {settings->dataset_path, count, settings->max_request_tokens,
                                   second};
    const struct load_sharegpt sharegpt = {.file = file,
                                           .output = output ? output : settings->sharegpt_output,
                                           .seed = settings->seed,
                                           .in_order = settings->disable_shuffle,
                                           .count_tokens = load_words_count,
                                           .context = &bench->words};
    switch (settings->dataset) {
    case SERVE_RANDOM:
        settings->random.input = settings->input_len ? settings->input_len : settings->random.input;
        settings->random.output = output ? output : settings->random.output;
        return load_plan_add_random(plan, &settings->random, count, settings->seed, err);
    case SERVE_SHAREGPT:
        TRY(load_plan_read_sharegpt(plan, &sharegpt, err));
        return settings->oversample ? load_plan_repeat(plan, count, err) : STATUS_OK;
    case SERVE_SHAREGPT_LIKE: return load_plan_add_chats(plan, count, settings->seed, err);
    case SERVE_PREFIXES:
        settings->prefixes.output = output ? output : settings->prefixes.output;
        return load_plan_add_prefixes(plan, &settings->prefixes, count, settings->seed, err);
    case SERVE_TURNS:
        settings->turns.input = settings->input_len ? settings->input_len : settings->turns.input;
        settings->turns.output = output ? output : settings->turns.output;
        return load_plan_add_turns(plan, &settings->turns, count, settings->seed, err);
    case SERVE_AZURE: return load_plan_read_azure(plan, &file, err);
    case SERVE_TIMED_TRACE:
    case SERVE_MOONCAKE: break;
    }
    return load_plan_read_mooncake(plan, &file, err);
}

/* --- the results --- */

/* Opens the file before the run, so that an hour's figures can't be lost. */
static enum status open_file(struct bench *bench, struct error *err)
{
    const struct serve_settings *settings = &bench->settings;
    time_t now = (time_t)(clock_unix_us() / 1000000u);
    struct tm local;
    char rate[96], limit[32] = "";
    const char *model = strrchr(bench->model, '/');
    strftime(bench->date, sizeof bench->date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    if (!settings->save_result && !settings->append_result)
        return STATUS_OK;
    if (settings->ramp == LOAD_RAMP_NONE)
        snprintf(rate, sizeof rate, "%sqps", settings->request_rate);
    else
        snprintf(rate, sizeof rate, "ramp-up-%s-%gqps-%gqps", serve_ramps[settings->ramp],
                 settings->ramp_start, settings->ramp_end);
    if (settings->max_concurrency)
        snprintf(limit, sizeof limit, "-concurrency%u", settings->max_concurrency);
    int used = snprintf(bench->path, sizeof bench->path, "%s%s", settings->result_dir,
                        *settings->result_dir ? "/" : "");
    if (*settings->result_filename)
        snprintf(bench->path + used, sizeof bench->path - (size_t)used, "%s",
                 settings->result_filename);
    else
        snprintf(bench->path + used, sizeof bench->path - (size_t)used, "%s-%s%s-%s-%s.json",
                 bench->labels.label, rate, limit, model ? model + 1 : bench->model, bench->date);
    if (*settings->result_dir && mkdir(settings->result_dir, 0777) < 0 && errno != EEXIST)
        return error_set(err, STATUS_IO, "--result-dir %s: %s", settings->result_dir,
                         strerror(errno));
    if (!settings->append_result)
        return figures_file_open(&bench->file, bench->path, err);
    bench->appended = fopen(bench->path, "ae");
    if (!bench->appended)
        return error_set(err, STATUS_IO, "cannot open %s: %s", bench->path, strerror(errno));
    return STATUS_OK;
}

static enum status write_file(struct bench *bench, struct error *err)
{
    struct str json;
    enum status status = STATUS_OK;
    if (!*bench->path)
        return STATUS_OK;
    str_init(&json, MAX_JSON_BYTES);
    load_report_json(&bench->report, &bench->labels, &bench->plan, bench->run.answers,
                     bench->run.start_ns, &json);
    str_add(&json, "\n");
    if (json.truncated)
        status = error_set(err, STATUS_LIMIT, "the figures are over %u bytes", MAX_JSON_BYTES);
    else if (!bench->appended)
        status = figures_file_put(&bench->file, &json, err);
    else if (fwrite(json.data, 1, json.length, bench->appended) != json.length ||
             fflush(bench->appended))
        status = error_set(err, STATUS_IO, "cannot write %s: %s", bench->path, strerror(errno));
    str_deinit(&json);
    return status;
}

static enum status report_all(struct bench *bench, struct error *err)
{
    struct str table_text;
    bench->labels.client_cpu = bench->run.client_cpu;
    load_report_make(&bench->report, &bench->plan, bench->run.answers, bench->run.start_ns,
                     bench->run.end_ns);
    str_init(&table_text, MAX_TABLE_BYTES);
    load_report_table(&bench->report, &bench->labels, &table_text);
    fputs(table_text.data, stdout);
    str_deinit(&table_text);
    if (!bench->labels.at_once && bench->report.lateness_99_ms > LATE_MS)
        fprintf(stderr,
                "%s: warning: this client could not keep up: it sent requests up to %.0f ms late "
                "(99th percentile: %.1f ms) and used %.2f CPUs; the figures are of another load "
                "than was asked for\n",
                serve_program.name, bench->report.summaries[LOAD_LATENESS].max,
                bench->report.lateness_99_ms, bench->run.client_cpu);
    TRY(standard_output_flush(err));
    TRY(write_file(bench, err));
    if (*bench->path)
        fprintf(stderr, "figures: %s\n", bench->path);
    return bench->report.completed || bench->run.stopped
               ? STATUS_OK
               : error_set(err, STATUS_UNAVAILABLE, "all %u requests failed: %s: %s",
                           bench->report.failed, bench->report.reasons[0].name,
                           bench->report.reasons[0].message);
}

/* --- from start to end --- */

static void fill_labels(struct bench *bench)
{
    const struct serve_settings *settings = &bench->settings;
    const char *backend = serve_backends[settings->backend];
    bool *shown = bench->labels.shown;
    struct load_labels labels = {
        .backend = backend,
        .label = *settings->label ? settings->label : backend,
        .model = bench->model,
        .tokenizer = *bench->tokenizer_path ? bench->tokenizer_path : NULL,
        .dataset = serve_datasets[settings->dataset],
        .date = bench->date,
        .num_prompts = settings->num_prompts,
        .max_concurrency = settings->max_concurrency,
        .arrivals = bench->arrivals,
        .timed = serve_is_trace(settings->dataset) && settings->self_timed,
        .at_once = isinf(bench->arrivals.rate) && settings->ramp == LOAD_RAMP_NONE &&
                   !(serve_is_trace(settings->dataset) && settings->self_timed),
        .detailed = settings->save_detailed,
        .metadata = settings->metadata.items,
        .metadata_count = settings->metadata.count};
    memcpy(labels.shown, shown, sizeof labels.shown);
    bench->labels = labels;
}

static enum status prepare(struct bench *bench, struct error *err)
{
    const struct serve_settings *settings = &bench->settings;
    TRY(serve_settings_arrivals(settings, &bench->arrivals, err));
    TRY(serve_settings_shown(settings, bench->labels.shown, err));
    TRY(serve_settings_percentiles(settings, &bench->report, err));
    TRY(serve_settings_extra(settings, &bench->extra, err));
    bench->report.objectives =
        (struct load_objectives){false, (double)INFINITY, (double)INFINITY, (double)INFINITY};
    for (size_t i = 0; i < settings->goodput.count; i++)
        TRY(load_objective_parse(settings->goodput.items[i], &bench->report.objectives, err));
    TRY(call_credentials_open(&settings->credentials, &bench->credentials, err));
    const char *key = getenv("OPENAI_API_KEY");
    if (!*bench->credentials.api_key && key)
        str_copy(bench->credentials.api_key, sizeof bench->credentials.api_key, key);
    TRY(stop_signals_open(&bench->signals, err));
    TRY(find_server(bench, err));
    TRY(find_model(bench, err));
    fill_target(bench);
    fill_labels(bench);
    TRY(load_words_open(&bench->words, bench->tokenizer, settings->seed, err));
    TRY(open_file(bench, err));
    TRY(add_requests(bench, err));
    if (!bench->labels.timed)
        load_plan_set_arrivals(&bench->plan, &bench->arrivals, settings->seed + 1);
    return STATUS_OK;
}

static enum status run_all(struct bench *bench, struct error *err)
{
    const struct serve_settings *settings = &bench->settings;
    bool told;
    bench->run = (struct load_run){.target = &bench->target,
                                   .words = &bench->words,
                                   .signals = &bench->signals,
                                   .plan = &bench->plan,
                                   .max_concurrency = settings->max_concurrency,
                                   .quiet = settings->disable_tqdm,
                                   .keeps_text = settings->save_detailed};
    TRY(load_run_open(&bench->run, err));
    TRY(load_run_measure_words(&bench->run, settings->ready_s, &told, err));
    if (!told)
        fprintf(stderr,
                "%s: warning: the server doesn't tell numbers of tokens: those of prompts are "
                "estimates, those of answers are chunks\n",
                serve_program.name);
    if (bench->plan.left_out)
        fprintf(stderr, "%u requests of %s are left out because of their length\n",
                bench->plan.left_out, settings->dataset_path);
    fprintf(stderr, "%u requests to %s, %s, with ids %s0 and up%s\n", bench->plan.request_count,
            settings->backend == LOAD_BATON ? bench->target.grpc.server : bench->url,
            *bench->model ? bench->model : "its model", settings->id_prefix,
            bench->tokenizer ? "" : "; without a tokenizer: the prompts' lengths are measured");
    load_run_warm_up(&bench->run, settings->num_warmups);
    if (bench->run.stopped)
        return error_set(err, STATUS_CANCELLED, "stopped");
    load_run_all(&bench->run);
    return report_all(bench, err);
}

static void close_all(struct bench *bench)
{
    load_run_close(&bench->run);
    load_plan_deinit(&bench->plan);
    load_words_close(&bench->words);
    tokenizer_close(bench->tokenizer);
    if (bench->file.path)
        figures_file_close(&bench->file);
    if (bench->appended)
        fclose(bench->appended);
    call_credentials_close(&bench->credentials);
    str_deinit(&bench->extra);
}

int cmd_bench_serve(int argc, char **argv)
{
    struct bench *bench = calloc(1, sizeof *bench);
    char **spread = spread_lists(&argc, argv);
    struct error err;
    if (!bench || !spread) {
        fprintf(stderr, "%s: out of memory\n", serve_program.name);
        return 1;
    }
    struct serve_settings *settings = &bench->settings;
    settings->cv = settings->ramp_start = settings->ramp_end = settings->multiplier = -1;
    settings->temperature = settings->top_p = (double)NAN;
    config_load_or_exit(&serve_program, argc, spread, settings, &bench->result);
    log_init("bench", LOG_WARN);
    struct rlimit limit; /* each request in flight has a connection of its own */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    load_plan_init(&bench->plan);
    str_init(&bench->extra, SERVE_MAX_EXTRA_BYTES);
    bench->signals.fd = -1;
    enum status status = prepare(bench, &err);
    if (status == STATUS_OK)
        status = run_all(bench, &err);
    bool stopped = bench->run.stopped;
    close_all(bench);
    if (bench->signals.fd >= 0)
        stop_signals_close(&bench->signals);
    free(spread);
    free(bench);
    if (status != STATUS_OK)
        fprintf(stderr, "%s: %s\n", serve_program.name, err.text);
    return stopped ? EXIT_INTERRUPTED : status == STATUS_OK ? 0 : status == STATUS_INVALID ? 2 : 1;
}
