#include "common/cli/cmd_status.h"

#include "common/base/clock.h"
#include "common/base/str.h"
#include "common/cli/cluster_file.h"
#include "common/cli/cluster_status.h"
#include "common/config/config.h"
#include "common/http/http_client.h"
#include "common/rpc/rpc.h"

#include <stdio.h>

#define MAX_OUTPUT_BYTES (1u << 20)

struct settings {
    char http[128];
    bool json;
    uint64_t timeout_us;
};

static const struct config_setting settings_table[] = {
    {"http", CONFIG_STRING, CONFIG_AT(struct settings, http), "", .value = "HOST:PORT",
     .help = "HTTP address of the router; empty: the cluster started here last",
     .check = rpc_check_target},
    {"json", CONFIG_BOOL, CONFIG_AT(struct settings, json), "false",
     .help = "The router's own JSON instead of the table"},
    {"timeout", CONFIG_DURATION, CONFIG_AT(struct settings, timeout_us), "5s", "1ms", "10m",
     .help = "Give up after that"},
};
static const struct config_program program = {
    .name = "baton status",
    .summary = "Shows the cluster's workers: state, load, KV blocks, the lane their KV bytes take.",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
};

static enum status show(const struct settings *settings, struct error *err)
{
    struct cluster_file file = {0};
    if (*settings->http)
        str_copy(file.http, sizeof file.http, settings->http);
    else
        TRY(cluster_file_find("--http", &file, err));
    struct str text;
    str_init(&text, MAX_OUTPUT_BYTES);
    struct cluster_status seen;
    enum status status = settings->json
                             ? http_get(file.http, "/status", settings->timeout_us, &text, err)
                             : cluster_status_fetch(file.http, settings->timeout_us, &seen, err);
    if (status == STATUS_OK && !settings->json) {
        cluster_status_add_restarts(&seen, &file);
        cluster_status_print(&seen, (int64_t)(clock_unix_us() / 1000), &text);
    }
    if (status == STATUS_OK)
        fputs(text.data, stdout);
    str_deinit(&text);
    return status;
}

int cmd_status(int argc, char **argv)
{
    struct settings settings;
    struct config_result result;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    struct error err;
    if (show(&settings, &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "baton status: %s\n", err.text);
    return 1;
}
