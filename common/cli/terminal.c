#include "common/cli/terminal.h"

#include "common/base/str.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

unsigned terminal_columns(void)
{
    struct winsize window = {0};
    uint64_t columns;
    const char *told = getenv("COLUMNS");
    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) && window.ws_col)
        return window.ws_col;
    return told && str_to_u64(told, 20, 1000, &columns) ? (unsigned)columns : TERMINAL_COLUMNS;
}

unsigned terminal_lines(void)
{
    struct winsize window = {0};
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) ? 0 : window.ws_row;
}

bool terminal_is_one(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && *kind && strcmp(kind, "dumb");
}

bool terminal_color(void)
{
    const char *no_color = getenv("NO_COLOR");
    return terminal_is_one() && !(no_color && *no_color);
}

/* Returns the bytes of the control character at `text`, 1 or 2. 0: it is none. U+0080 .. U+009F
 * have two bytes in UTF-8. */
static size_t control_at(const char *text, size_t count)
{
    unsigned char c = (unsigned char)*text;
    if (c < 0x20 || c == 0x7f)
        return 1;
    return c == 0xc2 && count > 1 && ((unsigned char)text[1] & 0xe0) == 0x80 ? 2 : 0;
}

void terminal_word(const char *text, char *target, size_t size)
{
    size_t used = 0;
    for (; *text && used + 1 < size; text++) {
        size_t control = control_at(text, 2); /* the second byte may be the NUL */
        target[used++] = control ? '?' : *text;
        text += control == 2;
    }
    while (used && *text && ((unsigned char)*text & 0xc0) == 0x80)
        if (((unsigned char)target[--used] & 0xc0) != 0x80)
            break;
    target[used] = 0;
}

size_t terminal_plain(const char *text, size_t count, char *shown)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        size_t control = text[i] == '\n' || text[i] == '\t' ? 0 : control_at(text + i, count - i);
        if (text[i] != '\r')
            shown[used++] = control ? '?' : text[i];
        i += control == 2;
    }
    return used;
}

void terminal_show(const char *text, size_t count)
{
    bool plain = isatty(STDOUT_FILENO);
    while (count) {
        char shown[4096];
        size_t piece = count < sizeof shown ? count : sizeof shown;
        piece -=
            piece < count && (unsigned char)text[piece - 1] == 0xc2; /* keeps two bytes whole */
        if (plain)
            fwrite(shown, 1, terminal_plain(text, piece, shown), stdout);
        else
            fwrite(text, 1, piece, stdout);
        text += piece;
        count -= piece;
    }
}

/* --- signals --- */

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

/* Raises SIGTSTP and not SIGSTOP: the kernel ignores it if no shell could continue the process. */
void terminal_signals_stop(void)
{
    sigset_t stop, went_on;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigemptyset(&went_on);
    sigaddset(&went_on, SIGCONT);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* the process stops here */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    sigtimedwait(&went_on, NULL, &(const struct timespec){0}); /* the caller knows */
}

/* --- keys --- */

/* The terminal's modes while this process is stopped, and otherwise, for the open key_input. */
static struct termios theirs, ours;

static void on_stop(int number);

/* Sets a handler for one SIGTSTP: the default is back before it runs, so it can stop the
 * process. */
static void watch_for_stop(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler,
                               .sa_flags = SA_RESETHAND | SA_NODEFER | SA_RESTART};
    sigaction(SIGTSTP, &action, NULL);
}

/* Puts the terminal back at Ctrl-Z, since not every shell does. Calls only functions that a
 * signal's handler may call. */
static void on_stop(int number)
{
    int before = errno;
    tcsetattr(STDIN_FILENO, TCSANOW, &theirs);
    raise(number); /* returns when the process continues */
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
