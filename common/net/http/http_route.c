#include "common/net/http/http_route.h"

#include <stdio.h>
#include <string.h>

#define MAX_ORIGIN_BYTES 256

static bool takes_path(const struct http_route *route, const char *path)
{
    size_t length = strlen(route->path);
    if (length < 2 || strcmp(route->path + length - 2, "/*"))
        return !strcmp(route->path, path);
    return !strncmp(route->path, path, length - 1) && path[length - 1];
}

static unsigned with_head(unsigned methods)
{
    return methods & HTTP_GET ? methods | HTTP_HEAD : methods;
}

const struct http_route *http_route_find(const struct http_route *routes, size_t count,
                                         enum http_method method, const char *path,
                                         unsigned *allowed)
{
    *allowed = 0;
    for (size_t i = 0; i < count; i++) {
        if (!takes_path(&routes[i], path))
            continue;
        *allowed |= with_head(routes[i].methods);
        if (with_head(routes[i].methods) & method)
            return &routes[i];
    }
    return NULL;
}

static bool ends_with(const char *text, size_t length, const char *end, size_t end_length)
{
    return length >= end_length && !memcmp(text + length - end_length, end, end_length);
}

static size_t apart(size_t a, size_t b)
{
    return a < b ? b - a : a - b;
}

/* Returns whether one of them is the other with an "s" behind it. */
static bool is_plural(const char *path, size_t length, const char *known, size_t known_length)
{
    const char *longer = length > known_length ? path : known;
    size_t common = length < known_length ? length : known_length;
    return apart(length, known_length) == 1 && longer[common] == 's' &&
           !memcmp(path, known, common);
}

const char *http_route_meant(const struct http_route *routes, size_t count, const char *path)
{
    size_t length = strlen(path);
    const char *nearest = NULL; /* in length: "/completions" isn't the chat's */
    while (length && path[length - 1] == '/')
        length--;
    for (size_t i = 0; i < count && length > 1 && path[0] == '/'; i++) {
        const char *known = routes[i].path;
        size_t known_length = strlen(known);
        if (known_length < 2 || ends_with(known, known_length, "/*", 2))
            continue;
        if (nearest && apart(known_length, length) >= apart(strlen(nearest), length))
            continue;
        if (ends_with(known, known_length, path, length) ||
            ends_with(path, length, known, known_length) ||
            is_plural(path, length, known, known_length))
            nearest = known;
    }
    return nearest;
}

void http_route_allow(unsigned methods, char text[HTTP_ALLOW_BYTES])
{
    static const struct {
        unsigned method;
        const char *name;
    } names[] = {
        {HTTP_GET, "GET"}, {HTTP_HEAD, "HEAD"}, {HTTP_POST, "POST"}, {HTTP_OPTIONS, "OPTIONS"}};
    *text = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (methods & names[i].method) {
            size_t used = strlen(text);
            snprintf(text + used, HTTP_ALLOW_BYTES - used, "%s%s", used ? ", " : "", names[i].name);
        }
}

/* --- pages of other origins --- */

/* Returns the next entry of the list, without the blanks around it. NULL: no more. */
static const char *next_origin(const char **list, size_t *length)
{
    const char *begin = *list + strspn(*list, " ,");
    *length = strcspn(begin, ",");
    *list = begin + *length;
    while (*length && begin[*length - 1] == ' ')
        --*length;
    return *length ? begin : NULL;
}

bool http_cors_allows_all(const char *origins)
{
    size_t length;
    if (!origins)
        return false;
    for (const char *one; (one = next_origin(&origins, &length));)
        if (length == 1 && *one == '*')
            return true;
    return false;
}

const char *http_cors_allowed(const char *origins, const char *origin)
{
    size_t length;
    if (!origins || !origin)
        return NULL;
    if (http_cors_allows_all(origins))
        return "*";
    for (const char *one; (one = next_origin(&origins, &length));)
        if (length == strlen(origin) && !memcmp(one, origin, length))
            return origin;
    return NULL;
}

/* Returns whether it is like "https://app.example", with a port or without. */
static bool is_origin(const char *text, size_t length)
{
    const char *scheme = memchr(text, ':', length);
    size_t begin = scheme ? (size_t)(scheme - text) + strlen("://") : 0;
    if (!scheme || scheme == text || length > MAX_ORIGIN_BYTES || begin >= length ||
        memcmp(scheme, "://", strlen("://")) != 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~' || (i >= begin && strchr("/?#*", text[i])))
            return false;
    return true;
}

static bool has_usual_port(const char *text, size_t length)
{
    static const char *const usual[][2] = {{"http://", ":80"}, {"https://", ":443"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        size_t begin = strlen(usual[i][0]), port = strlen(usual[i][1]);
        if (length > begin + port && !memcmp(text, usual[i][0], begin) &&
            !memcmp(text + length - port, usual[i][1], port))
            return true;
    }
    return false;
}

static enum status check_origin(const char *text, size_t length, struct error *err)
{
    int shown = length < 100 ? (int)length : 100;
    if (!is_origin(text, length))
        return error_set(err, STATUS_INVALID,
                         "'%.*s' is no origin: give * for all, or those of the pages, like "
                         "https://app.example or http://localhost:3000, divided by commas",
                         shown, text);
    for (size_t i = 0; i < length; i++)
        if (text[i] >= 'A' && text[i] <= 'Z')
            return error_set(err, STATUS_INVALID,
                             "'%.*s' is an origin that no browser sends: they write it in lower "
                             "case",
                             shown, text);
    if (has_usual_port(text, length))
        return error_set(err, STATUS_INVALID,
                         "'%.*s' is an origin that no browser sends: they leave out the port that "
                         "is usual for its scheme",
                         shown, text);
    return STATUS_OK;
}

enum status http_check_origins(const char *origins, struct error *err)
{
    size_t length;
    for (const char *one; (one = next_origin(&origins, &length));)
        if (!(length == 1 && *one == '*'))
            TRY(check_origin(one, length, err));
    return STATUS_OK;
}
