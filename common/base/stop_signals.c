#include "common/base/stop_signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum status stop_signals_open(struct stop_signals *signals, struct error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    *signals = (struct stop_signals){.fd = -1};
    if (!sigprocmask(SIG_BLOCK, &set, NULL))
        signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd < 0)
        return error_set(err, STATUS_IO, "cannot take signals: %s", strerror(errno));
    return STATUS_OK;
}

void stop_signals_close(struct stop_signals *signals)
{
    if (signals->fd >= 0)
        close(signals->fd);
    signals->fd = -1;
}

bool stop_signals_take(struct stop_signals *signals, uint64_t now_us)
{
    struct signalfd_siginfo info;
    bool came = false;
    while (read(signals->fd, &info, sizeof info) == sizeof info) {
        bool apart = signals->hangup_apart && info.ssi_signo == SIGHUP;
        signals->hung_up |= apart;
        came |= !apart;
    }
    if (!came || (signals->wishes && now_us - signals->counted_us < STOP_SIGNALS_ONE_US))
        return false;
    signals->wishes++;
    signals->counted_us = now_us;
    return true;
}
