#include "common/cli/up_plan.h"

#include "common/base/assert.h"
#include "common/base/domain/placement_policy.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/engine/engine.h"
#include "common/engine/engine_choices.h"
#include "common/engine/model/safetensors.h"
#include "common/engine/model/weight_cache.h"
#include "common/engine/model/weight_types.h"
#include "common/language/model_config/model_config.h"
#include "common/net/crypto/cluster_ca.h"
#include "common/net/http/http_server.h"
#include "common/worker/worker_config.h"
#include "kernels/kernels.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const up_compute_names[] = {"fast", "f32", NULL};
static const char *const internal_tls_names[] = {"auto", "off", NULL}; /* enum up_internal_tls */
static const char *const transport_names[] = {"auto", "shm", "tcp", "cuda", "rdma", NULL};
static const char *const off_on[] = {"off", "on", NULL};
static const char *const log_level_names[] = {"debug", "info", "warn", "error", NULL};

/* Copies the device of worker `index`: workers take those of the list in turns. Returns how many
 * devices are in the list. */
static uint64_t take_device(const char *devices, uint64_t index, char *out, size_t size)
{
    uint64_t count = 1;
    for (const char *at = devices; *at; at++)
        count += *at == ',';
    for (index %= count; index; index--)
        devices = strchr(devices, ',') + 1;
    size_t length = strcspn(devices, ",");
    str_copy(out, length < size ? length + 1 : size, devices);
    return count;
}

static enum status check_devices(const char *devices, struct error *err)
{
    char device[32];
    for (uint64_t i = 0, count = 1; i < count; i++) {
        count = take_device(devices, i, device, sizeof device);
        TRY(engine_check_device(device, err));
    }
    return STATUS_OK;
}

#define PASSED_ROW(row, field, word, text, ...)                                                    \
    {                                                                                              \
        .name = row, .type = CONFIG_STRING, AT(passed.field), .default_text = "", .value = word,   \
        .help = text, __VA_ARGS__                                                                  \
    }
