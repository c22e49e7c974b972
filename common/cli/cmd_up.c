#include "common/cli/commands.h"

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/config/config.h"
#include "common/base/domain/placement_policy.h"
#include "common/base/domain/slo.h"
#include "common/base/log.h"
#include "common/base/str.h"
#include "common/cli/cluster.h"
#include "common/cli/cluster_status.h"
#include "common/cli/up_plan.h"
#include "common/engine/engine.h"
#include "common/language/model_config/model_config.h"
#include "common/net/crypto/cluster_ca.h"

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
#define LINE_BYTES       4096
#define REGISTER_POLL_US 20000
#define STATUS_CALL_US   2000000
/* The processes know the drain's timeout; this is for their end after it. */
#define CHILD_END_GRACE_US 5000000

struct up {
    struct up_settings settings;
    struct up_cores cores;
    struct up_context context;
    struct arena arena;
    struct cluster cluster;
    char bin_dir[CLUSTER_PATH_BYTES], log_dir[CLUSTER_PATH_BYTES];
    bool own_log_dir;                 /* made by us, removed after a clean end */
    char tls_dir[CLUSTER_PATH_BYTES]; /* with this run's own certificates; "": it made none */
    struct model_status models[MODEL_LIST_MAX]; /* the router's, in the settings' order */
    const char *end_tokens[MODEL_LIST_MAX];     /* one line for each model */
};

/* --- the files about the cluster --- */

/* Checks that --ready-file names a regular file or none, in a folder that can be written to. */
static enum status check_ready_file(const struct up_settings *settings, struct error *err)
{
    const char *path = settings->ready_file;
    struct stat found;
    char folder[CLUSTER_PATH_BYTES];
    if (!*path)
        return STATUS_OK;
    if (!lstat(path, &found) && !S_ISREG(found.st_mode))
        return error_set(err, STATUS_INVALID,
                         "--ready-file %s exists and is not a regular file; give the name of a "
                         "file to write",
                         path);
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    snprintf(folder, sizeof folder, "%.*s.", (int)length, path);
    if (access(folder, W_OK | X_OK))
        return error_set(err, STATUS_INVALID,
                         "--ready-file %s: cannot write into its folder: %s; give the name of a "
                         "file to write",
                         path, strerror(errno));
    return STATUS_OK;
}

/* Copies the models by the names that clients use. Folders are absolute, since other commands run
 * in other folders; a path that is too long is left out. */
static void describe_models(const struct up *up, struct model_list *models)
{
    const struct model_list *list = &up->settings.list;
    models->count = list->count;
    for (size_t i = 0; i < list->count; i++) {
        char *path = realpath(list->items[i].dir, NULL);
        str_copy(models->items[i].name, sizeof models->items[i].name, up->models[i].name);
        if (!path || !str_copy(models->items[i].dir, sizeof models->items[i].dir, path))
            *models->items[i].dir = 0;
        free(path);
    }
}

static struct cluster_file describe(const struct up *up)
{
    const struct cluster_member *router = &up->cluster.processes[0].member;
    struct cluster_file file = {.pid = getpid(), .count = up->cluster.count};
    str_copy(file.grpc, sizeof file.grpc, router->address);
    str_copy(file.http, sizeof file.http, router->metrics);
    str_copy(file.openai, sizeof file.openai, router->front);
    str_copy(file.logs, sizeof file.logs, up->log_dir);
    for (size_t i = 0; i < up->cluster.count; i++)
        file.members[i] = up->cluster.processes[i].member;
    describe_models(up, &file.models);
    return file;
}

static enum status write_ready_file(const struct up *up, const struct cluster_file *file,
                                    struct error *err)
{
    const char *ready_file = up->settings.ready_file;
    return *ready_file ? cluster_file_write(file, ready_file, err) : STATUS_OK;
}

/* Removes the files of this cluster, and those of an earlier one with the same settings. */
static void withdraw(const struct up_settings *settings)
{
    cluster_file_withdraw(getpid());
    if (*settings->ready_file)
        unlink(settings->ready_file);
}

/* --- the text once it serves --- */

static bool has_tokenizer(const struct model_entry *model)
{
    char path[sizeof model->dir + sizeof "/tokenizer.json"];
    snprintf(path, sizeof path, "%s/tokenizer.json", model->dir);
    return access(path, F_OK) == 0;
}

