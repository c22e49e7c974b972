#include "common/net/http/http_route.h"

#include <stdio.h>
#include <string.h>

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

/* One is the other and an "s". */
static bool is_plural(const char *path, size_t length, const char *known, size_t known_length)
{
    const char *longer = length > known_length ? path : known;
    size_t common = length < known_length ? length : known_length;
    return length + known_length == 2 * common + 1 && longer[common] == 's' &&
           !memcmp(path, known, common);
}

static size_t apart(size_t a, size_t b)
{
    return a < b ? b - a : a - b;
}

const char *http_route_meant(const struct http_route *routes, size_t count, const char *path)
{
    size_t length = strlen(path);
    const char *nearest = NULL; /* in length: of "/completions" it isn't the chat's */
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
