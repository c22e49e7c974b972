#include "common/base/status.h"

#include "common/base/utf8.h"

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

/* Ends the text after a write that needed `wanted` bytes. Cuts it with dots behind a whole
 * character and makes it printable, because sentences quote text from outside. */
static void finish(struct error *err, size_t wanted)
{
    size_t end = sizeof err->text - 4;
    if (wanted >= sizeof err->text) {
        while (end > 0 && ((unsigned char)err->text[end] & 0xc0) == 0x80)
            end--;
        memcpy(err->text + end, "...", 4);
    }
    utf8_make_printable(err->text);
}

static size_t format_into(struct error *err, const char *format, va_list args)
{
    int length = vsnprintf(err->text, sizeof err->text, format, args);
    return length > 0 ? (size_t)length : 0;
}

enum status error_vset(struct error *err, enum status status, const char *format, va_list args)
{
    if (err)
        finish(err, format_into(err, format, args));
    return status;
}

enum status error_set(struct error *err, enum status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vset(err, status, format, args);
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
    size_t wanted = format_into(err, format, args);
    va_end(args);
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", inner.text);
    finish(err, wanted + 2 + strlen(inner.text));
    return status;
}