static void print_models(const struct up *up, uint64_t threads)
{
    const struct up_settings *settings = &up->settings;
    const struct model_list *list = &settings->list;
    printf("\nBaton serves ");
    if (list->count == 1)
        printf("%s: ", list->items[0].dir);
    else
        printf("%zu models, each with ", list->count);
    printf("%" PRIu64 " prefill + %" PRIu64 " decode, ", settings->prefill, settings->decode);
    if (settings->engine == ENGINE_MOCK)
        printf("a mock engine of profile %s; its answers mean nothing\n\n",
               settings->passed.profile);
    else
        printf("%s, %" PRIu64 " thread%s each\n\n", up_compute_names[settings->compute], threads,
               threads == 1 ? "" : "s");
    for (size_t i = 0; i < list->count; i++) {
        if (list->count > 1)
            printf("  model      %s  %s\n", up->models[i].name, list->items[i].dir);
        if (*up->models[i].numerics)
            printf("  numerics   %s\n", up->models[i].numerics);
        if (*up->models[i].isa)
            printf("  isa        %s  (what the workers compute with, on %s)\n", up->models[i].isa,
                   strncmp(up->models[i].isa, "sm_", 3) ? "the CPU" : "GPUs");
        printf("  end tokens %s\n", up->end_tokens[i]);
    }
}

static void print_examples(const struct up *up, const struct cluster_file *file)
{
    const struct up_settings *settings = &up->settings;
    const struct model_list *list = &settings->list;
    bool several = list->count > 1;
    printf("\nTry:\n\n");
    for (size_t i = 0; i < list->count; i++) {
        char model[160] = "";
        if (several)
            snprintf(model, sizeof model, "--model %s ", up->models[i].name);
        printf("  %s/baton generate %s%s%s--max-tokens 64 %s\n", up->bin_dir,
               *settings->tls.cert ? "--tls-ca FILE " : "",
               *settings->api_keys ? "--api-key-file FILE " : "", model,
               has_tokenizer(&list->items[i])
                   ? "\"Once upon a time\""
                   : "--prompt-ids 1,2,3   (the model has no tokenizer)");
    }
    if (*file->openai)
        printf("  curl -s %s%s%s://%s/v1/completions -H 'Content-Type: application/json' \\\n"
               "    -d '{\"model\": \"%s\", \"max_tokens\": 64, \"prompt\": %s}'\n",
               *settings->tls.cert ? "--cacert FILE " : "",
               *settings->api_keys ? "-H \"Authorization: Bearer $KEY\" " : "",
               *settings->tls.cert ? "https" : "http", file->openai, up->models[0].name,
               has_tokenizer(&settings->list.items[0]) ? "\"Once upon a time\"" : "[1, 2, 3]");
    if (has_tokenizer(&settings->list.items[0]))
        printf("  %s/baton chat%s%s%s%s\n", up->bin_dir,
               *settings->tls.cert ? " --tls-ca FILE" : "",
               *settings->api_keys ? " --api-key-file FILE" : "", several ? " --model " : "",
               several ? up->models[0].name : "");
    printf("  %s/baton top%s\n\nCtrl-C drains and stops.\n", up->bin_dir,
           *settings->metrics_tls.cert ? " --tls-ca FILE" : "");
}

/* The rule of placement, and each SLO class with its objectives. */
static void print_classes(const struct up_settings *settings)
{
    struct slo_classes classes = {.count = 0};
    struct str text;
    str_init(&text, SLO_MAX_ROWS_BYTES);
    (void)slo_classes_parse(settings->passed.slo_class, settings->passed.slo_default, &classes,
                            &text); /* checked with the settings */
    printf("  placement  %s\n",
           placement_policy_names[placement_policy_of(settings->placement_policy)]);
    for (uint32_t i = 0; i < classes.count; i++) {
        const struct slo_class *class = &classes.items[i];
        const struct slo_objective *objective = &class->objective;
        const uint64_t us[] = {objective->ttft_us, objective->tpot_us, objective->itl_us,
                               objective->e2e_us};
        static const char *const names[] = {"TTFT", "TPOT", "ITL", "E2E"};
        str_clear(&text);
        for (int kind = 0; kind < 4; kind++)
            if (us[kind]) {
                str_addf(&text, "  %s ", names[kind]);
                slo_add_time(us[kind], &text);
            }
        if (text.length)
            str_addf(&text, "  %g%%", class->percentile);
        printf("  class      %s%s%s", class->name, i == classes.standard ? " (default)" : "",
               text.data);
        if (class->priority != PRIORITY_NORMAL)
            printf("  priority %s", priority_names[class->priority]);
        printf("\n");
    }
    str_deinit(&text);
}

