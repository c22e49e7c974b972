#include "common/cli/terminal_signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum status terminal_signals_open(bool edits, int *fd, struct error *err)
{
    static const int always[] = {SIGINT, SIGTERM, SIGHUP};
    static const int of_editors[] = {SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        sigaddset(&set, always[i]);
    for (size_t i = 0; edits && i < sizeof of_editors / sizeof *of_editors; i++)
        sigaddset(&set, of_editors[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    *fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (*fd < 0)
        return error_set(err, STATUS_IO, "cannot take signals: %s", strerror(errno));
    return STATUS_OK;
}

enum terminal_signal terminal_signals_take(int fd)
{
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof info) != sizeof info)
        return TERMINAL_NOTHING;
    switch (info.ssi_signo) {
    case SIGINT: return TERMINAL_INTERRUPT;
    case SIGTSTP: return TERMINAL_STOP;
    case SIGCONT: return TERMINAL_CONTINUE;
    case SIGWINCH: return TERMINAL_RESIZE;
    default: return TERMINAL_END;
    }
}

/* SIGTSTP and not SIGSTOP: the kernel passes over it where no shell is there to let us go on. */
void terminal_signals_stop(void)
{
    sigset_t stop, went_on;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigemptyset(&went_on);
    sigaddset(&went_on, SIGCONT);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here we stop */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    sigtimedwait(&went_on, NULL, &(const struct timespec){0}); /* our caller knows */
}
