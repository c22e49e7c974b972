#include "common/cli/cmd_up.h"

#include "common/base/clock.h"
#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/cli/cluster.h"
#include "common/cli/cluster_status.h"
#include "common/cli/up_models.h"
#include "common/cli/up_notice.h"
#include "common/cli/up_plan.h"
#include "common/cli/up_ready.h"
#include "common/engine/engine_choices.h"
#include "common/net/http/http_server.h"
#include "common/worker/worker_config.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOD              "up"
#define PLAN_LIMIT_BYTES (1u << 20)
#define REGISTER_POLL_US 20000
#define STATUS_CALL_US   2000000
/* The processes get the drain's time themselves; this is for what they do after it. */
#define CHILD_END_GRACE_US 5000000

#define AT(field) CONFIG_AT(struct up_settings, field)
static const struct config_setting settings_table[] = {
    {"prefill", CONFIG_U64, AT(prefill), "1", "0", "64", .help = "Prefill workers of each model"},
    {"decode", CONFIG_U64, AT(decode), "1", "1", "64", .help = "Decode workers of each model"},
    {"model", CONFIG_STRING, AT(models), .required = true, .value = "[NAME=]DIR,...",
     .help = "Folder of each model, in Hugging Face's layout", .repeats = true,
     .check = model_list_check},
    {"model-name", CONFIG_STRING, AT(model_name), "", .value = "NAME",
     .help = "Name that clients use, of the only model; empty: the folder's name"},
    {"compute", CONFIG_ENUM, AT(compute), "fast", .choices = up_compute_names,
     .help = "Arithmetic: bf16 with fp32 sums, or fp32 throughout (the reference)"},
    {"weights", CONFIG_ENUM, AT(weights), "auto", .choices = weight_choice_names,
     .help = "Weights of matrices: as the model folder holds them, or quantized at load"},
    {"weight-cache", CONFIG_STRING, AT(weight_cache), "off", .value = "off|beside|DIR",
     .help = "Keep packed weights beside the model or in a folder: the next start maps them, and "
             "workers share them"},
    {"kv", CONFIG_ENUM, AT(kv), "auto", .choices = kv_choice_names,
     .help = "Keys and values: floats, or int8 with a scale for each token of a head"},
    {"isa", CONFIG_ENUM, AT(isa), "auto", .choices = isa_names,
     .help = "Instruction set of the fast path"},
    {"transport", CONFIG_ENUM, AT(transport), "auto", .choices = up_transport_names,
     .help = "Lane of the KV bytes"},
    {"port", CONFIG_U64, AT(port), "0", "0", "65535",
     .help = "Port of the router's gRPC server on 127.0.0.1; 0: any free one"},
    {"http-listen", CONFIG_STRING, AT(http_listen), "127.0.0.1:0", .value = "HOST:PORT",
     .help = "Address of the OpenAI-compatible HTTP server; empty: none",
     .check = http_check_listen},
    TLS_SETTINGS_ROWS(struct up_settings, tls, "tls", "clients, of gRPC and HTTP"),
    TLS_SETTINGS_ROWS(struct up_settings, metrics_tls, "metrics-tls",
                      "those who ask for /metrics and /status, of all processes"),
    LINK_TLS_ROWS(struct up_settings, internal_tls),
    {"api-keys", CONFIG_STRING, AT(api_keys), "", .value = "FILE",
     .help = "Keys of clients, hashed, with their limits (baton key new makes lines of it)"},
    UP_PASSED_ROWS(struct up_settings),
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
    {"log-level", CONFIG_ENUM, AT(log_level), "info", .choices = up_log_level_names,
     .help = "Least level that is logged"},
    {"restart", CONFIG_BOOL, AT(restart), "true",
     .help = "Start a process again that ended without having been told"},
    {"restart-wait", CONFIG_DURATION, AT(restart_wait_us), "10s", "100ms", "1h",
     .help = "Longest wait before a restart; from 100 ms it doubles from end to end, until the "
             "process has served for 10 s"},
    {"start-timeout", CONFIG_DURATION, AT(start_timeout_us), "120s", "1s", "1h",
     .help = "The cluster must serve by then"},
    {"drain-timeout", CONFIG_DURATION, AT(drain_timeout_us), "30s", "0", "1h",
     .help = "Ctrl-C: running requests may go on for so long"},
};
static void check(const void *settings, struct str *mistakes)
{
    const struct up_settings *up = settings;
    struct error err;
    bool f32 = up->compute == COMPUTE_F32;
    config_mistake(mistakes,
                   engine_check_weights(f32, (enum weight_choice)up->weights, MODEL_FLOAT, &err),
                   &err);
    config_mistake(mistakes, engine_check_kv(f32, (enum kv_choice)up->kv, &err), &err);
    config_mistake(mistakes, kernels_check_isa(f32, (enum isa)up->isa, &err), &err);
    config_mistake(mistakes, tls_settings_check(&up->tls, "tls", &err), &err);
    config_mistake(mistakes, tls_settings_check(&up->metrics_tls, "metrics-tls", &err), &err);
    config_mistake(mistakes, link_tls_check(&up->internal_tls, &err), &err);
}

