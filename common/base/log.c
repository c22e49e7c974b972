#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static char log_process[64] = "-";
static enum log_level log_threshold = LOG_INFO;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_init(const char *process, enum log_level level)
{
    snprintf(log_process, sizeof log_process, "%s", process);
    log_threshold = level;
}

bool log_level_parse(const char *name, enum log_level *level)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (!strcmp(name, level_names[i])) {
            *level = (enum log_level)i;
            return true;
        }
    return false;
}

bool log_enabled(enum log_level level)
{
    return level >= log_threshold;
}

void log_write(enum log_level level, const char *module, const char *format, ...)
{
    if (!log_enabled(level))
        return;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    char line[LINE_MAX_BYTES];
    size_t used = strftime(line, sizeof line, "ts=%Y-%m-%dT%H:%M:%S", &utc);
    used += (size_t)snprintf(line + used, sizeof line - used, ".%03ldZ level=%s proc=%s mod=%s ",
                             now.tv_nsec / 1000000, level_names[level], log_process, module);
    va_list args;
    va_start(args, format);
    int body = vsnprintf(line + used, sizeof line - used, format, args);
    va_end(args);
    used += body > 0 ? (size_t)body : 0;
    if (used > sizeof line - 1)
        used = sizeof line - 1;
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* nowhere to report a failing log */
}

const char *log_quote(const char *text, char *buffer, size_t size)
{
    size_t used = 0;
    if (size < 8) {
        if (size)
            buffer[0] = 0;
        return buffer;
    }
    buffer[used++] = '"';
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (used + 8 > size) {
            memcpy(buffer + used, "...", 3);
            used += 3;
            break;
        }
        if (*p == '"' || *p == '\\')
            used += (size_t)snprintf(buffer + used, size - used, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            used += (size_t)snprintf(buffer + used, size - used, "\\x%02x", *p);
        else
            buffer[used++] = (char)*p;
    }
    buffer[used++] = '"';
    buffer[used] = 0;
    return buffer;
}
