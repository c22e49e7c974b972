#include "common/cli/key_input.h"

#include <errno.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

/* Of the one that is open: what the terminal is set to while we are stopped, and otherwise. */
static struct termios theirs, ours;

static void on_stop(int number);

/* Back to the default before each call, so that on_stop can stop us as if it weren't there. */
static void watch_for_stop(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler,
                               .sa_flags = SA_RESETHAND | SA_NODEFER | SA_RESTART};
    sigaction(SIGTSTP, &action, NULL);
}

/* Ctrl-Z: not every shell sets the terminal itself. Calls only what a signal's handler may. */
static void on_stop(int number)
{
    int before = errno;
    tcsetattr(STDIN_FILENO, TCSANOW, &theirs);
    raise(number); /* returns when we go on */
    watch_for_stop(on_stop);
    tcsetattr(STDIN_FILENO, TCSANOW, &ours);
    errno = before;
}

void key_input_open(struct key_input *input)
{
    *input = (struct key_input){.fd = -1};
    if (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp() ||
        tcgetattr(STDIN_FILENO, &theirs))
        return;
    ours = theirs;
    ours.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    ours.c_cc[VMIN] = ours.c_cc[VTIME] = 0; /* reading doesn't block */
    watch_for_stop(on_stop);
    if (tcsetattr(STDIN_FILENO, TCSANOW, &ours)) {
        watch_for_stop(SIG_DFL);
        return;
    }
    input->changed = true;
    input->fd = STDIN_FILENO;
}

void key_input_close(struct key_input *input)
{
    if (input->changed) {
        watch_for_stop(SIG_DFL);
        tcsetattr(STDIN_FILENO, TCSANOW, &theirs);
    }
    *input = (struct key_input){.fd = -1};
}

char key_input_take(struct key_input *input)
{
    char key = 0;
    if (input->fd >= 0 && read(input->fd, &key, 1) <= 0) {
        input->fd = -1; /* the terminal is gone */
        return 0;
    }
    return key;
}
