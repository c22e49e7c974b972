#include "common/cli/commands.h"

#include "common/base/clock.h"
#include "common/base/config/config.h"
#include "common/base/log.h"
#include "common/base/standard_output.h"
#include "common/base/stop_signals.h"
#include "common/cli/router_call.h"
#include "common/cli/terminal.h"
#include "common/cli/views.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_OUTPUT_BYTES (1u << 20)

struct settings {
    struct figures_settings router;
    bool once;
    uint64_t interval_us, timeout_us;
};

#define AT(field) CONFIG_AT(struct settings, field)
static const struct config_setting settings_table[] = {
    FIGURES_ROWS(struct settings, router),
    {"interval", CONFIG_DURATION, AT(interval_us), "1s", "100ms", "1h",
     .help = "Time from one look to the next, and of the rates"},
    {"once", CONFIG_BOOL, AT(once), "false",
     .help = "Two looks, one table, and the end; also where standard output is no terminal"},
    {"timeout", CONFIG_DURATION, AT(timeout_us), "5s", "1ms", "10m",
     .help = "Give up a look after that"},
};
static void check(const void *settings, struct str *mistakes)
{
    figures_settings_check(&((const struct settings *)settings)->router, mistakes);
}

static const struct config_program program = {
    .name = "baton top",
    .summary = "Shows workers, queues, KV use, tokens a second, TTFT and TPOT, until q or Ctrl-C.",
    .settings = settings_table,
    .setting_count = sizeof settings_table / sizeof *settings_table,
    .check = check,
};

struct watch {
    struct settings settings;
    struct figures_call call;
    struct stop_signals signals;
    struct key_input keys;
    struct top_look looks[3]; /* shown now, before it, and the next one */
    struct str out;
};

static enum status look(struct watch *watch, struct top_look *now, struct error *err)
{
    enum status status =
        cluster_status_fetch(&watch->call.router, watch->settings.timeout_us, &now->status, err);
    now->at_us = clock_now_us();
    return status;
}

/* False: a key or a signal asks to stop. */
static bool wait_for_next(struct watch *watch)
{
    uint64_t due_us = clock_now_us() + watch->settings.interval_us;
    for (uint64_t now_us; (now_us = clock_now_us()) < due_us;) {
        struct pollfd fds[2] = {{.fd = watch->signals.fd, .events = POLLIN},
                                {.fd = watch->keys.fd, .events = POLLIN}};
        uint64_t left_ms = (due_us - now_us + 999) / 1000;
        poll(fds, 2, left_ms > 60000 ? 60000 : (int)left_ms);
        char key = fds[1].revents ? key_input_take(&watch->keys) : 0;
        if (key == 'q' || key == 'Q' ||
            (fds[0].revents && stop_signals_take(&watch->signals, clock_now_us())))
            return false;
    }
    return true;
}

/* Shows the figures of `now`. `why`: the last look failed, and these are older; the router may come
 * back. */
static enum status show(struct watch *watch, const struct top_look *before,
                        const struct top_look *now, const char *why, struct error *err)
{
    bool live = !watch->settings.once;
    str_clear(&watch->out);
    if (live)
        str_add(&watch->out, "\033[H\033[2J");
    top_view_print(before, now, live ? terminal_lines() : 0, terminal_color(), &watch->out);
    if (*why)
        str_addf(&watch->out, "\n%s\n", why);
    fputs(watch->out.data, stdout);
    return standard_output_flush(err);
}

static enum status run(struct watch *watch, struct error *err)
{
    struct top_look *before = NULL, *now = &watch->looks[0], *next = &watch->looks[1],
                    *spare = &watch->looks[2];
    char why[sizeof err->text] = "";
    TRY(look(watch, now, err));
    for (;;) {
        if (!watch->settings.once)
            TRY(show(watch, before, now, why, err));
        if (!wait_for_next(watch))
            return STATUS_OK;
        *why = 0;
        enum status status = look(watch, next, err);
        if (status != STATUS_OK && watch->settings.once)
            return status;
        if (status != STATUS_OK) {
            str_copy(why, sizeof why, err->text);
            continue;
        }
        if (watch->settings.once)
            return show(watch, now, next, "", err);
        struct top_look *oldest = before ? before : spare;
        before = now;
        now = next;
        next = oldest;
    }
}

int cmd_top(int argc, char **argv)
{
    struct watch *watch = calloc(1, sizeof *watch);
    struct config_result result;
    struct error err = {"out of memory"};
    if (!watch) {
        fprintf(stderr, "baton top: %s\n", err.text);
        return 1;
    }
    config_load_or_exit(&program, argc, argv, &watch->settings, &result);
    watch->settings.once |= !terminal_is_one();
    log_init("top", LOG_WARN);
    str_init(&watch->out, MAX_OUTPUT_BYTES);
    watch->keys.fd = -1;
    if (!watch->settings.once)
        key_input_open(&watch->keys);
    enum status status = stop_signals_open(&watch->signals, &err);
    if (status == STATUS_OK)
        status = figures_call_open(&watch->settings.router, &watch->call, &err);
    if (status == STATUS_OK)
        status = run(watch, &err);
    key_input_close(&watch->keys);
    if (status != STATUS_OK)
        fprintf(stderr, "baton top: %s\n", err.text);
    figures_call_close(&watch->call);
    stop_signals_close(&watch->signals);
    str_deinit(&watch->out);
    free(watch);
    return status == STATUS_OK ? 0 : 1;
}
