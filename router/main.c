/* baton-router: settings, signals, and the order of the end. Everything else is router.h. */
#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/log.h"
#include "router/router.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* SIGTERM and SIGINT come as reads; blocked before any thread starts, so that none gets them. */
static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static void take_signal(int signals)
{
    struct signalfd_siginfo info;
    if (read(signals, &info, sizeof info) == sizeof info)
        log_info("main", "signal=%u msg=\"asked to stop\"", info.ssi_signo);
}

static void tell_ready(const struct router *router, uint32_t fd)
{
    if (!fd)
        return;
    dprintf((int)fd, "{\"role\":\"router\",\"pid\":%d,\"address\":\"%s\",\"metrics\":\"%s\"}\n",
            (int)getpid(), router_address(router), router_metrics_address(router));
    close((int)fd);
}

/* Until the last request has ended, the time is over, or a second signal comes. */
static void drain(struct router *router, int signals, uint64_t timeout_us)
{
    router_drain(router);
    uint64_t end_us = clock_now_us() + timeout_us;
    struct pollfd fds[] = {{.fd = router_idle_fd(router), .events = POLLIN},
                           {.fd = signals, .events = POLLIN}};
    for (;;) {
        uint64_t now_us = clock_now_us();
        uint64_t left_ms = now_us < end_us ? (end_us - now_us + 999) / 1000 : 0;
        int ready = poll(fds, 2, left_ms > 60000 ? 60000 : (int)left_ms);
        if (ready < 0 && errno != EINTR)
            return;
        if (fds[0].revents) {
            log_info("main", "msg=\"drained\"");
            return;
        }
        if (fds[1].revents || clock_now_us() >= end_us) {
            log_warn("main", "msg=\"stopping with requests still running\"");
            return;
        }
    }
}

int main(int argc, char **argv)
{
    struct router_config config;
    struct config_result result;
    struct error err;
    config_load_or_exit(&router_program, argc, argv, &config, &result);
    log_init("router", (enum log_level)config.log_level);
    config_log(&router_program, &config, &result);
    int signals = open_signals();
    struct router *router;
    if (failpoint_init("router", &err) != STATUS_OK ||
        router_start(&config, &router, &err) != STATUS_OK) {
        log_error("main", "msg=\"can't start\"");
        fprintf(stderr, "baton-router: %s\n", err.text);
        return 1;
    }
    tell_ready(router, config.ready_fd);
    struct pollfd asked = {.fd = signals, .events = POLLIN};
    while (poll(&asked, 1, -1) < 0 && errno == EINTR)
        ;
    take_signal(signals);
    drain(router, signals, config.drain_timeout_us);
    router_stop(router);
    log_info("main", "msg=\"stopped\"");
    return 0;
}
