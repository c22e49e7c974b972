#include "common/net/http/http_refusal.h"

#include <stdarg.h>

enum status http_refuse(struct http_refusal *why, int status, const char *code, const char *format,
                        ...)
{
    why->status = status;
    why->code = code;
    va_list args;
    va_start(args, format);
    error_vset(&why->why, STATUS_INVALID, format, args);
    va_end(args);
    return STATUS_INVALID;
}
