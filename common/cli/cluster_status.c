#include "common/cli/cluster_status.h"

#include "common/http/http_client.h"
#include "common/json/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STATUS_BYTES (1u << 20)

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

static enum status read_worker(const struct json_value *object, struct worker_status *worker,
                               struct error *err)
{
    TRY(get_text(object, "name", true, worker->name, sizeof worker->name, err));
    TRY(get_text(object, "role", true, worker->role, sizeof worker->role, err));
    TRY(get_text(object, "address", true, worker->address, sizeof worker->address, err));
    TRY(get_text(object, "state", true, worker->state, sizeof worker->state, err));
    TRY(get_text(object, "lane", false, worker->lane, sizeof worker->lane, err));
    TRY(get_text(object, "incarnation", false, worker->incarnation, sizeof worker->incarnation,
                 err));
    TRY(get_count(object, "queue", &worker->queue, err));
    TRY(get_count(object, "running", &worker->running, err));
    TRY(get_count(object, "blocks_free", &worker->blocks_free, err));
    TRY(get_count(object, "blocks_pinned", &worker->blocks_pinned, err));
    return get_count(object, "blocks_landing", &worker->blocks_landing, err);
}

/* Prefill before decode, as a request goes; decode-2 before decode-10. */
static int by_role_and_name(const void *a, const void *b)
{
    const struct worker_status *left = a, *right = b;
    int roles = strcmp(right->role, left->role);
    return roles ? roles : strverscmp(left->name, right->name);
}

static enum status read_root(const struct json_value *root, struct cluster_status *status,
                             struct error *err)
{
    const struct json_value *workers;
    TRY(get_text(root, "model", false, status->model, sizeof status->model, err));
    TRY(get_text(root, "numerics", false, status->numerics, sizeof status->numerics, err));
    TRY(get_count(root, "queue", &status->queue, err));
    TRY(get_count(root, "running", &status->running, err));
    TRY(json_get_array(root, "workers", &workers, err));
    size_t count = json_count(workers);
    if (count > CLUSTER_MAX_PROCESSES)
        return error_set(err, STATUS_LIMIT, "more than %d workers", CLUSTER_MAX_PROCESSES);
    for (size_t i = 0; i < count; i++)
        TRY(read_worker(json_at(workers, i), &status->workers[i], err));
    status->count = count;
    qsort(status->workers, count, sizeof *status->workers, by_role_and_name);
    return STATUS_OK;
}

enum status cluster_status_parse(const char *text, size_t length, struct cluster_status *status,
                                 struct error *err)
{
    struct json *json;
    const struct json_limits limits = {.max_bytes = MAX_STATUS_BYTES, .max_depth = 8};
    TRY(json_parse(text, length, limits, &json, err));
    *status = (struct cluster_status){0};
    enum status outcome = read_root(json_root(json), status, err);
    json_destroy(json);
    return outcome;
}

enum status cluster_status_fetch(const char *http_address, uint64_t timeout_us,
                                 struct cluster_status *status, struct error *err)
{
    *status = (struct cluster_status){0};
    struct str body;
    str_init(&body, MAX_STATUS_BYTES);
    enum status outcome = http_get(http_address, "/status", timeout_us, &body, err);
    if (outcome == STATUS_OK)
        outcome = cluster_status_parse(body.data, body.length, status, err);
    str_deinit(&body);
    return outcome;
}

size_t cluster_status_up(const struct cluster_status *status)
{
    size_t up = 0;
    for (size_t i = 0; i < status->count; i++)
        up += !strcmp(status->workers[i].state, "up");
    return up;
}

void cluster_status_print(const struct cluster_status *status, struct str *out)
{
    str_addf(out, "model %s   queue %" PRId64 "   running %" PRId64 "   workers %zu of %zu up\n\n",
             *status->model ? status->model : "-", status->queue, status->running,
             cluster_status_up(status), status->count);
    str_addf(out, "%-14s %-8s %-9s %-22s %-6s %6s %8s %8s %8s %8s\n", "NAME", "ROLE", "STATE",
             "ADDRESS", "LANE", "QUEUE", "RUNNING", "FREE", "PINNED", "LANDING");
    for (size_t i = 0; i < status->count; i++) {
        const struct worker_status *worker = &status->workers[i];
        str_addf(out,
                 "%-14s %-8s %-9s %-22s %-6s %6" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64
                 " %8" PRId64 "\n",
                 worker->name, worker->role, worker->state, worker->address,
                 *worker->lane ? worker->lane : "-", worker->queue, worker->running,
                 worker->blocks_free, worker->blocks_pinned, worker->blocks_landing);
    }
}
