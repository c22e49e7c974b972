#include "common/cli/key_input.h"

#include <unistd.h>

void key_input_open(struct key_input *input)
{
    *input = (struct key_input){.fd = -1};
    if (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp() ||
        tcgetattr(STDIN_FILENO, &input->before))
        return;
    struct termios keys = input->before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keys.c_cc[VMIN] = keys.c_cc[VTIME] = 0; /* reading doesn't block */
    if (tcsetattr(STDIN_FILENO, TCSANOW, &keys))
        return;
    input->changed = true;
    input->fd = STDIN_FILENO;
}

void key_input_close(struct key_input *input)
{
    if (input->changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &input->before);
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
