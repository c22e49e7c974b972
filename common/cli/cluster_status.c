#include "common/cli/cluster_status.h"

#include "common/base/json/json.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATUS_BYTES (8u << 20) /* a router's most */
#define MAX_MODEL_WIDTH  32
#define STATE_MISSING    "missing"

static enum status get_text(const struct json_value *object, const char *key, bool needed,
                            char *target, size_t size, struct error *err)
{
    const char *text;
    if (!needed && !json_find(object, key))
        return STATUS_OK;
    TRY(json_get_string(object, key, &text, NULL, err));
    str_copy(target, size, text); /* cut: only shown */
    return STATUS_OK;
}

static enum status get_count(const struct json_value *object, const char *key, int64_t *count,
                             struct error *err)
{
    if (!json_find(object, key))
        return STATUS_OK;
    return json_get_i64(object, key, 0, INT64_MAX, count, err);
}

static enum status read_pairs(const struct json_value *object, struct worker_status *worker,
                              struct error *err)
{
    const struct json_value *pairs;
    char name[64], breaker[16];
    size_t length = 0;
    if (!json_find(object, "pairs"))
        return STATUS_OK;
    TRY(json_get_array(object, "pairs", &pairs, err));
    for (size_t i = 0; i < json_count(pairs) && length < sizeof worker->apart; i++) {
        TRY(get_text(json_at(pairs, i), "worker", true, name, sizeof name, err));
        TRY(get_text(json_at(pairs, i), "breaker", true, breaker, sizeof breaker, err));
        length += (size_t)snprintf(worker->apart + length, sizeof worker->apart - length,
                                   "%s%s (%s)", i ? ", " : "", name, breaker);
    }
    return STATUS_OK;
}

static enum status read_worker(const struct json_value *object, struct worker_status *worker,
                               struct error *err)
{
    *worker = (struct worker_status){.restarts = -1};
    TRY(get_text(object, "name", true, worker->name, sizeof worker->name, err));
    TRY(get_text(object, "model", false, worker->model, sizeof worker->model, err));
    TRY(get_text(object, "role", true, worker->role, sizeof worker->role, err));
    TRY(get_text(object, "address", true, worker->address, sizeof worker->address, err));
    TRY(get_text(object, "state", true, worker->state, sizeof worker->state, err));
    TRY(read_pairs(object, worker, err));
    TRY(get_text(object, "lane", false, worker->lane, sizeof worker->lane, err));
    TRY(get_text(object, "lane_reason", false, worker->lane_reason, sizeof worker->lane_reason,
                 err));
    TRY(get_text(object, "incarnation", false, worker->incarnation, sizeof worker->incarnation,
                 err));
    TRY(get_count(object, "lane_bytes_per_second", &worker->lane_bytes_per_second, err));
    TRY(get_count(object, "started_ms", &worker->started_ms, err));
    TRY(get_count(object, "queue", &worker->queue, err));
    TRY(get_count(object, "running", &worker->running, err));
    TRY(get_count(object, "blocks", &worker->blocks, err));
    TRY(get_count(object, "prompt_tokens", &worker->prompt_tokens, err));
    TRY(get_count(object, "tokens", &worker->tokens, err));
    TRY(get_count(object, "blocks_free", &worker->blocks_free, err));
    TRY(get_count(object, "blocks_cached", &worker->blocks_cached, err));
    TRY(get_count(object, "blocks_pinned", &worker->blocks_pinned, err));
    return get_count(object, "blocks_landing", &worker->blocks_landing, err);
}

/* Orders prefill before decode, and decode-2 before decode-10. */
static int by_role_and_name(const void *a, const void *b)
{
    const struct worker_status *left = a, *right = b;
    int roles = strcmp(right->role, left->role);
    return roles ? roles : strverscmp(left->name, right->name);
}

