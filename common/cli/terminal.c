#include "common/cli/terminal.h"

#include "common/base/str.h"

#include <stdio.h>
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

/* Of one or two bytes; 0: it is none. (U+0080 .. U+009F are two in UTF-8.) */
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
        size_t control = control_at(text, 2); /* there is a NUL behind it */
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
            piece < count && (unsigned char)text[piece - 1] == 0xc2; /* not between two bytes */
        if (plain)
            fwrite(shown, 1, terminal_plain(text, piece, shown), stdout);
        else
            fwrite(text, 1, piece, stdout);
        text += piece;
        count -= piece;
    }
}
