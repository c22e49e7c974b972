#include "common/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *status_name(enum status status)
{
    switch (status) {
    case STATUS_OK: return "ok";
    case STATUS_INVALID: return "invalid";
    case STATUS_NOT_FOUND: return "not_found";
    case STATUS_LIMIT: return "limit";
    case STATUS_TIMEOUT: return "timeout";
    case STATUS_CANCELLED: return "cancelled";
    case STATUS_UNAVAILABLE: return "unavailable";
    case STATUS_CORRUPT: return "corrupt";
    case STATUS_UNSUPPORTED: return "unsupported";
    case STATUS_IO: return "io";
    case STATUS_INTERNAL: return "internal";
    }
    return "unknown";
}

static void error_vset(struct error *err, const char *format, va_list args)
{
    int length = vsnprintf(err->text, sizeof err->text, format, args);
    if (length >= (int)sizeof err->text)
        memcpy(err->text + sizeof err->text - 4, "...", 4);
}

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    if (!err)
        return status;
    va_list args;
    va_start(args, format);
    error_vset(err, format, args);
    va_end(args);
    return status;
}

enum status error_prefix(struct error *err, enum status status, const char *format, ...)
{
    if (!err)
        return status;
    struct error inner = *err;
    va_list args;
    va_start(args, format);
    error_vset(err, format, args);
    va_end(args);
    size_t used = strlen(err->text);
    int length = snprintf(err->text + used, sizeof err->text - used, ": %s", inner.text);
    if (length >= (int)(sizeof err->text - used))
        memcpy(err->text + sizeof err->text - 4, "...", 4);
    return status;
}