/* Prints the models, the addresses, and commands to try. */
static void print_ready(const struct up *up, const struct cluster_file *file)
{
    print_models(up, up_threads(&up->settings, &up->cores));
    print_classes(&up->settings);
    printf("  gRPC       %s\n", file->grpc);
    if (*file->openai)
        printf("  OpenAI     %s://%s/v1\n", *up->settings.tls.cert ? "https" : "http",
               file->openai);
    printf("  HTTP       %s://%s/  (status page; /status, /traces, /metrics, /healthz)\n",
           *up->settings.metrics_tls.cert ? "https" : "http", file->http);
    if (*up->tls_dir)
        printf("  links      TLS between these processes, with certificates of this run in %s "
               "(--internal-tls off: none)\n",
               up->tls_dir);
    for (size_t i = 1; i < file->count; i++)
        printf("  %-10s %s  pid %d\n", file->members[i].name, file->members[i].address,
               (int)file->members[i].pid);
    if (*file->logs)
        printf("  logs       %s%s\n", file->logs,
               up->own_log_dir ? "  (removed after an end in order; --log-dir DIR keeps them)"
                               : "");
    print_examples(up, file);
    fflush(stdout);
}

/* --- the run --- */

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
    if (length >= (int)sizeof up->log_dir - 80) /* room for a log's own name */
        return error_set(err, STATUS_LIMIT, "the log folder's path is too long");
    struct stat found;
    if (mkdir(up->log_dir, 0700) && errno != EEXIST)
        return error_set(err, STATUS_IO, "cannot make the log folder %s: %s", up->log_dir,
                         strerror(errno));
    if (stat(up->log_dir, &found) == 0 && !S_ISDIR(found.st_mode))
        return error_set(err, STATUS_INVALID, "--log-dir %s exists and is not a folder",
                         up->log_dir);
    up->context.log_dir = up->log_dir;
    return STATUS_OK;
}

/* Makes this run's own certificates, if it needs them. */
static enum status make_certificates(struct up *up, struct error *err)
{
    char folder[CLUSTER_PATH_BYTES], path[CLUSTER_PATH_BYTES];
    if (!up_makes_certificates(&up->settings))
        return STATUS_OK;
    TRY(cluster_folder(folder, err));
    if (snprintf(path, sizeof path, "%s/%d.tls", folder, (int)getpid()) >= (int)sizeof path)
        return error_set(err, STATUS_LIMIT, "XDG_RUNTIME_DIR is too long");
    cluster_ca_remove(path); /* an earlier process had our id */
    enum status status = cluster_ca_make(path, err);
    if (status != STATUS_OK)
        return error_prefix(err, status,
                            "no certificates for the links between the processes (--internal-tls "
                            "off leaves them in the clear)");
    str_copy(up->tls_dir, sizeof up->tls_dir, path);
    return up_use_certificates(&up->settings, path, err);
}

/* Certificates to call the router's figures with: its own certificate is trusted, and shown if it
 * asks for one. */