/* What it says to the processes itself: the environment would be overruled. */
#define FREE_PORTS "all but clients come to free ports of 127.0.0.1, which --ready-file names"
#define OWN_NAMES  "its workers are prefill-0, decode-0 and so on, and find the router by themselves"
#define OWN_CORES  "--threads and --pin say which cores workers get"
static const struct config_hint hints[] = {
    {"listen", "--port is the router's, on 127.0.0.1"},
    {"metrics-listen", FREE_PORTS},
    {"registry-listen", "with certificates or keys it is a free port of 127.0.0.1, else the router "
                        "takes BATON_REGISTRY_LISTEN from the environment"},
    {"name", OWN_NAMES},
    {"router", OWN_NAMES},
    {"cpus", OWN_CORES "; with --no-pin, --env decode-0:BATON_CPUS=0,1 says it of one"},
    {"spin", OWN_CORES},
    {"ready-fd", "--ready-file names a file that tells when the cluster serves"},
    {NULL, NULL},
};

static const struct config_program program = {
    .name = "baton up",
    .summary =
        "Starts one router, N prefill and M decode workers of each model on this machine, all on "
        "loopback, and stays until\n"
        "Ctrl-C, which drains: running requests end first. A second Ctrl-C ends them at "
        "once. A process "
        "that dies is started again.",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
    .check = check,
    .starts_others = true,
    .hints = hints,
};

/* One run of the command. */
struct up {
    struct up_settings settings;
    struct up_cores cores;
    struct up_context context;
    struct arena arena;
    struct cluster cluster;
    char bin_dir[CLUSTER_PATH_BYTES], log_dir[CLUSTER_PATH_BYTES];
    bool own_log_dir;                           /* made by us, removed after a clean end */
    struct model_status models[MODEL_LIST_MAX]; /* as the router tells them */
};

/* What a process would say in its own log, here where somebody reads it. */
static void warn_of_environment(const struct up_settings *settings)
{
    for (size_t i = 0; i < settings->environment.count; i++) {
        const char *item = settings->environment.items[i];
        int length = (int)strcspn(item, ":") + 1;
        char where[96], *variable[] = {(char *)item + length, NULL};
        snprintf(where, sizeof where, "--env %.*s", length, item);
        config_warn_environment(&program, where, variable);
    }
}

static enum status find_programs(struct up *up, struct error *err)
{
    ssize_t length = readlink("/proc/self/exe", up->bin_dir, sizeof up->bin_dir - 1);
    if (length <= 0)
        return error_set(err, STATUS_IO, "cannot find my own program: %s", strerror(errno));
    up->bin_dir[length] = 0;
    *strrchr(up->bin_dir, '/') = 0;
    return STATUS_OK;
}

static void find_cores(struct up_cores *cores)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (uint32_t i = 0; i < CPU_SETSIZE && cores->count < UP_MAX_CORES; i++)
        if (CPU_ISSET(i, &set))
            cores->ids[cores->count++] = i;
}

static enum status make_log_dir(struct up *up, struct error *err)
{
    if (up->settings.verbose)
        return STATUS_OK;
    char folder[CLUSTER_PATH_BYTES];
    int length;
    if (*up->settings.log_dir) {
        length = snprintf(up->log_dir, sizeof up->log_dir, "%s", up->settings.log_dir);
    } else {
        TRY(cluster_folder(folder, err));
        length = snprintf(up->log_dir, sizeof up->log_dir, "%s/%d", folder, (int)getpid());
        up->own_log_dir = true;
    }
    /* Leave room for a log's own name. */
    if (length >= (int)sizeof up->log_dir - 80)
        return error_set(err, STATUS_LIMIT, "the log folder's path is too long");
    struct stat found;
    if (mkdir(up->log_dir, 0700) && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot make the log folder %s: %s", up->log_dir,
                         strerror(errno));
    if (stat(up->log_dir, &found) == 0 && !S_ISDIR(found.st_mode))
        return error_set(err, STATUS_INVALID, "--log-dir %s is there and no folder", up->log_dir);
    up->context.log_dir = up->log_dir;
    return STATUS_OK;
}

