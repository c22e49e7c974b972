/* `baton trace` and `baton explain`: one request, by its id or the newest. */
#include "common/cli/commands.h"

#include "common/base/config/config.h"
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
#define MAX_TARGET_BYTES (3 * MAX_ID_BYTES + strlen("/decisions/?choice=15"))
#define MAX_ID_BYTES     (REQUEST_MAX_ID_BYTES + strlen("chatcmpl-"))

struct settings {
    struct figures_settings router;
    bool json, last;
    uint32_t choice, columns;
    uint64_t timeout_us;
    const char *id; /* NULL: the newest */
};

#define AT(field) CONFIG_AT(struct settings, field)
#define ROWS(newest, instead)                                                                      \
    FIGURES_ROWS(struct settings, router),                                                         \
        {"last", CONFIG_BOOL, AT(last), "false", .help = newest},                                  \
        {"choice",                                                                                 \
         CONFIG_U64,                                                                               \
         AT(choice),                                                                               \
         "0",                                                                                      \
         "0",                                                                                      \
         "15",                                                                                     \
         .help = "Which of the answers, where the request asked for several: 1 is the second"},    \
        {"json", CONFIG_BOOL, AT(json), "false",                                                   \
         .help = "The router's own JSON instead of the " instead},                                 \
    {                                                                                              \
        "timeout", CONFIG_DURATION, AT(timeout_us), "5s", "1ms", "10m",                            \
            .help = "Give up after that"                                                           \
    }
static const struct config_setting trace_table[] = {
    ROWS("The request that came last, not one by its id", "timeline"),
    {"columns", CONFIG_U64, AT(columns), "0", "0", "400",
     .help = "Width of the output; 0: the terminal's"},
};
static const struct config_setting explain_table[] = {
    ROWS("The newest decision that the router has kept, not one by its request's id", "tables"),
};

static void check(const void *settings, struct str *mistakes)
{
    figures_settings_check(&((const struct settings *)settings)->router, mistakes);
}

#define IDS                                                                                        \
    "REQUEST_ID is the client's request_id, the one that the answer names, or the id of an "       \
    "OpenAI answer (chatcmpl-...)."
static const struct config_program trace_program = {
    .name = "baton trace",
    .summary = "Shows the timeline of one request: queue, prefill, handoff and decode, with its "
               "workers and attempts.\n" IDS,
    .usage = "[REQUEST_ID]",
    .settings = trace_table,
    .setting_count = sizeof trace_table / sizeof *trace_table,
    .check = check,
    .max_positionals = 1,
};

static const struct config_program explain_program = {
    .name = "baton explain",
    .summary =
        "Shows why a request went to its workers, or was rejected: the choices that the placement "
        "policy scored, their predictions, and what became of it.\n" IDS
        " The router keeps a sample of its decisions (decision-sample and decisions, of the router "
        "and of baton up). docs/goodput.md explains the columns.",
    .usage = "[REQUEST_ID]",
    .settings = explain_table,
    .setting_count = sizeof explain_table / sizeof *explain_table,
    .check = check,
    .max_positionals = 1,
};

/* Gets `door`, "/trace", of the request that is asked for. */
static enum status fetch(const struct settings *settings, const struct figures_call *call,
                         const char *door, struct str *text, struct error *err)
{
    struct str path;
    if (settings->id && strlen(settings->id) > MAX_ID_BYTES)
        return error_set(err, STATUS_LIMIT, "no request has so long an id");
    str_init(&path, MAX_TARGET_BYTES);
    str_addf(&path, "%s%s", door, settings->id ? "/" : "");
    for (const char *at = settings->id; at && *at; at++) {
        bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                     (*at >= '0' && *at <= '9') || strchr("-_.", *at);
        str_addf(&path, plain ? "%c" : "%%%02X", (unsigned char)*at);
    }
    if (settings->choice)
        str_addf(&path, "?choice=%u", settings->choice);
    enum status status = http_get(&call->router, path.data, settings->timeout_us, text, err);
    str_deinit(&path);
    return status;
}

static enum status trace(const struct figures_call *call, const void *context, struct error *err)
{
    const struct settings *settings = context;
    struct str text, out;
    str_init(&text, MAX_OUTPUT_BYTES);
    str_init(&out, MAX_OUTPUT_BYTES);
    struct trace_view *view = malloc(sizeof *view);
    enum status status = view ? fetch(settings, call, "/trace", &text, err)
                              : error_set(err, STATUS_LIMIT, "out of memory");
    if (status == STATUS_NOT_FOUND && settings->id)
        error_set(err, status,
                  "the router at %s knows no request %.140s: it keeps the newest ones "
                  "(trace-requests), since it started",
                  call->router.url, settings->id);
    else if (status == STATUS_NOT_FOUND)
        error_set(err, status, "the router at %s has had no request yet", call->router.url);
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

static enum status explain(const struct figures_call *call, const void *context, struct error *err)
{
    const struct settings *settings = context;
    struct str text, out;
    str_init(&text, MAX_OUTPUT_BYTES);
    str_init(&out, MAX_OUTPUT_BYTES);
    enum status status = fetch(settings, call, "/decisions", &text, err);
    if (status == STATUS_OK) /* also where JSON is shown: it says whether there is a decision */
        status = explain_view_print(text.data, text.length, terminal_color(), &out, err);
    if (status == STATUS_OK)
        fputs(settings->json ? text.data : out.data, stdout);
    str_deinit(&out);
    str_deinit(&text);
    return status;
}

static int run(const struct config_program *program, int argc, char **argv,
               enum status (*body)(const struct figures_call *call, const void *context,
                                   struct error *err))
{
    struct settings settings = {.id = NULL};
    struct config_result result;
    config_load_or_exit(program, argc, argv, &settings, &result);
    settings.id = result.positional_count ? result.positionals[0] : NULL;
    const char *wrong = NULL;
    if ((settings.id != NULL) == settings.last)
        wrong = "give either REQUEST_ID or --last";
    else if (settings.id && !*settings.id)
        wrong = "REQUEST_ID is empty: give the id of a request, or --last";
    if (!wrong)
        return figures_call_run(program, &settings.router, body, &settings);
    fprintf(stderr, "%s: %s\n", program->name, wrong);
    return 2;
}

int cmd_trace(int argc, char **argv)
{
    return run(&trace_program, argc, argv, trace);
}

int cmd_explain(int argc, char **argv)
{
    return run(&explain_program, argc, argv, explain);
}
