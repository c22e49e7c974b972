/* baton-router: settings, signals, drain and stop. Everything else is in router.h. */
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "common/base/stop_signals.h"
#include "router/router.h"
#include "router/router_config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

static void tell_ready(const struct router *router, uint32_t fd)
{
    if (!fd)
        return;
    dprintf((int)fd,
            "{\"role\":\"router\",\"pid\":%d,\"address\":\"%s\",\"registry\":\"%s\","
            "\"metrics\":\"%s\",\"http\":\"%s\"}\n",
            (int)getpid(), router_address(router), router_registry_address(router),
            router_metrics_address(router), router_http_address(router));
    close((int)fd);
}

/* True: a signal asks to stop. SIGHUP opens the log file again, if there is one. */
static bool take_signals(struct router *router, struct stop_signals *signals)
{
    bool wish = stop_signals_take(signals, clock_now_us());
    if (signals->hung_up)
        router_reopen_logs(router);
    signals->hung_up = false;
    return wish;
}

/* Returns when the last request has ended, the time is over, or a second signal asks to stop. */
static void drain(struct router *router, struct stop_signals *signals, uint64_t timeout_us)
{
    router_drain(router);
    uint64_t end_us = clock_now_us() + timeout_us;
    struct pollfd fds[] = {{.fd = router_idle_fd(router), .events = POLLIN},
                           {.fd = signals->fd, .events = POLLIN}};
    for (;;) {
        uint64_t now_us = clock_now_us();
        uint64_t left_ms = now_us < end_us ? (end_us - now_us + 999) / 1000 : 0;
        int ready = poll(fds, 2, left_ms > 60000 ? 60000 : (int)left_ms);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready > 0 && fds[0].revents) {
            log_info("main", "msg=\"drained\"");
            return;
        }
        bool again = ready > 0 && fds[1].revents && take_signals(router, signals);
        if (again || clock_now_us() >= end_us) {
            log_warn("main", "why=\"%s\" msg=\"stopping with requests still running\"",
                     again ? "asked a second time" : "the drain's time is over");
            return;
        }
    }
}

int main(int argc, char **argv)
{
    struct router_config config;
    struct config_result result;
    struct error err;
    signal(SIGPIPE, SIG_IGN); /* before the first log line */
    config_load_or_exit(&router_program, argc, argv, &config, &result);
    log_init("router", (enum log_level)config.log_level);
    config_log(&router_program, &config, &result);
    struct stop_signals signals;
    struct router *router;
    if (stop_signals_open(&signals, &err) != STATUS_OK ||
        failpoint_init("router", &err) != STATUS_OK ||
        router_start(&config, &router, &err) != STATUS_OK) {
        log_error("main", "msg=\"can't start\"");
        fprintf(stderr, "baton-router: %s\n", err.text);
        return 1;
    }
    tell_ready(router, config.ready_fd);
    signals.hangup_apart = router_has_log_file(router);
    struct pollfd asked = {.fd = signals.fd, .events = POLLIN};
    do
        poll(&asked, 1, -1);
    while (!take_signals(router, &signals));
    log_info("main", "msg=\"asked to stop\"");
    drain(router, &signals, config.drain_timeout_us);
    router_stop(router);
    stop_signals_close(&signals);
    log_info("main", "msg=\"stopped\"");
    return 0;
}