#define AT(field) CONFIG_AT(struct up_settings, field)
static const struct config_setting settings_table[] = {
    {"prefill", CONFIG_U64, AT(prefill), "1", "0", "64", .help = "Prefill workers of each model"},
    {"decode", CONFIG_U64, AT(decode), "1", "1", "64", .help = "Decode workers of each model"},
    {"model", CONFIG_STRING, AT(models), .required = true, .value = "[NAME=]DIR,...",
     .help = "Folder of each model, in Hugging Face's layout", .repeats = ',',
     .check = model_list_check},
    {"model-name", CONFIG_STRING, AT(model_name), "", .value = "NAME",
     .help = "Name that clients use, of the only model; empty: the folder's name"},
    {"engine", CONFIG_ENUM, AT(engine), "model", .choices = engine_kind_names,
     .help = "The model, or a mock without weights: its steps take the time of --profile, and its "
             "answers mean nothing"},
    PASSED_ROW("profile", profile, "NAME|FILE",
               "Costs, KV capacity and link of the mock engine: a name, or a JSON file",
               .taker = worker_config_row),
    {"compute", CONFIG_ENUM, AT(compute), "fast", .choices = up_compute_names,
     .help = "Arithmetic: bf16 with fp32 sums, or fp32 throughout (the reference)"},
    {"weights", CONFIG_ENUM, AT(weights), "auto", .choices = weight_choice_names,
     .help = "Weights of matrices: as the model folder holds them, or quantized at load"},
    {"weight-cache", CONFIG_STRING, AT(weight_cache), "off", .value = "off|beside|DIR",
     .help = "Keep packed weights beside the model or in a folder: the next start maps them, and "
             "workers share them"},
    {"kv", CONFIG_ENUM, AT(kv), "auto", .choices = kv_choice_names,
     .help = "Keys and values: floats, or int8 with a scale for each token of a head"},
    PASSED_ROW("device", devices, "DEVICE,...",
               "Devices of the workers (" DEVICE_FORMS "), which take them in turns, prefill "
               "workers first; empty: auto for each",
               .check = check_devices),
    {"isa", CONFIG_ENUM, AT(isa), "auto", .choices = isa_names,
     .help = "Instruction set of the fast path"},
    {"transport", CONFIG_ENUM, AT(transport), "auto", .choices = transport_names,
     .help = "Lane of the KV bytes"},
    {"port", CONFIG_U64, AT(port), "0", "0", "65535",
     .help = "Port of the router's gRPC server on 127.0.0.1; 0: any free one"},
    {"http-listen", CONFIG_STRING, AT(http_listen), "127.0.0.1:0", .value = "HOST:PORT",
     .help = "Address of the OpenAI-compatible HTTP server; empty: none",
     .check = http_check_listen},
    TLS_SETTINGS_ROWS(struct up_settings, tls, "tls", "clients, of gRPC and HTTP"),
    TLS_SETTINGS_ROWS(struct up_settings, metrics_tls, "metrics-tls",
                      "clients that ask for /metrics and /status, of all processes"),
    {"internal-tls", CONFIG_ENUM, AT(internal_tls_mode), "auto", .choices = internal_tls_names,
     .help =
         "With api-keys and without internal-tls-cert: make a CA and a certificate for the links "
         "between this run's processes, or leave the links in the clear"},
    LINK_TLS_ROWS(struct up_settings, internal_tls),
    {"api-keys", CONFIG_STRING, AT(api_keys), "", .value = "FILE",
     .help = "Keys of clients, hashed, with their limits (baton key new makes lines of it)"},
    PASSED_ROW("kv-tokens", kv_tokens, "NUMBER", "Size of each worker's KV pool",
               .taker = worker_config_row),
    PASSED_ROW("context", context, "NUMBER",
               "Prompt and answer at most; empty: the model's own limit",
               .taker = worker_config_row),
    PASSED_ROW("max-sequences", max_sequences, "NUMBER",
               "Requests that a worker holds at the same time", .taker = worker_config_row),
    PASSED_ROW("chunk-tokens", chunk_tokens, "NUMBER", "Prompt rows of a worker's step at most",
               .taker = worker_config_row),
    PASSED_ROW("chunk-time", chunk_time, "TIME",
               "How long prompts may hold up the answers beside them (decode workers only)",
               .taker = worker_config_row),
    PASSED_ROW("access-log", access_log, "WHERE",
               "A line of the router at each request's end: off, stderr, or a file"),
    PASSED_ROW("http-cors-origins", http_cors_origins, "ORIGIN,...",
               "Origins of browsers' pages that may read what HTTP answers; *: all",
               .check = http_check_origins),
    PASSED_ROW("allowed-hosts", allowed_hosts, "NAME,...",
               "Names by which browsers may call the HTTP server and the status page, besides "
               "localhost; *: all",
               .check = http_check_hosts),
    PASSED_ROW("slo-class", slo_class, "ROW",
               "SLO class of the router: name=chat,ttft=400ms,tpot=40ms,p=90; empty: no objectives",
               .repeats = SLO_ROWS_JOINT),
    PASSED_ROW("slo-default", slo_default, "NAME",
               "SLO class of requests that name none; empty: the only class, of several none"),
    {"decision-sample", CONFIG_U64, AT(decision_percent), "10", "0", "100",
     .help = "Percent of the requests with placement decisions that the router keeps for baton "
             "explain"},
    {"decisions", CONFIG_U64, AT(decisions), "1000", "0", "100000",
     .help = "Newest sampled decisions that the router keeps, about 2.5 KB each"},
    {"placement-policy", CONFIG_ENUM, AT(placement_policy), "auto",
     .choices = placement_policy_names, .help = PLACEMENT_POLICY_HELP},
    {"reasoning", CONFIG_ENUM, AT(reasoning), "on", .choices = off_on,
     .help = "Whether a chat's reasoning is apart, in reasoning_content; off: content has it"},
    {"threads", CONFIG_U64, AT(threads), "0", "0", "256",
     .help = "Compute threads of each worker; 0: cores / workers"},
    {"pin", CONFIG_BOOL, AT(pin), "true",
     .help = "Give each worker cores of its own where they suffice; not on a machine that is busy "
             "with other work"},
    {"env", CONFIG_LIST, AT(environment), .value = "PROCESS:KEY=VALUE",
     .help = "Environment of one process (decode-0:BATON_KV_TOKENS=4096)"},
    {"ready-file", CONFIG_STRING, AT(ready_file), "", .value = "FILE",
     .help = "Write addresses and process ids there, as JSON, once the cluster serves"},
    {"log-dir", CONFIG_STRING, AT(log_dir), "", .value = "DIR",
     .help = "Folder of the processes' logs; empty: one in this user's run folder, which an end in "
             "order removes"},
    {"verbose", CONFIG_BOOL, AT(verbose), "false",
     .help = "All logs to the terminal instead of files"},
    {"log-level", CONFIG_ENUM, AT(log_level), "info", .choices = log_level_names,
     .help = "Least level that is logged"},
    {"restart", CONFIG_BOOL, AT(restart), "true",
     .help = "Start a process again that ended without an order to"},
    {"restart-wait", CONFIG_DURATION, AT(restart_wait_us), "10s", "100ms", "1h",
     .help = "Longest wait before a restart; from 100 ms it doubles from end to end, until the "
             "process has served for 10 s"},
    {"liveness-timeout", CONFIG_DURATION, AT(liveness_timeout_us), "20s", "0", "1h",
     .help = "A process that runs but does not answer for so long is ended, and started again. 0: "
             "never, as for one in a debugger"},
    {"start-timeout", CONFIG_DURATION, AT(start_timeout_us), "120s", "1s", "1h",
     .help = "The cluster must serve by then"},
    {"drain-timeout", CONFIG_DURATION, AT(drain_timeout_us), "30s", "0", "1h",
     .help = "Running requests may go on for so long after Ctrl-C"},
};
static void check(const void *settings, struct str *mistakes)
{
    const struct up_settings *up = settings;
    struct error err;
    bool f32 = up->compute == COMPUTE_F32;
    if ((up->engine == ENGINE_MOCK) != (*up->passed.profile != 0))
        config_mistake(mistakes,
                       error_set(&err, STATUS_INVALID,
                                 up->engine == ENGINE_MOCK
                                     ? "--engine mock needs --profile NAME|FILE: with instant no "
                                       "step takes time, and --profile '?' lists the others"
                                     : "--profile is for --engine mock alone"),
                       &err);
    config_mistake(mistakes,
                   engine_check_weights(f32, (enum weight_choice)up->weights, MODEL_FLOAT, &err),
                   &err);
    config_mistake(mistakes, engine_check_kv(f32, (enum kv_choice)up->kv, &err), &err);
    config_mistake(mistakes, kernels_check_isa(f32, (enum isa)up->isa, &err), &err);
    config_mistake(mistakes, tls_settings_check(&up->tls, "tls", &err), &err);
    config_mistake(mistakes, tls_settings_check(&up->metrics_tls, "metrics-tls", &err), &err);
    config_mistake(mistakes, link_tls_check(&up->internal_tls, &err), &err);
}