static enum status read_model(const struct json_value *object, const char *name,
                              struct model_status *model, struct error *err)
{
    TRY(get_text(object, name, false, model->name, sizeof model->name, err));
    TRY(get_text(object, "numerics", false, model->numerics, sizeof model->numerics, err));
    TRY(get_text(object, "isa", false, model->isa, sizeof model->isa, err));
    TRY(get_count(object, "queue", &model->queue, err));
    TRY(get_count(object, "running", &model->running, err));
    TRY(get_count(object, "prompt_tokens", &model->prompt_tokens, err));
    return get_count(object, "tokens", &model->tokens, err);
}

static enum status read_models(const struct json_value *root, struct cluster_status *status,
                               struct error *err)
{
    const struct json_value *models;
    if (!json_find(root, "models")) {
        status->model_count = 1;
        return read_model(root, "model", &status->models[0], err);
    }
    TRY(json_get_array(root, "models", &models, err));
    status->model_count = json_count(models);
    if (status->model_count > CLUSTER_STATUS_MAX_MODELS)
        return error_set(err, STATUS_LIMIT, "more than %d models", CLUSTER_STATUS_MAX_MODELS);
    for (size_t i = 0; i < status->model_count; i++)
        TRY(read_model(json_at(models, i), "name", &status->models[i], err));
    return STATUS_OK;
}

static enum status read_refused(const struct json_value *root, struct cluster_status *status,
                                struct error *err)
{
    const struct json_value *refused;
    if (!json_find(root, "refused"))
        return STATUS_OK;
    TRY(json_get_array(root, "refused", &refused, err));
    size_t count = json_count(refused);
    if (count > CLUSTER_STATUS_MAX_REFUSED)
        return error_set(err, STATUS_LIMIT, "more than %d workers were refused",
                         CLUSTER_STATUS_MAX_REFUSED);
    for (size_t i = 0; i < count; i++) {
        const struct json_value *object = json_at(refused, i);
        struct refused_status *one = &status->refused[i];
        TRY(get_text(object, "name", true, one->name, sizeof one->name, err));
        TRY(get_text(object, "role", true, one->role, sizeof one->role, err));
        TRY(get_text(object, "address", true, one->address, sizeof one->address, err));
        TRY(get_text(object, "sentence", true, one->sentence, sizeof one->sentence, err));
    }
    status->refused_count = count;
    return STATUS_OK;
}

/* Adds the missing workers to those that are there. */
static enum status read_missing(const struct json_value *root, struct cluster_status *status,
                                struct error *err)
{
    const struct json_value *missing;
    if (!json_find(root, "missing"))
        return STATUS_OK;
    TRY(json_get_array(root, "missing", &missing, err));
    size_t count = json_count(missing), room = CLUSTER_STATUS_MAX_WORKERS - status->count;
    for (size_t i = 0; i < count && i < room; i++) {
        const struct json_value *object = json_at(missing, i);
        struct worker_status *worker = &status->workers[status->count++];
        *worker = (struct worker_status){.restarts = -1};
        TRY(get_text(object, "name", true, worker->name, sizeof worker->name, err));
        TRY(get_text(object, "model", false, worker->model, sizeof worker->model, err));
        TRY(get_text(object, "role", true, worker->role, sizeof worker->role, err));
        TRY(get_text(object, "address", true, worker->address, sizeof worker->address, err));
        str_copy(worker->state, sizeof worker->state, STATE_MISSING);
    }
    return STATUS_OK;
}

static enum status read_figure(const struct json_value *window, const char *key,
                               struct status_figure *figure, struct error *err)
{
    const struct json_value *object = json_find(window, key);
    if (!object)
        return STATUS_OK;
    TRY(get_count(object, "count", &figure->count, err));
    TRY(json_get_double(object, "p50_ms", 0, 1e15, &figure->p50_ms, err));
    return json_get_double(object, "p99_ms", 0, 1e15, &figure->p99_ms, err);
}

