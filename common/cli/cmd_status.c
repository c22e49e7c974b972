#include "common/cli/commands.h"

#include "common/base/clock.h"
#include "common/base/config/config.h"
#include "common/base/str.h"
#include "common/cli/cluster_status.h"
#include "common/cli/router_call.h"

#include <stdio.h>

#define MAX_OUTPUT_BYTES (8u << 20) /* a router's JSON */

struct settings {
    struct figures_settings router;
    bool json;
    uint64_t timeout_us;
};

static const struct config_setting settings_table[] = {
    FIGURES_ROWS(struct settings, router),
    {"json", CONFIG_BOOL, CONFIG_AT(struct settings, json), "false",
     .help = "The router's own JSON instead of the table"},
    {"timeout", CONFIG_DURATION, CONFIG_AT(struct settings, timeout_us), "5s", "1ms", "10m",
     .help = "Give up after that"},
};
static void check(const void *settings, struct str *mistakes)
{
    figures_settings_check(&((const struct settings *)settings)->router, mistakes);
}

static const struct config_program program = {
    .name = "baton status",
    .summary = "Shows the cluster's workers: state, load, KV blocks, the lane their KV bytes take. "
               "With SLO classes, first how many of their requests attained.",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
    .check = check,
};

static enum status show(const struct figures_call *call, const void *context, struct error *err)
{
    const struct settings *settings = context;
    struct str text;
    str_init(&text, MAX_OUTPUT_BYTES);
    static struct cluster_status seen;
    enum status status =
        settings->json ? cluster_status_get(&call->router, settings->timeout_us, &text, err)
                       : cluster_status_fetch(&call->router, settings->timeout_us, &seen, err);
    if (status == STATUS_OK && !settings->json) {
        cluster_status_add_restarts(&seen, &call->file);
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
    return figures_call_run(&program, &settings.router, show, &settings);
}
