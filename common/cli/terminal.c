#include "common/cli/terminal.h"

#include "common/base/str.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

void terminal_word(const char *text, char *target, size_t size)
{
    size_t used = 0;
    for (; *text && used + 1 < size; text++) {
        unsigned char c = (unsigned char)*text;
        bool c1 = c == 0xc2 && ((unsigned char)text[1] & 0xe0) == 0x80; /* U+0080 .. U+009F */
        target[used++] = c < 0x20 || c == 0x7f || c1 ? '?' : *text;
        text += c1;
    }
    while (used && *text && ((unsigned char)*text & 0xc0) == 0x80)
        if (((unsigned char)target[--used] & 0xc0) != 0x80)
            break;
    target[used] = 0;
}
