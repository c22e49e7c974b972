/* Single keys of the terminal that is standard input, without Enter, and without showing them.
 * Ctrl-C and the like stay signals; while Ctrl-Z has stopped us the terminal is as it was. Where
 * standard input is no terminal, or is another program's (we run in the background), no key comes.
 * One at a time is open in a process. One thread. */
#ifndef BATON_CLI_KEY_INPUT_H
#define BATON_CLI_KEY_INPUT_H

#include <stdbool.h>

struct key_input {
    int fd;       /* to poll; -1: no key comes (any more) */
    bool changed; /* the terminal */
};

void key_input_open(struct key_input *input);
/* Gives the terminal back as it was. A zeroed one is fine. */
void key_input_close(struct key_input *input);
/* Of what was typed, without blocking; 0: nothing. */
char key_input_take(struct key_input *input);

#endif