static void remove_log_dir(const struct up *up)
{
    for (size_t i = 0; i < up->cluster.count; i++)
        unlink(up->cluster.processes[i].log_path);
    rmdir(up->log_dir);
}

/* How to ask the router for figures; what it serves them with is to be trusted, and shown where it
 * asks for a certificate. */
struct figures {
    struct certificates *certificates; /* NULL: in the clear */
    char name[256];                    /* that its certificate holds */
};

static enum status open_figures(const struct tls_settings *tls, struct figures *figures,
                                struct error *err)
{
    const struct certificates_config config = {
        .name = "metrics-tls", .paths = {tls->cert, tls->key, tls->cert}, .ca_name = "cert"};
    *figures = (struct figures){.certificates = NULL};
    if (!*tls->cert)
        return STATUS_OK;
    TRY(certificates_open(&config, &figures->certificates, err));
    const struct certificate_set *set = certificates_take(figures->certificates);
    str_copy(figures->name, sizeof figures->name, set->name);
    certificate_set_give(set);
    return STATUS_OK;
}

/* The workers dial the router; wait until it has a session with each of them. */
static enum status wait_registered(struct up *up, const struct figures *figures,
                                   uint64_t deadline_us, struct error *err)
{
    uint64_t wanted = up_worker_count(&up->settings);
    const struct http_remote router = {.url = up->cluster.processes[0].member.metrics,
                                       .certificates = figures->certificates,
                                       .peer_name = figures->name};
    for (;;) {
        struct cluster_status seen;
        struct error why = {""};
        if (up->cluster.stop.wishes)
            return error_set(err, STATUS_CANCELLED, "stopped by a signal");
        /* Before the router is asked, which may not know yet: an end that was taken in here would
         * never be made good. */
        if (cluster_running(&up->cluster) < up->cluster.count)
            return error_set(err, STATUS_UNAVAILABLE, "a process ended during the start");
        if (cluster_status_fetch(&router, STATUS_CALL_US, &seen, &why) == STATUS_OK &&
            cluster_status_up(&seen) == wanted) {
            memcpy(up->models, seen.models, sizeof up->models);
            return STATUS_OK;
        }
        const char *cause = seen.refused_count ? seen.refused[0].sentence : why.text;
        if (clock_now_us() >= deadline_us)
            return error_set(err, STATUS_TIMEOUT,
                             "the router has a session with only %zu of %" PRIu64 " workers%s%s",
                             cluster_status_up(&seen), wanted, *cause ? ": " : "", cause);
        cluster_turn(&up->cluster, REGISTER_POLL_US);
    }
}

static enum status start_all(struct up *up, struct error *err)
{
    uint64_t deadline_us = clock_now_us() + up->settings.start_timeout_us;
    struct process_plan plan = up_plan_router(&up->context);
    const struct process *router;
    TRY(cluster_start(&up->cluster, &plan, &router, err));
    TRY(cluster_wait_ready(&up->cluster, deadline_us, err));
    for (uint64_t i = 0; i < up_worker_count(&up->settings); i++) {
        plan = up_plan_worker(&up->context, i, router->member.registry);
        TRY(cluster_start(&up->cluster, &plan, NULL, err));
    }
    TRY(cluster_wait_ready(&up->cluster, deadline_us, err));
    /* Their thread is here for as long as they are asked for: processes are started again without
     * it. */
    struct figures figures;
    TRY(open_figures(&up->settings.metrics_tls, &figures, err));
    enum status status = wait_registered(up, &figures, deadline_us, err);
    certificates_close(figures.certificates);
    return status;
}

static struct cluster_file describe(const struct up *up)
{
    return up_notice_describe(&(struct up_notice){.settings = &up->settings,
                                                  .cluster = &up->cluster,
                                                  .models = up->models,
                                                  .log_dir = up->log_dir});
}

static void print_ready_block(const struct up *up, const struct cluster_file *file)
{
    up_ready_print(&(struct up_ready){.settings = &up->settings,
                                      .file = file,
                                      .models = up->models,
                                      .threads = up_threads(&up->settings, &up->cores),
                                      .bin_dir = up->bin_dir,
                                      .own_log_dir = up->own_log_dir});
}

/* A process is back. A cluster that serves goes on serving though its new pids can't be written
 * down. */