static enum status read_classes(const struct json_value *root, struct cluster_status *status,
                                struct error *err)
{
    const struct json_value *classes;
    if (!json_find(root, "slo"))
        return STATUS_OK;
    TRY(json_get_array(root, "slo", &classes, err));
    size_t count = json_count(classes);
    status->class_count = count < SLO_MAX_CLASSES ? count : SLO_MAX_CLASSES;
    for (size_t i = 0; i < status->class_count; i++) {
        const struct json_value *object = json_at(classes, i), *hour = json_find(object, "hour");
        struct class_status *class = &status->classes[i];
        TRY(get_text(object, "name", true, class->name, sizeof class->name, err));
        TRY(get_count(hour, "attained", &class->attained, err));
        TRY(get_count(hour, "missed", &class->missed, err));
        for (int kind = 0; kind < SLO_KINDS; kind++)
            TRY(get_count(json_find(hour, "missed_by"), slo_kind_names[kind],
                          &class->missed_by[kind], err));
        TRY(json_get_double(object, "goodput_per_second", 0, 1e15, &class->goodput, err));
        TRY(json_get_double(object, "goodput_per_device", 0, 1e15, &class->goodput_of_device, err));
        TRY(json_get_double(object, "error_budget_left", -1e15, 1, &class->error_budget_left, err));
    }
    return STATUS_OK;
}

static enum status read_root(const struct json_value *root, struct cluster_status *status,
                             struct error *err)
{
    const struct json_value *workers;
    TRY(read_models(root, status, err));
    TRY(read_refused(root, status, err));
    TRY(read_classes(root, status, err));
    TRY(get_count(root, "queue", &status->queue, err));
    TRY(get_count(root, "running", &status->running, err));
    TRY(get_count(root, "prompt_tokens", &status->prompt_tokens, err));
    TRY(get_count(root, "tokens", &status->tokens, err));
    const struct json_value *window = json_find(root, "window");
    TRY(get_count(window, "seconds", &status->window_s, err));
    TRY(read_figure(window, "queue", &status->queue_time, err));
    TRY(read_figure(window, "ttft", &status->ttft, err));
    TRY(read_figure(window, "tpot", &status->tpot, err));
    TRY(read_figure(window, "e2e", &status->e2e, err));
    TRY(json_get_array(root, "workers", &workers, err));
    size_t count = json_count(workers);
    if (count > CLUSTER_STATUS_MAX_WORKERS)
        return error_set(err, STATUS_LIMIT, "more than %d workers", CLUSTER_STATUS_MAX_WORKERS);
    for (size_t i = 0; i < count; i++)
        TRY(read_worker(json_at(workers, i), &status->workers[i], err));
    status->count = count;
    TRY(read_missing(root, status, err));
    qsort(status->workers, status->count, sizeof *status->workers, by_role_and_name);
    return STATUS_OK;
}

enum status cluster_status_parse(const char *text, size_t length, struct cluster_status *status,
                                 struct error *err)
{
    struct json *json;
    const struct json_limits limits = {.max_bytes = MAX_STATUS_BYTES, .max_depth = 8};
    TRY(json_parse(text, length, limits, &json, err));
    memset(status, 0, offsetof(struct cluster_status, workers));
    status->router_restarts = -1;
    enum status outcome = read_root(json_root(json), status, err);
    json_destroy(json);
    return outcome;
}

enum status cluster_status_get(const struct http_remote *router, uint64_t timeout_us,
                               struct str *text, struct error *err)
{
    enum status status = http_get(router, "/status", timeout_us, text, err);
    const struct error why = *err;
    /* A port of gRPC closes what isn't HTTP/2. */
    if (status == STATUS_NOT_FOUND ||
        (status != STATUS_OK && strstr(why.text, "without an answer")))
        error_set(err, status,
                  "%s (figures are at the address that `baton up` prints behind HTTP, "
                  "--metrics-listen of baton-router)",
                  why.text);
    return status;
}

