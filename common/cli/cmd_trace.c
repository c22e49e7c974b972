#include "common/cli/commands.h"

#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/base/request_id.h"
#include "common/base/str.h"
#include "common/cli/router_call.h"
#include "common/cli/terminal.h"
#include "common/cli/views.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OUTPUT_BYTES (1u << 20)
/* A byte of an id takes up to three. */
#define MAX_TARGET_BYTES (3 * REQUEST_MAX_ID_BYTES + strlen("/decisions/?choice=15"))

struct settings {
    struct figures_settings router;
    bool json, last;
    uint32_t choice, columns;
    uint64_t timeout_us;
};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting settings_table[] = {
    FIGURES_ROWS(struct settings, router),
    {"last", CONFIG_BOOL, AT(last), "false",
     .help = "The request that came last, not one by its id"},
    {"choice", CONFIG_U64, AT(choice), "0", "0", "15",
     .help = "Which of the answers, where the request asked for several: 1 is the second"},
    {"json", CONFIG_BOOL, AT(json), "false",
     .help = "The router's own JSON instead of the timeline"},
    {"columns", CONFIG_U64, AT(columns), "0", "0", "400",
     .help = "Width of the output; 0: the terminal's"},
    {"timeout", CONFIG_DURATION, AT(timeout_us), "5s", "1ms", "10m", .help = "Give up after that"},
};
static void check(const void *settings, struct str *mistakes)
{
    figures_settings_check(&((const struct settings *)settings)->router, mistakes);
}

static const struct config_program program = {
    .name = "baton trace",
    .summary = "Shows the timeline of one request: queue, prefill, handoff and decode, with its "
               "workers and attempts.\n"
               "REQUEST_ID is the client's request_id, or the one that the answer names.",
    .usage = "[REQUEST_ID]",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
    .check = check,
    .max_positionals = 1,
};

/* `door`: "/trace". */
static enum status make_path(const char *door, const char *id, uint32_t choice, struct str *path,
                             struct error *err)
{
    if (id && strlen(id) > REQUEST_MAX_ID_BYTES)
        return error_set(err, STATUS_LIMIT, "no request has so long an id");
    str_add(path, door);
    str_add(path, id ? "/" : "");
    for (; id && *id; id++) {
        bool plain = (*id >= 'a' && *id <= 'z') || (*id >= 'A' && *id <= 'Z') ||
                     (*id >= '0' && *id <= '9') || strchr("-_.", *id);
        str_addf(path, plain ? "%c" : "%%%02X", (unsigned char)*id);
    }
    if (choice)
        str_addf(path, "?choice=%u", choice);
    return STATUS_OK;
}

static enum status fetch(const struct settings *settings, const struct figures_call *call,
                         const char *id, struct str *text, struct error *err)
{
    const struct http_remote *router = &call->router;
    struct str path;
    str_init(&path, MAX_TARGET_BYTES);
    enum status status = make_path("/trace", id, settings->choice, &path, err);
    if (status == STATUS_OK)
        status = http_get(router, path.data, settings->timeout_us, text, err);
    if (status == STATUS_NOT_FOUND && id)
        error_set(err, status,
                  "the router at %s knows no request %.140s: it keeps the newest ones "
                  "(trace-requests), since it started",
                  router->url, id);
    else if (status == STATUS_NOT_FOUND)
        error_set(err, status, "the router at %s has had no request yet", router->url);
    str_deinit(&path);
    return status;
}

static enum status show(const struct settings *settings, const struct figures_call *call,
                        const char *id, struct error *err)
{
    struct str text, out;
    str_init(&text, MAX_OUTPUT_BYTES);
    str_init(&out, MAX_OUTPUT_BYTES);
    struct trace_view *view = malloc(sizeof *view);
    enum status status = view ? fetch(settings, call, id, &text, err)
                              : error_set(err, STATUS_LIMIT, "out of memory");
    if (status == STATUS_OK && !settings->json)
        status = trace_view_parse(text.data, text.length, view, err);
    if (status == STATUS_OK && !settings->json)
        trace_view_print(view, settings->columns ? settings->columns : terminal_columns(),
                         terminal_color(), &out);
    if (status == STATUS_OK)
        fputs(settings->json ? text.data : out.data, stdout);
    free(view);
    str_deinit(&out);
    str_deinit(&text);
    return status;
}