static void check_texts(const void *settings, struct str *mistakes)
{
    const struct up_passed *passed = &((const struct up_settings *)settings)->passed;
    struct slo_classes classes;
    (void)slo_classes_parse(passed->slo_class, passed->slo_default, &classes, mistakes);
}

/* `baton up` sets these itself: the environment would have no effect. */
#define FREE_PORTS "all except clients come to free ports of 127.0.0.1, which --ready-file lists"
#define OWN_NAMES  "its workers are prefill-0, decode-0 and so on, and know the router's address"
#define OWN_CORES  "--threads and --pin say which cores workers get"
static const struct config_hint hints[] = {
    {"listen", "--port is the router's, on 127.0.0.1"},
    {"metrics-listen", FREE_PORTS},
    {"registry-listen",
     "with certificates or keys it is a free port of 127.0.0.1, otherwise the router "
     "takes BATON_REGISTRY_LISTEN from the environment"},
    {"name", OWN_NAMES},
    {"router", OWN_NAMES},
    {"cpus", OWN_CORES "; with --no-pin, --env decode-0:BATON_CPUS=0,1 says it of one"},
    {"spin", OWN_CORES},
    {"ready-fd", "--ready-file names a file that is written when the cluster serves"},
    {NULL, NULL},
};

const struct config_program up_program = {
    .name = "baton up",
    .summary =
        "Starts one router, N prefill and M decode workers of each model on this machine, all on "
        "loopback, and stays until\n"
        "Ctrl-C, which drains: running requests end first. A second Ctrl-C ends them at once. A "
        "process that dies is started again.",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
    .check = check,
    .check_texts = check_texts,
    .starts_others = true,
    .hints = hints,
};