static void publish_again(struct up *up)
{
    struct error err;
    struct cluster_file file = describe(up);
    up->cluster.changed = false;
    if (up_notice_publish(&up->settings, &file, &err) != STATUS_OK)
        log_error(MOD, "msg=\"cannot tell the new process ids: %s\"", err.text);
}

/* Serves until a signal; without restarts also until the router or the last worker is gone. */
static enum status serve(struct up *up, struct error *err)
{
    struct cluster_file file = describe(up);
    up->cluster.changed = false;
    TRY(up_notice_publish(&up->settings, &file, err));
    print_ready_block(up, &file);
    if (up->settings.restart)
        cluster_keep(&up->cluster, up->settings.restart_wait_us, up->settings.start_timeout_us);
    const struct process *router = &up->cluster.processes[0];
    while (!up->cluster.stop.wishes) {
        cluster_turn(&up->cluster, UINT64_MAX);
        if (up->cluster.changed)
            publish_again(up);
        if (up->settings.restart)
            continue;
        if (router->state == PROCESS_ENDED)
            return error_set(err, STATUS_UNAVAILABLE, "the router is gone");
        if (cluster_running(&up->cluster) == 1)
            return error_set(err, STATUS_UNAVAILABLE, "all workers are gone");
    }
    printf("\nDraining: running requests may end, for at most %" PRIu64
           " s. Ctrl-C again ends them.\n",
           up->settings.drain_timeout_us / 1000000);
    fflush(stdout);
    return STATUS_OK;
}

/* What can be known to be wrong before anything is started. */
static enum status prepare(struct up *up, struct error *err)
{
    TRY(up_read_models(&up->settings, err));
    TRY(up_check(&up->settings, err));
    TRY(up_models_check(&up->settings, err));
    TRY(up_notice_check(&up->settings, err));
    TRY(find_programs(up, err));
    TRY(make_log_dir(up, err));
    return cluster_open(&up->cluster, err);
}

static int run(struct up *up)
{
    struct error err;
    enum status status = prepare(up, &err);
    if (status != STATUS_OK) {
        fprintf(stderr, "baton up: %s\n", err.text);
        return status == STATUS_INVALID || status == STATUS_LIMIT ? 2 : 1;
    }
    warn_of_environment(&up->settings);
    cluster_file_sweep();
    up_notice_withdraw(
        &up->settings); /* an earlier cluster's: who waits for it waits for this one */
    status = start_all(up, &err);
    if (status == STATUS_OK)
        status = serve(up, &err);
    up_notice_withdraw(&up->settings);
    bool gentle = cluster_drain(&up->cluster, up->settings.drain_timeout_us + CHILD_END_GRACE_US);
    bool clean = status == STATUS_OK && gentle && !cluster_down(&up->cluster);
    if (clean && up->own_log_dir)
        remove_log_dir(up);
    cluster_close(&up->cluster);
    if (status != STATUS_OK) /* the last line on the screen is the cause */
        fprintf(stderr, "baton up: %s\n", err.text);
    return clean ? 0 : status == STATUS_INVALID ? 2 : 1;
}

/* The processes inherit what the environment gave, and name the variable where it is wrong; a flag
 * would be one that nobody wrote. What is empty is not given, of neither. */
static void leave_to_environment(struct up_settings *settings, const struct config_result *result)
{
    const size_t begin = offsetof(struct up_settings, passed);
    for (size_t i = 0; i < program.setting_count; i++) {
        size_t offset = settings_table[i].offset;
        char *text = (char *)settings + offset, variable[CONFIG_MAX_VARIABLE_BYTES];
        if (offset < begin || offset >= begin + sizeof settings->passed)
            continue;
        if (!*text)
            unsetenv(config_variable(settings_table[i].name, variable));
        if (result->sources[i] == CONFIG_FROM_ENVIRONMENT)
            *text = 0;
    }
}

int cmd_up(int argc, char **argv)
{
    static struct up up; /* too large for a stack */
    struct config_result result;
    config_load_or_exit(&program, argc, argv, &up.settings, &result);
    signal(SIGPIPE, SIG_IGN);
    log_init("up", (enum log_level)up.settings.log_level);
    unsetenv("BATON_CONFIG"); /* it was ours: the children's settings have other names */
    config_log(&program, &up.settings, &result);
    leave_to_environment(&up.settings, &result);
    find_cores(&up.cores);
    arena_init(&up.arena, PLAN_LIMIT_BYTES);
    up.context = (struct up_context){
        .settings = &up.settings, .cores = &up.cores, .bin_dir = up.bin_dir, .arena = &up.arena};
    int code = run(&up);
    arena_deinit(&up.arena);
    return code;
}