int cmd_trace(int argc, char **argv)
{
    struct settings settings;
    struct config_result result;
    config_load_or_exit(&program, argc, argv, &settings, &result);
    const char *id = result.positional_count ? result.positionals[0] : NULL;
    struct error err;
    if ((id != NULL) == settings.last) {
        fprintf(stderr, "baton trace: give either REQUEST_ID or --last\n");
        return 2;
    }
    log_init("trace", LOG_WARN);
    struct figures_call call;
    enum status status = figures_call_open(&settings.router, &call, &err);
    if (status == STATUS_OK)
        status = show(&settings, &call, id, &err);
    figures_call_close(&call);
    if (status == STATUS_OK)
        return 0;
    fprintf(stderr, "baton trace: %s\n", err.text);
    return 1;
}

/* ---------------------------------------------------------------------------- baton explain */

struct explain_settings {
    struct figures_settings router;
    bool json;
    uint32_t choice;
    uint64_t timeout_us;
};

#undef AT
#define AT(field) CONFIG_AT(struct explain_settings, field)
static const struct config_setting explain_table[] = {
    FIGURES_ROWS(struct explain_settings, router),
    {"choice", CONFIG_U64, AT(choice), "0", "0", "15",
     .help = "Which of the answers, where the request asked for several: 1 is the second"},
    {"json", CONFIG_BOOL, AT(json), "false", .help = "The router's own JSON instead of the tables"},
    {"timeout", CONFIG_DURATION, AT(timeout_us), "5s", "1ms", "10m", .help = "Give up after that"},
};

static void explain_check(const void *settings, struct str *mistakes)
{
    figures_settings_check(&((const struct explain_settings *)settings)->router, mistakes);
}

static const struct config_program explain_program = {
    .name = "baton explain",
    .summary =
        "Shows why a request went to its workers, or was rejected: the choices that the placement "
        "policy scored, their predictions, and what became of it.\n"
        "REQUEST_ID is the client's request_id, or the one that the answer names. The router keeps "
        "a sample of its decisions (its --decision-sample and --decisions). docs/goodput.md "
        "explains the columns.",
    .usage = "REQUEST_ID",
    .settings = explain_table,
    .setting_count = sizeof explain_table / sizeof *explain_table,
    .check = explain_check,
    .max_positionals = 1,
};

static enum status explain(const struct explain_settings *settings, const struct figures_call *call,
                           const char *id, struct error *err)
{
    struct str path, text, out;
    str_init(&path, MAX_TARGET_BYTES);
    str_init(&text, MAX_OUTPUT_BYTES);
    str_init(&out, MAX_OUTPUT_BYTES);
    enum status status = make_path("/decisions", id, settings->choice, &path, err);
    if (status == STATUS_OK)
        status = http_get(&call->router, path.data, settings->timeout_us, &text, err);
    if (status == STATUS_OK) /* also where JSON is shown: it says whether there is a decision */
        status = explain_view_print(text.data, text.length, terminal_color(), &out, err);
    if (status == STATUS_OK)
        fputs(settings->json ? text.data : out.data, stdout);
    str_deinit(&out);
    str_deinit(&text);
    str_deinit(&path);
    return status;
}

int cmd_explain(int argc, char **argv)
{
    struct explain_settings settings;
    struct config_result result;
    config_load_or_exit(&explain_program, argc, argv, &settings, &result);
    struct error err;
    if (!result.positional_count) {
        fprintf(stderr, "baton explain: give REQUEST_ID\n");
        return 2;
    }
    log_init("explain", LOG_WARN);
    struct figures_call call;
    enum status status = figures_call_open(&settings.router, &call, &err);
    if (status == STATUS_OK)
        status = explain(&settings, &call, result.positionals[0], &err);
    figures_call_close(&call);
    if (status == STATUS_OK)
        return 0;
    fprintf(stderr, "baton explain: %s\n", err.text);
    return 1;
}