enum status up_read_models(struct up_settings *settings, struct error *err)
{
    TRY(model_list_parse(settings->models, &settings->list, err));
    return model_list_name(&settings->list, settings->model_name, err);
}

bool up_makes_certificates(const struct up_settings *settings)
{
    return *settings->api_keys && !*settings->internal_tls.cert &&
           settings->internal_tls_mode == UP_INTERNAL_AUTO;
}

enum status up_use_certificates(struct up_settings *settings, const char *folder, struct error *err)
{
    struct link_tls_settings *tls = &settings->internal_tls;
    const struct {
        char *path;
        size_t size;
        const char *name;
    } files[] = {{tls->cert, sizeof tls->cert, CLUSTER_CA_CERT},
                 {tls->key, sizeof tls->key, CLUSTER_CA_KEY},
                 {tls->ca, sizeof tls->ca, CLUSTER_CA_CA}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (snprintf(files[i].path, files[i].size, "%s/%s", folder, files[i].name) >=
            (int)files[i].size)
            return error_set(err, STATUS_LIMIT, "the path %.80s... is too long", folder);
    str_copy(tls->name, sizeof tls->name, CLUSTER_CA_NAME);
    return STATUS_OK;
}

static uint64_t prefill_count(const struct up_settings *settings)
{
    return settings->prefill * settings->list.count;
}

uint64_t up_worker_count(const struct up_settings *settings)
{
    return prefill_count(settings) + settings->decode * settings->list.count;
}

/* Writes "prefill-0" and so on. */
static void name_worker(const struct up_settings *settings, uint64_t index, char *name, size_t size)
{
    bool prefill = index < prefill_count(settings);
    snprintf(name, size, "%s-%llu", prefill ? "prefill" : "decode",
             (unsigned long long)(prefill ? index : index - prefill_count(settings)));
}

uint64_t up_threads(const struct up_settings *settings, const struct up_cores *cores)
{
    if (settings->threads)
        return settings->threads;
    if (settings->engine == ENGINE_MOCK)
        return 1;
    uint64_t share = cores->count / up_worker_count(settings);
    return share ? share : 1;
}

static bool names_a_process(const struct up_settings *settings, const char *name, size_t length)
{
    char wanted[64];
    if (length == strlen("router") && !memcmp(name, "router", length))
        return true;
    for (uint64_t i = 0; i < up_worker_count(settings); i++) {
        name_worker(settings, i, wanted, sizeof wanted);
        if (strlen(wanted) == length && !memcmp(wanted, name, length))
            return true;
    }
    return false;
}

/* Counts --env's items that have the same first `end` + 1 bytes as `item`. */
static size_t items_like(const struct config_list *environment, const char *item, size_t end)
{
    size_t count = 0;
    for (size_t i = 0; i < environment->count; i++)
        count += !strncmp(environment->items[i], item, end + 1);
    return count;
}

static enum status check_environment(const struct up_settings *settings, struct error *err)
{
    for (size_t i = 0; i < settings->environment.count; i++) {
        const char *item = settings->environment.items[i];
        size_t name = strcspn(item, ":"), key = strcspn(item, "=");
        if (!item[name] || !item[key] || key <= name + 1)
            return error_set(err, STATUS_INVALID, "--env '%.80s' is not PROCESS:KEY=VALUE", item);
        if (!names_a_process(settings, item, name))
            return error_set(err, STATUS_INVALID,
                             "--env '%.80s': there is no process %.*s (router, prefill-0, ...)",
                             item, (int)name, item);
        if (items_like(&settings->environment, item, name) > UP_MAX_ENVIRONMENT)
            return error_set(err, STATUS_LIMIT, "more than %d --env for %.*s", UP_MAX_ENVIRONMENT,
                             (int)name, item);
        if (items_like(&settings->environment, item, key) > 1)
            return error_set(err, STATUS_INVALID,
                             "--env sets %.*s of %.*s more than once: leave one of them",
                             (int)(key - name - 1), item + name + 1, (int)name, item);
    }
    return STATUS_OK;
}

static enum status check_device_count(const struct up_settings *settings, struct error *err)
{
    char unused[32] = "";
    uint64_t workers = up_worker_count(settings);
    uint64_t count = take_device(settings->passed.devices, workers, unused, sizeof unused);
    if (*unused && settings->engine == ENGINE_MOCK)
        return error_set(err, STATUS_INVALID,
                         "--device is for a model: --engine mock computes on none");
    return count <= workers ? STATUS_OK
                            : error_set(err, STATUS_INVALID,
                                        "--device names %" PRIu64 " devices for %" PRIu64
                                        " workers: leave %s out, or start more workers",
                                        count, workers, unused);
}

enum status up_check(const struct up_settings *settings, struct error *err)
{
    if (!up_worker_count(settings))
        return error_set(err, STATUS_INVALID, "--prefill 0 --decode 0 leaves no worker");
    if (settings->prefill && !settings->decode)
        return error_set(err, STATUS_INVALID,
                         "--decode 0: prefill workers alone cannot answer a request");
    if (up_worker_count(settings) > CLUSTER_MAX_PROCESSES - 1)
        return error_set(err, STATUS_LIMIT, "more than %d workers", CLUSTER_MAX_PROCESSES - 1);
    TRY(check_device_count(settings, err));
    return check_environment(settings, err);
}

/* --- building a command line --- */

static char *keep(const struct up_context *context, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static char *keep(const struct up_context *context, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *kept = arena_copy_str(context->arena, text);
    ASSERT(kept);
    return kept;
}

static void add(struct process_plan *plan, const char *flag, const char *value)
{
    ASSERT(plan->argc + 2 <= PROCESS_MAX_ARGUMENTS);
    plan->argv[plan->argc++] = flag;
    if (value)
        plan->argv[plan->argc++] = value;
}

static void add_if_given(struct process_plan *plan, const char *flag, const char *value)
{
    if (*value)
        add(plan, flag, value);
}

/* True: --env gives this process the variable. */
static bool gives(const struct process_plan *plan, const char *variable)
{
    size_t length = strlen(variable);
    for (size_t i = 0; i < plan->environment_count; i++)
        if (!strncmp(plan->environment[i], variable, length) && plan->environment[i][length] == '=')
            return true;
    return false;
}

/* Adds a flag for a setting of all processes, unless --env sets its variable for this process: the
 * flag would win over the variable. */
static void add_passed(struct process_plan *plan, const char *flag, const char *variable,
                       const char *value)
{
    if (!gives(plan, variable))
        add_if_given(plan, flag, value);
}

static struct process_plan common_part(const struct up_context *context, const char *role,
                                       const char *name, const char *model, const char *model_name)
{
    const struct up_settings *settings = context->settings;
    struct process_plan plan = {.role = role};
    str_copy(plan.name, sizeof plan.name, name);
    if (context->log_dir)
        plan.log_path = keep(context, "%s/%s.log", context->log_dir, name);
    add(&plan, keep(context, "%s/baton-%s", context->bin_dir, role), NULL);
    add(&plan, "--model", model);
    if (*model_name)
        add(&plan, "--model-name", model_name);
    add(&plan, "--metrics-listen", "127.0.0.1:0");
    plan.metrics_at = plan.argc - 1;
    add_if_given(&plan, "--metrics-tls-cert", settings->metrics_tls.cert);
    add_if_given(&plan, "--metrics-tls-key", settings->metrics_tls.key);
    add_if_given(&plan, "--metrics-tls-client-ca", settings->metrics_tls.client_ca);
    add(&plan, "--log-level", log_level_names[settings->log_level]);
    add(&plan, "--drain-timeout",
        keep(context, "%lluus", (unsigned long long)settings->drain_timeout_us));
    const struct config_list *environment = &settings->environment;
    size_t length = strlen(name);
    for (size_t i = 0; i < environment->count; i++) {
        const char *item = environment->items[i];
        if (!strncmp(item, name, length) && item[length] == ':' &&
            plan.environment_count < UP_MAX_ENVIRONMENT)
            plan.environment[plan.environment_count++] = item + length + 1;
    }
    return plan;
}

static void add_internal_tls(const struct up_settings *settings, struct process_plan *plan)
{
    add_if_given(plan, "--internal-tls-cert", settings->internal_tls.cert);
    add_if_given(plan, "--internal-tls-key", settings->internal_tls.key);
    add_if_given(plan, "--internal-tls-ca", settings->internal_tls.ca);
    add_if_given(plan, "--internal-tls-name", settings->internal_tls.name);
}

/* Adds certificates and keys. With any of them workers register at an address of their own. */
static void add_access(const struct up_settings *settings, struct process_plan *plan)
{
    add_if_given(plan, "--tls-cert", settings->tls.cert);
    add_if_given(plan, "--tls-key", settings->tls.key);
    add_if_given(plan, "--tls-client-ca", settings->tls.client_ca);
    add_if_given(plan, "--api-keys", settings->api_keys);
    add_internal_tls(settings, plan);
    if (!*settings->internal_tls.cert && !*settings->tls.cert && !*settings->api_keys)
        return;
    add(plan, "--registry-listen", "127.0.0.1:0");
    plan->registry_at = plan->argc - 1;
}

struct process_plan up_plan_router(const struct up_context *context)
{
    const struct up_settings *settings = context->settings;
    struct process_plan plan =
        common_part(context, "router", "router", settings->models, settings->model_name);
    add(&plan, "--placement-policy", placement_policy_names[settings->placement_policy]);
    add(&plan, "--reasoning", off_on[settings->reasoning]);
    add_passed(&plan, "--decision-sample", "BATON_DECISION_SAMPLE",
               keep(context, "%u", settings->decision_percent));
    add_passed(&plan, "--decisions", "BATON_DECISIONS", keep(context, "%u", settings->decisions));
    add(&plan, "--http-listen", settings->http_listen);
    if (*settings->http_listen)
        plan.front_at = plan.argc - 1;
    add(&plan, "--listen", keep(context, "127.0.0.1:%u", settings->port));
    plan.listen_at = plan.argc - 1;
    plan.must_keep_address = true;
    add_access(context->settings, &plan);
    add_passed(&plan, "--access-log", "BATON_ACCESS_LOG", settings->passed.access_log);
    add_passed(&plan, "--http-cors-origins", "BATON_HTTP_CORS_ORIGINS",
               settings->passed.http_cors_origins);
    add_passed(&plan, "--slo-class", "BATON_SLO_CLASS", settings->passed.slo_class);
    add_passed(&plan, "--slo-default", "BATON_SLO_DEFAULT", settings->passed.slo_default);
    add_passed(&plan, "--allowed-hosts", "BATON_ALLOWED_HOSTS", settings->passed.allowed_hosts);
    return plan;
}

/* In the environment, as a list there would be no worker's device. --env of the process wins. */
static void add_device(const struct up_context *context, struct process_plan *plan, uint64_t index)
{
    char device[32];
    take_device(context->settings->passed.devices, index, device, sizeof device);
    if (*device && !gives(plan, "BATON_DEVICE") &&
        plan->environment_count < PROCESS_MAX_ENVIRONMENT)
        plan->environment[plan->environment_count++] = keep(context, "BATON_DEVICE=%s", device);
}

static void add_threads(const struct up_context *context, struct process_plan *plan, uint64_t index)
{
    uint64_t threads = up_threads(context->settings, context->cores);
    add(plan, "--threads", keep(context, "%llu", (unsigned long long)threads));
    bool fits = threads * up_worker_count(context->settings) <= context->cores->count;
    if (!fits || !context->settings->pin || context->settings->engine == ENGINE_MOCK) {
        add(plan, "--no-spin", NULL);
        return;
    }
    char cpus[1024];
    size_t used = 0;
    for (uint64_t i = 0; i < threads && used < sizeof cpus; i++)
        used += (size_t)snprintf(cpus + used, sizeof cpus - used, "%s%u", i ? "," : "",
                                 context->cores->ids[index * threads + i]);
    add(plan, "--cpus", keep(context, "%s", cpus));
    add(plan, "--spin", NULL);
}

struct process_plan up_plan_worker(const struct up_context *context, uint64_t index,
                                   const char *router_address)
{
    const struct up_settings *settings = context->settings;
    uint64_t prefill = prefill_count(settings);
    const char *role = index < prefill ? "prefill" : "decode";
    const struct model_entry *model =
        &settings->list.items[index < prefill ? index / settings->prefill
                                              : (index - prefill) / settings->decode];
    char name[64];
    name_worker(settings, index, name, sizeof name);
    struct process_plan plan = common_part(context, role, name, model->dir, model->name);
    add(&plan, "--name", keep(context, "%s", name));
    add(&plan, "--router", keep(context, "%s", router_address));
    add(&plan, "--listen", "127.0.0.1:0");
    plan.listen_at = plan.argc - 1;
    add_internal_tls(settings, &plan);
    if (settings->engine == ENGINE_MOCK)
        add(&plan, "--engine", engine_kind_names[settings->engine]);
    add_passed(&plan, "--profile", "BATON_PROFILE", settings->passed.profile);
    add(&plan, "--compute", up_compute_names[settings->compute]);
    add(&plan, "--weights", weight_choice_names[settings->weights]);
    add(&plan, "--weight-cache", settings->weight_cache);
    add(&plan, "--kv", kv_choice_names[settings->kv]);
    add(&plan, "--isa", isa_names[settings->isa]);
    add(&plan, "--transport", transport_names[settings->transport]);
    add_device(context, &plan, index);
    add_threads(context, &plan, index);
    const struct up_passed *passed = &settings->passed;
    add_passed(&plan, "--kv-tokens", "BATON_KV_TOKENS", passed->kv_tokens);
    add_passed(&plan, "--context", "BATON_CONTEXT", passed->context);
    add_passed(&plan, "--max-sequences", "BATON_MAX_SEQUENCES", passed->max_sequences);
    add_passed(&plan, "--chunk-tokens", "BATON_CHUNK_TOKENS", passed->chunk_tokens);
    add_passed(&plan, "--chunk-time", "BATON_CHUNK_TIME", passed->chunk_time);
    return plan;
}

/* --- checks of the models --- */

struct names {
    char items[MODEL_LIST_MAX][MODEL_MAX_NAME_BYTES];
};

static enum status check_name(struct names *names, const struct up_settings *settings, size_t index,
                              struct error *err)
{
    const struct model_entry *entry = &settings->list.items[index];
    char *name = names->items[index];
    if (*entry->name)
        str_copy(name, sizeof names->items[index], entry->name);
    else
        TRY(model_folder_name(entry->dir, name, sizeof names->items[index], err));
    for (size_t i = 0; i < index; i++)
        if (!strcmp(name, names->items[i]))
            return error_set(err, STATUS_INVALID,
                             "two models are called %s, the second is of %.200s: give one of them "
                             "another name, NAME=DIR",
                             name, entry->dir);
    return STATUS_OK;
}

/* Reads only the heads of the weights' files, which takes under a second for large ones too. */
static enum status check_weights(const struct up_settings *settings, const char *dir,
                                 struct error *err)
{
    char kept[WEIGHT_CACHE_PATH_BYTES];
    struct model_config model;
    struct safetensors *tensors;
    struct weight_types types = {0};
    TRY(model_config_read(dir, &model, err));
    TRY(engine_check_weights(settings->compute == COMPUTE_F32,
                             (enum weight_choice)settings->weights, model.quantization, err));
    if (settings->engine == ENGINE_MOCK)
        return STATUS_OK;
    TRY(weight_cache_path(settings->weight_cache, dir, "", types, kept, err));
    TRY(safetensors_open(dir, &tensors, err));
    safetensors_close(tensors);
    return STATUS_OK;
}

enum status up_check_models(const struct up_settings *settings, struct error *err)
{
    struct names names;
    for (size_t i = 0; i < settings->list.count; i++) {
        TRY(check_name(&names, settings, i, err));
        TRY(check_weights(settings, settings->list.items[i].dir, err));
    }
    return STATUS_OK;
}