struct figures {
    struct certificates *certificates; /* NULL: in the clear */
    char name[256];                    /* in its certificate */
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

/* Waits until the router has a session with each worker. */
static enum status wait_registered(struct up *up, const struct figures *figures,
                                   uint64_t deadline_us, struct error *err)
{
    uint64_t wanted = up_worker_count(&up->settings);
    const struct http_remote router = {.url = up->cluster.processes[0].member.metrics,
                                       .certificates = figures->certificates,
                                       .peer_name = figures->name};
    for (;;) {
        static struct cluster_status seen;
        struct error why = {""};
        if (up->cluster.stop.wishes)
            return error_set(err, STATUS_CANCELLED, "stopped by a signal");
        /* Comes before the call, since the router may not know of the end yet. Without this check
         * an ended process would stay down. */
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
    /* The certificates' thread lives only meanwhile: restarts fork without it. */
    struct figures figures;
    TRY(open_figures(&up->settings.metrics_tls, &figures, err));
    enum status status = wait_registered(up, &figures, deadline_us, err);
    certificates_close(figures.certificates);
    return status;
}

/* Serves until a signal; without restarts also until the router or the last worker is gone. */
static enum status serve(struct up *up, struct error *err)
{
    struct cluster_file file = describe(up);
    up->cluster.changed = false;
    TRY(cluster_file_publish(&file, err));
    print_ready(up, &file);                /* its commands find the cluster */
    TRY(write_ready_file(up, &file, err)); /* comes last: all the rest is there */
    if (up->settings.restart)
        cluster_keep(&up->cluster, up->settings.restart_wait_us, up->settings.start_timeout_us);
    cluster_watch(&up->cluster, up->settings.restart ? up->settings.liveness_timeout_us : 0);
    const struct process *router = &up->cluster.processes[0];
    while (!up->cluster.stop.wishes) {
        cluster_turn(&up->cluster, UINT64_MAX);
        if (up->cluster.changed) { /* a failure must not end a cluster that serves */
            struct error why;
            file = describe(up);
            up->cluster.changed = false;
            if (cluster_file_publish(&file, &why) != STATUS_OK ||
                write_ready_file(up, &file, &why) != STATUS_OK)
                log_error(MOD, "msg=\"cannot write the new process ids: %s\"", why.text);
        }
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

/* Reads the end tokens of all models. Their folders are checked. */
static enum status describe_end_tokens(struct up *up, struct error *err)
{
    struct str line;
    str_init(&line, LINE_BYTES);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < up->settings.list.count; i++) {
        struct model_config model;
        status = model_config_read(up->settings.list.items[i].dir, &model, err);
        if (status != STATUS_OK)
            break;
        str_clear(&line);
        end_ids_describe(&model.end_ids, &line);
        up->end_tokens[i] = arena_copy_str(&up->arena, line.data);
        ASSERT(up->end_tokens[i]); /* PLAN_LIMIT_BYTES is enough for all lines */
    }
    str_deinit(&line);
    return status;
}

/* Finds mistakes before anything is started. */
static enum status prepare(struct up *up, struct error *err)
{
    TRY(up_read_models(&up->settings, err));
    TRY(up_check(&up->settings, err));
    TRY(up_check_models(&up->settings, err));
    TRY(describe_end_tokens(up, err));
    TRY(check_ready_file(&up->settings, err));
    ssize_t length = readlink("/proc/self/exe", up->bin_dir, sizeof up->bin_dir - 1);
    if (length <= 0)
        return error_set(err, STATUS_IO, "cannot find my own program: %s", strerror(errno));
    up->bin_dir[length] = 0;
    *strrchr(up->bin_dir, '/') = 0;
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
    /* A process would warn of these in its own log, which is read less. */
    for (size_t i = 0; i < up->settings.environment.count; i++) {
        const char *item = up->settings.environment.items[i];
        int length = (int)strcspn(item, ":") + 1;
        char where[96], *variable[] = {(char *)item + length, NULL};
        snprintf(where, sizeof where, "--env %.*s", length, item);
        config_warn_environment(&up_program, where, variable);
    }
    cluster_file_sweep();
    withdraw(&up->settings); /* an earlier cluster's: scripts must wait for this one's */
    status = make_certificates(up, &err);
    if (status == STATUS_OK)
        status = start_all(up, &err);
    if (status == STATUS_OK)
        status = serve(up, &err);
    withdraw(&up->settings);
    bool gentle = cluster_drain(&up->cluster, up->settings.drain_timeout_us + CHILD_END_GRACE_US);
    bool clean = status == STATUS_OK && gentle && !cluster_down(&up->cluster);
    if (clean && up->own_log_dir) {
        for (size_t i = 0; i < up->cluster.count; i++)
            unlink(up->cluster.processes[i].log_path);
        rmdir(up->log_dir);
    }
    cluster_close(&up->cluster);
    if (*up->tls_dir)
        cluster_ca_remove(up->tls_dir);
    if (status != STATUS_OK) /* the last line on the screen is the cause */
        fprintf(stderr, "baton up: %s\n", err.text);
    return clean ? 0 : status == STATUS_INVALID ? 2 : 1;
}

/* Empties passed settings that the environment gave: the processes inherit the variable, and name
 * it if it is wrong. An empty setting is not given: its variable is removed. */
static void leave_to_environment(struct up_settings *settings, const struct config_result *result)
{
    const size_t begin = offsetof(struct up_settings, passed);
    for (size_t i = 0; i < up_program.setting_count; i++) {
        const struct config_setting *setting = &up_program.settings[i];
        size_t offset = setting->offset;
        char *text = (char *)settings + offset, variable[CONFIG_MAX_VARIABLE_BYTES];
        if (offset < begin || offset >= begin + sizeof settings->passed)
            continue;
        if (!*text)
            unsetenv(config_variable(setting->name, variable));
        if (result->sources[i] == CONFIG_FROM_ENVIRONMENT)
            *text = 0;
    }
}

int cmd_up(int argc, char **argv)
{
    static struct up up; /* too large for a stack */
    struct config_result result;
    config_load_or_exit(&up_program, argc, argv, &up.settings, &result);
    signal(SIGPIPE, SIG_IGN);
    log_init("up", (enum log_level)up.settings.log_level);
    unsetenv("BATON_CONFIG"); /* its settings are ours, with other names than the children's */
    config_log(&up_program, &up.settings, &result);
    leave_to_environment(&up.settings, &result);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    sched_getaffinity(0, sizeof cpus, &cpus);
    for (uint32_t i = 0; i < CPU_SETSIZE && up.cores.count < UP_MAX_CORES; i++)
        if (CPU_ISSET(i, &cpus))
            up.cores.ids[up.cores.count++] = i;
    arena_init(&up.arena, PLAN_LIMIT_BYTES);
    up.context = (struct up_context){
        .settings = &up.settings, .cores = &up.cores, .bin_dir = up.bin_dir, .arena = &up.arena};
    int code = run(&up);
    arena_deinit(&up.arena);
    return code;
}
