#include "common/base/progress_line.h"

#include <stdarg.h>
#include <unistd.h>

#define DRAW_INTERVAL_US 100000
#define LOG_INTERVAL_US  3000000

FILE *progress_line_terminal(void)
{
    return isatty(STDERR_FILENO) ? stderr : NULL;
}

struct progress_line progress_line_begin(FILE *terminal, uint64_t now_us)
{
    return (struct progress_line){.terminal = terminal, .told_us = now_us};
}

bool progress_line_due(struct progress_line *line, uint64_t now_us)
{
    if (now_us - line->told_us < (line->terminal ? DRAW_INTERVAL_US : LOG_INTERVAL_US))
        return false;
    line->told_us = now_us;
    return true;
}

void progress_line_tell(struct progress_line *line, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(line->terminal ? line->terminal : stderr, line->terminal ? "\r%s \033[K" : "%s\n",
            text);
    line->drawn = line->terminal;
    if (line->terminal)
        fflush(line->terminal);
}

void progress_line_end(struct progress_line *line)
{
    if (!line->drawn)
        return;
    fputs("\r\033[K", line->terminal);
    fflush(line->terminal);
    line->drawn = false;
}
