#include "common/net/http/http_target.h"

#include "common/base/utf8.h"

#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* RFC 3986: what a path or a query may hold. */
static bool is_target_char(unsigned char c)
{
    return c > ' ' && c < 0x7f && !strchr("\"#<>\\^`{|}", c);
}

static enum status check_chars(const char *target, struct http_refusal *why)
{
    for (const char *c = target; *c; c++)
        if (!is_target_char((unsigned char)*c))
            return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                               "the request's target has the byte 0x%02x, which must be escaped",
                               (unsigned char)*c);
    return STATUS_OK;
}

static enum status decode(char *path, struct http_refusal *why)
{
    char *to = path;
    for (const char *from = path; *from; from++) {
        unsigned char c = (unsigned char)*from;
        if (c == '%') {
            int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
            if (low < 0)
                return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                                   "the request's path has a '%%' without two hex digits");
            c = (unsigned char)(high * 16 + low);
            from += 2;
        }
        if (c < 0x20 || c == 0x7f)
            return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                               "the request's path has an escaped control character");
        *to++ = (char)c;
    }
    *to = 0;
    if (!utf8_valid(path, (size_t)(to - path), NULL))
        return http_refuse(why, 400, HTTP_CODE_MALFORMED, "the request's path is not UTF-8");
    return STATUS_OK;
}

/* Behind "http://host" of an absolute target, which every server has to take. */
static char *skip_authority(char *target)
{
    size_t scheme = !strncasecmp(target, "http://", 7)    ? 7
                    : !strncasecmp(target, "https://", 8) ? 8
                                                          : 0;
    return scheme ? target + scheme + strcspn(target + scheme, "/?") : target;
}

enum status http_target_split(char *target, bool may_be_star, const char **path, const char **query,
                              struct http_refusal *why)
{
    TRY(check_chars(target, why));
    if (may_be_star && !strcmp(target, "*")) {
        *path = target;
        *query = "";
        return STATUS_OK;
    }
    char *start = skip_authority(target);
    if (*start != '/')
        return http_refuse(why, 400, HTTP_CODE_MALFORMED,
                           "the request's target must be a path that begins with '/'");
    char *mark = strchr(start, '?');
    *query = mark ? mark + 1 : "";
    if (mark)
        *mark = 0;
    *path = start;
    return decode(start, why);
}