enum status cluster_status_fetch(const struct http_remote *router, uint64_t timeout_us,
                                 struct cluster_status *status, struct error *err)
{
    memset(status, 0, offsetof(struct cluster_status, workers));
    struct str body;
    str_init(&body, MAX_STATUS_BYTES);
    enum status outcome = cluster_status_get(router, timeout_us, &body, err);
    if (outcome == STATUS_OK)
        outcome = cluster_status_parse(body.data, body.length, status, err);
    str_deinit(&body);
    return outcome;
}

bool worker_status_known(const struct worker_status *worker)
{
    return strcmp(worker->state, "down") && strcmp(worker->state, STATE_MISSING);
}

size_t cluster_status_up(const struct cluster_status *status)
{
    size_t up = 0;
    for (size_t i = 0; i < status->count; i++)
        up += !strcmp(status->workers[i].state, "up");
    return up;
}

void cluster_status_add_restarts(struct cluster_status *status, const struct cluster_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        const struct cluster_member *member = &file->members[i];
        size_t at = 0;
        while (at < status->count && strcmp(member->name, status->workers[at].name))
            at++;
        if (!strcmp(member->role, "router")) {
            status->router_restarts = member->restarts;
        } else if (at < status->count) {
            status->workers[at].restarts = member->restarts;
        } else if (at < CLUSTER_STATUS_MAX_WORKERS) {
            struct worker_status *worker = &status->workers[status->count++];
            *worker = (struct worker_status){.restarts = member->restarts};
            str_copy(worker->name, sizeof worker->name, member->name);
            str_copy(worker->role, sizeof worker->role, member->role);
            str_copy(worker->address, sizeof worker->address, member->address);
            str_copy(worker->state, sizeof worker->state, STATE_MISSING);
        }
    }
    qsort(status->workers, status->count, sizeof *status->workers, by_role_and_name);
}

