#include "common/cli/up_plan.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/engine/kv_choice.h"
#include "common/engine/model/weight_types.h"
#include "kernels/kernels.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const up_compute_names[] = {"fast", "f32", NULL};
const char *const up_transport_names[] = {"auto", "shm", "tcp", NULL};
const char *const up_log_level_names[] = {"debug", "info", "warn", "error", NULL};

enum status up_read_models(struct up_settings *settings, struct error *err)
{
    TRY(model_list_parse(settings->models, &settings->list, err));
    return model_list_name(&settings->list, settings->model_name, err);
}

static uint64_t prefill_count(const struct up_settings *settings)
{
    return settings->prefill * settings->list.count;
}

uint64_t up_worker_count(const struct up_settings *settings)
{
    return prefill_count(settings) + settings->decode * settings->list.count;
}

/* "prefill-0" */
static void name_worker(const struct up_settings *settings, uint64_t index, char *name, size_t size)
{
    bool prefill = index < prefill_count(settings);
    snprintf(name, size, "%s-%llu", prefill ? "prefill" : "decode",
             (unsigned long long)(prefill ? index : index - prefill_count(settings)));
}

static const struct model_entry *model_of(const struct up_settings *settings, uint64_t index)
{
    uint64_t prefill = prefill_count(settings);
    return &settings->list.items[index < prefill ? index / settings->prefill
                                                 : (index - prefill) / settings->decode];
}

uint64_t up_threads(const struct up_settings *settings, const struct up_cores *cores)
{
    if (settings->threads)
        return settings->threads;
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

/* How many of --env's items begin as `item` does, up to the colon or the equals sign at `end` and
 * with it. */
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

enum status up_check(const struct up_settings *settings, struct error *err)
{
    if (!up_worker_count(settings))
        return error_set(err, STATUS_INVALID, "--prefill 0 --decode 0 leaves no worker");
    if (settings->prefill && !settings->decode)
        return error_set(err, STATUS_INVALID,
                         "--decode 0: prefill workers alone cannot answer a request");
    if (up_worker_count(settings) > CLUSTER_MAX_PROCESSES - 1)
        return error_set(err, STATUS_LIMIT, "more than %d workers", CLUSTER_MAX_PROCESSES - 1);
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

static void add_environment(const struct up_context *context, struct process_plan *plan)
{
    const struct config_list *all = &context->settings->environment;
    size_t length = strlen(plan->name);
    for (size_t i = 0; i < all->count; i++)
        if (!strncmp(all->items[i], plan->name, length) && all->items[i][length] == ':' &&
            plan->environment_count < UP_MAX_ENVIRONMENT)
            plan->environment[plan->environment_count++] = all->items[i] + length + 1;
}

static void add_if_given(struct process_plan *plan, const char *flag, const char *value)
{
    if (*value)
        add(plan, flag, value);
}

/* What --env says of this one process is meant for it, and goes before what is said of all: a flag
 * would win. */
static void add_passed(struct process_plan *plan, const char *flag, const char *variable,
                       const char *value)
{
    size_t length = strlen(variable);
    for (size_t i = 0; i < plan->environment_count; i++)
        if (!strncmp(plan->environment[i], variable, length) && plan->environment[i][length] == '=')
            return;
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
    add(&plan, "--log-level", up_log_level_names[settings->log_level]);
    add(&plan, "--drain-timeout",
        keep(context, "%lluus", (unsigned long long)settings->drain_timeout_us));
    add_environment(context, &plan);
    return plan;
}

static void add_internal_tls(const struct up_settings *settings, struct process_plan *plan)
{
    add_if_given(plan, "--internal-tls-cert", settings->internal_tls.cert);
    add_if_given(plan, "--internal-tls-key", settings->internal_tls.key);
    add_if_given(plan, "--internal-tls-ca", settings->internal_tls.ca);
    add_if_given(plan, "--internal-tls-name", settings->internal_tls.name);
}

/* Workers register apart from clients where either side is to be known. */
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
    return plan;
}

static void add_threads(const struct up_context *context, struct process_plan *plan, uint64_t index)
{
    uint64_t threads = up_threads(context->settings, context->cores);
    add(plan, "--threads", keep(context, "%llu", (unsigned long long)threads));
    bool fits = threads * up_worker_count(context->settings) <= context->cores->count;
    if (!fits || !context->settings->pin) {
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
    const char *role = index < prefill_count(settings) ? "prefill" : "decode";
    const struct model_entry *model = model_of(settings, index);
    char name[64];
    name_worker(settings, index, name, sizeof name);
    struct process_plan plan = common_part(context, role, name, model->dir, model->name);
    add(&plan, "--name", keep(context, "%s", name));
    add(&plan, "--router", keep(context, "%s", router_address));
    add(&plan, "--listen", "127.0.0.1:0");
    plan.listen_at = plan.argc - 1;
    add_internal_tls(settings, &plan);
    add(&plan, "--compute", up_compute_names[settings->compute]);
    add(&plan, "--weights", weight_choice_names[settings->weights]);
    add(&plan, "--weight-cache", settings->weight_cache);
    add(&plan, "--kv", kv_choice_names[settings->kv]);
    add(&plan, "--isa", isa_names[settings->isa]);
    add(&plan, "--transport", up_transport_names[settings->transport]);
    add_threads(context, &plan, index);
    const struct up_passed *passed = &settings->passed;
    add_passed(&plan, "--kv-tokens", "BATON_KV_TOKENS", passed->kv_tokens);
    add_passed(&plan, "--context", "BATON_CONTEXT", passed->context);
    add_passed(&plan, "--max-sequences", "BATON_MAX_SEQUENCES", passed->max_sequences);
    add_passed(&plan, "--chunk-tokens", "BATON_CHUNK_TOKENS", passed->chunk_tokens);
    add_passed(&plan, "--chunk-time", "BATON_CHUNK_TIME", passed->chunk_time);
    return plan;
}