/* Writes "5s", "12m", "7h" or "3d"; "-": not known. */
static void describe_age(int64_t started_ms, int64_t now_ms, char *text, size_t size)
{
    int64_t seconds = started_ms && now_ms > started_ms ? (now_ms - started_ms) / 1000 : 0;
    if (!started_ms)
        snprintf(text, size, "-");
    else if (seconds < 120)
        snprintf(text, size, "%" PRId64 "s", seconds);
    else if (seconds < 120 * 60)
        snprintf(text, size, "%" PRId64 "m", seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(text, size, "%" PRId64 "h", seconds / 3600);
    else
        snprintf(text, size, "%" PRId64 "d", seconds / 86400);
}

/* Appends a model's line, without its end: its requests, and how many of its workers are up. */
static void print_model(const struct cluster_status *status, const struct model_status *model,
                        struct str *out)
{
    size_t count = 0, up = 0;
    bool only = status->model_count == 1;
    for (size_t i = 0; i < status->count; i++) {
        const struct worker_status *worker = &status->workers[i];
        bool its = only || !strcmp(worker->model, model->name);
        count += its;
        up += its && !strcmp(worker->state, "up");
    }
    str_addf(out, "model %s", *model->name ? model->name : "-");
    if (*model->numerics)
        str_addf(out, "   numerics %s", model->numerics);
    if (*model->isa)
        str_addf(out, "   isa %s", model->isa);
    str_addf(out, "   queue %" PRId64 "   running %" PRId64 "   workers %zu of %zu up",
             model->queue, model->running, up, count);
}

static void print_worker(const struct worker_status *worker, int model_width, int64_t now_ms,
                         struct str *out)
{
    char age[24], restarts[24] = "-", speed[24] = "-";
    describe_age(worker->started_ms, now_ms, age, sizeof age);
    if (worker->restarts >= 0)
        snprintf(restarts, sizeof restarts, "%" PRId64, worker->restarts);
    if (worker->lane_bytes_per_second)
        snprintf(speed, sizeof speed, "%.2f", (double)worker->lane_bytes_per_second * 1e-9);
    str_addf(out, "%-14s ", worker->name);
    if (model_width)
        str_addf(out, "%-*.*s ", model_width, model_width, worker->model);
    str_addf(out, "%-8s %-9s %-22s %4s %8s %-6s %6s ", worker->role, worker->state, worker->address,
             age, restarts, *worker->lane ? worker->lane : "-", speed);
    if (worker_status_known(worker))
        str_addf(out,
                 "%6" PRId64 " %8" PRId64 " %11" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64 "\n",
                 worker->queue, worker->running, worker->blocks_free, worker->blocks_cached,
                 worker->blocks_pinned, worker->blocks_landing);
    else
        str_addf(out, "%6s %8s %11s %8s %8s %8s\n", "-", "-", "-", "-", "-", "-");
}

static void print_class(const struct class_status *class, struct str *out)
{
    int64_t all = class->attained + class->missed;
    str_addf(out, "class %s   last hour: ", class->name);
    if (all)
        str_addf(out, "attained %.1f%% of %" PRId64, 100 * (double)class->attained / (double)all,
                 all);
    else
        str_add(out, "no request");
    const char *before = ", missed by ";
    for (int kind = 0; kind < SLO_KINDS; kind++) {
        if (!class->missed_by[kind])
            continue;
        str_addf(out, "%s%s %" PRId64, before, slo_kind_names[kind], class->missed_by[kind]);
        before = ", ";
    }
    str_addf(out, ", error budget left %.0f%%   last minute: goodput %.2f/s, %.2f/s per device\n",
             100 * class->error_budget_left, class->goodput, class->goodput_of_device);
}

/* Returns the width of the column of models. 0: none, since there is only one model. */
static int model_width(const struct cluster_status *status)
{
    size_t longest = strlen("MODEL");
    for (size_t i = 0; i < status->model_count; i++)
        if (strlen(status->models[i].name) > longest)
            longest = strlen(status->models[i].name);
    return status->model_count < 2 ? 0 : longest > MAX_MODEL_WIDTH ? MAX_MODEL_WIDTH : (int)longest;
}

void cluster_status_print(const struct cluster_status *status, int64_t now_ms, struct str *out)
{
    int width = model_width(status);
    for (size_t i = 0; i < status->model_count; i++) {
        str_add(out, i ? "\n" : "");
        print_model(status, &status->models[i], out);
    }
    if (status->router_restarts > 0)
        str_addf(out, "   router restarts %" PRId64, status->router_restarts);
    str_add(out, "\n");
    for (size_t i = 0; i < status->class_count; i++)
        print_class(&status->classes[i], out);
    str_addf(out, "\n%-14s ", "NAME");
    if (width)
        str_addf(out, "%-*s ", width, "MODEL");
    str_addf(out, "%-8s %-9s %-22s %4s %8s %-6s %6s %6s %8s %11s %8s %8s %8s\n", "ROLE", "STATE",
             "ADDRESS", "AGE", "RESTARTS", "LANE", "GB/S", "QUEUE", "RUNNING", "BLOCKS FREE",
             "CACHED", "PINNED", "LANDING");
    for (size_t i = 0; i < status->count; i++)
        print_worker(&status->workers[i], width, now_ms, out);
    for (size_t i = 0; i < status->count; i++) /* once for each pair */
        if (*status->workers[i].apart && !strcmp(status->workers[i].role, "prefill"))
            str_addf(out, "kept apart, as reads fail: %s and %s\n", status->workers[i].name,
                     status->workers[i].apart);
    for (size_t i = 0; i < status->count; i++)
        if (*status->workers[i].lane_reason)
            str_addf(out, "%s: lane %s, for %s\n", status->workers[i].name, status->workers[i].lane,
                     status->workers[i].lane_reason);
        else if (!strcmp(status->workers[i].lane, "rdma"))
            str_addf(out, "%s: lane rdma, which no version was ever run with\n",
                     status->workers[i].name);
    for (size_t i = 0; i < status->refused_count; i++) {
        const struct refused_status *refused = &status->refused[i];
        str_addf(out, "%srefused: %s (%s at %s): %s\n", i ? "" : "\n", refused->name, refused->role,
                 refused->address, refused->sentence);
    }
}
